/* rope_table.c: The angles of RoPE, with each way of scaling. */
#include "arch/rope_table.h"

#include "base/exact.h"
#include "base/util.h"

#include <math.h>

#define PI 3.14159265358979323846

/* The pair (as a real number) that turns `turns` times within the trained context. */
static double pair_of_turns(const struct rope_params *p, double turns) {
    return (double)p->n_rot * exact_log64((double)p->n_ctx_orig / (turns * 2.0 * PI)) /
           (2.0 * exact_log64((double)p->base));
}

/* 1 where a pair turns so often that it keeps its frequency, 0 where it is interpolated. */
static double yarn_keep(const struct rope_params *p, uint32_t pair) {
    double low = pair_of_turns(p, (double)p->beta_fast);
    double high = pair_of_turns(p, (double)p->beta_slow);
    if (!p->yarn_between) {
        low = floor(low);
        high = ceil(high);
    }
    low = MAX(low, 0.0);
    high = MIN(high, (double)p->n_rot - 1.0);
    double y = ((double)pair - low) / MAX(high - low, 0.001);
    return 1.0 - MIN(MAX(y, 0.0), 1.0);
}

/* exact_sincos64's domain. NaN is outside. */
#define RADIANS_MAX 0x1p30

static enum status check_freq(double freq, uint32_t n_ctx, uint32_t pair, struct err *err) {
    if (freq >= 0.0 && freq * (double)n_ctx <= RADIANS_MAX)
        return ST_OK;
    return err_set(err, ST_BAD_INPUT,
                   "RoPE's base, factors and scaling turn pair %u of a head by %g radians a "
                   "position, in a context of %u: expected 0 to %g",
                   pair, freq, n_ctx, RADIANS_MAX / (double)n_ctx);
}

enum status rope_table_freqs(const struct rope_params *p, const float *factors, uint32_t n_ctx,
                             double *freqs, float *scale, struct err *err) {
    uint32_t n_pairs = p->n_rot / 2;
    double log_base = exact_log64((double)p->base);
    for (uint32_t i = 0; i < n_pairs; i++) {
        double f = exact_exp64(-log_base * (2.0 * (double)i / (double)p->n_rot));
        if (factors != NULL)
            f /= (double)factors[i];
        double slow = f / (double)p->factor;
        if (p->scaling == ROPE_SCALING_LINEAR) {
            f = slow;
        } else if (p->scaling == ROPE_SCALING_YARN) {
            double keep = yarn_keep(p, i);
            f = slow * (1.0 - keep) + f * keep;
        }
        TRY(check_freq(f, n_ctx, i, err));
        freqs[i] = f;
    }
    double by = p->yarn_scales ? 1.0 + 0.1 * exact_log64((double)p->factor) : 1.0;
    *scale = (float)((double)p->attn_factor * by);
    return ST_OK;
}

void rope_table_at(const double *freqs, uint32_t n_pairs, float scale, uint32_t pos, float *cos,
                   float *sin) {
    for (uint32_t i = 0; i < n_pairs; i++) {
        double s, c;
        exact_sincos64((double)pos * freqs[i], &s, &c);
        cos[i] = exact_tidy((float)c * scale);
        sin[i] = exact_tidy((float)s * scale);
    }
}
