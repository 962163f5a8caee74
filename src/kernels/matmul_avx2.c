/* matmul_avx2.c: micro-kernels for AVX2. A tile's 16 rows are two registers, halves h = 0, 1.
 *
 * One body per family of types, compiled for n tokens. maddubs multiplies unsigned by signed
 * bytes and adds pairs to 16 bits, where as many products are summed as fit (sums_in_16_bits)
 * before they go to 32: always exact. */
#include "kernels/matmul_avx2.h"

#include "base/util.h"
#include "kernels/simd.h"
#include "kernels/tile_driver.h"
#include "kernels/tile_walk.h"

#include <immintrin.h>
#include <math.h>

/* One token: how far ahead of the weights in use the next are asked for. */
#define PREFETCH_BYTES 6144

#define HALVES 2
#define HALF_ROWS 8

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

/* Asks for what a later iteration loads; it may lie beyond the matrix. */
INLINE void prefetch_run(const uint8_t *p, size_t bytes) {
    UNROLL
    for (size_t at = 0; at < bytes; at += CACHE_LINE)
        _mm_prefetch((const char *)((uintptr_t)p + at + PREFETCH_BYTES), _MM_HINT_T0);
}

/* acc[half][token]: the sums of a call. */
INLINE void acc_zero(int n, __m256 (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int h = 0; h < HALVES; h++)
        UNROLL
        for (int t = 0; t < n; t++)
            acc[h][t] = _mm256_setzero_ps();
}

/* docs/numerics.md: to the nearest multiple of 2^-24, saturated; NaN takes the upper limit. */
static int64_t fixed_of(float x) {
    if (!(x < FIXED_LIMIT))
        x = FIXED_LIMIT;
    if (x < -FIXED_LIMIT)
        x = -FIXED_LIMIT;
    return llrintf(x * (1 << FIXED_BITS));
}

/* sum[0..7] += x in fixed point */
static void fixed_accumulate(int64_t *sum, __m256 x) {
    __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    __m256 inside = _mm256_cmp_ps(size, _mm256_set1_ps(128.0f), _CMP_LT_OQ);
    if (_mm256_movemask_ps(inside) != 0xff) {
        float v[HALF_ROWS];
        _mm256_storeu_ps(v, x);
        for (int i = 0; i < HALF_ROWS; i++)
            sum[i] += fixed_of(v[i]);
        return;
    }
    /* Below 128 the result fits 32 bits. */
    __m256i f = _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(1 << FIXED_BITS)));
    __m256i *s = (__m256i *)sum;
    __m256i lo = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(f));
    __m256i hi = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(f, 1));
    _mm256_storeu_si256(s, _mm256_add_epi64(_mm256_loadu_si256(s), lo));
    _mm256_storeu_si256(s + 1, _mm256_add_epi64(_mm256_loadu_si256(s + 1), hi));
}

/* The sums of half h of tile i and token t, of the segment that ends at column `end`. */
INLINE void store_half(const struct mm_call *c, int i, int h, int t, uint32_t end, __m256 acc) {
    size_t at = (size_t)t * c->ldy + (size_t)(i * TILE_ROWS + h * HALF_ROWS);
    if (c->fixed == NULL) {
        _mm256_storeu_ps(c->y + at, acc);
        return;
    }
    if (end == c->seg_cols)
        memset(c->fixed + at, 0, HALF_ROWS * sizeof *c->fixed);
    fixed_accumulate(c->fixed + at, acc);
}

