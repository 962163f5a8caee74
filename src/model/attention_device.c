/* attention_device.c: records attention on the rank's device (on_device.h). */
#include "model/attention.h"

void attn_device_tables(const struct forward_pass *r, const struct layer_weights *lw,
                        uint32_t layer) {
    struct model *m = r->m;
    struct device_buffers *b = &m->on_device;
    const struct device *d = shaders_device(m->shaders);
    const size_t at = (size_t)layer * m->cfg.n_tokens_max + r->first;
    uint64_t *pages = b->pages + (size_t)layer * m->n_pages_max;
    uint32_t t = 0;
    if (attn_n_heads(m, lw) == 0) /* nor has this rank a cache */
        return;
    for (uint32_t s = 0; s < r->step->n_runs; s++) {
        const struct step_run *seq = &r->step->runs[s];
        uint32_t page = lw->window != 0 ? kv_window_first(lw->window, seq->pos) : 0;
        for (; page * KV_PAGE < seq->pos + seq->n_tokens; page++)
            pages[seq->page_begin + page] =
                device_address(d, m->page_ptrs[seq->page_begin + page]);
        for (uint32_t pos = seq->pos; pos < seq->pos + seq->n_tokens; pos++, t++) {
            b->slots[r->first + t] = pos % KV_PAGE;
            if (attn_grows_queries(m, lw))
                b->growths[r->first + t] = attn_query_growth(&m->hp->query_growth, pos);
            b->token_pages[at + t] = pages[seq->page_begin + pos / KV_PAGE];
            b->queries[at + t] = (struct shaders_query){.page_begin = seq->page_begin,
                                                        .begin = attn_first_seen(lw, pos + 1),
                                                        .end = pos + 1};
        }
    }
}

bool attn_finish_is_on_device(const struct forward_pass *r, const struct layer_weights *lw) {
    return on_device(r) && lw->index == NULL;
}

static void record_heads(const struct model *m, const struct layer_weights *lw, struct rows q,
                         struct rows k, uint32_t n, size_t angle) {
    struct shaders *s = m->shaders;
    const struct attn_kind *kind = attn_kind_of(m, lw);
    const struct rope_angles *a = m->angles[lw->attn];
    const uint32_t hd = kind->head_dim, n_heads = attn_n_heads(m, lw),
                   n_kv = lw->has_kv ? attn_n_kv(m, lw) : 0;
    const size_t q_stride = attn_q_rows(m, lw);
    const float eps = m->hp->rms_eps, *cos = a->cos + angle, *sin = a->sin + angle;
    if (m->hp->qk_norm == QK_NORM_HEAD) {
        shaders_head_norms(s, q, lw->q_norm, hd, n_heads, q_stride, n, eps);
        shaders_head_norms(s, k, lw->k_norm, hd, n_kv, hd, n, eps);
    }
    if (lw->has_rope) {
        const struct rope_params *rope = &kind->rope;
        shaders_rope(s, q, n_heads, q_stride, rope->n_rot, cos, sin, rope->mode, n);
        shaders_rope(s, k, n_kv, hd, rope->n_rot, cos, sin, rope->mode, n);
    }
    if (m->hp->qk_norm == QK_NORM_HEAD_AFTER) {
        shaders_head_norms(s, q, lw->q_norm, hd, n_heads, q_stride, n, eps);
        shaders_head_norms(s, k, lw->k_norm, hd, n_kv, hd, n, eps);
    } else if (m->hp->qk_norm == QK_NORM_PLAIN && lw->has_rope) {
        shaders_plain_norms(s, q, hd, n_heads, q_stride, n, eps);
        shaders_plain_norms(s, k, hd, n_kv, hd, n, eps);
    }
}

