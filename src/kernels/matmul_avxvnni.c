/* matmul_avxvnni.c: the products for AVX-VNNI, which adds vpdpbusd to AVX2.
 *
 * It multiplies unsigned by signed bytes and adds four products to an int32, exactly. So
 * weights are biased unsigned bytes, and a sum starts at -bias * (sum of the activations). */
#include "kernels/matmul_isa.h"

#include "kernels/matmul_avx2.inc.h"

/* What unpack() exceeds the weights by; 0: nothing. */
INLINE int operand_bias(enum qtype type) {
    return has_table(type) ? 128 : tile_formats[type].bias;
}

/* The weights as unsigned bytes, biased: codes, or what a table has for them. */
INLINE __m256i unpack(enum qtype type, const uint8_t *p, int j) {
    __m256i w = codes(type, p, j);
    if (!has_table(type))
        return w;
    __m128i values = _mm_loadu_si128((const __m128i *)tile_formats[type].values);
    values = _mm_xor_si128(values, _mm_set1_epi8(-128));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), w);
}

/* The last bit of MAGIC's f32 counts ones: its bits plus an integer (below 2^22 in magnitude)
 * are those of MAGIC + the integer. So sums start at these bits and end in a subtraction of
 * floats, which need not wait for vpdpbusd's ports, as a conversion does. */
#define MAGIC 0x1.8p23f
#define MAGIC_BITS 0x4b400000

INLINE void dot_vectors(enum qtype type, int begin, int end, int m, int n,
                        const uint8_t *const *vectors, const int8_t *q,
                        const struct act_sums *sums, __m256 (*dot)[MM_MAX_TOKENS]) {
    const __m256i minus_bias = times(begin, end, -operand_bias(type));
    __m256i sum[MAX_HALVES][MM_MAX_TOKENS];
    UNROLL
    for (int t = 0; t < n; t++) {
        __m256i start = _mm256_set1_epi32(MAGIC_BITS);
        if (operand_bias(type) != 0)
            start = _mm256_add_epi32(start,
                                     _mm256_madd_epi16(broadcast_sums(sums + t), minus_bias));
        UNROLL
        for (int h = 0; h < 2 * m; h++)
            sum[h][t] = start;
    }
    UNROLL
    for (int j = begin; j < end; j++) {
        UNROLL
        for (int h = 0; h < 2 * m; h += 2) { /* a tile */
            __m256i w0 = unpack(type, half_at(vectors, h, TILE_VECTOR / 2), j);
            __m256i w1 = unpack(type, half_at(vectors, h + 1, TILE_VECTOR / 2), j);
            UNROLL
            for (int t = 0; t < n; t++) {
                __m256i x = broadcast_4(q + t * ACT_BLOCK + 4 * j);
                sum[h][t] = _mm256_dpbusd_avx_epi32(sum[h][t], w0, x);
                sum[h + 1][t] = _mm256_dpbusd_avx_epi32(sum[h + 1][t], w1, x);
            }
        }
    }
    UNROLL
    for (int h = 0; h < 2 * m; h++) {
        UNROLL
        for (int t = 0; t < n; t++)
            dot[h][t] = _mm256_sub_ps(_mm256_castsi256_ps(sum[h][t]), _mm256_set1_ps(MAGIC));
    }
}

/* Each half's sum fits f32, and so does its product with a scale. */
INLINE void dot_halves(enum qtype type, int m, int n, const struct super_block *s,
                       __m256 (*dot)[MM_MAX_TOKENS]) {
    UNROLL
    for (int part_16 = 0; part_16 < 2; part_16++) {
        __m256 half[MAX_HALVES][MM_MAX_TOKENS];
        dot_vectors(type, 4 * part_16, 4 * part_16 + 4, m, n, s->vectors, s->q, s->sums, half);
        UNROLL
        for (int h = 0; h < 2 * m; h++) {
            __m256 scale = load_i8(scale_row(s, h, part_16));
            UNROLL
            for (int t = 0; t < n; t++)
                dot[h][t] = part_16 == 0 ? _mm256_mul_ps(half[h][t], scale)
                                         : _mm256_fmadd_ps(half[h][t], scale, dot[h][t]);
        }
    }
}

/* ---- the table: weights of codes; AVX2's kernels for the others -------------------------- */

/* Sums of halves are two for each token, so fewer tokens fit the registers. */
#define BLOCK_TYPE(type) INSTANCES_6(mm_coded, type)
#define HALVES_TYPE(type) INSTANCES_4(mm_coded, type)
TILE_BLOCK_TYPES(BLOCK_TYPE)
TILE_PAIR_TYPES(HALVES_TYPE)
TILE_SUPER_TYPES(BLOCK_TYPE)
TILE_HALVES_TYPES(HALVES_TYPE)

static const struct mm_kernels *kernels_of(enum qtype type) {
    static const struct mm_kernels *const coded[QT_N] = {TILE_CODED_TYPES(ENTRY)};
    return coded[type] != NULL ? coded[type] : mm_kernels_avx2(type);
}

void matmul_avxvnni(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                    uint32_t tile_begin, uint32_t tile_end) {
    mm_drive(kernels_of(w->type), w, x, y, ldy, tile_begin, tile_end);
}

void matmul_fixed_avxvnni(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                          const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                          uint32_t tile_end) {
    mm_drive_fixed(kernels_of(w->type), w, x, y, ldy, rows, seg_cols, tile_begin, tile_end);
}
