/* avx2.c: the kernel tables for AVX2 with FMA and F16C, and for AVX-VNNI, which has other
 * products. */
#include "kernels/v16_avx2.h"

#include "kernels/lanes16.inc.h"
#include "kernels/matmul_isa.h"

LANES16_KERNELS(avx2);
LANES16_KERNELS(avxvnni);
