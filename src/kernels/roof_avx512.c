#include "kernels/roof_loops.h"
#include "kernels/simd.h"

#include <immintrin.h>

/* An accumulator that the compiler must neither drop nor merge with the others. */
#define OPAQUE(v) __asm__ volatile("" : "+v"(v))

#define CHAINS 12

/* `streams` equal parts side by side, 256 bytes of each in turn. */
INLINE uint64_t read_streams(const uint8_t *p, size_t bytes, size_t streams, size_t ahead) {
    __m512i sum[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        sum[i] = _mm512_setzero_si512();
    size_t part = bytes / streams;
    for (size_t at = 0; at < part; at += 256) {
        UNROLL
        for (size_t s = 0; s < streams; s++) {
            UNROLL
            for (size_t i = 0; i < 4; i++) {
                const uint8_t *line = p + s * part + at + 64 * i;
                if (ahead != 0)
                    _mm_prefetch((const char *)((uintptr_t)line + ahead), _MM_HINT_T0);
                sum[i] = _mm512_or_si512(sum[i], _mm512_load_si512(line));
            }
        }
    }
    sum[0] = _mm512_or_si512(_mm512_or_si512(sum[0], sum[1]), _mm512_or_si512(sum[2], sum[3]));
    return (uint64_t)_mm512_reduce_or_epi64(sum[0]);
}

static uint64_t read_1(const uint8_t *p, size_t bytes) {
    return read_streams(p, bytes, 1, 0);
}
static uint64_t read_1_ahead(const uint8_t *p, size_t bytes) {
    return read_streams(p, bytes, 1, 4096);
}
static uint64_t read_1_far_ahead(const uint8_t *p, size_t bytes) {
    return read_streams(p, bytes, 1, 8192);
}
static uint64_t read_4_ahead(const uint8_t *p, size_t bytes) {
    return read_streams(p, bytes, 4, 2048);
}

static uint64_t int8_rounds(uint64_t rounds) {
    __m512i acc[CHAINS], w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(5);
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm512_set1_epi32(i);
    OPAQUE(w);
    OPAQUE(x);
    for (uint64_t r = 0; r < rounds; r++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            acc[i] = _mm512_dpbusd_epi32(acc[i], w, x);
    }
    UNROLL
    for (int i = 1; i < CHAINS; i++)
        acc[0] = _mm512_xor_si512(acc[0], acc[i]);
    return (uint64_t)_mm512_reduce_add_epi64(acc[0]);
}

static uint64_t f32_rounds(uint64_t rounds) {
    __m512 acc[CHAINS], w = _mm512_set1_ps(0.5f), x = _mm512_set1_ps(0.25f);
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm512_set1_ps((float)i);
    OPAQUE(w);
    OPAQUE(x);
    for (uint64_t r = 0; r < rounds; r++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            acc[i] = _mm512_fmadd_ps(w, x, acc[i]);
    }
    UNROLL
    for (int i = 1; i < CHAINS; i++)
        acc[0] = _mm512_add_ps(acc[0], acc[i]);
    return (uint64_t)_mm512_reduce_add_ps(acc[0]);
}

const struct roof_loops roof_loops_avx512 = {
    .name = "avx512",
    .read = {read_1, read_1_ahead, read_1_far_ahead, read_4_ahead},
    .int8 = int8_rounds,
    .f32 = f32_rounds,
    .int8_macs = 64 * CHAINS,
    .f32_macs = 16 * CHAINS,
};
