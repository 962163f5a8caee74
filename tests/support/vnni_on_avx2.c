#include "vnni_on_avx2.h"

#include <immintrin.h>

/* vpdpbusd as Intel's manual defines it: to each 32-bit lane of acc, four products of an
 * unsigned and a signed byte are added. None is rounded or saturated on the way: madd's pairs
 * of 16-bit products are 32 bits wide. A function that is called, since thousands of copies of
 * it would take minutes to compile. */
__attribute__((noinline)) static __m256i emulated_dpbusd(__m256i acc, __m256i u, __m256i s) {
    __m256i lo = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(u)),
                                   _mm256_cvtepi8_epi16(_mm256_castsi256_si128(s)));
    __m256i hi = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(u, 1)),
                                   _mm256_cvtepi8_epi16(_mm256_extracti128_si256(s, 1)));
    __m256i fours = _mm256_permute4x64_epi64(_mm256_hadd_epi32(lo, hi), 0xd8);
    return _mm256_add_epi32(acc, fours);
}

#define _mm256_dpbusd_avx_epi32 emulated_dpbusd
#define matmul_avxvnni emulated_matmul
#define matmul_fixed_avxvnni emulated_matmul_fixed
#include "kernels/matmul_avxvnni.c"

const struct kernels *vnni_on_avx2(void) {
    static struct kernels k;
    const struct kernels *avx2 = kernels_get(ISA_AVX2);
    if (avx2 == NULL)
        return NULL;
    k = *avx2;
    k.name = "avxvnni (emulated)";
    k.matmul = emulated_matmul;
    k.matmul_fixed = emulated_matmul_fixed;
    return &k;
}
