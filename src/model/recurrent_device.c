/* recurrent_device.c: records recurrent layers on the rank's device (on_device.h). */
#include "model/on_device.h"
#include "shaders/shaders_recurrent.h"

bool recurrent_is_on_device(const struct hparams *hp) {
    return hp->recurrent.k_dim <= SHADERS_STATE_ROWS;
}

/* 0: this rank has no heads, so nothing of a state. */
static uint64_t state_address(const struct model *m, uint32_t slot) {
    const struct recurrent_states *s = &m->states;
    return s->data != NULL
               ? device_address(shaders_device(m->shaders), s->data + slot * s->slot_floats)
               : 0;
}

/* The microbatch's runs: what a step has recorded before is of the same. */
static struct shaders_states states_of(const struct forward_pass *r,
                                       const struct recurrent_weights *w) {
    const struct model *m = r->m;
    const struct recurrent_states *s = &m->states;
    uint32_t first = 0;
    for (uint32_t i = 0; i < r->step->n_runs; i++) {
        const struct step_run *run = &r->step->runs[i];
        m->recurrent.runs[i] = (struct shaders_run){
            first, run->n_tokens, run->pos != 0 ? state_address(m, run->state_from) : 0,
            state_address(m, run->state)};
        first += run->n_tokens;
    }
    return (struct shaders_states){s->data, w->index * m->recurrent.lay.layer_floats,
                                   m->recurrent.runs, r->step->n_runs, r->step->n_tokens};
}

static void record_conv(const struct model *m, const struct recurrent_weights *w,
                        const struct shaders_states *states) {
    const struct recurrent_layout *lay = &m->recurrent.lay;
    const uint32_t n_taps = m->hp->recurrent.n_taps;
    const bool silu = m->hp->recurrent.kind != RECURRENT_SHORT_CONV;
    const float *const of_parts[] = {w->conv, w->conv_k, w->conv_v};
    for (uint32_t i = 0; i < lay->n_parts; i++) {
        const struct conv_part *part = &lay->parts[i];
        const float *conv = w->conv_k == NULL ? w->conv : of_parts[i];
        const struct shaders_conv c = {
            .x = {m->recurrent.rows + part->at, lay->ld},
            .w = conv + (size_t)part->channel * n_taps,
            .bias = w->conv_bias != NULL ? w->conv_bias + part->channel : NULL,
            .ld_history = lay->ld_history,
            .n = part->n,
            .n_taps = n_taps,
            .silu = silu};
        struct shaders_states history = *states;
        history.at += part->at;
        shaders_conv(m->shaders, &c, &history, i != 0);
    }
}

static void record_recurrence(const struct model *m, const struct recurrent_weights *w,
                              const struct shaders_states *states) {
    const struct recurrent_params *p = &m->hp->recurrent;
    const struct recurrent_buffers *b = &m->recurrent;
    const struct recurrent_layout *lay = &b->lay;
    const bool delta = p->kind == RECURRENT_DELTA;
    const struct shaders_recurrent_gates gates = {.kind = p->least_decay != 0.0f
                                                              ? GATES_DELTA_BOUNDED
                                                          : delta ? GATES_DELTA
                                                                  : GATES_MAMBA2,
                                                  .heads = b->heads,
                                                  .n_heads = lay->n_heads,
                                                  .n = p->by_channel ? p->k_dim : 1,
                                                  .a = w->a,
                                                  .bias = w->dt_bias,
                                                  .least = p->least_decay};
    const struct shaders_recurrence c = {.rows = {b->rows, lay->ld},
                                         .out = {b->out, lay->out_ld},
                                         .heads = b->heads,
                                         .n_heads = lay->n_heads,
                                         .k_dim = p->k_dim,
                                         .v_dim = p->v_dim,
                                         .q_at = lay->q_at,
                                         .k_at = lay->k_at,
                                         .v_at = lay->v_at,
                                         .head_floats = lay->head_floats,
                                         .by_channel = p->by_channel,
                                         .delta = delta,
                                         .d = w->d};
    struct shaders_states heads = *states;
    heads.at += lay->history_floats;
    shaders_recurrent_gates(m->shaders, &gates, c.rows, states->n_tokens);
    shaders_recurrence(m->shaders, &c, &heads);
}

static void record_lengths(const struct model *m, uint32_t n) {
    const struct recurrent_buffers *b = &m->recurrent;
    const uint32_t k_dim = m->hp->recurrent.k_dim;
    const struct rows q = {b->rows + b->lay.q_at, b->lay.ld},
                      k = {b->rows + b->lay.k_at, b->lay.ld};
    const float eps = RECURRENT_LENGTH_EPS / (float)k_dim;
    shaders_head_norms(m->shaders, q, b->q_scale, k_dim, b->lay.n_groups, k_dim, n, eps);
    shaders_head_norms(m->shaders, k, b->k_scale, k_dim, b->lay.n_groups, k_dim, n, eps);
}

/* Where piece j of what the output product reads is: in z, or in the convolved values, unless the
 * gate is a sigmoid. */
static struct rows results(const struct model *m, uint32_t j) {
    const struct recurrent_buffers *b = &m->recurrent;
    const struct recurrent_layout *lay = &b->lay;
    if (m->hp->recurrent.by_channel)
        return (struct rows){b->out + (size_t)j * lay->piece_cols, lay->out_ld};
    const size_t at = m->hp->recurrent.kind == RECURRENT_SHORT_CONV ? lay->v_at : lay->z_at;
    return (struct rows){b->rows + at + (size_t)j * lay->piece_stride, lay->ld};
}

