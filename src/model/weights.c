/* Loading happens in two passes over one list: `collect` names every slice of the share with its
 * place in the model, which gives the size of the block; then the threads pack tiles, claimed from
 * the whole list at once so that small matrices do not serialize. */
#include "model/weights.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "format/rows.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct slice {
    struct wmat *dst;
    const struct gguf_tensor *t;
    uint32_t row_begin, col_begin; /* rows count through all matrices of a 3-D tensor */
    bool transposed;               /* dst's rows are the file's columns, as f32 */
    size_t offset;                 /* in the block */
    size_t first_tile;             /* in the numbering over all slices */
    _Atomic uint32_t tiles_left;   /* acq_rel: who packs the last one drops the file's pages */
};

struct vec {
    const float **dst;
    const struct gguf_tensor *t;
    uint64_t begin;     /* of a row's values */
    uint32_t n, n_rows; /* n values from each of n_rows rows, */
    size_t dst_stride;  /* which lie this far apart in the block */
    size_t offset;
};

struct loader {
    const struct gguf *g;
    const struct hparams *hp;
    const struct share *share;
    struct weights *w;
    struct slice *slices;
    size_t n_slices, cap_slices;
    struct vec *vecs;
    size_t n_vecs, cap_vecs;
    size_t block_bytes, n_tiles;
    uint8_t *block;
    size_t row_buf_bytes;           /* of the longest row that must be made (rows.h) */
    uint8_t *row_bufs;              /* [n_threads][16][row_buf_bytes] */
    const struct file_source *from; /* NULL: the data are in the file */
    bool *wanted;                   /* [tensors of g] by weights_check(); else NULL */
    atomic_int failed;              /* a status; release: why is written */
    struct err why;
    pthread_mutex_t failing;
    _Atomic size_t tiles_done; /* relaxed: for progress only */
    void (*progress)(void *, double);
    void *user;
};

static enum status no_memory(const struct loader *ld, struct err *err) {
    return err_set(err, ST_NO_MEMORY, "%s: no memory to load it", gguf_path(ld->g));
}

static size_t reserve(struct loader *ld, size_t bytes) {
    size_t at = ld->block_bytes;
    ld->block_bytes += round_up(bytes, CACHE_LINE);
    return at;
}

/* A zeroed array that lives as long as the weights. */
static void *own(struct weights *w, size_t n, size_t size) {
    if (!mem_reserve(&w->owned, &w->cap_owned, w->n_owned + 1, sizeof *w->owned))
        return NULL;
    return w->owned[w->n_owned++] = mem_calloc(n, size);
}

static void note_wanted(struct loader *ld, const struct gguf_tensor *t) {
    if (ld->wanted != NULL)
        ld->wanted[t - gguf_tensor_at(ld->g, 0)] = true;
}

static enum status want_tensor(struct loader *ld, int layer, const char *name, uint64_t cols,
                               uint64_t rows, uint64_t n, const struct gguf_tensor **out,
                               struct err *err) {
    TRY(hparam_tensor(ld->g, layer, name, cols, rows, n, out, err));
    note_wanted(ld, *out);
    return ST_OK;
}

/* A part of a tensor [cols, rows] or [cols, rows, n]. */
struct part {
    int layer; /* -1: not a layer's */
    const char *name;
    uint32_t cols, rows, n; /* as in the file; n = 0 counts as 1 */
    uint32_t row_begin, row_end, col_begin, col_end;
    uint32_t nth; /* which matrix of n */
    bool transposed;
    double used; /* share of steps that read it; 0 counts as 1 */
};

static enum status read_scale(struct loader *ld, const struct part *p,
                              const struct gguf_tensor *t, struct wmat *dst, struct err *err) {
    const struct gguf_tensor *s = gguf_scale_of(ld->g, t);
    if (s == NULL)
        return ST_OK;
    note_wanted(ld, s);
    if (t->type != QT_NVFP4 || p->transposed || s->type != QT_F32 ||
        s->dims[0] != MAX(p->n, 1u) || s->size_bytes != s->dims[0] * sizeof(float))
        return err_set(
            err, ST_UNSUPPORTED,
            "%s: %s: expected one f32 for each matrix of nvfp4, and for no other type",
            gguf_path(ld->g), s->name);
    if (s->data != NULL)
        memcpy(&dst->scale, (const uint8_t *)s->data + p->nth * sizeof(float), sizeof(float));
    else if (ld->from != NULL) /* else nothing will be computed with it */
        return ld->from->read(ld->from->user, s->part, s->offset + p->nth * sizeof(float),
                              sizeof(float), 0, 1, (uint8_t *)&dst->scale, 0, err);
    return ST_OK;
}

