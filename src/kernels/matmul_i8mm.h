/* matmul_i8mm.h: the products of neon.c's table for machines with int8 matrix instructions.
 * kernels.h documents them. */
#ifndef LOCKSTEP_KERNELS_MATMUL_I8MM_H
#define LOCKSTEP_KERNELS_MATMUL_I8MM_H

#include "kernels/kernels.h"

void matmul_i8mm(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                 uint32_t tile_begin, uint32_t tile_end);
void matmul_fixed_i8mm(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                       const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                       uint32_t tile_end);

#endif