INLINE void acc_store(const struct mm_call *c, int n, uint32_t end,
                      __m256 (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int h = 0; h < HALVES; h++)
        UNROLL
        for (int t = 0; t < n; t++)
            store_half(c, 0, h, t, end, acc[h][t]);
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

/* Half h of a column of a tile. */
INLINE __m256 load_floats(enum qtype type, const uint8_t *tile, size_t col, size_t h) {
    const uint8_t *p = tile + tile_col_at(type, col) + h * tile_col_bytes(type) / 2;
    if (type == QT_F32)
        return _mm256_loadu_ps((const float *)p);
    if (type == QT_F16)
        return load_f16(p);
    if (type == QT_BF16)
        return load_bf16(p);
    const float *scale = (const float *)(tile + tile_f8_scales_at(col));
    return _mm256_mul_ps(load_f8(p), _mm256_loadu_ps(scale + h * HALF_ROWS));
}

INLINE void mm_float(const struct mm_call *c, enum qtype type, int n) {
    __m256 acc[HALVES][MM_MAX_TOKENS];
    const float *x = c->f;
    size_t col = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(n, acc);
        for (; col < end; col++, x += c->gs) {
            __m256 w[HALVES];
            UNROLL
            for (size_t h = 0; h < HALVES; h++)
                w[h] = load_floats(type, c->w[0], col, h);
            UNROLL
            for (int t = 0; t < n; t++) {
                __m256 xt = _mm256_set1_ps(x[t]);
                UNROLL
                for (int h = 0; h < HALVES; h++)
                    acc[h][t] = _mm256_fmadd_ps(w[h], xt, acc[h][t]);
            }
        }
        acc_store(c, n, end, acc);
    }
}

