/* synth_fill.c: makes random quantized blocks directly. Quants are uniform random bits, and the
 * scales are chosen so that the values have the wanted deviation. This is much faster than
 * quantizing normal deviates, and kernels do the same work on it. */
#include "base/rng.h"
#include "base/util.h"
#include "convert/synth_parts.h"
#include "quant/quant_codec.h"

#include <math.h>

/* Random words of one block. 32 words are enough for the largest block. */
struct dice {
    uint64_t seed, counter;
};

#define WORDS_PER_BLOCK 32

static uint64_t roll(struct dice *dice) {
    return rng_u64(dice->seed, dice->counter++);
}

/* n is a multiple of 4. */
static void roll_bytes(struct dice *dice, void *dst, size_t n) {
    uint8_t *p = dst;
    for (; n >= 8; n -= 8, p += 8)
        memcpy(p, &(uint64_t){roll(dice)}, 8);
    memcpy(p, &(uint64_t){roll(dice)}, n);
}

/* unit times 0.742 to 1.237 (root mean square 1), as an f16. */
static uint16_t roll_scale(struct dice *dice, float unit) {
    return f32_to_f16(unit * (0.7423f + 0.4949f * (float)(roll(dice) >> 40) * 0x1p-24f));
}

/* The same with a random sign, for types whose quants do not have mean 0. */
static uint16_t roll_signed_scale(struct dice *dice, float unit) {
    return (uint16_t)(roll_scale(dice, unit) | (roll(dice) >> 48 & 0x8000));
}

/* f16(d * factor), for minima that must cancel the mean of the quants. */
static uint16_t scaled(uint16_t d, float factor) {
    return f32_to_f16(f16_to_f32(d) * factor);
}

/* Root mean square of uniform quants: about their mean, where a minimum cancels it; about 0
 * otherwise. */
#define RMS_0_TO_3 1.118f
#define RMS_0_TO_15 4.610f
#define RMS_0_TO_31 9.233f
#define RMS_4_TO_3 2.345f /* -4..3 */
#define RMS_8_TO_7 4.637f
#define RMS_16_TO_15 9.247f
#define RMS_32_TO_31 18.48f
#define RMS_127_TO_127 73.61f
#define RMS_IQ4_NL 67.4f /* of its 16 values */
#define RMS_MXFP4 5.85f

static void fill_q4_0(struct dice *dice, float sigma, struct block_q4_0 *b) {
    roll_bytes(dice, b->qs, sizeof b->qs);
    b->d = roll_signed_scale(dice, sigma / RMS_8_TO_7);
}

static void fill_q4_1(struct dice *dice, float sigma, struct block_q4_1 *b) {
    roll_bytes(dice, b->qs, sizeof b->qs);
    b->d = roll_scale(dice, sigma / RMS_0_TO_15);
    b->m = scaled(b->d, -7.5f);
}

static void fill_q5_0(struct dice *dice, float sigma, struct block_q5_0 *b) {
    roll_bytes(dice, b->qh, sizeof b->qh);
    roll_bytes(dice, b->qs, sizeof b->qs);
    b->d = roll_signed_scale(dice, sigma / RMS_16_TO_15);
}

static void fill_q5_1(struct dice *dice, float sigma, struct block_q5_1 *b) {
    roll_bytes(dice, b->qh, sizeof b->qh);
    roll_bytes(dice, b->qs, sizeof b->qs);
    b->d = roll_scale(dice, sigma / RMS_0_TO_31);
    b->m = scaled(b->d, -15.5f);
}

static void fill_q8_0(struct dice *dice, float sigma, struct block_q8_0 *b) {
    roll_bytes(dice, b->qs, sizeof b->qs);
    for (int i = 0; i < QK; i++)
        b->qs[i] = b->qs[i] == INT8_MIN ? 0 : b->qs[i]; /* no quantizer writes -128 */
    b->d = roll_scale(dice, sigma / RMS_127_TO_127);
}

/* Sub-scales are uniform in the upper half of their range: root mean square
 * of 8..15, 16..31, 32..63. */
#define RMS_SCALE_4_BITS 11.7f
#define RMS_SCALE_5_BITS 23.9f
#define RMS_SCALE_6_BITS 48.4f

/* The minima equal the scales, so that dmin = mean quant * d makes the mean of the values 0. */
static void roll_k4_scales(struct dice *dice, uint8_t scales[12]) {
    uint8_t sc[8];
    roll_bytes(dice, sc, sizeof sc);
    for (int i = 0; i < 8; i++)
        sc[i] = 32 | (sc[i] & 31);
    k4_pack(scales, sc, sc);
}

static void fill_q2_K(struct dice *dice, float sigma, struct block_q2_K *b) {
    roll_bytes(dice, b->qs, sizeof b->qs);
    roll_bytes(dice, b->scales, sizeof b->scales);
    for (int i = 0; i < 16; i++)
        b->scales[i] = (uint8_t)((8 | (b->scales[i] & 7)) * 0x11);
    b->d = roll_scale(dice, sigma / (RMS_0_TO_3 * RMS_SCALE_4_BITS));
    b->dmin = scaled(b->d, 1.5f);
}

static int8_t with_sign_of(int8_t sign, int magnitude) {
    return (int8_t)(sign < 0 ? -magnitude : magnitude);
}

