/* definition.h: what the model computes of heads and rows beyond kernels.h, on the processor. These
 * are the definitions of shaders of the same names. */
#ifndef LOCKSTEP_SHADERS_DEFINITION_H
#define LOCKSTEP_SHADERS_DEFINITION_H

#include "base/exact.h"
#include "kernels/activation.h"

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

#endif
