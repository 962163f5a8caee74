/* block_key.h: one key of a block of tokens (DeepSeek V4). */
#ifndef LOCKSTEP_MODEL_BLOCK_KEY_H
#define LOCKSTEP_MODEL_BLOCK_KEY_H

#include "kernels/kernels.h"

/* out[c] = the sum over the n rows, in order, of p_rc * values[r][c], where p_c is the softmax over
 * the rows of gates[r][c]. Each channel c of `dim` is by itself:
 *   m = the largest gate (a NaN is none); e_r = tidy(exp(gate - m)); s = sum of e_r;
 *   o = sum of e_r * value; out = tidy(o / s). Sums are in order, from +0; nothing is fused.
 * n >= 1; scratch [3 * dim]. */
void compress_rows(const struct kernels *k, float *out, const float *const *values,
                   const float *const *gates, uint32_t n, uint32_t dim, float *scratch);

#endif
