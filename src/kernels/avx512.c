/* avx512.c: the table for AVX-512 with VNNI. */
#include "kernels/v16_avx512.h"

#include "kernels/lanes16.inc.h"
#include "kernels/matmul_avx512.h"

LANES16_KERNELS(avx512);
