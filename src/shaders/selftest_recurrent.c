/* selftest_recurrent.c: the self-test of recurrent layers' kernels. */
#include "shaders/definition.h"
#include "shaders/selftest.h"
#include "shaders/shaders_recurrent.h"

/* From zero, on from that, and from a state that is there. */
enum { RUNS = 3, RUN_TOKENS = 7, SLOTS = 4 };
#define FROM_ZERO UINT32_MAX
static const struct run {
    uint32_t first, n_tokens, from, to; /* slots */
} some_runs[RUNS] = {{0, 3, FROM_ZERO, 1}, {3, 1, 1, 0}, {4, 3, 3, 2}};

/* Slots are ld apart. */
static struct shaders_states take_states(struct test *t, float *p, size_t ld) {
    struct shaders_run *runs = take(t, RUNS * sizeof *runs);
    for (int i = 0; i < RUNS; i++) {
        const struct run *run = &some_runs[i];
        runs[i] = (struct shaders_run){
            run->first, run->n_tokens,
            run->from != FROM_ZERO ? device_address(t->s->d, p + run->from * ld) : 0,
            device_address(t->s->d, p + run->to * ld)};
    }
    return (struct shaders_states){p, 0, runs, RUNS, RUN_TOKENS};
}

/* The state that a run of the definition goes on from, where its new one is to be. */
static float *begin_state(float *states, size_t ld, const struct run *run) {
    float *to = states + run->to * ld;
    if (run->from == FROM_ZERO)
        memset(to, 0, ld * sizeof *to);
    else
        memcpy(to, states + run->from * ld, ld * sizeof *to);
    return to;
}

enum status test_conv(struct test *t, struct err *err) {
    enum { N = 41, LD = 48, X = RUN_TOKENS * LD };
    const struct recurrent_kernels *k = recurrent_kernels_of(t->definition);
    test_begin(t, shader_name(SHADER_CONV));
    for (uint32_t taps = 3; taps <= CONV_TAPS_MAX; taps += 5) {
        const size_t ld = (taps - 1) * LD;
        const bool silu = taps != 3;
        float *x = take_floats(t, X, taps), *w = take(t, N * taps * sizeof *w);
        float *states = take(t, SLOTS * ld * sizeof *states);
        float *bias = silu ? take_floats(t, N, 101) : NULL;
        samples_mild(x, X - LD, taps); /* but for the last token's huge values */
        samples_mild(w, N * taps, 102);
        samples_mild(states, SLOTS * ld, 103);
        float *want = take_copy(t, x, X * sizeof *x);
        float *want_states = take_copy(t, states, SLOTS * ld * sizeof *states);
        const struct shaders_states to = take_states(t, states, ld);
        const struct shaders_conv conv = {{x, LD}, w, bias, LD, N, taps, silu};
        for (uint32_t i = 0; i < RUNS; i++) {
            const struct run *run = &some_runs[i];
            float *history = begin_state(want_states, ld, run);
            k->conv(&(struct conv_args){want + (size_t)run->first * LD, LD, run->n_tokens, N,
                                        taps, w, bias, history, LD, silu});
        }
        shaders_conv(t->s, &conv, &to, false);
        expect_floats(t, x, want, X);
        expect_floats(t, states, want_states, SLOTS * ld);
    }
    return test_end(t, err);
}

/* Of softplus all that it tells apart: below -80, its series below -12, then up to 20. */
enum status test_recurrent_gates(struct test *t, struct err *err) {
    enum { HEADS_ALL = 40, N = 12, LD = HEADS_ALL * (N + 1), TOKENS = 3, ALL = TOKENS * LD };
    static const uint32_t per_head[] = {1, N, 1};
    test_begin(t, shader_name(SHADER_RECURRENT_GATES));
    struct shaders_recurrent_head *heads = take(t, HEADS_ALL * sizeof *heads);
    float *a = take(t, HEADS_ALL * sizeof *a), *bias = take(t, HEADS_ALL * N * sizeof *bias);
    samples_mild(a, HEADS_ALL, 110);
    samples_mild(bias, HEADS_ALL * N, 111);
    for (uint32_t h = 0; h < HEADS_ALL; h++)
        heads[h] = (struct shaders_recurrent_head){
            .head = HEADS_ALL - 1 - h, .beta = HEADS_ALL * N + h, .decay = h * N};
    for (int kind = GATES_DELTA; kind <= GATES_MAMBA2; kind++) {
        const uint32_t n = per_head[kind];
        float *got = take(t, ALL * sizeof *got);
        for (size_t i = 0; i < ALL; i++)
            got[i] = (float)i * (110.0f / ALL) - 85.0f;
        samples_floats(got + LD, LD / 2, 112);
        got[0] = NAN, got[N] = INFINITY, got[2 * N] = -INFINITY, got[LD] = -got[0];
        float *want = take_copy(t, got, ALL * sizeof *got);
        for (size_t i = 0; i < TOKENS * HEADS_ALL; i++) {
            const struct shaders_recurrent_head *h = &heads[i % HEADS_ALL];
            float *row = want + i / HEADS_ALL * LD;
            if (kind == GATES_MAMBA2)
                mamba2_gates(row + h->beta, row + h->decay, bias[h->head], a[h->head]);
            else
                delta_gates(row + h->beta, row + h->decay, bias + h->head * n, n, a[h->head],
                            kind == GATES_DELTA ? 0.0f : -5.0f);
        }
        const struct shaders_recurrent_gates gates = {
            (enum shaders_gates)kind, heads, HEADS_ALL, n, a, bias, -5.0f};
        shaders_recurrent_gates(t->s, &gates, (struct rows){got, LD}, TOKENS);
        expect_floats(t, got, want, ALL);
    }
    return test_end(t, err);
}

