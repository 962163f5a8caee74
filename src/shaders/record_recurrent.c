/* record_recurrent.c: each function of shaders_recurrent.h as runs on the device. */
#include "shaders/record.h"
#include "shaders/shaders_recurrent.h"

static void touches_states(struct shaders *s, const struct shaders_states *states, size_t n) {
    touches_floats(s, states->any, n, states->n_runs);
    touches_floats(s, states->any, n, states->n_runs);
    touches(s, states->runs, states->n_runs, sizeof *states->runs, 1);
}

/* A run on the device takes so many tokens of a step: some drivers end long loops (device.h). */
#define CONV_TOKENS 2048
#define RECURRENCE_ROUNDS 8192 /* of one of its two sums */

void shaders_conv(struct shaders *s, const struct shaders_conv *c,
                  const struct shaders_states *states, bool beside) {
    BUG_ON(c->n_taps < 2 || c->n_taps > CONV_TAPS_MAX);
    struct {
        uint64_t x, w, bias, runs;
        uint32_t ldx, ld_history, state_at, n, n_taps, n_runs, begin, end, silu, unused;
    } push = {at(s, c->x.p),
              at(s, c->w),
              at(s, c->bias),
              at(s, states->runs),
              ld(c->x.ld),
              ld(c->ld_history),
              ld(states->at),
              c->n,
              c->n_taps,
              states->n_runs,
              0,
              0,
              c->silu,
              0};
    const uint32_t groups = (uint32_t)div_up(round_up(c->n, 16), 64);
    touches_floats(s, c->x.p, (size_t)2 * c->n, states->n_tokens);
    touches_floats(s, c->w, c->n, c->n_taps);
    touches_floats(s, c->bias, c->n, 1);
    touches_states(s, states, (size_t)c->n * (c->n_taps - 1));
    for (; push.begin < states->n_tokens; push.begin = push.end) {
        push.end = MIN(push.begin + CONV_TOKENS, states->n_tokens);
        (beside && push.begin == 0 ? device_run_beside : device_run)(
            s->d, s->kernels[SHADER_CONV], &push, sizeof push, groups, states->n_runs, 1);
    }
}

void shaders_recurrent_gates(struct shaders *s, const struct shaders_recurrent_gates *g,
                             struct rows rows, uint32_t n_tokens) {
    struct {
        uint64_t rows, heads, a, bias;
        uint32_t ld, n_heads, n, kind;
        float least;
        uint32_t unused;
    } push = {at(s, rows.p), at(s, g->heads),
              at(s, g->a),   at(s, g->bias),
              ld(rows.ld),   g->n_heads,
              g->n,          g->kind,
              g->least,      0};
    const size_t n = (size_t)g->n_heads * g->n;
    touches_floats(s, rows.p, 2 * (n + g->n_heads), n_tokens);
    touches_floats(s, g->a, g->n_heads, n_tokens);
    touches_floats(s, g->bias, n, n_tokens);
    touches(s, g->heads, g->n_heads, sizeof *g->heads, n_tokens);
    RUN(s, SHADER_RECURRENT_GATES, push, div_up(n, 64), n_tokens);
}

void shaders_recurrence(struct shaders *s, const struct shaders_recurrence *c,
                        const struct shaders_states *states) {
    BUG_ON(c->k_dim > SHADERS_STATE_ROWS);
    struct {
        uint64_t rows, out, runs, heads, d;
        uint32_t ld, ld_out, state_at, head_floats, k_dim, v_dim, q_at, k_at, v_at;
        uint32_t decay_step, delta, n_runs, begin, end;
    } push = {at(s, c->rows.p),
              at(s, c->out.p),
              at(s, states->runs),
              at(s, c->heads),
              at(s, c->d),
              ld(c->rows.ld),
              ld(c->out.ld),
              ld(states->at),
              ld(c->head_floats),
              c->k_dim,
              c->v_dim,
              c->q_at,
              c->k_at,
              c->v_at,
              c->by_channel,
              c->delta,
              states->n_runs,
              0,
              0};
    _Static_assert(sizeof push <= 128, "push constants");
    const uint32_t groups = c->n_heads * (uint32_t)div_up(c->v_dim, 16),
                   n_tokens = MAX(RECURRENCE_ROUNDS / MAX(c->k_dim, 1u), 1u);
    touches_floats(s, c->rows.p, (size_t)c->n_heads * (2 * c->k_dim + c->v_dim + 2),
                   states->n_tokens);
    touches_floats(s, c->out.p, (size_t)c->n_heads * c->v_dim, states->n_tokens);
    touches(s, c->heads, c->n_heads, sizeof *c->heads, states->n_runs);
    touches_floats(s, c->d, c->n_heads, states->n_tokens);
    touches_states(s, states, c->n_heads * c->head_floats);
    for (; push.begin < states->n_tokens; push.begin = push.end) {
        push.end = MIN(push.begin + n_tokens, states->n_tokens);
        RUN(s, SHADER_RECURRENCE, push, groups, states->n_runs);
    }
}
