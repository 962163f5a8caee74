/* tiles.h: the tile layout of each quantized type (kernels.h describes them), for packing and
 * computing. Everything folds to constants if the type is a constant. */
#ifndef LOCKSTEP_KERNELS_TILES_H
#define LOCKSTEP_KERNELS_TILES_H

#include "base/util.h"
#include "kernels/kernels.h"

#define TILE_VECTOR 64 /* bytes: 4 columns of 16 rows */

/* What the codes of a block are multiplied by (kernels.h has the layouts and formulas). */
enum tile_scales {
    TILE_FLOATS,     /* no codes: f32, f16, bf16; f8_e4m3 */
    TILE_D,          /* a block's d, f16 */
    TILE_D_M,        /* a block's d and m, f16 */
    TILE_D_M_BF16,   /* the same, bf16 */
    TILE_E8M0,       /* a block's power of two */
    TILE_D_D,        /* d of each half of a block, f16 */
    TILE_SCALE,      /* a superblock's d, a block's scale i8 */
    TILE_SCALE_MIN,  /* a superblock's d and dmin, a block's scale and min u8 */
    TILE_HALVES,     /* a superblock's d, scales i8 of a block's halves */
    TILE_HALVES_MIN, /* a superblock's d and dmin, scales and mins u8 of a block's halves */
};

/* A code has low_bits + high_bits bits; the weight is values[code], or code - bias. */
struct tile_format {
    enum tile_scales scales;
    uint8_t low_bits, high_bits;
    uint8_t bias;
    const int8_t *values;
    float d_factor; /* what d is multiplied by, a power of two; 0 stands for 1 */
};

static const int8_t tile_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t tile_fp4_values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                           0, -1, -2, -3, -4, -6, -8, -12};
/* The last bit of a code is the sign. */
static const int8_t tile_iq2_values[16] = {8, 25, 43, 0, -8, -25, -43, 0};
/* The last bit of a code says down. */
static const int8_t tile_iq1_values[16] = {-7, 1, 9, 0, -9, -1, 7, 0};
static const int8_t tile_iq3_xxs_values[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                               -4, -12, -20, -28, -36, -44, -52, -62};
static const int8_t tile_iq3_s_values[16] = {1,  3,  5,  7,  9,  11,  13,  15,
                                             -1, -3, -5, -7, -9, -11, -13, -15};

/* scales, low bits, high bits, bias, values, factor of d */
static const struct tile_format tile_formats[QT_N] = {
    [QT_Q8_0] = {TILE_D, 8, 0, 128, NULL, 0},
    [QT_Q4_0] = {TILE_D, 4, 0, 8, NULL, 0},
    [QT_Q4_1] = {TILE_D_M, 4, 0, 0, NULL, 0},
    [QT_Q5_0] = {TILE_D, 4, 1, 16, NULL, 0},
    [QT_Q5_1] = {TILE_D_M, 4, 1, 0, NULL, 0},
    [QT_IQ4_NL] = {TILE_D, 4, 0, 0, tile_iq4_values, 0},
    [QT_MXFP4] = {TILE_E8M0, 4, 0, 0, tile_fp4_values, 0},
    [QT_NVFP4] = {TILE_D_D, 4, 0, 0, tile_fp4_values, 0},
    [QT_Q2_K] = {TILE_HALVES_MIN, 2, 0, 0, NULL, 0},
    [QT_Q3_K] = {TILE_HALVES, 2, 1, 4, NULL, 0},
    [QT_Q4_K] = {TILE_SCALE_MIN, 4, 0, 0, NULL, 0},
    [QT_Q5_K] = {TILE_SCALE_MIN, 4, 1, 0, NULL, 0},
    [QT_Q6_K] = {TILE_HALVES, 6, 0, 32, NULL, 0},
    [QT_IQ4_XS] = {TILE_SCALE, 4, 0, 0, tile_iq4_values, 0},
    [QT_IQ3_S] = {TILE_SCALE, 4, 0, 0, tile_iq3_s_values, 0},
    [QT_IQ3_XXS] = {TILE_SCALE, 4, 0, 0, tile_iq3_xxs_values, 0.25f},
    [QT_IQ2_S] = {TILE_HALVES, 2, 1, 0, tile_iq2_values, 0.125f},
    [QT_IQ2_XS] = {TILE_HALVES, 2, 1, 0, tile_iq2_values, 0.125f},
    [QT_IQ2_XXS] = {TILE_SCALE, 2, 1, 0, tile_iq2_values, 0.125f},
    [QT_IQ1_S] = {TILE_SCALE, 2, 1, 0, tile_iq1_values, 0.125f},
    [QT_IQ1_M] = {TILE_HALVES, 2, 1, 0, tile_iq1_values, 0.125f},
    [QT_TQ1_0] = {TILE_SCALE, 2, 0, 1, NULL, 0},
    [QT_TQ2_0] = {TILE_SCALE, 2, 0, 1, NULL, 0},
    [QT_MLX4] = {TILE_D_M_BF16, 4, 0, 0, NULL, 0},
    [QT_MLX8] = {TILE_D_M_BF16, 8, 0, 128, NULL, 0},
    [QT_MLX8_F16] = {TILE_D_M, 8, 0, 128, NULL, 0},
};

