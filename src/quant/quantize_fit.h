/* quantize_fit.h: least squares for quantizers, for src/quant only: the scale, or scale and
 * minimum, that represents some values with the least weighted squared error. */
#ifndef LOCKSTEP_QUANT_QUANTIZE_FIT_H
#define LOCKSTEP_QUANT_QUANTIZE_FIT_H

#include "quant/quant_codec.h"

#include <math.h>
#include <string.h>

/* The nearest integer, to even, between low and high, which are smaller than 2^22. NaN becomes
 * low. Adding 1.5 * 2^23 leaves no bits for a fraction. */
static inline int nearest_between(float x, int low, int high) {
    float limited = x > (float)low ? x : (float)low;
    limited = limited < (float)high ? limited : (float)high;
    return (int)((limited + 12582912.0f) - 12582912.0f);
}

/* 0 if the scale is so small that its inverse is not finite. */
static inline float inverse(float d) {
    float id = d != 0 ? 1 / d : 0;
    return fabsf(id) <= 3.0e38f ? id : 0;
}

/* A scale as f16. Below 2^-14 f16 loses precision and finally becomes 0. So *d becomes the
 * stored value, and the quants are made with it. up: rounds up, for types with many quants:
 * their steps are small compared with what the largest quant would lose. */
uint16_t quant_store_scale(float *d, bool up);
/* The value that is largest in magnitude. */
float quant_extreme(const float *x, int n);
void quant_range(const float *x, int n, float *min, float *max);

/* What a scale is multiplied by: the integers from low to -low - 1, or the values of iq4_nl, of
 * which low is the first. */
struct quant_grid {
    int low;
    bool iq4;
};

/* The code of the entry that is nearest to x, from 0 on. */
static inline uint8_t quant_grid_code(const struct quant_grid *g, float x) {
    int code = 0;
    if (!g->iq4)
        return (uint8_t)(nearest_between(x, g->low, -g->low - 1) - g->low);
    for (int i = 0; i < 15; i++)
        code += 2 * x > (float)(quant_iq4_nl_values[i] + quant_iq4_nl_values[i + 1]);
    return (uint8_t)code;
}

/* Below, w are the weights of x's errors; NULL: all are 1. n is a multiple of 4. */

/* The scale d that minimizes sum w (x - d q)^2, with q the grid's entry nearest to x / d. */
float quant_fit_scale(const float *x, const float *w, int n, const struct quant_grid *g);

struct affine {
    float scale, min; /* x is about scale * q - min; scale is not negative */
};

/* The same with quants from 0 to high. any_min: min may be negative. */
struct affine quant_fit_affine(const float *x, const float *w, int n, int high, bool any_min);

/* ---- superblocks: each part has its own scale, an integer times a d that all share ---- */

struct symmetric_parts {
    struct quant_grid grid;
    int n_parts, scale_low; /* scales reach from scale_low to -scale_low - 1 */
    int8_t scale[16];
    uint16_t d;
};

/* Given the first three fields, chooses scale and d. */
void quant_fit_symmetric_parts(const float *x, const float *w, struct symmetric_parts *p);

struct affine_parts {
    int n_parts, high, levels; /* quants from 0 to high, scales and minima from 0 to levels */
    uint8_t scale[16], min[16];
    uint16_t d, dmin;
};

void quant_fit_affine_parts(const float *x, const float *w, struct affine_parts *p);

/* quantize_NAME(): rows of blocks of n_values, each by block_to_NAME(). */
#define QUANTIZER(name, n_values)                                                 \
    void quantize_##name(const float *x, const float *importance, void *dst,      \
                         size_t n_blocks) {                                       \
        for (size_t i = 0; i < n_blocks; i++) {                                   \
            struct block_##name b;                                                \
            block_to_##name(x + i * (n_values),                                   \
                            importance ? importance + i * (n_values) : NULL, &b); \
            memcpy((uint8_t *)dst + i * sizeof b, &b, sizeof b);                  \
        }                                                                         \
    }

#endif
