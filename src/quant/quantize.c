/* quantize.c: f32 to plain values and to blocks of 32.
 *
 * The simple types round to the nearest step of a scale taken from the extreme values, as the
 * reference quantizers do. With importances, the scale is searched (quantize_fit.h).
 *
 * Most types cannot represent NaN and infinity. These give some value, never undefined
 * behaviour. */
#include "base/util.h"
#include "quant/quantize_fit.h"

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
    return quant_fit_scale(x, importance, QK, &(struct quant_grid){low, false});
}

/* Scale and minimum of a type with quants from 0 to high; *min is added. */
static float affine_scale(const float *x, const float *importance, int high, float *min) {
    struct affine a = quant_fit_affine(x, importance, QK, high, true);
    *min = -a.min;
    return a.scale;
}

/* The nearest integer. A value between two goes away from zero, as in the reference quantizer: the
 * files are the same. |x| is below 2^22. Adding 0.5 itself would make 1 of 0.5 - 2^-25. */
static int nearest_away(float x) {
    return (int)(x + copysignf(0x1.fffffep-2f, x));
}

static void block_to_q8_0(const float *x, const float *importance, struct block_q8_0 *b) {
    (void)importance; /* eight bits need no search */
    float d = fabsf(quant_extreme(x, QK)) / 127;
    b->d = quant_store_scale(&d, true);
    float id = inverse(d);
    for (int i = 0; i < QK; i++) {
        float q = x[i] * id > -127 ? x[i] * id : -127; /* NaN, too */
        b->qs[i] = (int8_t)nearest_away(q < 127 ? q : 127);
    }
}

static void block_to_q4_0(const float *x, const float *importance, struct block_q4_0 *b) {
    float d = symmetric_scale(x, importance, -8);
    b->d = quant_store_scale(&d, false);
    float id = inverse(d);
    for (int i = 0; i < QK / 2; i++) {
        int low = nearest_between(x[i] * id, -8, 7) + 8;
        int high = nearest_between(x[i + QK / 2] * id, -8, 7) + 8;
        b->qs[i] = (uint8_t)(low | high << 4);
    }
}

static void block_to_q4_1(const float *x, const float *importance, struct block_q4_1 *b) {
    float min, d = affine_scale(x, importance, 15, &min);
    b->d = quant_store_scale(&d, false);
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
    b->d = quant_store_scale(&d, false);
    float id = inverse(d);
    for (int i = 0; i < QK; i++)
        q[i] = (uint8_t)(nearest_between(x[i] * id, -16, 15) + 16);
    pack_q5(q, b->qh, b->qs);
}

static void block_to_q5_1(const float *x, const float *importance, struct block_q5_1 *b) {
    float min, d = affine_scale(x, importance, 31, &min);
    uint8_t q[QK];
    b->d = quant_store_scale(&d, false);
    float id = inverse(d);
    b->m = f32_to_f16(min);
    for (int i = 0; i < QK; i++)
        q[i] = (uint8_t)nearest_between((x[i] - min) * id, 0, 31);
    pack_q5(q, b->qh, b->qs);
}

static void block_to_iq4_nl(const float *x, const float *importance, struct block_iq4_nl *b) {
    const struct quant_grid grid = {-127, true};
    float d = quant_fit_scale(x, importance, QK, &grid);
    b->d = quant_store_scale(&d, false);
    float id = inverse(d);
    for (int i = 0; i < QK / 2; i++) {
        int low = quant_grid_code(&grid, x[i] * id);
        int high = quant_grid_code(&grid, x[i + QK / 2] * id);
        b->qs[i] = (uint8_t)(low | high << 4);
    }
}

/* The code of the e2m1 nearest to x in units of half. */
static uint8_t fp4_code(float x) {
    int place = 0;
    for (int i = 0; i < 7; i++)
        place += 2 * fabsf(x) > (float)(quant_fp4_values[i] + quant_fp4_values[i + 1]);
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
    float max = fabsf(quant_extreme(x, QK));
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

/* ---- rows of blocks ---------------------------------------------------------------- */

QUANTIZER(q4_0, QK)
QUANTIZER(q4_1, QK)
QUANTIZER(q5_0, QK)
QUANTIZER(q5_1, QK)
QUANTIZER(q8_0, QK)
QUANTIZER(iq4_nl, QK)
QUANTIZER(mxfp4, QK)
