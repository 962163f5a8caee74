/* matmul_avx2.c: micro-kernels for AVX2. A tile's 16 rows are two registers; those of m tiles are
 * halves h = 0 to 2m - 1.
 *
 * One body per family of types, compiled for m tiles x n tokens. One token takes four tiles side by side,
 * a cache line of each in turn: so memory gives most here, and prefetching would take away. maddubs
 * multiplies unsigned by signed bytes and adds pairs to 16 bits, where as many products are summed as fit
 * (sums_in_16_bits) before they go to 32, there times an integer scale if halves of a block have one:
 * always exact. */
#include "kernels/matmul_avx2.h"

#include "base/util.h"
#include "kernels/simd.h"
#include "kernels/tile_driver.h"
#include "kernels/tile_walk.h"

#include <immintrin.h>
#include <math.h>

/* Compilers make trees of integer additions, for which they keep every product in memory. This one they
 * make where it stands. */
#define IN_ORDER(v) __asm__("" : "+x"(v))

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

/* Where the results of half h and token t belong, in y or fixed. */
INLINE size_t result_at(const struct mm_call *c, int h, int t) {
    return (size_t)t * c->ldy + c->row[h / 2] + (size_t)(h % 2 * HALF_ROWS);
}

/* Below 2^26, adding 1.5 * 2^52 rounds x * 2^24 to an integer in the low bits. The bits of 1.5 * 2^52 come
 * into a sum with each of its segments: it starts with as many of them taken off. */
#define FIXED_FAST 0x1p26f
#define FIXED_SHIFT 0x1.8p52
#define FIXED_SHIFT_BITS 0x4338000000000000u

INLINE void fixed_begin(const struct mm_call *c, int n_halves, int n) {
    uint64_t n_segments = c->n_cols / c->seg_cols;
    __m256i start = _mm256_set1_epi64x((int64_t)(0 - n_segments * FIXED_SHIFT_BITS));
    for (int h = 0; h < n_halves; h++)
        for (int t = 0; t < n; t++) {
            __m256i *sum = (__m256i *)(c->fixed + result_at(c, h, t));
            _mm256_storeu_si256(sum, start);
            _mm256_storeu_si256(sum + 1, start);
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
    if (c->fixed == NULL) {
        UNROLL
        for (int h = 0; h < 2 * m; h++) {
            UNROLL
            for (int t = 0; t < n; t++)
                if (h < n_halves)
                    _mm256_storeu_ps(c->y + result_at(c, h, t), acc[h][t]);
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
    __m256i limit = _mm256_castps_si256(_mm256_set1_ps(FIXED_FAST));
    bool fast = _mm256_movemask_epi8(_mm256_cmpgt_epi32(limit, largest)) == -1;
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        UNROLL
        for (int t = 0; t < n; t++) {
            int64_t *sum = c->fixed + result_at(c, h, t);
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

/* ---- f32, f16, bf16: one FMA per column ----------------------------------------------- */

INLINE __m256 load_bf16(const uint8_t *p) {
    __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

/* e4m3 at an f16's places is 2^8 too small. */
INLINE __m256 load_f8(const uint8_t *p) {
    __m128i w = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)p));
    __m128i size = _mm_slli_epi16(_mm_and_si128(w, _mm_set1_epi16(0x7f)), 7);
    __m128i sign = _mm_slli_epi16(_mm_and_si128(w, _mm_set1_epi16(0x80)), 8);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(size, sign)), _mm256_set1_ps(256.0f));
}

/* Half h of a column of the tiles at tile[]. */
INLINE __m256 load_floats(enum qtype type, const uint8_t *const *tile, size_t col, int h) {
    const uint8_t *p = half_at(tile, h, tile_col_bytes(type) / 2) + tile_col_at(type, col);
    if (type == QT_F32)
        return _mm256_loadu_ps((const float *)p);
    if (type == QT_F16)
        return load_f16(p);
    if (type == QT_BF16)
        return load_bf16(p);
    const uint8_t *scale = half_at(tile, h, HALF_ROWS * sizeof(float)) + tile_f8_scales_at(col);
    return _mm256_mul_ps(load_f8(p), _mm256_loadu_ps((const float *)scale));
}

/* Many rows side by side, since the FMAs of one wait for each other. */
INLINE void mm_float(const struct mm_call *c, enum qtype type, int m, int n) {
    __m256 acc[MAX_HALVES][MM_MAX_TOKENS];
    const float *x = c->f;
    size_t col = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(m, n, acc);
        for (; col < end; col++, x += c->gs) {
            __m256 w[MAX_HALVES];
            UNROLL
            for (int h = 0; h < 2 * m; h++)
                w[h] = load_floats(type, c->w, col, h);
            UNROLL
            for (int t = 0; t < n; t++) {
                __m256 xt = _mm256_set1_ps(x[t]);
                UNROLL
                for (int h = 0; h < 2 * m; h++)
                    acc[h][t] = _mm256_fmadd_ps(w[h], xt, acc[h][t]);
            }
        }
        acc_store(c, m, n, end, acc);
    }
}

