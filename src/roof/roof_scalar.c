/* roof_scalar.c: Peak and read loops in plain C, for machines without a better set. */
#include "roof/roof_loops.h"

#include <math.h>

#define CHAINS 8

static uint64_t read_words(const uint8_t *p, size_t bytes) {
    const uint64_t *x = (const uint64_t *)(const void *)p;
    uint64_t sum[4] = {0};
    for (size_t i = 0; i < bytes / sizeof *x; i += 4)
        for (size_t j = 0; j < 4; j++)
            sum[j] |= x[i + j];
    return sum[0] | sum[1] | sum[2] | sum[3];
}

static uint64_t int8_rounds(uint64_t rounds) {
    volatile int8_t start = 3;
    int32_t acc[CHAINS] = {0}, w = start;
    for (uint64_t r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++)
            acc[i] += w * (int8_t)(r + (uint64_t)i);
    int32_t sum = 0;
    for (int i = 0; i < CHAINS; i++)
        sum ^= acc[i];
    return (uint64_t)sum;
}

static uint64_t f32_rounds(uint64_t rounds) {
    volatile float start = 0.5f;
    float acc[CHAINS] = {0}, w = start;
    for (uint64_t r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++)
            acc[i] = fmaf(w, 0.25f, acc[i]);
    float sum = 0;
    for (int i = 0; i < CHAINS; i++)
        sum += acc[i];
    return (uint64_t)sum;
}

const struct roof_loops roof_loops_scalar = {
    .name = "scalar",
    .read = {read_words},
    .int8 = int8_rounds,
    .f32 = f32_rounds,
    .int8_macs = CHAINS,
    .f32_macs = CHAINS,
};
