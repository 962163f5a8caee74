/* rope.comp: rope() of kernels.h. An invocation has a pair of values of a head of a token. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform P {
    uvec2 x, cos, sin;
    uint ldx, stride, n_heads, n_rot, neox;
} p;

void main() {
    uint n_pairs = p.n_rot / 2u, i = gl_GlobalInvocationID.x, token = gl_WorkGroupID.y;
    if (i >= p.n_heads * n_pairs) return;
    uint k = i % n_pairs;
    Floats x = Floats(further(further(p.x, token * 4u, p.ldx), i / n_pairs * 4u, p.stride));
    float c = Floats(p.cos).at[token * n_pairs + k], s = Floats(p.sin).at[token * n_pairs + k];
    uint a = p.neox != 0u ? k : 2u * k, b = p.neox != 0u ? k + n_pairs : a + 1u;
    float x0 = x.at[a], x1 = x.at[b];
    x.at[a] = tidy_(fma_(x0, c, -mul_(x1, s)));
    x.at[b] = tidy_(fma_(x0, s, mul_(x1, c)));
}
