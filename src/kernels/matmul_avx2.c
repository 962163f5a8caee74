/* matmul_avx2.c: the products for AVX2 with FMA and F16C.
 *
 * maddubs multiplies unsigned by signed bytes and adds pairs to 16 bits. As many products as
 * fit (sums_in_16_bits) are summed there before they go to 32 bits. If the halves of a block
 * have an integer scale, it is multiplied there. The result is always exact. */
#include "kernels/matmul_isa.h"

#include "kernels/matmul_avx2.inc.h"

/* ---- integer dot products ------------------------------------------------------------- */

/* Compilers make trees of integer additions, for which they keep every product in memory. This
 * one they make where it stands. */
#define IN_ORDER(v) __asm__("" : "+x"(v))

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

/* dot[h][t] (+=, if more): exact integer sums over vectors [begin, end) of 8, of what unpack()
 * gives times scale[h]: 16-bit integers, those of a row twice. Codes of 4 bits are read in
 * their stored order: the two nibbles of a byte, then the next. vectors: of the block, in each
 * tile. */
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

INLINE bool is_biased(enum qtype type) {
    return !is_signed(type) && bias_log2(type) >= 0;
}

INLINE void dot_vectors(enum qtype type, int begin, int end, int m, int n,
                        const uint8_t *const *vectors, const int8_t *q,
                        const struct act_sums *sums, __m256 (*dot)[MM_MAX_TOKENS]) {
    __m256i ones[MAX_HALVES], sum[MAX_HALVES][MM_MAX_TOKENS];
    UNROLL
    for (int h = 0; h < 2 * m; h++)
        ones[h] = _mm256_set1_epi16(1);
    dot_scaled(type, begin, end, m, n, vectors, q, ones, false, sum);
    UNROLL
    for (int t = 0; t < n; t++) {
        __m256i bias = _mm256_setzero_si256();
        if (is_biased(type))
            bias = _mm256_madd_epi16(broadcast_sums(sums + t),
                                     times(begin, end, tile_formats[type].bias));
        UNROLL
        for (int h = 0; h < 2 * m; h++)
            dot[h][t] = _mm256_cvtepi32_ps(_mm256_sub_epi32(sum[h][t], bias));
    }
}

/* Eight scales as 16-bit integers, each twice. */
INLINE __m256i load_i8_twice(const uint8_t *p) {
    const __m256i twice = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
    __m256i x = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_shuffle_epi8(x, twice);
}

/* With the codes' bias in, the sum is below 2^25. */
INLINE void dot_halves(enum qtype type, int m, int n, const struct super_block *s,
                       __m256 (*dot)[MM_MAX_TOKENS]) {
    __m256i sum[MAX_HALVES][MM_MAX_TOKENS], scale[2][MAX_HALVES];
    UNROLL
    for (int part_16 = 0; part_16 < 2; part_16++) {
        UNROLL
        for (int h = 0; h < 2 * m; h++)
            scale[part_16][h] = load_i8_twice(scale_row(s, h, part_16));
        dot_scaled(type, 4 * part_16, 4 * part_16 + 4, m, n, s->vectors, s->q, scale[part_16],
                   part_16 > 0, sum);
    }
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        __m256i pairs = _mm256_blend_epi16(scale[0][h], scale[1][h], 0xaa);
        UNROLL
        for (int t = 0; t < n; t++) {
            __m256i bias = _mm256_setzero_si256();
            if (is_biased(type))
                bias = _mm256_slli_epi32(_mm256_madd_epi16(pairs, broadcast_sums(s->sums + t)),
                                         bias_log2(type));
            dot[h][t] = _mm256_cvtepi32_ps(_mm256_sub_epi32(sum[h][t], bias));
        }
    }
}

/* ---- f32, f16, bf16, f8: one FMA per column -------------------------------------------- */

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

/* sum += the sums of a piece. */
INLINE void acc_add(int m, int n, __m256 (*acc)[MM_MAX_TOKENS], __m256 (*sum)[MM_MAX_TOKENS]) {
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        UNROLL
        for (int t = 0; t < n; t++)
            sum[h][t] = _mm256_add_ps(sum[h][t], acc[h][t]);
    }
}

/* Many rows side by side, since the FMAs of one wait for each other. */
INLINE void mm_float(const struct mm_call *c, enum qtype type, int m, int n) {
    __m256 acc[MAX_HALVES][MM_MAX_TOKENS], sum[MAX_HALVES][MM_MAX_TOKENS];
    const float *x = c->f;
    size_t col = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(m, n, sum);
        while (col < end) {
            size_t stop = MIN(col + FLOAT_PIECE, end);
            acc_zero(m, n, acc);
            for (; col < stop; col++, x += c->gs) {
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
            acc_add(m, n, acc, sum);
        }
        acc_store(c, m, n, end, sum);
    }
}

/* ---- the table ------------------------------------------------------------------------ */

#define FLOAT_TYPE(type) INSTANCES_6(mm_float, type)
#define CODED_TYPE(type) INSTANCES_4(mm_coded, type)
TILE_FLOAT_TYPES(FLOAT_TYPE)
TILE_CODED_TYPES(CODED_TYPE)

static const struct mm_kernels *const kernels_of[QT_N] = {TILE_FLOAT_TYPES(ENTRY)
                                                              TILE_CODED_TYPES(ENTRY)};

const struct mm_kernels *mm_kernels_avx2(enum qtype type) {
    return kernels_of[type];
}

void matmul_avx2(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                 uint32_t tile_begin, uint32_t tile_end) {
    mm_drive(kernels_of[w->type], w, x, y, ldy, tile_begin, tile_end);
}

void matmul_fixed_avx2(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                       const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                       uint32_t tile_end) {
    mm_drive_fixed(kernels_of[w->type], w, x, y, ldy, rows, seg_cols, tile_begin, tile_end);
}
