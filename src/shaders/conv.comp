/* conv.comp: conv() of kernels/recurrent.h for channels that lie side by side. An invocation has a
 * channel of the tokens [begin, end) of a run. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
#include "recurrent.glsl"
layout(local_size_x = 64) in;
#define TAPS 8u /* CONV_TAPS_MAX */
layout(push_constant) uniform P {
    uvec2 x, w, bias, runs;
    uint ldx, ld_history, state_at; /* floats from where a state begins */
    uint n, n_taps, n_runs, begin, end, silu;
} p;
float w[TAPS], past[TAPS]; /* the last n_taps count; the newest is the last */
float bias;

void load_weights(uint c) {
    bool pad = c >= p.n; /* up to a multiple of 16 */
    for (uint j = 0u; j < TAPS; j++) {
        uint tap = j + p.n_taps - TAPS;
        w[j] = j + p.n_taps >= TAPS && !pad ? Floats(p.w).at[c * p.n_taps + tap] : 0.0;
    }
    bias = p.bias != uvec2(0u) && !pad ? Floats(p.bias).at[c] : 0.0;
}

Floats history_of(uvec2 state) { return Floats(further(state, p.state_at, 4u)); }

void load_history(uint c, uvec2 state) {
    for (uint j = 0u; j < TAPS - 1u; j++) {
        past[j] = 0.0;
        if (state != uvec2(0u) && j + p.n_taps >= TAPS)
            past[j] = history_of(state).at[(j + p.n_taps - TAPS) * p.ld_history + c];
    }
}

void store_history(uint c, uvec2 state) {
    for (uint j = 0u; j < TAPS - 1u; j++)
        if (j + p.n_taps >= TAPS)
            history_of(state).at[(j + p.n_taps - TAPS) * p.ld_history + c] = past[j];
}

void convolve(uint c, uint token) {
    Floats x = Floats(further(p.x, token * 4u, p.ldx));
    float y = bias;
    past[TAPS - 1u] = x.at[c];
    for (uint j = 0u; j < TAPS; j++)
        if (j + p.n_taps >= TAPS) y = fma_(w[j], past[j], y);
    if (p.silu != 0u) y = div_(y, add_(1.0, exp_(-y)));
    x.at[c] = tidy_(y);
    for (uint j = 0u; j < TAPS - 1u; j++) past[j] = past[j + 1u];
}

void main() {
    uint c = gl_GlobalInvocationID.x, i = gl_WorkGroupID.y;
    if (c >= (p.n + 15u) / 16u * 16u || goes_on(p.runs, i, p.n_runs)) return;
    load_weights(c);
    do {
        Run run = run_at(p.runs, i);
        uint begin = max(run.first, p.begin), end = min(run.end, p.end);
        if (begin < end) {
            load_history(c, begin == run.first ? run.from : run.to);
            for (uint t = begin; t < end; t++) convolve(c, t);
            store_history(c, run.to);
        }
        i++;
    } while (goes_on(p.runs, i, p.n_runs));
}