void attn_record_finish(const struct forward_pass *r, const struct layer_weights *lw,
                        uint32_t layer) {
    struct model *m = r->m;
    struct shaders *s = m->shaders;
    const struct device_buffers *b = &m->on_device;
    const struct attn_kind *kind = attn_kind_of(m, lw);
    const uint32_t n = r->step->n_tokens, n_kv = lw->has_kv ? attn_n_kv(m, lw) : 0,
                   v_width = n_kv * kind->v_dim;
    const struct rows q = {m->q, m->ldq}, k = {m->k_new, m->ldk}, v = {m->v_new, m->ldv};
    if (kind->v_is_k && v_width != 0)
        shaders_copy(s, v.p, v.ld * sizeof *v.p, k.p, k.ld * sizeof *k.p, v_width * sizeof *v.p,
                     n);
    if (m->hp->v_norm)
        shaders_plain_norms(s, v, kind->v_dim, n_kv, kind->v_dim, n, m->hp->rms_eps);
    if (m->hp->value_scale != 1.0f && v_width != 0)
        shaders_scale(s, v, m->hp->value_scale, v_width, n);
    record_heads(m, lw, q, k, n, (size_t)r->first * m->angles[lw->attn]->n_pairs);
    if (attn_grows_queries(m, lw)) {
        const struct shaders_heads heads = {q, attn_q_rows(m, lw), kind->head_dim,
                                            attn_n_heads(m, lw), n};
        shaders_scale_heads(s, &heads, b->growths + r->first);
    }
    if (n_kv != 0)
        shaders_kv_store(s, &m->kv.layers[layer].shape, k, v,
                         b->token_pages + (size_t)layer * m->cfg.n_tokens_max + r->first,
                         b->slots + r->first, n);
}

void attn_record_row_squares(const struct forward_pass *r, const struct layer_weights *lw) {
    const struct model *m = r->m;
    const uint32_t hd = attn_kind_of(m, lw)->head_dim, n = r->step->n_tokens,
                   n_kv = attn_n_kv(m, lw), skip = n_kv != 0 && !attn_counts_first_kv(m, lw);
    const struct rows q = {m->q, m->ldq}, k = {m->k_new + (size_t)skip * hd, m->ldk};
    shaders_row_squares(m->shaders, r->acc, 2, q, hd, attn_n_heads(m, lw), n);
    shaders_row_squares(m->shaders, r->acc + 1, 2, k, hd, n_kv - skip, n);
}

void attn_record_row_norms(const struct forward_pass *r, const struct layer_weights *lw) {
    const struct model *m = r->m;
    const struct attn_kind *kind = attn_kind_of(m, lw);
    const uint32_t hd = kind->head_dim, n = r->step->n_tokens;
    const struct rows q = {m->q, m->ldq}, k = {m->k_new, m->ldk};
    const float eps = m->hp->rms_eps;
    shaders_row_norm(m->shaders, q, r->acc, 2, lw->q_norm, attn_n_heads(m, lw) * hd,
                     (float)(kind->n_heads * hd), n, eps);
    shaders_row_norm(m->shaders, k, r->acc + 1, 2, lw->k_norm, attn_n_kv(m, lw) * hd,
                     (float)(kind->n_kv_heads * hd), n, eps);
}

void attn_record_gates(const struct forward_pass *r, const struct layer_weights *lw,
                       struct rows gates, size_t gate_stride, bool one) {
    const struct model *m = r->m;
    const uint32_t vd = hparams_out_dim(m->hp, attn_kind_of(m, lw)), nh = attn_n_heads(m, lw);
    const struct shaders_heads heads = {
        {m->att, (size_t)nh * vd}, vd, vd, nh, r->step->n_tokens};
    shaders_gate_heads(m->shaders, &heads, gates, gate_stride, one);
}

void attn_record_biases(const struct forward_pass *r, const struct layer_weights *lw) {
    const struct model *m = r->m;
    const struct attn_kind *kind = attn_kind_of(m, lw);
    const uint32_t n = r->step->n_tokens, n_q = attn_n_heads(m, lw) * kind->head_dim,
                   n_kv = attn_n_kv(m, lw);
    const struct rows q = {m->q, m->ldq}, k = {m->k_new, m->ldk}, v = {m->v_new, m->ldv};
    if (n_q != 0)
        shaders_add_vector(m->shaders, q, lw->q_bias, n_q, n);
    if (n_kv != 0) {
        shaders_add_vector(m->shaders, k, lw->k_bias, n_kv * kind->head_dim, n);
        shaders_add_vector(m->shaders, v, lw->v_bias, n_kv * kind->v_dim, n);
    }
}

