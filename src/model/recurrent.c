/* recurrent.c: a recurrent layer's step, from the packed, normed x_act to acc.
 *
 * Phases, each handed out in pieces: products of x for the share's units; the convolution, by
 * runs and blocks of channels; preparation of the recurrence, by tokens and heads; the
 * recurrence, by runs, heads and blocks of columns; the gate and norm after it; packing; the
 * output product. */
#include "model/on_device.h"

#include "shaders/definition.h"

#include <math.h>

/* Of the convolution, and of a head's columns, that a thread takes at a time. */
#define BLOCK_COLS 64

/* ---- states ------------------------------------------------------------------------------ */

/* Where a run's state of the layer is, and where it comes from: NULL at its first token. */
struct state_of_run {
    float *to;
    const float *from;
};

static struct state_of_run state_of(const struct model *m, const struct recurrent_weights *w,
                                    const struct step_run *run) {
    const struct recurrent_states *s = &m->states;
    size_t at = w->index * m->recurrent.lay.layer_floats;
    return (struct state_of_run){
        .to = s->data + run->state * s->slot_floats + at,
        .from = run->pos != 0 ? s->data + run->state_from * s->slot_floats + at : NULL,
    };
}

/* n floats from `at` on are now those to go on from. */
static void begin_state(const struct state_of_run *s, size_t at, size_t n) {
    if (s->from == NULL)
        memset(s->to + at, 0, n * sizeof *s->to);
    else if (s->from != s->to)
        memcpy(s->to + at, s->from + at, n * sizeof *s->to);
}

/* ---- products ---------------------------------------------------------------------------- */

static void in_products(struct forward_pass *r, struct pool *pool, int thread,
                        const struct recurrent_weights *w) {
    struct model *m = r->m;
    struct recurrent_buffers *b = &m->recurrent;
    for (uint32_t i = 0; thread == 0 && i < w->n_in; i++)
        b->products[i] =
            (struct product){&w->in[i], &m->x_act, b->rows + w->in_at[i], b->lay.ld};
    pool_barrier(pool);
    forward_products(r, pool, b->products, w->n_in);
}

/* By channel: decays and z, from the low-rank products. */
static void low_rank_products(struct forward_pass *r, struct pool *pool,
                              const struct recurrent_weights *w) {
    struct recurrent_buffers *b = &r->m->recurrent;
    const uint32_t n = r->step->n_tokens;
    const struct acts low[] = {forward_acts_part(&b->low_act[0], 0, n),
                               forward_acts_part(&b->low_act[1], 0, n)};
    const struct product list[] = {{&w->decays, &low[0], b->rows + b->lay.decays_at, b->lay.ld},
                                   {&w->gates, &low[1], b->rows + b->lay.z_at, b->lay.ld}};
    const size_t n_low = r->m->hp->recurrent.whole_gate ? 1 : ARRAY_LEN(list);
    for (size_t i = 0; i < n_low; i++)
        forward_pack(r, pool, &low[i], b->rows + b->lay.low_at[i], b->lay.ld);
    forward_products(r, pool, list, n_low);
}

/* acc = the sum of all pieces' products in fixed point: zero if this rank holds nothing. */
static void out_product(struct forward_pass *r, struct pool *pool, int thread,
                        const struct recurrent_weights *w) {
    struct model *m = r->m;
    size_t begin, end, n_tiles = wmat_n_tiles(&w->out[0]);
    forward_host(r, pool);
    if (m->recurrent.lay.out_ld == 0) {
        if (thread == 0)
            memset(r->acc, 0, r->step->n_tokens * m->ld_acc * sizeof *r->acc);
        pool_barrier(pool);
        return;
    }
    while (forward_claim_tiles(r, pool, n_tiles, w->out[0].tile_bytes * w->n_out, &begin, &end))
        for (uint32_t j = 0; j < w->n_out; j++)
            m->k->matmul_fixed(&w->out[j],
                               forward_act_for(&m->recurrent.out_act[j], &w->out[j]), r->acc,
                               m->ld_acc, j == 0 ? NULL : m->recurrent.in_order, w->out_segment,
                               (uint32_t)begin, (uint32_t)end);
    pool_barrier(pool);
}

/* ---- the convolution --------------------------------------------------------------------- */

