/* lanes16.comp: what is done by a sum over 16 lanes of a head or a row: LayerNorm's first half, and
 * norms without weights. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
#define LANES 16u
layout(local_size_x = 64) in;
/* enum lanes16_op of record.c */
#define CENTER 0u
#define PLAIN_NORM 1u
layout(push_constant) uniform P {
    uvec2 y, x;
    uint ldy, ldx, stride; /* from token to token, from head to head */
    uint n, op;
    float eps;
} p;
shared float lanes[LANES];

uvec2 head(uvec2 base, uint ld) {
    return further(further(base, gl_WorkGroupID.y * 4u, ld), gl_WorkGroupID.x * 4u, p.stride);
}

void main() {
    uint t = gl_LocalInvocationID.x;
    Floats x = Floats(head(p.x, p.ldx)), y = Floats(head(p.y, p.ldy));
    if (t < LANES) {
        float sum = 0.0;
        for (uint i = t; i < p.n; i += LANES)
            sum = add_(sum, p.op == CENTER ? x.at[i] : mul_(x.at[i], x.at[i]));
        lanes[t] = sum;
    }
    barrier();
    for (uint half_ = LANES / 2u; half_ >= 1u; half_ /= 2u) {
        if (t < half_) lanes[t] = add_(lanes[t], lanes[t + half_]);
        barrier();
    }
    float by = div_(lanes[0], float(p.n));
    if (p.op == PLAIN_NORM) by = div_(1.0, sqrt_(add_(by, p.eps)));
    for (uint i = t; i < p.n; i += gl_WorkGroupSize.x)
        y.at[i] = tidy_(p.op == CENTER ? add_(x.at[i], -by) : mul_(x.at[i], by));
}
