#include "kernels/roof_loops.h"
#include "kernels/simd.h"

#include <arm_neon.h>

#define OPAQUE(v) __asm__ volatile("" : "+w"(v))

#define CHAINS (ROOF_I8MM_MACS / 32)

uint64_t roof_i8mm_int8(uint64_t rounds) {
    int32x4_t acc[CHAINS];
    int8x16_t w = vdupq_n_s8(3), x = vdupq_n_s8(5);
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        acc[i] = vdupq_n_s32(i);
    OPAQUE(w);
    OPAQUE(x);
    for (uint64_t r = 0; r < rounds; r++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            acc[i] = vmmlaq_s32(acc[i], w, x);
    }
    UNROLL
    for (int i = 1; i < CHAINS; i++)
        acc[0] = veorq_s32(acc[0], acc[i]);
    return (uint64_t)vaddvq_s32(acc[0]);
}
