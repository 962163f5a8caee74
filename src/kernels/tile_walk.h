/* tile_walk.h: where a micro-kernel finds things in a tile; folds to constants where the type
 * is one. */
#ifndef LOCKSTEP_KERNELS_TILE_WALK_H
#define LOCKSTEP_KERNELS_TILE_WALK_H

#include "kernels/simd.h"
#include "kernels/tile_driver.h"
#include "kernels/tiles.h"

INLINE enum tile_scales scales_of(enum qtype type) {
    return tile_formats[type].scales;
}

INLINE bool has_table(enum qtype type) {
    return tile_formats[type].values != NULL;
}

/* What a code exceeds its weight by, as a power of two; -1: nothing. */
INLINE int bias_log2(enum qtype type) {
    return tile_formats[type].bias != 0 ? __builtin_ctz(tile_formats[type].bias) : -1;
}

/* The blocks of one superblock that a tile holds. */
struct part {
    uint32_t first, n; /* blocks */
    size_t at;         /* bytes from the tile's beginning */
};

/* The part that holds the block. */
INLINE struct part part_of(const struct mm_call *c, enum qtype type, uint32_t block) {
    const uint32_t whole = QK_K / ACT_BLOCK;
    uint32_t n_blocks = c->n_cols / ACT_BLOCK, phase = c->col_phase / ACT_BLOCK;
    uint32_t n_first = MIN(whole - phase, n_blocks);
    if (block < n_first)
        return (struct part){.n = n_first};
    uint32_t before = (block - n_first) / whole, first = n_first + whole * before;
    return (struct part){.first = first,
                         .n = MIN(whole, n_blocks - first),
                         .at = tile_part_bytes(type, n_first) +
                               before * tile_part_bytes(type, whole)};
}

#endif
