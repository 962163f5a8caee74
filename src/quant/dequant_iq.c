/* dequant_iq.c: the codebook types (IQ), the ternary ones (TQ) and the 4-bit floats (MXFP4,
 * NVFP4) to f32, with the format's own order of operations. */
#include "base/util.h"
#include "quant/quant_codec.h"
#include "quant/quant_iq_tables.h"

/* Blocks are copied to the stack first: src needs no alignment. */
#define LOAD_BLOCK(b, src, i) memcpy(&(b), (const uint8_t *)(src) + (i) * sizeof(b), sizeof(b))

const int8_t quant_iq4_nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

void dequantize_iq4_nl(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK) {
        struct block_iq4_nl b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int j = 0; j < QK / 2; j++) {
            dst[j] = d * (float)quant_iq4_nl_values[b.qs[j] & 15];
            dst[j + QK / 2] = d * (float)quant_iq4_nl_values[b.qs[j] >> 4];
        }
    }
}

void dequantize_iq4_xs(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct block_iq4_xs b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int sub = 0; sub < QK_K / 32; sub++, dst += 32) {
            int low = b.scales_l[sub / 2] >> 4 * (sub % 2) & 15,
                high = b.scales_h >> 2 * sub & 3;
            float scale = d * (float)((low | high << 4) - 32);
            const uint8_t *qs = b.qs + 16 * sub;
            for (int j = 0; j < 16; j++) {
                dst[j] = scale * (float)quant_iq4_nl_values[qs[j] & 15];
                dst[j + 16] = scale * (float)quant_iq4_nl_values[qs[j] >> 4];
            }
        }
    }
}

/* ---- codebooks --------------------------------------------------------------------- */

/* Magnitudes of the digits of IQ2; those of IQ3 follow. */
static const uint8_t iq2_magnitudes[3] = {8, 25, 43};
static const uint8_t iq3_xxs_magnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
static const uint8_t iq3_s_magnitudes[8] = {1, 3, 5, 7, 9, 11, 13, 15};

/* Seven stored signs; the eighth makes the number of minus signs even. */
static uint8_t with_even_parity(uint32_t seven) {
    return (uint8_t)((seven & 127) | (uint32_t)__builtin_parity(seven & 127) << 7);
}

/* Eight values: bit i of minus is the sign of value i. */
static void put_iq2(float *dst, uint16_t word, float scale, uint8_t minus) {
    for (int i = 0; i < 8; i++) {
        float x = scale * (float)iq2_magnitudes[word >> 2 * i & 3];
        dst[i] = minus >> i & 1 ? -x : x;
    }
}

/* Four values; bit i of minus is the sign of value i. */
static void put_iq3(float *dst, uint16_t word, const uint8_t magnitudes[8], float scale,
                    int minus) {
    for (int i = 0; i < 4; i++) {
        float x = scale * (float)magnitudes[word >> 4 * i & 7];
        dst[i] = minus >> i & 1 ? -x : x;
    }
}

/* Scale of sub-block `sub` from a packed nibble. */
static float iq2_scale(float d, const uint8_t *scales, int sub) {
    return d * (0.5f + (float)(scales[sub / 2] >> 4 * (sub % 2) & 15)) * 0.25f;
}

/* 32 values: four bytes of places, then a word of 4 x 7 signs and a scale. */
void dequantize_iq2_xxs(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct block_iq2_xxs b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int sub = 0; sub < QK_K / 32; sub++) {
            uint8_t places[4];
            uint32_t rest;
            memcpy(places, b.qs + 4 * sub, 4);
            memcpy(&rest, b.qs + 4 * sub + 2, 4);
            float scale = d * (0.5f + (float)(rest >> 28)) * 0.25f;
            for (int k = 0; k < 4; k++, dst += 8)
                put_iq2(dst, quant_iq2xxs_words[places[k]], scale,
                        with_even_parity(rest >> 7 * k));
        }
    }
}

/* 8 values: nine bits of place, seven of signs. */
void dequantize_iq2_xs(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct block_iq2_xs b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int k = 0; k < QK_K / 8; k++, dst += 8)
            put_iq2(dst, quant_iq2xs_words[b.qs[k] & 511], iq2_scale(d, b.scales, k / 2),
                    with_even_parity(b.qs[k] >> 9));
    }
}

/* The second half of qs holds the signs. */
void dequantize_iq2_s(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct block_iq2_s b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int k = 0; k < QK_K / 8; k++, dst += 8) {
            int place = b.qs[k] | (b.qh[k / 4] >> 2 * (k % 4) & 3) << 8;
            put_iq2(dst, quant_iq2s_words[place], iq2_scale(d, b.scales, k / 2),
                    b.qs[QK_K / 8 + k]);
        }
    }
}

/* 64 places of four values, then as iq2_xxs a word of signs and scale for 32 values. */
void dequantize_iq3_xxs(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct block_iq3_xxs b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int k = 0; k < QK_K / 4; k++, dst += 4) {
            uint32_t rest;
            memcpy(&rest, b.qs + QK_K / 4 + 4 * (k / 8), 4);
            float scale = d * (0.5f + (float)(rest >> 28)) * 0.5f;
            uint8_t minus = with_even_parity(rest >> 7 * (k / 2 % 4));
            put_iq3(dst, quant_iq3xxs_words[b.qs[k]], iq3_xxs_magnitudes, scale,
                    minus >> 4 * (k % 2));
        }
    }
}

