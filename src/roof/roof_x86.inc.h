/* roof_x86.inc.h: the loops of roof_loops.h, written once for vectors of any width.
 *
 * An ISA file defines VECTOR_BYTES, includes this, defines multiply_add_int8(), and ends with
 * ROOF_LOOPS(). If its int8 products do not work on vectors, it defines INT8_MACS first, and
 * then int8_rounds(). */
#include "base/util.h"
#include "kernels/simd.h"
#include "roof/roof_loops.h"

#include <immintrin.h>
#include <stdbool.h>

typedef int32_t ints __attribute__((vector_size(VECTOR_BYTES)));
typedef float floats __attribute__((vector_size(VECTOR_BYTES)));

#define LANES (VECTOR_BYTES / 4)
#define CHAINS 12
#define PIECE_BYTES 524288

/* A value that the compiler must neither know nor drop. */
#define OPAQUE(v) __asm__ volatile("" : "+x"(v))

INLINE floats multiply_add_f32(floats w, floats x, floats acc) {
#if VECTOR_BYTES == 64
    return (floats)_mm512_fmadd_ps((__m512)w, (__m512)x, (__m512)acc);
#else
    return (floats)_mm256_fmadd_ps((__m256)w, (__m256)x, (__m256)acc);
#endif
}

INLINE uint64_t any_bits(ints v) {
    uint64_t bits = 0;
    for (int i = 0; i < LANES; i++)
        bits |= (uint32_t)v[i];
    return bits;
}

/* Reads `streams` equal parts side by side, 256 bytes of each in turn. Prefetches `ahead` bytes
 * ahead; near: into the first-level cache, not only the second. */
INLINE uint64_t read_streams(const uint8_t *p, size_t bytes, size_t streams, size_t ahead,
                             bool near) {
    ints sum[4] = {{0}};
    size_t part = bytes / streams;
    for (size_t at = 0; at < part; at += 256) {
        UNROLL
        for (size_t s = 0; s < streams; s++) {
            UNROLL
            for (size_t i = 0; i < 256 / VECTOR_BYTES; i++) {
                const uint8_t *v = p + s * part + at + VECTOR_BYTES * i;
                const char *later = (const char *)((uintptr_t)v + ahead);
                bool asks = ahead != 0 && VECTOR_BYTES * i % CACHE_LINE == 0;
                if (asks && near)
                    _mm_prefetch(later, _MM_HINT_T0);
                else if (asks)
                    _mm_prefetch(later, _MM_HINT_T1);
                sum[i % 4] |= *(const ints *)(const void *)v;
            }
        }
    }
    return any_bits((sum[0] | sum[1]) | (sum[2] | sum[3]));
}

#define READ_LOOP(name, streams, ahead, near)                     \
    static inline uint64_t name(const uint8_t *p, size_t bytes) { \
        return read_streams(p, bytes, streams, ahead, near);      \
    }
READ_LOOP(read_1, 1, 0, true)
READ_LOOP(read_1_ahead, 1, 4096, true)
READ_LOOP(read_1_far_ahead, 1, 8192, true)
READ_LOOP(read_4, 4, 0, true)
READ_LOOP(read_4_ahead, 4, 2048, true)
READ_LOOP(read_4_ahead_l2, 4, 1024, false)
READ_LOOP(read_8_ahead, 8, 1024, true)

/* 16 streams, near each other. */
static inline uint64_t read_16_ahead(const uint8_t *p, size_t bytes) {
    uint64_t seen = 0;
    for (size_t at = 0; at < bytes; at += PIECE_BYTES)
        seen |= read_streams(p + at, PIECE_BYTES, 16, 512, true);
    return seen;
}

#ifndef INT8_MACS
#define INT8_MACS (VECTOR_BYTES * CHAINS)

/* acc + w * x of bytes, the products of four added to a lane of 32 bits. */
INLINE ints multiply_add_int8(ints w, ints x, ints acc);

static uint64_t int8_rounds(uint64_t rounds) {
    ints acc[CHAINS], w = (ints){0} + 0x03030303, x = (ints){0} + 0x05050505;
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        acc[i] = (ints){0} + i;
    OPAQUE(x);
    for (uint64_t r = 0; r < rounds; r++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++) {
            OPAQUE(
                w); /* or what takes several instructions would be taken out of the loop in part */
            acc[i] = multiply_add_int8(w, x, acc[i]);
        }
    }
    UNROLL
    for (int i = 1; i < CHAINS; i++)
        acc[0] ^= acc[i];
    return any_bits(acc[0]);
}
#endif

static uint64_t f32_rounds(uint64_t rounds) {
    floats acc[CHAINS], w = (floats){0} + 0.5f, x = (floats){0} + 0.25f;
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        acc[i] = (floats){0} + (float)i;
    OPAQUE(w);
    OPAQUE(x);
    for (uint64_t r = 0; r < rounds; r++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            acc[i] = multiply_add_f32(w, x, acc[i]);
    }
    UNROLL
    for (int i = 1; i < CHAINS; i++)
        acc[0] += acc[i];
    return (uint64_t)acc[0][0];
}

/* The table; one of the reading loops is the ISA file's choice. */
#define ROOF_LOOPS(isa, own_read)                                                   \
    const struct roof_loops roof_loops_##isa = {                                    \
        .name = #isa,                                                               \
        .read = {read_1, read_1_ahead, read_4_ahead, read_4_ahead_l2, read_8_ahead, \
                 read_16_ahead, own_read},                                          \
        .int8 = int8_rounds,                                                        \
        .f32 = f32_rounds,                                                          \
        .int8_macs = INT8_MACS,                                                     \
        .f32_macs = LANES * CHAINS,                                                 \
    }
