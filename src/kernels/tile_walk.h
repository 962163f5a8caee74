/* tile_walk.h: the offsets of a tile's parts for a micro-kernel; folds to constants if the type
 * is a constant. */
#ifndef LOCKSTEP_KERNELS_TILE_WALK_H
#define LOCKSTEP_KERNELS_TILE_WALK_H

#include "kernels/simd.h"
#include "kernels/tile_driver.h"
#include "kernels/tiles.h"

INLINE enum tile_scales scales_of(enum qtype type) {
    return tile_formats[type].scales;
}

/* Whether the halves of a block have integer scales of their own. */
INLINE bool has_halves(enum qtype type) {
    return scales_of(type) == TILE_HALVES || scales_of(type) == TILE_HALVES_MIN;
}

INLINE bool has_table(enum qtype type) {
    return tile_formats[type].values != NULL;
}

/* What a code exceeds its weight by, as a power of two; -1: nothing. */
INLINE int bias_log2(enum qtype type) {
    return tile_formats[type].bias != 0 ? __builtin_ctz(tile_formats[type].bias) : -1;
}

#endif
