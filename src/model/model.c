/* model.c: opens a rank's part of a model: weights, cache, teams, and one block of step buffers
 * laid out by a list, so that a step allocates nothing. */
#include "model/model.h"

#include "arch/rope_table.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "model/forward.h"
#include "model/on_device.h"

#include <stdio.h>

/* One buffer of the block: where its pointer goes and how large it is. */
struct buffer {
    void *dst;        /* void ** in disguise */
    size_t bytes, at; /* place() says where */
    bool inner;
};

struct layout {
    struct buffer *list;
    size_t n, cap, total, inner_total;
    bool inner; /* what comes is read and written by products, and by what stands between them:
                 * nobody but a device that does all of it (device_does_all()) */
    bool failed;
};

static void want(struct layout *lay, void *dst, size_t n, size_t size) {
    if (!mem_reserve(&lay->list, &lay->cap, lay->n + 1, sizeof *lay->list)) {
        lay->failed = true;
        return;
    }
    size_t bytes = round_up(n * size, CACHE_LINE);
    lay->list[lay->n++] = (struct buffer){dst, bytes, 0, lay->inner};
    lay->total += bytes;
    lay->inner_total += lay->inner ? bytes : 0;
}

static void want_act(struct layout *lay, struct act *a, enum act_kind kind, size_t n_tokens,
                     size_t n_cols) {
    *a = (struct act){.kind = kind, .n_cols = (uint32_t)n_cols};
    size_t n_blocks = n_cols / ACT_BLOCK;
    if (kind == ACT_F32) {
        want(lay, &a->f, n_tokens * n_cols, sizeof(float));
        return;
    }
    want(lay, &a->q, n_tokens * n_cols, 1);
    want(lay, &a->d, n_tokens * n_blocks, sizeof(float));
    want(lay, &a->sums, n_tokens * n_blocks, sizeof(struct act_sums));
    want(lay, &a->start, n_tokens * n_blocks, sizeof(int32_t));
    want(lay, &a->s, n_tokens * n_blocks, sizeof(float));
}

/* Space for the activations of n_tokens in the forms that a product reads. */
static void want_acts(struct layout *lay, struct acts *a, size_t n_tokens, size_t n_cols,
                      struct forms needs) {
    want_act(lay, &a->f32, ACT_F32, needs.f32 ? n_tokens : 0, n_cols);
    want_act(lay, &a->q8, ACT_Q8, needs.q8 ? n_tokens : 0, n_cols);
}

static void need(struct forms *n, const struct wmat *w) {
    if (w->n_rows == 0 || w->n_cols == 0)
        return;
    if (act_kind_for(w->type) == ACT_F32)
        n->f32 = true;
    else
        n->q8 = true;
}

/* Which forms the inputs of each kind of product are wanted in; x_own: x too, but only of the
 * tokens sharded to this rank. */
struct all_needs {
    struct forms x, x_own, router, input, laurel, att, ffn, shared, expert, expert_mid, low,
        nope, result, recurrent, recurrent_low[2], latent, group;
};

static void need_recurrent(struct all_needs *n, const struct recurrent_weights *w) {
    for (uint32_t i = 0; i < w->n_in; i++)
        need(&n->x, &w->in[i]);
    for (uint32_t i = 0; i < w->n_out; i++)
        need(&n->recurrent, &w->out[i]);
    need(&n->recurrent_low[0], &w->decays);
    need(&n->recurrent_low[1], &w->gates);
}

static void need_compressed(struct all_needs *n, const struct layer_weights *lw,
                            uint32_t n_groups) {
    const struct compressed_weights *w = lw->compressed;
    const struct wmat *from_x[] = {&w->q_a,          &w->kv,       &w->keys.kv,
                                   &w->keys.gate,    &w->index.kv, &w->index.gate,
                                   &w->index_weights};
    for (size_t i = 0; i < ARRAY_LEN(from_x); i++)
        need(&n->x_own, from_x[i]);
    need(&n->low, &lw->q);
    need(&n->low, &w->index_q);
    for (uint32_t g = 0; g < n_groups; g++)
        need(&n->group, &w->out_a[g]);
}

