/* depth_mix.h: residual streams of one token mixed over depth (Kimi K3). */
#ifndef LOCKSTEP_MODEL_DEPTH_MIX_H
#define LOCKSTEP_MODEL_DEPTH_MIX_H

#include "arch/hparams.h"
#include "kernels/kernels.h"

/* out = the sum over i of p_i * streams[i], [n_embd] each. p is the softmax of score . x_i, where
 * x_i is streams[i] over its RMS. 1 <= n <= DEPTH_MIX_MAX; out is none of the streams.
 *
 * Sums of n_embd values have 16 lanes and the fixed tree; sums over streams are in their order. */
void depth_mix(const struct kernels *k, float *out, const float *const *streams, uint32_t n,
               const float *score, uint32_t n_embd, float eps);

#endif
