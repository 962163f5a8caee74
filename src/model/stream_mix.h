/* stream_mix.h: the mixing of a token's residual streams around a half layer (manifold-constrained
 * hyper-connections, arXiv 2512.24880; DeepSeek V4). */
#ifndef LOCKSTEP_MODEL_STREAM_MIX_H
#define LOCKSTEP_MODEL_STREAM_MIX_H

#include "kernels/kernels.h"

#define HYPER_STREAMS_MAX 8

struct hyper_args {
    uint32_t n, n_embd;        /* streams, at most HYPER_STREAMS_MAX, and their width */
    uint32_t n_iterations;     /* >= 1 */
    float eps, rms_eps;        /* of the coefficients, of the RMS of the streams */
    const float *scale, *base; /* [3], [n * (n + 2)]; of hyper_end() [1], [n] */
};

/* Coefficients in place of m, which is a product of all streams side by side. With x = m divided
 * by the RMS of all their values (exact_dot of each stream, the sums in order):
 *   m[i]              pre_i = sigmoid(x * scale[0] + base) + eps
 *   m[n + i]          post_i = 2 * sigmoid(x * scale[1] + base)
 *   m[2 n + i n + j]  C_ij: softmax over j of x * scale[2] + base, + eps; then divided by
 *                     (sum over i) + eps; and n_iterations - 1 times by (sum over j) + eps, then by
 *                     (sum over i) + eps
 * Every sum is in order; nothing is fused; C is tidied (kernels.h) after each division. */
void hyper_begin(const struct kernels *k, const struct hyper_args *a, const float *streams,
                 float *m);
/* The same of m [n] with pre_i alone. */
void hyper_end(const struct kernels *k, const struct hyper_args *a, const float *streams,
               float *m);

/* x = the sum over i, in order, of pre_i * streams[i], tidied: x [n_embd], streams [n, n_embd]. */
void hyper_read(float *x, const float *pre, const float *streams, uint32_t n, uint32_t n_embd);
/* streams[j] = post_j * y + the sum over i, in order, of C_ij * streams[i], tidied, in place. */
void hyper_write(float *streams, const float *post, const float *c, const float *y, uint32_t n,
                 uint32_t n_embd);

#endif