/* ---- integer dot products ------------------------------------------------------------- */

/* Weights that are multiplied as signed bytes; the others are unsigned, with their bias. */
INLINE bool is_signed(enum qtype type) {
    return tile_formats[type].low_bits == 8 || has_table(type);
}

/* How many maddubs results, each at most 2 * 127 * the largest weight, fit in 16 bits. */
INLINE int sums_in_16_bits(enum qtype type) {
    switch (type) {
    case QT_Q8_0:
    case QT_MLX8:
    case QT_MLX8_F16: /* 128 */
    case QT_IQ4_NL:
    case QT_IQ4_XS: /* 127 */
        return 1;
    case QT_Q6_K:    /* 63 */
    case QT_IQ3_XXS: /* 62 */
    case QT_IQ2_S:
    case QT_IQ2_XS:
    case QT_IQ2_XXS: /* 43 */
        return 2;
    case QT_Q5_0:
    case QT_Q5_1:
    case QT_Q5_K: /* 31 */
        return 4;
    default: /* 15 */
        return 8;
    }
}

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

/* The codes as maddubs takes them: by value if is_signed(), else as they are. */
INLINE __m256i unpack(enum qtype type, const uint8_t *p, int j) {
    __m256i w = codes(type, p, j);
    if (tile_formats[type].low_bits == 8)
        return _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    if (!has_table(type))
        return w;
    __m128i values = _mm_loadu_si128((const __m128i *)tile_formats[type].values);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), w);
}

/* Pairs of products in 16 bits. Signed: |w| times x with w's sign; |w| = 128 fits u8, and
 * 2 * 128 * 127 fits 16 bits. */