/* A run of the step, and the index of its first token. */
static const struct step_run *run_at(const struct step *step, size_t i, uint32_t *first) {
    *first = 0;
    for (size_t k = 0; k < i; k++)
        *first += step->runs[k].n_tokens;
    return &step->runs[i];
}

/* A run may continue from where the run before it in the step ends. Then the same thread
 * computes it after that one: it does not begin a chain. */
static bool begins_chain(const struct step *step, size_t i) {
    const struct step_run *run = &step->runs[i];
    return i == 0 || run->pos == 0 || run->state_from != run[-1].state;
}

static bool ends_chain(const struct step *step, size_t i) {
    return i + 1 == step->n_runs || begins_chain(step, i + 1);
}

static size_t n_conv_blocks(const struct recurrent_layout *lay) {
    size_t n = 0;
    for (uint32_t i = 0; i < lay->n_parts; i++)
        n += div_up(lay->parts[i].n, BLOCK_COLS);
    return n;
}

/* The block's columns as a part of their own; *which it belongs to. */
static struct conv_part conv_block(const struct recurrent_layout *lay, size_t block,
                                   size_t *which) {
    const struct conv_part *p = lay->parts;
    for (; block >= div_up(p->n, BLOCK_COLS); p++)
        block -= div_up(p->n, BLOCK_COLS);
    *which = (size_t)(p - lay->parts);
    uint32_t begin = (uint32_t)block * BLOCK_COLS;
    return (struct conv_part){.at = p->at + begin,
                              .channel = p->channel + begin,
                              .n = MIN(p->n - begin, (uint32_t)BLOCK_COLS)};
}

static void convolve_block(struct forward_pass *r, const struct recurrent_weights *w,
                           size_t run_index, size_t block) {
    struct model *m = r->m;
    const struct recurrent_layout *lay = &m->recurrent.lay;
    const uint32_t n_taps = m->hp->recurrent.n_taps;
    size_t which;
    const struct conv_part part = conv_block(lay, block, &which);
    const float *const of_parts[] = {w->conv, w->conv_k, w->conv_v};
    const float *conv = w->conv_k == NULL ? w->conv : of_parts[which];
    uint32_t first;
    const struct step_run *run = run_at(r->step, run_index, &first);
    const struct state_of_run state = state_of(m, w, run);
    for (uint32_t j = 0; j + 1 < n_taps; j++)
        begin_state(&state, (size_t)j * lay->ld_history + part.at, round_up(part.n, 16));
    const struct conv_args args = {
        .x = m->recurrent.rows + (size_t)first * lay->ld + part.at,
        .ldx = lay->ld,
        .n_tokens = run->n_tokens,
        .n_channels = part.n,
        .n_taps = n_taps,
        .w = conv + (size_t)part.channel * n_taps,
        .bias = w->conv_bias != NULL ? w->conv_bias + part.channel : NULL,
        .history = state.to + part.at,
        .ld_history = lay->ld_history,
        .silu = m->hp->recurrent.kind != RECURRENT_SHORT_CONV,
    };
    const bool gated = m->hp->recurrent.kind == RECURRENT_SHORT_CONV;
    for (size_t t = 0; t < run->n_tokens && gated; t++) {
        float *x = args.x + t * lay->ld;
        times(x, x, x + lay->k_at - lay->v_at, part.n);
    }
    m->recurrent.k->conv(&args);
    for (size_t t = 0; t < run->n_tokens && gated; t++) {
        const float *x = args.x + t * lay->ld;
        times(m->recurrent.out + (first + t) * lay->out_ld + part.at, x,
              x + lay->z_at - lay->v_at, part.n);
    }
}

static void convolve(struct forward_pass *r, struct pool *pool,
                     const struct recurrent_weights *w) {
    size_t n = n_conv_blocks(&r->m->recurrent.lay), begin, end;
    forward_host(r, pool);
    while (pool_claim(pool, n * r->step->n_runs, 1, &begin, &end))
        for (size_t i = begin; i < end; i++) {
            size_t run = i / n;
            if (!begins_chain(r->step, run))
                continue;
            convolve_block(r, w, run, i % n);
            while (!ends_chain(r->step, run))
                convolve_block(r, w, ++run, i % n);
        }
    pool_barrier(pool);
}

/* ---- the delta net ------------------------------------------------------------------------- */

