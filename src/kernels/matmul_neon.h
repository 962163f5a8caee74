/* matmul_neon.h: the products of neon.c. kernels.h documents them. */
#ifndef LOCKSTEP_KERNELS_MATMUL_NEON_H
#define LOCKSTEP_KERNELS_MATMUL_NEON_H

#include "kernels/tile_driver.h"

/* The micro-kernels that the products below use. */
const struct mm_kernels *mm_kernels_neon(enum qtype type);

void matmul_neon(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                 uint32_t tile_begin, uint32_t tile_end);
void matmul_fixed_neon(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                       const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                       uint32_t tile_end);

#endif