void attn_record(const struct forward_pass *r, const struct layer_weights *lw, uint32_t layer) {
    const struct model *m = r->m;
    const struct device_buffers *b = &m->on_device;
    const struct attn_kind *kind = attn_kind_of(m, lw);
    const struct head_share *own = attn_heads_of(m, lw);
    const struct attn_io io = attn_io_of(m, lw);
    const struct shaders_attention a = {
        .shape = &m->kv.layers[layer].shape,
        .queries = b->queries + (size_t)layer * m->cfg.n_tokens_max + r->first,
        .pages = b->pages + (size_t)layer * m->n_pages_max,
        .n_tokens = r->step->n_tokens,
        .max_end = forward_longest(r->step),
        .n_heads = attn_n_heads(m, lw),
        .first_head = own->begin,
        .group = kind->n_heads / kind->n_kv_heads,
        .first_kv = own->kv_begin,
        .q = {(float *)io.q, io.ldq},
        .out = {io.out, io.ldo},
        .q_stride = io.q_stride,
        .out_stride = io.o_stride,
        .sinks = lw->sinks,
        .scale = m->hp->attn_scale,
        .softcap = m->hp->attn_softcap,
    };
    shaders_attention(m->shaders, &a);
}

/* ---- latent attention --------------------------------------------------------------------- */

void attn_record_low_norm(const struct forward_pass *r, const struct mla_weights *mla) {
    const struct model *m = r->m;
    const struct mla_buffers *b = &m->mla;
    const struct rows low = {b->q_low + r->mine.begin * b->ld_q_low, b->ld_q_low};
    shaders_rmsnorm(m->shaders, low, low, mla->q_a_norm, m->hp->mla.q_rank, r->mine.n,
                    m->hp->rms_eps);
}

void attn_record_latents(const struct forward_pass *r, const struct layer_weights *lw,
                         uint32_t layer) {
    struct model *m = r->m;
    struct shaders *s = m->shaders;
    const struct hparams *hp = m->hp;
    const struct device_buffers *b = &m->on_device;
    const struct rope_params *rope = &hp->rope;
    const uint32_t n = r->step->n_tokens, rank = hp->mla.kv_rank, n_rot = rope->n_rot;
    const struct rows kv = {m->k_new, m->ldk}, turning = {m->k_new + rank, m->ldk},
                      queries = {m->q + hp->mla.nope, m->ldq};
    const size_t angle = (size_t)r->first * (n_rot / 2);
    const float *cos = m->rope[0].cos + angle, *sin = m->rope[0].sin + angle;
    shaders_rmsnorm(s, kv, kv, lw->mla.kv_a_norm, rank, n, hp->rms_eps);
    if (lw->has_rope)
        shaders_rope(s, turning, 1, n_rot, n_rot, cos, sin, rope->mode, n);
    if (attn_latent_heads(m) == 0)
        return;
    shaders_kv_store(s, &m->kv.layers[layer].shape, kv, kv,
                     b->token_pages + (size_t)layer * m->cfg.n_tokens_max + r->first,
                     b->slots + r->first, n);
    if (lw->has_rope)
        shaders_rope(s, queries, attn_latent_heads(m), hp->mla.nope + n_rot, n_rot, cos, sin,
                     rope->mode, n);
}

void attn_record_head_packs(const struct forward_pass *r, const struct acts *acts,
                            const float *x, size_t ldx, size_t head_stride) {
    for (uint32_t h = 0; h < attn_latent_heads(r->m); h++)
        device_record_pack(r->m->shaders, &acts[h], x + h * head_stride, ldx);
}

void attn_record_head_copies(const struct forward_pass *r, float *to, size_t ldt,
                             size_t to_stride, const float *from, size_t ldf,
                             size_t from_stride, uint32_t n) {
    for (uint32_t h = 0; h < attn_latent_heads(r->m); h++)
        shaders_copy(r->m->shaders, to + h * to_stride, ldt * sizeof *to,
                     from + h * from_stride, ldf * sizeof *from, n * sizeof *to,
                     r->step->n_tokens);
}
