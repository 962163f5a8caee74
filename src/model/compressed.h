/* compressed.h: attention to a window and to compressed keys (DeepSeek V4).
 *
 * There is one head that is both key and value. A layer keeps, for each sequence:
 *
 *   in m->kv, in pages of windows   a key of each position, as kv_type
 *   in COMPRESSED_RAW, likewise     what a position gives to compressed keys: rows of values and of
 *                                   gates, as f32 whatever kv_type is
 *   in COMPRESSED_KEYS, in pages    a key of each whole block of `ratio` positions, as kv_type, in
 *     of whole contexts             the page of the block's last position: a page of 64 positions
 *                                   has room for 16, or for one, which every second page has
 *   in COMPRESSED_INDEX, likewise   the same of the indexer
 *
 * A block's key is computed by the step that has its last token, from the raw rows in the pages,
 * whichever steps have left them there. So the bits do not depend on how the tokens were fed. An
 * unfinished block is nothing but raw rows: a sequence that goes back, is forked, or continues
 * from a cached prefix finds them like the keys of a window. hparams.window says how many
 * positions these pages are kept for: of a window, and of two small blocks or a large one.
 *
 * What a token sees is listed as compressed keys in the order of their blocks, then positions in
 * theirs. The rows of the list are copied side by side, in the layout of a latent cache, and
 * attention() (kernels.h) takes them as positions 0, 1, 2... */
#ifndef LOCKSTEP_MODEL_COMPRESSED_H
#define LOCKSTEP_MODEL_COMPRESSED_H

#include "model/model.h"

enum compressed_part { COMPRESSED_KEYS, COMPRESSED_INDEX, COMPRESSED_RAW, COMPRESSED_PARTS };

/* What one rank keeps of one layer beside its window's keys. */
void compressed_keeps(struct kv_keep keeps[COMPRESSED_PARTS], const struct hparams *hp,
                      const struct share *sh, uint32_t layer, enum kv_type type);

/* Positions, compressed keys included, that a token of a context of n_ctx sees at most. */
uint32_t compressed_most_seen(const struct hparams *hp, uint32_t n_ctx);

#endif
