/* quantize.c: f32 to blocks.
 *
 * The simple types round to the nearest step of a scale taken from the extreme values, as the
 * reference quantizers do. With importances, and for the K types always, the scale is searched.
 * A few dozen step widths are tried. For each, least squares gives the best scale (and minimum)
 * for its quants. The one with the least weighted error wins.
 *
 * Most types cannot represent NaN and infinity. These give some value, never undefined
 * behaviour. */
#include "base/util.h"
#include "quant/quant_codec.h"

#include <math.h>

#define SUB_MAX 32 /* values of the largest unit that has its own scale */

/* The nearest integer, to even; |x| < 2^22. Adding 1.5 * 2^23 leaves no bits for a fraction. */
static inline int nearest(float x) {
    float shifted = x + 12582912.0f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return (bits & 0x007fffff) - 0x00400000;
}

/* NaN becomes low. */
static inline int nearest_between(float x, int low, int high) {
    float limited = x > (float)low ? x : (float)low;
    limited = limited < (float)high ? limited : (float)high;
    return nearest(limited);
}

/* 0 if the scale is so small that its inverse is not finite. */
static inline float inverse(float d) {
    float id = d != 0 ? 1 / d : 0;
    return fabsf(id) <= 3.0e38f ? id : 0;
}

/* A scale as f16. Below 2^-14 f16 loses precision and finally becomes 0. So *d becomes the
 * stored value, and the quants are made with it. up: rounds up, for types with many quants:
 * their steps are small compared with what the largest quant would lose. */
static uint16_t store_scale(float *d, bool up) {
    uint16_t half = f32_to_f16(*d);
    if (*d == 0 || fabsf(*d) >= 0x1p-14f)
        return half;
    if (up ? fabsf(f16_to_f32(half)) < fabsf(*d) : f16_to_f32(half) == 0)
        half++; /* the next one away from zero */
    *d = f16_to_f32(half);
    return half;
}

/* The value that is largest in magnitude. */
static float extreme(const float *x, int n) {
    float best = 0;
    for (int i = 0; i < n; i++)
        best = fabsf(x[i]) > fabsf(best) ? x[i] : best;
    return best;
}

static void range(const float *x, int n, float *min, float *max) {
    *min = *max = x[0];
    for (int i = 1; i < n; i++) {
        *min = x[i] < *min ? x[i] : *min;
        *max = x[i] > *max ? x[i] : *max;
    }
}

/* ---- searches ---------------------------------------------------------------------- */

/* Sums run in LANES partial sums, so that the compiler may vectorize them; n is a multiple. */
#define LANES 8

static float add_lanes(const float v[LANES]) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* The scale d that minimizes sum w (x - d q)^2, with q = nearest(x / d) between low and high.
 * For given quants the best d is sum(w x q) / sum(w q q), and the error falls with sum(w x q)^2
 * / sum(w q q). -low is the larger range, so the extreme value is put there. */
static float fit_scale(const float *x, const float *w, int n, int low, int high) {
    float max = extreme(x, n), best_scale = 0, best_gain = 0;
    if (!(fabsf(max) > 1e-30f))
        return 0;
    for (int step = -9; step <= 9; step++) {
        float id = ((float)low + 0.1f * (float)step) / max;
        float xq[LANES] = {0}, qq[LANES] = {0};
        for (int i = 0; i < n; i += LANES) {
            for (int k = 0; k < LANES; k++) {
                float q = (float)nearest_between(id * x[i + k], low, high);
                xq[k] += w[i + k] * x[i + k] * q;
                qq[k] += w[i + k] * q * q;
            }
        }
        float sum_xq = add_lanes(xq), sum_qq = add_lanes(qq);
        if (sum_qq > 0 && sum_xq * sum_xq > best_gain * sum_qq) {
            best_scale = sum_xq / sum_qq;
            best_gain = sum_xq * best_scale;
        }
    }
    return best_scale;
}

struct affine {
    float scale, min; /* x is about scale * q - min; neither is negative */
};

struct affine_sums {
    float w, x, q, qq, xq; /* of w times each */
};

static struct affine_sums sum_affine(const float *x, const float *w, int n, float id, float low,
                                     int high) {
    float sw[LANES] = {0}, sx[LANES] = {0}, sq[LANES] = {0}, sqq[LANES] = {0}, sxq[LANES] = {0};
    for (int i = 0; i < n; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            float q = (float)nearest_between(id * (x[i + k] - low), 0, high), wi = w[i + k];
            sw[k] += wi;
            sx[k] += wi * x[i + k];
            sq[k] += wi * q;
            sqq[k] += wi * q * q;
            sxq[k] += wi * x[i + k] * q;
        }
    }
    return (struct affine_sums){add_lanes(sw), add_lanes(sx), add_lanes(sq), add_lanes(sqq),
                                add_lanes(sxq)};
}

