/* on_device.c: records the products, packing and FFNs of a step on the rank's device, and shares
 * the rank's memory with it. */
#include "model/on_device.h"

#include "base/mem.h"

bool device_records(struct pool *pool) {
    size_t begin, end;
    return pool_claim(pool, 1, 1, &begin, &end);
}

void device_tell_error(struct forward_pass *r) {
    const struct device_buffers *b = &r->m->on_device;
    if (r->st == ST_OK && b->st != ST_OK) {
        r->st = b->st;
        r->err = b->err;
    }
}

static void finish(struct model *m) {
    if (m->on_device.st == ST_OK)
        m->on_device.st = device_finish(shaders_device(m->shaders), &m->on_device.err);
}

void forward_host(struct forward_pass *r, struct pool *pool) {
    if (!on_device(r))
        return;
    if (device_records(pool))
        finish(r->m);
    pool_barrier(pool);
}

/* What the device did since the last time is the step's. */
static void count(struct model *m) {
    const struct device_counts now = device_counts(shaders_device(m->shaders)),
                               before = m->on_device.counted;
    m->times.device_submissions += now.submissions - before.submissions;
    m->times.device_recorded += now.recorded - before.recorded;
    m->times.device_dispatches += now.runs - before.runs;
    m->times.device_bus_bytes += now.bus_bytes - before.bus_bytes;
    m->on_device.counted = now;
}

void device_end_step(struct forward_pass *r) {
    struct model *m = r->m;
    if (!on_device(r))
        return;
    finish(m);
    device_tell_error(r);
    count(m);
}

void model_set_device_steps(struct model *m, uint32_t from, uint32_t until) {
    m->cfg.device_from = from;
    m->cfg.device_until = until;
}

/* ---- products ---------------------------------------------------------------------------- */

void device_products(struct forward_pass *r, struct pool *pool, const struct product *list,
                     size_t n) {
    struct shaders *s = r->m->shaders;
    const bool records = device_records(pool);
    bool beside = false;
    for (size_t i = 0; records && i < n; i++) {
        const struct product *p = &list[i];
        if (p->w->n_rows == 0 || p->w->n_cols == 0)
            continue;
        shaders_matmul(s, p->w, forward_act_for(p->x, p->w), p->y, p->ldy, beside);
        beside = true;
    }
    pool_barrier(pool);
}

void device_fixed_product(struct forward_pass *r, struct pool *pool, const struct wmat *w,
                          uint32_t segment, const struct acts *x, const float *bias) {
    struct model *m = r->m;
    const uint32_t n = r->step->n_tokens;
    if (device_records(pool)) {
        if (w->n_cols == 0)
            shaders_fixed_zero(m->shaders, r->acc, m->ld_acc, (uint32_t)m->ld_acc, n);
        else
            shaders_matmul_fixed(m->shaders, w, forward_act_for(x, w), r->acc, m->ld_acc,
                                 segment);
        if (bias != NULL)
            shaders_fixed_bias(m->shaders, r->acc, m->ld_acc, bias, 1.0f, m->hp->n_embd, n);
    }
    pool_barrier(pool);
}

void device_record_pack(struct shaders *s, const struct acts *a, const float *x, size_t ldx) {
    if (a->f32.f != NULL)
        shaders_act_pack(s, &a->f32, x, ldx);
    if (a->q8.q != NULL)
        shaders_act_pack(s, &a->q8, x, ldx);
}

void device_record_norm(const struct model *m, struct rows y, struct rows x, const float *w,
                        uint32_t n) {
    const uint32_t e = m->hp->n_embd;
    if (m->hp->arch->layer_norm) {
        shaders_center(m->shaders, y, x, e, n);
        x = y;
    }
    shaders_rmsnorm(m->shaders, y, x, w, e, n, m->hp->rms_eps);
}

void device_pack(struct forward_pass *r, struct pool *pool, const struct acts *a,
                 const float *x, size_t ldx) {
    if (a->f32.n_tokens != 0 && device_records(pool))
        device_record_pack(r->m->shaders, a, x, ldx);
    pool_barrier(pool);
}

