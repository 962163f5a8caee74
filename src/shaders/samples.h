/* samples.h: numbers to compare kernels on: the self-test's and the tests'. */
#ifndef LOCKSTEP_SHADERS_SAMPLES_H
#define LOCKSTEP_SHADERS_SAMPLES_H

#include "kernels/kernels.h"

/* As kernels.h wants them: 0, NaN or at least 2^-40. Mostly -3..3; some within a few powers of
 * two of 2^-40, some huge, a few zeros and ties. */
void samples_floats(float *x, size_t n, uint64_t seed);

/* The same without what is huge, so that sums of products stay finite. */
void samples_mild(float *x, size_t n, uint64_t seed);

/* The same as samples_floats(), but blocks of 32 of which some are all zeros, all NaN, all
 * tiny, ties of the rounding to int8, or have an infinity. */
void samples_blocks(float *x, size_t n, uint64_t seed);

/* Rows of tokens: samples_mild(), and the last of several samples_blocks(). */
void samples_tokens(float *x, uint32_t n_tokens, uint32_t n_cols, uint64_t seed);

/* Logits of a router, of which there are so many kinds: ordinary ones, the same for all, a few
 * values, far apart, huge; with infinities, with a NaN, all NaN. */
#define SAMPLES_LOGITS 8
void samples_logits(float *x, size_t n, uint32_t kind, uint64_t seed);

/* Integers of any size: sums of fixed point. */
void samples_fixed(int64_t *x, size_t n, uint64_t seed);

/* The fixed point of x, as products round to it: by f64, in which x * 2^24 is exact. */
int64_t samples_fixed_of(float x);

/* Activations whose values lie in memory of so many bytes at `at`, which is aligned to 64. */
size_t samples_act_bytes(enum act_kind kind, uint32_t n_tokens, uint32_t n_cols);
struct act samples_act_at(uint8_t *at, enum act_kind kind, uint32_t n_tokens, uint32_t n_cols);

/* Fills the tiles of w: any codes, finite scales; some scales are 0, tiny or large. Of floats,
 * one row has huge ones. */
void samples_tiles(const struct wmat *w, uint8_t *tiles, uint64_t seed);

#endif