/* The same by family, for what is compiled once for each type: X(Q4_K) stands for QT_Q4_K. */
#define TILE_FLOAT_TYPES(X) X(F32) X(F16) X(BF16) X(F8_E4M3)
#define TILE_BLOCK_TYPES(X) \
    X(Q8_0) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(IQ4_NL) X(MXFP4) X(MLX4) X(MLX8) X(MLX8_F16)
#define TILE_PAIR_TYPES(X) X(NVFP4)
#define TILE_SUPER_TYPES(X) \
    X(Q4_K) X(Q5_K) X(IQ4_XS) X(IQ3_S) X(IQ3_XXS) X(IQ2_XXS) X(IQ1_S) X(TQ1_0) X(TQ2_0)
#define TILE_HALVES_TYPES(X) X(Q2_K) X(Q3_K) X(Q6_K) X(IQ2_S) X(IQ2_XS) X(IQ1_M)
#define TILE_CODED_TYPES(X) \
    TILE_BLOCK_TYPES(X) TILE_PAIR_TYPES(X) TILE_SUPER_TYPES(X) TILE_HALVES_TYPES(X)

/* Types whose scales are multiplied by those of superblocks of QK_K columns. */
static inline bool tile_has_supers(enum qtype type) {
    return tile_formats[type].scales >= TILE_SCALE;
}

/* Bytes per column of a tile of f32, f16, bf16 or f8_e4m3. */
static inline size_t tile_col_bytes(enum qtype type) {
    return (type == QT_F32 ? 4 : type == QT_F8_E4M3 ? 1 : 2) * TILE_ROWS;
}

/* f8_e4m3: the rows' scales stand before each 32 columns. */
#define TILE_F8_SCALES (TILE_ROWS * sizeof(float))
#define TILE_F8_BLOCK (TILE_F8_SCALES + ACT_BLOCK * TILE_ROWS)

/* Where a column's values are, and (f8_e4m3) its scales. */
static inline size_t tile_col_at(enum qtype type, size_t col) {
    if (type == QT_F8_E4M3)
        return col / ACT_BLOCK * TILE_F8_BLOCK + TILE_F8_SCALES + col % ACT_BLOCK * TILE_ROWS;
    return col * tile_col_bytes(type);
}

static inline size_t tile_f8_scales_at(size_t col) {
    return col / ACT_BLOCK * TILE_F8_BLOCK;
}

/* A block's m is added; where codes are biased by b, m + b * d is. */
static inline bool tile_has_m(enum qtype type) {
    return tile_formats[type].scales == TILE_D_M || tile_formats[type].scales == TILE_D_M_BF16;
}

/* Where a block's codes begin: after its scales. */
static inline size_t tile_codes_at(enum qtype type) {
    switch (tile_formats[type].scales) {
    case TILE_E8M0:
    case TILE_SCALE:
        return TILE_ROWS;
    case TILE_D:
    case TILE_SCALE_MIN:
    case TILE_HALVES:
        return 2 * TILE_ROWS;
    case TILE_D_M:
    case TILE_D_D:
    case TILE_D_M_BF16:
    case TILE_HALVES_MIN:
        return 4 * TILE_ROWS;
    default:
        return 0;
    }
}

/* Bytes of one block of 32 columns. */
static inline size_t tile_block_bytes(enum qtype type) {
    size_t bits = (size_t)tile_formats[type].low_bits + tile_formats[type].high_bits;
    return tile_codes_at(type) + bits * TILE_VECTOR;
}

/* The superblock of block b: counted from the one that column 0 is in. */
static inline uint32_t tile_super_of(uint32_t col_phase, uint32_t b) {
    return (col_phase / ACT_BLOCK + b) / (QK_K / ACT_BLOCK);
}

/* The first block beyond that of superblock `super`. */
static inline uint32_t tile_super_end(uint32_t col_phase, uint32_t super) {
    return (super + 1) * (QK_K / ACT_BLOCK) - col_phase / ACT_BLOCK;
}

/* Where block b is in a tile. A superblock's scales are a vector before its blocks, so that a
 * tile is read as one run. */
static inline size_t tile_block_at(enum qtype type, uint32_t col_phase, uint32_t b) {
    size_t supers = tile_has_supers(type) ? (size_t)tile_super_of(col_phase, b) + 1 : 0;
    return supers * TILE_VECTOR + b * tile_block_bytes(type);
}

/* Where the scales of block b's superblock are. */
static inline size_t tile_super_at(enum qtype type, uint32_t col_phase, uint32_t b) {
    uint32_t super = tile_super_of(col_phase, b);
    uint32_t first = super > 0 ? tile_super_end(col_phase, super - 1) : 0;
    return tile_block_at(type, col_phase, first) - TILE_VECTOR;
}

#endif
