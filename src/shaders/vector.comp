/* vector.comp: what is done to each value of rows: sums, fixed point, softcap. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
layout(local_size_x = 256) in;
/* enum vector_op of shaders_impl.h */
#define FIXED_ADD 0u
#define FIXED_GET 1u
#define ADD 2u
#define SCALE 3u
#define SOFTCAP 4u
#define FIXED_BIAS 5u
#define SCALE_ROWS 6u
#define FIXED_ZERO 7u
#define TIMES 8u
layout(push_constant) uniform P {
    uvec2 x, y; /* x is written (int64 of FIXED_BIAS, FIXED_ZERO), y read */
    uint ldx, ldy, n, op;
    float by;
} p;

float result(float x, uint i, uvec2 y) {
    if (p.op == FIXED_ADD) return add_(x, from_fixed(Pairs(y).at[i]));
    if (p.op == ADD) return add_(x, Floats(y).at[i]);
    if (p.op == TIMES) return mul_(x, Floats(y).at[i]);
    if (p.op == SCALE) return mul_(x, p.by);
    if (p.op == SCALE_ROWS) return mul_(x, Floats(y).at[0]);
    return mul_(p.by, tanh_(div_(x, p.by)));
}

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (i >= p.n) return;
    bool fixed_x = p.op == FIXED_BIAS || p.op == FIXED_ZERO;
    bool fixed_y = p.op == FIXED_ADD || p.op == FIXED_GET;
    uvec2 x = further(p.x, row * (fixed_x ? 8u : 4u), p.ldx);
    uvec2 y = further(p.y, row * (fixed_y ? 8u : 4u), p.ldy);
    if (p.op == FIXED_ZERO)
        Pairs(x).at[i] = uvec2(0u);
    else if (fixed_x)
        Pairs(x).at[i] = add64(Pairs(x).at[i], to_fixed(mul_(Floats(y).at[i], p.by)));
    else if (p.op == FIXED_GET)
        Floats(x).at[i] = from_fixed(Pairs(y).at[i]);
    else
        Floats(x).at[i] = tidy_(result(Floats(x).at[i], i, y));
}
