/* The kernels of recurrent layers: every instruction set against the definition for equal bits,
 * whatever the chunks; the definition against the same formulas in double. And which columns of a
 * layer belong to which share. */
#include "kernel_fixture.h"

#include "base/util.h"
#include "mixers/recurrent.h"
#include "weights/plan.h"
#include "weights/recurrent_layout.h"

#include <math.h>
#include <stdlib.h>

/* ---- the convolution ---------------------------------------------------------------------- */

struct conv_case {
    uint32_t n_tokens, n_channels, n_taps;
    bool bias, silu;
    struct buf x, w, b, history;
};

static struct conv_case conv_random(struct random *r) {
    struct conv_case c = {.n_tokens = 1 + random_below(r, 9),
                          .n_channels = 1 + random_below(r, 40),
                          .n_taps = 2 + random_below(r, CONV_TAPS_MAX - 1),
                          .bias = random_below(r, 2),
                          .silu = random_below(r, 2)};
    size_t ld = round_up(c.n_channels, 16);
    c.x = floats_random(r, c.n_tokens * ld, -3, 3);
    c.w = floats_random(r, (size_t)c.n_channels * c.n_taps, -1, 1);
    c.b = floats_random(r, c.n_channels, -1, 1);
    c.history = floats_random(r, (c.n_taps - 1) * ld, -3, 3);
    return c;
}

static void conv_free(struct conv_case *c) {
    buf_free(&c->x);
    buf_free(&c->w);
    buf_free(&c->b);
    buf_free(&c->history);
}

/* Tokens in chunks of `chunk`, in place in x and history. */
static void conv_run(const struct kernels *k, const struct conv_case *c, float *x,
                     float *history, uint32_t chunk) {
    size_t ld = round_up(c->n_channels, 16);
    for (uint32_t t = 0; t < c->n_tokens; t += chunk) {
        const struct conv_args a = {.x = x + t * ld,
                                    .ldx = ld,
                                    .n_tokens = MIN(chunk, c->n_tokens - t),
                                    .n_channels = c->n_channels,
                                    .n_taps = c->n_taps,
                                    .w = (float *)c->w.p,
                                    .bias = c->bias ? (float *)c->b.p : NULL,
                                    .history = history,
                                    .ld_history = ld,
                                    .silu = c->silu};
        recurrent_kernels_of(k)->conv(&a);
    }
}

static struct buf copy_of(const struct buf *b) {
    struct buf c = floats_new(b->n / sizeof(float));
    memcpy(c.p, b->p, b->n);
    return c;
}

static void check_conv(const struct kernels *k, uint64_t seed) {
    struct random r = {.seed = seed};
    struct conv_case c = conv_random(&r);
    struct buf want = copy_of(&c.x), left = copy_of(&c.history);
    conv_run(definition(), &c, (float *)want.p, (float *)left.p, c.n_tokens);
    for (uint32_t chunk = 1; chunk <= c.n_tokens; chunk += 3) {
        struct buf x = copy_of(&c.x), history = copy_of(&c.history);
        conv_run(k, &c, (float *)x.p, (float *)history.p, chunk);
        check_floats((float *)x.p, (float *)want.p, x.n / 4, k->name, "conv", seed);
        check_floats((float *)history.p, (float *)left.p, history.n / 4, k->name,
                     "conv's history", seed);
        buf_free(&x);
        buf_free(&history);
    }
    buf_free(&want);
    buf_free(&left);
    conv_free(&c);
}

static void the_convolution_is_the_formula(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct random r = {.seed = seed};
        struct conv_case c = conv_random(&r);
        size_t ld = round_up(c.n_channels, 16);
        struct buf got = copy_of(&c.x), left = copy_of(&c.history);
        conv_run(definition(), &c, (float *)got.p, (float *)left.p, c.n_tokens);
        for (uint32_t t = 0; t < c.n_tokens; t++)
            for (uint32_t ch = 0; ch < c.n_channels; ch++) {
                double y = c.bias ? (double)((float *)c.b.p)[ch] : 0;
                for (uint32_t j = 0; j < c.n_taps; j++) {
                    uint32_t at = t + j; /* counted from the history's first */
                    const float *x = at < c.n_taps - 1
                                         ? (float *)c.history.p + at * ld
                                         : (float *)c.x.p + (at - (c.n_taps - 1)) * ld;
                    y += (double)((float *)c.w.p)[ch * c.n_taps + j] * (double)x[ch];
                }
                if (c.silu)
                    y = y / (1 + exp(-y));
                /* 9 roundings of sums up to 25, and exp's ulp */
                assert_true(fabs(y - (double)((float *)got.p)[t * ld + ch]) < 1e-4);
            }
        buf_free(&got);
        buf_free(&left);
        conv_free(&c);
    }
}

