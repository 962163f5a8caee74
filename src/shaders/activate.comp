/* activate.comp: ffn_activate() of kernels/activation.h, for each value of rows. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
layout(local_size_x = 256) in;
/* enum ffn_act; and swiglu with its limit */
#define SWIGLU 0u
#define SWIGLU_CLAMPED 1u
#define SWIGLU_OAI 2u
#define GEGLU 3u
#define SITU 4u
#define RELU2 5u
#define SWIGLU_LIMITED 6u
layout(push_constant) uniform P {
    uvec2 gate, up;
    uint ld_gate, ld_up, n, act;
    float limit, situ_gate, situ_up;
} p;

float at_most(float x, float limit) { return is_nan(x) || x <= limit ? x : limit; }
float at_least(float x, float limit) { return is_nan(x) || x >= limit ? x : limit; }

/* softcap() of both halves. */
vec2 softcaps(vec2 x, vec2 caps) {
    vec2 r = vec2(0.0);
    for (int i = 0; i < 2; i++) /* one body: a shader's code is large enough */
        r[i] = tidy_(mul_(caps[i], tanh_(div_(x[i], caps[i]))));
    return r;
}

/* What exp() is taken of. */
float exponent(float g) {
    if (p.act == SWIGLU_OAI) return mul_(-1.702, g);
    if (p.act != GEGLU) return -g;
    float cube = mul_(mul_(g, g), g);
    return mul_(2.0, mul_(uintBitsToFloat(0x3f4c422au), add_(g, mul_(0.044715, cube))));
}

float gated(float g, float u) {
    float e = exp_(exponent(g));
    if (p.act == SITU) {
        vec2 both = softcaps(vec2(g, u), vec2(p.situ_gate, p.situ_up));
        g = both.x;
        u = both.y;
    }
    float q = div_(p.act == GEGLU ? 2.0 : g, add_(1.0, e));
    if (p.act == GEGLU) q = mul_(mul_(0.5, g), add_(2.0, -q));
    if (p.act == SWIGLU_LIMITED) q = at_most(q, p.limit);
    if (p.act == SWIGLU_OAI) u = add_(u, 1.0);
    return mul_(q, u);
}

float activated(float g, float u) {
    if (p.act == RELU2) {
        g = at_least(g, 0.0);
        return mul_(g, g);
    }
    if (p.act == SWIGLU_OAI) { /* NaN becomes the limit */
        g = is_nan(g) ? 7.0 : at_most(g, 7.0);
        u = is_nan(u) ? 7.0 : at_least(at_most(u, 7.0), -7.0);
    }
    if (p.act == SWIGLU_CLAMPED) g = at_most(g, p.limit);
    if (p.act == SWIGLU_CLAMPED || p.act == SWIGLU_LIMITED)
        u = at_least(at_most(u, p.limit), -p.limit);
    return gated(g, u);
}

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (i >= p.n) return;
    Floats gate = Floats(further(p.gate, row * 4u, p.ld_gate));
    float u = p.act == RELU2 ? 0.0 : Floats(further(p.up, row * 4u, p.ld_up)).at[i];
    gate.at[i] = tidy_(activated(gate.at[i], u));
}