static enum status want_matrix(struct loader *ld, struct wmat *dst, struct part p,
                               struct err *err) {
    const struct gguf_tensor *t;
    TRY(want_tensor(ld, p.layer, p.name, p.cols, p.rows, MAX(p.n, 1u), &t, err));
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
        return no_memory(ld, err);
    struct slice *s = &ld->slices[ld->n_slices++];
    size_t bytes = wmat_bytes(dst), row_bytes = 0;
    if (t->rows != NULL && qtype_row_bytes(t->type, t->dims[0], &row_bytes))
        ld->row_buf_bytes = MAX(ld->row_buf_bytes, row_bytes);
    s->dst = dst;
    s->t = t;
    s->row_begin = p.nth * p.rows + p.row_begin;
    s->col_begin = p.col_begin;
    s->transposed = p.transposed;
    s->offset = reserve(ld, bytes);
    s->first_tile = ld->n_tiles;
    atomic_init(&s->tiles_left, wmat_n_tiles(dst));
    ld->n_tiles += wmat_n_tiles(dst);
    double used = p.used == 0 ? 1.0 : p.used;
    ld->w->packed_bytes += bytes;
    ld->w->token_bytes += (double)bytes * used;
    ld->w->token_macs += (double)n_rows * (double)n_cols * used;
    return ST_OK;
}

/* Values [begin, end) of each of n rows of a tensor [width, n]. */
static enum status want_rows(struct loader *ld, const float **dst, int layer, const char *name,
                             uint32_t width, uint32_t n, uint32_t begin, uint32_t end,
                             size_t dst_stride, struct err *err) {
    const struct gguf_tensor *t;
    TRY(want_tensor(ld, layer, name, width, n, 1, &t, err));
    if (qtype_info(t->type)->dequantize == NULL || qtype_info(t->type)->block_values != 1)
        return err_set(err, ST_UNSUPPORTED, "%s: %s has type %s: expected f32, f16 or bf16",
                       gguf_path(ld->g), t->name, qtype_info(t->type)->name);
    *dst = NULL;
    if (begin == end)
        return ST_OK;
    if (!mem_reserve(&ld->vecs, &ld->cap_vecs, ld->n_vecs + 1, sizeof *ld->vecs))
        return no_memory(ld, err);
    struct vec *v = &ld->vecs[ld->n_vecs++];
    *v = (struct vec){.dst = dst,
                      .t = t,
                      .begin = begin,
                      .n = end - begin,
                      .n_rows = n,
                      .dst_stride = dst_stride,
                      .offset = reserve(ld, n * dst_stride * sizeof(float))};
    ld->w->replicated_bytes += (size_t)n * (end - begin) * sizeof(float);
    return ST_OK;
}

/* Values [begin, end) of a vector of n. Rows of a tile beyond the share's are computed too:
 * there is room for them. */
static enum status want_vector(struct loader *ld, const float **dst, int layer,
                               const char *name, uint32_t n, uint32_t begin, uint32_t end,
                               struct err *err) {
    return want_rows(ld, dst, layer, name, n, 1, begin, end, round_up(end - begin, TILE_ROWS),
                     err);
}

/* ---- what a layer consists of -------------------------------------------------------------- */

static enum status collect_qkv(struct loader *ld, struct layer_weights *lw, int l,
                               struct err *err) {
    const struct hparams *hp = ld->hp;
    const struct share *sh = ld->share;
    uint32_t e = hp->n_embd, hd = hp->head_dim, vd = hp->v_dim;
    uint32_t qd = hparams_q_rows(hp);
    uint32_t nq = hp->n_heads * qd, nk = hp->n_kv_heads * hd, nv = hp->n_kv_heads * vd;
    struct part q = {.layer = l, .name = "attn_q.weight", .cols = e, .rows = nq, .col_end = e};
    struct part k = {.layer = l, .name = "attn_k.weight", .cols = e, .rows = nk, .col_end = e};
    struct part v = {.layer = l, .name = "attn_v.weight", .cols = e, .rows = nv, .col_end = e};
    uint32_t k_first = 0, v_first = 0;
    if (hp->fused) {
        q.name = k.name = v.name = "attn_qkv.weight";
        q.rows = k.rows = v.rows = nq + nk + nv;
        k_first = nq;
        v_first = nq + nk;
    }
    uint32_t q0 = sh->head_begin * qd, q1 = sh->head_end * qd;
    uint32_t k0 = sh->kv_begin * hd, k1 = sh->kv_end * hd;
    uint32_t v0 = sh->kv_begin * vd, v1 = sh->kv_end * vd;
    q.row_begin = q0, q.row_end = q1;
    k.row_begin = k_first + k0, k.row_end = k_first + k1;
    v.row_begin = v_first + v0, v.row_end = v_first + v1;
    TRY(want_matrix(ld, &lw->q, q, err));
    TRY(want_matrix(ld, &lw->k, k, err));
    TRY(want_matrix(ld, &lw->v, v, err));
    if (hp->qkv_bias) {
        TRY(want_vector(ld, &lw->q_bias, l, "attn_q.bias", nq, q0, q1, err));
        TRY(want_vector(ld, &lw->k_bias, l, "attn_k.bias", nk, k0, k1, err));
        TRY(want_vector(ld, &lw->v_bias, l, "attn_v.bias", nv, v0, v1, err));
    }
    if (hp->qk_norm == QK_NORM_HEAD) {
        TRY(want_vector(ld, &lw->q_norm, l, "attn_q_norm.weight", hd, 0, hd, err));
        TRY(want_vector(ld, &lw->k_norm, l, "attn_k_norm.weight", hd, 0, hd, err));
    } else if (hp->qk_norm == QK_NORM_ROW) {
        TRY(want_vector(ld, &lw->q_norm, l, "attn_q_norm.weight", nq, q0, q1, err));
        TRY(want_vector(ld, &lw->k_norm, l, "attn_k_norm.weight", nk, k0, k1, err));
    }
    return ST_OK;
}

