/* matmul_avx2.inc.h: micro-kernels with 256-bit registers, for AVX2 and AVX-VNNI. A tile's 16
 * rows are two registers; those of m tiles are halves h = 0 to 2m - 1.
 *
 * One body per family of types, compiled for m tiles x n tokens. One token processes four tiles
 * side by side, a cache line of each in turn: this gives the highest memory bandwidth, and
 * prefetching would lower it. The instruction sets differ in the dot product. An ISA file
 * includes this, defines the two functions declared under "integer dot products", and makes its
 * table of INSTANCES. */
#include "base/util.h"
#include "kernels/simd.h"
#include "kernels/tidy.h"
#include "kernels/tile_driver.h"
#include "kernels/tile_walk.h"

#include <immintrin.h>
#include <math.h>

#define HALF_ROWS 8
#define MAX_HALVES (2 * MM_MAX_TILES)

/* Where half h's values begin among those of the tiles at tile[], `bytes` for each half. */
INLINE const uint8_t *half_at(const uint8_t *const *tile, int h, size_t bytes) {
    return tile[h / 2] + (size_t)(h % 2) * bytes;
}

INLINE __m256i load(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m256 load_f16(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE __m256 load_bf16(const uint8_t *p) {
    __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

INLINE __m256 load_u8(const uint8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

INLINE __m256 load_i8(const uint8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

INLINE __m256i broadcast_4(const int8_t *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_epi32(x);
}

/* acc[half][token]: the sums of a call. */
INLINE void acc_zero(int m, int n, __m256 (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        UNROLL
        for (int t = 0; t < n; t++)
            acc[h][t] = _mm256_setzero_ps();
    }
}

/* docs/numerics.md: to the nearest multiple of 2^-24, saturated; NaN takes the upper limit. */
static int64_t fixed_of(float x) {
    if (!(x < FIXED_LIMIT))
        x = FIXED_LIMIT;
    if (x < -FIXED_LIMIT)
        x = -FIXED_LIMIT;
    return llrintf(x * (1 << FIXED_BITS));
}

/* Where the results of half h belong among a token's. */
INLINE size_t row_at(const struct mm_call *c, int h) {
    return c->row[h / 2] + (size_t)(h % 2 * HALF_ROWS);
}

/* Below the limit, adding 1.5 * 2^52 rounds x * 2^24 to an integer in the low bits. The bits of 1.5
 * * 2^52 come into a sum with each of its segments: it starts with as many of them taken off. */
#define FIXED_SHIFT 0x1.8p52
#define FIXED_SHIFT_BITS 0x4338000000000000u

INLINE void fixed_begin(const struct mm_call *c, int n_halves, int n) {
    uint64_t n_segments = c->n_cols / c->seg_cols;
    __m256i start = _mm256_set1_epi64x((int64_t)(0 - n_segments * FIXED_SHIFT_BITS));
    for (int h = 0; h < n_halves; h++)
        for (int t = 0; t < n; t++) {
            __m256i *sum = (__m256i *)(c->fixed[t] + row_at(c, h));
            __m256i lo = start, hi = start;
            if (c->adds) {
                lo = _mm256_add_epi64(lo, _mm256_loadu_si256(sum));
                hi = _mm256_add_epi64(hi, _mm256_loadu_si256(sum + 1));
            }
            _mm256_storeu_si256(sum, lo);
            _mm256_storeu_si256(sum + 1, hi);
        }
}

/* sum[0..3] += x in fixed point + FIXED_SHIFT_BITS */
INLINE void fixed_add_4(int64_t *sum, __m128 x) {
    __m256d rounded = _mm256_fmadd_pd(_mm256_cvtps_pd(x), _mm256_set1_pd(1 << FIXED_BITS),
                                      _mm256_set1_pd(FIXED_SHIFT));
    __m256i before = _mm256_loadu_si256((const __m256i *)sum);
    _mm256_storeu_si256((__m256i *)sum, _mm256_add_epi64(before, _mm256_castpd_si256(rounded)));
}

/* The same for any x. */
static void fixed_add_slowly(int64_t *sum, __m256 x) {
    float v[HALF_ROWS];
    _mm256_storeu_ps(v, x);
    for (int i = 0; i < HALF_ROWS; i++)
        sum[i] = (int64_t)((uint64_t)sum[i] + FIXED_SHIFT_BITS + (uint64_t)fixed_of(v[i]));
}

/* The sums of the segment that ends at column `end` are complete. */
INLINE void acc_store(const struct mm_call *c, int m, int n, uint32_t end,
                      __m256 (*acc)[MM_MAX_TOKENS]) {
    const int n_halves = MIN(2 * m, 2 * (int)c->n_tiles);
    if (c->y != NULL) {
        UNROLL
        for (int h = 0; h < 2 * m; h++) {
            UNROLL
            for (int t = 0; t < n; t++)
                if (h < n_halves)
                    _mm256_storeu_ps(c->y + (size_t)t * c->ldy + row_at(c, h),
                                     tidy_8(acc[h][t]));
        }
        return;
    }
    if (end == c->seg_cols)
        fixed_begin(c, n_halves, n);
    __m256i largest =
        _mm256_setzero_si256(); /* magnitude; as integers, NaN is the largest of all */
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        UNROLL
        for (int t = 0; t < n; t++) {
            __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), acc[h][t]);
            largest = _mm256_max_epi32(largest, _mm256_castps_si256(size));
        }
    }
    __m256i limit = _mm256_castps_si256(_mm256_set1_ps(FIXED_LIMIT));
    bool fast = _mm256_movemask_epi8(_mm256_cmpgt_epi32(limit, largest)) == -1;
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        UNROLL
        for (int t = 0; t < n; t++) {
            int64_t *sum = c->fixed[t] + row_at(c, h);
            if (h >= n_halves)
                continue;
            if (fast) {
                fixed_add_4(sum, _mm256_castps256_ps128(acc[h][t]));
                fixed_add_4(sum + 4, _mm256_extractf128_ps(acc[h][t], 1));
            } else {
                fixed_add_slowly(sum, acc[h][t]);
            }
        }
    }
}

/* ---- integer dot products ------------------------------------------------------------- */

/* The sums of a block's halves: 16-bit pairs, the same for each row. */
INLINE __m256i broadcast_sums(const struct act_sums *sums) {
    int32_t x;
    memcpy(&x, sums, sizeof x);
    return _mm256_set1_epi32(x);
}

/* What the sums of a block's halves are multiplied by to give factor times the sum of the
 * activations of vectors [begin, end) of 8. */
INLINE __m256i times(int begin, int end, int factor) {
    short low = (short)(begin < 4 ? factor : 0), high = (short)(end > 4 ? factor : 0);
    return _mm256_set1_epi32((int)((unsigned)(uint16_t)high << 16 | (uint16_t)low));
}

/* What the ISA file defines. dot[h][t] = the exact sum over vectors [begin, end) of 8 (a block
 * or one of its halves) of weights times activations, which f32 holds.
 *
 * vectors  of the block, in each tile
 * q, sums  of the block's activations of the first token, those of the others after them */
INLINE void dot_vectors(enum qtype type, int begin, int end, int m, int n,
                        const uint8_t *const *vectors, const int8_t *q,
                        const struct act_sums *sums, __m256 (*dot)[MM_MAX_TOKENS]);

/* A block in each tile, and its activations. */
struct super_block {
    const __m256 *d, *dmin; /* of its superblock, for each half */
    const uint8_t *scales[MM_MAX_TILES], *vectors[MM_MAX_TILES];
    const int8_t *q;
    const float *dx, *sx;
    const struct act_sums *sums;
};

/* Half h's row number `row` of the integer scales. */
INLINE const uint8_t *scale_row(const struct super_block *s, int h, int row) {
    return half_at(s->scales, h, HALF_ROWS) + row * TILE_ROWS;
}

/* dot[h][t] = the first half's sum times its integer scale + the second's times its own. In
 * magnitude it is below 2^24 (the most: q6_K, 16 * 32 * 127 * 128 * 2), so f32 holds it
 * exactly. */
INLINE void dot_halves(enum qtype type, int m, int n, const struct super_block *s,
                       __m256 (*dot)[MM_MAX_TOKENS]);

INLINE __m256i shift_right(__m256i v, int bits) {
    return bits >= 0 ? _mm256_srli_epi16(v, bits) : _mm256_slli_epi16(v, -bits);
}

/* Code k of the four that lie in three vectors (kernels.h). */
INLINE __m256i six_bits(const uint8_t *p, int k) {
    if (k < 3)
        return _mm256_and_si256(load(p + TILE_VECTOR * k), _mm256_set1_epi8(63));
    __m256i w = _mm256_and_si256(shift_right(load(p), 6), _mm256_set1_epi8(3));
    UNROLL
    for (int i = 1; i < 3; i++)
        w = _mm256_or_si256(w,
                            _mm256_and_si256(shift_right(load(p + TILE_VECTOR * i), 6 - 2 * i),
                                             _mm256_set1_epi8((char)(3 << 2 * i))));
    return w;
}

/* Vector j of 8 (columns 4j to 4j+3) of one half's codes. p: the block's vectors from this
 * half's bytes on. */
INLINE __m256i codes(enum qtype type, const uint8_t *p, int j) {
    const int low = tile_formats[type].low_bits, high = tile_formats[type].high_bits;
    if (low == 8)
        return load(p + TILE_VECTOR * j);
    if (low == 6)
        return six_bits(p + TILE_VECTOR * 3 * (j / 4), j % 4);
    __m256i w = low == 4 ? shift_right(load(p + TILE_VECTOR * (j % 4)), j / 4 * 4)
                         : shift_right(load(p + TILE_VECTOR * (j / 4)), j % 4 * 2);
    w = _mm256_and_si256(w, _mm256_set1_epi8((char)((1 << low) - 1)));
    p += TILE_VECTOR * low;
    if (high == 1) {
        __m256i bit = shift_right(load(p), j - low);
        w = _mm256_or_si256(w, _mm256_and_si256(bit, _mm256_set1_epi8((char)(1 << low))));
    }
    return w;
}

/* ---- types with one scale per block ------------------------------------------------------ */

/* 2^(e - 128), or 0 for e = 0; there is no e between 0 and 88. */
INLINE __m256 load_e8m0(const uint8_t *p) {
    __m128i e = _mm_subs_epu8(_mm_loadl_epi64((const __m128i *)p), _mm_set1_epi8(1));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(e), 23));
}