/* Least squares for x = scale * q - min with min >= 0. */
static struct affine solve_affine(const struct affine_sums *s) {
    struct affine a = {0, 0};
    float determinant = s->w * s->qq - s->q * s->q;
    if (determinant > 0) {
        a.scale = (s->w * s->xq - s->x * s->q) / determinant;
        a.min = (s->q * s->xq - s->qq * s->x) / determinant;
    }
    if (!(determinant > 0) || a.min < 0) {
        a.min = 0;
        a.scale = s->qq > 0 ? s->xq / s->qq : 0;
    }
    return a;
}

/* The weighted squared error, but for the constant sum of w x x. */
static float affine_error(const struct affine_sums *s, struct affine a) {
    return a.scale * (a.scale * s->qq - 2 * a.min * s->q - 2 * s->xq) +
           a.min * (a.min * s->w + 2 * s->x);
}

static struct affine fit_affine(const float *x, const float *w, int n, int high) {
    float min, max;
    range(x, n, &min, &max);
    min = MIN(min, 0);
    struct affine best = {0, -min};
    float best_error = INFINITY;
    if (!(max - min > 1e-30f))
        return best;
    for (int step = 0; step <= 20; step++) {
        float id = ((float)high - 1 + 0.1f * (float)step) / (max - min);
        struct affine_sums sums = sum_affine(x, w, n, id, min, high);
        struct affine a = solve_affine(&sums);
        float error = affine_error(&sums, a);
        if (a.scale > 0 && error < best_error) {
            best = a;
            best_error = error;
        }
    }
    return best;
}

