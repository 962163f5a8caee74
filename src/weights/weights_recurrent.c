/* weights_recurrent.c: lists the weights of recurrent layers. */
#include "base/util.h"
#include "weights/recurrent_layout.h"
#include "weights/weights_loader.h"

#include <stdio.h>

struct recurrent_collector {
    struct weights_loader *ld;
    struct recurrent_weights *w;
    struct recurrent_layout lay;
    int layer;
    uint32_t cap_in;
};

/* Rows [begin, end) of a matrix of x, whose results lie at `at` in the row. */
static enum status want_in(struct recurrent_collector *c, const char *name, uint32_t rows,
                           uint32_t begin, uint32_t end, uint32_t at, struct err *err) {
    uint32_t e = c->ld->hp->n_embd, i = c->w->n_in++;
    BUG_ON(i >= c->cap_in);
    c->w->in_at[i] = at;
    return weights_want_matrix(c->ld, &c->w->in[i],
                               (struct weight_part){.layer = c->layer,
                                                    .name = name,
                                                    .cols = e,
                                                    .rows = rows,
                                                    .row_begin = begin,
                                                    .row_end = end,
                                                    .col_end = e},
                               err);
}

static enum status want_out(struct recurrent_collector *c, struct err *err) {
    const struct hparams *hp = c->ld->hp;
    const struct recurrent_layout *lay = &c->lay;
    uint32_t cols = recurrent_out_cols(hp), e = hp->n_embd, unit = recurrent_unit_cols(hp);
    char name[64];
    snprintf(name, sizeof name, "%s.weight", recurrent_out_name(hp));
    c->w->n_out = lay->n_pieces;
    for (uint32_t j = 0; j < lay->n_pieces; j++) {
        uint32_t begin = j * (cols / lay->n_pieces) + lay->first_unit * unit;
        TRY(weights_want_matrix(c->ld, &c->w->out[j],
                                (struct weight_part){.layer = c->layer,
                                                     .name = name,
                                                     .cols = cols,
                                                     .rows = e,
                                                     .row_end = e,
                                                     .col_begin = begin,
                                                     .col_end = begin + lay->piece_cols},
                                err));
    }
    enum qtype type = c->w->out[0].type;
    if (act_kind_for(type) == ACT_Q8 && cols / lay->n_pieces % ACT_BLOCK != 0)
        return err_set(err, ST_UNSUPPORTED,
                       "%s: blk.%d.%s: the columns of a key head's value heads are not whole "
                       "blocks of %s",
                       gguf_path(c->ld->g), c->layer, name, qtype_info(type)->name);
    c->w->out_segment = plan_recurrent_segment(hp, type);
    return ST_OK;
}

/* The first files of Qwen3-Next: of each key head q, k, its value heads, its z heads. */
static enum status want_joint_in(struct recurrent_collector *c, struct err *err) {
    const struct recurrent_params *r = &c->ld->hp->recurrent;
    const struct recurrent_layout *lay = &c->lay;
    uint32_t k = r->k_dim, v = recurrent_unit_cols(c->ld->hp), unit = 2 * k + 2 * v;
    uint32_t rows = r->n_groups * unit;
    if (k % TILE_ROWS != 0 || v % TILE_ROWS != 0)
        return err_set(err, ST_UNSUPPORTED,
                       "%s: ssm_in with heads of %u and %u: expected multiples of %d",
                       gguf_path(c->ld->g), k, v, TILE_ROWS);
    if (lay->n_units == 0) /* names it all the same */
        return want_in(c, "ssm_in.weight", rows, 0, 0, 0, err);
    for (uint32_t i = 0; i < lay->n_units; i++) {
        uint32_t row = (lay->first_unit + i) * unit;
        TRY(want_in(c, "ssm_in.weight", rows, row, row + k, lay->q_at + i * k, err));
        TRY(want_in(c, "ssm_in.weight", rows, row + k, row + 2 * k, lay->k_at + i * k, err));
        row += 2 * k;
        TRY(want_in(c, "ssm_in.weight", rows, row, row + v, lay->v_at + i * v, err));
        TRY(want_in(c, "ssm_in.weight", rows, row + v, row + 2 * v, lay->z_at + i * v, err));
    }
    return ST_OK;
}

