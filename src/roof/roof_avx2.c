/* roof_avx2.c: Peak and read loops of AVX2. */
#define VECTOR_BYTES 32
#include "roof/roof_x86.inc.h"

/* To pairs of 16 bits, these to 32 bits, and the sum. */
INLINE ints multiply_add_int8(ints w, ints x, ints acc) {
    __m256i pairs = _mm256_maddubs_epi16((__m256i)w, (__m256i)x);
    __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    return acc + (ints)sums;
}

ROOF_LOOPS(avx2, read_4);