/* One token: FMAs of a row wait for each other, so the rows of four tiles take turns. */
INLINE void mm_float_one(const struct mm_call *c, enum qtype type) {
    enum { M = 4 };
    __m256 acc[M][HALVES];
    const size_t col_bytes = tile_col_bytes(type);
    size_t col = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        UNROLL
        for (int i = 0; i < M; i++)
            acc[i][0] = acc[i][1] = _mm256_setzero_ps();
        for (; col < end; col++) {
            __m256 x = _mm256_set1_ps(c->f[col * c->gs]);
            UNROLL
            for (int i = 0; i < M; i++) {
                if (col * col_bytes % CACHE_LINE == 0)
                    prefetch_run(c->w[i] + tile_col_at(type, col), CACHE_LINE);
                UNROLL
                for (size_t h = 0; h < HALVES; h++)
                    acc[i][h] =
                        _mm256_fmadd_ps(load_floats(type, c->w[i], col, h), x, acc[i][h]);
            }
        }
        UNROLL
        for (int i = 0; i < M; i++)
            if ((uint32_t)i < c->n_tiles)
                UNROLL
                for (int h = 0; h < HALVES; h++)
                    store_half(c, i, h, 0, end, acc[i][h]);
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

/* Vector j of 8 (columns 4j to 4j+3) of one half's codes. p: the block's vectors from this
 * half's bytes on. */
INLINE __m256i codes(enum qtype type, const uint8_t *p, int j) {
    const int low = tile_formats[type].low_bits, high = tile_formats[type].high_bits;
    if (low == 8)
        return load(p + TILE_VECTOR * j);
    __m256i w = low == 4 ? shift_right(load(p + TILE_VECTOR * (j % 4)), j / 4 * 4)
                         : shift_right(load(p + TILE_VECTOR * (j / 4)), j % 4 * 2);
    w = _mm256_and_si256(w, _mm256_set1_epi8((char)((1 << low) - 1)));
    p += TILE_VECTOR * low;
    if (high == 1) {
        __m256i bit = shift_right(load(p), j - low);
        w = _mm256_or_si256(w, _mm256_and_si256(bit, _mm256_set1_epi8((char)(1 << low))));
    }
    if (high == 2) {
        __m256i bits = shift_right(load(p + TILE_VECTOR * (j / 4)), j % 4 * 2 - low);
        w = _mm256_or_si256(w, _mm256_and_si256(bits, _mm256_set1_epi8((char)(3 << low))));
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

/* dot[h][t] = exact integer sums over vectors [begin, end) of 8, of what unpack() gives. */
INLINE void dot_vectors(enum qtype type, int begin, int end, int n, const uint8_t *vectors,
                        const int8_t *q, __m256i (*dot)[MM_MAX_TOKENS]) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i words[HALVES][MM_MAX_TOKENS];
    int room = sums_in_16_bits(type);
    UNROLL
    for (int j = begin; j < end; j++) {
        __m256i w[HALVES];
        UNROLL
        for (int h = 0; h < HALVES; h++)
            w[h] = unpack(type, vectors + 32 * h, j);
        bool first = (j - begin) % room == 0,
             last = (j - begin) % room == room - 1 || j + 1 == end;
        UNROLL
        for (int t = 0; t < n; t++) {
            __m256i x = broadcast_4(q + t * ACT_BLOCK + 4 * j);
            UNROLL
            for (int h = 0; h < HALVES; h++) {
                __m256i pairs = multiply_pairs(type, w[h], x);
                words[h][t] = first ? pairs : _mm256_add_epi16(words[h][t], pairs);
                if (!last)
                    continue;
                __m256i sums = _mm256_madd_epi16(words[h][t], ones);
                dot[h][t] = j - begin < room ? sums : _mm256_add_epi32(dot[h][t], sums);
            }
        }
    }
}

/* dot[h][t] -= bias of the codes */
INLINE void remove_bias(enum qtype type, int n, const int32_t *sum,
                        __m256i (*dot)[MM_MAX_TOKENS]) {
    if (is_signed(type) || bias_log2(type) < 0)
        return;
    UNROLL
    for (int t = 0; t < n; t++) {
        __m256i bias = _mm256_slli_epi32(_mm256_set1_epi32(sum[t]), bias_log2(type));
        UNROLL
        for (int h = 0; h < HALVES; h++)
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
INLINE void add_half_blocks(enum qtype type, int n, const uint8_t *w, const int8_t *q,
                            const float *dx, float scale, __m256 (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        __m256i dot[HALVES][MM_MAX_TOKENS];
        dot_vectors(type, 4 * half, 4 * half + 4, n, w + tile_codes_at(type), q, dot);
        UNROLL
        for (int h = 0; h < HALVES; h++) {
            __m256 d = load_f16(w + 2 * TILE_ROWS * half + 2 * HALF_ROWS * h);
            UNROLL
            for (int t = 0; t < n; t++)
                acc[h][t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h][t]),
                                            _mm256_mul_ps(d, _mm256_set1_ps(dx[t] * scale)),
                                            acc[h][t]);
        }
    }
}

INLINE __m256 load_scale(enum qtype type, const uint8_t *p) {
    return scales_of(type) == TILE_D_M_BF16 ? load_bf16(p) : load_f16(p);
}

INLINE void mm_block(const struct mm_call *c, enum qtype type, int n) {
    __m256 acc[HALVES][MM_MAX_TOKENS];
    const size_t block_bytes = tile_block_bytes(type);
    size_t b = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(n, acc);
        for (; b < end / ACT_BLOCK; b++) {
            __m256i dot[HALVES][MM_MAX_TOKENS];
            const uint8_t *w = c->w[0] + b * block_bytes;
            const float *dx = c->d + b * c->gs, *sx = c->s + b * c->gs;
            if (n == 1)
                prefetch_run(w, block_bytes);
            if (scales_of(type) == TILE_D_D) {
                add_half_blocks(type, n, w, c->q + b * c->gs * ACT_BLOCK, dx, c->scale, acc);
                continue;
            }
            dot_vectors(type, 0, 8, n, w + tile_codes_at(type), c->q + b * c->gs * ACT_BLOCK,
                        dot);
            remove_bias(type, n, c->sum + b * c->gs, dot);
            UNROLL
            for (int h = 0; h < HALVES; h++) {
                __m256 d = scales_of(type) == TILE_E8M0 ? load_e8m0(w + HALF_ROWS * h)
                                                        : load_scale(type, w + 2 * HALF_ROWS * h);
                UNROLL
                for (int t = 0; t < n; t++)
                    acc[h][t] =
                        _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h][t]),
                                        _mm256_mul_ps(d, _mm256_set1_ps(dx[t])), acc[h][t]);
                if (!tile_has_m(type))
                    continue;
                __m256 m = load_scale(type, w + 2 * TILE_ROWS + 2 * HALF_ROWS * h);
                if (tile_formats[type].bias != 0)
                    m = _mm256_fmadd_ps(_mm256_set1_ps(tile_formats[type].bias), d, m);
                UNROLL
                for (int t = 0; t < n; t++)
                    acc[h][t] = _mm256_fmadd_ps(m, _mm256_set1_ps(sx[t]), acc[h][t]);
            }
        }
        acc_store(c, n, end, acc);
    }
}

