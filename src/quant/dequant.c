/* dequant.c: plain and K blocks to f32, with the format's own order of operations. A formula d
 * * sc * q is multiplied from left to right, and each product is rounded. */
#include "base/util.h"
#include "quant/quant_codec.h"

void dequantize_f32(const void *src, float *dst, size_t n) {
    memcpy(dst, src, n * sizeof *dst);
}

void dequantize_f16(const void *src, float *dst, size_t n) {
    const uint8_t *bytes = src;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, bytes + 2 * i, sizeof h);
        dst[i] = f16_to_f32(h);
    }
}

void dequantize_bf16(const void *src, float *dst, size_t n) {
    const uint8_t *bytes = src;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, bytes + 2 * i, sizeof h);
        dst[i] = bf16_to_f32(h);
    }
}

void dequantize_f64(const void *src, float *dst, size_t n) {
    const uint8_t *bytes = src;
    for (size_t i = 0; i < n; i++) {
        double x;
        memcpy(&x, bytes + 8 * i, sizeof x);
        dst[i] = (float)x;
    }
}

/* Each block is copied to the stack first: src needs no alignment. */
#define LOAD_BLOCK(b, src, i) memcpy(&(b), (const uint8_t *)(src) + (i) * sizeof(b), sizeof(b))

void dequantize_q4_0(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK) {
        struct block_q4_0 b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int j = 0; j < QK / 2; j++) {
            dst[j] = (float)((b.qs[j] & 15) - 8) * d;
            dst[j + QK / 2] = (float)((b.qs[j] >> 4) - 8) * d;
        }
    }
}

void dequantize_q4_1(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK) {
        struct block_q4_1 b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
        for (int j = 0; j < QK / 2; j++) {
            dst[j] = (float)(b.qs[j] & 15) * d + m;
            dst[j + QK / 2] = (float)(b.qs[j] >> 4) * d + m;
        }
    }
}

/* The five-bit value i of a q5_0 or q5_1 block. */
static int q5_value(const uint8_t qh[4], const uint8_t qs[QK / 2], int i) {
    int low = i < QK / 2 ? qs[i] & 15 : qs[i - QK / 2] >> 4;
    return low | (qh[i / 8] >> i % 8 & 1) << 4;
}

void dequantize_q5_0(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK) {
        struct block_q5_0 b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int j = 0; j < QK; j++)
            dst[j] = (float)(q5_value(b.qh, b.qs, j) - 16) * d;
    }
}

void dequantize_q5_1(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK) {
        struct block_q5_1 b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
        for (int j = 0; j < QK; j++)
            dst[j] = (float)q5_value(b.qh, b.qs, j) * d + m;
    }
}

void dequantize_q8_0(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK) {
        struct block_q8_0 b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int j = 0; j < QK; j++)
            dst[j] = (float)b.qs[j] * d;
    }
}

/* K types. A superblock is two halves of 128 values. The two-bit fields of a byte of qs belong
 * to values that are 32 apart in its half: value v has byte 32 * (v / 128) + v % 32, shift 2 *
 * (v / 32 % 4). */
static int two_bits(const uint8_t qs[QK_K / 4], int v) {
    return qs[32 * (v / 128) + v % 32] >> 2 * (v / 32 % 4) & 3;
}

void dequantize_q2_K(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK_K) {
        struct block_q2_K b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
        for (int sub = 0; sub < QK_K / 16; sub++) {
            float scale = d * (float)(b.scales[sub] & 15),
                  min = dmin * (float)(b.scales[sub] >> 4);
            for (int v = 16 * sub; v < 16 * (sub + 1); v++)
                dst[v] = scale * (float)two_bits(b.qs, v) - min;
        }
    }
}

void dequantize_q3_K(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK_K) {
        struct block_q3_K b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int sub = 0; sub < QK_K / 16; sub++) {
            float scale = d * (float)k3_scale(b.scales, (unsigned)sub);
            for (int v = 16 * sub; v < 16 * (sub + 1); v++) {
                int high = b.hmask[v % 32] >> v / 32 & 1;
                dst[v] = scale * (float)(two_bits(b.qs, v) - (high ? 0 : 4));
            }
        }
    }
}

/* q4_K, q5_K: sub-block j of 32 has the low (j even) or high (j odd) nibbles of the bytes from
 * 32 * (j / 2) on. The fifth bit of value v in q5_K is bit v / 32 of qh[v % 32]. */
void dequantize_q4_K(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct block_q4_K b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
        for (unsigned sub = 0; sub < QK_K / 32; sub++, dst += 32) {
            uint8_t sc, m;
            k4_scale_min(b.scales, sub, &sc, &m);
            float scale = d * (float)sc, min = dmin * (float)m;
            const uint8_t *qs = b.qs + 32 * (sub / 2);
            for (int j = 0; j < 32; j++)
                dst[j] = scale * (float)(qs[j] >> 4 * (sub % 2) & 15) - min;
        }
    }
}

void dequantize_q5_K(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct block_q5_K b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
        for (unsigned sub = 0; sub < QK_K / 32; sub++, dst += 32) {
            uint8_t sc, m;
            k4_scale_min(b.scales, sub, &sc, &m);
            float scale = d * (float)sc, min = dmin * (float)m;
            const uint8_t *qs = b.qs + 32 * (sub / 2);
            for (int j = 0; j < 32; j++) {
                int q = (qs[j] >> 4 * (sub % 2) & 15) | (b.qh[j] >> sub & 1) << 4;
                dst[j] = scale * (float)q - min;
            }
        }
    }
}

void dequantize_q6_K(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK_K) {
        struct block_q6_K b;
        LOAD_BLOCK(b, src, i);
        float d = f16_to_f32(b.d);
        for (int v = 0; v < QK_K; v++) {
            /* In each half: nibbles low for values 0..63, high for 64..127. */
            int low = b.ql[64 * (v / 128) + v % 64] >> 4 * (v / 64 % 2) & 15;
            int q = (low | two_bits(b.qh, v) << 4) - 32;
            dst[v] = d * (float)b.scales[v / 16] * (float)q;
        }
    }
}

/* ---- types of folders ---------------------------------------------------------------- */

void dequantize_f8_e4m3(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK) {
        struct block_f8_e4m3 b;
        LOAD_BLOCK(b, src, i);
        for (int j = 0; j < QK; j++)
            dst[j] = f8_e4m3_to_f32(b.qs[j]) * b.d;
    }
}

void dequantize_mlx4(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK) {
        struct block_q4_1 b;
        LOAD_BLOCK(b, src, i);
        float d = bf16_to_f32(b.d), m = bf16_to_f32(b.m);
        for (int j = 0; j < QK / 2; j++) {
            dst[j] = (float)(b.qs[j] & 15) * d + m;
            dst[j + QK / 2] = (float)(b.qs[j] >> 4) * d + m;
        }
    }
}

static void dequantize_bytes(const struct block_mlx8 *b, float d, float m, float *dst) {
    for (int j = 0; j < QK; j++)
        dst[j] = (float)b->qs[j] * d + m;
}

void dequantize_mlx8(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK) {
        struct block_mlx8 b;
        LOAD_BLOCK(b, src, i);
        dequantize_bytes(&b, bf16_to_f32(b.d), bf16_to_f32(b.m), dst);
    }
}

void dequantize_mlx8_f16(const void *src, float *dst, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++, dst += QK) {
        struct block_mlx8 b;
        LOAD_BLOCK(b, src, i);
        dequantize_bytes(&b, f16_to_f32(b.d), f16_to_f32(b.m), dst);
    }
}
