/* matmul_neon.c: micro-kernels for arm64 with dot product. A tile's 16 rows are four registers, its
 * quarters: four rows of four columns each, which is what sdot multiplies with four activations of one
 * token. Weights become signed bytes before they are multiplied, so that no bias remains. */
#include "kernels/matmul_neon.h"

#include "base/util.h"
#include "kernels/simd.h"
#include "kernels/tile_driver.h"
#include "kernels/tile_walk.h"

#include <arm_neon.h>
#include <math.h>

#define QUARTERS 4
#define QUARTER_ROWS 4

/* acc[quarter][token]: the sums of a call. */
INLINE void acc_zero(int n, float32x4_t (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int r = 0; r < QUARTERS; r++) {
        UNROLL
        for (int t = 0; t < n; t++)
            acc[r][t] = vdupq_n_f32(0);
    }
}

/* docs/numerics.md: to the nearest multiple of 2^-24, saturated; NaN takes the upper limit. */
static int64_t fixed_of(float x) {
    x = x < FIXED_LIMIT ? x : FIXED_LIMIT;
    x = x > -FIXED_LIMIT ? x : -FIXED_LIMIT;
    return llrintf(x * (1 << FIXED_BITS));
}

/* The sums of quarter r of tile i and token t, of the segment that ends at column `end`. */
INLINE void store_quarter(const struct mm_call *c, int i, int r, int t, uint32_t end,
                          float32x4_t acc) {
    size_t at = (size_t)t * c->ldy + c->row[i] + (size_t)(r * QUARTER_ROWS);
    if (c->fixed == NULL) {
        vst1q_f32(c->y + at, acc);
        return;
    }
    float v[QUARTER_ROWS];
    vst1q_f32(v, acc);
    for (int k = 0; k < QUARTER_ROWS; k++)
        c->fixed[at + k] = (end == c->seg_cols ? 0 : c->fixed[at + k]) + fixed_of(v[k]);
}

INLINE void acc_store(const struct mm_call *c, int n, uint32_t end,
                      float32x4_t (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int r = 0; r < QUARTERS; r++) {
        UNROLL
        for (int t = 0; t < n; t++)
            store_quarter(c, 0, r, t, end, acc[r][t]);
    }
}

/* ---- f32, f16, bf16: one FMA per column ------------------------------------------------- */

INLINE float32x4_t load_f16(const uint8_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

INLINE float32x4_t load_bf16(const uint8_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}

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
    float32x4_t acc[QUARTERS][MM_MAX_TOKENS];
    const float *x = c->f;
    size_t col = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(n, acc);
        for (; col < end; col++, x += c->gs) {
            UNROLL
            for (size_t r = 0; r < QUARTERS; r++) {
                float32x4_t w = load_floats(type, c->w[0], col, r);
                UNROLL
                for (int t = 0; t < n; t++)
                    acc[r][t] = vfmaq_n_f32(acc[r][t], w, x[t]);
            }
        }
        acc_store(c, n, end, acc);
    }
}

/* One token: FMAs of a row wait for each other, so the rows of four tiles take turns. */
INLINE void mm_float_one(const struct mm_call *c, enum qtype type) {
    enum { M = 4 };
    float32x4_t acc[M][QUARTERS];
    size_t col = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        UNROLL
        for (int i = 0; i < M; i++) {
            UNROLL
            for (int r = 0; r < QUARTERS; r++)
                acc[i][r] = vdupq_n_f32(0);
        }
        for (; col < end; col++) {
            float x = c->f[col * c->gs];
            UNROLL
            for (int i = 0; i < M; i++) {
                UNROLL
                for (size_t r = 0; r < QUARTERS; r++)
                    acc[i][r] = vfmaq_n_f32(acc[i][r], load_floats(type, c->w[i], col, r), x);
            }
        }
        UNROLL
        for (int i = 0; i < M; i++)
            if ((uint32_t)i < c->n_tiles) {
                UNROLL
                for (int r = 0; r < QUARTERS; r++)
                    store_quarter(c, i, r, 0, end, acc[i][r]);
            }
    }
}

/* ---- integer dot products --------------------------------------------------------------- */

INLINE uint8x16_t shift_right(uint8x16_t v, int bits) {
    return vshlq_u8(v, vdupq_n_s8((int8_t)-bits));
}

/* Code k of the four that lie in three vectors (kernels.h). */
INLINE uint8x16_t six_bits(const uint8_t *p, int k) {
    if (k < 3)
        return vandq_u8(vld1q_u8(p + TILE_VECTOR * k), vdupq_n_u8(63));
    uint8x16_t w = vshrq_n_u8(vld1q_u8(p), 6);
    w = vorrq_u8(w, vshlq_n_u8(vshrq_n_u8(vld1q_u8(p + TILE_VECTOR), 6), 2));
    return vorrq_u8(w, vshlq_n_u8(vshrq_n_u8(vld1q_u8(p + 2 * TILE_VECTOR), 6), 4));
}

