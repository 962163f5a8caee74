/* rng.h: counter-based random numbers. The value is a pure function of (seed, counter). So a
 * request can be resumed anywhere and gives the same text, whatever else is running.
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11). */
#ifndef LOCKSTEP_BASE_RNG_H
#define LOCKSTEP_BASE_RNG_H

#include <stdint.h>

/* 64 random bits for (seed, counter). */
uint64_t rng_u64(uint64_t seed, uint64_t counter);

/* Uniform in [0, 1), a multiple of 2^-53. */
double rng_uniform(uint64_t seed, uint64_t counter);

#endif
