#define VECTOR_BYTES 32
#include "kernels/roof_x86.inc.h"

INLINE ints multiply_add_int8(ints w, ints x, ints acc) {
    return (ints)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)w, (__m256i)x);
}

INLINE floats multiply_add_f32(floats w, floats x, floats acc) {
    return (floats)_mm256_fmadd_ps((__m256)w, (__m256)x, (__m256)acc);
}

ROOF_LOOPS(avxvnni, read_4);