/* ---- the first half of an FFN ------------------------------------------------------------ */

void device_record_up(const struct model *m, const struct ffn_up *u, uint32_t first,
                      uint32_t n) {
    struct shaders *s = m->shaders;
    const struct device_buffers *b = &m->on_device;
    const struct acts x = forward_acts_part(u->x, first, n),
                      out = forward_acts_part(u->out, first, n);
    const struct rows gate = {b->gate, b->ld_ff}, up = {b->up, b->ld_ff};
    const uint32_t width = u->gate->n_rows;
    shaders_matmul(s, u->gate, forward_act_for(&x, u->gate), gate.p, gate.ld, false);
    if (u->up->n_rows != 0)
        shaders_matmul(s, u->up, forward_act_for(&x, u->up), up.p, up.ld, true);
    if (u->gate_bias != NULL)
        shaders_add_vector(s, gate, u->gate_bias, width, n);
    if (u->gate_bias != NULL && u->up_bias != NULL)
        shaders_add_vector(s, up, u->up_bias, width, n);
    shaders_activate(s, m->hp->ffn_act, m->hp->situ, u->limit, gate, up, width, n);
    if (u->weights != NULL)
        shaders_scale_rows(s, gate, u->weights + first, width, n);
    device_record_pack(s, &out, gate.p, gate.ld);
}

bool device_ffn_up(struct forward_pass *r, struct pool *pool, const struct ffn_up *list,
                   size_t n) {
    for (size_t i = 0; i < n; i++)
        if (list[i].gate_rows != NULL)
            return false;
    const bool records = device_records(pool);
    for (size_t i = 0; records && i < n; i++) {
        const uint32_t n_tokens = list[i].x->f32.n_tokens;
        for (uint32_t t = 0; t < n_tokens && list[i].gate->n_rows != 0; t += DEVICE_FFN_TOKENS)
            device_record_up(r->m, &list[i], t, MIN(n_tokens - t, (uint32_t)DEVICE_FFN_TOKENS));
    }
    pool_barrier(pool);
    return true;
}

/* ---- memory ------------------------------------------------------------------------------ */

/* What is in host memory that the device reads over a bus is slow, so what a device alone uses
 * lies in its own. An operation that the pool does for it needs both to see the same bytes. */
static bool layer_is_whole(const struct model *m, const struct layer_weights *lw) {
    return (lw->recurrent == NULL || recurrent_is_on_device(m->hp)) && lw->index == NULL &&
           !lw->chooses && lw->compressed == NULL && !lw->sparse &&
           lw->attn_hyper.scale == NULL && lw->ffn_hyper.scale == NULL &&
           lw->attn_score == NULL && lw->ffn_score == NULL;
}

static bool device_does_all(const struct model *m) {
    const struct hparams *hp = m->hp;
    bool all = hp->n_streams == 0 && hp->n_layer_input == 0;
    for (uint32_t i = 0; i < m->w.n_layers; i++)
        all &= layer_is_whole(m, &m->w.layers[i]);
    return all;
}

bool device_keeps_buffers(const struct model *m) {
    return m->shaders != NULL && !device_info(shaders_device(m->shaders))->unified &&
           device_does_all(m);
}

bool device_keeps_stream(const struct model *m) {
    return device_keeps_buffers(m) && m->plan.n_ranks == 1;
}

void device_take_embeddings(struct forward_pass *r, struct pool *pool) {
    const struct model *m = r->m;
    const size_t bytes = m->hp->n_embd * sizeof(float);
    if (m->on_device.embeddings == NULL)
        return;
    if (device_records(pool))
        shaders_copy(m->shaders, m->x, bytes, m->on_device.embeddings, bytes, bytes,
                     r->whole->n_tokens);
    pool_barrier(pool);
}

