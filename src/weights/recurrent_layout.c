/* recurrent_layout.c: the parts of recurrent layers that a share holds. */
#include "weights/recurrent_layout.h"

#include "base/pieces.h"
#include "base/util.h"
#include "weights/plan.h"

#include <string.h>

static uint32_t heads_per_group(const struct recurrent_params *r) {
    return r->n_heads / r->n_groups;
}

/* Tiled heads of a single key head are in order. */
uint32_t recurrent_n_pieces(const struct hparams *hp) {
    const struct recurrent_params *r = &hp->recurrent;
    return r->tiled && r->n_groups > 1 ? heads_per_group(r) : 1;
}

uint32_t recurrent_out_cols(const struct hparams *hp) {
    const struct recurrent_params *r = &hp->recurrent;
    return r->kind == RECURRENT_SHORT_CONV ? hp->n_embd : r->n_heads * r->v_dim;
}

uint32_t recurrent_head_cols(const struct hparams *hp) {
    const struct recurrent_params *r = &hp->recurrent;
    return r->kind == RECURRENT_SHORT_CONV ? plan_ffn_segment(hp->n_embd) : r->v_dim;
}

uint32_t recurrent_n_units(const struct hparams *hp) {
    const struct recurrent_params *r = &hp->recurrent;
    switch (r->kind) {
    case RECURRENT_NONE:
        return 0;
    case RECURRENT_DELTA:
        return r->n_groups;
    case RECURRENT_MAMBA2:
        return r->n_heads;
    case RECURRENT_SHORT_CONV:
        break;
    }
    return hp->n_embd / plan_ffn_segment(hp->n_embd);
}

uint32_t recurrent_unit_cols(const struct hparams *hp) {
    return recurrent_out_cols(hp) / recurrent_n_units(hp) / recurrent_n_pieces(hp);
}

const char *recurrent_out_name(const struct hparams *hp) {
    if (hp->recurrent.kind == RECURRENT_SHORT_CONV)
        return "shortconv.out_proj";
    return hp->recurrent.by_channel ? "attn_output" : "ssm_out";
}

/* ---- rows -------------------------------------------------------------------------------- */

/* The next columns of the row: a multiple of 16 from n on. */
static uint32_t next(struct recurrent_layout *lay, uint32_t n) {
    uint32_t at = lay->ld;
    lay->ld += (uint32_t)round_up(n, TILE_ROWS);
    return at;
}

static void add_part(struct recurrent_layout *lay, uint32_t at, uint32_t channel, uint32_t n) {
    if (n != 0)
        lay->parts[lay->n_parts++] = (struct conv_part){at, channel, n};
}

/* [q, k, v] under the convolution, then z and the gates. */
static void lay_out_delta(struct recurrent_layout *lay, const struct hparams *hp) {
    const struct recurrent_params *r = &hp->recurrent;
    uint32_t keys = lay->n_units * r->k_dim;
    uint32_t all = r->by_channel ? 0 : r->n_groups * r->k_dim; /* else the file has three */
    lay->n_heads = lay->n_units * heads_per_group(r);
    lay->first_group = lay->first_unit;
    lay->n_groups = lay->n_units;
    lay->q_at = next(lay, keys);
    lay->k_at = next(lay, keys);
    lay->v_at = next(lay, lay->n_pieces * lay->piece_stride);
    add_part(lay, lay->q_at, lay->first_unit * r->k_dim, keys);
    add_part(lay, lay->k_at, all + lay->first_unit * r->k_dim, keys);
    for (uint32_t j = 0; j < lay->n_pieces; j++)
        add_part(lay, lay->v_at + j * lay->piece_stride,
                 2 * all + j * r->n_groups * r->v_dim +
                     lay->first_unit * recurrent_unit_cols(hp),
                 lay->piece_cols);
    lay->ld_history = lay->ld;
    lay->z_at = next(lay, lay->n_pieces * lay->piece_stride);
    lay->gates_at = next(lay, r->joint_gates ? 2 * r->n_heads : r->n_heads);
    if (r->by_channel) {
        lay->decays_at = next(lay, keys);
        lay->low_at[0] = next(lay, r->k_dim);
        lay->low_at[1] = next(lay, r->k_dim);
        return;
    }
    lay->gates_2_at = r->joint_gates ? lay->gates_at : next(lay, r->n_heads);
}

