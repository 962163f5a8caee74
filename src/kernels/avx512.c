/* avx512.c: the kernel tables for AVX-512 with VNNI, and for AMX, which has other products. */
#include "kernels/v16_avx512.h"

#include "kernels/lanes16.inc.h"
#include "kernels/matmul_isa.h"

LANES16_KERNELS(avx512);
LANES16_KERNELS(amx);