void dequantize_iq3_s(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct block_iq3_s b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int k = 0; k < QK_K / 4; k++, dst += 4) {
            int sub = k / 8, nibble = b.scales[sub / 2] >> 4 * (sub % 2) & 15;
            int place = b.qs[k] | (b.qh[sub] >> k % 8 & 1) << 8;
            put_iq3(dst, quant_iq3s_words[place], iq3_s_magnitudes, d * (float)(1 + 2 * nibble),
                    b.signs[k / 2] >> 4 * (k % 2));
        }
    }
}

/* Eight values of -1, 0, 1, all moved by an eighth up or down. */
static void put_iq1(float *dst, int place, float scale, bool down) {
    uint16_t word = quant_iq1s_words[place];
    float delta = down ? -0.125f : 0.125f;
    for (int i = 0; i < 8; i++)
        dst[i] = scale * ((float)((word >> 2 * i & 3) - 1) + delta);
}

void dequantize_iq1_s(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct block_iq1_s b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int k = 0; k < QK_K / 8; k++, dst += 8) {
            int qh = b.qh[k / 4];
            put_iq1(dst, b.qs[k] | (qh >> 3 * (k % 4) & 7) << 8,
                    d * (float)(2 * (qh >> 12 & 7) + 1), qh & 0x8000);
        }
    }
}

void dequantize_iq1_m(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct block_iq1_m b;
        uint16_t scales[4], half = 0;
        LOAD_BLOCK(b, src, i);
        memcpy(scales, b.scales, sizeof scales);
        for (int k = 0; k < 4; k++)
            half = (uint16_t)(half | scales[k] >> 12 << 4 * k);
        float d = f16_to_f32(half);
        for (int k = 0; k < QK_K / 8; k++, dst += 8) {
            int qh = b.qh[k / 2] >> 4 * (k % 2);
            int sub = k / 2, scale = scales[sub / 4] >> 3 * (sub % 4) & 7;
            put_iq1(dst, b.qs[k] | (qh & 7) << 8, d * (float)(2 * scale + 1), qh & 8);
        }
    }
}

/* ---- ternary ----------------------------------------------------------------------- */

/* Digit `digit` (the highest is 0) of a byte that holds five base-3 digits as a fraction of
 * 256. */
static float ternary(uint8_t byte, int digit, float d) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    uint8_t rest = (uint8_t)(byte * power[digit]);
    return (float)((rest * 3 >> 8) - 1) * d;
}

void dequantize_tq1_0(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct block_tq1_0 b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int digit = 0; digit < 5; digit++)
            for (int j = 0; j < 32; j++)
                *dst++ = ternary(b.qs[j], digit, d);
        for (int digit = 0; digit < 5; digit++)
            for (int j = 32; j < 48; j++)
                *dst++ = ternary(b.qs[j], digit, d);
        for (int digit = 0; digit < 4; digit++)
            for (int j = 0; j < 4; j++)
                *dst++ = ternary(b.qh[j], digit, d);
    }
}

void dequantize_tq2_0(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK_K) {
        struct block_tq2_0 b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int v = 0; v < QK_K; v++)
            dst[v] = (float)((b.qs[32 * (v / 128) + v % 32] >> 2 * (v / 32 % 4) & 3) - 1) * d;
    }
}

/* ---- 4-bit floats ------------------------------------------------------------------ */

const int8_t quant_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

float quant_e8m0_half(uint8_t e) {
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

void dequantize_mxfp4(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK) {
        struct block_mxfp4 b;
        LOAD_BLOCK(b, src, i);
        float d = quant_e8m0_half(b.e);
        for (int j = 0; j < QK / 2; j++) {
            dst[j] = (float)quant_fp4_values[b.qs[j] & 15] * d;
            dst[j + QK / 2] = (float)quant_fp4_values[b.qs[j] >> 4] * d;
        }
    }
}

/* Half of an unsigned e4m3 (bias 7, bit 7 is not used); the NaN code counts as 0. */
static float e4m3_half(uint8_t code) {
    int exponent = code >> 3 & 15, mantissa = code & 7;
    if ((code & 127) == 127)
        return 0;
    float fraction = exponent ? 1 + (float)mantissa / 8 : (float)mantissa / 8;
    return fraction * quant_e8m0_half((uint8_t)(128 + MAX(exponent, 1) - 8));
}

void dequantize_nvfp4(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct block_nvfp4 b;
        LOAD_BLOCK(b, src, i);
        for (int sub = 0; sub < QK_NVFP4 / 16; sub++, dst += 16) {
            float d = e4m3_half(b.d[sub]);
            const uint8_t *qs = b.qs + 8 * sub;
            for (int j = 0; j < 8; j++) {
                dst[j] = (float)quant_fp4_values[qs[j] & 15] * d;
                dst[j + 8] = (float)quant_fp4_values[qs[j] >> 4] * d;
            }
        }
    }
}
