/* weights_collect.c: which tensors a share of the model consists of, and which part of each. */
#include "base/exact.h"
#include "base/mem.h"
#include "base/util.h"
#include "format/rows.h"
#include "weights/weights_loader.h"

#include <stdio.h>

enum status weights_no_memory(const struct weights_loader *ld, struct err *err) {
    return err_set(err, ST_NO_MEMORY, "%s: no memory to load it", gguf_path(ld->g));
}

void *weights_own(struct weights *w, size_t n, size_t size) {
    if (!mem_reserve(&w->owned, &w->cap_owned, w->n_owned + 1, sizeof *w->owned))
        return NULL;
    return w->owned[w->n_owned++] = mem_calloc(n, size);
}

static void note_wanted(struct weights_loader *ld, const struct gguf_tensor *t) {
    if (ld->wanted != NULL)
        ld->wanted[t - gguf_tensor_at(ld->g, 0)] = true;
}

enum status weights_want_tensor(struct weights_loader *ld, int layer, const char *name,
                                uint64_t cols, uint64_t rows, uint64_t n,
                                const struct gguf_tensor **out, struct err *err) {
    TRY(hparam_tensor(ld->g, layer, name, cols, rows, n, out, err));
    note_wanted(ld, *out);
    return ST_OK;
}

static const struct gguf_tensor *find_tensor(const struct weights_loader *ld, int layer,
                                             const char *name) {
    char full[96];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return gguf_tensor(ld->g, layer >= 0 ? full : name);
}

static enum status read_scale(struct weights_loader *ld, const struct weight_part *p,
                              const struct gguf_tensor *t, struct wmat *dst, struct err *err) {
    const struct gguf_tensor *s = p->no_scale ? NULL : gguf_scale_of(ld->g, t);
    if (s == NULL)
        return ST_OK;
    note_wanted(ld, s);
    if (t->type != QT_NVFP4 || p->transposed || s->type != QT_F32 ||
        s->dims[0] != MAX(p->n, 1u) || s->size_bytes != s->dims[0] * sizeof(float))
        return err_set(
            err, ST_UNSUPPORTED,
            "%s: %s: expected one f32 for each matrix of nvfp4, and for no other type",
            gguf_path(ld->g), s->name);
    if (tensor_has_data(s))
        tensor_row_f32(s, 0, p->nth, 1, &dst->scale);
    else if (ld->from != NULL) /* else nothing will be computed with it */
        TRY(ld->from->read(ld->from->user, s->part, s->offset + p->nth * sizeof(float),
                           sizeof(float), 0, 1, (uint8_t *)&dst->scale, 0, err));
    dst->scale = exact_tidy(dst->scale);
    return ST_OK;
}

enum status weights_want_matrix(struct weights_loader *ld, struct wmat *dst,
                                struct weight_part p, struct err *err) {
    const struct gguf_tensor *t;
    TRY(weights_want_tensor(ld, p.layer, p.name, p.cols, p.rows, MAX(p.n, 1u), &t, err));
    const struct qtype_info *info = qtype_info(t->type);
    if (!wmat_type_supported(t->type))
        return err_set(err, ST_UNSUPPORTED, "%s: %s has type %s, which cannot be computed with",
                       gguf_path(ld->g), t->name, info ? info->name : "?");
    if (act_kind_for(t->type) == ACT_Q8 && p.cols % ACT_BLOCK != 0)
        return err_set(err, ST_BAD_INPUT, "%s: %s has %u columns: expected whole blocks of %d",
                       gguf_path(ld->g), t->name, p.cols, ACT_BLOCK);
    uint32_t n_rows = p.row_end - p.row_begin, n_cols = p.col_end - p.col_begin;
    uint32_t phase = info->block_values == QK_K ? p.col_begin % QK_K : 0;
    *dst = p.transposed ? wmat_shape(QT_F32, n_cols, n_rows, 0)
                        : wmat_shape(t->type, n_rows, n_cols, phase);
    TRY(read_scale(ld, &p, t, dst, err));
    if (n_rows == 0 || n_cols == 0)
        return ST_OK;
    if (!mem_reserve(&ld->slices, &ld->cap_slices, ld->n_slices + 1, sizeof *ld->slices))
        return weights_no_memory(ld, err);
    struct weight_slice *s = &ld->slices[ld->n_slices++];
    size_t bytes = wmat_bytes(dst), row_bytes = 0;
    if (t->rows != NULL && qtype_row_bytes(t->type, t->dims[0], &row_bytes))
        ld->row_buf_bytes = MAX(ld->row_buf_bytes, row_bytes);
    s->dst = dst;
    s->t = t;
    s->row_begin = p.nth * p.rows + p.row_begin;
    s->col_begin = p.col_begin;
    s->transposed = p.transposed;
    /* An expert's, which a device reads where a table says, is whole. */
    if (!pieces_take(&ld->w->matrices, bytes, p.n <= 1 ? dst->tile_bytes : 0, &s->offset))
        return weights_no_memory(ld, err);
    s->first_tile = ld->n_tiles;
    atomic_init(&s->tiles_left, wmat_n_tiles(dst));
    ld->n_tiles += wmat_n_tiles(dst);
    double used = p.used == 0 ? 1.0 : p.used;
    ld->w->has_type[dst->type] = true;
    ld->w->packed_bytes += bytes;
    ld->w->token_bytes += (double)bytes * used;
    ld->w->expert_bytes += p.expert ? (double)bytes : 0;
    ld->w->token_expert_bytes += p.expert || p.shared ? (double)bytes * used : 0;
    ld->w->token_macs += (double)n_rows * (double)n_cols * used;
    return ST_OK;
}

