/* indexer_avx2.c: indexer.h's kernels for AVX2 with FMA. */
#include "kernels/v16_avx2.h"

#include "mixers/indexer_lanes.inc.h"

INDEXER_LANES_KERNELS(avx2);