/* Vector j of 8 (columns 4j to 4j+3) of one quarter's codes. p: the block's vectors from this
 * quarter's bytes on. */
INLINE uint8x16_t codes(enum qtype type, const uint8_t *p, int j) {
    const int low = tile_formats[type].low_bits, high = tile_formats[type].high_bits;
    if (low == 8)
        return vld1q_u8(p + TILE_VECTOR * j);
    if (low == 6)
        return six_bits(p + TILE_VECTOR * 3 * (j / 4), j % 4);
    uint8x16_t w;
    if (low == 4)
        w = shift_right(vld1q_u8(p + TILE_VECTOR * (j % 4)), j / 4 * 4);
    else
        w = shift_right(vld1q_u8(p + TILE_VECTOR * (j / 4)), j % 4 * 2);
    w = vandq_u8(w, vdupq_n_u8((uint8_t)((1 << low) - 1)));
    p += TILE_VECTOR * low;
    if (high == 1) {
        uint8x16_t bit = shift_right(vld1q_u8(p), j - low);
        w = vorrq_u8(w, vandq_u8(bit, vdupq_n_u8((uint8_t)(1 << low))));
    }
    return w;
}

/* The weights that these codes stand for. */
INLINE int8x16_t unpack(enum qtype type, const uint8_t *p, int j) {
    uint8x16_t w = codes(type, p, j);
    if (has_table(type))
        return vqtbl1q_s8(vld1q_s8(tile_formats[type].values), w);
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

/* dot[t] = exact sums of one quarter over the 16 columns of half a block. x[t]: these columns'
 * activations. */
INLINE void dot_half(enum qtype type, int half, int n, const uint8_t *vectors,
                     const int8x16_t *x, int32x4_t *dot) {
    UNROLL
    for (int lane = 0; lane < 4; lane++) {
        int8x16_t w = unpack(type, vectors, 4 * half + lane);
        UNROLL
        for (int t = 0; t < n; t++)
            dot[t] = dot_lane(lane == 0 ? vdupq_n_s32(0) : dot[t], w, x[t], lane);
    }
}

/* x[half][t]: a block's activations. */
INLINE void load_x(int n, const int8_t *q, int8x16_t (*x)[MM_MAX_TOKENS]) {
    UNROLL
    for (int t = 0; t < n; t++) {
        x[0][t] = vld1q_s8(q + t * ACT_BLOCK);
        x[1][t] = vld1q_s8(q + t * ACT_BLOCK + 16);
    }
}

/* The dot products of a whole block, in f32. */
INLINE void dot_block(enum qtype type, int n, const uint8_t *vectors,
                      int8x16_t (*x)[MM_MAX_TOKENS], float32x4_t *dot) {
    int32x4_t half[2][MM_MAX_TOKENS];
    dot_half(type, 0, n, vectors, x[0], half[0]);
    dot_half(type, 1, n, vectors, x[1], half[1]);
    UNROLL
    for (int t = 0; t < n; t++)
        dot[t] = vcvtq_f32_s32(vaddq_s32(half[0][t], half[1][t]));
}

/* ---- types whose blocks have scales of their own ------------------------------------------ */

INLINE int32x4_t load_u8(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    uint16x8_t wide = vmovl_u8(vcreate_u8(word));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
}

INLINE int32x4_t load_i8(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    int16x8_t wide = vmovl_s8(vcreate_s8(word));
    return vmovl_s16(vget_low_s16(wide));
}

/* 2^(e - 128) */
INLINE float32x4_t load_e8m0(const uint8_t *p) {
    int32x4_t e = load_u8(p);
    int32x4_t normal = vshlq_n_s32(vsubq_s32(e, vdupq_n_s32(1)), 23);
    int32x4_t subnormal = vshlq_s32(vdupq_n_s32(0x00200000), e);
    return vreinterpretq_f32_s32(vbslq_s32(vcltq_s32(e, vdupq_n_s32(2)), subnormal, normal));
}

/* Quarter r of a block whose halves have a d each. */
INLINE void add_half_blocks(enum qtype type, int n, const uint8_t *w, int r,
                            int8x16_t (*x)[MM_MAX_TOKENS], const float *dx, float scale,
                            float32x4_t *acc) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        int32x4_t dot[MM_MAX_TOKENS];
        float32x4_t d = load_f16(w + 2 * TILE_ROWS * half + 2 * QUARTER_ROWS * r);
        dot_half(type, half, n, w + tile_codes_at(type) + 16 * r, x[half], dot);
        UNROLL
        for (int t = 0; t < n; t++)
            acc[t] = vfmaq_f32(acc[t], vcvtq_f32_s32(dot[t]), vmulq_n_f32(d, dx[t] * scale));
    }
}