enum status weights_want_whole_rows(struct weights_loader *ld, struct wmat *dst, int layer,
                                    const char *name, uint32_t cols, uint32_t rows,
                                    uint32_t begin, uint32_t end, struct err *err) {
    return weights_want_matrix(ld, dst,
                               (struct weight_part){.layer = layer,
                                                    .name = name,
                                                    .cols = cols,
                                                    .rows = rows,
                                                    .row_begin = begin,
                                                    .row_end = end,
                                                    .col_end = cols},
                               err);
}

enum status weights_want_rows(struct weights_loader *ld, const float **dst, int layer,
                              const char *name, uint32_t width, uint32_t n, uint32_t begin,
                              uint32_t end, size_t dst_stride, struct err *err) {
    const struct gguf_tensor *t = find_tensor(ld, layer, name);
    bool flat = t == NULL || t->dims[1] != 1; /* else [width, 1, n] */
    TRY(weights_want_tensor(ld, layer, name, width, flat ? n : 1, flat ? 1 : n, &t, err));
    if (qtype_info(t->type)->dequantize == NULL || qtype_info(t->type)->block_values != 1)
        return err_set(err, ST_UNSUPPORTED, "%s: %s has type %s: expected f32, f16 or bf16",
                       gguf_path(ld->g), t->name, qtype_info(t->type)->name);
    *dst = NULL;
    if (begin == end)
        return ST_OK;
    if (!mem_reserve(&ld->vecs, &ld->cap_vecs, ld->n_vecs + 1, sizeof *ld->vecs))
        return weights_no_memory(ld, err);
    size_t at;
    if (!pieces_take(&ld->w->others, n * dst_stride * sizeof(float), 0, &at))
        return weights_no_memory(ld, err);
    struct weight_vec *v = &ld->vecs[ld->n_vecs++];
    *v = (struct weight_vec){.dst = dst,
                             .t = t,
                             .begin = begin,
                             .n = end - begin,
                             .n_rows = n,
                             .dst_stride = dst_stride,
                             .offset = at};
    ld->w->replicated_bytes += (size_t)n * (end - begin) * sizeof(float);
    return ST_OK;
}

enum status weights_want_vector(struct weights_loader *ld, const float **dst, int layer,
                                const char *name, uint32_t n, uint32_t begin, uint32_t end,
                                struct err *err) {
    return weights_want_rows(ld, dst, layer, name, n, 1, begin, end,
                             round_up(end - begin, TILE_ROWS), err);
}

enum status weights_want_embedding(struct weights_loader *ld, const struct gguf_tensor **out,
                                   const char *name, uint64_t width, struct err *err) {
    const struct gguf_tensor *t;
    TRY(weights_want_tensor(ld, -1, name, width, ld->hp->n_vocab, 1, &t, err));
    if (gguf_scale_of(ld->g, t) != NULL)
        return err_set(err, ST_UNSUPPORTED, "%s: %s: embeddings with a scale are not supported",
                       gguf_path(ld->g), gguf_scale_of(ld->g, t)->name);
    if (qtype_info(t->type)->dequantize == NULL)
        return err_set(err, ST_UNSUPPORTED, "%s: %s has type %s, which is not a weight type",
                       gguf_path(ld->g), name, qtype_info(t->type)->name);
    *out = t;
    return ST_OK;
}

