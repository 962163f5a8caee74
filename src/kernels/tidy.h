/* tidy.h: exact_tidy() (base/exact.h) of a register, for the instruction sets that a file is
 * compiled for. */
#ifndef LOCKSTEP_KERNELS_TIDY_H
#define LOCKSTEP_KERNELS_TIDY_H

#include "base/exact.h"
#include "kernels/simd.h"

#if defined(__AVX2__)
#include <immintrin.h>

/* By integers, since FMAs keep the other units busy; NaN is the largest of all. */
INLINE __m256 tidy_8(__m256 v) {
    __m256i bits = _mm256_castps_si256(v);
    __m256i size = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    __m256i some = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(EXACT_LEAST_BITS - 1));
    return _mm256_castsi256_ps(_mm256_and_si256(bits, some));
}
#endif

#if defined(__AVX512F__)
INLINE __m512 tidy_16(__m512 v) {
    __m512 least = _mm512_set1_ps(EXACT_LEAST);
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(_mm512_abs_ps(v), least, _CMP_NLT_UQ), v);
}
#endif

#if defined(__ARM_NEON)
#include <arm_neon.h>

INLINE float32x4_t tidy_4(float32x4_t v) {
    uint32x4_t little = vcaltq_f32(v, vdupq_n_f32(EXACT_LEAST)); /* not of NaN */
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), little));
}
#endif

#endif
