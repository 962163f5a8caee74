/* neon.c: the kernel tables for arm64: with dot product (ARMv8.2; every Apple M, Graviton 2 and
 * later), and with int8 matrix instructions too (ARMv8.6; Apple M2, Graviton 3 and later),
 * which have other products. */
#include "kernels/v16_neon.h"

#include "kernels/lanes16.inc.h"
#include "kernels/matmul_isa.h"

LANES16_KERNELS(neon);
LANES16_KERNELS(i8mm);