/* Where head h's beta and alpha are in the row; they become beta and decay. */
static void gates_of(const struct model *m, float *row, uint32_t h, float **beta,
                     float **alpha) {
    const struct recurrent_params *p = &m->hp->recurrent;
    const struct recurrent_layout *lay = &m->recurrent.lay;
    uint32_t per = p->n_heads / p->n_groups;
    if (p->by_channel) {
        *beta = row + lay->gates_at + h;
        *alpha = row + lay->decays_at + (size_t)(h - lay->first_unit) * p->k_dim;
    } else if (p->kind == RECURRENT_MAMBA2) { /* time step and, behind all these, decay */
        *beta = row + lay->gates_at + h;
        *alpha = *beta + p->n_heads;
    } else if (p->joint_gates) {
        *beta = row + lay->gates_at + h / per * 2 * per + h % per;
        *alpha = *beta + per;
    } else {
        *beta = row + lay->gates_at + h;
        *alpha = row + lay->gates_2_at + h;
    }
}

/* Queries and keys are divided by their length, queries by sqrt(k_dim) too. An RMSNorm does
 * this: its mean is a k_dim-th of the sum.
 * Of one token: head `local` < n_groups' query and key, and head `local`'s gates. */
static void delta_begin(const struct model *m, const struct recurrent_weights *w, float *row,
                        uint32_t local) {
    const struct recurrent_buffers *b = &m->recurrent;
    const uint32_t k_dim = m->hp->recurrent.k_dim;
    const float eps = RECURRENT_LENGTH_EPS / (float)k_dim;
    if (local < b->lay.n_groups) {
        float *q = row + b->lay.q_at + (size_t)local * k_dim,
              *k = row + b->lay.k_at + (size_t)local * k_dim;
        m->k->rmsnorm(q, q, b->q_scale, k_dim, eps);
        m->k->rmsnorm(k, k, b->k_scale, k_dim, eps);
        for (uint32_t i = 0; i < k_dim; i++)
            k[i] = not_less(k[i]);
    }
    const uint32_t h = recurrent_head_of(m->hp, &b->lay, local).head,
                   n = m->hp->recurrent.by_channel ? k_dim : 1;
    float *beta, *alpha;
    gates_of(m, row, h, &beta, &alpha);
    delta_gates(beta, alpha, w->dt_bias + (size_t)h * n, n, w->a[h],
                m->hp->recurrent.least_decay);
}

/* The results of a head: normed, times silu(z), by channel times sigmoid(z). */
static void delta_finish(const struct model *m, const struct recurrent_weights *w, float *row,
                         float *out, uint32_t local) {
    const struct recurrent_head head = recurrent_head_of(m->hp, &m->recurrent.lay, local);
    const uint32_t v_dim = m->hp->recurrent.v_dim;
    float *o = out + (size_t)local * v_dim;
    float *z = row + m->recurrent.lay.z_at + head.at;
    m->k->rmsnorm(o, o, w->norm, v_dim, m->hp->rms_eps);
    if (!m->hp->recurrent.by_channel) {
        m->k->swiglu(o, z, o, v_dim);
        return;
    }
    sigmoids(m->k, z, v_dim);
    for (uint32_t i = 0; i < v_dim; i++)
        o[i] = exact_tidy(o[i] * z[i]);
}

/* ---- Mamba-2 ------------------------------------------------------------------------------- */

static void mamba2_begin(const struct model *m, const struct recurrent_weights *w, float *row,
                         uint32_t local) {
    uint32_t h = m->recurrent.lay.first_unit + local;
    float *dt, *decay;
    gates_of(m, row, h, &dt, &decay);
    mamba2_gates(dt, decay, w->dt_bias[h], w->a[h]);
}

/* (o + D x) * silu(z), not yet normed. */
static void mamba2_finish(const struct model *m, const struct recurrent_weights *w, float *row,
                          float *out, uint32_t local) {
    const struct recurrent_layout *lay = &m->recurrent.lay;
    const uint32_t v_dim = m->hp->recurrent.v_dim;
    const float *x = row + lay->v_at + (size_t)local * v_dim, d = w->d[lay->first_unit + local];
    float *o = out + (size_t)local * v_dim;
    mamba2_skip(o, x, d, v_dim);
    m->k->swiglu(o, row + lay->z_at + (size_t)local * v_dim, o, v_dim);
}

/* Norms over the columns of each group. Its heads may lie on several ranks, so their sums of
 * squares are added exactly: acc [n_tokens, groups of the model]. */
