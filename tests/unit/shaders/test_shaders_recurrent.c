/* The shaders of recurrent layers: every function of shaders_recurrent.h against the scalar
 * definition for equal bits, on a device with and without what it may lack.
 * labels: slow */
#include "shaders_fixture.h"

#include "base/rng.h"
#include "shaders/definition.h"
#include "shaders/shaders_recurrent.h"

/* A run from zero that takes the device several times, one that goes on from it, one from a state
 * that is there; and runs of a token each. */
enum { RUN_TOKENS = 190, SLOTS = 4, RUNS = 3 };
#define FROM_ZERO UINT32_MAX
struct run {
    uint32_t first, n_tokens, from, to; /* slots */
};
static const struct run long_runs[RUNS] = {
    {0, 100, FROM_ZERO, 0}, {100, 70, 0, 1}, {170, 20, 2, 2}};
static const struct run short_runs[RUNS] = {{0, 1, 3, 3}, {1, 1, 2, 0}, {2, 1, FROM_ZERO, 1}};

struct recurrent_case {
    const struct run *runs;
    uint32_t n_tokens;
};
static const struct recurrent_case recurrent_cases[] = {{long_runs, RUN_TOKENS},
                                                        {short_runs, 3}};

/* Slots are ld apart; the states begin some floats before what is looked at. */
static struct shaders_states take_states(struct on *on, const struct recurrent_case *c,
                                         const float *p, size_t ld) {
    enum { BEFORE = 12 };
    const float *first = p - BEFORE;
    struct shaders_run *runs = take(on, RUNS * sizeof *runs);
    for (int i = 0; i < RUNS; i++) {
        const struct run *run = &c->runs[i];
        runs[i] = (struct shaders_run){
            run->first, run->n_tokens,
            run->from != FROM_ZERO ? device_address(on->d, first + run->from * ld) : 0,
            device_address(on->d, first + run->to * ld)};
    }
    return (struct shaders_states){p, BEFORE, runs, RUNS, c->n_tokens};
}

/* The state that a run of the definition goes on from, where its new one is to be. */
static float *begin_state(float *states, size_t ld, const struct run *run) {
    float *to = states + run->to * ld;
    if (run->from == FROM_ZERO)
        memset(to, 0, ld * sizeof *to);
    else
        memmove(to, states + run->from * ld, ld * sizeof *to);
    return to;
}

static void check_conv(struct on *on, const struct recurrent_case *c, uint32_t n,
                       uint32_t taps) {
    const size_t pitch = round_up(n, 16), ldx = pitch + 3, ld_history = pitch + 16,
                 ld = (taps - 1) * ld_history, n_x = c->n_tokens * ldx;
    const bool silu = taps != 3;
    float *x = take_floats(on, n_x, n), *w = take_floats(on, (size_t)n * taps, 2);
    float *states = take_floats(on, SLOTS * ld, 3), *bias = silu ? take_floats(on, n, 4) : NULL;
    float *want = take_copy(on, x, n_x * sizeof *x);
    float *want_states = take_copy(on, states, SLOTS * ld * sizeof *x);
    for (int i = 0; i < RUNS; i++) {
        const struct run *run = &c->runs[i];
        float *history = begin_state(want_states, ld, run);
        const struct conv_args args = {want + run->first * ldx,
                                       ldx,
                                       run->n_tokens,
                                       n,
                                       taps,
                                       w,
                                       bias,
                                       history,
                                       ld_history,
                                       silu};
        recurrent_kernels_of(definition())->conv(&args);
    }
    const struct shaders_states to = take_states(on, c, states, ld);
    const struct shaders_conv conv = {{x, ldx}, w, bias, ld_history, n, taps, silu};
    shaders_conv(on->s, &conv, &to, false);
    finish(on);
    compare(on, x, want, n_x, "convolution");
    for (size_t slot = 0; slot < SLOTS;
         slot++) /* the definition has copied what lies beside it */
        for (size_t j = 0; j + 1 < taps; j++) {
            const size_t at = slot * ld + j * ld_history;
            compare(on, states + at, want_states + at, pitch, "history");
        }
}

/* Three heads that read one key; rows of q, k, values, betas, decays. */
enum { N_HEADS = 3 };

static struct shaders_recurrence take_recurrence(struct on *on, uint32_t k_dim, uint32_t v_dim,
                                                 bool by_channel, bool delta) {
    struct shaders_recurrent_head *heads = take(on, N_HEADS * sizeof *heads);
    const uint32_t betas = 2 * k_dim + N_HEADS * v_dim, decays = betas + N_HEADS;
    for (uint32_t h = 0; h < N_HEADS; h++)
        heads[h] =
            (struct shaders_recurrent_head){h, 0, h * v_dim, betas + h, decays + h * k_dim};
    return (struct shaders_recurrence){.rows.ld = decays + N_HEADS * k_dim,
                                       .out.ld = N_HEADS * v_dim + 1,
                                       .heads = heads,
                                       .n_heads = N_HEADS,
                                       .k_dim = k_dim,
                                       .v_dim = v_dim,
                                       .k_at = k_dim,
                                       .v_at = 2 * k_dim,
                                       .head_floats = k_dim * round_up(v_dim, 16),
                                       .by_channel = by_channel,
                                       .delta = delta};
}

