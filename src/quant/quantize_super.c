/* quantize_super.c: f32 to superblocks of 256: the K types and iq4_xs. Scales and minima are
 * searched (quantize_fit.h). */
#include "quant/quantize_fit.h"

/* Parts of a type, and its quants. */
static void quants_of_parts(const float *x, const struct affine_parts *parts, uint8_t q[QK_K]) {
    int n = QK_K / parts->n_parts;
    for (int p = 0; p < parts->n_parts; p++) {
        float id = inverse(f16_to_f32(parts->d) * (float)parts->scale[p]);
        float min = f16_to_f32(parts->dmin) * (float)parts->min[p];
        for (int i = n * p; i < n * (p + 1); i++)
            q[i] = (uint8_t)nearest_between((x[i] + min) * id, 0, parts->high);
    }
}

static void fit_affine(const float *x, const float *importance, struct affine_parts *parts,
                       uint8_t q[QK_K]) {
    quant_fit_affine_parts(x, importance, parts);
    quants_of_parts(x, parts, q);
}

static void fit_symmetric(const float *x, const float *importance,
                          struct symmetric_parts *parts, uint8_t q[QK_K]) {
    int n = QK_K / parts->n_parts;
    quant_fit_symmetric_parts(x, importance, parts);
    float d = f16_to_f32(parts->d);
    for (int i = 0; i < QK_K; i++)
        q[i] = quant_grid_code(&parts->grid, x[i] * inverse(d * (float)parts->scale[i / n]));
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
    struct affine_parts parts = {.n_parts = 16, .high = 3, .levels = 15};
    uint8_t q[QK_K];
    fit_affine(x, importance, &parts, q);
    b->d = parts.d;
    b->dmin = parts.dmin;
    for (int p = 0; p < 16; p++)
        b->scales[p] = (uint8_t)(parts.scale[p] | parts.min[p] << 4);
    pack_two_bits(q, b->qs);
}

static void block_to_q4_K(const float *x, const float *importance, struct block_q4_K *b) {
    struct affine_parts parts = {.n_parts = 8, .high = 15, .levels = 63};
    uint8_t q[QK_K];
    fit_affine(x, importance, &parts, q);
    b->d = parts.d;
    b->dmin = parts.dmin;
    k4_pack(b->scales, parts.scale, parts.min);
    pack_nibbles(q, b->qs);
}

static void block_to_q5_K(const float *x, const float *importance, struct block_q5_K *b) {
    struct affine_parts parts = {.n_parts = 8, .high = 31, .levels = 63};
    uint8_t q[QK_K];
    fit_affine(x, importance, &parts, q);
    b->d = parts.d;
    b->dmin = parts.dmin;
    k4_pack(b->scales, parts.scale, parts.min);
    pack_nibbles(q, b->qs);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < QK_K; i++)
        b->qh[i % 32] = (uint8_t)(b->qh[i % 32] | q[i] >> 4 << i / 32);
}

static void block_to_q3_K(const float *x, const float *importance, struct block_q3_K *b) {
    struct symmetric_parts parts = {.grid = {-4, false}, .n_parts = 16, .scale_low = -32};
    uint8_t q[QK_K];
    fit_symmetric(x, importance, &parts, q);
    b->d = parts.d;
    k3_pack(b->scales, parts.scale);
    pack_two_bits(q, b->qs);
    memset(b->hmask, 0, sizeof b->hmask);
    for (int i = 0; i < QK_K; i++)
        b->hmask[i % 32] = (uint8_t)(b->hmask[i % 32] | q[i] >> 2 << i / 32);
}

static void block_to_q6_K(const float *x, const float *importance, struct block_q6_K *b) {
    struct symmetric_parts parts = {.grid = {-32, false}, .n_parts = 16, .scale_low = -128};
    uint8_t q[QK_K], high[QK_K];
    fit_symmetric(x, importance, &parts, q);
    b->d = parts.d;
    memcpy(b->scales, parts.scale, sizeof b->scales);
    for (int i = 0; i < QK_K / 2; i++) {
        const uint8_t *v = q + 128 * (i / 64) + i % 64;
        b->ql[i] = (uint8_t)((v[0] & 15) | (v[64] & 15) << 4);
    }
    for (int i = 0; i < QK_K; i++)
        high[i] = q[i] >> 4;
    pack_two_bits(high, b->qh);
}

/* Signed scales of six bits, kept as scale + 32: low nibbles, then two high bits each. */
static void block_to_iq4_xs(const float *x, const float *importance, struct block_iq4_xs *b) {
    struct symmetric_parts parts = {.grid = {-127, true}, .n_parts = 8, .scale_low = -32};
    uint8_t q[QK_K];
    fit_symmetric(x, importance, &parts, q);
    *b = (struct block_iq4_xs){.d = parts.d};
    for (int p = 0; p < 8; p++) {
        int scale = parts.scale[p] + 32;
        b->scales_l[p / 2] = (uint8_t)(b->scales_l[p / 2] | (scale & 15) << 4 * (p % 2));
        b->scales_h = (uint16_t)(b->scales_h | scale >> 4 << 2 * p);
    }
    for (int i = 0; i < QK_K / 2; i++) {
        const uint8_t *v = q + 32 * (i / 16) + i % 16;
        b->qs[i] = (uint8_t)(v[0] | v[16] << 4);
    }
}

/* ---- rows of blocks ---------------------------------------------------------------- */

QUANTIZER(q2_K, QK_K)
QUANTIZER(q3_K, QK_K)
QUANTIZER(q4_K, QK_K)
QUANTIZER(q5_K, QK_K)
QUANTIZER(q6_K, QK_K)
QUANTIZER(iq4_xs, QK_K)
