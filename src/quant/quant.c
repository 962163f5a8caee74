/* quant.c: the table of block types, and conversions of single half-precision values.
 *
 * The dequantizers are in dequant.c (plain and K types) and dequant_iq.c (codebook types). The
 * quantizers are in quantize.c. */
#include "quant/quant.h"

#include "base/util.h"
#include "quant/quant_codec.h"

#include <strings.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "blocks are read as they lie in the file");

/* Types without a dequantizer are known by size only, so that a file that holds them opens. */
static const struct qtype_info infos[QT_N] = {
    [QT_F32] = {"f32", 1, 4, dequantize_f32, quantize_f32},
    [QT_F16] = {"f16", 1, 2, dequantize_f16, quantize_f16},
    [QT_BF16] = {"bf16", 1, 2, dequantize_bf16, quantize_bf16},
    [QT_F64] = {"f64", 1, 8, dequantize_f64, NULL},
    [QT_I8] = {"i8", 1, 1, NULL, NULL},
    [QT_I16] = {"i16", 1, 2, NULL, NULL},
    [QT_I32] = {"i32", 1, 4, NULL, NULL},
    [QT_I64] = {"i64", 1, 8, NULL, NULL},
    [QT_Q4_0] = {"q4_0", QK, 18, dequantize_q4_0, quantize_q4_0},
    [QT_Q4_1] = {"q4_1", QK, 20, dequantize_q4_1, quantize_q4_1},
    [QT_Q5_0] = {"q5_0", QK, 22, dequantize_q5_0, quantize_q5_0},
    [QT_Q5_1] = {"q5_1", QK, 24, dequantize_q5_1, quantize_q5_1},
    [QT_Q8_0] = {"q8_0", QK, 34, dequantize_q8_0, quantize_q8_0},
    [QT_Q8_1] = {"q8_1", QK, 36, NULL, NULL},
    [QT_Q2_K] = {"q2_K", QK_K, 84, dequantize_q2_K, quantize_q2_K},
    [QT_Q3_K] = {"q3_K", QK_K, 110, dequantize_q3_K, quantize_q3_K},
    [QT_Q4_K] = {"q4_K", QK_K, 144, dequantize_q4_K, quantize_q4_K},
    [QT_Q5_K] = {"q5_K", QK_K, 176, dequantize_q5_K, quantize_q5_K},
    [QT_Q6_K] = {"q6_K", QK_K, 210, dequantize_q6_K, quantize_q6_K},
    [QT_Q8_K] = {"q8_K", QK_K, 292, NULL, NULL},
    [QT_IQ2_XXS] = {"iq2_xxs", QK_K, 66, dequantize_iq2_xxs, NULL},
    [QT_IQ2_XS] = {"iq2_xs", QK_K, 74, dequantize_iq2_xs, NULL},
    [QT_IQ2_S] = {"iq2_s", QK_K, 82, dequantize_iq2_s, NULL},
    [QT_IQ3_XXS] = {"iq3_xxs", QK_K, 98, dequantize_iq3_xxs, NULL},
    [QT_IQ3_S] = {"iq3_s", QK_K, 110, dequantize_iq3_s, NULL},
    [QT_IQ1_S] = {"iq1_s", QK_K, 50, dequantize_iq1_s, NULL},
    [QT_IQ1_M] = {"iq1_m", QK_K, 56, dequantize_iq1_m, NULL},
    [QT_IQ4_NL] = {"iq4_nl", QK, 18, dequantize_iq4_nl, quantize_iq4_nl},
    [QT_IQ4_XS] = {"iq4_xs", QK_K, 136, dequantize_iq4_xs, quantize_iq4_xs},
    [QT_TQ1_0] = {"tq1_0", QK_K, 54, dequantize_tq1_0, NULL},
    [QT_TQ2_0] = {"tq2_0", QK_K, 66, dequantize_tq2_0, NULL},
    [QT_MXFP4] = {"mxfp4", QK, 17, dequantize_mxfp4, quantize_mxfp4},
    [QT_NVFP4] = {"nvfp4", 64, 36, dequantize_nvfp4, NULL},
    [QT_F8_E4M3] = {"f8_e4m3", QK, 36, dequantize_f8_e4m3, NULL},
    [QT_MLX4] = {"mlx4", QK, 20, dequantize_mlx4, NULL},
    [QT_MLX8] = {"mlx8", QK, 36, dequantize_mlx8, NULL},
    [QT_MLX8_F16] = {"mlx8_f16", QK, 36, dequantize_mlx8_f16, NULL},
};

const struct qtype_info *qtype_info(uint32_t type) {
    if (type >= QT_N || infos[type].block_values == 0)
        return NULL;
    return &infos[type];
}

bool qtype_from_name(const char *name, enum qtype *out) {
    for (uint32_t type = 0; type < QT_N; type++) {
        const struct qtype_info *info = qtype_info(type);
        if (info && strcasecmp(info->name, name) == 0) {
            *out = (enum qtype)type;
            return true;
        }
    }
    return false;
}

bool qtype_row_bytes(enum qtype type, uint64_t n, size_t *out) {
    const struct qtype_info *info = qtype_info(type);
    if (!info || n % info->block_values != 0)
        return false;
    uint64_t n_blocks = n / info->block_values;
    return n_blocks <= SIZE_MAX && mul_size((size_t)n_blocks, info->block_bytes, out);
}

enum qtype qtype_for_row(enum qtype type, uint64_t n) {
    if (n % infos[type].block_values == 0)
        return type;
    return n % QK == 0 ? QT_Q8_0 : QT_F16;
}

static float f32_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_f32(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t mag = (uint32_t)(h & 0x7fff) << 13; /* exponent and mantissa at their f32 places */
    if (mag >= 31u << 23)                        /* infinity or NaN */
        return f32_of_bits(sign | 0x7f800000 | mag);
    if (mag >= 1u << 23)
        return f32_of_bits(sign | (mag + (112u << 23))); /* bias 15 -> 127 */
    /* Zero or subnormal: the fraction of a number with exponent -14, less its leading one. */
    float f = f32_of_bits(mag + (113u << 23)) - f32_of_bits(113u << 23);
    return f32_of_bits(sign | bits_of_f32(f));
}

uint16_t f32_to_f16(float f) {
    uint32_t bits = bits_of_f32(f);
    uint32_t sign = bits >> 16 & 0x8000, mag = bits & 0x7fffffff, half;
    if (mag > 0x7f800000)
        half = 0x7e00 | (mag >> 13 & 0x3ff); /* NaN stays NaN, quiet */
    else if (mag >= 0x477ff000)
        half = 0x7c00;         /* from 65520 on, the nearest is infinity */
    else if (mag < 0x38800000) /* below 2^-14: the unit of 0.5f + x is the subnormals' own */
        half = bits_of_f32(f32_of_bits(mag) + 0.5f) - bits_of_f32(0.5f);
    else
        half = (mag - (112u << 23) + 0x0fff + (mag >> 13 & 1)) >> 13;
    return (uint16_t)(sign | half);
}

float bf16_to_f32(uint16_t h) {
    return f32_of_bits((uint32_t)h << 16);
}

uint16_t f32_to_bf16(float f) {
    uint32_t bits = bits_of_f32(f);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 64); /* NaN stays NaN, quiet */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* e4m3 at an f16's places has an exponent 8 too low (bias 7, 15). */
float f8_e4m3_to_f32(uint8_t b) {
    return f16_to_f32((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7)) * 256.0f;
}
