/* recurrent.h: the kernels of recurrent layers: plain pointers in and out, like those of
 * kernels.h.
 *
 * recurrent_scalar.c is the definition; the others give the same bits. */
#ifndef LOCKSTEP_MIXERS_RECURRENT_H
#define LOCKSTEP_MIXERS_RECURRENT_H

#include "kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A causal convolution of each channel by itself (depthwise), in place. Value c of token t
 * becomes
 *   y = bias[c] (NULL: +0); y = fma(w[c][j], x of token t - (n_taps - 1) + j, y), j ascending;
 *   with silu: y / (1 + exp(-y)); tidied (kernels.h).
 * Tokens before the first are in `history`, the oldest first. Afterwards it holds the last
 * n_taps - 1 of all inputs. Channels up to the next multiple of 16 are computed too: x and
 * history have space for them, w and bias need none. */
#define CONV_TAPS_MAX 8
struct conv_args {
    float *x; /* [n_tokens, ldx] */
    size_t ldx;
    uint32_t n_tokens, n_channels, n_taps; /* 2 to CONV_TAPS_MAX taps */
    const float *w;                        /* [n_channels, n_taps] */
    const float *bias;                     /* [n_channels] */
    float *history;                        /* [n_taps - 1, ld_history] */
    size_t ld_history;
    bool silu;
};

/* One head of a linear recurrence over the tokens of a sequence, one after the other: a state
 * S [k_dim, n_cols] that decays, learns and is read. Of each token, for each column c:
 *   s[i] = S[i][c] * decay[i], i < k_dim
 *   d = v[c] * beta, or with `delta` d = (v[c] - p) * beta with p = fma(s[i], k[i], p) from +0
 *   S[i][c] = fma(k[i], d, s[i]); o = fma(S[i][c], q[i], o) from +0
 * with i ascending; d, S and o are tidied. A decay is 0 or at least RECURRENCE_LEAST, and so are
 * the magnitudes of k with `delta`: then no s or p is subnormal. (The gated delta rule, arXiv
 * 2412.06464; Mamba-2 as in arXiv 2405.21060.)
 * A lane is a column: state [div_up(n_cols, 16)][k_dim][16], what is beyond n_cols is zero. */
#define RECURRENCE_LEAST 0x1p-20f
struct recurrence_args {
    uint32_t n_tokens, k_dim, n_cols;
    bool delta;
    const float *q, *k, *v; /* [k_dim], [k_dim], [n_cols] of the first token */
    size_t ldq, ldk, ldv;   /* floats from token to token */
    const float *decay;     /* one for all i (decay_step 0), or [k_dim] (1) */
    size_t decay_step, ld_decay;
    const float *beta; /* one a token */
    size_t ld_beta;
    float *state;
    float *o; /* [n_cols] of the first token */
    size_t ldo;
};

struct recurrent_kernels {
    void (*conv)(const struct conv_args *a);
    void (*recurrence)(const struct recurrence_args *a);
};

/* Those for the same instruction set. */
const struct recurrent_kernels *recurrent_kernels_of(const struct kernels *k);

#endif