/* A block with a d for each half. */
INLINE void add_half_blocks(enum qtype type, int m, int n, const uint8_t *const *block,
                            const uint8_t *const *vectors, const int8_t *q,
                            const struct act_sums *sums, const float *dx, float scale,
                            __m256 (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int part_16 = 0; part_16 < 2; part_16++) {
        __m256 dot[MAX_HALVES][MM_MAX_TOKENS];
        dot_vectors(type, 4 * part_16, 4 * part_16 + 4, m, n, vectors, q, sums, dot);
        UNROLL
        for (int h = 0; h < 2 * m; h++) {
            __m256 d = load_f16(half_at(block, h, 2 * HALF_ROWS) + 2 * TILE_ROWS * part_16);
            UNROLL
            for (int t = 0; t < n; t++)
                acc[h][t] = _mm256_fmadd_ps(
                    dot[h][t], _mm256_mul_ps(d, _mm256_set1_ps(dx[t] * scale)), acc[h][t]);
        }
    }
}

INLINE __m256 load_scale(enum qtype type, const uint8_t *p) {
    return scales_of(type) == TILE_D_M_BF16 ? load_bf16(p) : load_f16(p);
}

INLINE void mm_block(const struct mm_call *c, enum qtype type, int m, int n) {
    __m256 acc[MAX_HALVES][MM_MAX_TOKENS];
    const size_t block_bytes = tile_block_bytes(type);
    size_t b = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(m, n, acc);
        for (; b < end / ACT_BLOCK; b++) {
            __m256 dot[MAX_HALVES][MM_MAX_TOKENS];
            const uint8_t *block[MM_MAX_TILES], *vectors[MM_MAX_TILES];
            const int8_t *q = c->q + b * c->gs * ACT_BLOCK;
            const struct act_sums *sums = c->sums + b * c->gs;
            const float *dx = c->d + b * c->gs, *sx = c->s + b * c->gs;
            UNROLL
            for (int i = 0; i < m; i++) {
                block[i] = c->w[i] + b * block_bytes;
                vectors[i] = block[i] + tile_codes_at(type);
            }
            if (scales_of(type) == TILE_D_D) {
                add_half_blocks(type, m, n, block, vectors, q, sums, dx, c->scale, acc);
                continue;
            }
            dot_vectors(type, 0, 8, m, n, vectors, q, sums, dot);
            UNROLL
            for (int h = 0; h < 2 * m; h++) {
                __m256 d = scales_of(type) == TILE_E8M0
                               ? load_e8m0(half_at(block, h, HALF_ROWS))
                               : load_scale(type, half_at(block, h, 2 * HALF_ROWS));
                UNROLL
                for (int t = 0; t < n; t++)
                    acc[h][t] = _mm256_fmadd_ps(
                        dot[h][t], _mm256_mul_ps(d, _mm256_set1_ps(dx[t])), acc[h][t]);
                if (!tile_has_m(type))
                    continue;
                __m256 min = load_scale(type, half_at(block, h, 2 * HALF_ROWS) + 2 * TILE_ROWS);
                if (tile_formats[type].bias != 0)
                    min = _mm256_fmadd_ps(_mm256_set1_ps(tile_formats[type].bias), d, min);
                UNROLL
                for (int t = 0; t < n; t++)
                    acc[h][t] = _mm256_fmadd_ps(min, _mm256_set1_ps(sx[t]), acc[h][t]);
            }
        }
        acc_store(c, m, n, end, acc);
    }
}