/* ---- what a layer consists of -------------------------------------------------------------- */

static enum status collect_gate(struct weights_loader *ld, struct layer_weights *lw, int l,
                                struct err *err) {
    const struct attn_kind *kind = &ld->hp->attn[lw->attn];
    const struct head_share *sh = &ld->share->heads[lw->attn];
    const uint32_t dim = hparams_gate_dim(ld->hp, kind);
    if (dim == 0)
        return ST_OK;
    return weights_want_matrix(ld, &lw->head_gate,
                               (struct weight_part){.layer = l,
                                                    .name = "attn_gate.weight",
                                                    .cols = ld->hp->n_embd,
                                                    .rows = kind->n_heads * dim,
                                                    .row_begin = sh->begin * dim,
                                                    .row_end = sh->end * dim,
                                                    .col_end = ld->hp->n_embd},
                               err);
}

static bool has_layer_tensor(const struct weights_loader *ld, int l, const char *name) {
    return find_tensor(ld, l, name) != NULL;
}

/* Q, K and V may have one tensor, one after the other. */
static bool is_fused_qkv(const struct weights_loader *ld, int l) {
    return ld->hp->fused_qkv || (!has_layer_tensor(ld, l, "attn_q.weight") &&
                                 has_layer_tensor(ld, l, "attn_qkv.weight"));
}

/* q, k, v: the parts of the matrices whose biases these are. */
static enum status collect_qkv_biases(struct weights_loader *ld, struct layer_weights *lw,
                                      const struct weight_part *q, const struct weight_part *k,
                                      const struct weight_part *v, struct err *err) {
    const struct weight_part *const parts[] = {q, k, v};
    const float **const to[] = {&lw->q_bias, &lw->k_bias, &lw->v_bias};
    static const char *const names[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias"};
    const bool fused = is_fused_qkv(ld, q->layer);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        TRY(weights_want_vector(ld, to[i], q->layer, fused ? "attn_qkv.bias" : names[i],
                                parts[i]->rows, parts[i]->row_begin, parts[i]->row_end, err));
    return ST_OK;
}

static enum status collect_qkv(struct weights_loader *ld, struct layer_weights *lw, int l,
                               struct err *err) {
    const struct hparams *hp = ld->hp;
    const struct attn_kind *kind = &hp->attn[lw->attn];
    const struct head_share *sh = &ld->share->heads[lw->attn];
    uint32_t e = hp->n_embd, hd = kind->head_dim, vd = kind->v_dim;
    uint32_t qd = hparams_q_rows(hp, kind);
    uint32_t nq = kind->n_heads * qd, nk = kind->n_kv_heads * hd, nv = kind->n_kv_heads * vd;
    struct weight_part q = {
        .layer = l, .name = "attn_q.weight", .cols = e, .rows = nq, .col_end = e};
    struct weight_part k = {
        .layer = l, .name = "attn_k.weight", .cols = e, .rows = nk, .col_end = e};
    struct weight_part v = {
        .layer = l, .name = "attn_v.weight", .cols = e, .rows = nv, .col_end = e};
    uint32_t k_first = 0, v_first = 0;
    if (is_fused_qkv(ld, l)) {
        q.name = k.name = v.name = "attn_qkv.weight";
        q.rows = k.rows = v.rows = nq + nk + nv;
        k_first = nq;
        v_first = nq + nk;
    }
    uint32_t q0 = sh->begin * qd, q1 = sh->end * qd;
    uint32_t k0 = sh->kv_begin * hd, k1 = sh->kv_end * hd;
    uint32_t v0 = sh->kv_begin * vd, v1 = sh->kv_end * vd;
    q.row_begin = q0, q.row_end = q1;
    k.row_begin = k_first + k0, k.row_end = k_first + k1;
    v.row_begin = v_first + v0, v.row_end = v_first + v1;
    TRY(weights_want_matrix(ld, &lw->q, q, err));
    if (lw->has_kv)
        TRY(weights_want_matrix(ld, &lw->k, k, err));
    if (lw->has_kv && !kind->v_is_k)
        TRY(weights_want_matrix(ld, &lw->v, v, err));
    TRY(collect_gate(ld, lw, l, err));
    if (hp->qkv_bias)
        TRY(collect_qkv_biases(ld, lw, &q, &k, &v, err));
    if (hp->qk_norm == QK_NORM_HEAD || hp->qk_norm == QK_NORM_HEAD_AFTER) {
        TRY(weights_want_vector(ld, &lw->q_norm, l, "attn_q_norm.weight", hd, 0, hd, err));
        if (lw->has_kv)
            TRY(weights_want_vector(ld, &lw->k_norm, l, "attn_k_norm.weight", hd, 0, hd, err));
    } else if (hp->qk_norm == QK_NORM_ROW) {
        TRY(weights_want_vector(ld, &lw->q_norm, l, "attn_q_norm.weight", nq, q0, q1, err));
        TRY(weights_want_vector(ld, &lw->k_norm, l, "attn_k_norm.weight", nk, k0, k1, err));
    }
    return ST_OK;
}

/* Both forms of the up-projection: split and transposed already, or whole. A rank without heads
 * names a head's too, and holds nothing of it. */
static enum status collect_mla_heads(struct weights_loader *ld, struct mla_weights *mla, int l,
                                     struct err *err) {
    const struct hparams *hp = ld->hp;
    const struct head_share *sh = &ld->share->heads[0];
    uint32_t n_held = sh->end - sh->begin, n = MAX(n_held, 1u);
    uint32_t rank = hp->mla.kv_rank, nope = hp->mla.nope, vd = hp->mla.v_dim;
    char name[64];
    snprintf(name, sizeof name, "blk.%d.attn_k_b.weight", l);
    bool split = gguf_tensor(ld->g, name) != NULL;
    mla->k_b = weights_own(ld->w, n, sizeof *mla->k_b);
    mla->v_b = weights_own(ld->w, n, sizeof *mla->v_b);
    if (mla->k_b == NULL || mla->v_b == NULL)
        return weights_no_memory(ld, err);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t h = sh->begin + i, row = h * (nope + vd);
        struct weight_part k = {.layer = l,
                                .name = "attn_k_b.weight",
                                .cols = nope,
                                .rows = rank,
                                .n = hp->n_heads,
                                .nth = h,
                                .row_end = rank,
                                .col_end = nope};
        struct weight_part v = {.layer = l,
                                .name = "attn_v_b.weight",
                                .cols = rank,
                                .rows = vd,
                                .n = hp->n_heads,
                                .nth = h,
                                .row_end = vd,
                                .col_end = rank};
        struct weight_part whole = {.layer = l,
                                    .name = "attn_kv_b.weight",
                                    .cols = rank,
                                    .rows = hp->n_heads * (nope + vd),
                                    .col_end = rank};
        if (!split) {
            k = v = whole;
            k.transposed = true;
            k.row_begin = row, k.row_end = row + nope;
            v.row_begin = row + nope, v.row_end = row + nope + vd;
        }
        if (n_held == 0) {
            k.row_end = k.row_begin;
            v.row_end = v.row_begin;
        }
        TRY(weights_want_matrix(ld, &mla->k_b[i], k, err));
        TRY(weights_want_matrix(ld, &mla->v_b[i], v, err));
    }
    return ST_OK;
}

