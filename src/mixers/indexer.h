/* indexer.h: the kernels of attention to selected keys: scores of positions for a query, the
 * selection, and attention to the selected positions. Plain pointers in and out, like those of
 * kernels.h.
 *
 * indexer_scalar.c is the definition; the others give the same bits. The selection uses
 * comparisons alone and is the same code everywhere (indexer.c). */
#ifndef LOCKSTEP_MIXERS_INDEXER_H
#define LOCKSTEP_MIXERS_INDEXER_H

#include "kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>

/* scores[pos] = sum over heads of weights[h] * max(q_h . key, 0), for positions [begin, end):
 *   dot = fma(q[d], key[d], dot) from +0, d ascending; r = dot >= 2^-40 ? dot : 0 (of a NaN 0);
 *   s = fma(weights[h], r, s) from +0, h ascending.
 * weights NULL: the dot of the only head, as it is.
 *
 * shape   of the cache of index keys: one kv head, v_dim 0, not latent; K is laid out as in
 *         kernels.h
 * begin   a multiple of 16; scores up to the next multiple of 16 from end are written */
struct index_scores_args {
    const struct kv_shape *shape;
    const uint8_t *const *pages; /* [div_up(end, KV_PAGE)] */
    const float *q;              /* [n_heads, q_stride] */
    size_t q_stride;
    const float *weights; /* [n_heads] */
    uint32_t n_heads, begin, end;
    float *scores;  /* of position 0 */
    float *scratch; /* [16 * k_dim] */
};

/* As kernels.h's attention(), but each query attends to the selected positions only: the same
 * sums in the same order, as if the others were not there. If all positions of a query are
 * selected, the bits are those of attention(). A span without a selected position is skipped. */
struct chosen_args {
    const struct kv_shape *shape;
    uint32_t kv_head;
    const uint8_t *const *pages;
    const uint32_t *positions; /* [n > 0] ascending */
    uint32_t n;
    uint32_t n_queries;               /* at most ATTN_TOGETHER, which all see these positions */
    const struct attn_query *queries; /* begin and end are not read */
    float scale;
    float *scratch; /* chosen_scratch_floats(shape) floats, 64-byte aligned */
};
size_t chosen_scratch_floats(const struct kv_shape *s);

struct indexer_kernels {
    void (*scores)(const struct index_scores_args *a);
    void (*attend)(const struct chosen_args *a);
};

/* Those for the same instruction set. */
const struct indexer_kernels *indexer_kernels_of(const struct kernels *k);

/* The k largest of n scores (all, if there are fewer), as ascending indices in chosen [min(k, n)];
 * returns how many. Of equal scores the lower index wins; -0 equals +0, a NaN is the smallest. */
uint32_t index_select(const float *scores, uint32_t n, uint32_t k, uint32_t *chosen);

#endif