static enum status want_split_in(struct recurrent_collector *c, struct err *err) {
    const struct recurrent_params *r = &c->ld->hp->recurrent;
    const struct recurrent_layout *lay = &c->lay;
    uint32_t inner = r->n_heads * r->v_dim, rows = 2 * r->n_groups * r->k_dim + inner;
    for (uint32_t i = 0; i < lay->n_parts; i++) {
        const struct conv_part *p = &lay->parts[i];
        TRY(want_in(c, "attn_qkv.weight", rows, p->channel, p->channel + p->n, p->at, err));
    }
    if (lay->n_parts == 0)
        TRY(want_in(c, "attn_qkv.weight", rows, 0, 0, 0, err));
    for (uint32_t j = 0; j < lay->n_pieces; j++) {
        uint32_t row =
            j * r->n_groups * r->v_dim + lay->first_unit * recurrent_unit_cols(c->ld->hp);
        TRY(want_in(c, "attn_gate.weight", inner, row, row + lay->piece_cols,
                    lay->z_at + j * lay->piece_stride, err));
    }
    return ST_OK;
}

static enum status collect_delta(struct recurrent_collector *c, struct err *err) {
    const struct recurrent_params *r = &c->ld->hp->recurrent;
    const struct recurrent_layout *lay = &c->lay;
    uint32_t n = r->n_heads, channels = 2 * r->n_groups * r->k_dim + n * r->v_dim;
    TRY(r->joint_in ? want_joint_in(c, err) : want_split_in(c, err));
    if (r->joint_gates) {
        TRY(want_in(c, "ssm_ba.weight", 2 * n, 0, 2 * n, lay->gates_at, err));
    } else {
        TRY(want_in(c, "ssm_beta.weight", n, 0, n, lay->gates_at, err));
        TRY(want_in(c, "ssm_alpha.weight", n, 0, n, lay->gates_2_at, err));
    }
    TRY(weights_want_rows(c->ld, &c->w->conv, c->layer, "ssm_conv1d.weight", r->n_taps,
                          channels, 0, r->n_taps, r->n_taps, err));
    TRY(weights_want_vector(c->ld, &c->w->dt_bias, c->layer, "ssm_dt.bias", n, 0, n, err));
    TRY(weights_want_vector(c->ld, &c->w->a, c->layer, "ssm_a", n, 0, n, err));
    return weights_want_vector(c->ld, &c->w->norm, c->layer, "ssm_norm.weight", r->v_dim, 0,
                               r->v_dim, err);
}

/* One number for each head, as the file has them: [1, heads]. */
static enum status want_of_heads(struct recurrent_collector *c, const float **dst,
                                 const char *name, struct err *err) {
    return weights_want_rows(c->ld, dst, c->layer, name, 1, c->ld->hp->recurrent.n_heads, 0, 1,
                             1, err);
}

/* q, k and v with a convolution each, which has [n_taps, 1, channels]; two low-rank products. */
static enum status collect_by_channel(struct recurrent_collector *c, struct err *err) {
    const struct recurrent_params *r = &c->ld->hp->recurrent;
    const struct recurrent_layout *lay = &c->lay;
    const uint32_t n = r->n_heads, dim = r->k_dim, all = n * dim, taps = r->n_taps;
    const uint32_t begin = lay->first_unit * dim, end = begin + lay->n_units * dim;
    const struct weight_part second = {.layer = c->layer,
                                       .name = "ssm_f_b.weight",
                                       .cols = dim,
                                       .rows = all,
                                       .row_begin = begin,
                                       .row_end = end,
                                       .col_end = dim};
    struct weight_part gates = second;
    gates.name = "ssm_g_b.weight";
    TRY(want_in(c, "attn_q.weight", all, begin, end, lay->q_at, err));
    TRY(want_in(c, "attn_k.weight", all, begin, end, lay->k_at, err));
    TRY(want_in(c, "attn_v.weight", all, begin, end, lay->v_at, err));
    TRY(want_in(c, "ssm_beta.weight", n, 0, n, lay->gates_at, err));
    TRY(want_in(c, "ssm_f_a.weight", dim, 0, dim, lay->low_at[0], err));
    TRY(weights_want_matrix(c->ld, &c->w->decays, second, err));
    if (r->whole_gate) {
        TRY(want_in(c, "ssm_g.weight", all, begin, end, lay->z_at, err));
    } else {
        TRY(want_in(c, "ssm_g_a.weight", dim, 0, dim, lay->low_at[1], err));
        TRY(weights_want_matrix(c->ld, &c->w->gates, gates, err));
    }
    TRY(weights_want_rows(c->ld, &c->w->conv, c->layer, "ssm_conv1d_q.weight", taps, all, 0,
                          taps, taps, err));
    TRY(weights_want_rows(c->ld, &c->w->conv_k, c->layer, "ssm_conv1d_k.weight", taps, all, 0,
                          taps, taps, err));
    TRY(weights_want_rows(c->ld, &c->w->conv_v, c->layer, "ssm_conv1d_v.weight", taps, all, 0,
                          taps, taps, err));
    TRY(weights_want_vector(c->ld, &c->w->dt_bias, c->layer, "ssm_dt.bias", all, 0, all, err));
    if (r->least_decay != 0.0f)
        TRY(weights_want_vector(c->ld, &c->w->a, c->layer, "ssm_a", n, 0, n, err));
    else
        TRY(want_of_heads(c, &c->w->a, "ssm_a", err));
    return weights_want_vector(c->ld, &c->w->norm, c->layer, "ssm_norm.weight", dim, 0, dim,
                               err);
}

