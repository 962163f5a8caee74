/* matmul_amx.h: struct kernels' products for AMX with int8, on processors with AVX-512. */
#ifndef LOCKSTEP_KERNELS_MATMUL_AMX_H
#define LOCKSTEP_KERNELS_MATMUL_AMX_H

#include "kernels/kernels.h"

void matmul_amx(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                uint32_t tile_begin, uint32_t tile_end);
void matmul_fixed_amx(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                      const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                      uint32_t tile_end);

#endif