static void recur_as_defined(const struct shaders_recurrence *r, const struct run *run,
                             float *state, float *out) {
    const size_t ld = r->rows.ld;
    const float *row = r->rows.p + run->first * ld;
    for (uint32_t h = 0; h < N_HEADS; h++) {
        const struct shaders_recurrent_head *head = &r->heads[h];
        const struct recurrence_args args = {.n_tokens = run->n_tokens,
                                             .k_dim = r->k_dim,
                                             .n_cols = r->v_dim,
                                             .delta = r->delta,
                                             .q = row + r->q_at,
                                             .k = row + r->k_at,
                                             .v = row + r->v_at + head->at,
                                             .ldq = ld,
                                             .ldk = ld,
                                             .ldv = ld,
                                             .decay = row + head->decay,
                                             .decay_step = r->by_channel,
                                             .ld_decay = ld,
                                             .beta = row + head->beta,
                                             .ld_beta = ld,
                                             .state = state + h * r->head_floats,
                                             .o = out + run->first * r->out.ld + h * r->v_dim,
                                             .ldo = r->out.ld};
        recurrent_kernels_of(definition())->recurrence(&args);
        for (uint32_t i = 0; i < run->n_tokens && r->d != NULL; i++)
            mamba2_skip(out + (run->first + i) * r->out.ld + h * r->v_dim,
                        row + i * ld + r->v_at + head->at, r->d[h], r->v_dim);
    }
}

static void check_recurrence(struct on *on, const struct recurrent_case *c, uint32_t k_dim,
                             uint32_t v_dim, bool by_channel, bool delta) {
    struct shaders_recurrence r = take_recurrence(on, k_dim, v_dim, by_channel, delta);
    const size_t n_state = N_HEADS * r.head_floats, ld = n_state + 16,
                 n_x = c->n_tokens * r.rows.ld, n_out = c->n_tokens * r.out.ld;
    float *x = r.rows.p = take(on, n_x * sizeof *x),
          *got = r.out.p = take(on, n_out * sizeof *x);
    float *states = take(on, SLOTS * ld * sizeof *x);
    r.d = delta ? NULL : take_floats(on, N_HEADS, 5);
    samples_mild(x, n_x, k_dim);
    samples_mild(states, SLOTS * ld, v_dim);
    for (size_t i = 0; i < n_x; i++) /* as it comes, and so that sums stay finite */
        x[i] = not_less(x[i] * 0.1f);
    memset(got, 0, n_out * sizeof *got);
    float *want = take_copy(on, got, n_out * sizeof *got);
    float *want_states = take_copy(on, states, SLOTS * ld * sizeof *x);
    for (int i = 0; i < RUNS; i++)
        recur_as_defined(&r, &c->runs[i], begin_state(want_states, ld, &c->runs[i]), want);
    const struct shaders_states to = take_states(on, c, states, ld);
    shaders_recurrence(on->s, &r, &to);
    finish(on);
    compare(on, got, want, n_out, "recurrence");
    for (size_t slot = 0; slot < SLOTS; slot++)
        compare(on, states + slot * ld, want_states + slot * ld, n_state, "states");
}

/* Softplus over all that it tells apart, which the device computes with integers. */
static void check_gates(struct on *on, enum shaders_gates kind, uint64_t seed) {
    enum { HEADS = 500, N = 40, LD = HEADS * (N + 1) };
    const uint32_t n = kind == GATES_MAMBA2 ? 1 : N;
    const float least = kind == GATES_DELTA ? 0.0f : -5.0f;
    struct shaders_recurrent_head *heads = take(on, HEADS * sizeof *heads);
    float *a = take_floats(on, HEADS, seed), *x = take(on, LD * sizeof *x);
    float *bias = take(on, (size_t)HEADS * N * sizeof *bias);
    for (uint32_t i = 0; i < LD; i++)
        x[i] = (float)(rng_uniform(seed, i) * 107 - 82);
    for (uint32_t i = 0; i < HEADS * N; i++)
        bias[i] = (float)rng_uniform(seed, LD + i);
    float *want = take_copy(on, x, LD * sizeof *x);
    for (uint32_t h = 0; h < HEADS; h++) {
        heads[h] = (struct shaders_recurrent_head){h, 0, 0, HEADS * N + h, h * N};
        a[h] = h % 2 == 0 ? 1.0f : a[h];
        float *beta = want + heads[h].beta, *decay = want + heads[h].decay;
        if (kind == GATES_MAMBA2)
            mamba2_gates(beta, decay, bias[h], a[h]);
        else
            delta_gates(beta, decay, bias + h * n, n, a[h], least);
    }
    const struct shaders_recurrent_gates gates = {kind, heads, HEADS, n, a, bias, least};
    shaders_recurrent_gates(on->s, &gates, (struct rows){x, LD}, 1);
    finish(on);
    compare(on, x, want, LD, "gates of a recurrence");
    on->used = 0;
}

static void recurrent_layers_are_alike(void **state) {
    (void)state;
    FOR_EACH_DEVICE(on)
    for (size_t i = 0; i < ARRAY_LEN(recurrent_cases); i++) {
        const struct recurrent_case *c = &recurrent_cases[i];
        check_conv(on, c, 70, 4);
        check_conv(on, c, 16, 3);
        check_conv(on, c, 1, 2);
        check_recurrence(on, c, SHADERS_STATE_ROWS, 40, false, true);
        check_recurrence(on, c, 17, 16, true, true);
        check_recurrence(on, c, 16, 5, false, false);
        on->used = 0;
        for (int kind = GATES_DELTA; kind <= GATES_MAMBA2; kind++)
            check_gates(on, (enum shaders_gates)kind, 2 * (uint64_t)kind + i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recurrent_layers_are_alike),
    };
    return device_is_testable() ? cmocka_run_group_tests(tests, open_all, close_all) : 77;
}