static enum status collect_mla(struct weights_loader *ld, struct layer_weights *lw, int l,
                               struct err *err) {
    const struct hparams *hp = ld->hp;
    const struct head_share *sh = &ld->share->heads[0];
    struct mla_weights *mla = &lw->mla;
    uint32_t e = hp->n_embd, key = hp->mla.nope + hp->rope.n_rot, nq = hp->n_heads * key;
    uint32_t q_cols = hp->mla.q_rank != 0 ? hp->mla.q_rank : e, kv = hp->head_dim;
    if (hp->mla.q_rank != 0) {
        TRY(weights_want_matrix(ld, &mla->q_a,
                                (struct weight_part){.layer = l,
                                                     .name = "attn_q_a.weight",
                                                     .cols = e,
                                                     .rows = q_cols,
                                                     .row_end = q_cols,
                                                     .col_end = e},
                                err));
        TRY(weights_want_vector(ld, &mla->q_a_norm, l, "attn_q_a_norm.weight", q_cols, 0,
                                q_cols, err));
    }
    TRY(weights_want_matrix(
        ld, &lw->q,
        (struct weight_part){.layer = l,
                             .name = hp->mla.q_rank ? "attn_q_b.weight" : "attn_q.weight",
                             .cols = q_cols,
                             .rows = nq,
                             .row_begin = sh->begin * key,
                             .row_end = sh->end * key,
                             .col_end = q_cols},
        err));
    TRY(weights_want_matrix(ld, &mla->kv_a,
                            (struct weight_part){.layer = l,
                                                 .name = "attn_kv_a_mqa.weight",
                                                 .cols = e,
                                                 .rows = kv,
                                                 .row_end = kv,
                                                 .col_end = e},
                            err));
    TRY(weights_want_vector(ld, &mla->kv_a_norm, l, "attn_kv_a_norm.weight", hp->mla.kv_rank, 0,
                            hp->mla.kv_rank, err));
    TRY(collect_gate(ld, lw, l, err));
    return collect_mla_heads(ld, mla, l, err);
}

