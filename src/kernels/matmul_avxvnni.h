/* matmul_avxvnni.h: struct kernels' products for AVX-VNNI. */
#ifndef LOCKSTEP_KERNELS_MATMUL_AVXVNNI_H
#define LOCKSTEP_KERNELS_MATMUL_AVXVNNI_H

#include "kernels/kernels.h"

void matmul_avxvnni(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                    uint32_t tile_begin, uint32_t tile_end);
void matmul_fixed_avxvnni(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                          const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                          uint32_t tile_end);

#endif
