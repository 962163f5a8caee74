/* attention.h: what attention.c and attention_device.c both ask of a layer. */
#ifndef LOCKSTEP_MODEL_ATTENTION_H
#define LOCKSTEP_MODEL_ATTENTION_H

#include "model/on_device.h"

static inline const struct attn_kind *attn_kind_of(const struct model *m,
                                                   const struct layer_weights *lw) {
    return &m->hp->attn[lw->attn];
}

static inline const struct head_share *attn_heads_of(const struct model *m,
                                                     const struct layer_weights *lw) {
    return &m->share->heads[lw->attn];
}

static inline uint32_t attn_n_heads(const struct model *m, const struct layer_weights *lw) {
    return attn_heads_of(m, lw)->end - attn_heads_of(m, lw)->begin;
}

static inline uint32_t attn_n_kv(const struct model *m, const struct layer_weights *lw) {
    return attn_heads_of(m, lw)->kv_end - attn_heads_of(m, lw)->kv_begin;
}

static inline uint32_t attn_q_rows(const struct model *m, const struct layer_weights *lw) {
    return hparams_q_rows(m->hp, attn_kind_of(m, lw));
}

/* What queries at a position are multiplied with (hp->query_growth). */
float attn_query_growth(const struct query_growth *g, uint32_t pos);

static inline bool attn_grows_queries(const struct model *m, const struct layer_weights *lw) {
    const struct query_growth *g = &m->hp->query_growth;
    return g->scale != 0.0f && !(g->nope_only && lw->has_rope);
}

/* Whether this rank counts the squares of its first kv head in a norm over the row: of two that
 * hold it, the one with its first query head does. */
static inline bool attn_counts_first_kv(const struct model *m, const struct layer_weights *lw) {
    const struct attn_kind *kind = attn_kind_of(m, lw);
    const struct head_share *own = attn_heads_of(m, lw);
    return own->kv_begin * (kind->n_heads / kind->n_kv_heads) >= own->begin;
}

/* Of latent attention, of which there is one kind. */
static inline uint32_t attn_latent_heads(const struct model *m) {
    return m->share->heads[0].end - m->share->heads[0].begin;
}

/* The first position that a query sees whose own is end - 1. */
static inline uint32_t attn_first_seen(const struct layer_weights *lw, uint32_t end) {
    if (lw->chunk != 0)
        return (end - 1) / lw->chunk * lw->chunk;
    return lw->window != 0 && end > lw->window ? end - lw->window : 0;
}

/* Where queries lie and results go, for both forms. */
struct attn_io {
    const float *q;
    size_t ldq, q_stride; /* floats from token to token, from head to head */
    float *out;
    size_t ldo, o_stride;
};

static inline struct attn_io attn_io_of(const struct model *m, const struct layer_weights *lw) {
    const size_t vd = attn_kind_of(m, lw)->v_dim, ldo = attn_n_heads(m, lw) * vd;
    if (m->hp->mla.kv_rank != 0)
        return (struct attn_io){
            m->mla.q_latent, m->mla.ld_latent, m->mla.latent_stride, m->mla.result, ldo, vd};
    return (struct attn_io){m->q, m->ldq, attn_q_rows(m, lw), m->att, ldo, vd};
}

/* attention_device.c, for the thread that records: biases, what attention.c's finish_token() does
 * for all tokens, attention to all positions. */
bool attn_finish_is_on_device(const struct forward_pass *r, const struct layer_weights *lw);
/* The two halves of a norm over the row (QK_NORM_ROW), before and after the sum in acc [n, 2]. */
void attn_record_row_squares(const struct forward_pass *r, const struct layer_weights *lw);
void attn_record_row_norms(const struct forward_pass *r, const struct layer_weights *lw);
void attn_record_gates(const struct forward_pass *r, const struct layer_weights *lw,
                       struct rows gates, size_t gate_stride, bool one);
void attn_record_biases(const struct forward_pass *r, const struct layer_weights *lw);
void attn_record_finish(const struct forward_pass *r, const struct layer_weights *lw,
                        uint32_t layer);
void attn_record(const struct forward_pass *r, const struct layer_weights *lw, uint32_t layer);
/* Of latent attention: the norm of this rank's low-rank queries, finish_token(), packing of each
 * head's first `width` columns, and n floats of each head from one place to another. */
void attn_record_low_norm(const struct forward_pass *r, const struct mla_weights *mla);
void attn_record_latents(const struct forward_pass *r, const struct layer_weights *lw,
                         uint32_t layer);
void attn_record_head_packs(const struct forward_pass *r, const struct acts *acts,
                            const float *x, size_t ldx, size_t head_stride);
void attn_record_head_copies(const struct forward_pass *r, float *to, size_t ldt,
                             size_t to_stride, const float *from, size_t ldf,
                             size_t from_stride, uint32_t n);
/* Thread 0, before a barrier: where the device finds this layer's pages (m->page_ptrs), and each
 * token's place. */
void attn_device_tables(const struct forward_pass *r, const struct layer_weights *lw,
                        uint32_t layer);

#endif