INLINE float32x4_t load_scale(enum qtype type, const uint8_t *p) {
    return scales_of(type) == TILE_D_M_BF16 ? load_bf16(p) : load_f16(p);
}

INLINE void mm_block(const struct mm_call *c, enum qtype type, int n) {
    float32x4_t acc[QUARTERS][MM_MAX_TOKENS];
    size_t b = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(n, acc);
        for (; b < end / ACT_BLOCK; b++) {
            const uint8_t *w = c->w[0] + b * tile_block_bytes(type);
            const float *dx = c->d + b * c->gs, *sx = c->s + b * c->gs;
            int8x16_t x[2][MM_MAX_TOKENS];
            load_x(n, c->q + b * c->gs * ACT_BLOCK, x);
            UNROLL
            for (int r = 0; r < QUARTERS; r++) {
                float32x4_t dot[MM_MAX_TOKENS];
                if (scales_of(type) == TILE_D_D) {
                    add_half_blocks(type, n, w, r, x, dx, c->scale, acc[r]);
                    continue;
                }
                float32x4_t d = scales_of(type) == TILE_E8M0
                                    ? load_e8m0(w + QUARTER_ROWS * r)
                                    : load_scale(type, w + 2 * QUARTER_ROWS * r);
                dot_block(type, n, w + tile_codes_at(type) + 16 * r, x, dot);
                UNROLL
                for (int t = 0; t < n; t++)
                    acc[r][t] = vfmaq_f32(acc[r][t], dot[t], vmulq_n_f32(d, dx[t]));
                if (!tile_has_m(type))
                    continue;
                float32x4_t m = load_scale(type, w + 2 * TILE_ROWS + 2 * QUARTER_ROWS * r);
                if (tile_formats[type].bias != 0)
                    m = vfmaq_n_f32(m, d, tile_formats[type].bias);
                UNROLL
                for (int t = 0; t < n; t++)
                    acc[r][t] = vfmaq_n_f32(acc[r][t], m, sx[t]);
            }
        }
        acc_store(c, n, end, acc);
    }
}

/* ---- types with superblocks ---------------------------------------------------------------- */

/* A block and its activations. */
struct super_block {
    const uint8_t *d, *scales, *vectors; /* d: of its superblock */
    const int8_t *q;
    const float *dx, *sx;
    const struct act_sums *sums;
};

INLINE struct super_block super_block_at(const struct mm_call *c, enum qtype type, size_t b) {
    const uint8_t *block = c->w[0] + c->blocks_at + b * tile_block_bytes(type);
    return (struct super_block){
        .d = c->w[0] + tile_super_of(c->col_phase, (uint32_t)b) * TILE_VECTOR,
        .scales = block,
        .vectors = block + tile_codes_at(type),
        .q = c->q + b * c->gs * ACT_BLOCK,
        .dx = c->d + b * c->gs,
        .sx = c->s + b * c->gs,
        .sums = c->sums + b * c->gs,
    };
}

/* d of quarter r, times the type's factor. */
INLINE float32x4_t load_super_d(enum qtype type, const struct super_block *s, int r) {
    float32x4_t d = load_f16(s->d + 2 * QUARTER_ROWS * r);
    float factor = tile_formats[type].d_factor;
    return factor != 0 ? vmulq_n_f32(d, factor) : d;
}

/* A scale, and perhaps a minimum, for a block. */
INLINE void add_scaled(enum qtype type, int n, const struct super_block *s,
                       float32x4_t (*acc)[MM_MAX_TOKENS]) {
    int8x16_t x[2][MM_MAX_TOKENS];
    load_x(n, s->q, x);
    UNROLL
    for (int r = 0; r < QUARTERS; r++) {
        const uint8_t *rows = s->scales + QUARTER_ROWS * r;
        float32x4_t scale = vmulq_f32(load_super_d(type, s, r), vcvtq_f32_s32(load_i8(rows)));
        float32x4_t dot[MM_MAX_TOKENS];
        dot_block(type, n, s->vectors + 16 * r, x, dot);
        UNROLL
        for (int t = 0; t < n; t++)
            acc[r][t] = vfmaq_f32(acc[r][t], dot[t], vmulq_n_f32(scale, s->dx[t]));
        if (scales_of(type) != TILE_SCALE_MIN)
            continue;
        float32x4_t min = vmulq_f32(load_f16(s->d + 2 * TILE_ROWS + 2 * QUARTER_ROWS * r),
                                    vcvtq_f32_s32(load_u8(rows + TILE_ROWS)));
        UNROLL
        for (int t = 0; t < n; t++)
            acc[r][t] = vfmsq_f32(acc[r][t], min, vdupq_n_f32(s->sx[t]));
    }
}