/* Both forms of the up-projection: split and transposed already, or whole. A rank without heads
 * names a head's too, and holds nothing of it. */
static enum status collect_mla_heads(struct loader *ld, struct mla_weights *mla, int l,
                                     struct err *err) {
    const struct hparams *hp = ld->hp;
    const struct share *sh = ld->share;
    uint32_t n_held = sh->head_end - sh->head_begin, n = MAX(n_held, 1u);
    uint32_t rank = hp->mla.kv_rank, nope = hp->mla.nope, vd = hp->mla.v_dim;
    char name[64];
    snprintf(name, sizeof name, "blk.%d.attn_k_b.weight", l);
    bool split = gguf_tensor(ld->g, name) != NULL;
    mla->k_b = own(ld->w, n, sizeof *mla->k_b);
    mla->v_b = own(ld->w, n, sizeof *mla->v_b);
    if (mla->k_b == NULL || mla->v_b == NULL)
        return no_memory(ld, err);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t h = sh->head_begin + i, row = h * (nope + vd);
        struct part k = {.layer = l,
                         .name = "attn_k_b.weight",
                         .cols = nope,
                         .rows = rank,
                         .n = hp->n_heads,
                         .nth = h,
                         .row_end = rank,
                         .col_end = nope};
        struct part v = {.layer = l,
                         .name = "attn_v_b.weight",
                         .cols = rank,
                         .rows = vd,
                         .n = hp->n_heads,
                         .nth = h,
                         .row_end = vd,
                         .col_end = rank};
        struct part whole = {.layer = l,
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
        TRY(want_matrix(ld, &mla->k_b[i], k, err));
        TRY(want_matrix(ld, &mla->v_b[i], v, err));
    }
    return ST_OK;
}

static enum status collect_mla(struct loader *ld, struct layer_weights *lw, int l,
                               struct err *err) {
    const struct hparams *hp = ld->hp;
    const struct share *sh = ld->share;
    struct mla_weights *mla = &lw->mla;
    uint32_t e = hp->n_embd, key = hp->mla.nope + hp->rope.n_rot, nq = hp->n_heads * key;
    uint32_t q_cols = hp->mla.q_rank != 0 ? hp->mla.q_rank : e, kv = hp->head_dim;
    if (hp->mla.q_rank != 0) {
        TRY(want_matrix(ld, &mla->q_a,
                        (struct part){.layer = l,
                                      .name = "attn_q_a.weight",
                                      .cols = e,
                                      .rows = q_cols,
                                      .row_end = q_cols,
                                      .col_end = e},
                        err));
        TRY(want_vector(ld, &mla->q_a_norm, l, "attn_q_a_norm.weight", q_cols, 0, q_cols, err));
    }
    TRY(want_matrix(ld, &lw->q,
                    (struct part){.layer = l,
                                  .name = hp->mla.q_rank ? "attn_q_b.weight" : "attn_q.weight",
                                  .cols = q_cols,
                                  .rows = nq,
                                  .row_begin = sh->head_begin * key,
                                  .row_end = sh->head_end * key,
                                  .col_end = q_cols},
                    err));
    TRY(want_matrix(ld, &mla->kv_a,
                    (struct part){.layer = l,
                                  .name = "attn_kv_a_mqa.weight",
                                  .cols = e,
                                  .rows = kv,
                                  .row_end = kv,
                                  .col_end = e},
                    err));
    TRY(want_vector(ld, &mla->kv_a_norm, l, "attn_kv_a_norm.weight", hp->mla.kv_rank, 0,
                    hp->mla.kv_rank, err));
    return collect_mla_heads(ld, mla, l, err);
}

#include "model/weights_recurrent.inc.h"

static enum status collect_attention(struct loader *ld, struct layer_weights *lw, int l,
                                     struct err *err) {
    const struct hparams *hp = ld->hp;
    const struct share *sh = ld->share;
    uint32_t e = hp->n_embd, od = hparams_out_dim(hp);
    lw->window = hparams_layer_window(hp, (uint32_t)l);
    TRY(want_vector(ld, &lw->attn_norm, l, "attn_norm.weight", e, 0, e, err));
    if (hparams_layer_is(hp, (uint32_t)l, LAYER_RECURRENT))
        return collect_recurrent(ld, lw, l, err);
    TRY(hp->mla.kv_rank != 0 ? collect_mla(ld, lw, l, err) : collect_qkv(ld, lw, l, err));
    if (hp->sinks)
        TRY(want_vector(ld, &lw->sinks, l, "attn_sinks.weight", hp->n_heads, sh->head_begin,
                        sh->head_end, err));
    TRY(want_matrix(ld, &lw->o,
                    (struct part){.layer = l,
                                  .name = "attn_output.weight",
                                  .cols = hp->n_heads * od,
                                  .rows = e,
                                  .row_end = e,
                                  .col_begin = sh->head_begin * od,
                                  .col_end = sh->head_end * od},
                    err));
    lw->o_segment = plan_attn_segment(hp, lw->o.type);
    if (hp->o_bias)
        TRY(want_vector(ld, &lw->o_bias, l, "attn_output.bias", e, 0, sh->member == 0 ? e : 0,
                        err));
    if (hp->post_norms)
        TRY(want_vector(ld, &lw->attn_post_norm, l, "post_attention_norm.weight", e, 0, e,
                        err));
    return ST_OK;
}

