/* matmul_neon.c: micro-kernels for arm64 with dot product. A tile's 16 rows are four registers,
 * its quarters: four rows of four columns each, which sdot multiplies with four activations of
 * one token. Weights become signed bytes before they are multiplied, so no bias remains. */
#include "kernels/matmul_isa.h"

#include "kernels/tile_neon.h"

/* acc[quarter][token]: the sums of a call. */
INLINE void acc_zero(int n, float32x4_t (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int r = 0; r < QUARTERS; r++) {
        UNROLL
        for (int t = 0; t < n; t++)
            acc[r][t] = vdupq_n_f32(0);
    }
}

/* sum += the sums of a piece (FLOAT_PIECE). */
INLINE void acc_add(int n, float32x4_t (*acc)[MM_MAX_TOKENS],
                    float32x4_t (*sum)[MM_MAX_TOKENS]) {
    UNROLL
    for (int r = 0; r < QUARTERS; r++) {
        UNROLL
        for (int t = 0; t < n; t++)
            sum[r][t] = vaddq_f32(sum[r][t], acc[r][t]);
    }
}

INLINE void acc_store(const struct mm_call *c, int n, uint32_t end,
                      float32x4_t (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int t = 0; t < n; t++) {
        const float32x4_t sums[QUARTERS] = {acc[0][t], acc[1][t], acc[2][t], acc[3][t]};
        store_rows(c, 0, t, end, sums);
    }
}

/* ---- f32, f16, bf16: one FMA per column ------------------------------------------------- */

/* e4m3 at an f16's places is 2^8 too small. */
INLINE float32x4_t load_f8(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    uint16x4_t w = vget_low_u16(vmovl_u8(vcreate_u8(word)));
    uint16x4_t size = vshl_n_u16(vand_u16(w, vdup_n_u16(0x7f)), 7);
    uint16x4_t sign = vshl_n_u16(vand_u16(w, vdup_n_u16(0x80)), 8);
    return vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(vorr_u16(size, sign))), 256.0f);
}

/* Quarter r of a column of a tile. */
INLINE float32x4_t load_floats(enum qtype type, const uint8_t *tile, size_t col, size_t r) {
    const uint8_t *p = tile + tile_col_at(type, col) + r * tile_col_bytes(type) / QUARTERS;
    if (type == QT_F32)
        return vreinterpretq_f32_u8(vld1q_u8(p));
    if (type == QT_F16)
        return load_f16(p);
    if (type == QT_BF16)
        return load_bf16(p);
    const uint8_t *scale = tile + tile_f8_scales_at(col) + r * QUARTER_ROWS * sizeof(float);
    return vmulq_f32(load_f8(p), vreinterpretq_f32_u8(vld1q_u8(scale)));
}

INLINE void mm_float(const struct mm_call *c, enum qtype type, int n) {
    float32x4_t acc[QUARTERS][MM_MAX_TOKENS], sum[QUARTERS][MM_MAX_TOKENS];
    const float *x = c->f;
    size_t col = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(n, sum);
        while (col < end) {
            size_t stop = MIN(col + FLOAT_PIECE, end);
            acc_zero(n, acc);
            for (; col < stop; col++, x += c->gs) {
                UNROLL
                for (size_t r = 0; r < QUARTERS; r++) {
                    float32x4_t w = load_floats(type, c->w[0], col, r);
                    UNROLL
                    for (int t = 0; t < n; t++)
                        acc[r][t] = vfmaq_n_f32(acc[r][t], w, x[t]);
                }
            }
            acc_add(n, acc, sum);
        }
        acc_store(c, n, end, sum);
    }
}

/* One token, columns [col, stop) of m tiles. */
INLINE void piece_of_one(const struct mm_call *c, enum qtype type, int m, size_t col,
                         size_t stop, float32x4_t (*acc)[QUARTERS]) {
    UNROLL
    for (int i = 0; i < m; i++) {
        UNROLL
        for (int r = 0; r < QUARTERS; r++)
            acc[i][r] = vdupq_n_f32(0);
    }
    for (; col < stop; col++) {
        float x = c->f[col * c->gs];
        UNROLL
        for (int i = 0; i < m; i++) {
            UNROLL
            for (size_t r = 0; r < QUARTERS; r++)
                acc[i][r] = vfmaq_n_f32(acc[i][r], load_floats(type, c->w[i], col, r), x);
        }
    }
}

/* One token: FMAs of a row wait for each other, so the rows of four tiles take turns. */
INLINE void mm_float_one(const struct mm_call *c, enum qtype type) {
    enum { M = 4 };
    float32x4_t sum[M][QUARTERS];
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        size_t col = end - c->seg_cols, stop = MIN(col + FLOAT_PIECE, (size_t)end);
        piece_of_one(c, type, M, col, stop, sum);
        for (; stop < end; stop = MIN(stop + FLOAT_PIECE, (size_t)end)) {
            float32x4_t acc[M][QUARTERS];
            piece_of_one(c, type, M, stop, MIN(stop + FLOAT_PIECE, (size_t)end), acc);
            UNROLL
            for (int i = 0; i < M; i++) {
                UNROLL
                for (int r = 0; r < QUARTERS; r++)
                    sum[i][r] = vaddq_f32(sum[i][r], acc[i][r]);
            }
        }
        UNROLL
        for (int i = 0; i < M; i++)
            if ((uint32_t)i < c->n_tiles)
                store_rows(c, i, 0, end, sum[i]);
    }
}