static bool group_norms(struct forward_pass *r, struct pool *pool, int thread,
                        const struct recurrent_weights *w) {
    struct model *m = r->m;
    const struct recurrent_params *p = &m->hp->recurrent;
    const struct recurrent_layout *lay = &m->recurrent.lay;
    const uint32_t n = r->step->n_tokens, v_dim = p->v_dim, per = p->n_heads / p->n_groups;
    size_t begin, end;
    forward_host(r, pool);
    while (pool_claim(pool, n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            int64_t *sums = r->acc + t * p->n_groups;
            const float *out = m->recurrent.out + t * lay->out_ld;
            memset(sums, 0, p->n_groups * sizeof *sums);
            for (uint32_t i = 0; i < lay->n_heads; i++)
                sums[(lay->first_unit + i) / per] +=
                    forward_fixed(lanes16_squares(out + (size_t)i * v_dim, v_dim));
        }
    pool_barrier(pool);
    if (!m->recurrent.groups_whole &&
        !forward_team_sum(r, pool, thread, (size_t)n * p->n_groups))
        return false;
    while (pool_claim(pool, n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++)
            for (uint32_t i = 0; i < lay->n_heads; i++) {
                uint32_t h = lay->first_unit + i;
                float sum, *out = m->recurrent.out + t * lay->out_ld + (size_t)i * v_dim;
                m->k->fixed_get(&sum, r->acc + t * p->n_groups + h / per, 1);
                float by = 1.0f / sqrtf(sum / (float)(per * v_dim) + m->hp->rms_eps);
                for (uint32_t c = 0; c < v_dim; c++)
                    out[c] = exact_tidy(out[c] * by * w->norm[(size_t)h * v_dim + c]);
            }
    pool_barrier(pool);
    return true;
}

bool recurrent_groups_are_whole(const struct hparams *hp, const struct plan *plan) {
    const struct recurrent_params *p = &hp->recurrent;
    bool whole = true;
    for (int i = 0; i < plan->n_ranks && p->kind == RECURRENT_MAMBA2; i++)
        whole &= plan->shares[i].unit_end % (p->n_heads / p->n_groups) == 0;
    return whole;
}

/* ---- the recurrence ------------------------------------------------------------------------ */

static void recur_block(struct forward_pass *r, const struct recurrent_weights *w,
                        size_t run_index, uint32_t local, uint32_t col) {
    struct model *m = r->m;
    const struct recurrent_params *p = &m->hp->recurrent;
    const struct recurrent_layout *lay = &m->recurrent.lay;
    const struct recurrent_head head = recurrent_head_of(m->hp, lay, local);
    uint32_t first, n_cols = MIN(p->v_dim - col, (uint32_t)BLOCK_COLS);
    const struct step_run *run = run_at(r->step, run_index, &first);
    const struct state_of_run state = state_of(m, w, run);
    size_t at = lay->history_floats + local * lay->head_floats + (size_t)col * p->k_dim;
    begin_state(&state, at, p->k_dim * round_up(n_cols, 16));
    float *row = m->recurrent.rows + (size_t)first * lay->ld, *beta, *decay;
    gates_of(m, row, head.head, &beta, &decay);
    const struct recurrence_args args = {
        .n_tokens = run->n_tokens,
        .k_dim = p->k_dim,
        .n_cols = n_cols,
        .delta = p->kind == RECURRENT_DELTA,
        .q = row + lay->q_at + (size_t)head.group * p->k_dim,
        .k = row + lay->k_at + (size_t)head.group * p->k_dim,
        .v = row + lay->v_at + head.at + col,
        .ldq = lay->ld,
        .ldk = lay->ld,
        .ldv = lay->ld,
        .decay = decay,
        .decay_step = p->by_channel,
        .ld_decay = lay->ld,
        .beta = beta,
        .ld_beta = lay->ld,
        .state = state.to + at,
        .o = m->recurrent.out + (size_t)first * lay->out_ld + (size_t)local * p->v_dim + col,
        .ldo = lay->out_ld,
    };
    m->recurrent.k->recurrence(&args);
}

static void recur(struct forward_pass *r, struct pool *pool,
                  const struct recurrent_weights *w) {
    const struct recurrent_layout *lay = &r->m->recurrent.lay;
    size_t blocks = div_up(r->m->hp->recurrent.v_dim, BLOCK_COLS), begin, end;
    size_t per_run = blocks * lay->n_heads;
    while (pool_claim(pool, per_run * r->step->n_runs, 1, &begin, &end))
        for (size_t i = begin; i < end; i++) {
            size_t run = i / per_run;
            uint32_t head = (uint32_t)(i % per_run / blocks),
                     col = (uint32_t)(i % blocks) * BLOCK_COLS;
            if (!begins_chain(r->step, run))
                continue;
            recur_block(r, w, run, head, col);
            while (!ends_chain(r->step, run))
                recur_block(r, w, ++run, head, col);
        }
    pool_barrier(pool);
}

/* ---- the layer ------------------------------------------------------------------------------- */

/* What stands before the recurrence, it, and what stands after it, but for norms over several
 * heads. */
static void heads_forward(struct forward_pass *r, struct pool *pool,
                          const struct recurrent_weights *w) {
    struct model *m = r->m;
    const struct recurrent_layout *lay = &m->recurrent.lay;
    const bool delta = m->hp->recurrent.kind == RECURRENT_DELTA;
    size_t n = (size_t)r->step->n_tokens * lay->n_heads, begin, end;
    forward_host(r, pool);
    while (pool_claim(pool, n, 4, &begin, &end))
        for (size_t i = begin; i < end; i++) {
            float *row = m->recurrent.rows + i / lay->n_heads * lay->ld;
            (delta ? delta_begin : mamba2_begin)(m, w, row, (uint32_t)(i % lay->n_heads));
        }
    pool_barrier(pool);
    recur(r, pool, w);
    while (pool_claim(pool, n, 4, &begin, &end))
        for (size_t i = begin; i < end; i++) {
            size_t t = i / lay->n_heads;
            float *row = m->recurrent.rows + t * lay->ld;
            float *out = m->recurrent.out + t * lay->out_ld;
            (delta ? delta_finish : mamba2_finish)(m, w, row, out,
                                                   (uint32_t)(i % lay->n_heads));
        }
    pool_barrier(pool);
}

bool recurrent_forward(struct forward_pass *r, struct pool *pool, int thread,
                       const struct recurrent_weights *w) {
    struct model *m = r->m;
    const struct recurrent_layout *lay = &m->recurrent.lay;
    if (!forward_tell(r, pool, thread, &m->x_act, m->x_told, NULL, 0))
        return false;
    in_products(r, pool, thread, w);
    if (m->hp->recurrent.by_channel)
        low_rank_products(r, pool, w);
    if (on_device(r) && recurrent_is_on_device(m->hp)) {
        return recurrent_device(r, pool, thread, w);
    }
    convolve(r, pool, w);
    if (m->hp->recurrent.kind != RECURRENT_SHORT_CONV)
        heads_forward(r, pool, w);
    if (m->hp->recurrent.kind == RECURRENT_MAMBA2 && !group_norms(r, pool, thread, w))
        return false;
    for (uint32_t j = 0; j < lay->n_pieces && lay->out_ld != 0; j++)
        forward_pack(r, pool, &m->recurrent.out_act[j],
                     m->recurrent.out + (size_t)j * lay->piece_cols, lay->out_ld);
    out_product(r, pool, thread, w);
    return true;
}

void recurrent_prepare(struct model *m) {
    struct recurrent_buffers *b = &m->recurrent;
    uint32_t k_dim = m->hp->recurrent.k_dim;
    b->k = recurrent_kernels_of(m->k);
    b->groups_whole = recurrent_groups_are_whole(m->hp, &m->plan);
    for (uint32_t i = 0; i < k_dim && b->q_scale != NULL; i++) {
        b->q_scale[i] = 1.0f / (float)k_dim;
        b->k_scale[i] = 1.0f / sqrtf((float)k_dim);
    }
    for (uint32_t i = 0; i < m->cfg.n_tokens_max && b->in_order != NULL; i++)
        b->in_order[i] = i;
    for (uint32_t i = 0; b->heads != NULL && i < b->lay.n_heads; i++) {
        const struct recurrent_head head = recurrent_head_of(m->hp, &b->lay, i);
        float *beta, *decay;
        gates_of(m, b->rows, head.head, &beta, &decay);
        b->heads[i] = (struct shaders_recurrent_head){head.head, head.group, head.at,
                                                      (uint32_t)(beta - b->rows),
                                                      (uint32_t)(decay - b->rows)};
    }
}
