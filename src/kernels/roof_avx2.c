#include "kernels/roof_loops.h"
#include "kernels/simd.h"

#include <immintrin.h>

#define OPAQUE(v) __asm__ volatile("" : "+x"(v))

#define CHAINS 12

INLINE uint64_t read_streams(const uint8_t *p, size_t bytes, size_t streams, size_t ahead) {
    __m256i sum[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        sum[i] = _mm256_setzero_si256();
    size_t part = bytes / streams;
    for (size_t at = 0; at < part; at += 256) {
        UNROLL
        for (size_t s = 0; s < streams; s++) {
            UNROLL
            for (size_t i = 0; i < 8; i++) {
                const uint8_t *half = p + s * part + at + 32 * i;
                if (ahead != 0 && i % 2 == 0)
                    _mm_prefetch((const char *)((uintptr_t)half + ahead), _MM_HINT_T0);
                sum[i % 4] =
                    _mm256_or_si256(sum[i % 4], _mm256_load_si256((const __m256i *)half));
            }
        }
    }
    sum[0] = _mm256_or_si256(_mm256_or_si256(sum[0], sum[1]), _mm256_or_si256(sum[2], sum[3]));
    return (uint64_t)(_mm256_extract_epi64(sum[0], 0) | _mm256_extract_epi64(sum[0], 1) |
                      _mm256_extract_epi64(sum[0], 2) | _mm256_extract_epi64(sum[0], 3));
}

static uint64_t read_1(const uint8_t *p, size_t bytes) {
    return read_streams(p, bytes, 1, 0);
}
static uint64_t read_1_ahead(const uint8_t *p, size_t bytes) {
    return read_streams(p, bytes, 1, 4096);
}
static uint64_t read_4(const uint8_t *p, size_t bytes) {
    return read_streams(p, bytes, 4, 0);
}
static uint64_t read_4_ahead(const uint8_t *p, size_t bytes) {
    return read_streams(p, bytes, 4, 2048);
}

/* u8 x s8 to pairs of 16 bits, these to 32 bits, and the sum. */
static uint64_t int8_rounds(uint64_t rounds) {
    __m256i acc[CHAINS], w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(5);
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm256_set1_epi32(i);
    for (uint64_t r = 0; r < rounds; r++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++) {
            OPAQUE(w);
            __m256i pairs = _mm256_maddubs_epi16(w, x);
            acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(pairs, ones));
        }
    }
    UNROLL
    for (int i = 1; i < CHAINS; i++)
        acc[0] = _mm256_xor_si256(acc[0], acc[i]);
    return (uint64_t)_mm256_extract_epi64(acc[0], 0);
}

static uint64_t f32_rounds(uint64_t rounds) {
    __m256 acc[CHAINS], w = _mm256_set1_ps(0.5f), x = _mm256_set1_ps(0.25f);
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm256_set1_ps((float)i);
    OPAQUE(w);
    OPAQUE(x);
    for (uint64_t r = 0; r < rounds; r++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            acc[i] = _mm256_fmadd_ps(w, x, acc[i]);
    }
    UNROLL
    for (int i = 1; i < CHAINS; i++)
        acc[0] = _mm256_add_ps(acc[0], acc[i]);
    return (uint64_t)_mm256_cvtss_f32(acc[0]);
}

const struct roof_loops roof_loops_avx2 = {
    .name = "avx2",
    .read = {read_1, read_1_ahead, read_4, read_4_ahead},
    .int8 = int8_rounds,
    .f32 = f32_rounds,
    .int8_macs = 32 * CHAINS,
    .f32_macs = 8 * CHAINS,
};