/* ---- the recurrence ------------------------------------------------------------------------ */

struct recur_case {
    uint32_t n_tokens, k_dim, n_cols;
    bool delta, per_channel;
    struct buf q, k, v, decay, beta, s;
};

static struct recur_case recur_random(struct random *r) {
    struct recur_case c = {.n_tokens = 1 + random_below(r, 7),
                           .k_dim = 1 + random_below(r, 40),
                           .n_cols = 1 + random_below(r, 100),
                           .delta = random_below(r, 2),
                           .per_channel = random_below(r, 2)};
    size_t n = c.n_tokens;
    float unit = 1.0f / sqrtf((float)c.k_dim); /* keys are as long as 1 at most */
    c.q = floats_random(r, n * c.k_dim, -unit, unit);
    c.k = floats_random(r, n * c.k_dim, -unit, unit);
    c.v = floats_random(r, n * c.n_cols, -2, 2);
    c.decay = floats_random(r, n * c.k_dim, 0.2f, 1);
    c.beta = floats_random(r, n, 0, 1);
    c.s = floats_random(r, round_up(c.n_cols, 16) * c.k_dim, -1, 1);
    for (uint32_t col = c.n_cols; col < round_up(c.n_cols, 16); col++)
        for (uint32_t i = 0; i < c.k_dim; i++)
            ((float *)c.s.p)[(col / 16 * c.k_dim + i) * 16 + col % 16] = 0;
    return c;
}

static void recur_free(struct recur_case *c) {
    struct buf *all[] = {&c->q, &c->k, &c->v, &c->decay, &c->beta, &c->s};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_free(all[i]);
}

static void recur_run(const struct kernels *k, const struct recur_case *c, float *s, float *o,
                      uint32_t chunk) {
    for (uint32_t t = 0; t < c->n_tokens; t += chunk) {
        const struct recurrence_args a = {
            .n_tokens = MIN(chunk, c->n_tokens - t),
            .k_dim = c->k_dim,
            .n_cols = c->n_cols,
            .delta = c->delta,
            .q = (float *)c->q.p + (size_t)t * c->k_dim,
            .k = (float *)c->k.p + (size_t)t * c->k_dim,
            .v = (float *)c->v.p + (size_t)t * c->n_cols,
            .ldq = c->k_dim,
            .ldk = c->k_dim,
            .ldv = c->n_cols,
            .decay = (float *)c->decay.p + (size_t)t * c->k_dim,
            .decay_step = c->per_channel,
            .ld_decay = c->k_dim,
            .beta = (float *)c->beta.p + t,
            .ld_beta = 1,
            .state = s,
            .o = o + (size_t)t * c->n_cols,
            .ldo = c->n_cols,
        };
        recurrent_kernels_of(k)->recurrence(&a);
    }
}

static void check_recurrence(const struct kernels *k, uint64_t seed) {
    struct random r = {.seed = seed};
    struct recur_case c = recur_random(&r);
    struct buf left = copy_of(&c.s), want = copy_of(&c.v);
    recur_run(definition(), &c, (float *)left.p, (float *)want.p, c.n_tokens);
    for (uint32_t chunk = 1; chunk <= c.n_tokens; chunk += 3) {
        struct buf s = copy_of(&c.s), o = copy_of(&c.v);
        recur_run(k, &c, (float *)s.p, (float *)o.p, chunk);
        check_floats((float *)o.p, (float *)want.p, o.n / 4, k->name, "recurrence", seed);
        check_floats((float *)s.p, (float *)left.p, s.n / 4, k->name, "its state", seed);
        buf_free(&s);
        buf_free(&o);
    }
    buf_free(&left);
    buf_free(&want);
    recur_free(&c);
}

/* One column of a case, in double: S [k_dim] in and out, o [n_tokens] out. */
static void column_in_double(const struct recur_case *c, uint32_t col, double *s, double *o) {
    for (uint32_t t = 0; t < c->n_tokens; t++) {
        const float *q = (float *)c->q.p + (size_t)t * c->k_dim,
                    *k = (float *)c->k.p + (size_t)t * c->k_dim,
                    *decay = (float *)c->decay.p + (size_t)t * c->k_dim;
        double p = 0, d = (double)((float *)c->v.p)[t * c->n_cols + col];
        for (uint32_t i = 0; i < c->k_dim; i++) {
            s[i] *= (double)decay[c->per_channel ? i : 0];
            p += s[i] * (double)k[i];
        }
        d = (c->delta ? d - p : d) * (double)((float *)c->beta.p)[t];
        o[t] = 0;
        for (uint32_t i = 0; i < c->k_dim; i++) {
            s[i] += (double)k[i] * d;
            o[t] += s[i] * (double)q[i];
        }
    }
}

