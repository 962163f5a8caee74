/* row_norm.comp: a norm over a row of heads: the exact sum of its squares, head by head, in fixed
 * point; then the norm by such a sum. Between the two the sums of several ranks are added. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
#define LANES 16u /* of a head's sum */
#define HEADS 16u /* at once */
layout(local_size_x = 256) in;
/* enum row_norm_op of record.c */
#define SQUARES 0u
#define NORM 1u
layout(push_constant) uniform P {
    uvec2 x, sums, w;
    uint ldx, ld_sums, head_dim, n_heads, op;
    float count, eps; /* values of the whole row */
} p;
shared float lanes[HEADS * LANES];
shared uvec2 totals[HEADS];

void squares(Floats x, uint t) {
    uint lane = t % LANES, of = t / LANES;
    uvec2 total = uvec2(0u);
    for (uint first = 0u; first < p.n_heads; first += HEADS) {
        uint h = first + of;
        float sum = 0.0;
        for (uint i = lane; h < p.n_heads && i < p.head_dim; i += LANES) {
            float v = x.at[h * p.head_dim + i];
            sum = add_(sum, mul_(v, v));
        }
        lanes[t] = sum;
        barrier();
        for (uint half_ = LANES / 2u; half_ >= 1u; half_ /= 2u) {
            if (lane < half_) lanes[t] = add_(lanes[t], lanes[t + half_]);
            barrier();
        }
        if (lane == 0u && h < p.n_heads) total = add64(total, to_fixed(lanes[t]));
        barrier();
    }
    if (lane == 0u) totals[of] = total;
    barrier();
    if (t != 0u) return;
    for (uint i = 1u; i < HEADS; i++) total = add64(total, totals[i]);
    Pairs(further(p.sums, gl_WorkGroupID.x * 8u, p.ld_sums)).at[0] = total;
}

void norm(Floats x, uint t) {
    float sum = from_fixed(Pairs(further(p.sums, gl_WorkGroupID.x * 8u, p.ld_sums)).at[0]);
    float r = div_(1.0, sqrt_(add_(div_(sum, p.count), p.eps)));
    for (uint i = t; i < p.n_heads * p.head_dim; i += gl_WorkGroupSize.x)
        x.at[i] = tidy_(mul_(mul_(x.at[i], r), Floats(p.w).at[i]));
}

void main() {
    Floats x = Floats(further(p.x, gl_WorkGroupID.x * 4u, p.ldx));
    if (p.op == SQUARES)
        squares(x, gl_LocalInvocationID.x);
    else
        norm(x, gl_LocalInvocationID.x);
}
