/* matmul_avx512.h: struct kernels' products for AVX-512 with VNNI. */
#ifndef LOCKSTEP_KERNELS_MATMUL_AVX512_H
#define LOCKSTEP_KERNELS_MATMUL_AVX512_H

#include "kernels/tile_driver.h"

/* The micro-kernels that the products below use on this processor for a matrix of w's shape. */
struct mm_kernels mm_kernels_avx512(const struct wmat *w);

void matmul_avx512(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                   uint32_t tile_begin, uint32_t tile_end);
void matmul_fixed_avx512(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                         const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                         uint32_t tile_end);

#endif
