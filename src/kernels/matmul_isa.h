/* matmul_isa.h: struct kernels' products for each instruction set: matmul_ISA() and
 * matmul_fixed_ISA(); AMX's on processors with AVX-512. And the micro-kernels that others use. */
#ifndef LOCKSTEP_KERNELS_MATMUL_ISA_H
#define LOCKSTEP_KERNELS_MATMUL_ISA_H

#include "kernels/tile_driver.h"

#define PRODUCTS_OF(isa)                                                                       \
    void matmul_##isa(const struct wmat *w, const struct act *x, float *y, size_t ldy,         \
                      uint32_t tile_begin, uint32_t tile_end);                                 \
    void matmul_fixed_##isa(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy, \
                            const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,      \
                            uint32_t tile_end);
PRODUCTS_OF(avx2)
PRODUCTS_OF(avxvnni)
PRODUCTS_OF(avx512)
PRODUCTS_OF(amx)
PRODUCTS_OF(neon)
PRODUCTS_OF(i8mm)

const struct mm_kernels *mm_kernels_avx2(enum qtype type);
struct mm_kernels mm_kernels_avx512(const struct wmat *w);
const struct mm_kernels *mm_kernels_neon(enum qtype type);

#endif