INLINE __m256i multiply_pairs(enum qtype type, __m256i w, __m256i x) {
    if (!is_signed(type))
        return _mm256_maddubs_epi16(w, x);
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

/* dot[h][t] (+=, if more) exact integer sums over vectors [begin, end) of 8, of what unpack() gives
 * times scale[h]: 16-bit integers, those of a row twice. Codes of 4 bits are taken in the order in which
 * they lie: the two nibbles of a byte, then the next. vectors: of the block, in each tile. */
INLINE void dot_scaled(enum qtype type, int begin, int end, int m, int n,
                       const uint8_t *const *vectors, const int8_t *q, const __m256i *scale,
                       bool more, __m256i (*dot)[MM_MAX_TOKENS]) {
    const int room = sums_in_16_bits(type), count = end - begin;
    const bool by_nibbles = tile_formats[type].low_bits == 4 && count == 8;
    __m256i words[MAX_HALVES][MM_MAX_TOKENS];
    UNROLL
    for (int k = 0; k < count; k++) {
        int j = by_nibbles ? k / 2 + k % 2 * 4 : begin + k;
        bool first = k % room == 0, last = k % room == room - 1 || k + 1 == count;
        __m256i x[MM_MAX_TOKENS];
        UNROLL
        for (int t = 0; t < n; t++)
            x[t] = broadcast_4(q + t * ACT_BLOCK + 4 * j);
        UNROLL
        for (int h = 0; h < 2 * m; h++) {
            __m256i w = unpack(type, half_at(vectors, h, TILE_VECTOR / 2), j);
            UNROLL
            for (int t = 0; t < n; t++) {
                __m256i pairs = multiply_pairs(type, w, x[t]);
                words[h][t] = first ? pairs : _mm256_add_epi16(words[h][t], pairs);
                IN_ORDER(words[h][t]);
                if (!last)
                    continue;
                __m256i sums = _mm256_madd_epi16(words[h][t], scale[h]);
                dot[h][t] = k < room && !more ? sums : _mm256_add_epi32(dot[h][t], sums);
                IN_ORDER(dot[h][t]);
            }
        }
    }
}

/* dot[h][t] = the same without scales. */
INLINE void dot_vectors(enum qtype type, int begin, int end, int m, int n,
                        const uint8_t *const *vectors, const int8_t *q,
                        __m256i (*dot)[MM_MAX_TOKENS]) {
    __m256i ones[MAX_HALVES];
    UNROLL
    for (int h = 0; h < 2 * m; h++)
        ones[h] = _mm256_set1_epi16(1);
    dot_scaled(type, begin, end, m, n, vectors, q, ones, false, dot);
}

/* The sums of a block's halves: 16-bit pairs, the same for each row. */
INLINE __m256i broadcast_sums(const struct act_sums *sums) {
    int32_t x;
    memcpy(&x, sums, sizeof x);
    return _mm256_set1_epi32(x);
}

INLINE bool is_biased(enum qtype type) {
    return !is_signed(type) && bias_log2(type) >= 0;
}

/* dot[h][t] -= bias of the codes */
INLINE void remove_bias(enum qtype type, int m, int n, const struct act_sums *sums,
                        __m256i (*dot)[MM_MAX_TOKENS]) {
    if (!is_biased(type))
        return;
    UNROLL
    for (int t = 0; t < n; t++) {
        __m256i bias = _mm256_madd_epi16(broadcast_sums(sums + t),
                                         _mm256_set1_epi16(tile_formats[type].bias));
        UNROLL
        for (int h = 0; h < 2 * m; h++)
            dot[h][t] = _mm256_sub_epi32(dot[h][t], bias);
    }
}

/* ---- types whose blocks have scales of their own ---------------------------------------- */

/* 2^(e - 128) */
INLINE __m256 load_e8m0(const uint8_t *p) {
    __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, small));
}

/* A block whose halves have a d each. */
INLINE void add_half_blocks(enum qtype type, int m, int n, const uint8_t *const *block,
                            const uint8_t *const *vectors, const int8_t *q, const float *dx,
                            float scale, __m256 (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int part_16 = 0; part_16 < 2; part_16++) {
        __m256i dot[MAX_HALVES][MM_MAX_TOKENS];
        dot_vectors(type, 4 * part_16, 4 * part_16 + 4, m, n, vectors, q, dot);
        UNROLL
        for (int h = 0; h < 2 * m; h++) {
            __m256 d = load_f16(half_at(block, h, 2 * HALF_ROWS) + 2 * TILE_ROWS * part_16);
            UNROLL
            for (int t = 0; t < n; t++)
                acc[h][t] =
                    _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h][t]),
                                    _mm256_mul_ps(d, _mm256_set1_ps(dx[t] * scale)), acc[h][t]);
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
            __m256i dot[MAX_HALVES][MM_MAX_TOKENS];
            const uint8_t *block[MM_MAX_TILES], *vectors[MM_MAX_TILES];
            const float *dx = c->d + b * c->gs, *sx = c->s + b * c->gs;
            UNROLL
            for (int i = 0; i < m; i++) {
                block[i] = c->w[i] + b * block_bytes;
                vectors[i] = block[i] + tile_codes_at(type);
            }
            if (scales_of(type) == TILE_D_D) {
                add_half_blocks(type, m, n, block, vectors, c->q + b * c->gs * ACT_BLOCK, dx,
                                c->scale, acc);
                continue;
            }
            dot_vectors(type, 0, 8, m, n, vectors, c->q + b * c->gs * ACT_BLOCK, dot);
            remove_bias(type, m, n, c->sums + b * c->gs, dot);
            UNROLL
            for (int h = 0; h < 2 * m; h++) {
                __m256 d = scales_of(type) == TILE_E8M0
                               ? load_e8m0(half_at(block, h, HALF_ROWS))
                               : load_scale(type, half_at(block, h, 2 * HALF_ROWS));
                UNROLL
                for (int t = 0; t < n; t++)
                    acc[h][t] =
                        _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h][t]),
                                        _mm256_mul_ps(d, _mm256_set1_ps(dx[t])), acc[h][t]);
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