static void fill_q3_K(struct dice *dice, float sigma, struct block_q3_K *b) {
    int8_t scales[16];
    roll_bytes(dice, b->qs, sizeof b->qs);
    roll_bytes(dice, b->hmask, sizeof b->hmask);
    roll_bytes(dice, scales, sizeof scales);
    for (int i = 0; i < 16; i++)
        scales[i] = with_sign_of(scales[i], 16 | (scales[i] & 15));
    k3_pack(b->scales, scales);
    b->d = roll_scale(dice, sigma / (RMS_4_TO_3 * RMS_SCALE_5_BITS));
}

static void fill_q4_K(struct dice *dice, float sigma, struct block_q4_K *b) {
    roll_bytes(dice, b->qs, sizeof b->qs);
    roll_k4_scales(dice, b->scales);
    b->d = roll_scale(dice, sigma / (RMS_0_TO_15 * RMS_SCALE_6_BITS));
    b->dmin = scaled(b->d, 7.5f);
}

static void fill_q5_K(struct dice *dice, float sigma, struct block_q5_K *b) {
    roll_bytes(dice, b->qh, sizeof b->qh);
    roll_bytes(dice, b->qs, sizeof b->qs);
    roll_k4_scales(dice, b->scales);
    b->d = roll_scale(dice, sigma / (RMS_0_TO_31 * RMS_SCALE_6_BITS));
    b->dmin = scaled(b->d, 15.5f);
}

static void fill_q6_K(struct dice *dice, float sigma, struct block_q6_K *b) {
    roll_bytes(dice, b->ql, sizeof b->ql);
    roll_bytes(dice, b->qh, sizeof b->qh);
    roll_bytes(dice, b->scales, sizeof b->scales);
    for (int i = 0; i < 16; i++)
        b->scales[i] = with_sign_of(b->scales[i], 32 | (b->scales[i] & 31));
    b->d = roll_scale(dice, sigma / (RMS_32_TO_31 * RMS_SCALE_6_BITS));
}

static void fill_iq4_nl(struct dice *dice, float sigma, struct block_iq4_nl *b) {
    roll_bytes(dice, b->qs, sizeof b->qs);
    b->d = roll_signed_scale(dice, sigma / RMS_IQ4_NL);
}

/* The exponent is a power of two, so a block is wrong by up to a factor of sqrt(2). The
 * exponent is rounded at random, by its distance from both neighbours. So the deviation is
 * right on average. */
static void fill_mxfp4(struct dice *dice, float sigma, struct block_mxfp4 *b) {
    roll_bytes(dice, b->qs, sizeof b->qs);
    int exponent;
    float fraction = frexpf(sigma / RMS_MXFP4, &exponent); /* 0.5 to 1 */
    float up = (4 * fraction * fraction - 1) / 3; /* probability of 2^exponent: squares add */
    bool is_up = (float)(roll(dice) >> 40) * 0x1p-24f < up;
    int e = exponent - !is_up + 128; /* a value is its code * 2^(e - 128) */
    b->e = (uint8_t)MIN(MAX(e, 0), 254);
}

/* Plain values: four uniform 16-bit numbers a word. */
static float plain_value(uint64_t seed, uint64_t index, float sigma) {
    uint64_t word = rng_u64(seed, index / 4);
    int16_t r = (int16_t)(word >> 16 * (index % 4));
    return ((float)r + 0.5f) * (sigma * 1.7320508f / 32768.0f);
}

static void fill_plain(enum qtype type, uint64_t seed, uint64_t first, float sigma, void *dst,
                       size_t n) {
    for (size_t i = 0; i < n; i++) {
        float x = plain_value(seed, first + i, sigma);
        if (type == QT_F32)
            ((float *)dst)[i] = x;
        else
            ((uint16_t *)dst)[i] = type == QT_F16 ? f32_to_f16(x) : f32_to_bf16(x);
    }
}

#define FILLABLE(X)      \
    X(QT_Q4_0, q4_0)     \
    X(QT_Q4_1, q4_1)     \
    X(QT_Q5_0, q5_0)     \
    X(QT_Q5_1, q5_1)     \
    X(QT_Q8_0, q8_0)     \
    X(QT_Q2_K, q2_K)     \
    X(QT_Q3_K, q3_K)     \
    X(QT_Q4_K, q4_K)     \
    X(QT_Q5_K, q5_K)     \
    X(QT_Q6_K, q6_K)     \
    X(QT_IQ4_NL, iq4_nl) \
    X(QT_MXFP4, mxfp4)

void synth_fill(enum qtype type, uint64_t seed, uint64_t first_block, float sigma, void *dst,
                size_t n_blocks) {
    switch ((int)type) {
    case QT_F32:
    case QT_F16:
    case QT_BF16:
        fill_plain(type, seed, first_block, sigma, dst, n_blocks);
        break;
#define FILL_CASE(id, name)                                                 \
    case id:                                                                \
        for (size_t i = 0; i < n_blocks; i++) {                             \
            struct dice dice = {seed, (first_block + i) * WORDS_PER_BLOCK}; \
            fill_##name(&dice, sigma, (struct block_##name *)dst + i);      \
        }                                                                   \
        break;
        FILLABLE(FILL_CASE)
    default:
        BUG_ON(true);
    }
}

bool synth_can_fill(enum qtype type) {
    switch ((int)type) {
    case QT_F32:
    case QT_F16:
    case QT_BF16:
#define CAN_CASE(id, name) case id:
        FILLABLE(CAN_CASE)
        return true;
    default:
        return false;
    }
}
