/* v16_avx512.h: sixteen f32 lanes in one register. lanes16.inc.h uses these. */
#ifndef LOCKSTEP_KERNELS_V16_AVX512_H
#define LOCKSTEP_KERNELS_V16_AVX512_H

#include "kernels/simd.h"
#include "kernels/tidy.h"
#include "kernels/transpose_x86.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

typedef __m512 v16;
typedef __m512i v16i;

/* recurrence: tiles of 16 columns whose sums fit the registers */
#define RECUR_TILES 4
/* attention: the number of queries side by side, and with that many the tiles of K (vectors of
 * V) that fit the registers */
#define ATTN_TILES 8
#define ATTN_VECTORS 4
#define ATTN_TILES_FOR(queries) \
    ((queries) == 1 ? 8 : (queries) == 2 ? 4 : (queries) == 3 ? 3 : 2)
#define ATTN_VECTORS_FOR(queries) 4

INLINE __mmask16 v16_first(size_t n) {
    return (__mmask16)((1u << n) - 1);
}

INLINE v16 v16_zero(void) {
    return _mm512_setzero_ps();
}
INLINE v16 v16_set(float x) {
    return _mm512_set1_ps(x);
}
INLINE v16 v16_load(const float *p) {
    return _mm512_loadu_ps(p);
}
INLINE void v16_store(float *p, v16 v) {
    _mm512_storeu_ps(p, v);
}
/* The first n <= 16 lanes; the others are 0 and not written. */
INLINE v16 v16_load_n(const float *p, size_t n) {
    return _mm512_maskz_loadu_ps(v16_first(n), p);
}
INLINE void v16_store_n(float *p, v16 v, size_t n) {
    _mm512_mask_storeu_ps(p, v16_first(n), v);
}
/* Lanes begin <= i < end of v, the others of rest. */
INLINE v16 v16_keep(v16 v, size_t begin, size_t end, v16 rest) {
    return _mm512_mask_mov_ps(rest, v16_first(end) & (__mmask16)~v16_first(begin), v);
}

INLINE v16 v16_add(v16 a, v16 b) {
    return _mm512_add_ps(a, b);
}
INLINE v16 v16_sub(v16 a, v16 b) {
    return _mm512_sub_ps(a, b);
}
INLINE v16 v16_mul(v16 a, v16 b) {
    return _mm512_mul_ps(a, b);
}
INLINE v16 v16_div(v16 a, v16 b) {
    return _mm512_div_ps(a, b);
}
/* a * b + c, a * b - c, rounded once */
INLINE v16 v16_fma(v16 a, v16 b, v16 c) {
    return _mm512_fmadd_ps(a, b, c);
}
INLINE v16 v16_fms(v16 a, v16 b, v16 c) {
    return _mm512_fmsub_ps(a, b, c);
}
/* Even lanes a * b - c, odd lanes a * b + c. */
INLINE v16 v16_fmaddsub(v16 a, v16 b, v16 c) {
    return _mm512_fmaddsub_ps(a, b, c);
}
INLINE v16 v16_abs(v16 v) {
    return _mm512_abs_ps(v);
}
/* a > b ? a : b, a < b ? a : b: b where one is NaN */
INLINE v16 v16_max(v16 a, v16 b) {
    return _mm512_max_ps(a, b);
}
INLINE v16 v16_min(v16 a, v16 b) {
    return _mm512_min_ps(a, b);
}

INLINE v16 v16_negate(v16 v) {
    return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f));
}
/* a < b ? yes : no (no where one is NaN) */
INLINE v16 v16_if_less(v16 a, v16 b, v16 yes, v16 no) {
    return _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), yes);
}
INLINE v16 v16_if_nan(v16 v, v16 yes, v16 no) {
    return _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), yes);
}

/* x0 x0 x2 x2..., x1 x1 x3 x3... */
INLINE v16 v16_even_twice(v16 v) {
    return _mm512_moveldup_ps(v);
}
INLINE v16 v16_odd_twice(v16 v) {
    return _mm512_movehdup_ps(v);
}
/* exact_tidy() */
INLINE v16 v16_tidy(v16 v) {
    return tidy_16(v);
}
/* a0 b0 a1 b1... of 8 floats each */
INLINE v16 v16_interleave(const float *a, const float *b) {
    __m256 x = _mm256_loadu_ps(a), y = _mm256_loadu_ps(b);
    __m256 lo = _mm256_unpacklo_ps(x, y), hi = _mm256_unpackhi_ps(x, y);
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_permute2f128_ps(lo, hi, 0x20)),
                              _mm256_permute2f128_ps(lo, hi, 0x31), 1);
}

INLINE v16 v16_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
INLINE v16 v16_load_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
/* One f16, in all lanes; p need not be aligned. */
INLINE v16 v16_set_f16(const uint8_t *p) {
    return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(p[0] | p[1] << 8)));
}
/* to nearest even */
INLINE void v16_store_f16(uint16_t *p, v16 v) {
    _mm256_storeu_si256((__m256i *)p,
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* The tree of docs/numerics.md: lanes 8 apart, then 4, 2, 1. */
INLINE float v16_sum(v16 v) {
    __m256 s = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
INLINE float v16_largest(v16 v) {
    __m256 s = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/* ---- integers ------------------------------------------------------------------------- */

INLINE v16i v16i_add(v16i a, v16i b) {
    return _mm512_add_epi32(a, b);
}
INLINE v16i v16i_shift_left(v16i v, unsigned bits) {
    return _mm512_slli_epi32(v, bits);
}
INLINE v16i v16i_from_bits(v16 v) {
    return _mm512_castps_si512(v);
}
INLINE v16 v16_from_bits(v16i v) {
    return _mm512_castsi512_ps(v);
}
/* to nearest even; what does not fit gives INT32_MIN */
INLINE v16i v16_round(v16 v) {
    return _mm512_cvtps_epi32(v);
}
INLINE v16 v16_from_int(v16i v) {
    return _mm512_cvtepi32_ps(v);
}
/* values within -128..127 */
INLINE void v16i_store_8(int8_t *p, v16i v) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(v));
}
INLINE int32_t v16i_sum(v16i v) {
    return _mm512_reduce_add_epi32(v);
}
/* (float)p[i], to nearest even, i < 16 */
INLINE v16 v16_from_int64(const int64_t *p) {
    __m256 lo = _mm512_cvtepi64_ps(_mm512_loadu_si512(p));
    __m256 hi = _mm512_cvtepi64_ps(_mm512_loadu_si512(p + 8));
    return _mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1);
}

#endif
