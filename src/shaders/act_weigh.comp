/* act_weigh.comp: what experts read where their weights multiply it: packed values of a token for each
 * of its choices, times the choice's weight. A block of 8-bit values has it in its scale. An
 * invocation has a block of 32 columns. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform P {
    uvec2 from, d, sums, start; /* from: q, or f of floats; d: 0: floats */
    uvec2 to, to_d, to_sums, to_start, to_s;
    uvec2 choices;
    uint n_cols, n_tokens, n_used;
    float least; /* a smaller scale is 0: ACT_LEAST_SCALE */
} p;

/* Column or block i of a token of n tokens, of which a row has n_row. */
uint at_(uint token, uint n_tokens, uint i, uint n_row) {
    uint group = token / 12u;
    return group * 12u * n_row + i * min(n_tokens - group * 12u, 12u) + token % 12u;
}

void main() {
    uint b = gl_GlobalInvocationID.x, choice = gl_WorkGroupID.y, token = choice / p.n_used;
    uint n_blocks = (p.n_cols + 31u) / 32u, n_choices = p.n_tokens * p.n_used;
    if (b >= n_blocks) return;
    float weight = uintBitsToFloat(Pairs(p.choices).at[choice].y);
    if (p.d == uvec2(0u)) {
        for (uint c = b * 32u; c < min(b * 32u + 32u, p.n_cols); c++)
            Floats(p.to).at[at_(choice, n_choices, c, p.n_cols)] =
                tidy_(mul_(Floats(p.from).at[at_(token, p.n_tokens, c, p.n_cols)], weight));
        return;
    }
    uint from = at_(token, p.n_tokens, b, n_blocks), to = at_(choice, n_choices, b, n_blocks);
    for (uint i = 0u; i < 2u; i++) Quads(p.to).at[2u * to + i] = Quads(p.from).at[2u * from + i];
    float d = mul_(Floats(p.d).at[from], weight);
    if ((floatBitsToUint(d) & 0x7fffffffu) < floatBitsToUint(p.least)) d = 0.0;
    int sums = int(Words(p.sums).at[from]);
    Floats(p.to_d).at[to] = d;
    Words(p.to_sums).at[to] = uint(sums);
    Words(p.to_start).at[to] = Words(p.start).at[from];
    Floats(p.to_s).at[to] = mul_(d, float(bitfieldExtract(sums, 0, 16) + (sums >> 16)));
}