static enum status collect_attention(struct weights_loader *ld, struct layer_weights *lw, int l,
                                     struct err *err) {
    const struct hparams *hp = ld->hp;
    lw->attn = hp->layer_attn[l];
    lw->has_kv = hparams_kv_layer(hp, (uint32_t)l) == (uint32_t)l;
    const struct attn_kind *kind = &hp->attn[lw->attn];
    const struct head_share *sh = &ld->share->heads[lw->attn];
    uint32_t e = hp->n_embd, od = hparams_out_dim(hp, kind);
    lw->window = hparams_layer_window(hp, (uint32_t)l);
    lw->has_rope = hparams_layer_has_rope(hp, (uint32_t)l);
    lw->chunk = lw->has_rope ? hp->chunk : 0;
    if (!hp->no_pre_norms)
        TRY(weights_want_vector(ld, &lw->attn_norm, l, "attn_norm.weight", e, 0, e, err));
    if (hparams_layer_is(hp, (uint32_t)l, LAYER_RECURRENT))
        return weights_collect_recurrent(ld, lw, l, err);
    if (hp->sinks || hparams_layer_is(hp, (uint32_t)l, LAYER_SINKS))
        TRY(weights_want_vector(ld, &lw->sinks, l, "attn_sinks.weight", kind->n_heads,
                                sh->begin, sh->end, err));
    if (hp->compress.n_groups != 0)
        return weights_collect_compressed(ld, lw, l, err);
    TRY(hp->mla.kv_rank != 0 ? collect_mla(ld, lw, l, err) : collect_qkv(ld, lw, l, err));
    TRY(weights_collect_indexer(ld, lw, l, err));
    TRY(weights_want_matrix(ld, &lw->o,
                            (struct weight_part){.layer = l,
                                                 .name = "attn_output.weight",
                                                 .cols = kind->n_heads * od,
                                                 .rows = e,
                                                 .row_end = e,
                                                 .col_begin = sh->begin * od,
                                                 .col_end = sh->end * od},
                            err));
    lw->o_segment = plan_attn_segment(od, lw->o.type);
    if (hp->o_bias)
        TRY(weights_want_vector(ld, &lw->o_bias, l, "attn_output.bias", e, 0,
                                ld->share->member == 0 ? e : 0, err));
    if (hp->post_norms)
        TRY(weights_want_vector(ld, &lw->attn_post_norm, l, "post_attention_norm.weight", e, 0,
                                e, err));
    return ST_OK;
}

/* gate, up, down of an FFN of `width` columns; [f0, f1) of them are held; nth of n if experts
 * share tensors. */
static enum status collect_ffn(struct weights_loader *ld, struct ffn_weights *ffn, int l,
                               const char *suffix, uint32_t width, uint32_t n, uint32_t nth,
                               uint32_t f0, uint32_t f1, double used, struct err *err) {
    const bool experts = str_eq(suffix, "_exps");
    uint32_t e = experts && ld->hp->moe.n_latent ? ld->hp->moe.n_latent : ld->hp->n_embd;
    char gate[64], up[64], down[64];
    snprintf(gate, sizeof gate, "ffn_gate%s.weight", suffix);
    snprintf(up, sizeof up, "ffn_up%s.weight", suffix);
    snprintf(down, sizeof down, "ffn_down%s.weight", suffix);
    struct weight_part p = {.layer = l,
                            .name = gate,
                            .cols = e,
                            .rows = width,
                            .n = n,
                            .nth = nth,
                            .row_begin = f0,
                            .row_end = f1,
                            .col_end = e,
                            .used = used,
                            .expert = experts,
                            .shared = str_eq(suffix, "_shexp")};
    struct weight_part q = p, d = {.layer = l,
                                   .name = down,
                                   .cols = width,
                                   .rows = e,
                                   .n = n,
                                   .nth = nth,
                                   .row_end = e,
                                   .col_begin = f0,
                                   .col_end = f1,
                                   .used = used,
                                   .expert = p.expert,
                                   .shared = p.shared};
    q.name = up;
    /* Of experts: where there is such a tensor. */
    const bool fused_experts = experts && has_layer_tensor(ld, l, "ffn_gate_up_exps.weight");
    if (ld->hp->fused_ffn || fused_experts) {
        p.name = q.name = fused_experts ? "ffn_gate_up_exps.weight" : up;
        p.rows = q.rows = 2 * width;
        q.row_begin += width;
        q.row_end += width;
    }
    d.no_scale = experts && ld->hp->moe.dense_beside;
    if (ld->hp->ffn_act == FFN_RELU2) { /* up alone, in the place of gate */
        TRY(weights_want_matrix(ld, &ffn->gate, q, err));
    } else {
        TRY(weights_want_matrix(ld, &ffn->gate, p, err));
        TRY(weights_want_matrix(ld, &ffn->up, q, err));
    }
    return weights_want_matrix(ld, &ffn->down, d, err);
}

