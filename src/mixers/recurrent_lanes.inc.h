/* recurrent_lanes.inc.h: recurrent.h's kernels, written once for sixteen lanes. An ISA file
 * includes its v16_*.h, then this. */
#include "base/util.h"
#include "kernels/v16_exp.inc.h"
#include "mixers/recurrent.h"

INLINE v16 v16_silu(v16 x) {
    return v16_div(x, v16_add(v16_set(1.0f), v16_exp(v16_negate(x))));
}

/* The weights of 16 channels (n of them are there), tap after tap. */
INLINE void load_taps(v16 *w, const struct conv_args *a, uint32_t channel, uint32_t n) {
    float lanes[CONV_TAPS_MAX * 16] = {0};
    for (uint32_t c = 0; c < n; c++)
        for (uint32_t j = 0; j < a->n_taps; j++)
            lanes[j * 16 + c] = a->w[(size_t)(channel + c) * a->n_taps + j];
    for (uint32_t j = 0; j < a->n_taps; j++)
        w[j] = v16_load(lanes + (size_t)j * 16);
}

#ifdef __clang__ /* which warns that a loop of a length that it does not know stays a loop */
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

/* n_taps is a constant of the caller's. */
INLINE void conv_lanes(const struct conv_args *a, uint32_t channel, const uint32_t n_taps) {
    const uint32_t n = MIN(a->n_channels - channel, 16u);
    float *history = a->history + channel;
    v16 w[CONV_TAPS_MAX], past[CONV_TAPS_MAX];
    load_taps(w, a, channel, n);
    const v16 bias = a->bias != NULL ? v16_load_n(a->bias + channel, n) : v16_zero();
    UNROLL
    for (uint32_t j = 0; j + 1 < n_taps; j++)
        past[j] = v16_load(history + j * a->ld_history);
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        float *x = a->x + t * a->ldx + channel;
        v16 y = bias;
        past[n_taps - 1] = v16_load(x);
        UNROLL
        for (uint32_t j = 0; j < n_taps; j++)
            y = v16_fma(w[j], past[j], y);
        v16_store(x, v16_tidy(a->silu ? v16_silu(y) : y));
        UNROLL
        for (uint32_t j = 0; j + 1 < n_taps; j++)
            past[j] = past[j + 1];
    }
    UNROLL
    for (uint32_t j = 0; j + 1 < n_taps; j++)
        v16_store(history + j * a->ld_history, past[j]);
}

static void conv(const struct conv_args *a) {
    for (uint32_t c = 0; c < a->n_channels; c += 16) {
        if (a->n_taps == 4)
            conv_lanes(a, c, 4);
        else if (a->n_taps == 3)
            conv_lanes(a, c, 3);
        else
            conv_lanes(a, c, a->n_taps);
    }
}

/* Tiles of 16 columns side by side (RECUR_TILES of v16_*.h), so that one's sum need not wait for
 * the last product's. Their state stays in the first-level cache while the tokens pass. */

/* Decays the state for the first token; p: its products with that token's key. */
INLINE void recur_begin(const struct recurrence_args *a, float *state, const uint32_t n,
                        v16 *p) {
    const size_t k_dim = a->k_dim, tile = k_dim * 16, step = a->decay_step;
    const float *k = a->k, *decay = a->decay;
    UNROLL
    for (uint32_t j = 0; j < n; j++)
        p[j] = v16_zero();
    for (size_t i = 0; i < k_dim; i++) {
        const v16 by = v16_set(decay[i * step]), ki = v16_set(k[i]);
        UNROLL
        for (uint32_t j = 0; j < n; j++) {
            float *at = state + j * tile + i * 16;
            v16 s = v16_mul(v16_load(at), by);
            v16_store(at, s);
            p[j] = v16_fma(s, ki, p[j]);
        }
    }
}

/* The token's one pass over the state, which learns d and gives o. With `delta` it is decayed
 * already. If there is a next token (`more`), it leaves decayed for that one, and p gets its
 * products with that one's key. */
INLINE void recur_pass(const struct recurrence_args *a, uint32_t t, float *state,
                       const uint32_t n, const bool delta, const bool more, const v16 *d,
                       v16 *o, v16 *p) {
    const size_t k_dim = a->k_dim, tile = k_dim * 16, step = a->decay_step;
    const float *q = a->q + t * a->ldq, *k = a->k + t * a->ldk, *next_k = k + a->ldk;
    const float *decay = a->decay + (delta ? t + 1 : t) * a->ld_decay;
    UNROLL
    for (uint32_t j = 0; j < n; j++)
        o[j] = p[j] = v16_zero();
    for (size_t i = 0; i < k_dim; i++) {
        const v16 ki = v16_set(k[i]), qi = v16_set(q[i]);
        const v16 by = delta && !more ? ki : v16_set(decay[i * step]);
        const v16 next = more ? v16_set(next_k[i]) : ki;
        UNROLL
        for (uint32_t j = 0; j < n; j++) {
            float *at = state + j * tile + i * 16;
            v16 s =
                v16_tidy(v16_fma(ki, d[j], delta ? v16_load(at) : v16_mul(v16_load(at), by)));
            o[j] = v16_fma(s, qi, o[j]);
            if (more) {
                s = v16_mul(s, by);
                p[j] = v16_fma(s, next, p[j]);
            }
            v16_store(at, s);
        }
    }
}

/* n tiles of 16 columns from `col` on; n and delta are constants of the caller's. */
INLINE void recur_tiles(const struct recurrence_args *a, uint32_t col, const uint32_t n,
                        const bool delta) {
    float *state = a->state + (size_t)col * a->k_dim;
    v16 d[RECUR_TILES], o[RECUR_TILES], p[RECUR_TILES];
    if (delta && a->n_tokens > 0)
        recur_begin(a, state, n, p);
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        const float *v = a->v + t * a->ldv + col;
        const v16 beta = v16_set(a->beta[t * a->ld_beta]);
        UNROLL
        for (uint32_t j = 0; j < n; j++) {
            v16 own = v16_load_n(v + j * 16, MIN(a->n_cols - col - j * 16, 16u));
            d[j] = v16_tidy(v16_mul(delta ? v16_sub(own, p[j]) : own, beta));
        }
        if (delta && t + 1 < a->n_tokens)
            recur_pass(a, t, state, n, delta, true, d, o, p);
        else
            recur_pass(a, t, state, n, delta, false, d, o, p);
        UNROLL
        for (uint32_t j = 0; j < n; j++)
            v16_store_n(a->o + t * a->ldo + col + j * 16, v16_tidy(o[j]),
                        MIN(a->n_cols - col - j * 16, 16u));
    }
}

static void recur(const struct recurrence_args *a, uint32_t col, uint32_t n) {
    if (n == RECUR_TILES && a->delta)
        recur_tiles(a, col, RECUR_TILES, true);
    else if (n == RECUR_TILES)
        recur_tiles(a, col, RECUR_TILES, false);
    else if (a->delta)
        recur_tiles(a, col, 1, true);
    else
        recur_tiles(a, col, 1, false);
}

static void recurrence(const struct recurrence_args *a) {
    const uint32_t n_tiles = (uint32_t)div_up(a->n_cols, 16);
    for (uint32_t i = 0, n; i < n_tiles; i += n) {
        n = i + RECUR_TILES <= n_tiles ? RECUR_TILES : 1;
        recur(a, i * 16, n);
    }
}

#define RECURRENT_LANES_KERNELS(isa) \
    const struct recurrent_kernels recurrent_##isa = {.conv = conv, .recurrence = recurrence}
