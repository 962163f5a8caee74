/* neon.c: the table for arm64 with dot product (ARMv8.2; every Apple M, Graviton 2 and later). */
#include "kernels/v16_neon.h"

#include "kernels/lanes16.inc.h"
#include "kernels/matmul_neon.h"

LANES16_KERNELS(neon);