static enum status collect_dense(struct weights_loader *ld, struct layer_weights *lw, int l,
                                 struct err *err) {
    const struct share *sh = ld->share;
    const struct ff_share own = sh->ff[ld->hp->layer_ff[l]];
    uint32_t ff = hparams_layer_n_ff(ld->hp, (uint32_t)l), e = ld->hp->n_embd;
    lw->ffn_segment = plan_ffn_segment(ff);
    TRY(collect_ffn(ld, &lw->ffn, l, "", ff, 1, 0, own.begin, own.end, 1.0, err));
    if (!ld->hp->ffn_bias)
        return ST_OK;
    const bool gated = ld->hp->ffn_act != FFN_RELU2; /* else up is in the place of gate */
    TRY(weights_want_vector(ld, &lw->gate_bias, l, gated ? "ffn_gate.bias" : "ffn_up.bias", ff,
                            own.begin, own.end, err));
    if (gated)
        TRY(weights_want_vector(ld, &lw->up_bias, l, "ffn_up.bias", ff, own.begin, own.end,
                                err));
    return weights_want_vector(ld, &lw->down_bias, l, "ffn_down.bias", e, 0,
                               sh->member == 0 ? e : 0, err);
}

static enum status collect_expert_biases(struct weights_loader *ld, struct moe_weights *moe,
                                         int l, struct err *err) {
    const struct share *sh = ld->share;
    uint32_t n = ld->hp->moe.n_experts, ff = ld->hp->moe.n_ff, e = ld->hp->n_embd;
    moe->bias_stride = round_up(sh->expert_ff_end - sh->expert_ff_begin, TILE_ROWS);
    TRY(weights_want_vector(ld, &moe->router_bias, l, "ffn_gate_inp.bias", n, 0, n, err));
    TRY(weights_want_rows(ld, &moe->gate_bias, l, "ffn_gate_exps.bias", ff, n,
                          sh->expert_ff_begin, sh->expert_ff_end, moe->bias_stride, err));
    TRY(weights_want_rows(ld, &moe->up_bias, l, "ffn_up_exps.bias", ff, n, sh->expert_ff_begin,
                          sh->expert_ff_end, moe->bias_stride, err));
    /* Added once per expert: by the rank with its first column. */
    bool first = sh->expert_ff_begin == 0 && sh->expert_ff_end > 0;
    return weights_want_rows(ld, &moe->down_bias, l, "ffn_down_exps.bias", e, n, 0,
                             first ? e : 0, e, err);
}

/* What experts have besides where a dense FFN stands beside them. */
static enum status collect_beside(struct weights_loader *ld, struct layer_weights *lw, int l,
                                  struct err *err) {
    uint32_t e = ld->hp->n_embd, n = ld->hp->moe.n_experts;
    TRY(weights_want_vector(ld, &lw->dense_post_norm, l, "post_ffw_norm_1.weight", e, 0, e,
                            err));
    TRY(weights_want_vector(ld, &lw->moe_norm, l, "pre_ffw_norm_2.weight", e, 0, e, err));
    TRY(weights_want_vector(ld, &lw->moe_post_norm, l, "post_ffw_norm_2.weight", e, 0, e, err));
    TRY(weights_want_vector(ld, &lw->moe->router_scale, l, "ffn_gate_inp.scale", e, 0, e, err));
    if (!has_layer_tensor(ld, l, "ffn_down_exps.scale"))
        return ST_OK;
    return weights_want_vector(ld, &lw->moe->expert_scale, l, "ffn_down_exps.scale", n, 0, n,
                               err);
}

