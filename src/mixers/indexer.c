/* indexer.c: selects the largest scores, and says which of indexer.h's kernels belong to which
 * table.
 *
 * The selection is a radix select. Three passes over the scores find the smallest selected one,
 * and a fourth pass writes the indices in order. */
#include "mixers/indexer.h"

#include "base/util.h"
#include "mixers/isa_family.h"

#include <math.h>
#include <string.h>

/* Numbers in the order of the scores. */
static inline uint32_t rank_of(float score) {
    uint32_t bits;
    if (isnan(score))
        return 0;
    score += 0.0f; /* -0 becomes +0 */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

#define RADIX_BITS 11

uint32_t index_select(const float *scores, uint32_t n, uint32_t k, uint32_t *chosen) {
    static const unsigned shifts[] = {21, 10, 0};
    uint32_t counts[1 << RADIX_BITS], least = 0, known = 0, n_chosen = 0;
    uint32_t left = MIN(k, n); /* to be chosen among those that begin as `least` does */
    if (left == 0)
        return 0;
    for (size_t pass = 0; pass < ARRAY_LEN(shifts); pass++) {
        const unsigned shift = shifts[pass];
        const uint32_t mask = shift == 0 ? (1u << 10) - 1 : (1u << RADIX_BITS) - 1;
        uint32_t digit = mask;
        memset(counts, 0, sizeof counts);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t rank = rank_of(scores[i]);
            if ((rank & known) == least)
                counts[rank >> shift & mask]++;
        }
        for (; counts[digit] < left; digit--)
            left -= counts[digit];
        least |= digit << shift;
        known |= mask << shift;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rank = rank_of(scores[i]);
        if (rank < least || (rank == least && left == 0))
            continue;
        left -= rank == least;
        chosen[n_chosen++] = i;
    }
    return n_chosen;
}

/* Of each query its logits of a span, its result of the span and of those before; a tile of keys,
 * sixteen rows of values. */
size_t chosen_scratch_floats(const struct kv_shape *s) {
    size_t k_pad = round_up(s->k_dim, TILE_ROWS), v_pad = round_up(s->v_dim, TILE_ROWS);
    return (size_t)ATTN_TOGETHER * (ATTN_SPAN + 2 * v_pad) + 16 * (k_pad + v_pad) + 8 * k_pad;
}

extern const struct indexer_kernels indexer_scalar, indexer_avx2, indexer_avx512, indexer_neon;

const struct indexer_kernels *indexer_kernels_of(const struct kernels *k) {
    return ISA_FAMILY(k, indexer);
}