/* gate, up, down of an FFN of `width` columns, of which [f0, f1) are held; nth of n where
 * experts share tensors. */
static enum status collect_ffn(struct loader *ld, struct ffn_weights *ffn, int l,
                               const char *suffix, uint32_t width, uint32_t n, uint32_t nth,
                               uint32_t f0, uint32_t f1, double used, struct err *err) {
    uint32_t e = ld->hp->n_embd;
    char gate[64], up[64], down[64];
    snprintf(gate, sizeof gate, "ffn_gate%s.weight", suffix);
    snprintf(up, sizeof up, "ffn_up%s.weight", suffix);
    snprintf(down, sizeof down, "ffn_down%s.weight", suffix);
    struct part p = {.layer = l,
                     .name = gate,
                     .cols = e,
                     .rows = width,
                     .n = n,
                     .nth = nth,
                     .row_begin = f0,
                     .row_end = f1,
                     .col_end = e,
                     .used = used};
    struct part q = p, d = {.layer = l,
                            .name = down,
                            .cols = width,
                            .rows = e,
                            .n = n,
                            .nth = nth,
                            .row_end = e,
                            .col_begin = f0,
                            .col_end = f1,
                            .used = used};
    q.name = up;
    if (ld->hp->fused) {
        p.name = up;
        p.rows = q.rows = 2 * width;
        q.row_begin += width;
        q.row_end += width;
    }
    TRY(want_matrix(ld, &ffn->gate, p, err));
    TRY(want_matrix(ld, &ffn->up, q, err));
    return want_matrix(ld, &ffn->down, d, err);
}

static enum status collect_dense(struct loader *ld, struct layer_weights *lw, int l,
                                 struct err *err) {
    const struct share *sh = ld->share;
    uint32_t ff = ld->hp->n_ff, e = ld->hp->n_embd;
    TRY(collect_ffn(ld, &lw->ffn, l, "", ff, 1, 0, sh->ff_begin, sh->ff_end, 1.0, err));
    if (!ld->hp->ffn_bias)
        return ST_OK;
    TRY(want_vector(ld, &lw->gate_bias, l, "ffn_gate.bias", ff, sh->ff_begin, sh->ff_end, err));
    TRY(want_vector(ld, &lw->up_bias, l, "ffn_up.bias", ff, sh->ff_begin, sh->ff_end, err));
    return want_vector(ld, &lw->down_bias, l, "ffn_down.bias", e, 0, sh->member == 0 ? e : 0,
                       err);
}

static enum status collect_expert_biases(struct loader *ld, struct moe_weights *moe, int l,
                                         struct err *err) {
    const struct share *sh = ld->share;
    uint32_t n = ld->hp->moe.n_experts, ff = ld->hp->moe.n_ff, e = ld->hp->n_embd;
    moe->bias_stride = round_up(sh->expert_ff_end - sh->expert_ff_begin, TILE_ROWS);
    TRY(want_vector(ld, &moe->router_bias, l, "ffn_gate_inp.bias", n, 0, n, err));
    TRY(want_rows(ld, &moe->gate_bias, l, "ffn_gate_exps.bias", ff, n, sh->expert_ff_begin,
                  sh->expert_ff_end, moe->bias_stride, err));
    TRY(want_rows(ld, &moe->up_bias, l, "ffn_up_exps.bias", ff, n, sh->expert_ff_begin,
                  sh->expert_ff_end, moe->bias_stride, err));
    /* Added once per expert: by whoever holds its first column. */
    bool first = sh->expert_ff_begin == 0 && sh->expert_ff_end > 0;
    return want_rows(ld, &moe->down_bias, l, "ffn_down_exps.bias", e, n, 0, first ? e : 0, e,
                     err);
}