/* Of two heads. Each key channel of the delta net decays by itself; without one, results get their
 * values, too. */
static void recur_head(const struct recurrent_kernels *k, const struct shaders_recurrence *c,
                       const struct run *run, uint32_t h, float *state, float *out) {
    const float *row = c->rows.p + run->first * c->rows.ld;
    const struct shaders_recurrent_head *head = &c->heads[h];
    k->recurrence(&(struct recurrence_args){.n_tokens = run->n_tokens,
                                            .k_dim = c->k_dim,
                                            .n_cols = c->v_dim,
                                            .delta = c->delta,
                                            .q = row + c->q_at + head->group * c->k_dim,
                                            .k = row + c->k_at + head->group * c->k_dim,
                                            .v = row + c->v_at + head->at,
                                            .ldq = c->rows.ld,
                                            .ldk = c->rows.ld,
                                            .ldv = c->rows.ld,
                                            .decay = row + head->decay,
                                            .decay_step = c->by_channel,
                                            .ld_decay = c->rows.ld,
                                            .beta = row + head->beta,
                                            .ld_beta = c->rows.ld,
                                            .state = state + h * c->head_floats,
                                            .o = out + run->first * c->out.ld + h * c->v_dim,
                                            .ldo = c->out.ld});
    for (uint32_t i = 0; i < run->n_tokens && c->d != NULL; i++)
        mamba2_skip(out + (run->first + i) * c->out.ld + h * c->v_dim,
                    row + i * c->rows.ld + c->v_at + head->at, c->d[head->head], c->v_dim);
}

enum status test_recurrence(struct test *t, struct err *err) {
    enum { K = 21, V = 20, HEADS_ALL = 2, AT = 4 * K, LD = 200, X = RUN_TOKENS * LD };
    const size_t head_floats = (size_t)K * 32, n_states = SLOTS * HEADS_ALL * head_floats,
                 n_out = (size_t)RUN_TOKENS * HEADS_ALL * V;
    test_begin(t, shader_name(SHADER_RECURRENCE));
    struct shaders_recurrent_head *heads = take(t, HEADS_ALL * sizeof *heads);
    for (uint32_t h = 0; h < HEADS_ALL; h++)
        heads[h] = (struct shaders_recurrent_head){
            .head = h, .group = h, .at = h * V, .beta = 130 + h, .decay = 140 + h * K};
    for (int delta = 0; delta < 2; delta++) {
        float *rows = take(t, X * sizeof *rows), *got = take(t, n_out * sizeof *got);
        float *states = take(t, n_states * sizeof *states),
              *want = take(t, n_out * sizeof *got);
        samples_mild(rows, X, 120);
        samples_mild(states, n_states, 121);
        for (size_t i = 0; i < X; i++) /* as what comes before it leaves them */
            rows[i] = not_less(rows[i] * 0.5f);
        rows[X - LD + AT] = NAN; /* of the last token */
        const struct shaders_recurrence c = {.rows = {rows, LD},
                                             .out = {got, HEADS_ALL * V},
                                             .heads = heads,
                                             .n_heads = HEADS_ALL,
                                             .k_dim = K,
                                             .v_dim = V,
                                             .k_at = 2 * K,
                                             .v_at = AT,
                                             .head_floats = head_floats,
                                             .by_channel = delta != 0,
                                             .delta = delta != 0,
                                             .d = delta != 0 ? NULL : rows + 3};
        float *want_states = take_copy(t, states, n_states * sizeof *states);
        const size_t ld = HEADS_ALL * head_floats;
        const struct shaders_states to = take_states(t, states, ld);
        for (uint32_t i = 0; i < RUNS; i++) {
            float *state = begin_state(want_states, ld, &some_runs[i]);
            for (uint32_t h = 0; h < HEADS_ALL; h++)
                recur_head(recurrent_kernels_of(t->definition), &c, &some_runs[i], h, state,
                           want);
        }
        shaders_recurrence(t->s, &c, &to);
        expect_floats(t, got, want, n_out);
        expect_floats(t, states, want_states, n_states);
    }
    return test_end(t, err);
}
