/* recurrent_device.c: records recurrent layers on the rank's device (on_device.h). */
#include "model/on_device.h"
#include "shaders/shaders_recurrent.h"

bool recurrent_is_on_device(const struct hparams *hp) {
    const struct recurrent_params *p = &hp->recurrent;
    return p->kind == RECURRENT_DELTA && p->k_dim <= SHADERS_STATE_ROWS;
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
            first, run->n_tokens, run->pos != 0 ? run->state_from : SHADERS_STATE_ZERO,
            run->state};
        first += run->n_tokens;
    }
    return (struct shaders_states){s->data + w->index * m->recurrent.lay.layer_floats,
                                   s->slot_floats, m->recurrent.runs, r->step->n_runs,
                                   r->step->n_tokens};
}

static void record_conv(const struct model *m, const struct recurrent_weights *w,
                        const struct shaders_states *states) {
    const struct recurrent_layout *lay = &m->recurrent.lay;
    const uint32_t n_taps = m->hp->recurrent.n_taps;
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
            .silu = true};
        struct shaders_states history = *states;
        history.p += part->at;
        shaders_conv(m->shaders, &c, &history, i != 0);
    }
}

static void record_recurrence(const struct model *m, const struct recurrent_weights *w,
                              const struct shaders_states *states) {
    const struct recurrent_params *p = &m->hp->recurrent;
    const struct recurrent_buffers *b = &m->recurrent;
    const struct recurrent_layout *lay = &b->lay;
    const struct shaders_recurrent_gates gates = {p->least_decay != 0.0f ? GATES_DELTA_BOUNDED
                                                                         : GATES_DELTA,
                                                  b->heads,
                                                  lay->n_heads,
                                                  p->by_channel ? p->k_dim : 1,
                                                  w->a,
                                                  w->dt_bias,
                                                  p->least_decay};
    const struct shaders_recurrence c = {{b->rows, lay->ld}, {b->out, lay->out_ld},
                                         b->heads,           lay->n_heads,
                                         p->k_dim,           p->v_dim,
                                         lay->q_at,          lay->k_at,
                                         lay->v_at,          lay->head_floats,
                                         p->by_channel,      true};
    struct shaders_states heads = *states;
    heads.p += lay->history_floats;
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

/* Results normed and gated, and packed: z takes them where silu(z) is the gate. */
static void record_finish(const struct model *m, const struct recurrent_weights *w,
                          uint32_t n) {
    const struct recurrent_params *p = &m->hp->recurrent;
    const struct recurrent_buffers *b = &m->recurrent;
    const struct recurrent_layout *lay = &b->lay;
    const uint32_t cols = lay->piece_cols;
    shaders_head_norms(m->shaders, (struct rows){b->out, lay->out_ld}, w->norm, p->v_dim,
                       lay->n_heads, p->v_dim, n, m->hp->rms_eps);
    for (uint32_t j = 0; j < lay->n_pieces; j++) {
        const struct rows out = {b->out + (size_t)j * cols, lay->out_ld},
                          z = {b->rows + lay->z_at + (size_t)j * lay->piece_stride, lay->ld};
        if (p->by_channel)
            shaders_gate_heads(m->shaders, &(struct shaders_heads){out, cols, cols, 1, n}, z,
                               cols, false);
        else
            shaders_activate(m->shaders, FFN_SWIGLU, (struct situ_params){0}, 0, z, out, cols,
                             n);
        const struct rows from = p->by_channel ? out : z;
        device_record_pack(m->shaders, &b->out_act[j], from.p, from.ld);
    }
}

void recurrent_device(struct forward_pass *r, struct pool *pool,
                      const struct recurrent_weights *w) {
    struct model *m = r->m;
    const struct recurrent_buffers *b = &m->recurrent;
    const uint32_t n = r->step->n_tokens;
    if (device_records(pool) && b->lay.n_heads != 0) {
        const struct shaders_states states = states_of(r, w);
        record_conv(m, w, &states);
        record_lengths(m, n);
        record_recurrence(m, w, &states);
        record_finish(m, w, n);
    }
    pool_barrier(pool);
    device_fixed_product(r, pool, &w->out[0], w->out_segment, &b->out_act[0], NULL);
    const bool records = w->n_out > 1 && b->lay.n_heads != 0 && device_records(pool);
    for (uint32_t j = 1; records && j < w->n_out; j++)
        shaders_matmul_fixed_add(m->shaders, &w->out[j],
                                 forward_act_for(&b->out_act[j], &w->out[j]), r->acc, m->ld_acc,
                                 b->in_order, w->out_segment);
    if (w->n_out > 1)
        pool_barrier(pool);
}