/* A scale, and perhaps a minimum, for each half of a block. */
INLINE void add_halves(enum qtype type, int n, const struct super_block *s,
                       float32x4_t (*acc)[MM_MAX_TOKENS]) {
    int8x16_t x[2][MM_MAX_TOKENS];
    load_x(n, s->q, x);
    UNROLL
    for (int r = 0; r < QUARTERS; r++) {
        const uint8_t *rows = s->scales + QUARTER_ROWS * r;
        int32x4_t sc0 = load_i8(rows), sc1 = load_i8(rows + TILE_ROWS);
        float32x4_t d = load_super_d(type, s, r);
        int32x4_t dot[2][MM_MAX_TOKENS];
        dot_half(type, 0, n, s->vectors + 16 * r, x[0], dot[0]);
        dot_half(type, 1, n, s->vectors + 16 * r, x[1], dot[1]);
        UNROLL
        for (int t = 0; t < n; t++) {
            int32x4_t sum = vmlaq_s32(vmulq_s32(sc0, dot[0][t]), sc1, dot[1][t]);
            acc[r][t] = vfmaq_f32(acc[r][t], vcvtq_f32_s32(sum), vmulq_n_f32(d, s->dx[t]));
        }
        if (scales_of(type) != TILE_HALVES_MIN)
            continue;
        int32x4_t min0 = load_u8(rows + 2 * TILE_ROWS), min1 = load_u8(rows + 3 * TILE_ROWS);
        float32x4_t dmin = load_f16(s->d + 2 * TILE_ROWS + 2 * QUARTER_ROWS * r);
        UNROLL
        for (int t = 0; t < n; t++) {
            int32x4_t below = vmulq_n_s32(min0, s->sums[t].half[0]);
            below = vmlaq_n_s32(below, min1, s->sums[t].half[1]);
            acc[r][t] = vfmsq_f32(acc[r][t], vcvtq_f32_s32(below), vmulq_n_f32(dmin, s->dx[t]));
        }
    }
}

INLINE void mm_super(const struct mm_call *c, enum qtype type, int n) {
    float32x4_t acc[QUARTERS][MM_MAX_TOKENS];
    uint32_t b = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(n, acc);
        for (; b < end / ACT_BLOCK; b++) {
            struct super_block s = super_block_at(c, type, b);
            if (scales_of(type) == TILE_SCALE || scales_of(type) == TILE_SCALE_MIN)
                add_scaled(type, n, &s, acc);
            else
                add_halves(type, n, &s, acc);
        }
        acc_store(c, n, end, acc);
    }
}

/* ---- the table -------------------------------------------------------------------------- */

#define INSTANCE(family, type, n)                                \
    static void family##_##type##_##n(const struct mm_call *c) { \
        family(c, QT_##type, n);                                 \
    }

#define BLOCK_INSTANCES(family, type)                                                        \
    INSTANCE(family, type, 1)                                                                \
    INSTANCE(family, type, 2)                                                                \
    INSTANCE(family, type, 3)                                                                \
    INSTANCE(family, type, 4)                                                                \
    static const struct mm_kernels type##_kernels = {                                        \
        .one = family##_##type##_1,                                                          \
        .one_tiles = 1,                                                                      \
        .many = {NULL, NULL, family##_##type##_2, family##_##type##_3, family##_##type##_4}, \
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

#define BLOCK_TYPE(type) BLOCK_INSTANCES(mm_block, type)
#define SUPER_TYPE(type) BLOCK_INSTANCES(mm_super, type)
TILE_FLOAT_TYPES(FLOAT_INSTANCES)
TILE_BLOCK_TYPES(BLOCK_TYPE)
TILE_PAIR_TYPES(BLOCK_TYPE)
TILE_SUPER_TYPES(SUPER_TYPE)
TILE_HALVES_TYPES(SUPER_TYPE)

#define ENTRY(type) [QT_##type] = &type##_kernels,
static const struct mm_kernels *const kernels_of[QT_N] = {
    TILE_FLOAT_TYPES(ENTRY) TILE_BLOCK_TYPES(ENTRY) TILE_PAIR_TYPES(ENTRY)
        TILE_SUPER_TYPES(ENTRY) TILE_HALVES_TYPES(ENTRY)};

void matmul_neon(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                 uint32_t tile_begin, uint32_t tile_end) {
    mm_drive(kernels_of[w->type], w, x, y, ldy, tile_begin, tile_end);
}

void matmul_fixed_neon(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                       uint32_t seg_cols, uint32_t tile_begin, uint32_t tile_end) {
    mm_drive_fixed(kernels_of[w->type], w, x, y, ldy, seg_cols, tile_begin, tile_end);
}