/* ---- types with superblocks, in parts ---------------------------------------------------- */

/* Block k of a part of n, and its activations. */
struct super_block {
    const uint8_t *d, *scales, *vectors;
    uint32_t k, n;
    const int8_t *q;
    const float *dx, *sx;
    const int32_t *sum;
};

INLINE struct super_block super_block_at(const struct mm_call *c, enum qtype type,
                                         const struct part *part, uint32_t b) {
    const uint8_t *head = c->w[0] + part->at;
    uint32_t k = b - part->first;
    return (struct super_block){
        .d = head,
        .scales = head + TILE_VECTOR,
        .vectors = head + tile_part_header(type, part->n) + k * tile_block_bytes(type),
        .k = k,
        .n = part->n,
        .q = c->q + (size_t)b * c->gs * ACT_BLOCK,
        .dx = c->d + (size_t)b * c->gs,
        .sx = c->s + (size_t)b * c->gs,
        .sum = c->sum + (size_t)b * c->gs,
    };
}

/* d of half h, times the type's factor. */
INLINE __m256 load_super_d(enum qtype type, const struct super_block *s, int h) {
    __m256 d = load_f16(s->d + 2 * HALF_ROWS * h);
    float factor = tile_formats[type].d_factor;
    return factor != 0 ? _mm256_mul_ps(d, _mm256_set1_ps(factor)) : d;
}

INLINE __m256 load_dmin(const struct super_block *s, int h) {
    return load_f16(s->d + 2 * TILE_ROWS + 2 * HALF_ROWS * h);
}

/* A scale, and perhaps a minimum, for a block. */
INLINE void add_scaled(enum qtype type, int n, const struct super_block *s,
                       __m256 (*acc)[MM_MAX_TOKENS]) {
    __m256i dot[HALVES][MM_MAX_TOKENS];
    dot_vectors(type, 0, 8, n, s->vectors, s->q, dot);
    remove_bias(type, n, s->sum, dot);
    UNROLL
    for (int h = 0; h < HALVES; h++) {
        const uint8_t *rows = s->scales + HALF_ROWS * h;
        __m256 scale =
            _mm256_mul_ps(load_super_d(type, s, h), load_i8(rows + s->k * TILE_ROWS));
        UNROLL
        for (int t = 0; t < n; t++)
            acc[h][t] =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h][t]),
                                _mm256_mul_ps(scale, _mm256_set1_ps(s->dx[t])), acc[h][t]);
        if (scales_of(type) != TILE_SCALE_MIN)
            continue;
        __m256 min = _mm256_mul_ps(load_dmin(s, h), load_u8(rows + (s->n + s->k) * TILE_ROWS));
        UNROLL
        for (int t = 0; t < n; t++)
            acc[h][t] = _mm256_fnmadd_ps(min, _mm256_set1_ps(s->sx[t]), acc[h][t]);
    }
}