static void need_layer(struct all_needs *n, const struct layer_weights *lw, uint32_t n_heads,
                       const struct moe_params *moe) {
    const struct wmat *from_x[] = {&lw->k, &lw->v, &lw->head_gate, &lw->ffn.gate, &lw->ffn.up};
    for (size_t i = 0; i < ARRAY_LEN(from_x); i++)
        need(&n->x, from_x[i]);
    need(&n->x_own, &lw->mla.q_a);
    need(&n->x_own, &lw->mla.kv_a);
    if (lw->compressed == NULL)
        need(lw->mla.q_a.n_rows != 0 ? &n->low : &n->x, &lw->q);
    if (lw->index != NULL) {
        struct forms *x = lw->mla.kv_a.n_rows != 0 ? &n->x_own : &n->x;
        need(lw->mla.q_a.n_rows != 0 ? &n->low : &n->x, &lw->index->q);
        need(x, &lw->index->k);
        need(x, &lw->index->weights);
    }
    need(&n->x_own, &lw->input.gate);
    need(&n->input, &lw->input.proj);
    need(&n->x_own, &lw->streams.laurel_l);
    need(&n->laurel, &lw->streams.laurel_r);
    need(&n->att, &lw->o);
    need(&n->ffn, &lw->ffn.down);
    if (lw->recurrent != NULL)
        need_recurrent(n, lw->recurrent);
    for (uint32_t h = 0; h < n_heads && lw->mla.k_b != NULL; h++) {
        need(&n->nope, &lw->mla.k_b[h]);
        need(&n->result, &lw->mla.v_b[h]);
    }
    if (lw->moe == NULL)
        return;
    need(moe->dense_beside ? &n->router : &n->x_own, &lw->moe->router);
    need(&n->x_own, &lw->moe->shared_router);
    need(&n->x, &lw->moe->shared.gate);
    need(&n->x, &lw->moe->shared.up);
    need(&n->shared, &lw->moe->shared.down);
    for (uint32_t e = 0; e < moe->n_experts; e++) {
        need(&n->expert, &lw->moe->experts[e].gate);
        need(&n->expert, &lw->moe->experts[e].up);
        need(&n->expert_mid, &lw->moe->experts[e].down);
    }
    need(&n->x_own, &lw->moe->latent_down);
    need(&n->latent, &lw->moe->latent_up);
    struct forms *in = moe->n_latent != 0 ? &n->latent : &n->x;
    in->f32 |= n->expert.f32; /* the experts' inputs are gathered from it */
    in->q8 |= n->expert.q8;
}

