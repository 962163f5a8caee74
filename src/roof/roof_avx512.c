/* roof_avx512.c: Peak and read loops of AVX-512. */
#define VECTOR_BYTES 64
#include "roof/roof_x86.inc.h"

INLINE ints multiply_add_int8(ints w, ints x, ints acc) {
    return (ints)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, (__m512i)x);
}

ROOF_LOOPS(avx512, read_1_far_ahead);
