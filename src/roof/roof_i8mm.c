/* roof_i8mm.c: Peak and read loops of arm64 with int8 matrix instructions. */
#include "roof/roof_neon.inc.h"

INLINE int32x4_t multiply_add_int8(int32x4_t acc, int8x16_t w, int8x16_t x) {
    return vmmlaq_s32(acc, w, x);
}

ROOF_LOOPS(i8mm, 32);