static void the_recurrence_is_the_formula(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct random r = {.seed = seed};
        struct recur_case c = recur_random(&r);
        struct buf s = copy_of(&c.s), o = copy_of(&c.v);
        recur_run(definition(), &c, (float *)s.p, (float *)o.p, c.n_tokens);
        for (uint32_t col = 0; col < c.n_cols; col++) {
            double own[64], out[8];
            for (uint32_t i = 0; i < c.k_dim; i++)
                own[i] = (double)((float *)c.s.p)[(col / 16 * c.k_dim + i) * 16 + col % 16];
            column_in_double(&c, col, own, out);
            /* 7 tokens of sums of 40 terms below 1: 280 roundings of 6e-8 */
            for (uint32_t t = 0; t < c.n_tokens; t++)
                assert_true(fabs(out[t] - (double)((float *)o.p)[t * c.n_cols + col]) < 2e-5);
        }
        buf_free(&s);
        buf_free(&o);
        recur_free(&c);
    }
}

static void every_isa_gives_the_bits_of_the_definition(void **state) {
    (void)state;
    isa_or_skip();
    FOR_EACH_ISA(k)
    for (uint64_t seed = 0; seed < 60; seed++) {
        check_conv(k, seed);
        check_recurrence(k, seed);
    }
}

/* ---- shares --------------------------------------------------------------------------------- */

/* Every head of the model is in one share, every channel of the convolution in at least one, and
 * nothing overlaps in a row. */
static void check_shares(const struct hparams *hp, const uint32_t *bounds, int n) {
    static uint8_t heads[64], channels[4096];
    memset(heads, 0, sizeof heads);
    memset(channels, 0, sizeof channels);
    for (int m = 0; m < n; m++) {
        const struct share sh = {.unit_begin = bounds[m], .unit_end = bounds[m + 1]};
        struct recurrent_layout lay;
        recurrent_lay_out(&lay, hp, &sh);
        for (uint32_t i = 0; i < lay.n_heads; i++) {
            struct recurrent_head h = recurrent_head_of(hp, &lay, i);
            heads[h.head]++;
            assert_true(h.group < lay.n_groups);
            assert_true(h.at + hp->recurrent.v_dim <= lay.n_pieces * lay.piece_stride);
            uint32_t per = hp->recurrent.n_heads / hp->recurrent.n_groups;
            assert_int_equal(h.group + lay.first_group, hp->recurrent.tiled
                                                            ? h.head % hp->recurrent.n_groups
                                                            : h.head / per);
        }
        for (uint32_t i = 0; i < lay.n_parts; i++) {
            const struct conv_part *p = &lay.parts[i];
            assert_int_equal(p->at % TILE_ROWS, 0);
            assert_true(p->at + p->n <= lay.ld_history);
            assert_true(i == 0 || p->at >= p[-1].at + p[-1].n || p->at + p->n <= p[-1].at);
            memset(channels + p->channel, 1, p->n);
        }
    }
    const struct recurrent_params *r = &hp->recurrent;
    for (uint32_t h = 0; h < r->n_heads; h++)
        assert_int_equal(heads[h], 1);
    for (uint32_t c = 0; c < 2 * r->n_groups * r->k_dim + r->n_heads * r->v_dim; c++)
        assert_int_equal(channels[c], 1);
}

static void shares_hold_every_head_once(void **state) {
    (void)state;
    static const uint32_t bounds[] = {0, 1, 1, 4, 6};
    static const enum recurrent_kind kinds[] = {RECURRENT_DELTA, RECURRENT_DELTA,
                                                RECURRENT_MAMBA2};
    static struct hparams hp;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        hp.recurrent = (struct recurrent_params){.kind = kinds[i],
                                                 .n_taps = 4,
                                                 .n_groups = i == 2 ? 2 : 6,
                                                 .n_heads = i == 2 ? 6 : 18,
                                                 .k_dim = 12,
                                                 .v_dim = 20,
                                                 .tiled = i == 1};
        check_shares(&hp, bounds, 4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_convolution_is_the_formula),
        cmocka_unit_test(the_recurrence_is_the_formula),
        cmocka_unit_test(every_isa_gives_the_bits_of_the_definition),
        cmocka_unit_test(shares_hold_every_head_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