/* ---- types with superblocks -------------------------------------------------------------- */

INLINE struct super_block super_block_at(const struct mm_call *c, enum qtype type, int m,
                                         uint32_t b, const __m256 *d, const __m256 *dmin) {
    struct super_block s = {
        .d = d,
        .dmin = dmin,
        .q = c->q + b * c->gs * ACT_BLOCK,
        .dx = c->d + b * c->gs,
        .sx = c->s + b * c->gs,
        .sums = c->sums + b * c->gs,
    };
    UNROLL
    for (int i = 0; i < m; i++) {
        s.scales[i] = c->w[i] + tile_block_at(type, c->col_phase, b);
        s.vectors[i] = s.scales[i] + tile_codes_at(type);
    }
    return s;
}

/* A scale, and perhaps a minimum, for a block. */
INLINE void add_scaled(enum qtype type, int m, int n, const struct super_block *s,
                       __m256 (*acc)[MM_MAX_TOKENS]) {
    __m256 dot[MAX_HALVES][MM_MAX_TOKENS];
    dot_vectors(type, 0, 8, m, n, s->vectors, s->q, s->sums, dot);
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        __m256 scale = _mm256_mul_ps(s->d[h], load_i8(scale_row(s, h, 0)));
        UNROLL
        for (int t = 0; t < n; t++)
            acc[h][t] = _mm256_fmadd_ps(
                dot[h][t], _mm256_mul_ps(scale, _mm256_set1_ps(s->dx[t])), acc[h][t]);
        if (scales_of(type) != TILE_SCALE_MIN)
            continue;
        __m256 min = _mm256_mul_ps(s->dmin[h], load_u8(scale_row(s, h, 1)));
        UNROLL
        for (int t = 0; t < n; t++)
            acc[h][t] = _mm256_fnmadd_ps(min, _mm256_set1_ps(s->sx[t]), acc[h][t]);
    }
}