/* ---- integer dot products --------------------------------------------------------------- */

/* The weights that vector j of a quarter's codes stands for. */
INLINE int8x16_t unpack(enum qtype type, const uint8_t *p, int j) {
    uint8x16_t w = codes(type, p, j);
    if (has_table(type))
        return look_up(type, w);
    return vreinterpretq_s8_u8(vsubq_u8(w, vdupq_n_u8(tile_formats[type].bias)));
}

/* The lane must be written as a constant. */
INLINE int32x4_t dot_lane(int32x4_t sum, int8x16_t w, int8x16_t x, int lane) {
    switch (lane) {
    case 0:
        return vdotq_laneq_s32(sum, w, x, 0);
    case 1:
        return vdotq_laneq_s32(sum, w, x, 1);
    case 2:
        return vdotq_laneq_s32(sum, w, x, 2);
    default:
        return vdotq_laneq_s32(sum, w, x, 3);
    }
}

/* A block's activations, of n tokens; x[half][t]: its codes. */
struct block_x {
    int8x16_t x[2][MM_MAX_TOKENS];
    const float *d, *s;
    const struct act_sums *sums;
};

INLINE struct block_x load_block_x(const struct mm_call *c, int n, size_t b) {
    struct block_x x = {
        .d = c->d + b * c->gs, .s = c->s + b * c->gs, .sums = c->sums + b * c->gs};
    const int8_t *q = c->q + b * c->gs * ACT_BLOCK;
    UNROLL
    for (int t = 0; t < n; t++) {
        x.x[0][t] = vld1q_s8(q + t * ACT_BLOCK);
        x.x[1][t] = vld1q_s8(q + t * ACT_BLOCK + 16);
    }
    return x;
}

/* dot[t] = exact sums of one quarter over the 16 columns of half a block. vectors: the block's,
 * from this quarter's bytes on. */
INLINE void dot_half(enum qtype type, int half, int n, const uint8_t *vectors,
                     const struct block_x *x, int32x4_t *dot) {
    UNROLL
    for (int lane = 0; lane < 4; lane++) {
        int8x16_t w = unpack(type, vectors, 4 * half + lane);
        UNROLL
        for (int t = 0; t < n; t++)
            dot[t] = dot_lane(lane == 0 ? vdupq_n_s32(0) : dot[t], w, x->x[half][t], lane);
    }
}

/* acc[t] += what quarter r of a block gives, for n tokens. */
INLINE void add_block(enum qtype type, int n, const struct coded_block *b, int r,
                      const struct block_x *x, float32x4_t *acc) {
    float32x4_t d = load_d(type, b, r, 0);
    int32x4_t dot[2][MM_MAX_TOKENS];
    dot_half(type, 0, n, b->vectors + 16 * r, x, dot[0]);
    dot_half(type, 1, n, b->vectors + 16 * r, x, dot[1]);
    UNROLL
    for (int t = 0; t < n; t++) {
        float32x4_t sum = vcvtq_f32_s32(vaddq_s32(dot[0][t], dot[1][t]));
        acc[t] = vfmaq_f32(acc[t], sum, vmulq_n_f32(d, x->d[t]));
    }
    if (!has_offset(type))
        return;
    float32x4_t offset = load_offset(type, b, r, d);
    UNROLL
    for (int t = 0; t < n; t++)
        acc[t] = vfmaq_n_f32(acc[t], offset, x->s[t]);
}

/* The same where the halves of a block have a d each; scale: the matrix's. */
INLINE void add_half_blocks(enum qtype type, int n, const struct coded_block *b, int r,
                            const struct block_x *x, float scale, float32x4_t *acc) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        int32x4_t dot[MM_MAX_TOKENS];
        float32x4_t d = load_d(type, b, r, half);
        dot_half(type, half, n, b->vectors + 16 * r, x, dot);
        UNROLL
        for (int t = 0; t < n; t++)
            acc[t] = vfmaq_f32(acc[t], vcvtq_f32_s32(dot[t]), vmulq_n_f32(d, x->d[t] * scale));
    }
}

