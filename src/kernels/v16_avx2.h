/* v16_avx2.h: sixteen f32 lanes in two registers. lanes16.inc.h uses these; v16_avx512.h
 * documents them. */
#ifndef LOCKSTEP_KERNELS_V16_AVX2_H
#define LOCKSTEP_KERNELS_V16_AVX2_H

#include "kernels/simd.h"
#include "kernels/tidy.h"
#include "kernels/transpose_x86.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    __m256 a, b; /* lanes 0 to 7, 8 to 15 */
} v16;
typedef struct {
    __m256i a, b;
} v16i;

#define RECUR_TILES 2
#define ATTN_TILES 4
#define ATTN_VECTORS 4
#define ATTN_TILES_FOR(queries) ((queries) == 1 ? 4 : (queries) == 2 ? 2 : 1)
#define ATTN_VECTORS_FOR(queries) ((queries) == 1 ? 4 : (queries) == 2 ? 2 : 1)

#define V16_UNARY(name, op)             \
    INLINE v16 name(v16 v) {            \
        return (v16){op(v.a), op(v.b)}; \
    }
#define V16_BINARY(name, op)                      \
    INLINE v16 name(v16 x, v16 y) {               \
        return (v16){op(x.a, y.a), op(x.b, y.b)}; \
    }
#define V16_TERNARY(name, op)                               \
    INLINE v16 name(v16 x, v16 y, v16 z) {                  \
        return (v16){op(x.a, y.a, z.a), op(x.b, y.b, z.b)}; \
    }

/* All ones in the first n lanes (n may exceed 16 or be negative). */
INLINE v16i v16_first(int n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (v16i){_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane),
                  _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lane)};
}

INLINE v16 v16_zero(void) {
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
INLINE v16 v16_set(float x) {
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
INLINE v16 v16_load(const float *p) {
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
INLINE void v16_store(float *p, v16 v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
INLINE v16 v16_load_n(const float *p, size_t n) {
    v16i mask = v16_first((int)n);
    return (v16){_mm256_maskload_ps(p, mask.a), _mm256_maskload_ps(p + 8, mask.b)};
}
INLINE void v16_store_n(float *p, v16 v, size_t n) {
    v16i mask = v16_first((int)n);
    _mm256_maskstore_ps(p, mask.a, v.a);
    _mm256_maskstore_ps(p + 8, mask.b, v.b);
}
INLINE v16 v16_keep(v16 v, size_t begin, size_t end, v16 rest) {
    v16i from = v16_first((int)begin), to = v16_first((int)end);
    __m256 a = _mm256_castsi256_ps(_mm256_andnot_si256(from.a, to.a));
    __m256 b = _mm256_castsi256_ps(_mm256_andnot_si256(from.b, to.b));
    return (v16){_mm256_blendv_ps(rest.a, v.a, a), _mm256_blendv_ps(rest.b, v.b, b)};
}

V16_BINARY(v16_add, _mm256_add_ps)
V16_BINARY(v16_sub, _mm256_sub_ps)
V16_BINARY(v16_mul, _mm256_mul_ps)
V16_BINARY(v16_div, _mm256_div_ps)
V16_BINARY(v16_max, _mm256_max_ps)
V16_BINARY(v16_min, _mm256_min_ps)
V16_TERNARY(v16_fma, _mm256_fmadd_ps)
V16_TERNARY(v16_fms, _mm256_fmsub_ps)
V16_TERNARY(v16_fmaddsub, _mm256_fmaddsub_ps)
V16_UNARY(v16_even_twice, _mm256_moveldup_ps)
V16_UNARY(v16_odd_twice, _mm256_movehdup_ps)

INLINE v16 v16_abs(v16 v) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_andnot_ps(sign, v.a), _mm256_andnot_ps(sign, v.b)};
}
INLINE v16 v16_negate(v16 v) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_xor_ps(v.a, sign), _mm256_xor_ps(v.b, sign)};
}
INLINE v16 v16_if_less(v16 a, v16 b, v16 yes, v16 no) {
    return (v16){_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ)),
                 _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ))};
}
INLINE v16 v16_if_nan(v16 v, v16 yes, v16 no) {
    return (v16){_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(v.a, v.a, _CMP_UNORD_Q)),
                 _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(v.b, v.b, _CMP_UNORD_Q))};
}
V16_UNARY(v16_tidy, tidy_8)
INLINE v16 v16_interleave(const float *a, const float *b) {
    __m256 x = _mm256_loadu_ps(a), y = _mm256_loadu_ps(b);
    __m256 lo = _mm256_unpacklo_ps(x, y), hi = _mm256_unpackhi_ps(x, y);
    return (v16){_mm256_permute2f128_ps(lo, hi, 0x20), _mm256_permute2f128_ps(lo, hi, 0x31)};
}

INLINE v16 v16_load_f16(const uint16_t *p) {
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
INLINE v16 v16_load_i8(const int8_t *p) {
    __m128i q = _mm_loadu_si128((const __m128i *)p);
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8)))};
}
/* One f16, in all lanes; p need not be aligned. */
INLINE v16 v16_set_f16(const uint8_t *p) {
    __m128 v = _mm_cvtph_ps(_mm_cvtsi32_si128(p[0] | p[1] << 8));
    return (v16){_mm256_broadcastss_ps(v), _mm256_broadcastss_ps(v)};
}
INLINE void v16_store_f16(uint16_t *p, v16 v) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
}

INLINE float v16_sum(v16 v) {
    __m256 s = _mm256_add_ps(v.a, v.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
INLINE float v16_largest(v16 v) {
    __m256 s = _mm256_max_ps(v.a, v.b);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/* ---- integers ------------------------------------------------------------------------- */

INLINE v16i v16i_add(v16i x, v16i y) {
    return (v16i){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
INLINE v16i v16i_shift_left(v16i v, unsigned bits) {
    return (v16i){_mm256_slli_epi32(v.a, (int)bits), _mm256_slli_epi32(v.b, (int)bits)};
}
INLINE v16i v16i_from_bits(v16 v) {
    return (v16i){_mm256_castps_si256(v.a), _mm256_castps_si256(v.b)};
}
INLINE v16 v16_from_bits(v16i v) {
    return (v16){_mm256_castsi256_ps(v.a), _mm256_castsi256_ps(v.b)};
}
INLINE v16i v16_round(v16 v) {
    return (v16i){_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b)};
}
INLINE v16 v16_from_int(v16i v) {
    return (v16){_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)};
}
INLINE void v16i_store_8(int8_t *p, v16i v) {
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.a, v.b), 0xd8);
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(_mm256_castsi256_si128(words),
                                                   _mm256_extracti128_si256(words, 1)));
}
INLINE int32_t v16i_sum(v16i v) {
    __m256i s = _mm256_add_epi32(v.a, v.b);
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
INLINE v16 v16_from_int64(const int64_t *p) {
    float x[16];
    for (int i = 0; i < 16; i++)
        x[i] = (float)p[i];
    return v16_load(x);
}

#endif
