/* roof_neon.inc.h: the loops of roof_loops.h for arm64, written once for its instruction sets.
 *
 * An ISA file includes this, defines multiply_add_int8(), and ends with ROOF_LOOPS(). */
#include "kernels/simd.h"
#include "roof/roof_loops.h"

#include <arm_neon.h>

#define OPAQUE(v) __asm__ volatile("" : "+w"(v))

#define CHAINS 16

/* acc + products of bytes, as many to a lane of 32 bits as the instruction adds up. */
INLINE int32x4_t multiply_add_int8(int32x4_t acc, int8x16_t w, int8x16_t x);

INLINE uint64_t read_streams(const uint8_t *p, size_t bytes, size_t streams) {
    uint8x16_t sum[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        sum[i] = vdupq_n_u8(0);
    size_t part = bytes / streams;
    for (size_t at = 0; at < part; at += 128) {
        UNROLL
        for (size_t s = 0; s < streams; s++) {
            UNROLL
            for (size_t i = 0; i < 8; i++)
                sum[i % 4] = vorrq_u8(sum[i % 4], vld1q_u8(p + s * part + at + 16 * i));
        }
    }
    sum[0] = vorrq_u8(vorrq_u8(sum[0], sum[1]), vorrq_u8(sum[2], sum[3]));
    return vmaxvq_u8(sum[0]);
}

static uint64_t read_1(const uint8_t *p, size_t bytes) {
    return read_streams(p, bytes, 1);
}
static uint64_t read_2(const uint8_t *p, size_t bytes) {
    return read_streams(p, bytes, 2);
}
static uint64_t read_4(const uint8_t *p, size_t bytes) {
    return read_streams(p, bytes, 4);
}
static uint64_t read_8(const uint8_t *p, size_t bytes) {
    return read_streams(p, bytes, 8);
}

static uint64_t int8_rounds(uint64_t rounds) {
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
            acc[i] = multiply_add_int8(acc[i], w, x);
    }
    UNROLL
    for (int i = 1; i < CHAINS; i++)
        acc[0] = veorq_s32(acc[0], acc[i]);
    return (uint64_t)vaddvq_s32(acc[0]);
}

static uint64_t f32_rounds(uint64_t rounds) {
    float32x4_t acc[CHAINS], w = vdupq_n_f32(0.5f), x = vdupq_n_f32(0.25f);
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        acc[i] = vdupq_n_f32((float)i);
    OPAQUE(w);
    OPAQUE(x);
    for (uint64_t r = 0; r < rounds; r++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            acc[i] = vfmaq_f32(acc[i], w, x);
    }
    UNROLL
    for (int i = 1; i < CHAINS; i++)
        acc[0] = vaddq_f32(acc[0], acc[i]);
    return (uint64_t)vaddvq_f32(acc[0]);
}

/* The table; macs: of one multiply_add_int8(). */
#define ROOF_LOOPS(isa, macs)                     \
    const struct roof_loops roof_loops_##isa = {  \
        .name = #isa,                             \
        .read = {read_1, read_2, read_4, read_8}, \
        .int8 = int8_rounds,                      \
        .f32 = f32_rounds,                        \
        .int8_macs = (macs)*CHAINS,               \
        .f32_macs = 4 * CHAINS,                   \
    }
