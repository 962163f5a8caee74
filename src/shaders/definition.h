/* definition.h: what the model computes of heads and rows beyond kernels.h, on the processor. These
 * are the definitions of shaders of the same names. */
#ifndef LOCKSTEP_SHADERS_DEFINITION_H
#define LOCKSTEP_SHADERS_DEFINITION_H

#include "base/exact.h"
#include "kernels/activation.h"
#include "mixers/recurrent.h"

/* Sums of x [n] and of its squares over 16 lanes and the fixed tree. */
static inline float lanes16_sum(const float *x, uint32_t n) {
    float lanes[16] = {0};
    for (uint32_t i = 0; i < n; i++)
        lanes[i % 16] += x[i];
    return exact_sum_lanes(lanes);
}

static inline float lanes16_squares(const float *x, uint32_t n) {
    float lanes[16] = {0};
    for (uint32_t i = 0; i < n; i++)
        lanes[i % 16] += x[i] * x[i];
    return exact_sum_lanes(lanes);
}

/* y = x less its mean, [n]: the first half of a LayerNorm. */
static inline void center(float *y, const float *x, uint32_t n) {
    const float mean = lanes16_sum(x, n) / (float)n;
    for (uint32_t i = 0; i < n; i++)
        y[i] = exact_tidy(x[i] - mean);
}

/* An RMSNorm without weights, of a head. */
static inline void plain_norm(float *x, uint32_t n, float eps) {
    const float by = 1.0f / sqrtf(lanes16_squares(x, n) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        x[i] = exact_tidy(x[i] * by);
}

/* x [n] *= the sigmoids of gate [n], or of its one number. gate is overwritten. */
static inline void gate_head(const struct kernels *k, float *x, float *gate, uint32_t n,
                             bool one) {
    sigmoids(k, gate, one ? 1 : n);
    for (uint32_t i = 0; i < n; i++)
        x[i] = exact_tidy(x[i] * gate[one ? 0 : i]);
}

/* x, w [n] of a row of `count` values, whose squares' sum is `squares`. */
static inline void row_norm(float *x, const float *w, uint32_t n, float squares, float count,
                            float eps) {
    const float by = 1.0f / sqrtf(squares / count + eps);
    for (uint32_t i = 0; i < n; i++)
        x[i] = exact_tidy(x[i] * by * w[i]);
}

/* Token t of a times its weight: a block of 8-bit values has it in its scale. */
static inline void act_weigh(const struct act *a, uint32_t t, float weight) {
    const size_t n_blocks = a->n_cols / ACT_BLOCK, group = t / ACT_GROUP * ACT_GROUP;
    const size_t step = a->n_tokens - group < ACT_GROUP ? a->n_tokens - group : ACT_GROUP;
    const size_t n = a->kind == ACT_Q8 ? n_blocks : a->n_cols;
    size_t at = group * n + t % ACT_GROUP;
    for (size_t i = 0; i < n; i++, at += step) {
        if (a->kind == ACT_F32) {
            a->f[at] = exact_tidy(a->f[at] * weight);
            continue;
        }
        const float d = a->d[at] * weight;
        a->d[at] = fabsf(d) < ACT_LEAST_SCALE ? 0.0f : d;
        a->s[at] = a->d[at] * (float)(a->sums[at].half[0] + a->sums[at].half[1]);
    }
}

static inline float sigmoid(float x) {
    return exact_tidy(1.0f / (1.0f + exact_exp(-x)));
}

/* A decay or a part of a key, as the recurrence takes them. */
static inline float not_less(float x) {
    return fabsf(x) < RECURRENCE_LEAST ? 0.0f : x;
}

/* Of a delta net's head: beta, and from alphas [n] decays, in place. Their logarithm is a softplus
 * times a, or between least (if it is not 0) and 0. */
static inline void delta_gates(float *beta, float *decay, const float *bias, uint32_t n,
                               float a, float least) {
    *beta = sigmoid(*beta);
    for (uint32_t i = 0; i < n; i++) {
        const float alpha = decay[i] + bias[i];
        decay[i] = not_less(
            exact_exp(least != 0.0f ? least * sigmoid(-a * alpha) : a * exact_softplus(alpha)));
    }
}

/* Of Mamba-2's head: the time step, in place, and its decay. */
static inline void mamba2_gates(float *dt, float *decay, float bias, float a) {
    *dt = exact_tidy(exact_softplus(*dt + bias));
    *decay = not_less(exact_exp(*dt * a));
}

/* Results o [n] of a head of Mamba-2 get its values x times d. */
static inline void mamba2_skip(float *o, const float *x, float d, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        o[i] = exact_tidy(o[i] + d * x[i]);
}

/* y = x * by, [n] */
static inline void times(float *y, const float *x, const float *by, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] = exact_tidy(x[i] * by[i]);
}

#endif