static enum status alloc_mla(struct model *m, struct layout *lay, const struct all_needs *needs,
                             struct err *err) {
    const struct hparams *hp = m->hp;
    struct mla_buffers *b = &m->mla;
    size_t n = m->cfg.n_tokens_max, heads = m->share->heads[0].end - m->share->heads[0].begin;
    size_t rank = hp->mla.kv_rank;
    if (rank == 0)
        return ST_OK;
    b->nope_act = mem_calloc(heads, sizeof *b->nope_act);
    b->result_act = mem_calloc(heads, sizeof *b->result_act);
    if (b->nope_act == NULL || b->result_act == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for step buffers");
    b->ld_q_low = round_up(hp->mla.q_rank, TILE_ROWS);
    b->latent_stride = round_up(rank, TILE_ROWS) + hp->rope.n_rot;
    b->ld_latent = heads * b->latent_stride;
    lay->inner = true;
    want(lay, &b->q_low, n * b->ld_q_low, sizeof(float));
    want_acts(lay, &b->q_low_act, n, hp->mla.q_rank, needs->low);
    for (size_t h = 0; h < heads; h++) {
        want_acts(lay, &b->nope_act[h], n, hp->mla.nope, needs->nope);
        want_acts(lay, &b->result_act[h], n, rank, needs->result);
    }
    want(lay, &b->q_latent, n * b->ld_latent, sizeof(float));
    want(lay, &b->result, n * heads * rank, sizeof(float));
    want(lay, &b->heads_out, n * heads * round_up(hp->mla.v_dim, TILE_ROWS), sizeof(float));
    lay->inner = false;
    want(lay, &b->products, heads, sizeof *b->products);
    return ST_OK;
}

static void alloc_indexer(struct model *m, struct layout *lay) {
    struct index_buffers *b = &m->index;
    size_t n = m->cfg.n_tokens_max;
    indexer_size(b, m->hp, m->share, &m->cfg);
    want(lay, &b->q, n * b->ldq, sizeof(float));
    want(lay, &b->k_new, n * b->ldk, sizeof(float));
    want(lay, &b->weights, n * b->ldw, sizeof(float));
    if (b->ld_chosen == 0)
        return;
    want(lay, &b->scores, INDEX_TOGETHER * b->ld_scores, sizeof(float));
    want(lay, &b->chosen, n * b->n_choosers * b->ld_chosen, sizeof *b->chosen);
    want(lay, &b->n_chosen, n * b->n_choosers, sizeof *b->n_chosen);
    want(lay, &b->pages, m->n_pages_max, sizeof *b->pages);
}

static enum status alloc_compressed(struct model *m, struct layout *lay,
                                    const struct all_needs *needs, size_t threads,
                                    struct err *err) {
    const struct compress_params *p = &m->hp->compress;
    struct compressed_buffers *b = &m->compressed;
    struct mla_buffers *low = &m->mla;
    const size_t n = m->cfg.n_tokens_max;
    if (p->n_groups == 0)
        return ST_OK;
    b->group_act = mem_calloc(b->n_groups, sizeof *b->group_act);
    if (b->group_act == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for step buffers");
    low->ld_q_low = round_up(p->q_rank, TILE_ROWS);
    want(lay, &low->q_low, n * low->ld_q_low, sizeof(float));
    want_acts(lay, &low->q_low_act, n, p->q_rank, needs->low);
    want(lay, &b->raw, n * b->ld_raw, sizeof(float));
    want(lay, &b->index_q, n * b->ld_index_q, sizeof(float));
    if (b->ld_chosen != 0) {
        want(lay, &b->scores, INDEX_TOGETHER * b->ld_scores, sizeof(float));
        want(lay, &b->chosen, n * b->ld_chosen, sizeof *b->chosen);
        want(lay, &b->n_chosen, n, sizeof *b->n_chosen);
    }
    want(lay, &b->seen, threads * b->seen_bytes, 1);
    want(lay, &b->seen_pages, threads * b->n_seen_pages, sizeof *b->seen_pages);
    for (uint32_t g = 0; g < b->n_groups; g++)
        want_acts(lay, &b->group_act[g], n,
                  m->hp->n_heads / p->n_groups * (size_t)m->hp->head_dim, needs->group);
    want(lay, &b->low_out, n * b->n_groups * b->low_stride, sizeof(float));
    want(lay, &b->low, n * b->n_groups * p->o_rank, sizeof(float));
    want(lay, &b->products, b->n_groups, sizeof *b->products);
    return ST_OK;
}

static enum status alloc_hyper(struct model *m, struct layout *lay, struct err *err) {
    struct hyper_buffers *b = &m->hyper;
    const size_t n = m->cfg.n_tokens_max, n_streams = m->hp->n_streams;
    if (m->hp->hyper.n_iterations == 0)
        return ST_OK;
    b->n_pieces = hyper_n_pieces(m->hp);
    b->act = mem_calloc(b->n_pieces, sizeof *b->act);
    if (b->act == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for step buffers");
    b->ld_mix = round_up(n_streams * (n_streams + 2), TILE_ROWS);
    want(lay, &b->mix, n * b->ld_mix, sizeof(float));
    want(lay, &b->parts, n * b->n_pieces * b->ld_mix, sizeof(float));
    for (uint32_t i = 0; i < b->n_pieces; i++) {
        uint32_t n_cols;
        hyper_piece(m->hp, i, &n_cols);
        want_acts(lay, &b->act[i], n, n_cols, (struct forms){.f32 = true});
    }
    want(lay, &m->streams.all, n * n_streams * m->hp->n_embd, sizeof(float));
    return ST_OK;
}

static void alloc_moe(struct model *m, struct layout *lay, const struct all_needs *needs,
                      size_t threads) {
    const struct moe_params *p = &m->hp->moe;
    const struct share *sh = m->share;
    struct moe_buffers *b = &m->moe;
    size_t n = m->cfg.n_tokens_max, rows = n * p->n_used;
    size_t ff = sh->expert_ff_end - sh->expert_ff_begin, e = m->hp->n_embd;
    size_t shared = sh->shared_end - sh->shared_begin;
    size_t in = p->n_latent != 0 ? p->n_latent : e;
    want(lay, &m->beside, p->dense_beside || m->hp->parallel_blocks ? n * e : 0, sizeof(float));
    if (p->n_experts == 0)
        return;
    b->ld_latents = round_up(p->n_latent, TILE_ROWS);
    want(lay, &m->router_in, p->dense_beside ? n * e : 0, sizeof(float));
    want_acts(lay, &m->router_act, n, e, needs->router);
    lay->inner = true;
    want(lay, &b->latents, n * b->ld_latents, sizeof(float));
    want_acts(lay, &b->latent_act, n, p->n_latent, needs->latent);
    want(lay, &b->in_order, p->n_latent != 0 ? n : 0, sizeof *b->in_order);
    want_acts(lay, &m->shared_act, n, shared, needs->shared);
    lay->inner = false;
    want(lay, &m->shared_logits, p->shared_router ? n * TILE_ROWS : 0, sizeof(float));
    want(lay, &m->shared_weights, p->shared_router ? n : 0, sizeof(float));
    b->ld_logits = round_up(p->n_experts, TILE_ROWS);
    want(lay, &b->logits, n * b->ld_logits, sizeof(float));
    want(lay, &b->router_scratch, threads * p->n_experts, sizeof(float));
    want(lay, &b->choices, rows, sizeof *b->choices);
    want(lay, &b->first, p->n_experts + 1, sizeof *b->first);
    want(lay, &b->filled, p->n_experts, sizeof *b->filled);
    want(lay, &b->active, p->n_experts, sizeof *b->active);
    want(lay, &b->slot, p->n_experts, sizeof *b->slot);
    want(lay, &b->tokens, rows, sizeof *b->tokens);
    want(lay, &b->weights, rows, sizeof *b->weights);
    want(lay, &b->groups, rows, sizeof *b->groups);
    want(lay, &b->in, p->n_experts, sizeof *b->in);
    want(lay, &b->mid, p->n_experts, sizeof *b->mid);
    want(lay, &b->ups, (size_t)p->n_experts + 1, sizeof *b->ups);
    want(lay, &b->sums, (threads - 1) * MOE_FEW * m->ld_acc, sizeof *b->sums);
    lay->inner = true;
    want_acts(lay, &b->in_act, rows, in, needs->expert);
    want_acts(lay, &b->mid_act, rows, ff, needs->expert_mid);
    lay->inner = false;
}

static void alloc_layer_inputs(struct model *m, struct layout *lay,
                               const struct all_needs *needs) {
    struct layer_input_buffers *b = &m->input;
    size_t n = m->cfg.n_tokens_max, width = m->hp->n_layer_input;
    if (width == 0)
        return;
    b->ld_all = round_up(m->w.n_layers * width, TILE_ROWS);
    b->ld_rows = m->w.n_layers * width + (size_t)2 * QK_K;
    b->ld_mid = round_up(width, TILE_ROWS);
    b->ld_out = round_up(m->hp->n_embd, TILE_ROWS);
    want(lay, &b->all, n * b->ld_all, sizeof(float));
    want(lay, &b->mid, n * b->ld_mid, sizeof(float));
    want(lay, &b->out, n * b->ld_out, sizeof(float));
    want(lay, &b->rows, n * b->ld_rows, sizeof(float));
    want_acts(lay, &b->mid_act, n, width, needs->input);
}

static void alloc_streams(struct model *m, struct layout *lay, const struct all_needs *needs,
                          size_t ff) {
    struct stream_buffers *b = &m->streams;
    size_t n = m->cfg.n_tokens_max, e = m->hp->n_embd;
    want(lay, &m->kept, n * depth_width(m), sizeof(float));
    if (!hparams_predicts_streams(m->hp))
        return;
    b->ld_low = round_up(m->hp->n_laurel, TILE_ROWS);
    b->ld_square = round_up(e, TILE_ROWS);
    b->ld_gate = round_up(ff, TILE_ROWS);
    want(lay, &b->all, n * m->hp->n_streams * e, sizeof(float));
    want(lay, &b->laurel, n * e, sizeof(float));
    want(lay, &b->low, n * b->ld_low, sizeof(float));
    want(lay, &b->square, n * b->ld_square, sizeof(float));
    want_acts(lay, &b->low_act, n, m->hp->n_laurel, needs->laurel);
    want(lay, &b->gate_rows, n * b->ld_gate, sizeof(float));
    want(lay, &b->cutoffs, n, sizeof(float));
}

static enum status alloc_recurrent(struct model *m, struct layout *lay,
                                   const struct all_needs *needs, struct err *err) {
    struct recurrent_buffers *b = &m->recurrent;
    size_t n = m->cfg.n_tokens_max, k_dim = m->hp->recurrent.k_dim;
    if (m->hp->recurrent.kind == RECURRENT_NONE)
        return ST_OK;
    recurrent_lay_out(&b->lay, m->hp, m->share);
    for (uint32_t i = 0; i < m->w.n_layers; i++)
        if (m->w.layers[i].recurrent != NULL)
            b->n_in_max = MAX(b->n_in_max, m->w.layers[i].recurrent->n_in);
    b->out_act = mem_calloc(b->lay.n_pieces, sizeof *b->out_act);
    if (b->out_act == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for step buffers");
    want(lay, &b->products, b->n_in_max, sizeof *b->products);
    if (m->cfg.shaders != NULL)
        want(lay, &b->runs, m->cfg.n_runs_max + MICROBATCHES_MAX - 1, sizeof *b->runs);
    lay->inner = true;
    if (m->cfg.shaders != NULL)
        want(lay, &b->heads, b->lay.n_heads, sizeof *b->heads);
    want(lay, &b->rows, n * b->lay.ld, sizeof(float));
    want(lay, &b->out, n * b->lay.out_ld, sizeof(float));
    want(lay, &b->q_scale, k_dim, sizeof(float));
    want(lay, &b->k_scale, k_dim, sizeof(float));
    want(lay, &b->in_order, n, sizeof *b->in_order);
    for (size_t i = 0; i < ARRAY_LEN(b->low_act) && m->hp->recurrent.by_channel; i++)
        want_acts(lay, &b->low_act[i], n, k_dim, needs->recurrent_low[i]);
    for (uint32_t j = 0; j < b->lay.n_pieces; j++)
        want_acts(lay, &b->out_act[j], n, b->lay.piece_cols, needs->recurrent);
    lay->inner = false;
    return ST_OK;
}

/* The widest rows that any kind of the share's layers needs. */
static void widen_rows(struct model *m, const struct attn_kind *kind,
                       const struct head_share *own) {
    const struct hparams *hp = m->hp;
    size_t heads = own->end - own->begin, kv_heads = own->kv_end - own->kv_begin;
    bool latent = hp->mla.kv_rank != 0, one = hp->compress.n_groups != 0;
    size_t key = latent ? hp->mla.nope + hp->rope.n_rot : hparams_q_rows(hp, kind);
    size_t k = latent || one ? kind->head_dim : kv_heads * kind->head_dim;
    size_t v = latent || one ? 0 : kv_heads * kind->v_dim;
    const struct kv_shape shape = model_kv_shape(hp, m->share, kind, m->cfg.kv_type);
    m->ldq = MAX(m->ldq, round_up(heads * key, TILE_ROWS));
    m->ldk = MAX(m->ldk, round_up(k, TILE_ROWS));
    m->ldv = MAX(m->ldv, round_up(v, TILE_ROWS));
    m->ld_att = MAX(m->ld_att, heads * hparams_out_dim(hp, kind));
    m->ld_att = MAX(m->ld_att, (size_t)m->compressed.n_groups * hp->compress.o_rank);
    m->ld_gates = MAX(m->ld_gates, round_up(heads * hparams_gate_dim(hp, kind), TILE_ROWS));
    m->scratch_floats = MAX(m->scratch_floats, round_up(attn_scratch_floats(&shape), 16));
}

/* Kinds whose RoPE is the same share their angles. */
static bool same_rope(const struct attn_kind *a, const struct attn_kind *b) {
    return a->rope.n_rot == b->rope.n_rot && a->rope.base == b->rope.base &&
           a->rope.scaling == b->rope.scaling && a->rope_factors == b->rope_factors;
}

static void alloc_attention(struct model *m, struct layout *lay, size_t threads) {
    const struct hparams *hp = m->hp;
    size_t n = m->cfg.n_tokens_max;
    m->n_pages_max = m->cfg.n_runs_max * div_up(m->cfg.n_ctx, KV_PAGE);
    for (uint32_t i = 0; i < hp->n_attn; i++) {
        size_t n_pairs = hp->attn[i].rope.n_rot / 2;
        widen_rows(m, &hp->attn[i], &m->share->heads[i]);
        for (uint32_t j = 0; j <= i && m->angles[i] == NULL; j++)
            if (same_rope(&hp->attn[i], &hp->attn[j]))
                m->angles[i] = &m->rope[j];
        if (m->angles[i] != &m->rope[i])
            continue;
        m->rope[i].n_pairs = (uint32_t)n_pairs;
        want(lay, &m->rope[i].freqs, n_pairs, sizeof(double));
        want(lay, &m->rope[i].cos, n * n_pairs, sizeof(float));
        want(lay, &m->rope[i].sin, n * n_pairs, sizeof(float));
    }
    m->scratch_floats = MAX(m->scratch_floats, round_up(indexer_scratch_floats(m), 16));
    m->scratch_floats = MAX(m->scratch_floats, round_up(compressed_scratch_floats(hp), 16));
    lay->inner = true;
    want(lay, &m->q, n * m->ldq, sizeof(float));
    want(lay, &m->k_new, n * m->ldk, sizeof(float));
    want(lay, &m->v_new, n * m->ldv, sizeof(float));
    want(lay, &m->att, n * m->ld_att, sizeof(float));
    want(lay, &m->gates, n * m->ld_gates, sizeof(float));
    lay->inner = false;
    want(lay, &m->page_ptrs, m->n_pages_max, sizeof(uint8_t *));
    want(lay, &m->microbatch_runs, m->cfg.n_runs_max + MICROBATCHES_MAX - 1,
         sizeof *m->microbatch_runs);
    want(lay, &m->attn_scratch, m->scratch_floats * threads, sizeof(float));
}

static void alloc_device(struct model *m, struct layout *lay, uint32_t ff) {
    struct device_buffers *b = &m->on_device;
    const struct moe_params *p = &m->hp->moe;
    const size_t n = m->cfg.n_tokens_max, n_layers = m->w.n_layers, rows = n * p->n_used;
    if (m->cfg.shaders == NULL)
        return;
    b->ld_ff = round_up(MAX(ff, m->share->shared_end - m->share->shared_begin), TILE_ROWS);
    b->ld_expert = round_up(m->share->expert_ff_end - m->share->expert_ff_begin, TILE_ROWS);
    const size_t middle = MAX(DEVICE_FFN_TOKENS * b->ld_ff, rows * b->ld_expert);
    lay->inner = true;
    want(lay, &b->gate, middle, sizeof(float));
    want(lay, &b->up, middle, sizeof(float));
    want(lay, &b->matrices, n_layers * 3 * p->n_experts, sizeof *b->matrices);
    want(lay, &b->routing, n * (m->moe.ld_logits + TILE_ROWS + 1), sizeof(float));
    want(lay, &b->choices, rows, sizeof *b->choices);
    want(lay, &b->groups, shaders_group_words((uint32_t)rows, p->n_experts), sizeof *b->groups);
    if (p->n_experts != 0 && device_keeps_buffers(m) && !device_keeps_stream(m))
        want(lay, &b->sums, n * m->ld_acc, sizeof *b->sums);
    lay->inner = false;
    want(lay, &b->pages, n_layers * m->n_pages_max, sizeof *b->pages);
    want(lay, &b->token_pages, n_layers * n, sizeof *b->token_pages);
    want(lay, &b->slots, n, sizeof *b->slots);
    want(lay, &b->growths, n, sizeof *b->growths);
    want(lay, &b->queries, n_layers * n, sizeof *b->queries);
}

static void alloc_outputs(struct model *m, struct layout *lay) {
    const struct hparams *hp = m->hp;
    m->ld_vocab = round_up(m->share->vocab_end - m->share->vocab_begin, TILE_ROWS);
    want(lay, &m->part_bytes, (size_t)m->plan.n_ranks, sizeof(size_t));
    if (m->share->last_stage) {
        want(lay, &m->out_rows, LOGIT_ROWS * (size_t)hp->n_embd, sizeof(float));
        want(lay, &m->logits, LOGIT_ROWS * m->ld_vocab, sizeof(float));
    }
    if (m->rank == 0 && m->plan.n_ranks > 1)
        want(lay, &m->gathered, (size_t)LOGIT_ROWS * hp->n_vocab, sizeof(float));
    if (m->rank == 0)
        want(lay, &m->logits_all, (size_t)LOGIT_ROWS * MAX(hp->n_vocab, hp->n_embd),
             sizeof(float));
}

/* Places for the inner buffers, or the others. */
static bool place_part(struct pieces *p, const struct layout *lay, bool inner) {
    bool placed = true;
    for (struct buffer *b = lay->list; b < lay->list + lay->n && placed; b++)
        if (b->inner == inner && b->bytes != 0)
            placed = pieces_take(p, b->bytes, 0, &b->at);
    return placed;
}

/* The inner buffers are whole pages. */
static size_t layout_bytes(const struct layout *lay) {
    return round_up(lay->inner_total, PIECES_PAGE) + lay->total - lay->inner_total;
}

static enum status place(struct model *m, const struct layout *lay, struct err *err) {
    struct pieces *inner = &m->on_device.inner, *others = &m->on_device.others;
    inner->most = others->most = device_piece_most(m);
    bool placed = place_part(inner, lay, true) && place_part(others, lay, false);
    m->inner_bytes = round_up(inner->total, PIECES_PAGE);
    m->block_bytes = m->inner_bytes + others->total;
    m->block = placed ? mem_huge_alloc(m->block_bytes) : NULL;
    if (m->block == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for step buffers of %.1f MB",
                       (double)m->block_bytes * 1e-6);
    for (const struct buffer *b = lay->list; b < lay->list + lay->n; b++) {
        uint8_t *at = m->block + (b->inner ? 0 : m->inner_bytes) + b->at;
        if (b->bytes != 0) /* an empty buffer stays NULL */
            memcpy(b->dst, &at, sizeof at);
    }
    return ST_OK;
}

/* Of weights, cache and configuration; the caller frees the list, also after a failure. */
static enum status lay_out(struct layout *lay, struct model *m, int n_threads,
                           struct err *err) {
    const struct hparams *hp = m->hp;
    const struct share *sh = m->share;
    size_t n = m->cfg.n_tokens_max, e = hp->n_embd;
    uint32_t ff = 0, latent_heads = sh->heads[0].end - sh->heads[0].begin;
    struct all_needs needs = {0};
    for (uint32_t i = 0; i < hp->n_ff_widths; i++)
        ff = MAX(ff, sh->ff[i].end - sh->ff[i].begin);
    if (hp->compress.n_groups != 0)
        compressed_size(m);
    for (uint32_t i = 0; i < m->w.n_layers; i++) {
        need_layer(&needs, &m->w.layers[i], latent_heads, &hp->moe);
        if (hp->compress.n_groups != 0)
            need_compressed(&needs, &m->w.layers[i], m->compressed.n_groups);
    }
    need(&needs.x_own, &m->w.input_proj);
    for (uint32_t i = 1; i < hp->n_streams && hparams_predicts_streams(hp); i++) {
        need(&needs.x_own, &m->w.stream_in[i - 1]);
        need(&needs.x_own, &m->w.stream_out[i - 1]);
    }
    m->x_told = needs.x;
    m->q_low_told = needs.low;
    needs.x.f32 |= needs.x_own.f32;
    needs.x.q8 |= needs.x_own.q8;
    if (m->share->last_stage)
        need(&needs.x, &m->w.output);

    m->ld_acc = MAX(round_up(MAX(e, hp->moe.n_latent), TILE_ROWS), (size_t)2);
    lay->inner = true;
    want(lay, &m->normed, n * e, sizeof(float));
    want_acts(lay, &m->x_act, n, e, needs.x);
    lay->inner = device_keeps_stream(m);
    want(lay, &m->x, n * e, sizeof(float));
    want(lay, &m->acc, n * m->ld_acc, sizeof(int64_t));
    lay->inner = false;
    if (device_keeps_stream(m))
        want(lay, &m->on_device.embeddings, n * e, sizeof(float));
    want(lay, &m->ffn_scratch, (size_t)n_threads * 2 * FFN_FLOATS, sizeof(float));
    alloc_attention(m, lay, (size_t)n_threads);
    lay->inner = true;
    want_acts(lay, &m->att_act, n, m->ld_att, needs.att);
    want_acts(lay, &m->ff_act, n, ff, needs.ffn);
    lay->inner = false;
    TRY(alloc_mla(m, lay, &needs, err));
    alloc_indexer(m, lay);
    TRY(alloc_compressed(m, lay, &needs, (size_t)n_threads, err));
    TRY(alloc_hyper(m, lay, err));
    TRY(alloc_recurrent(m, lay, &needs, err));
    alloc_moe(m, lay, &needs, (size_t)n_threads);
    alloc_layer_inputs(m, lay, &needs);
    alloc_streams(m, lay, &needs, ff);
    alloc_outputs(m, lay);
    alloc_device(m, lay, ff);
    return lay->failed ? err_set(err, ST_NO_MEMORY, "no memory for step buffers") : ST_OK;
}

static enum status alloc_buffers(struct model *m, struct err *err) {
    struct layout lay = {0};
    enum status st = lay_out(&lay, m, pool_n_threads(m->pool), err);
    if (st == ST_OK)
        st = place(m, &lay, err);
    mem_free(lay.list);
    return st;
}

static enum status open_cache(struct model *m, struct err *err) {
    struct kv_keep *keeps = mem_calloc(m->w.n_layers, sizeof *keeps);
    if (keeps == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a KV cache");
    for (uint32_t i = 0; i < m->w.n_layers; i++)
        keeps[i] = model_kv_keep(m->hp, m->share, m->share->layer_begin + i, m->cfg.kv_type);
    enum status st = kv_open(&m->kv, keeps, m->w.n_layers, m->cfg.n_pages, err);
    mem_free(keeps);
    for (uint32_t i = 0; i < m->w.n_layers && st == ST_OK; i++) {
        uint32_t layer = m->share->layer_begin + i, from = hparams_kv_layer(m->hp, layer);
        BUG_ON(from < m->share->layer_begin);
        m->kv.layers[i] = m->kv.layers[from - m->share->layer_begin];
    }
    if (st == ST_OK && m->shaders == NULL) /* a device has its pages at once */
        m->kv_prefault = kv_prefault_open(&m->kv);
    return st;
}

static enum status open_teams(struct model *m, struct err *err) {
    if (m->f == NULL)
        return ST_OK;
    int ranks[PLAN_MAX_RANKS];
    for (int r = 0; r < m->plan.n_ranks; r++)
        ranks[r] = r;
    TRY(fabric_team(m->f, &m->all, ranks, m->plan.n_ranks, err));
    TRY(fabric_meet(m->all, err)); /* one may load for much longer than another */
    if (m->plan.tp > 1)
        TRY(fabric_team(m->f, &m->team, ranks + m->share->stage * m->plan.tp, m->plan.tp, err));
    return ST_OK;
}

static bool lacks(const struct acts *a, struct forms told) {
    return (told.f32 && a->f32.f == NULL) || (told.q8 && a->q8.q == NULL);
}

/* Whether long steps are sharded. A member that holds nothing of some matrix may lack the
 * buffer of a form that others want: then none are. */
static enum status agree_on_sharding(struct model *m, struct err *err) {
    if (m->team == NULL || !team_has_halves(m->team))
        return ST_OK;
    struct forms *x = &m->x_told, *low = &m->q_low_told;
    int64_t wanted[] = {x->f32, x->q8, low->f32, low->q8};
    TRY(fabric_allreduce(m->team, wanted, ARRAY_LEN(wanted), err));
    *x = (struct forms){wanted[0] != 0, wanted[1] != 0};
    *low = (struct forms){wanted[2] != 0, wanted[3] != 0};
    int64_t n_lacking =
        lacks(&m->x_act, *x) || lacks(&m->mla.q_low_act, *low) || device_keeps_buffers(m);
    TRY(fabric_allreduce(m->team, &n_lacking, 1, err));
    m->shards = n_lacking == 0;
    return ST_OK;
}

/* What a step of MICROBATCH_LEAST tokens in one microbatch waits for between two halves of a
 * layer. */
static enum status exchange(struct model *m, struct err *err) {
    if (!m->shards)
        return fabric_allreduce(m->team, m->acc, MICROBATCH_LEAST * m->ld_acc, err);
    uint32_t first[PLAN_MAX_RANKS + 1];
    size_t begin[PLAN_MAX_RANKS + 1];
    shard_tokens(&m->plan, m->share->stage, MICROBATCH_LEAST, first);
    for (int i = 0; i <= m->plan.tp; i++)
        begin[i] = first[i] * m->ld_acc;
    struct fabric_rows list[FORWARD_ACT_ROWS];
    TRY(fabric_reduce_scatter(m->team, m->acc, begin, err));
    return fabric_allgather(m->team, list, forward_act_rows(&m->x_act, m->x_told, list), first,
                            err);
}

/* Which steps use two microbatches (microbatch.h). The members of a team must agree, so they
 * use the means over all members: of the bytes to read, and of an exchange's time (the best of
 * several). If steps are sharded on one machine, there are none. Its cores do all of an
 * exchange, so there is no waiting to hide (docs/fabric.md). */
static enum status measure_microbatches(struct model *m, struct err *err) {
    m->microbatches_from = UINT32_MAX;
    if (m->team == NULL || m->w.n_layers == 0 ||
        m->cfg.n_tokens_max < MICROBATCHES_MAX * MICROBATCH_LEAST ||
        (m->shards && team_in_one_host(m->team)))
        return ST_OK;
    uint64_t sum_ns = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        uint64_t began = clock_ns();
        TRY(exchange(m, err));
        sum_ns = MIN(sum_ns, clock_ns() - began);
    }
    int64_t both[] = {(int64_t)(m->w.packed_bytes - wmat_bytes(&m->w.output)), (int64_t)sum_ns};
    TRY(fabric_allreduce(m->team, both, ARRAY_LEN(both), err));
    uint64_t size = (uint64_t)m->plan.tp;
    m->microbatches_from =
        microbatch_worth((uint64_t)both[0] / size, m->w.n_layers, (uint64_t)both[1] / size);
    return m->microbatches_from <= m->cfg.n_tokens_max
               ? async_worker_open(&m->async_worker, err)
               : ST_OK;
}

static enum status make_rope_tables(struct model *m, const struct gguf *g, struct err *err) {
    struct err why;
    enum status st = ST_OK;
    for (uint32_t i = 0; i < m->hp->n_attn && st == ST_OK; i++) {
        const struct attn_kind *kind = &m->hp->attn[i];
        const float *factors = kind->rope_factors ? m->w.rope_factors : NULL;
        struct rope_angles *angles = &m->rope[i];
        if (angles->freqs != NULL)
            st = rope_table_freqs(&kind->rope, factors, m->cfg.n_ctx, angles->freqs,
                                  &angles->scale, &why);
    }
    return st == ST_OK ? ST_OK : err_set(err, st, "%s: %s", gguf_path(g), why.text);
}

enum status model_open(struct model **out, const struct gguf *g, const struct hparams *hp,
                       const struct plan *plan, int rank, const struct model_config *cfg,
                       struct pool *pool, const struct kernels *kernels, struct fabric *f,
                       struct err *err) {
    struct model *m = mem_calloc(1, sizeof *m);
    if (m == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a model");
    m->hp = hp;
    m->plan = *plan;
    m->share = &m->plan.shares[rank];
    m->rank = rank;
    m->cfg = *cfg;
    m->g = g;
    m->pool = pool;
    m->k = kernels;
    m->shaders = cfg->shaders;
    m->f = f;
    enum status st = weights_load(&m->w, g, hp, m->share, cfg->source, device_piece_most(m),
                                  pool, cfg->progress, cfg->progress_user, err);
    m->cfg.source = NULL; /* borrowed for the loading */
    if (st == ST_OK)
        st = gguf_check_intact(g, err);
    if (st == ST_OK)
        st = open_cache(m, err);
    if (st == ST_OK)
        st = indexer_open(m, err);
    if (st == ST_OK)
        st = compressed_open(m, err);
    if (st == ST_OK)
        st = recurrent_states_open(&m->states, recurrent_state_bytes(hp, m->share),
                                   m->cfg.n_states, err);
    if (st == ST_OK)
        st = alloc_buffers(m, err);
    if (st == ST_OK) {
        recurrent_prepare(m);
        st = device_share_memory(m, err);
    }
    if (st == ST_OK)
        st = make_rope_tables(m, g, err);
    if (st == ST_OK)
        st = outputs_open(m, err);
    if (st == ST_OK)
        st = open_teams(m, err);
    if (st == ST_OK)
        st = agree_on_sharding(m, err);
    if (st == ST_OK)
        st = measure_microbatches(m, err);
    if (st != ST_OK) {
        model_close(m);
        return st;
    }
    *out = m;
    return ST_OK;
}

void model_close(struct model *m) {
    if (m == NULL)
        return;
    async_worker_close(m->async_worker);
    device_leave_memory(m);
    if (m->block != NULL)
        mem_huge_free(m->block, m->block_bytes);
    mem_free(m->mla.nope_act);
    mem_free(m->mla.result_act);
    mem_free(m->recurrent.out_act);
    mem_free(m->suppressed);
    recurrent_states_close(&m->states);
    indexer_close(m);
    compressed_close(m);
    mem_free(m->hyper.act);
    kv_prefault_close(m->kv_prefault);
    kv_close(&m->kv);
    weights_free(&m->w);
    mem_free(m);
}

enum status model_measure(struct model_bytes *out, const struct gguf *g,
                          const struct hparams *hp, const struct plan *plan, int rank,
                          const struct model_config *cfg, int n_threads, struct err *err) {
    struct model m = {.hp = hp, .plan = *plan, .rank = rank, .cfg = *cfg};
    struct layout lay = {0};
    m.share = &m.plan.shares[rank];
    TRY(weights_describe(&m.w, g, hp, m.share, err));
    enum status st = lay_out(&lay, &m, n_threads, err);
    if (st == ST_OK) {
        size_t page[KV_KINDS];
        model_kv_page_bytes(hp, m.share, cfg->kv_type, page);
        uint64_t windows = (uint64_t)cfg->n_pages[KV_WINDOW] * page[KV_WINDOW];
        *out = (struct model_bytes){
            .weights = m.w.packed_bytes + m.w.replicated_bytes,
            .buffers = layout_bytes(&lay),
            .kv = (uint64_t)cfg->n_pages[KV_WHOLE] * page[KV_WHOLE] + windows,
            .kv_windows = windows,
            .kv_index = (uint64_t)cfg->n_pages[KV_WHOLE] *
                        model_index_page_bytes(hp, m.share, cfg->kv_type),
            .states = (uint64_t)cfg->n_states * recurrent_state_bytes(hp, m.share),
            .token = m.w.token_bytes,
            .experts = m.w.expert_bytes,
            .token_experts = m.w.token_expert_bytes,
            .token_macs = m.w.token_macs,
        };
    }
    mem_free(lay.list);
    mem_free(m.mla.nope_act);
    mem_free(m.mla.result_act);
    mem_free(m.recurrent.out_act);
    mem_free(m.compressed.group_act);
    mem_free(m.hyper.act);
    weights_free(&m.w);
    return st;
}

bool model_device_is_lost(const struct model *m) {
    return m != NULL && m->on_device.st != ST_OK;
}

const struct weights *model_weights(const struct model *m) {
    return &m->w;
}

const char *model_sum_algorithm(const struct model *m) {
    return m->team != NULL ? team_algorithm(m->team, m->hp->n_embd) : "none";
}

void model_trace_begin(struct model *m, struct trace_event *events, size_t cap) {
    m->trace = (struct trace){.events = events, .cap = events != NULL ? cap : 0};
}

const struct trace *model_trace(const struct model *m) {
    return &m->trace;
}

struct model_times model_times(struct model *m, bool reset) {
    struct model_times t = m->times;
    if (reset)
        m->times = (struct model_times){0};
    return t;
}
