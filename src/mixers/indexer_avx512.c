/* indexer_avx512.c: indexer.h's kernels for AVX-512. */
#include "kernels/v16_avx512.h"

#include "mixers/indexer_lanes.inc.h"

INDEXER_LANES_KERNELS(avx512);