static void record_out_gates(const struct model *m, uint32_t n) {
    const struct recurrent_buffers *b = &m->recurrent;
    const struct recurrent_layout *lay = &b->lay;
    const uint32_t cols = lay->piece_cols;
    for (uint32_t j = 0; j < lay->n_pieces; j++) {
        const struct rows out = {b->out + (size_t)j * cols, lay->out_ld},
                          z = {b->rows + lay->z_at + (size_t)j * lay->piece_stride, lay->ld};
        if (m->hp->recurrent.by_channel)
            shaders_gate_heads(m->shaders, &(struct shaders_heads){out, cols, cols, 1, n}, z,
                               cols, false);
        else
            shaders_activate(m->shaders, FFN_SWIGLU, (struct situ_params){0}, 0, z, out, cols,
                             n);
    }
}

static void record_delta(const struct model *m, const struct recurrent_weights *w,
                         const struct shaders_states *states) {
    const struct rows out = {m->recurrent.out, m->recurrent.lay.out_ld};
    const uint32_t n = states->n_tokens, v_dim = m->hp->recurrent.v_dim;
    record_conv(m, w, states);
    record_lengths(m, n);
    record_recurrence(m, w, states);
    shaders_head_norms(m->shaders, out, w->norm, v_dim, m->recurrent.lay.n_heads, v_dim, n,
                       m->hp->rms_eps);
    record_out_gates(m, n);
}

static void record_short_conv(const struct model *m, const struct recurrent_weights *w,
                              const struct shaders_states *states) {
    const struct recurrent_layout *lay = &m->recurrent.lay;
    const struct rows v = results(m, 0), k = {m->recurrent.rows + lay->k_at, lay->ld},
                      z = {m->recurrent.rows + lay->z_at, lay->ld};
    shaders_times(m->shaders, v, k, lay->piece_cols, states->n_tokens);
    record_conv(m, w, states);
    shaders_times(m->shaders, v, z, lay->piece_cols, states->n_tokens);
}

/* Of Mamba-2's groups those whose heads are held: the sums of their squares into acc, or norms by
 * these. */
static void record_groups(const struct forward_pass *r, const struct recurrent_weights *w,
                          bool norms) {
    const struct model *m = r->m;
    const struct recurrent_params *p = &m->hp->recurrent;
    const struct recurrent_layout *lay = &m->recurrent.lay;
    const uint32_t n = r->step->n_tokens, v_dim = p->v_dim, per = p->n_heads / p->n_groups;
    for (uint32_t i = 0, end; i < lay->n_heads; i = end) {
        const uint32_t head = lay->first_unit + i, group = head / per;
        end = MIN((group + 1) * per - lay->first_unit, lay->n_heads);
        const struct rows x = {results(m, 0).p + (size_t)i * v_dim, lay->ld};
        if (norms)
            shaders_row_norm(m->shaders, x, r->acc + group, p->n_groups,
                             w->norm + (size_t)head * v_dim, (end - i) * v_dim,
                             (float)(per * v_dim), n, m->hp->rms_eps);
        else
            shaders_row_squares(m->shaders, r->acc + group, p->n_groups, x, v_dim, end - i, n);
    }
}

static void record_mamba2(const struct forward_pass *r, const struct recurrent_weights *w,
                          const struct shaders_states *states) {
    const struct model *m = r->m;
    const uint32_t n_groups = m->hp->recurrent.n_groups;
    record_conv(m, w, states);
    record_recurrence(m, w, states);
    record_out_gates(m, states->n_tokens);
    if (!m->recurrent.groups_whole)
        shaders_fixed_zero(m->shaders, r->acc, n_groups, n_groups, states->n_tokens);
    record_groups(r, w, false);
}

/* The output product of what record_...() has left, packed. */
static void out_product(struct forward_pass *r, struct pool *pool,
                        const struct recurrent_weights *w) {
    struct model *m = r->m;
    const struct recurrent_buffers *b = &m->recurrent;
    device_fixed_product(r, pool, &w->out[0], w->out_segment, &b->out_act[0], NULL);
    const bool records = w->n_out > 1 && b->lay.out_ld != 0 && device_records(pool);
    for (uint32_t j = 1; records && j < w->n_out; j++)
        shaders_matmul_fixed_add(m->shaders, &w->out[j],
                                 forward_act_for(&b->out_act[j], &w->out[j]), r->acc, m->ld_acc,
                                 b->in_order, w->out_segment);
    if (w->n_out > 1)
        pool_barrier(pool);
}

bool recurrent_device(struct forward_pass *r, struct pool *pool, int thread,
                      const struct recurrent_weights *w) {
    struct model *m = r->m;
    const struct recurrent_buffers *b = &m->recurrent;
    const enum recurrent_kind kind = m->hp->recurrent.kind;
    const size_t n_sums = (size_t)r->step->n_tokens * m->hp->recurrent.n_groups;
    if (device_records(pool)) {
        const struct shaders_states states = states_of(r, w);
        if (kind == RECURRENT_MAMBA2)
            record_mamba2(r, w, &states);
        else if (kind == RECURRENT_DELTA)
            record_delta(m, w, &states);
        else
            record_short_conv(m, w, &states);
    }
    pool_barrier(pool);
    if (!b->groups_whole && !forward_team_sum(r, pool, thread, n_sums))
        return false;
    if (device_records(pool)) {
        if (kind == RECURRENT_MAMBA2)
            record_groups(r, w, true);
        for (uint32_t j = 0; j < b->lay.n_pieces && b->lay.out_ld != 0; j++)
            device_record_pack(m->shaders, &b->out_act[j], results(m, j).p, results(m, j).ld);
    }
    pool_barrier(pool);
    out_product(r, pool, w);
    return true;
}
