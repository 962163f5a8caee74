/* heads.comp: what is done to each value of heads: gates, and a number for each token. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
layout(local_size_x = 64) in;
/* enum heads_op of record.c: times the sigmoid of its own gate, of its head's, times by[token] */
#define GATE_VALUES 0u
#define GATE_HEADS 1u
#define SCALE 2u
layout(push_constant) uniform P {
    uvec2 x, by;
    uint ldx, ld_by; /* from token to token */
    uint stride, stride_by, n, op;
} p;

uvec2 head(uvec2 base, uint ld, uint stride) {
    return further(further(base, gl_WorkGroupID.z * 4u, ld), gl_WorkGroupID.y * 4u, stride);
}

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= p.n) return;
    Floats x = Floats(head(p.x, p.ldx, p.stride));
    float by = Floats(head(p.by, p.ld_by, p.stride_by)).at[p.op == GATE_VALUES ? i : 0u];
    if (p.op != SCALE) by = tidy_(div_(1.0, add_(1.0, exp_(-by))));
    x.at[i] = tidy_(mul_(x.at[i], by));
}