static enum status collect_moe(struct loader *ld, struct layer_weights *lw, int l,
                               struct err *err) {
    const struct hparams *hp = ld->hp;
    const struct share *sh = ld->share;
    uint32_t n = hp->moe.n_experts, e = hp->n_embd;
    struct moe_weights *moe = lw->moe = own(ld->w, 1, sizeof *moe);
    if (moe != NULL)
        moe->experts = own(ld->w, n, sizeof *moe->experts);
    if (moe == NULL || moe->experts == NULL)
        return no_memory(ld, err);
    TRY(want_matrix(ld, &moe->router,
                    (struct part){.layer = l,
                                  .name = "ffn_gate_inp.weight",
                                  .cols = e,
                                  .rows = n,
                                  .row_end = n,
                                  .col_end = e},
                    err));
    if (hp->moe.bias)
        TRY(want_vector(ld, &moe->choice_bias, l, "exp_probs_b.bias", n, 0, n, err));
    double used = (double)hp->moe.n_used / n;
    for (uint32_t i = 0; i < n; i++) {
        bool held = i >= sh->expert_begin && i < sh->expert_end;
        TRY(collect_ffn(ld, &moe->experts[i], l, "_exps", hp->moe.n_ff, n, i,
                        held ? sh->expert_ff_begin : 0, held ? sh->expert_ff_end : 0, used,
                        err));
    }
    if (hp->moe.biases)
        TRY(collect_expert_biases(ld, moe, l, err));
    if (hp->moe.shared_router)
        TRY(want_matrix(ld, &moe->shared_router,
                        (struct part){.layer = l,
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

static enum status collect_layer(struct loader *ld, struct layer_weights *lw, int l,
                                 struct err *err) {
    const struct hparams *hp = ld->hp;
    uint32_t e = hp->n_embd;
    TRY(collect_attention(ld, lw, l, err));
    TRY(want_vector(ld, &lw->ffn_norm, l,
                    hp->norm_after_attn ? "post_attention_norm.weight" : "ffn_norm.weight", e,
                    0, e, err));
    if (hp->post_norms)
        TRY(want_vector(ld, &lw->ffn_post_norm, l, "post_ffw_norm.weight", e, 0, e, err));
    lw->ffn_segment = plan_ffn_segment(hp->n_ff);
    if (hparams_layer_is_moe(hp, (uint32_t)l))
        return collect_moe(ld, lw, l, err);
    return collect_dense(ld, lw, l, err);
}

static enum status collect(struct loader *ld, struct err *err) {
    const struct hparams *hp = ld->hp;
    const struct share *sh = ld->share;
    struct weights *w = ld->w;
    TRY(want_tensor(ld, -1, "token_embd.weight", hp->n_embd, hp->n_vocab, 1, &w->embd, err));
    if (gguf_tensor(ld->g, "token_embd.scale") != NULL)
        return err_set(err, ST_UNSUPPORTED,
                       "%s: token_embd.scale: embeddings with a scale are not supported",
                       gguf_path(ld->g));
    if (qtype_info(w->embd->type)->dequantize == NULL)
        return err_set(err, ST_UNSUPPORTED,
                       "%s: token_embd.weight has type %s, which is no weight",
                       gguf_path(ld->g), qtype_info(w->embd->type)->name);
    if (hp->rope_factors != NULL)
        TRY(want_vector(ld, &w->rope_factors, -1, hp->rope_factors, hp->rope.n_rot / 2, 0,
                        hp->rope.n_rot / 2, err));
    for (uint32_t i = 0; i < w->n_layers; i++)
        TRY(collect_layer(ld, &w->layers[i], (int)(sh->layer_begin + i), err));
    if (sh->last_stage) {
        TRY(want_vector(ld, &w->output_norm, -1, "output_norm.weight", hp->n_embd, 0,
                        hp->n_embd, err));
        TRY(want_matrix(ld, &w->output,
                        (struct part){.layer = -1,
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

/* ---- filling ----------------------------------------------------------------------------- */

/* Rows of a slice as wmat_pack() asks for them: 16 at a time, so that as many buffers do. */
struct rows {
    const struct slice *s;
    uint8_t *bufs; /* [16][row_bytes]: of rows that must be made */
    size_t row_bytes;
};

static const uint8_t *source_row(const void *ctx, uint32_t r) {
    const struct rows *rows = ctx;
    const struct slice *s = rows->s;
    return tensor_row(s->t, s->row_begin + r, s->col_begin, s->dst->n_cols,
                      rows->bufs + r % TILE_ROWS * rows->row_bytes);
}

struct turned {
    const float *values;
    uint32_t n_cols;
};

static const uint8_t *turned_row(const void *ctx, uint32_t r) {
    const struct turned *turned = ctx;
    return (const uint8_t *)(turned->values + (size_t)r * turned->n_cols);
}

/* The file's columns as rows of f32: of attn_kv_b only, which is small. */
static void pack_transposed(struct loader *ld, struct slice *s, const struct gguf_tensor *t,
                            uint32_t row_begin) {
    uint32_t cols = s->dst->n_rows, n = s->dst->n_cols; /* of the file's part */
    float *row = mem_alloc(cols * sizeof(float)),
          *all = mem_alloc((size_t)cols * n * sizeof(float));
    BUG_ON(row == NULL || all == NULL);
    for (uint32_t r = 0; r < n; r++) {
        tensor_row_f32(t, row_begin + r, 0, cols, row);
        for (uint32_t c = 0; c < cols; c++)
            all[(size_t)c * n + r] = row[c];
    }
    const struct turned turned = {all, n};
    wmat_pack(s->dst, ld->block + s->offset, 0, wmat_n_tiles(s->dst), turned_row, &turned, 0);
    mem_free(row);
    mem_free(all);
}

/* ---- data from elsewhere ----------------------------------------------------------------- */

/* So much is asked for at once, about: the way there and back is a small part of it, and
 * buffers stay in the caches. */
#define FETCH_BYTES ((size_t)1 << 20)

/* Of several errors the first is told. */
static void note_failure(struct loader *ld, enum status st, const struct err *why) {
    pthread_mutex_lock(&ld->failing);
    if (atomic_load_explicit(&ld->failed, memory_order_relaxed) == ST_OK) {
        ld->why = *why;
        atomic_store_explicit(&ld->failed, (int)st, memory_order_release);
    }
    pthread_mutex_unlock(&ld->failing);
}

/* Rows [begin, begin + n) whole; *here is the tensor of these alone, with its data in *bytes,
 * which the caller frees. */
static enum status fetch_whole_rows(const struct loader *ld, const struct gguf_tensor *t,
                                    uint64_t begin, uint64_t n, struct gguf_tensor *here,
                                    uint8_t **bytes, struct err *err) {
    size_t row_bytes, all;
    bool fits = qtype_row_bytes(t->type, t->dims[0], &row_bytes) &&
                mul_size(row_bytes, (size_t)n, &all);
    uint8_t *buf = fits ? mem_alloc(all) : NULL;
    if (buf == NULL)
        return err_set(err, ST_NO_MEMORY, "%s: no memory for %s", gguf_path(ld->g), t->name);
    enum status st = tensor_fetch_rows(t, ld->from, begin, n, 0, t->dims[0], buf, err);
    if (st != ST_OK) {
        mem_free(buf);
        return st;
    }
    *here = *t;
    here->n_dims = 2;
    here->dims[1] = n;
    here->dims[2] = here->dims[3] = 1;
    here->data = *bytes = buf;
    return ST_OK;
}

struct fetched {
    const uint8_t *bytes;
    size_t row_bytes;
    uint32_t first; /* the row there, of the slice */
};

static const uint8_t *fetched_row(const void *ctx, uint32_t r) {
    const struct fetched *f = ctx;
    return f->bytes + (r - f->first) * f->row_bytes;
}

static enum status fetch_tiles(struct loader *ld, struct slice *s, uint32_t begin, uint32_t end,
                               struct err *err) {
    struct fetched f = {.bytes = NULL};
    bool whole = qtype_row_bytes(s->t->type, s->t->dims[0], &f.row_bytes);
    BUG_ON(!whole);
    uint32_t n_tiles = (uint32_t)MAX(FETCH_BYTES / (f.row_bytes * TILE_ROWS), (size_t)1);
    n_tiles = MIN(n_tiles, end - begin);
    uint8_t *buf = mem_alloc((size_t)n_tiles * TILE_ROWS * f.row_bytes);
    if (buf == NULL)
        return err_set(err, ST_NO_MEMORY, "%s: no memory for rows of %s", gguf_path(ld->g),
                       s->t->name);
    f.bytes = buf;
    enum status st = ST_OK;
    for (uint32_t at = begin; at < end && st == ST_OK; at += n_tiles) {
        uint32_t stop = MIN(at + n_tiles, end);
        f.first = at * TILE_ROWS;
        st = tensor_fetch_rows(s->t, ld->from, s->row_begin + f.first,
                               MIN(stop * TILE_ROWS, s->dst->n_rows) - f.first, s->col_begin,
                               s->dst->n_cols, buf, err);
        if (st == ST_OK)
            wmat_pack(s->dst, ld->block + s->offset, at, stop, fetched_row, &f, s->col_begin);
    }
    mem_free(buf);
    return st;
}

static enum status fetch_transposed(struct loader *ld, struct slice *s, struct err *err) {
    struct gguf_tensor here;
    uint8_t *bytes;
    TRY(fetch_whole_rows(ld, s->t, s->row_begin, s->dst->n_cols, &here, &bytes, err));
    pack_transposed(ld, s, &here, 0);
    mem_free(bytes);
    return ST_OK;
}

/* As pack_tiles(). */
static void fetch_and_pack(struct loader *ld, struct slice *s, uint32_t begin, uint32_t end) {
    struct err err;
    enum status st = ST_OK;
    if (atomic_load_explicit(&ld->failed, memory_order_relaxed) != ST_OK)
        return;
    if (!s->transposed)
        st = fetch_tiles(ld, s, begin, end, &err);
    else if (begin == 0)
        st = fetch_transposed(ld, s, &err);
    if (st != ST_OK)
        note_failure(ld, st, &err);
}

/* Ranks that embed tokens read rows of it as tokens come. */
static enum status fetch_embedding(struct loader *ld, struct err *err) {
    struct weights *w = ld->w;
    const struct gguf_tensor *t = w->embd;
    if (ld->share->stage != 0)
        return ST_OK;
    size_t row_bytes, done = 0, n_rows = (size_t)t->dims[1];
    bool whole = qtype_row_bytes(t->type, t->dims[0], &row_bytes);
    BUG_ON(!whole);
    w->embd_bytes = mem_huge_alloc((size_t)t->size_bytes);
    if (w->embd_bytes == NULL)
        return err_set(err, ST_NO_MEMORY, "%s: no memory for the embedding", gguf_path(ld->g));
    w->embd_here = *t;
    w->embd_here.data = w->embd_bytes;
    w->replicated_bytes += (size_t)t->size_bytes;
    while (done < n_rows) {
        size_t n = MIN(MAX(FETCH_BYTES / row_bytes, (size_t)1), n_rows - done);
        TRY(tensor_fetch_rows(t, ld->from, done, n, 0, t->dims[0],
                              w->embd_bytes + done * row_bytes, err));
        done += n;
        if (ld->progress != NULL)
            ld->progress(ld->user, 0);
    }
    return ST_OK;
}

/* ---- all of it --------------------------------------------------------------------------- */

static void pack_tiles(struct loader *ld, struct slice *s, uint32_t begin, uint32_t end,
                       uint8_t *bufs) {
    if (ld->from != NULL) {
        fetch_and_pack(ld, s, begin, end);
        return;
    }
    struct rows rows = {.s = s, .bufs = bufs};
    bool whole = qtype_row_bytes(s->t->type, s->t->dims[0], &rows.row_bytes);
    BUG_ON(!whole);
    if (!s->transposed)
        wmat_pack(s->dst, ld->block + s->offset, begin, end, source_row, &rows, s->col_begin);
    else if (begin == 0)
        pack_transposed(ld, s, s->t, s->row_begin);
    if (atomic_fetch_sub_explicit(&s->tiles_left, end - begin, memory_order_acq_rel) ==
        end - begin)
        tensor_forget_rows(ld->g, s->t, s->row_begin,
                           s->transposed ? s->dst->n_cols : s->dst->n_rows);
}

static size_t slice_of_tile(const struct loader *ld, size_t tile) {
    size_t lo = 0, hi = ld->n_slices;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (ld->slices[mid].first_tile <= tile)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Pieces small enough that the progress moves and the threads end together. */
#define PACK_CLAIM 16

static void pack_thread(void *arg, struct pool *pool, int thread) {
    struct loader *ld = arg;
    uint8_t *bufs = ld->row_bufs + (size_t)thread * TILE_ROWS * ld->row_buf_bytes;
    uint64_t told = clock_ns();
    size_t n_claims = div_up(ld->n_tiles, PACK_CLAIM), begin, end;
    while (pool_claim(pool, n_claims, 1, &begin, &end)) {
        for (size_t c = begin; c < end; c++) {
            size_t at = c * PACK_CLAIM, stop = MIN(at + PACK_CLAIM, ld->n_tiles);
            while (at < stop) {
                struct slice *s = &ld->slices[slice_of_tile(ld, at)];
                size_t in = at - s->first_tile, n = MIN(wmat_n_tiles(s->dst) - in, stop - at);
                pack_tiles(ld, s, (uint32_t)in, (uint32_t)(in + n), bufs);
                at += n;
            }
            size_t done =
                atomic_fetch_add_explicit(&ld->tiles_done, PACK_CLAIM, memory_order_relaxed);
            if (thread == 0 && ld->progress != NULL && clock_ns() - told > 50000000) {
                told = clock_ns();
                ld->progress(ld->user, (double)done / (double)ld->n_tiles);
            }
        }
    }
}

static enum status copy_vectors(struct loader *ld, struct err *err) {
    for (size_t i = 0; i < ld->n_vecs; i++) {
        struct vec *v = &ld->vecs[i];
        const struct gguf_tensor *t = v->t;
        struct gguf_tensor here;
        uint8_t *bytes = NULL;
        if (ld->from != NULL) {
            TRY(fetch_whole_rows(ld, v->t, 0, v->n_rows, &here, &bytes, err));
            t = &here;
        }
        float *dst = (float *)(void *)(ld->block + v->offset);
        for (uint32_t r = 0; r < v->n_rows; r++)
            tensor_row_f32(t, r, v->begin, v->n, dst + r * v->dst_stride);
        mem_free(bytes);
        *v->dst = dst;
    }
    return ST_OK;
}

static enum status fill_block(struct loader *ld, struct pool *pool, struct err *err) {
    ld->block = mem_huge_alloc(ld->block_bytes);
    if (ld->block == NULL)
        return err_set(err, ST_NO_MEMORY, "%s: no memory for this rank's %.1f GB of weights",
                       gguf_path(ld->g), (double)ld->block_bytes * 1e-9);
    for (size_t i = 0; i < ld->n_slices; i++)
        ld->slices[i].dst->tiles = ld->block + ld->slices[i].offset;
    ld->row_bufs = mem_alloc((size_t)pool_n_threads(pool) * TILE_ROWS * ld->row_buf_bytes);
    if (ld->row_bufs == NULL)
        return err_set(err, ST_NO_MEMORY, "%s: no memory to make rows in", gguf_path(ld->g));
    TRY(copy_vectors(ld, err));
    if (ld->from != NULL)
        TRY(fetch_embedding(ld, err));
    pool_run(pool, pack_thread, ld);
    enum status st = (enum status)atomic_load_explicit(&ld->failed, memory_order_acquire);
    if (st != ST_OK) {
        *err = ld->why;
        return st;
    }
    if (ld->progress != NULL)
        ld->progress(ld->user, 1.0);
    return ST_OK;
}

enum status weights_load(struct weights *out, const struct gguf *g, const struct hparams *hp,
                         const struct share *share, const struct file_source *from,
                         struct pool *pool, void (*progress)(void *, double), void *user,
                         struct err *err) {
    struct weights w = {.n_layers = share->layer_end - share->layer_begin};
    struct loader ld = {.g = g,
                        .hp = hp,
                        .share = share,
                        .w = &w,
                        .from = from,
                        .failing = PTHREAD_MUTEX_INITIALIZER,
                        .progress = progress,
                        .user = user};
    enum status st = ST_OK;
    w.layers = mem_calloc(w.n_layers, sizeof *w.layers);
    if (w.layers == NULL)
        st = no_memory(&ld, err);
    if (st == ST_OK)
        st = collect(&ld, err);
    if (st == ST_OK)
        st = fill_block(&ld, pool, err);
    if (st == ST_OK) {
        w.block = ld.block;
        w.block_bytes = ld.block_bytes;
        *out = w;
    } else {
        if (ld.block != NULL)
            mem_huge_free(ld.block, ld.block_bytes);
        weights_free(&w);
    }
    pthread_mutex_destroy(&ld.failing);
    mem_free(ld.row_bufs);
    mem_free(ld.slices);
    mem_free(ld.vecs);
    return st;
}

void weights_free(struct weights *w) {
    for (size_t i = 0; i < w->n_owned; i++)
        mem_free(w->owned[i]);
    mem_free(w->owned);
    mem_free(w->layers);
    if (w->block != NULL)
        mem_huge_free(w->block, w->block_bytes);
    if (w->embd_bytes != NULL)
        mem_huge_free(w->embd_bytes, (size_t)w->embd_here.size_bytes);
    *w = (struct weights){0};
}

void weights_embed_row(const struct weights *w, int32_t id, float *out) {
    BUG_ON(id < 0 || (uint64_t)id >= w->embd->dims[1]);
    tensor_row_f32(w->embd_bytes != NULL ? &w->embd_here : w->embd, (uint64_t)id, 0,
                   w->embd->dims[0], out);
}

static enum status describe(struct weights *out, const struct gguf *g, const struct hparams *hp,
                            const struct share *share, bool *wanted, struct err *err) {
    struct weights w = {.n_layers = share->layer_end - share->layer_begin};
    struct loader ld = {.g = g, .hp = hp, .share = share, .w = &w, .wanted = wanted};
    w.layers = mem_calloc(w.n_layers, sizeof *w.layers);
    enum status st = w.layers == NULL ? no_memory(&ld, err) : collect(&ld, err);
    if (st == ST_OK)
        *out = w;
    else
        weights_free(&w);
    mem_free(ld.slices);
    mem_free(ld.vecs);
    return st;
}

enum status weights_describe(struct weights *out, const struct gguf *g,
                             const struct hparams *hp, const struct share *share,
                             struct err *err) {
    return describe(out, g, hp, share, NULL, err);
}

/* Whether the model would be another one without tensor t, which nothing reads. */
static bool is_of_model(const struct gguf_tensor *t, const struct hparams *hp) {
    /* What is computed from the keys, another form of attn_k_b and attn_v_b, and scales for
     * engines that quantize NVFP4's activations. */
    static const char *const no_loss[] = {"attn_rot_embd.weight", "rope_freqs.weight",
                                          "attn_kv_b.weight"};
    static const char *const ends[] = {"token_embd", "position_embd", "output"};
    char *name;
    if (str_ends(t->name, ".input_scale"))
        return false;
    if (!str_starts(t->name, "blk.")) {
        /* Others are parts beside the model: towers for pictures, heads that classify. */
        for (size_t i = 0; i < ARRAY_LEN(ends); i++)
            if (str_starts(t->name, ends[i]))
                return true;
        return false;
    }
    /* Layers beyond the model's predict further tokens. */
    if (strtoul(t->name + strlen("blk."), &name, 10) >= hp->n_layers || *name != '.')
        return false;
    for (size_t i = 0; i < ARRAY_LEN(no_loss); i++)
        if (str_eq(name + 1, no_loss[i]))
            return false;
    return true;
}

static enum status check_unwanted(const struct gguf *g, const struct hparams *hp,
                                  const bool *wanted, struct err *err) {
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char shown[2 * GGUF_NAME_MAX];
        if (wanted[i] || !is_of_model(t, hp))
            continue;
        gguf_escape((struct gguf_str){t->name, strlen(t->name)}, shown, sizeof shown);
        return err_set(err, ST_UNSUPPORTED,
                       "%s: has the tensor %s, which lockstep does not know for the "
                       "architecture %s",
                       gguf_path(g), shown, hp->arch->name);
    }
    return ST_OK;
}

enum status weights_check(const struct gguf *g, const struct hparams *hp, struct err *err) {
    /* A rank with an empty share of every matrix in every layer needs all names and shapes. */
    const struct share none = {.layer_end = hp->n_layers, .last_stage = true};
    struct weights w;
    bool *wanted = mem_calloc(gguf_n_tensors(g), sizeof *wanted);
    if (wanted == NULL)
        return err_set(err, ST_NO_MEMORY, "%s: no memory to check it", gguf_path(g));
    enum status st = describe(&w, g, hp, &none, wanted, err);
    if (st == ST_OK) {
        weights_free(&w);
        st = check_unwanted(g, hp, wanted, err);
    }
    mem_free(wanted);
    return st;
}
