/* tile_config.h: the shapes of AMX's tile registers, for ldtilecfg. */
#ifndef LOCKSTEP_KERNELS_TILE_CONFIG_H
#define LOCKSTEP_KERNELS_TILE_CONFIG_H

#include "kernels/simd.h"

#include <immintrin.h>
#include <stdint.h>

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "as Intel's manual has it");

/* gcc 12 believes that ldtilecfg reads eight bytes, and would leave out what is written to the
 * others. */
INLINE void tile_config_load(const struct tile_config *config) {
    __asm__ volatile("" : : "r"(config) : "memory");
    _tile_loadconfig(config);
}

#endif