/* [x, B, C] under the convolution, then z and the time steps. */
static void lay_out_mamba2(struct recurrent_layout *lay, const struct hparams *hp) {
    const struct recurrent_params *r = &hp->recurrent;
    uint32_t per = heads_per_group(r), end = lay->first_unit + lay->n_units;
    lay->n_heads = lay->n_units;
    lay->first_group = lay->first_unit / per;
    lay->n_groups = lay->n_units != 0 ? (uint32_t)div_up(end, per) - lay->first_group : 0;
    uint32_t inner = r->n_heads * r->v_dim, width = lay->n_groups * r->k_dim;
    lay->v_at = next(lay, lay->piece_cols);
    lay->k_at = next(lay, width);
    lay->q_at = next(lay, width);
    add_part(lay, lay->v_at, lay->first_unit * r->v_dim, lay->piece_cols);
    add_part(lay, lay->k_at, inner + lay->first_group * r->k_dim, width);
    add_part(lay, lay->q_at, inner + (r->n_groups + lay->first_group) * r->k_dim, width);
    lay->ld_history = lay->ld;
    lay->z_at = next(lay, lay->piece_cols);
    lay->gates_at = lay->gates_2_at = next(lay, 2 * r->n_heads); /* and decays */
}

/* B * u under the convolution; C and u. */
static void lay_out_short_conv(struct recurrent_layout *lay) {
    lay->v_at = next(lay, lay->piece_cols);
    add_part(lay, lay->v_at, lay->first_unit * (lay->piece_cols / MAX(lay->n_units, 1u)),
             lay->piece_cols);
    lay->ld_history = lay->ld;
    lay->z_at = next(lay, lay->piece_cols);
    lay->k_at = next(lay, lay->piece_cols);
}

void recurrent_lay_out(struct recurrent_layout *out, const struct hparams *hp,
                       const struct share *sh) {
    const struct recurrent_params *r = &hp->recurrent;
    memset(out, 0, sizeof *out);
    if (r->kind == RECURRENT_NONE)
        return;
    out->first_unit = sh->unit_begin;
    out->n_units = sh->unit_end - sh->unit_begin;
    out->n_pieces = recurrent_n_pieces(hp);
    out->piece_cols = out->n_units * recurrent_unit_cols(hp);
    out->piece_stride = (uint32_t)round_up(out->piece_cols, TILE_ROWS);
    out->out_ld = out->n_pieces * out->piece_cols;
    if (r->kind == RECURRENT_DELTA)
        lay_out_delta(out, hp);
    else if (r->kind == RECURRENT_MAMBA2)
        lay_out_mamba2(out, hp);
    else
        lay_out_short_conv(out);
    out->history_floats = (size_t)(r->n_taps - 1) * out->ld_history;
    out->head_floats = r->k_dim * round_up(r->v_dim, 16);
    out->layer_floats = out->history_floats + out->n_heads * out->head_floats;
}

struct recurrent_head recurrent_head_of(const struct hparams *hp,
                                        const struct recurrent_layout *lay, uint32_t local) {
    const struct recurrent_params *r = &hp->recurrent;
    uint32_t per = heads_per_group(r);
    if (lay->n_pieces > 1) {
        uint32_t piece = local / lay->n_units, unit = local % lay->n_units;
        return (struct recurrent_head){.head = piece * r->n_groups + lay->first_unit + unit,
                                       .group = unit,
                                       .at = piece * lay->piece_stride + unit * r->v_dim};
    }
    uint32_t head =
        r->kind == RECURRENT_DELTA ? lay->first_unit * per + local : lay->first_unit + local;
    return (struct recurrent_head){
        .head = head, .group = head / per - lay->first_group, .at = local * r->v_dim};
}

size_t recurrent_state_bytes(const struct hparams *hp, const struct share *sh) {
    struct recurrent_layout lay;
    size_t n = 0;
    recurrent_lay_out(&lay, hp, sh);
    for (uint32_t l = sh->layer_begin; l < sh->layer_end; l++)
        n += hparams_layer_is(hp, l, LAYER_RECURRENT);
    return round_up(n * lay.layer_floats * sizeof(float), PIECES_PAGE);
}