/* A block in each tile, and its activations. */
struct super_block {
    const __m256 *d, *dmin; /* of its superblock, for each half */
    const uint8_t *scales[MM_MAX_TILES], *vectors[MM_MAX_TILES];
    const int8_t *q;
    const float *dx, *sx;
    const struct act_sums *sums;
};

INLINE struct super_block super_block_at(const struct mm_call *c, enum qtype type, int m,
                                         size_t b, const __m256 *d, const __m256 *dmin) {
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
        s.scales[i] = c->w[i] + c->blocks_at + b * tile_block_bytes(type);
        s.vectors[i] = s.scales[i] + tile_codes_at(type);
    }
    return s;
}

/* Half h's row number `row` of the integer scales. */
INLINE const uint8_t *scale_row(const struct super_block *s, int h, int row) {
    return half_at(s->scales, h, HALF_ROWS) + row * TILE_ROWS;
}

/* A scale, and perhaps a minimum, for a block. */
INLINE void add_scaled(enum qtype type, int m, int n, const struct super_block *s,
                       __m256 (*acc)[MM_MAX_TOKENS]) {
    __m256i dot[MAX_HALVES][MM_MAX_TOKENS];
    dot_vectors(type, 0, 8, m, n, s->vectors, s->q, dot);
    remove_bias(type, m, n, s->sums, dot);
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        __m256 scale = _mm256_mul_ps(s->d[h], load_i8(scale_row(s, h, 0)));
        UNROLL
        for (int t = 0; t < n; t++)
            acc[h][t] =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h][t]),
                                _mm256_mul_ps(scale, _mm256_set1_ps(s->dx[t])), acc[h][t]);
        if (scales_of(type) != TILE_SCALE_MIN)
            continue;
        __m256 min = _mm256_mul_ps(s->dmin[h], load_u8(scale_row(s, h, 1)));
        UNROLL
        for (int t = 0; t < n; t++)
            acc[h][t] = _mm256_fnmadd_ps(min, _mm256_set1_ps(s->sx[t]), acc[h][t]);
    }
}

/* Eight scales as 16-bit integers, each twice. */
INLINE __m256i load_i8_twice(const uint8_t *p) {
    const __m256i twice = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
    __m256i x = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_shuffle_epi8(x, twice);
}

/* Eight pairs of 16-bit integers: of the unsigned bytes at p and at q. */
INLINE __m256i load_u8_pairs(const uint8_t *p, const uint8_t *q) {
    __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    __m256i y = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)q));
    return _mm256_or_si256(x, _mm256_slli_epi32(y, 16));
}

/* A scale, and perhaps a minimum, for each half of a block. The scaled halves' sum is below 2^24 in
 * magnitude (the most: q6_K, 16 * 32 * 127 * 128 * 2), so f32 holds it exactly; with the bias in, it is
 * below 2^25. */
