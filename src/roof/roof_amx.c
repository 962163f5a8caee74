/* roof_amx.c: The roof's loops for AMX: whole int8 tiles. */
#define VECTOR_BYTES 64
#define TILE_CHAINS 6
#define INT8_MACS (16 * 16 * 64 * TILE_CHAINS)
#include "roof/roof_x86.inc.h"

#include "kernels/tile_config.h"

/* Whole tiles: 16 rows of 64 bytes. */
static uint64_t int8_rounds(uint64_t rounds) {
    struct tile_config config = {.palette = 1};
    _Alignas(64) int32_t sums[16 * 16] = {3};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    tile_config_load(&config);
    _tile_loadd(6, sums, 64);
    _tile_loadd(7, sums, 64);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (uint64_t r = 0; r < rounds; r++) {
        _tile_dpbssd(0, 6, 7);
        _tile_dpbssd(1, 6, 7);
        _tile_dpbssd(2, 6, 7);
        _tile_dpbssd(3, 6, 7);
        _tile_dpbssd(4, 6, 7);
        _tile_dpbssd(5, 6, 7);
    }
    _tile_stored(0, sums, 64);
    _tile_release();
    return (uint64_t)sums[0];
}

ROOF_LOOPS(amx, read_1_far_ahead);
