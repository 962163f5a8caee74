/* matmul_avx2.c: the products for AVX2 with FMA and F16C.
 *
 * maddubs multiplies unsigned by signed bytes and adds pairs to 16 bits, where as many products are summed
 * as fit (sums_in_16_bits) before they go to 32, there times an integer scale if halves of a block have
 * one: always exact. */
#include "kernels/matmul_avx2.h"

#include "kernels/matmul_avx2.inc.h"

/* Compilers make trees of integer additions, for which they keep every product in memory. This one they
 * make where it stands. */
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

INLINE bool is_biased(enum qtype type) {
    return !is_signed(type) && bias_log2(type) >= 0;
}

/* value[h][t] = dot[h][t], as floats. */
INLINE void to_floats(int m, int n, __m256i (*dot)[MM_MAX_TOKENS],
                      __m256 (*value)[MM_MAX_TOKENS]) {
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        UNROLL
        for (int t = 0; t < n; t++)
            value[h][t] = _mm256_cvtepi32_ps(dot[h][t]);
    }
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
        if (!is_biased(type))
            break;
        __m256i bias = times_sums(begin, end, tile_formats[type].bias, sums + t);
        UNROLL
        for (int h = 0; h < 2 * m; h++)
            sum[h][t] = _mm256_sub_epi32(sum[h][t], bias);
    }
    to_floats(m, n, sum, dot);
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
        if (!is_biased(type))
            break;
        __m256i pairs = _mm256_blend_epi16(scale[0][h], scale[1][h], 0xaa);
        UNROLL
        for (int t = 0; t < n; t++) {
            __m256i bias = _mm256_madd_epi16(pairs, broadcast_sums(s->sums + t));
            sum[h][t] = _mm256_sub_epi32(sum[h][t], _mm256_slli_epi32(bias, bias_log2(type)));
        }
    }
    to_floats(m, n, sum, dot);
}

#define BLOCK_INSTANCES INSTANCES_4
MATMUL_KERNELS(avx2)
