/* weights_compressed.c: lists the weights of attention to compressed keys. A rank has the query
 * heads and the low-rank outputs of whole groups; the rest is whole on every rank. */
#include "base/util.h"
#include "weights/weights_loader.h"

#include <stdio.h>

static enum status want_compressor(struct weights_loader *ld, struct compressor_weights *w,
                                   int l, const char *prefix, uint32_t dim, uint32_t ratio,
                                   struct err *err) {
    const uint32_t e = ld->hp->n_embd, width = ratio == COMPRESS_FINE ? 2 * dim : dim;
    char kv[48], gate[48], ape[48], norm[48];
    snprintf(kv, sizeof kv, "%s_compressor_kv.weight", prefix);
    snprintf(gate, sizeof gate, "%s_compressor_gate.weight", prefix);
    snprintf(ape, sizeof ape, "%s_compressor_ape.weight", prefix);
    snprintf(norm, sizeof norm, "%s_compressor_norm.weight", prefix);
    TRY(weights_want_whole_rows(ld, &w->kv, l, kv, e, width, 0, width, err));
    TRY(weights_want_whole_rows(ld, &w->gate, l, gate, e, width, 0, width, err));
    TRY(weights_want_rows(ld, &w->ape, l, ape, width, ratio, 0, width,
                          round_up(width, TILE_ROWS), err));
    return weights_want_vector(ld, &w->norm, l, norm, dim, 0, dim, err);
}

static enum status want_index(struct weights_loader *ld, struct compressed_weights *w, int l,
                              struct err *err) {
    const struct compress_params *c = &ld->hp->compress;
    const uint32_t rows = c->n_heads * c->k_dim;
    TRY(weights_want_whole_rows(ld, &w->index_q, l, "indexer.attn_q_b.weight", c->q_rank, rows,
                                0, rows, err));
    TRY(weights_want_whole_rows(ld, &w->index_weights, l, "indexer.proj.weight", ld->hp->n_embd,
                                c->n_heads, 0, c->n_heads, err));
    return want_compressor(ld, &w->index, l, "indexer", c->k_dim, w->ratio, err);
}

/* A rank without heads names a group's rows too, and holds none of them. */
static enum status want_output(struct weights_loader *ld, struct layer_weights *lw, int l,
                               struct err *err) {
    const struct compress_params *c = &ld->hp->compress;
    const struct attn_kind *kind = &ld->hp->attn[lw->attn];
    const struct head_share *sh = &ld->share->heads[lw->attn];
    const uint32_t per_group = kind->n_heads / c->n_groups, cols = per_group * kind->head_dim;
    const uint32_t first = sh->begin / per_group, end = sh->end / per_group, e = ld->hp->n_embd;
    struct wmat *out_a = weights_own(ld->w, MAX(end - first, 1u), sizeof *out_a);
    if (out_a == NULL)
        return weights_no_memory(ld, err);
    for (uint32_t g = first; g < MAX(end, first + 1); g++)
        TRY(weights_want_whole_rows(ld, &out_a[g - first], l, "attn_output_a.weight", cols,
                                    c->n_groups * c->o_rank, g * c->o_rank,
                                    (g + (g < end)) * c->o_rank, err));
    lw->compressed->out_a = out_a;
    TRY(weights_want_matrix(ld, &lw->o,
                            (struct weight_part){.layer = l,
                                                 .name = "attn_output_b.weight",
                                                 .cols = c->n_groups * c->o_rank,
                                                 .rows = e,
                                                 .row_end = e,
                                                 .col_begin = first * c->o_rank,
                                                 .col_end = end * c->o_rank},
                            err));
    lw->o_segment = plan_attn_segment(c->o_rank, lw->o.type);
    return ST_OK;
}

enum status weights_collect_compressed(struct weights_loader *ld, struct layer_weights *lw,
                                       int l, struct err *err) {
    const struct compress_params *c = &ld->hp->compress;
    const struct attn_kind *kind = &ld->hp->attn[lw->attn];
    const struct head_share *sh = &ld->share->heads[lw->attn];
    const uint32_t e = ld->hp->n_embd, hd = kind->head_dim;
    struct compressed_weights *w = lw->compressed = weights_own(ld->w, 1, sizeof *w);
    if (w == NULL)
        return weights_no_memory(ld, err);
    w->ratio = c->ratios[l];
    TRY(weights_want_whole_rows(ld, &w->q_a, l, "attn_q_a.weight", e, c->q_rank, 0, c->q_rank,
                                err));
    TRY(weights_want_vector(ld, &w->q_a_norm, l, "attn_q_a_norm.weight", c->q_rank, 0,
                            c->q_rank, err));
    TRY(weights_want_whole_rows(ld, &lw->q, l, "attn_q_b.weight", c->q_rank, kind->n_heads * hd,
                                sh->begin * hd, sh->end * hd, err));
    TRY(weights_want_whole_rows(ld, &w->kv, l, "attn_kv.weight", e, hd, 0, hd, err));
    TRY(weights_want_vector(ld, &w->kv_norm, l, "attn_kv_a_norm.weight", hd, 0, hd, err));
    if (w->ratio != 0)
        TRY(want_compressor(ld, &w->keys, l, "attn", hd, w->ratio, err));
    if (w->ratio == COMPRESS_FINE)
        TRY(want_index(ld, w, l, err));
    return want_output(ld, lw, l, err);
}
