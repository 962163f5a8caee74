/* quant.h: the block types of GGUF: names, sizes, layouts, exact dequantizers, quantizers.
 *
 * A row of a matrix is a sequence of blocks. A block holds block_values values in block_bytes
 * bytes. Layouts and formulas are the GGUF format's own; golden/quants has the expected bits. */
#ifndef LOCKSTEP_QUANT_QUANT_H
#define LOCKSTEP_QUANT_QUANT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The ids are those of GGUF files. */
enum qtype {
    QT_F32 = 0,
    QT_F16 = 1,
    QT_Q4_0 = 2,
    QT_Q4_1 = 3,
    QT_Q5_0 = 6,
    QT_Q5_1 = 7,
    QT_Q8_0 = 8,
    QT_Q8_1 = 9,
    QT_Q2_K = 10,
    QT_Q3_K = 11,
    QT_Q4_K = 12,
    QT_Q5_K = 13,
    QT_Q6_K = 14,
    QT_Q8_K = 15,
    QT_IQ2_XXS = 16,
    QT_IQ2_XS = 17,
    QT_IQ3_XXS = 18,
    QT_IQ1_S = 19,
    QT_IQ4_NL = 20,
    QT_IQ3_S = 21,
    QT_IQ2_S = 22,
    QT_IQ4_XS = 23,
    QT_I8 = 24,
    QT_I16 = 25,
    QT_I32 = 26,
    QT_I64 = 27,
    QT_F64 = 28,
    QT_IQ1_M = 29,
    QT_BF16 = 30,
    QT_TQ1_0 = 34,
    QT_TQ2_0 = 35,
    QT_MXFP4 = 39,
    QT_NVFP4 = 40,
    /* Of folders (docs/folders.md): no GGUF has these. */
    QT_F8_E4M3 = 64,
    QT_MLX4 = 65,
    QT_MLX8 = 66,
    QT_MLX8_F16 = 67,
    QT_N
};
#define QT_GGUF_END QT_F8_E4M3 /* types in files are below */

struct qtype_info {
    const char *name;      /* as people write it: "q4_K" */
    uint32_t block_values; /* 0: no such type (a hole in the ids, or removed) */
    uint32_t block_bytes;
    /* n_blocks blocks -> n_blocks * block_values f32, in the exact order of operations of the
     * format's definition. NULL: not a weight type. src and dst do not overlap; src needs no
     * alignment. */
    void (*dequantize)(const void *src, float *dst, size_t n_blocks);
    /* The inverse, with the least squared error that a search finds. x holds n_blocks *
     * block_values values. importance (same length, or NULL) weights the error of each value.
     * NULL: lockstep cannot write this type. */
    void (*quantize)(const float *x, const float *importance, void *dst, size_t n_blocks);
};

/* NULL if there is no such type. */
const struct qtype_info *qtype_info(uint32_t type);
/* By name, case does not matter ("Q8_0", "q4_k", "f16"); false if unknown. */
bool qtype_from_name(const char *name, enum qtype *out);

/* The type for rows of n values if `type` is requested: `type` itself, or Q8_0 if rows are not
 * whole blocks of it, or F16 if they are not whole blocks of Q8_0 either. */
enum qtype qtype_for_row(enum qtype type, uint64_t n);

/* Bytes of a row of n values; false if n is not a whole number of blocks or overflows. */
bool qtype_row_bytes(enum qtype type, uint64_t n, size_t *out);

float f16_to_f32(uint16_t h);
/* Round to nearest even; overflow to infinity; NaN stays NaN. */
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);
float f8_e4m3_to_f32(uint8_t b);

/* Block layouts. Little-endian, unaligned in files. */
#define QK 32    /* values per simple block */
#define QK_K 256 /* values per superblock */

