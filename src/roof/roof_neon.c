/* roof_neon.c: Peak and read loops of NEON. */
#include "roof/roof_neon.inc.h"

INLINE int32x4_t multiply_add_int8(int32x4_t acc, int8x16_t w, int8x16_t x) {
    return vdotq_s32(acc, w, x);
}

ROOF_LOOPS(neon, 16);