/* The matrices around experts in a latent space. A norm is there where the file has one. */
static enum status collect_latent(struct weights_loader *ld, struct moe_weights *moe, int l,
                                  struct err *err) {
    const struct share *sh = ld->share;
    const char *of = ld->hp->moe.latent_name;
    uint32_t e = ld->hp->n_embd, n = ld->hp->moe.n_latent;
    char down[64], up[64], norm[64];
    snprintf(down, sizeof down, "ffn_%s_down.weight", of);
    snprintf(up, sizeof up, "ffn_%s_up.weight", of);
    snprintf(norm, sizeof norm, "ffn_%s_norm.weight", of);
    struct weight_part d = {
        .layer = l, .name = down, .cols = e, .rows = n, .row_end = n, .col_end = e};
    struct weight_part u = {.layer = l,
                            .name = up,
                            .cols = n,
                            .rows = e,
                            .row_begin = sh->embd_begin,
                            .row_end = sh->embd_end,
                            .col_end = n};
    TRY(weights_want_matrix(ld, &moe->latent_down, d, err));
    TRY(weights_want_matrix(ld, &moe->latent_up, u, err));
    if (!has_layer_tensor(ld, l, norm))
        return ST_OK;
    return weights_want_vector(ld, &moe->latent_norm, l, norm, n, 0, n, err);
}

static enum status collect_moe(struct weights_loader *ld, struct layer_weights *lw, int l,
                               struct err *err) {
    const struct hparams *hp = ld->hp;
    const struct share *sh = ld->share;
    uint32_t n = hp->moe.n_experts, e = hp->n_embd;
    struct moe_weights *moe = lw->moe = weights_own(ld->w, 1, sizeof *moe);
    if (moe != NULL)
        moe->experts = weights_own(ld->w, n, sizeof *moe->experts);
    if (moe == NULL || moe->experts == NULL)
        return weights_no_memory(ld, err);
    moe->limit = hp->expert_limit[l];
    moe->shared_limit = hp->ffn_limit[l];
    TRY(weights_want_matrix(ld, &moe->router,
                            (struct weight_part){.layer = l,
                                                 .name = "ffn_gate_inp.weight",
                                                 .cols = e,
                                                 .rows = n,
                                                 .row_end = n,
                                                 .col_end = e,
                                                 .no_scale = hp->moe.dense_beside},
                            err));
    if (hp->moe.dense_beside)
        TRY(collect_beside(ld, lw, l, err));
    if ((uint32_t)l < hp->moe.n_hash)
        TRY(weights_want_table(ld, &moe->of_token, l, "ffn_gate_tid2eid.weight", hp->moe.n_used,
                               hp->n_vocab, n, err));
    else if (hp->moe.bias)
        TRY(weights_want_vector(ld, &moe->choice_bias, l, "exp_probs_b.bias", n, 0, n, err));
    double used = (double)hp->moe.n_used / n;
    for (uint32_t i = 0; i < n; i++) {
        bool held = i >= sh->expert_begin && i < sh->expert_end;
        TRY(collect_ffn(ld, &moe->experts[i], l, "_exps", hp->moe.n_ff, n, i,
                        held ? sh->expert_ff_begin : 0, held ? sh->expert_ff_end : 0, used,
                        err));
    }
    if (hp->moe.n_latent != 0)
        TRY(collect_latent(ld, moe, l, err));
    if (hp->moe.biases)
        TRY(collect_expert_biases(ld, moe, l, err));
    if (hp->moe.shared_router)
        TRY(weights_want_matrix(ld, &moe->shared_router,
                                (struct weight_part){.layer = l,
                                                     .name = "ffn_gate_inp_shexp.weight",
                                                     .cols = e,
                                                     .rows = 1,
                                                     .row_end = 1,
                                                     .col_end = e},
                                err));
    if (hp->moe.n_ff_shared != 0)
        TRY(collect_ffn(ld, &moe->shared, l, "_shexp", hp->moe.n_ff_shared, 1, 0,
                        sh->shared_begin, sh->shared_end, 1.0, err));
    return ST_OK;
}