/* The same where the halves of a block have a scale, and perhaps a minimum, each. */
INLINE void add_halves(enum qtype type, int n, const struct coded_block *b, int r,
                       const struct block_x *x, float32x4_t *acc) {
    const uint8_t *rows = b->scales + QUARTER_ROWS * r;
    int32x4_t sc0 = load_i8(rows), sc1 = load_i8(rows + TILE_ROWS);
    float32x4_t d = load_d(type, b, r, 0);
    int32x4_t dot[2][MM_MAX_TOKENS];
    dot_half(type, 0, n, b->vectors + 16 * r, x, dot[0]);
    dot_half(type, 1, n, b->vectors + 16 * r, x, dot[1]);
    UNROLL
    for (int t = 0; t < n; t++) {
        int32x4_t sum = vmlaq_s32(vmulq_s32(sc0, dot[0][t]), sc1, dot[1][t]);
        acc[t] = vfmaq_f32(acc[t], vcvtq_f32_s32(sum), vmulq_n_f32(d, x->d[t]));
    }
    if (scales_of(type) != TILE_HALVES_MIN)
        return;
    int32x4_t min0 = load_u8(rows + 2 * TILE_ROWS), min1 = load_u8(rows + 3 * TILE_ROWS);
    float32x4_t dmin = load_super_dmin(b, r);
    UNROLL
    for (int t = 0; t < n; t++) {
        int32x4_t below = vmulq_n_s32(min0, x->sums[t].half[0]);
        below = vmlaq_n_s32(below, min1, x->sums[t].half[1]);
        acc[t] = vfmsq_f32(acc[t], vcvtq_f32_s32(below), vmulq_n_f32(dmin, x->d[t]));
    }
}

INLINE void mm_coded(const struct mm_call *c, enum qtype type, int n) {
    float32x4_t acc[QUARTERS][MM_MAX_TOKENS];
    uint32_t b = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(n, acc);
        for (; b < end / ACT_BLOCK; b++) {
            struct coded_block block = coded_block_at(c, type, 0, b);
            struct block_x x = load_block_x(c, n, b);
            UNROLL
            for (int r = 0; r < QUARTERS; r++) {
                if (scales_of(type) == TILE_D_D)
                    add_half_blocks(type, n, &block, r, &x, c->scale, acc[r]);
                else if (has_halves(type))
                    add_halves(type, n, &block, r, &x, acc[r]);
                else
                    add_block(type, n, &block, r, &x, acc[r]);
            }
        }
        acc_store(c, n, end, acc);
    }
}

/* ---- the table -------------------------------------------------------------------------- */

#define INSTANCE(family, type, n)                                \
    static void family##_##type##_##n(const struct mm_call *c) { \
        family(c, QT_##type, n);                                 \
    }

#define CODED_INSTANCES(type)                                                                \
    INSTANCE(mm_coded, type, 1)                                                              \
    INSTANCE(mm_coded, type, 2)                                                              \
    INSTANCE(mm_coded, type, 3)                                                              \
    INSTANCE(mm_coded, type, 4)                                                              \
    static const struct mm_kernels type##_kernels = {                                        \
        .one = mm_coded_##type##_1,                                                          \
        .one_tiles = 1,                                                                      \
        .many = {NULL, NULL, mm_coded_##type##_2, mm_coded_##type##_3, mm_coded_##type##_4}, \
        .many_tiles = 1,                                                                     \
        .max_tokens = 4,                                                                     \
    };

#define FLOAT_INSTANCES(type)                                                               \
    static void mm_float_one_##type(const struct mm_call *c) {                              \
        mm_float_one(c, QT_##type);                                                         \
    }                                                                                       \
    INSTANCE(mm_float, type, 2)                                                             \
    INSTANCE(mm_float, type, 3)                                                             \
    INSTANCE(mm_float, type, 4)                                                             \
    INSTANCE(mm_float, type, 5)                                                             \
    INSTANCE(mm_float, type, 6)                                                             \
    static const struct mm_kernels type##_kernels = {                                       \
        .one = mm_float_one_##type,                                                         \
        .one_tiles = 4,                                                                     \
        .many = {NULL, NULL, mm_float_##type##_2, mm_float_##type##_3, mm_float_##type##_4, \
                 mm_float_##type##_5, mm_float_##type##_6},                                 \
        .many_tiles = 1,                                                                    \
        .max_tokens = 6,                                                                    \
    };

TILE_FLOAT_TYPES(FLOAT_INSTANCES)
TILE_CODED_TYPES(CODED_INSTANCES)

#define ENTRY(type) [QT_##type] = &type##_kernels,
static const struct mm_kernels *const kernels_of[QT_N] = {TILE_FLOAT_TYPES(ENTRY)
                                                              TILE_CODED_TYPES(ENTRY)};

const struct mm_kernels *mm_kernels_neon(enum qtype type) {
    return kernels_of[type];
}

void matmul_neon(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                 uint32_t tile_begin, uint32_t tile_end) {
    mm_drive(kernels_of[w->type], w, x, y, ldy, tile_begin, tile_end);
}

void matmul_fixed_neon(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                       const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                       uint32_t tile_end) {
    mm_drive_fixed(kernels_of[w->type], w, x, y, ldy, rows, seg_cols, tile_begin, tile_end);
}
