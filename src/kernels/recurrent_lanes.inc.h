/* recurrent_lanes.inc.h: recurrent.h's kernels, written once for sixteen lanes. An ISA file
 * includes its v16_*.h, then this. */
#include "base/util.h"
#include "kernels/recurrent.h"
#include "kernels/v16_exp.inc.h"

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
        v16_store(x, a->silu ? v16_silu(y) : y);
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

/* Columns side by side, so that one's sum need not wait for the last product's. */
#define RECUR_TILES 4

/* n tiles of 16 columns from `col` on; n is a constant of the caller's. */
INLINE void recur_tiles(const struct recurrence_args *a, uint32_t col, const uint32_t n) {
    const size_t k_dim = a->k_dim, tile = k_dim * 16;
    float *state = a->state + col * k_dim;
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        const float *q = a->q + t * a->ldq, *k = a->k + t * a->ldk,
                    *v = a->v + t * a->ldv + col;
        const float *decay = a->decay + t * a->ld_decay;
        const v16 beta = v16_set(a->beta[t * a->ld_beta]);
        v16 d[RECUR_TILES], o[RECUR_TILES];
        UNROLL
        for (uint32_t j = 0; j < n; j++)
            d[j] = o[j] = v16_zero();
        for (size_t i = 0; i < k_dim && a->delta; i++) {
            const v16 by = v16_set(decay[i * a->decay_step]), ki = v16_set(k[i]);
            UNROLL
            for (uint32_t j = 0; j < n; j++)
                d[j] = v16_fma(v16_mul(v16_load(state + j * tile + i * 16), by), ki, d[j]);
        }
        UNROLL
        for (uint32_t j = 0; j < n; j++) {
            v16 own = v16_load_n(v + j * 16, MIN(a->n_cols - col - j * 16, 16u));
            d[j] = v16_mul(a->delta ? v16_sub(own, d[j]) : own, beta);
        }
        for (size_t i = 0; i < k_dim; i++) {
            const v16 by = v16_set(decay[i * a->decay_step]);
            const v16 ki = v16_set(k[i]), qi = v16_set(q[i]);
            UNROLL
            for (uint32_t j = 0; j < n; j++) {
                float *at = state + j * tile + i * 16;
                v16 s = v16_fma(ki, d[j], v16_mul(v16_load(at), by));
                v16_store(at, s);
                o[j] = v16_fma(s, qi, o[j]);
            }
        }
        UNROLL
        for (uint32_t j = 0; j < n; j++)
            v16_store_n(a->o + t * a->ldo + col + j * 16, o[j],
                        MIN(a->n_cols - col - j * 16, 16u));
    }
}

static void recurrence(const struct recurrence_args *a) {
    const uint32_t n_tiles = (uint32_t)div_up(a->n_cols, 16);
    uint32_t i = 0;
    for (; i + RECUR_TILES <= n_tiles; i += RECUR_TILES)
        recur_tiles(a, i * 16, RECUR_TILES);
    for (; i < n_tiles; i++)
        recur_tiles(a, i * 16, 1);
}

#define RECURRENT_LANES_KERNELS(isa) \
    const struct recurrent_kernels recurrent_##isa = {.conv = conv, .recurrence = recurrence}
