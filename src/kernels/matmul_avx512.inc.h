/* matmul_avx512.inc.h: shared by the products for AVX-512 and for AMX: reading and writing the
 * sums of a call, and reading a tile's codes and scales. A register is one tile's 16 rows. */
#include "base/util.h"
#include "kernels/simd.h"
#include "kernels/tidy.h"
#include "kernels/tile_driver.h"
#include "kernels/tile_walk.h"

#include <immintrin.h>

/* Several tokens: asks for a block's share of what later calls load. */
INLINE void prefetch_ahead(const struct mm_call *c, uintptr_t *ahead) {
    for (uint32_t i = c->ahead_lines; i > 0; i--, *ahead += CACHE_LINE)
        _mm_prefetch((const char *)*ahead, _MM_HINT_T1);
}

/* acc[tile][token]: the sums of a call. */

INLINE void acc_zero(int m, int n, __m512 (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int i = 0; i < m; i++) {
        UNROLL
        for (int t = 0; t < n; t++)
            acc[i][t] = _mm512_setzero_ps();
    }
}

/* Where the call's first sums begin. */
INLINE void acc_begin(const struct mm_call *c, int m, int n, __m512 (*acc)[MM_MAX_TOKENS]) {
    acc_zero(m, n, acc);
    if (c->from == NULL)
        return;
    UNROLL
    for (int i = 0; i < m; i++) {
        UNROLL
        for (int t = 0; t < n; t++)
            acc[i][t] = _mm512_load_ps(c->from + (t * m + i) * TILE_ROWS);
    }
}

/* sum[0..15] = (or +=, if adds) x in fixed point. docs/numerics.md: to the nearest multiple of
 * 2^-24, saturated; NaN takes the upper limit (min and max give their second operand). */
INLINE void fixed_accumulate(int64_t *sum, __m512 x, bool adds) {
    x = _mm512_min_ps(x, _mm512_set1_ps(FIXED_LIMIT));
    x = _mm512_max_ps(x, _mm512_set1_ps(-FIXED_LIMIT));
    x = _mm512_mul_ps(x, _mm512_set1_ps(1 << FIXED_BITS));
    __m512i lo = _mm512_cvtps_epi64(_mm512_castps512_ps256(x));
    __m512i hi = _mm512_cvtps_epi64(_mm512_extractf32x8_ps(x, 1));
    if (adds) {
        lo = _mm512_add_epi64(lo, _mm512_loadu_si512(sum));
        hi = _mm512_add_epi64(hi, _mm512_loadu_si512(sum + 8));
    }
    _mm512_storeu_si512(sum, lo);
    _mm512_storeu_si512(sum + 8, hi);
}

/* sum += the sums of a piece (FLOAT_PIECE). */
INLINE void acc_add(int m, int n, __m512 (*acc)[MM_MAX_TOKENS], __m512 (*sum)[MM_MAX_TOKENS]) {
    UNROLL
    for (int i = 0; i < m; i++) {
        UNROLL
        for (int t = 0; t < n; t++)
            sum[i][t] = _mm512_add_ps(sum[i][t], acc[i][t]);
    }
}

/* The sums of the segment that ends at column `end` are complete, or go on in a later call. */
INLINE void acc_store(const struct mm_call *c, int m, int n, uint32_t end,
                      __m512 (*acc)[MM_MAX_TOKENS]) {
    if (c->part != NULL) {
        UNROLL
        for (int i = 0; i < m; i++) {
            UNROLL
            for (int t = 0; t < n; t++)
                _mm512_store_ps(c->part + (t * m + i) * TILE_ROWS, acc[i][t]);
        }
        return;
    }
    UNROLL
    for (int i = 0; i < m; i++) {
        if ((uint32_t)i >= c->n_tiles)
            return;
        if (c->y != NULL) {
            UNROLL
            for (int t = 0; t < n; t++)
                _mm512_storeu_ps(c->y + (size_t)t * c->ldy + c->row[i], tidy_16(acc[i][t]));
        } else {
            UNROLL
            for (int t = 0; t < n; t++)
                fixed_accumulate(c->fixed[t] + c->row[i], acc[i][t],
                                 c->adds || end > c->seg_cols);
        }
    }
}

/* ---- scales --------------------------------------------------------------------------- */

INLINE __m512i load(const uint8_t *p) {
    return _mm512_loadu_si512(p);
}

INLINE __m512 load_f16(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

INLINE __m512 load_bf16(const uint8_t *p) {
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

INLINE __m512 load_u8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

INLINE __m512 load_i8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

/* 2^(e - 128), or 0 for e = 0; there is no e between 0 and 88. */
INLINE __m512 load_e8m0(const uint8_t *p) {
    __m128i e = _mm_subs_epu8(_mm_loadu_si128((const __m128i *)p), _mm_set1_epi8(1));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(e), 23));
}

INLINE __m512 load_scale(enum qtype type, const uint8_t *p) {
    return scales_of(type) == TILE_D_M_BF16 ? load_bf16(p) : load_f16(p);
}

/* d of a superblock, times the type's factor. */
INLINE __m512 load_super_d(enum qtype type, const uint8_t *super) {
    float factor = tile_formats[type].d_factor;
    __m512 d = load_f16(super);
    return factor != 0 ? _mm512_mul_ps(d, _mm512_set1_ps(factor)) : d;
}

/* ---- codes ---------------------------------------------------------------------------- */

INLINE __m512i shift_right(__m512i v, int bits) {
    return bits >= 0 ? _mm512_srli_epi16(v, (unsigned)bits)
                     : _mm512_slli_epi16(v, (unsigned)-bits);
}

/* Code k of the four that lie in three vectors (kernels.h). */
INLINE __m512i six_bits(const uint8_t *p, int k) {
    if (k < 3)
        return _mm512_and_si512(load(p + TILE_VECTOR * k), _mm512_set1_epi8(63));
    __m512i w = _mm512_and_si512(shift_right(load(p), 6), _mm512_set1_epi8(3));
    UNROLL
    for (int i = 1; i < 3; i++)
        w = _mm512_or_si512(w,
                            _mm512_and_si512(shift_right(load(p + TILE_VECTOR * i), 6 - 2 * i),
                                             _mm512_set1_epi8((char)(3 << 2 * i))));
    return w;
}

/* Vector j of 8 (columns 4j to 4j+3) of a block's codes. p: the block's vectors. */
INLINE __m512i codes(enum qtype type, const uint8_t *p, int j) {
    const int low = tile_formats[type].low_bits, high = tile_formats[type].high_bits;
    if (low == 8)
        return load(p + TILE_VECTOR * j);
    if (low == 6)
        return six_bits(p + TILE_VECTOR * 3 * (j / 4), j % 4);
    __m512i w = low == 4 ? shift_right(load(p + TILE_VECTOR * (j % 4)), j / 4 * 4)
                         : shift_right(load(p + TILE_VECTOR * (j / 4)), j % 4 * 2);
    w = _mm512_and_si512(w, _mm512_set1_epi8((char)((1 << low) - 1)));
    p += TILE_VECTOR * low;
    if (high == 1) {
        __m512i bit = shift_right(load(p), j - low);
        w = _mm512_or_si512(w, _mm512_and_si512(bit, _mm512_set1_epi8((char)(1 << low))));
    }
    return w;
}
