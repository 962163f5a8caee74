/* avx2.c: the table for AVX2 with FMA and F16C. */
#include "kernels/v16_avx2.h"

#include "kernels/lanes16.inc.h"
#include "kernels/matmul_avx2.h"

LANES16_KERNELS(avx2);
