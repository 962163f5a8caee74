/* recurrent_scalar.c: the definition of recurrent.h's kernels, one channel and one column at a
 * time. It also says which of them belong to which table. */
#include "base/exact.h"
#include "base/util.h"
#include "mixers/isa_family.h"
#include "mixers/recurrent.h"

#include <math.h>

static float silu(float x) {
    return x / (1.0f + exact_exp(-x));
}

static void conv_channel(const struct conv_args *a, uint32_t c) {
    float past[CONV_TAPS_MAX] = {0};
    uint32_t n = a->n_taps - 1; /* of the past */
    bool pad = c >= a->n_channels;
    for (uint32_t j = 0; j < n; j++)
        past[j] = a->history[j * a->ld_history + c];
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        float *x = a->x + t * a->ldx + c;
        float y = a->bias != NULL && !pad ? a->bias[c] : 0.0f;
        past[n] = *x;
        for (uint32_t j = 0; j < a->n_taps; j++)
            y = fmaf(pad ? 0.0f : a->w[(size_t)c * a->n_taps + j], past[j], y);
        *x = exact_tidy(a->silu ? silu(y) : y);
        for (uint32_t j = 0; j < n; j++)
            past[j] = past[j + 1];
    }
    for (uint32_t j = 0; j < n; j++)
        a->history[j * a->ld_history + c] = past[j];
}

static void conv(const struct conv_args *a) {
    for (uint32_t c = 0; c < round_up(a->n_channels, 16); c++)
        conv_channel(a, c);
}

static void recur_column(const struct recurrence_args *a, uint32_t c) {
    float *state = a->state + (size_t)(c / 16) * a->k_dim * 16 + c % 16;
    bool pad = c >= a->n_cols;
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        const float *q = a->q + t * a->ldq, *k = a->k + t * a->ldk;
        const float *decay = a->decay + t * a->ld_decay;
        float d = pad ? 0.0f : a->v[t * a->ldv + c], p = 0.0f, o = 0.0f;
        for (uint32_t i = 0; i < a->k_dim && a->delta; i++)
            p = fmaf(state[(size_t)i * 16] * decay[i * a->decay_step], k[i], p);
        if (a->delta)
            d = d - p;
        d = exact_tidy(d * a->beta[t * a->ld_beta]);
        for (uint32_t i = 0; i < a->k_dim; i++) {
            float *s = state + (size_t)i * 16;
            *s = exact_tidy(fmaf(k[i], d, *s * decay[i * a->decay_step]));
            o = fmaf(*s, q[i], o);
        }
        if (!pad)
            a->o[t * a->ldo + c] = exact_tidy(o);
    }
}

static void recurrence(const struct recurrence_args *a) {
    for (uint32_t c = 0; c < round_up(a->n_cols, 16); c++)
        recur_column(a, c);
}

static const struct recurrent_kernels recurrent_scalar = {.conv = conv,
                                                          .recurrence = recurrence};
extern const struct recurrent_kernels recurrent_avx2, recurrent_avx512, recurrent_neon;

const struct recurrent_kernels *recurrent_kernels_of(const struct kernels *k) {
    return ISA_FAMILY(k, recurrent);
}