/* The sum of 16 activations. */
INLINE __m256i sum_16(const int8_t *q) {
    __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), _mm_loadu_si128((const __m128i *)q));
    __m128i s = _mm_madd_epi16(pairs, _mm_set1_epi16(1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm256_broadcastd_epi32(s);
}

/* A scale, and perhaps a minimum, for each half of a block. The scaled halves and their sum are
 * integers below 2^24 in magnitude (the most: q6_K, 16 * 32 * 127 * 128 * 2): f32 holds them
 * exactly. */
INLINE void add_halves(enum qtype type, int n, const struct super_block *s,
                       __m256 (*acc)[MM_MAX_TOKENS]) {
    __m256 f[HALVES][MM_MAX_TOKENS], below[HALVES][MM_MAX_TOKENS];
    const bool has_min = scales_of(type) == TILE_HALVES_MIN;
    acc_zero(n, f);
    acc_zero(n, below);
    UNROLL
    for (int part_16 = 0; part_16 < 2; part_16++) {
        __m256i dot[HALVES][MM_MAX_TOKENS];
        const uint8_t *rows = s->scales + (2 * s->k + (uint32_t)part_16) * TILE_ROWS;
        dot_vectors(type, 4 * part_16, 4 * part_16 + 4, n, s->vectors, s->q, dot);
        UNROLL
        for (int t = 0; t < n; t++) {
            __m256i sum = _mm256_setzero_si256();
            if (has_min || (!is_signed(type) && bias_log2(type) >= 0))
                sum = sum_16(s->q + t * ACT_BLOCK + 16 * part_16);
            UNROLL
            for (int h = 0; h < HALVES; h++) {
                if (!is_signed(type) && bias_log2(type) >= 0)
                    dot[h][t] =
                        _mm256_sub_epi32(dot[h][t], _mm256_slli_epi32(sum, bias_log2(type)));
                f[h][t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h][t]),
                                          load_i8(rows + HALF_ROWS * h), f[h][t]);
                if (has_min)
                    below[h][t] = _mm256_fmadd_ps(
                        _mm256_cvtepi32_ps(sum),
                        load_u8(rows + 2 * s->n * TILE_ROWS + HALF_ROWS * h), below[h][t]);
            }
        }
    }
    UNROLL
    for (int h = 0; h < HALVES; h++) {
        __m256 d = load_super_d(type, s, h);
        UNROLL
        for (int t = 0; t < n; t++) {
            __m256 dx = _mm256_set1_ps(s->dx[t]);
            acc[h][t] = _mm256_fmadd_ps(f[h][t], _mm256_mul_ps(d, dx), acc[h][t]);
            if (has_min)
                acc[h][t] = _mm256_fnmadd_ps(below[h][t], _mm256_mul_ps(load_dmin(s, h), dx),
                                             acc[h][t]);
        }
    }
}

INLINE void mm_parts(const struct mm_call *c, enum qtype type, int n) {
    __m256 acc[HALVES][MM_MAX_TOKENS];
    uint32_t b = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(n, acc);
        while (b < end / ACT_BLOCK) {
            struct part part = part_of(c, type, b);
            uint32_t stop = MIN(end / ACT_BLOCK, part.first + part.n);
            if (n == 1)
                prefetch_run(c->w[0] + part.at, tile_part_header(type, 8));
            for (; b < stop; b++) {
                struct super_block s = super_block_at(c, type, &part, b);
                if (n == 1)
                    prefetch_run(s.vectors, tile_block_bytes(type));
                if (scales_of(type) == TILE_SCALE || scales_of(type) == TILE_SCALE_MIN)
                    add_scaled(type, n, &s, acc);
                else
                    add_halves(type, n, &s, acc);
            }
        }
        acc_store(c, n, end, acc);
    }
}

/* ---- the table ------------------------------------------------------------------------ */

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
#define PARTS_TYPE(type) BLOCK_INSTANCES(mm_parts, type)
TILE_FLOAT_TYPES(FLOAT_INSTANCES)
TILE_BLOCK_TYPES(BLOCK_TYPE)
TILE_PAIR_TYPES(BLOCK_TYPE)
TILE_SUPER_TYPES(PARTS_TYPE)
TILE_HALVES_TYPES(PARTS_TYPE)

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