static enum status collect_layer(struct weights_loader *ld, struct layer_weights *lw, int l,
                                 struct err *err) {
    const struct hparams *hp = ld->hp;
    uint32_t e = hp->n_embd;
    const char *norm = hp->norm_after_attn ? "post_attention_norm.weight" : "ffn_norm.weight";
    lw->has_mixer = !hparams_layer_is(hp, (uint32_t)l, LAYER_NO_MIXER);
    lw->has_ffn = !hparams_layer_is(hp, (uint32_t)l, LAYER_NO_FFN);
    if (lw->has_mixer)
        TRY(collect_attention(ld, lw, l, err));
    else
        norm = "attn_norm.weight"; /* there is one norm, which has this name */
    if (!lw->has_ffn)
        return ST_OK;
    if (!hp->no_pre_norms && !hp->parallel_blocks)
        TRY(weights_want_vector(ld, &lw->ffn_norm, l, norm, e, 0, e, err));
    if (hp->post_norms)
        TRY(weights_want_vector(ld, &lw->ffn_post_norm, l, "post_ffw_norm.weight", e, 0, e,
                                err));
    const bool moe = hparams_layer_is_moe(hp, (uint32_t)l);
    lw->ffn_limit = hp->ffn_limit[l];
    if (moe)
        TRY(collect_moe(ld, lw, l, err));
    if (!moe || hp->moe.dense_beside)
        TRY(collect_dense(ld, lw, l, err));
    if (hp->n_layer_input != 0)
        TRY(weights_collect_layer_input(ld, lw, l, err));
    if (hparams_predicts_streams(hp))
        TRY(weights_collect_layer_streams(ld, lw, l, err));
    if (hp->hyper.n_iterations != 0)
        TRY(weights_collect_layer_hyper(ld, lw, l, err));
    if (hp->mix_block != 0) {
        TRY(weights_want_vector(ld, &lw->attn_score, l, "attn_res_score.weight", e, 0, e, err));
        TRY(weights_want_vector(ld, &lw->ffn_score, l, "ffn_res_score.weight", e, 0, e, err));
    }
    lw->sparse = (uint32_t)l < hp->n_sparse;
    if (has_layer_tensor(ld, l, "layer_output_scale.weight"))
        TRY(weights_want_vector(ld, &lw->out_scale, l, "layer_output_scale.weight", 1, 0, 1,
                                err));
    return ST_OK;
}

/* Where layers differ there may be more factors than those that have them turn pairs. */
static enum status collect_rope_factors(struct weights_loader *ld, struct err *err) {
    const struct hparams *hp = ld->hp;
    const struct gguf_tensor *t = gguf_tensor(ld->g, hp->rope_factors);
    uint32_t n = hp->arch->layered ? 0 : hp->rope.n_rot / 2;
    for (uint32_t i = 0; i < hp->n_attn && hp->arch->layered; i++)
        if (hp->attn[i].rope_factors)
            n = MAX(n, hp->attn[i].rope.n_rot / 2);
    const bool more = hp->arch->layered && t != NULL && t->dims[0] > n && t->dims[0] <= 65536;
    return weights_want_vector(ld, &ld->w->rope_factors, -1, hp->rope_factors,
                               more ? (uint32_t)t->dims[0] : n, 0, n, err);
}

enum status weights_collect(struct weights_loader *ld, struct err *err) {
    const struct hparams *hp = ld->hp;
    const struct share *sh = ld->share;
    struct weights *w = ld->w;
    TRY(weights_want_embedding(ld, &w->embd, "token_embd.weight", hp->n_embd, err));
    if (hp->rope_factors != NULL)
        TRY(collect_rope_factors(ld, err));
    if (hp->n_layer_input != 0)
        TRY(weights_collect_inputs(ld, err));
    if (hparams_predicts_streams(hp))
        TRY(weights_collect_streams(ld, err));
    for (uint32_t i = 0; i < w->n_layers; i++)
        TRY(collect_layer(ld, &w->layers[i], (int)(sh->layer_begin + i), err));
    if (sh->last_stage && hp->hyper.n_iterations != 0)
        TRY(weights_collect_hyper_end(ld, err));
    if (sh->last_stage && hp->mix_block != 0)
        TRY(weights_want_vector(ld, &w->output_score, -1, "output_res_score.weight", hp->n_embd,
                                0, hp->n_embd, err));
    if (sh->last_stage) {
        TRY(weights_want_vector(ld, &w->output_norm, -1,
                                hp->output_norm != NULL ? hp->output_norm
                                                        : "output_norm.weight",
                                hp->n_embd, 0, hp->n_embd, err));
        TRY(weights_want_matrix(
            ld, &w->output,
            (struct weight_part){.layer = -1,
                                 .name = hp->tied ? "token_embd.weight" : "output.weight",
                                 .cols = hp->n_embd,
                                 .rows = hp->n_vocab,
                                 .row_begin = sh->vocab_begin,
                                 .row_end = sh->vocab_end,
                                 .col_end = hp->n_embd},
            err));
    }
    return ST_OK;
}
