/* recurrent_neon.c: recurrent.h's kernels for arm64. */
#include "kernels/v16_neon.h"

#include "mixers/recurrent_lanes.inc.h"

RECURRENT_LANES_KERNELS(neon);
