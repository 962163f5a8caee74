/* recurrent_layout.h: layers with a state of fixed size for each sequence, instead of keys and
 * values that grow with it.
 *
 * A layer is: products of x, side by side in a row per token; a short convolution over some of
 * their columns; a recurrence of each head over the tokens; a gate and norm of its results; an
 * output product. The state is the convolution's last inputs and the heads' matrices. It is
 * updated token by token, in one order whatever the chunks or the batch (mixers/recurrent.h),
 * so the bits do not depend on these.
 *
 * Ranks divide *units*: of a delta net a key head with its value heads, of Mamba-2 a head, of a
 * short convolution a segment of channels. The columns of the output product (row-parallel,
 * exact) that belong to a rank's units may lie in several *pieces*: if value heads are tiled,
 * as many as a key head has value heads. */
#ifndef LOCKSTEP_WEIGHTS_RECURRENT_LAYOUT_H
#define LOCKSTEP_WEIGHTS_RECURRENT_LAYOUT_H

#include "arch/hparams.h"
#include "base/util.h"
#include "mixers/recurrent.h"

#include <stddef.h>
#include <stdint.h>

struct share;

/* ---- sizes of the whole layer; 0 if there are no recurrent layers ------------------------ */

uint32_t recurrent_n_units(const struct hparams *hp);
/* Columns of the output product: all, of a unit in each piece, of a head. */
uint32_t recurrent_out_cols(const struct hparams *hp);
uint32_t recurrent_unit_cols(const struct hparams *hp);
uint32_t recurrent_head_cols(const struct hparams *hp);
uint32_t recurrent_n_pieces(const struct hparams *hp);
/* The output product's matrix: "ssm_out" */
const char *recurrent_out_name(const struct hparams *hp);

/* ---- a share of it ------------------------------------------------------------------------ */

/* Channels of the convolution that lie side by side in the row and in the file. */
struct conv_part {
    uint32_t at;      /* in the row, and in the history */
    uint32_t channel; /* in the file's matrix */
    uint32_t n;
};
#define CONV_PARTS_MAX (RECURRENT_PIECES_MAX + 2)

/* Where in a token's row of products everything lies, in floats. A product writes whole tiles, so
 * each begins at a multiple of 16. The convolution's columns come first. */
struct recurrent_layout {
    uint32_t first_unit, n_units;                /* held */
    uint32_t n_heads;                            /* value heads held */
    uint32_t first_group, n_groups;              /* that they read */
    uint32_t n_pieces, piece_cols, piece_stride; /* of v and z in the row */
    uint32_t q_at, k_at, v_at, z_at;
    uint32_t gates_at, gates_2_at; /* of all heads: betas, alphas, or both in one; time steps */
    uint32_t decays_at;            /* by channel: of the heads held, k_dim each */
    uint32_t low_at[2];            /* what decays and z are products of, k_dim each */
    uint32_t ld;
    struct conv_part parts[CONV_PARTS_MAX];
    uint32_t n_parts;
    uint32_t ld_history;                              /* columns of the convolution */
    uint32_t out_ld;                                  /* columns held of the output product */
    size_t history_floats, head_floats, layer_floats; /* of a state; multiples of 16 */
};
void recurrent_lay_out(struct recurrent_layout *out, const struct hparams *hp,
                       const struct share *sh);

/* A value head of the share: its index in the model, the key head or group that it reads,
 * counted from the first that is held, and its place in v and z. */
struct recurrent_head {
    uint32_t head, group, at;
};
struct recurrent_head recurrent_head_of(const struct hparams *hp,
                                        const struct recurrent_layout *lay, uint32_t local);

/* Bytes of a state, over the recurrent layers of the share, in whole pages (pieces.h). */
size_t recurrent_state_bytes(const struct hparams *hp, const struct share *sh);

#endif
