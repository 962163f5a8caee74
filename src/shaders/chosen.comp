/* chosen.comp: the biases of the experts that tokens have chosen. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
layout(local_size_x = 256) in;
/* enum chosen_op of record.c */
#define ADD 0u   /* to row r of x, a choice's */
#define FIXED 1u /* to row t of x, in fixed point: those of all choices of a token, by weight */
layout(push_constant) uniform P {
    uvec2 x, bias, choices;
    uint ldx, ld_bias, n, n_used, begin, end, op; /* begin, end: the experts that are held */
} p;

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (i >= p.n) return;
    if (p.op == ADD) {
        Floats x = Floats(further(p.x, row * 4u, p.ldx));
        uint expert = Pairs(p.choices).at[row].x;
        x.at[i] = tidy_(add_(x.at[i], Floats(further(p.bias, expert * 4u, p.ld_bias)).at[i]));
        return;
    }
    Pairs acc = Pairs(further(p.x, row * 8u, p.ldx));
    uvec2 sum = acc.at[i];
    for (uint j = 0u; j < p.n_used; j++) {
        uvec2 choice = Pairs(p.choices).at[row * p.n_used + j];
        if (choice.x < p.begin || choice.x >= p.end) continue;
        float bias = Floats(further(p.bias, choice.x * 4u, p.ld_bias)).at[i];
        sum = add64(sum, to_fixed(mul_(uintBitsToFloat(choice.y), bias)));
    }
    acc.at[i] = sum;
}