static float sum_squares(const float *x, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

/* Larger values matter more: they meet larger activations. Without importances a value's own
 * square does for symmetric types; affine ones need a floor, or their small values are lost. */
static void square_weights(const float *x, const float *importance, int n, float *w) {
    float floor = 2 * sum_squares(x, n) / (float)n;
    for (int i = 0; i < n; i++)
        w[i] = importance ? importance[i] * sqrtf(floor + x[i] * x[i]) : x[i] * x[i];
}

static void affine_weights(const float *x, const float *importance, int n, float *w) {
    float mean = sum_squares(x, n) / (float)n, root = sqrtf(mean);
    for (int i = 0; i < n; i++)
        w[i] = importance ? importance[i] * sqrtf(2 * mean + x[i] * x[i]) : root + fabsf(x[i]);
}

/* ---- plain values ------------------------------------------------------------------ */

void quantize_f32(const float *x, const float *importance, void *dst, size_t n) {
    (void)importance;
    memcpy(dst, x, n * sizeof *x);
}

void quantize_f16(const float *x, const float *importance, void *dst, size_t n) {
    (void)importance;
    for (size_t i = 0; i < n; i++)
        memcpy((uint8_t *)dst + 2 * i, &(uint16_t){f32_to_f16(x[i])}, 2);
}

void quantize_bf16(const float *x, const float *importance, void *dst, size_t n) {
    (void)importance;
    for (size_t i = 0; i < n; i++)
        memcpy((uint8_t *)dst + 2 * i, &(uint16_t){f32_to_bf16(x[i])}, 2);
}

/* ---- blocks of 32 ------------------------------------------------------------------ */

/* The scale of a symmetric type whose quants reach from low to -low - 1. */
static float symmetric_scale(const float *x, const float *importance, int low) {
    float w[QK];
    if (!importance)
        return extreme(x, QK) / (float)low;
    square_weights(x, importance, QK, w);
    return fit_scale(x, w, QK, low, -low - 1);
}

/* Scale and minimum of a type with quants from 0 to high; *min is added. */
static float affine_scale(const float *x, const float *importance, int high, float *min) {
    float w[QK], max;
    if (importance) {
        affine_weights(x, importance, QK, w);
        struct affine a = fit_affine(x, w, QK, high);
        *min = -a.min;
        return a.scale;
    }
    range(x, QK, min, &max);
    return (max - *min) / (float)high;
}

static void block_to_q8_0(const float *x, const float *importance, struct block_q8_0 *b) {
    (void)importance; /* eight bits need no search */
    float d = fabsf(extreme(x, QK)) / 127;
    b->d = store_scale(&d, true);
    float id = inverse(d);
    for (int i = 0; i < QK; i++)
        b->qs[i] = (int8_t)nearest_between(x[i] * id, -127, 127);
}

static void block_to_q4_0(const float *x, const float *importance, struct block_q4_0 *b) {
    float d = symmetric_scale(x, importance, -8);
    b->d = store_scale(&d, false);
    float id = inverse(d);
    for (int i = 0; i < QK / 2; i++) {
        int low = nearest_between(x[i] * id, -8, 7) + 8;
        int high = nearest_between(x[i + QK / 2] * id, -8, 7) + 8;
        b->qs[i] = (uint8_t)(low | high << 4);
    }
}

static void block_to_q4_1(const float *x, const float *importance, struct block_q4_1 *b) {
    float min, d = affine_scale(x, importance, 15, &min);
    b->d = store_scale(&d, false);
    float id = inverse(d);
    b->m = f32_to_f16(min);
    for (int i = 0; i < QK / 2; i++) {
        int low = nearest_between((x[i] - min) * id, 0, 15);
        int high = nearest_between((x[i + QK / 2] - min) * id, 0, 15);
        b->qs[i] = (uint8_t)(low | high << 4);
    }
}

/* Five-bit quants into nibbles and high bits. */
static void pack_q5(const uint8_t q[QK], uint8_t qh[4], uint8_t qs[QK / 2]) {
    memset(qh, 0, 4);
    for (int i = 0; i < QK / 2; i++)
        qs[i] = (uint8_t)((q[i] & 15) | (q[i + QK / 2] & 15) << 4);
    for (int i = 0; i < QK; i++)
        qh[i / 8] = (uint8_t)(qh[i / 8] | q[i] >> 4 << i % 8);
}

static void block_to_q5_0(const float *x, const float *importance, struct block_q5_0 *b) {
    float d = symmetric_scale(x, importance, -16);
    uint8_t q[QK];
    b->d = store_scale(&d, false);
    float id = inverse(d);
    for (int i = 0; i < QK; i++)
        q[i] = (uint8_t)(nearest_between(x[i] * id, -16, 15) + 16);
    pack_q5(q, b->qh, b->qs);
}

static void block_to_q5_1(const float *x, const float *importance, struct block_q5_1 *b) {
    float min, d = affine_scale(x, importance, 31, &min);
    uint8_t q[QK];
    b->d = store_scale(&d, false);
    float id = inverse(d);
    b->m = f32_to_f16(min);
    for (int i = 0; i < QK; i++)
        q[i] = (uint8_t)nearest_between((x[i] - min) * id, 0, 31);
    pack_q5(q, b->qh, b->qs);
}

/* The place of the entry of a sorted table that is nearest to x. */
static int nearest_place(const int8_t *table, int n, float x) {
    int place = 0;
    for (int i = 0; i + 1 < n; i++)
        place += 2 * x > (float)(table[i] + table[i + 1]);
    return place;
}

/* As fit_scale(), with quants from a table whose first entry is the extreme one. */
static float fit_iq4_nl(const float *x, const float *w) {
    float max = extreme(x, QK), best_scale = 0, best_gain = 0;
    if (!(fabsf(max) > 1e-30f))
        return 0;
    for (int step = -7; step <= 7; step++) {
        float id = (float)(quant_iq4_nl_values[0] + step) / max, sum_xq = 0, sum_qq = 0;
        for (int i = 0; i < QK; i++) {
            float q =
                (float)quant_iq4_nl_values[nearest_place(quant_iq4_nl_values, 16, id * x[i])];
            sum_xq += w[i] * x[i] * q;
            sum_qq += w[i] * q * q;
        }
        if (sum_qq > 0 && sum_xq * sum_xq > best_gain * sum_qq) {
            best_scale = sum_xq / sum_qq;
            best_gain = sum_xq * best_scale;
        }
    }
    return best_scale;
}

static void block_to_iq4_nl(const float *x, const float *importance, struct block_iq4_nl *b) {
    float w[QK];
    square_weights(x, importance, QK, w);
    float d = fit_iq4_nl(x, w);
    b->d = store_scale(&d, false);
    float id = inverse(d);
    for (int i = 0; i < QK / 2; i++) {
        int low = nearest_place(quant_iq4_nl_values, 16, x[i] * id);
        int high = nearest_place(quant_iq4_nl_values, 16, x[i + QK / 2] * id);
        b->qs[i] = (uint8_t)(low | high << 4);
    }
}

/* The code of the e2m1 nearest to x in units of half. */
static uint8_t fp4_code(float x) {
    int place = nearest_place(quant_fp4_values, 8, fabsf(x));
    return (uint8_t)(x < 0 && place > 0 ? place + 8 : place);
}

static float mxfp4_error(const float *x, const float *importance, float d) {
    float error = 0;
    for (int i = 0; i < QK; i++) {
        float miss = x[i] - (float)quant_fp4_values[fp4_code(x[i] / d)] * d;
        error += (importance ? importance[i] : 1) * miss * miss;
    }
    return error;
}

/* The largest e2m1 value is 6, between 4 and 8. So the exponent is that of the extreme value
 * minus 2, or one more if clipping at 6 costs more than the coarser steps. */
static void block_to_mxfp4(const float *x, const float *importance, struct block_mxfp4 *b) {
    int exponent;
    float max = fabsf(extreme(x, QK));
    frexpf(max, &exponent);
    int e = max > 0 && max <= 3.0e38f ? MIN(MAX(exponent - 3 + 127, 1), 253) : 1;
    if (mxfp4_error(x, importance, quant_e8m0_half((uint8_t)(e + 1))) <
        mxfp4_error(x, importance, quant_e8m0_half((uint8_t)e)))
        e++;
    b->e = (uint8_t)e;
    for (int i = 0; i < QK / 2; i++) {
        float d = quant_e8m0_half(b->e);
        b->qs[i] = (uint8_t)(fp4_code(x[i] / d) | fp4_code(x[i + QK / 2] / d) << 4);
    }
}

/* ---- superblocks ------------------------------------------------------------------- */

/* The fits of a superblock's parts, and what is left of them after scales and minima have been
 * rounded to integers of 0..levels times an f16. */
struct affine_parts {
    uint8_t scale[16], min[16];
    uint16_t d, dmin;
};

static void fit_parts(const float *x, const float *importance, int n_parts, int high,
                      int levels, struct affine_parts *out) {
    struct affine fit[16];
    float max_scale = 0, max_min = 0, w[SUB_MAX];
    int n = QK_K / n_parts;
    for (int p = 0; p < n_parts; p++) {
        affine_weights(x + n * p, importance ? importance + n * p : NULL, n, w);
        fit[p] = fit_affine(x + n * p, w, n, high);
        max_scale = MAX(max_scale, fit[p].scale);
        max_min = MAX(max_min, fit[p].min);
    }
    float d = max_scale / (float)levels, dmin = max_min / (float)levels;
    out->d = store_scale(&d, true);
    out->dmin = store_scale(&dmin, true);
    float to_scale = inverse(d), to_min = inverse(dmin);
    for (int p = 0; p < n_parts; p++) {
        out->scale[p] = (uint8_t)nearest_between(to_scale * fit[p].scale, 0, levels);
        out->min[p] = (uint8_t)nearest_between(to_min * fit[p].min, 0, levels);
    }
}

/* Quants for the rounded scales. */
static void quants_of_parts(const float *x, const struct affine_parts *parts, int n_parts,
                            int high, uint8_t q[QK_K]) {
    int n = QK_K / n_parts;
    for (int p = 0; p < n_parts; p++) {
        float id = inverse(f16_to_f32(parts->d) * (float)parts->scale[p]);
        float min = f16_to_f32(parts->dmin) * (float)parts->min[p];
        for (int i = n * p; i < n * (p + 1); i++)
            q[i] = (uint8_t)nearest_between((x[i] + min) * id, 0, high);
    }
}

/* The two low bits of quants, as q2_K and q3_K keep them, and q6_K its two high ones. */
static void pack_two_bits(const uint8_t q[QK_K], uint8_t qs[QK_K / 4]) {
    for (int i = 0; i < QK_K / 4; i++) {
        const uint8_t *v = q + 128 * (i / 32) + i % 32;
        qs[i] = (uint8_t)((v[0] & 3) | (v[32] & 3) << 2 | (v[64] & 3) << 4 | (v[96] & 3) << 6);
    }
}

static void pack_nibbles(const uint8_t q[QK_K], uint8_t qs[QK_K / 2]) {
    for (int i = 0; i < QK_K / 2; i++) {
        const uint8_t *v = q + 64 * (i / 32) + i % 32;
        qs[i] = (uint8_t)((v[0] & 15) | (v[32] & 15) << 4);
    }
}

static void block_to_q2_K(const float *x, const float *importance, struct block_q2_K *b) {
    struct affine_parts parts;
    uint8_t q[QK_K];
    fit_parts(x, importance, 16, 3, 15, &parts);
    quants_of_parts(x, &parts, 16, 3, q);
    b->d = parts.d;
    b->dmin = parts.dmin;
    for (int p = 0; p < 16; p++)
        b->scales[p] = (uint8_t)(parts.scale[p] | parts.min[p] << 4);
    pack_two_bits(q, b->qs);
}

static void block_to_q4_K(const float *x, const float *importance, struct block_q4_K *b) {
    struct affine_parts parts;
    uint8_t q[QK_K];
    fit_parts(x, importance, 8, 15, 63, &parts);
    quants_of_parts(x, &parts, 8, 15, q);
    b->d = parts.d;
    b->dmin = parts.dmin;
    k4_pack(b->scales, parts.scale, parts.min);
    pack_nibbles(q, b->qs);
}

static void block_to_q5_K(const float *x, const float *importance, struct block_q5_K *b) {
    struct affine_parts parts;
    uint8_t q[QK_K];
    fit_parts(x, importance, 8, 31, 63, &parts);
    quants_of_parts(x, &parts, 8, 31, q);
    b->d = parts.d;
    b->dmin = parts.dmin;
    k4_pack(b->scales, parts.scale, parts.min);
    pack_nibbles(q, b->qs);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < QK_K; i++)
        b->qh[i % 32] = (uint8_t)(b->qh[i % 32] | q[i] >> 4 << i / 32);
}

