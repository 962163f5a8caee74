/* transpose_x86.h: transposes 16-bit values, for AVX2 and AVX-512 alike. */
#ifndef LOCKSTEP_KERNELS_TRANSPOSE_X86_H
#define LOCKSTEP_KERNELS_TRANSPOSE_X86_H

#include "kernels/simd.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

/* dst[16 d + i] = src[i * stride + d] for 16 rows i and 16 columns d. */
INLINE void v16_transpose_16(uint16_t *dst, const uint16_t *src, size_t stride) {
    for (int half = 0; half < 2; half++, src += 8, dst += 8 * 16) {
        __m256i r[8], s[8];
        UNROLL
        for (size_t i = 0; i < 8; i++) /* rows i and i + 8, side by side */
            r[i] = _mm256_inserti128_si256(
                _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(src + i * stride))),
                _mm_loadu_si128((const __m128i *)(src + (i + 8) * stride)), 1);
        UNROLL
        for (int i = 0; i < 8; i += 2) {
            s[i] = _mm256_unpacklo_epi16(r[i], r[i + 1]);
            s[i + 1] = _mm256_unpackhi_epi16(r[i], r[i + 1]);
        }
        UNROLL
        for (int i = 0; i < 8; i += 4) {
            r[i] = _mm256_unpacklo_epi32(s[i], s[i + 2]);
            r[i + 1] = _mm256_unpackhi_epi32(s[i], s[i + 2]);
            r[i + 2] = _mm256_unpacklo_epi32(s[i + 1], s[i + 3]);
            r[i + 3] = _mm256_unpackhi_epi32(s[i + 1], s[i + 3]);
        }
        UNROLL
        for (int i = 0; i < 4; i++) {
            __m256i lo = _mm256_unpacklo_epi64(r[i], r[i + 4]);
            __m256i hi = _mm256_unpackhi_epi64(r[i], r[i + 4]);
            _mm256_storeu_si256((__m256i *)(dst + 32 * i), lo);
            _mm256_storeu_si256((__m256i *)(dst + 32 * i + 16), hi);
        }
    }
}

#endif
