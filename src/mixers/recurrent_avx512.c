/* recurrent_avx512.c: recurrent.h's kernels for AVX-512. */
#include "kernels/v16_avx512.h"

#include "mixers/recurrent_lanes.inc.h"

RECURRENT_LANES_KERNELS(avx512);