/* ssm_in: [z, x, B, C, dt] */
static enum status collect_mamba2(struct recurrent_collector *c, struct err *err) {
    const struct recurrent_params *r = &c->ld->hp->recurrent;
    const struct recurrent_layout *lay = &c->lay;
    uint32_t n = r->n_heads, inner = n * r->v_dim, shared = r->n_groups * r->k_dim;
    uint32_t channels = inner + 2 * shared, rows = inner + channels + n;
    uint32_t z = lay->first_unit * r->v_dim, width = inner / r->n_groups;
    for (uint32_t i = 0; i < lay->n_parts; i++) {
        const struct conv_part *p = &lay->parts[i];
        uint32_t row = inner + p->channel;
        TRY(want_in(c, "ssm_in.weight", rows, row, row + p->n, p->at, err));
    }
    TRY(want_in(c, "ssm_in.weight", rows, z, z + lay->piece_cols, lay->z_at, err));
    TRY(want_in(c, "ssm_in.weight", rows, rows - n, rows, lay->gates_at, err));
    TRY(weights_want_rows(c->ld, &c->w->conv, c->layer, "ssm_conv1d.weight", r->n_taps,
                          channels, 0, r->n_taps, r->n_taps, err));
    TRY(weights_want_vector(c->ld, &c->w->conv_bias, c->layer, "ssm_conv1d.bias", channels, 0,
                            channels, err));
    TRY(weights_want_vector(c->ld, &c->w->dt_bias, c->layer, "ssm_dt.bias", n, 0, n, err));
    TRY(want_of_heads(c, &c->w->a, "ssm_a", err));
    TRY(want_of_heads(c, &c->w->d, "ssm_d", err));
    return weights_want_rows(c->ld, &c->w->norm, c->layer, "ssm_norm.weight", width,
                             r->n_groups, 0, width, width, err);
}

/* in_proj: [B, C, u]; B * u is what is convolved. */
static enum status collect_short_conv(struct recurrent_collector *c, struct err *err) {
    const struct recurrent_layout *lay = &c->lay;
    uint32_t e = c->ld->hp->n_embd, n_taps = c->ld->hp->recurrent.n_taps;
    uint32_t begin = lay->first_unit * recurrent_unit_cols(c->ld->hp);
    const uint32_t at[] = {lay->v_at, lay->z_at, lay->k_at};
    for (uint32_t i = 0; i < ARRAY_LEN(at); i++)
        TRY(want_in(c, "shortconv.in_proj.weight", 3 * e, i * e + begin,
                    i * e + begin + lay->piece_cols, at[i], err));
    return weights_want_rows(c->ld, &c->w->conv, c->layer, "shortconv.conv.weight", n_taps, e,
                             0, n_taps, n_taps, err);
}

enum status weights_collect_recurrent(struct weights_loader *ld, struct layer_weights *lw,
                                      int l, struct err *err) {
    const struct hparams *hp = ld->hp;
    struct recurrent_collector c = {.ld = ld, .layer = l};
    recurrent_lay_out(&c.lay, hp, ld->share);
    c.cap_in = MAX(4 * c.lay.n_units, 2 * c.lay.n_pieces + 2) + 6;
    struct recurrent_weights *w = c.w = lw->recurrent = weights_own(ld->w, 1, sizeof *w);
    if (w == NULL)
        return weights_no_memory(ld, err);
    w->in = weights_own(ld->w, c.cap_in, sizeof *w->in);
    w->in_at = weights_own(ld->w, c.cap_in, sizeof *w->in_at);
    w->out = weights_own(ld->w, c.lay.n_pieces, sizeof *w->out);
    if (w->in == NULL || w->in_at == NULL || w->out == NULL)
        return weights_no_memory(ld, err);
    for (uint32_t i = ld->share->layer_begin; i < (uint32_t)l; i++)
        w->index += hparams_layer_is(hp, i, LAYER_RECURRENT);
    if (hp->recurrent.by_channel)
        TRY(collect_by_channel(&c, err));
    else if (hp->recurrent.kind == RECURRENT_DELTA)
        TRY(collect_delta(&c, err));
    else if (hp->recurrent.kind == RECURRENT_MAMBA2)
        TRY(collect_mamba2(&c, err));
    else
        TRY(collect_short_conv(&c, err));
    return want_out(&c, err);
}
