/* indexer_neon.c: indexer.h's kernels for arm64. */
#include "kernels/v16_neon.h"

#include "mixers/indexer_lanes.inc.h"

INDEXER_LANES_KERNELS(neon);
