/* roof_avxvnni.c: Peak and read loops of AVX-VNNI. */
#define VECTOR_BYTES 32
#include "roof/roof_x86.inc.h"

INLINE ints multiply_add_int8(ints w, ints x, ints acc) {
    return (ints)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)w, (__m256i)x);
}

ROOF_LOOPS(avxvnni, read_4);
