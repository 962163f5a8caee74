/* quant_codec.h: the functions behind the table in quant.c, for src/quant only. struct
 * qtype_info documents them. */
#ifndef LOCKSTEP_QUANT_QUANT_CODEC_H
#define LOCKSTEP_QUANT_QUANT_CODEC_H

#include "quant/quant.h"

/* dequant.c */
void dequantize_f32(const void *src, float *dst, size_t n);
void dequantize_f16(const void *src, float *dst, size_t n);
void dequantize_bf16(const void *src, float *dst, size_t n);
void dequantize_f64(const void *src, float *dst, size_t n);
void dequantize_q4_0(const void *src, float *dst, size_t n_blocks);
void dequantize_q4_1(const void *src, float *dst, size_t n_blocks);
void dequantize_q5_0(const void *src, float *dst, size_t n_blocks);
void dequantize_q5_1(const void *src, float *dst, size_t n_blocks);
void dequantize_q8_0(const void *src, float *dst, size_t n_blocks);
void dequantize_q2_K(const void *src, float *dst, size_t n_blocks);
void dequantize_q3_K(const void *src, float *dst, size_t n_blocks);
void dequantize_q4_K(const void *src, float *dst, size_t n_blocks);
void dequantize_q5_K(const void *src, float *dst, size_t n_blocks);
void dequantize_q6_K(const void *src, float *dst, size_t n_blocks);
void dequantize_f8_e4m3(const void *src, float *dst, size_t n_blocks);
void dequantize_mlx4(const void *src, float *dst, size_t n_blocks);
void dequantize_mlx8(const void *src, float *dst, size_t n_blocks);
void dequantize_mlx8_f16(const void *src, float *dst, size_t n_blocks);

/* dequant_iq.c */
void dequantize_iq4_nl(const void *src, float *dst, size_t n_blocks);
void dequantize_iq4_xs(const void *src, float *dst, size_t n_blocks);
void dequantize_iq2_xxs(const void *src, float *dst, size_t n_blocks);
void dequantize_iq2_xs(const void *src, float *dst, size_t n_blocks);
void dequantize_iq2_s(const void *src, float *dst, size_t n_blocks);
void dequantize_iq3_xxs(const void *src, float *dst, size_t n_blocks);
void dequantize_iq3_s(const void *src, float *dst, size_t n_blocks);
void dequantize_iq1_s(const void *src, float *dst, size_t n_blocks);
void dequantize_iq1_m(const void *src, float *dst, size_t n_blocks);
void dequantize_tq1_0(const void *src, float *dst, size_t n_blocks);
void dequantize_tq2_0(const void *src, float *dst, size_t n_blocks);
void dequantize_mxfp4(const void *src, float *dst, size_t n_blocks);
void dequantize_nvfp4(const void *src, float *dst, size_t n_blocks);

/* 16 values of iq4_nl, in order; 16 of e2m1, doubled: integers, the negative ones from 8 on. */
extern const int8_t quant_iq4_nl_values[16], quant_fp4_values[16];
/* 2^(e - 128), the scale of doubled e2m1 values; e = 0 and 1 are subnormal. */
float quant_e8m0_half(uint8_t e);

/* quantize.c */
void quantize_f32(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_f16(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_bf16(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_q4_0(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_q4_1(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_q5_0(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_q5_1(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_q8_0(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_iq4_nl(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_mxfp4(const float *x, const float *importance, void *dst, size_t n_blocks);

/* quantize_super.c */
void quantize_q2_K(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_q3_K(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_q4_K(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_q5_K(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_q6_K(const float *x, const float *importance, void *dst, size_t n_blocks);
void quantize_iq4_xs(const float *x, const float *importance, void *dst, size_t n_blocks);

/* The inverse of k4_scale_min(): eight scales and minima of 0..63. */
static inline void k4_pack(uint8_t packed[12], const uint8_t scales[8], const uint8_t mins[8]) {
    for (int j = 0; j < 4; j++) {
        packed[j] = (uint8_t)(scales[j] | scales[j + 4] >> 4 << 6);
        packed[j + 4] = (uint8_t)(mins[j] | mins[j + 4] >> 4 << 6);
        packed[j + 8] = (uint8_t)((scales[j + 4] & 15) | mins[j + 4] << 4);
    }
}

/* The inverse of k3_scale(): sixteen scales of -32..31. */
static inline void k3_pack(uint8_t packed[12], const int8_t scales[16]) {
    for (int j = 0; j < 8; j++) {
        int low = scales[j] + 32, high = scales[j + 8] + 32;
        packed[j] = (uint8_t)((low & 15) | (high & 15) << 4);
    }
    for (int j = 0; j < 4; j++) {
        int bits = 0;
        for (int k = 0; k < 4; k++)
            bits |= (scales[j + 4 * k] + 32) >> 4 << 2 * k;
        packed[j + 8] = (uint8_t)bits;
    }
}

#endif
