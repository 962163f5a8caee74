/* recurrent_gates.comp: what a recurrent layer's heads decay by and learn with, of each token in
 * place: the functions of definition.h. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
#include "exact64.glsl"
#include "recurrent.glsl"
layout(local_size_x = 64) in;
/* enum shaders_gates of shaders_recurrent.h */
#define DELTA 0u
#define DELTA_BOUNDED 1u
#define MAMBA2 2u
layout(push_constant) uniform P {
    uvec2 rows, heads, a, bias;
    uint ld, n_heads, n, op; /* n decays of each head */
    float least;
} p;

float sigmoid(float x) { return tidy_(div_(1.0, add_(1.0, exp_(-x)))); }

void main() {
    uint i = gl_GlobalInvocationID.x, of = i / p.n, channel = i % p.n;
    if (of >= p.n_heads) return;
    Head head = head_at(p.heads, of);
    Floats row = Floats(further(p.rows, gl_WorkGroupID.y * 4u, p.ld));
    float a = Floats(p.a).at[head.head], bias = Floats(p.bias).at[head.head * p.n + channel];
    if (p.op == MAMBA2) {
        float dt = tidy_(softplus_(add_(row.at[head.beta], bias)));
        row.at[head.beta] = dt;
        row.at[head.decay] = not_less(exp_(mul_(dt, a)));
        return;
    }
    float alpha = add_(row.at[head.decay + channel], bias);
    float exponent = p.op == DELTA ? mul_(a, softplus_(alpha)) : mul_(p.least, sigmoid(mul_(-a, alpha)));
    row.at[head.decay + channel] = not_less(exp_(exponent));
    if (channel == 0u) row.at[head.beta] = sigmoid(row.at[head.beta]);
}