struct block_q4_0 {
    uint16_t d;         /* f16 scale */
    uint8_t qs[QK / 2]; /* low nibbles: values 0..15, high nibbles: 16..31; value = q - 8 */
};
struct block_q4_1 {
    uint16_t d, m; /* value = d * q + m */
    uint8_t qs[QK / 2];
};
struct block_q5_0 {
    uint16_t d;
    uint8_t qh[4]; /* fifth bits, little-endian u32: bit i for value i */
    uint8_t qs[QK / 2];
};
struct block_q5_1 {
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[QK / 2];
};
struct block_q8_0 {
    uint16_t d;
    int8_t qs[QK];
};
struct block_q2_K {
    uint8_t scales[QK_K / 16]; /* low nibble scale, high nibble min */
    uint8_t qs[QK_K / 4];
    uint16_t d, dmin;
};
struct block_q3_K {
    uint8_t hmask[QK_K / 8];
    uint8_t qs[QK_K / 4];
    uint8_t scales[12];
    uint16_t d;
};
struct block_q4_K {
    uint16_t d, dmin;
    uint8_t scales[12]; /* 8 six-bit scales and 8 six-bit mins, packed */
    uint8_t qs[QK_K / 2];
};
struct block_q5_K {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[QK_K / 8];
    uint8_t qs[QK_K / 2];
};
struct block_q6_K {
    uint8_t ql[QK_K / 2];
    uint8_t qh[QK_K / 4];
    int8_t scales[QK_K / 16];
    uint16_t d;
};
struct block_iq4_nl {
    uint16_t d;
    uint8_t qs[QK / 2]; /* nibbles as q4_0's: places in a table of 16 values */
};
struct block_iq4_xs {
    uint16_t d, scales_h;
    uint8_t scales_l[QK_K / 64];
    uint8_t qs[QK_K / 2];
};
struct block_iq2_xxs {
    uint16_t d;
    uint16_t qs[QK_K / 8];
};
struct block_iq2_xs {
    uint16_t d;
    uint16_t qs[QK_K / 8];
    uint8_t scales[QK_K / 32];
};
struct block_iq2_s {
    uint16_t d;
    uint8_t qs[QK_K / 4];
    uint8_t qh[QK_K / 32];
    uint8_t scales[QK_K / 32];
};
struct block_iq3_xxs {
    uint16_t d;
    uint8_t qs[3 * QK_K / 8];
};
struct block_iq3_s {
    uint16_t d;
    uint8_t qs[QK_K / 4];
    uint8_t qh[QK_K / 32];
    uint8_t signs[QK_K / 8];
    uint8_t scales[QK_K / 64];
};
struct block_iq1_s {
    uint16_t d;
    uint8_t qs[QK_K / 8];
    uint16_t qh[QK_K / 32];
};
struct block_iq1_m {
    uint8_t qs[QK_K / 8];
    uint8_t qh[QK_K / 16];
    uint8_t scales[QK_K / 32]; /* the f16 scale of the block is in their high nibbles */
};
struct block_tq1_0 {
    uint8_t qs[(QK_K - 4 * QK_K / 64) / 5]; /* five ternary digits a byte */
    uint8_t qh[QK_K / 64];                  /* four */
    uint16_t d;
};
struct block_tq2_0 {
    uint8_t qs[QK_K / 4];
    uint16_t d;
};
struct block_mxfp4 {
    uint8_t e;          /* power of two, biased by 127 */
    uint8_t qs[QK / 2]; /* nibbles as q4_0's: e2m1 */
};
#define QK_NVFP4 64
struct block_nvfp4 {
    uint8_t d[QK_NVFP4 / 16]; /* unsigned e4m3, one for 16 values */
    uint8_t qs[QK_NVFP4 / 2];
};
/* What rows.c makes of a folder's tensors. */
struct block_f8_e4m3 {
    float d; /* value = d * q, rounded to f32 */
    /* sign, 4 bits of exponent biased by 7, 3 of mantissa; 0x7f and 0xff, which are NaN in the
     * file, come with a d of NaN */
    uint8_t qs[QK];
};
/* QT_MLX4 is block_q4_1 with d and m in bf16. */
struct block_mlx8 {
    uint16_t d, m; /* bf16; QT_MLX8_F16: f16. value = d * q + m */
    uint8_t qs[QK];
};
_Static_assert(sizeof(struct block_f8_e4m3) == 36, "f8_e4m3");
_Static_assert(sizeof(struct block_mlx8) == 36, "mlx8");
_Static_assert(sizeof(struct block_q4_0) == 18, "q4_0");
_Static_assert(sizeof(struct block_q4_1) == 20, "q4_1");
_Static_assert(sizeof(struct block_q5_0) == 22, "q5_0");
_Static_assert(sizeof(struct block_q5_1) == 24, "q5_1");
_Static_assert(sizeof(struct block_q8_0) == 34, "q8_0");
_Static_assert(sizeof(struct block_q2_K) == 84, "q2_K");
_Static_assert(sizeof(struct block_q3_K) == 110, "q3_K");
_Static_assert(sizeof(struct block_q4_K) == 144, "q4_K");
_Static_assert(sizeof(struct block_q5_K) == 176, "q5_K");
_Static_assert(sizeof(struct block_q6_K) == 210, "q6_K");
_Static_assert(sizeof(struct block_iq4_nl) == 18, "iq4_nl");
_Static_assert(sizeof(struct block_iq4_xs) == 136, "iq4_xs");
_Static_assert(sizeof(struct block_iq2_xxs) == 66, "iq2_xxs");
_Static_assert(sizeof(struct block_iq2_xs) == 74, "iq2_xs");
_Static_assert(sizeof(struct block_iq2_s) == 82, "iq2_s");
_Static_assert(sizeof(struct block_iq3_xxs) == 98, "iq3_xxs");
_Static_assert(sizeof(struct block_iq3_s) == 110, "iq3_s");
_Static_assert(sizeof(struct block_iq1_s) == 50, "iq1_s");
_Static_assert(sizeof(struct block_iq1_m) == 56, "iq1_m");
_Static_assert(sizeof(struct block_tq1_0) == 54, "tq1_0");
_Static_assert(sizeof(struct block_tq2_0) == 66, "tq2_0");
_Static_assert(sizeof(struct block_mxfp4) == 17, "mxfp4");
_Static_assert(sizeof(struct block_nvfp4) == 36, "nvfp4");

/* The six-bit scale and min of sub-block j (0..7) of a q4_K or q5_K block. */
static inline void k4_scale_min(const uint8_t scales[12], unsigned j, uint8_t *scale,
                                uint8_t *min) {
    if (j < 4) {
        *scale = scales[j] & 63;
        *min = scales[j + 4] & 63;
    } else {
        *scale = (uint8_t)((scales[j + 4] & 15) | (scales[j - 4] >> 6 << 4));
        *min = (uint8_t)((scales[j + 4] >> 4) | (scales[j] >> 6 << 4));
    }
}

/* The six-bit scale (-32..31) of sub-block j (0..15, of 16 values) of a q3_K block. */
static inline int k3_scale(const uint8_t scales[12], unsigned j) {
    unsigned low = j < 8 ? scales[j] & 15u : scales[j - 8] >> 4;
    unsigned high = scales[8 + j % 4] >> 2 * (j / 4) & 3;
    return (int)(low | high << 4) - 32;
}

#endif