/* Eight pairs of 16-bit integers: of the unsigned bytes at p and at q. */
INLINE __m256i load_u8_pairs(const uint8_t *p, const uint8_t *q) {
    __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    __m256i y = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)q));
    return _mm256_or_si256(x, _mm256_slli_epi32(y, 16));
}

/* A scale, and perhaps a minimum, for each half of a block. */
INLINE void add_halves(enum qtype type, int m, int n, const struct super_block *s,
                       __m256 (*acc)[MM_MAX_TOKENS]) {
    __m256 dot[MAX_HALVES][MM_MAX_TOKENS];
    dot_halves(type, m, n, s, dot);
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        UNROLL
        for (int t = 0; t < n; t++)
            acc[h][t] = _mm256_fmadd_ps(
                dot[h][t], _mm256_mul_ps(s->d[h], _mm256_set1_ps(s->dx[t])), acc[h][t]);
        if (scales_of(type) != TILE_HALVES_MIN)
            continue;
        __m256i mins = load_u8_pairs(scale_row(s, h, 2), scale_row(s, h, 3));
        UNROLL
        for (int t = 0; t < n; t++) {
            __m256i below = _mm256_madd_epi16(mins, broadcast_sums(s->sums + t));
            acc[h][t] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(below),
                                         _mm256_mul_ps(s->dmin[h], _mm256_set1_ps(s->dx[t])),
                                         acc[h][t]);
        }
    }
}

