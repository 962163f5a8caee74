#include "amx_on_avx512.h"

#include "base/util.h"

#include <immintrin.h>

/* The tiles of a thread, as Intel's manual defines them: rows of row_bytes; what lies beyond is
 * zero. */
static _Thread_local struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} shapes;
static _Thread_local uint8_t tiles[8][16][64];

static void emulated_zero(int tile) {
    memset(tiles[tile], 0, sizeof tiles[tile]);
}

static void emulated_load(int tile, const void *from, size_t stride) {
    emulated_zero(tile);
    for (size_t r = 0; r < shapes.rows[tile]; r++)
        memcpy(tiles[tile][r], (const uint8_t *)from + r * stride, shapes.row_bytes[tile]);
}

static void emulated_store(int tile, void *to, size_t stride) {
    for (size_t r = 0; r < shapes.rows[tile]; r++)
        memcpy((uint8_t *)to + r * stride, tiles[tile][r], shapes.row_bytes[tile]);
}

/* sum[row][lane] += four products of signed bytes, for each four bytes of a row of a. Shapes
 * that do not fit each other would be a fault. */
static void emulated_dpbssd(int sum, int a, int b) {
    BUG_ON(shapes.rows[sum] != shapes.rows[a] || shapes.row_bytes[sum] != shapes.row_bytes[b] ||
           shapes.row_bytes[a] != 4 * shapes.rows[b]);
    for (size_t r = 0; r < shapes.rows[sum]; r++)
        for (size_t k = 0; k < shapes.row_bytes[a]; k++)
            for (size_t lane = 0; lane < shapes.row_bytes[sum] / 4u; lane++) {
                int32_t s;
                memcpy(&s, &tiles[sum][r][4 * lane], 4);
                s += (int8_t)tiles[a][r][k] * (int8_t)tiles[b][k / 4][4 * lane + k % 4];
                memcpy(&tiles[sum][r][4 * lane], &s, 4);
            }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#define _tile_loadconfig(config) memcpy(&shapes, config, sizeof shapes)
#define _tile_release() memset(&shapes, 0, sizeof shapes)
#define _tile_zero emulated_zero
#define _tile_loadd emulated_load
#define _tile_stored emulated_store
#define _tile_dpbssd emulated_dpbssd
#define matmul_amx tiles_emulated_matmul
#define matmul_fixed_amx tiles_emulated_matmul_fixed
#include "kernels/matmul_amx.c"

const struct kernels *amx_on_avx512(void) {
    static struct kernels k;
    const struct kernels *avx512 = kernels_get(ISA_AVX512);
    if (avx512 == NULL)
        return NULL;
    k = *avx512;
    k.name = "amx (emulated)";
    k.matmul = tiles_emulated_matmul;
    k.matmul_fixed = tiles_emulated_matmul_fixed;
    return &k;
}
