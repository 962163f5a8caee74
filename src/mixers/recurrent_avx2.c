/* recurrent_avx2.c: recurrent.h's kernels for AVX2 with FMA. */
#include "kernels/v16_avx2.h"

#include "mixers/recurrent_lanes.inc.h"

RECURRENT_LANES_KERNELS(avx2);