/* The scale of block b's superblock and of its minima, of each half: d times the type's factor. */
INLINE void load_super(const struct mm_call *c, enum qtype type, int m, uint32_t b, __m256 *d,
                       __m256 *dmin) {
    float factor = tile_formats[type].d_factor;
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        const uint8_t *p =
            half_at(c->w, h, 2 * HALF_ROWS) + tile_super_at(type, c->col_phase, b);
        d[h] = load_f16(p);
        if (factor != 0)
            d[h] = _mm256_mul_ps(d[h], _mm256_set1_ps(factor));
        dmin[h] = load_f16(p + 2 * TILE_ROWS);
    }
}

INLINE void mm_super(const struct mm_call *c, enum qtype type, int m, int n) {
    __m256 acc[MAX_HALVES][MM_MAX_TOKENS];
    uint32_t b = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(m, n, acc);
        while (b < end / ACT_BLOCK) {
            uint32_t super = tile_super_of(c->col_phase, b);
            uint32_t stop = MIN(end / ACT_BLOCK, tile_super_end(c->col_phase, super));
            __m256 d[MAX_HALVES], dmin[MAX_HALVES];
            load_super(c, type, m, b, d, dmin);
            for (; b < stop; b++) {
                struct super_block s = super_block_at(c, type, m, b, d, dmin);
                if (has_halves(type))
                    add_halves(type, m, n, &s, acc);
                else
                    add_scaled(type, m, n, &s, acc);
            }
        }
        acc_store(c, m, n, end, acc);
    }
}

INLINE void mm_coded(const struct mm_call *c, enum qtype type, int m, int n) {
    if (tile_has_supers(type))
        mm_super(c, type, m, n);
    else
        mm_block(c, type, m, n);
}

/* ---- the table ------------------------------------------------------------------------ */

#define INSTANCE(family, type, m, n)                                   \
    static void family##_##type##_##m##x##n(const struct mm_call *c) { \
        family(c, QT_##type, m, n);                                    \
    }

/* What products of a type are made of: one token with four tiles, or up to 4 or 6 tokens with
 * one. */
#define INSTANCES_4(family, type)                                          \
    INSTANCE(family, type, 4, 1)                                           \
    INSTANCE(family, type, 1, 2)                                           \
    INSTANCE(family, type, 1, 3)                                           \
    INSTANCE(family, type, 1, 4)                                           \
    static const struct mm_kernels type##_kernels = {                      \
        .one = family##_##type##_4x1,                                      \
        .one_tiles = 4,                                                    \
        .many = {NULL, NULL, family##_##type##_1x2, family##_##type##_1x3, \
                 family##_##type##_1x4},                                   \
        .many_tiles = 1,                                                   \
        .max_tokens = 4,                                                   \
    };

#define INSTANCES_6(family, type)                                                      \
    INSTANCE(family, type, 4, 1)                                                       \
    INSTANCE(family, type, 1, 2)                                                       \
    INSTANCE(family, type, 1, 3)                                                       \
    INSTANCE(family, type, 1, 4)                                                       \
    INSTANCE(family, type, 1, 5)                                                       \
    INSTANCE(family, type, 1, 6)                                                       \
    static const struct mm_kernels type##_kernels = {                                  \
        .one = family##_##type##_4x1,                                                  \
        .one_tiles = 4,                                                                \
        .many = {NULL, NULL, family##_##type##_1x2, family##_##type##_1x3,             \
                 family##_##type##_1x4, family##_##type##_1x5, family##_##type##_1x6}, \
        .many_tiles = 1,                                                               \
        .max_tokens = 6,                                                               \
    };

#define ENTRY(type) [QT_##type] = &type##_kernels,