static enum status share(struct model *m, void *p, size_t bytes, enum device_place place,
                         const char *what, struct err *err) {
    struct device_buffers *b = &m->on_device;
    struct err why;
    if (p == NULL || bytes == 0)
        return ST_OK;
    if (!mem_reserve(&b->mapped, &b->cap_mapped, b->n_mapped + 1, sizeof *b->mapped))
        return err_set(err, ST_NO_MEMORY, "no memory for a list of what a device knows");
    if (bytes > device_piece_most(m))
        return err_set(err, ST_BAD_INPUT,
                       "rank %d's %s: %zu bytes in one piece, where %s takes %zu", m->rank,
                       what, bytes, device_info(shaders_device(m->shaders))->name,
                       device_piece_most(m));
    enum status st =
        device_map(shaders_device(m->shaders), p, round_up(bytes, PIECES_PAGE), place, &why);
    if (st != ST_OK)
        return err_set(err, st, "rank %d's %s: %s", m->rank, what, why.text);
    b->mapped[b->n_mapped++] = p;
    return ST_OK;
}

size_t device_piece_most(const struct model *m) {
    return m->shaders != NULL ? device_max_map(shaders_device(m->shaders)) : 0;
}

static enum status share_pieces(struct model *m, uint8_t *block, const struct pieces *p,
                                enum device_place place, const char *what, struct err *err) {
    for (size_t i = 0; i < p->n; i++)
        TRY(share(m, block + p->at[i], pieces_end(p, i) - p->at[i], place, what, err));
    return ST_OK;
}

/* Of equal units, of which none lies in two pieces. */
static enum status share_units(struct model *m, void *block, size_t bytes, size_t unit,
                               enum device_place place, const char *what, struct err *err) {
    const size_t most = device_piece_most(m),
                 piece = unit != 0 ? pieces_of_units(unit, MIN(most, PIECES_TOGETHER)) : 0;
    for (size_t at = 0; at < bytes; at += piece)
        TRY(share(m, (uint8_t *)block + at, MIN(bytes - at, piece), place, what, err));
    return ST_OK;
}

enum status device_share_memory(struct model *m, struct err *err) {
    if (m->shaders == NULL)
        return ST_OK;
    struct device_buffers *b = &m->on_device;
    const enum device_place place = device_keeps_buffers(m) ? DEVICE_COPY : DEVICE_SHARED;
    for (int type = 0; type < QT_N; type++)
        if (m->w.has_type[type])
            TRY(shaders_prepare(m->shaders, (enum qtype)type, err));
    for (uint32_t i = 0; i < m->hp->n_attn; i++)
        TRY(shaders_prepare_attention(m->shaders, m->cfg.kv_type,
                                      m->hp->attn[i].n_heads / m->hp->attn[i].n_kv_heads, err));
    TRY(share_pieces(m, m->w.block, &m->w.matrices, place, "matrices", err));
    TRY(share_pieces(m, m->w.block + m->w.matrix_bytes, &m->w.others, DEVICE_MIRROR,
                     "other weights", err));
    moe_share_matrices(m);
    for (int k = 0; k < KV_KINDS; k++)
        TRY(share_units(m, m->kv.kinds[k], m->kv.kind_bytes[k], m->kv.strides[k], place,
                        "keys and values", err));
    TRY(share_units(m, m->states.data, m->states.data_bytes,
                    m->states.slot_floats * sizeof *m->states.data, place, "states", err));
    TRY(share_pieces(m, m->block, &b->inner, place, "inner buffers", err));
    TRY(share_pieces(m, m->block + m->inner_bytes, &b->others, DEVICE_SHARED, "buffers", err));
    b->counted = device_counts(shaders_device(m->shaders));
    return ST_OK;
}

void device_leave_memory(struct model *m) {
    struct device_buffers *b = &m->on_device;
    bool all = true;
    for (size_t i = 0; i < b->n_mapped; i++)
        all &= device_unmap(shaders_device(m->shaders), b->mapped[i]);
    if (!all) { /* then these are nobody's */
        m->w.block = m->block = m->kv.data = NULL;
        m->states.data = NULL;
    }
    mem_free(b->mapped);
    pieces_free(&b->inner);
    pieces_free(&b->others);
    b->mapped = NULL;
    b->n_mapped = b->cap_mapped = 0;
}