/* Sixteen parts with quants from low to -low - 1, signed scales from scale_low on. Returns d. */
static uint16_t fit_symmetric_parts(const float *x, const float *importance, int low,
                                    int scale_low, int8_t scales[16], uint8_t q[QK_K]) {
    float fit[16], w[16];
    for (int p = 0; p < 16; p++) {
        square_weights(x + 16 * p, importance ? importance + 16 * p : NULL, 16, w);
        fit[p] = fit_scale(x + 16 * p, w, 16, low, -low - 1);
    }
    float d = extreme(fit, 16) / (float)scale_low;
    uint16_t half = store_scale(&d, true);
    float to_scale = inverse(d);
    for (int p = 0; p < 16; p++) {
        scales[p] = (int8_t)nearest_between(to_scale * fit[p], scale_low, -scale_low - 1);
        float id = inverse(f16_to_f32(half) * (float)scales[p]);
        for (int i = 16 * p; i < 16 * (p + 1); i++)
            q[i] = (uint8_t)(nearest_between(x[i] * id, low, -low - 1) - low);
    }
    return half;
}

static void block_to_q3_K(const float *x, const float *importance, struct block_q3_K *b) {
    int8_t scales[16];
    uint8_t q[QK_K];
    b->d = fit_symmetric_parts(x, importance, -4, -32, scales, q);
    k3_pack(b->scales, scales);
    pack_two_bits(q, b->qs);
    memset(b->hmask, 0, sizeof b->hmask);
    for (int i = 0; i < QK_K; i++)
        b->hmask[i % 32] = (uint8_t)(b->hmask[i % 32] | q[i] >> 2 << i / 32);
}

static void block_to_q6_K(const float *x, const float *importance, struct block_q6_K *b) {
    uint8_t q[QK_K], high[QK_K];
    b->d = fit_symmetric_parts(x, importance, -32, -128, b->scales, q);
    for (int i = 0; i < QK_K / 2; i++) {
        const uint8_t *v = q + 128 * (i / 64) + i % 64;
        b->ql[i] = (uint8_t)((v[0] & 15) | (v[64] & 15) << 4);
    }
    for (int i = 0; i < QK_K; i++)
        high[i] = q[i] >> 4;
    pack_two_bits(high, b->qh);
}

/* ---- rows of blocks ---------------------------------------------------------------- */

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

QUANTIZER(q4_0, QK)
QUANTIZER(q4_1, QK)
QUANTIZER(q5_0, QK)
QUANTIZER(q5_1, QK)
QUANTIZER(q8_0, QK)
QUANTIZER(iq4_nl, QK)
QUANTIZER(mxfp4, QK)
QUANTIZER(q2_K, QK_K)
QUANTIZER(q3_K, QK_K)
QUANTIZER(q4_K, QK_K)
QUANTIZER(q5_K, QK_K)
QUANTIZER(q6_K, QK_K)