INLINE void add_halves(enum qtype type, int m, int n, const struct super_block *s,
                       __m256 (*acc)[MM_MAX_TOKENS]) {
    __m256i dot[MAX_HALVES][MM_MAX_TOKENS], scale[2][MAX_HALVES];
    UNROLL
    for (int part_16 = 0; part_16 < 2; part_16++) {
        UNROLL
        for (int h = 0; h < 2 * m; h++)
            scale[part_16][h] = load_i8_twice(scale_row(s, h, part_16));
        dot_scaled(type, 4 * part_16, 4 * part_16 + 4, m, n, s->vectors, s->q, scale[part_16],
                   part_16 > 0, dot);
    }
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        if (is_biased(type)) {
            __m256i pairs = _mm256_blend_epi16(scale[0][h], scale[1][h], 0xaa);
            UNROLL
            for (int t = 0; t < n; t++) {
                __m256i sum = _mm256_madd_epi16(pairs, broadcast_sums(s->sums + t));
                dot[h][t] =
                    _mm256_sub_epi32(dot[h][t], _mm256_slli_epi32(sum, bias_log2(type)));
            }
        }
        UNROLL
        for (int t = 0; t < n; t++)
            acc[h][t] =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h][t]),
                                _mm256_mul_ps(s->d[h], _mm256_set1_ps(s->dx[t])), acc[h][t]);
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

/* The scale of a superblock and of its minima, of each half: d times the type's factor. */
INLINE void load_super(const struct mm_call *c, enum qtype type, int m, uint32_t super,
                       __m256 *d, __m256 *dmin) {
    float factor = tile_formats[type].d_factor;
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        const uint8_t *p = half_at(c->w, h, 2 * HALF_ROWS) + super * TILE_VECTOR;
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
            load_super(c, type, m, super, d, dmin);
            for (; b < stop; b++) {
                struct super_block s = super_block_at(c, type, m, b, d, dmin);
                if (scales_of(type) == TILE_SCALE || scales_of(type) == TILE_SCALE_MIN)
                    add_scaled(type, m, n, &s, acc);
                else
                    add_halves(type, m, n, &s, acc);
            }
        }
        acc_store(c, m, n, end, acc);
    }
}

/* ---- the table ------------------------------------------------------------------------ */

#define INSTANCE(family, type, m, n)                                   \
    static void family##_##type##_##m##x##n(const struct mm_call *c) { \
        family(c, QT_##type, m, n);                                    \
    }

#define BLOCK_INSTANCES(family, type)                                      \
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

#define FLOAT_INSTANCES(type)                                                          \
    INSTANCE(mm_float, type, 4, 1)                                                     \
    INSTANCE(mm_float, type, 1, 2)                                                     \
    INSTANCE(mm_float, type, 1, 3)                                                     \
    INSTANCE(mm_float, type, 1, 4)                                                     \
    INSTANCE(mm_float, type, 1, 5)                                                     \
    INSTANCE(mm_float, type, 1, 6)                                                     \
    static const struct mm_kernels type##_kernels = {                                  \
        .one = mm_float_##type##_4x1,                                                  \
        .one_tiles = 4,                                                                \
        .many = {NULL, NULL, mm_float_##type##_1x2, mm_float_##type##_1x3,             \
                 mm_float_##type##_1x4, mm_float_##type##_1x5, mm_float_##type##_1x6}, \
        .many_tiles = 1,                                                               \
        .max_tokens = 6,                                                               \
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

void matmul_avx2(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                 uint32_t tile_begin, uint32_t tile_end) {
    mm_drive(kernels_of[w->type], w, x, y, ldy, tile_begin, tile_end);
}

void matmul_fixed_avx2(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                       uint32_t seg_cols, uint32_t tile_begin, uint32_t tile_end) {
    mm_drive_fixed(kernels_of[w->type], w, x, y, ldy, seg_cols, tile_begin, tile_end);
}
