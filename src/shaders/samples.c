/* samples.c: random numbers with corners, and tiles of them. */
#include "shaders/samples.h"

#include "base/rng.h"
#include "base/util.h"
#include "kernels/tiles.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

/* -3..3 */
static float ordinary(uint64_t seed, uint64_t i) {
    return (float)(rng_uniform(seed, i) * 6 - 3);
}

static float sample(uint64_t seed, uint64_t i) {
    static const float corners[] = {0.0f, 0x1p-40f,      -0x1p-40f, 0x1.8p-40f,
                                    0.5f, -2.5f,         0x1p60f,   -0x1p100f,
                                    1.0f, 0x1.fffffep0f, 0x1p-24f,  0x1.000002p23f};
    uint64_t u = rng_u64(seed ^ 1, i);
    if (u % 16 == 0)
        return corners[(u >> 8) % ARRAY_LEN(corners)];
    if (u % 16 == 1) /* tiny ones */
        return exact_tidy(ldexpf(ordinary(seed, i), -40 + (int)(u >> 8) % 4));
    return ordinary(seed, i);
}

void samples_floats(float *x, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++)
        x[i] = sample(seed, i);
}

void samples_mild(float *x, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) {
        float v = sample(seed, i);
        x[i] = fabsf(v) > 3 ? 1.0f : v;
    }
}

void samples_tokens(float *x, uint32_t n_tokens, uint32_t n_cols, uint64_t seed) {
    size_t n = (size_t)n_tokens * n_cols, last = n_tokens > 1 ? n - n_cols : n;
    samples_mild(x, n, seed);
    samples_blocks(x + last, n - last, seed);
}

enum block_kind { ZEROS, NANS, TINY, TIES, INFINITE, ONE_NAN, HUGE_ONES, KINDS };

static float block_value(enum block_kind kind, size_t k, float x) {
    static const float ties[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -126.5f, 126.5f};
    switch (kind) {
    case ZEROS:
        return 0.0f;
    case NANS:
        return NAN;
    case TINY:
        return exact_tidy(x * 0x1p-40f);
    case TIES:
        return ties[k % ARRAY_LEN(ties)];
    case INFINITE:
        return k == 7 ? -INFINITY : x;
    case ONE_NAN:
        return k == 31 ? NAN : x;
    default:
        return x * 0x1p80f;
    }
}

void samples_blocks(float *x, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) {
        uint64_t u = rng_u64(seed ^ 2, i / ACT_BLOCK);
        x[i] = ordinary(seed, i);
        if (u % 8 == 0)
            x[i] = block_value((enum block_kind)((u >> 8) % KINDS), i % ACT_BLOCK, x[i]);
        else if (u % 8 == 1)
            x[i] = sample(seed, i);
    }
}

void samples_logits(float *x, size_t n, uint32_t kind, uint64_t seed) {
    for (size_t i = 0; i < n; i++) {
        const float v = ordinary(seed, i);
        const float of_kind[SAMPLES_LOGITS] = {v,
                                               1.25f,
                                               (float)(i % 3),
                                               v * 40,
                                               v * 0x1p100f,
                                               i % 5 == 2 ? INFINITY : v,
                                               i == n / 2 ? NAN : v,
                                               NAN};
        x[i] = exact_tidy(of_kind[kind]);
        if (kind == 5 && i % 5 == 3)
            x[i] = -INFINITY;
    }
}

void samples_fixed(int64_t *x, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++)
        x[i] = (int64_t)rng_u64(seed, i) >> rng_u64(seed ^ 3, i) % 64;
}

/* ---- tiles ------------------------------------------------------------------------------- */

/* Between 2^-8 and 2^-4, of either sign; now and then zero, the least or a large one. */
static uint16_t some_half(enum tile_scales scales, uint64_t u) {
    static const uint16_t corners[] = {0, 1, 0x83ff, 0x0400, 0x6400};
    uint16_t h = (uint16_t)((u >> 8 & 0x83ff) | (7 + (u >> 32) % 4) << 10);
    if (u % 32 == 0)
        h = corners[(u >> 8) % ARRAY_LEN(corners)];
    return scales == TILE_D_M_BF16 ? f32_to_bf16(f16_to_f32(h)) : h;
}

static void put_halves(enum tile_scales scales, uint8_t *p, size_t n, uint64_t seed,
                       uint64_t *counter) {
    for (size_t i = 0; i < n; i++) {
        uint16_t h = some_half(scales, rng_u64(seed, (*counter)++));
        memcpy(p + 2 * i, &h, sizeof h);
    }
}

static void put_e8m0(uint8_t *p, uint64_t seed, uint64_t *counter) {
    static const uint8_t corners[] = {0, 88, 89, 200};
    for (size_t i = 0; i < TILE_ROWS; i++) {
        uint64_t u = rng_u64(seed, (*counter)++);
        p[i] = u % 16 == 0 ? corners[(u >> 8) % ARRAY_LEN(corners)] : (uint8_t)(120 + u % 6);
    }
}

/* The scales of a block, over its random bytes; integer ones stay. */
static void put_scales(const struct wmat *w, uint8_t *tile, uint32_t b, uint64_t seed,
                       uint64_t *counter) {
    enum tile_scales scales = tile_formats[w->type].scales;
    uint8_t *block = tile + tile_block_at(w->type, w->col_phase, b);
    if (scales == TILE_E8M0)
        put_e8m0(block, seed, counter);
    else if (tile_has_supers(w->type))
        put_halves(scales, tile + tile_super_at(w->type, w->col_phase, b), 2 * TILE_ROWS, seed,
                   counter);
    else
        put_halves(scales, block, tile_codes_at(w->type) / 2, seed, counter);
}

static void fill_coded(const struct wmat *w, uint8_t *tile, uint64_t seed, uint64_t *counter) {
    for (size_t i = 0; i < w->tile_bytes; i++)
        tile[i] = (uint8_t)rng_u64(seed, (*counter)++);
    for (uint32_t b = 0; b < w->n_cols / ACT_BLOCK; b++)
        put_scales(w, tile, b, seed, counter);
}

static void put_float(const struct wmat *w, uint8_t *tile, uint32_t col, uint32_t r, float f,
                      uint64_t u) {
    size_t size = tile_col_bytes(w->type) / TILE_ROWS;
    uint8_t *p = tile + tile_col_at(w->type, col) + r * size;
    uint16_t h = w->type == QT_F16 ? f32_to_f16(f) : f32_to_bf16(f);
    if (w->type == QT_F32)
        memcpy(p, &f, sizeof f);
    else if (w->type != QT_F8_E4M3)
        memcpy(p, &h, sizeof h);
    else
        *p = (u & 127) == 127 ? 0 : (uint8_t)u;
    if (w->type == QT_F8_E4M3 && col % ACT_BLOCK == 0) {
        f = fabsf(f) > 0x1p40f ? 1.0f : f;
        memcpy(tile + tile_f8_scales_at(col) + r * sizeof f, &f, sizeof f);
    }
}

static void fill_floats(const struct wmat *w, uint8_t *tile, uint64_t seed, uint64_t *counter) {
    memset(tile, 0, w->tile_bytes);
    for (uint32_t col = 0; col < w->n_cols; col++)
        for (uint32_t r = 0; r < TILE_ROWS; r++) {
            uint64_t u = rng_u64(seed, (*counter)++);
            float f = u % 8 == 0 ? sample(seed, u >> 8) : ordinary(seed, u);
            if (fabsf(f) > 3 && r != 3) /* sums of the other rows stay finite */
                f = 1.0f;
            put_float(w, tile, col, r, f, u);
        }
}

void samples_tiles(const struct wmat *w, uint8_t *tiles, uint64_t seed) {
    uint64_t counter = 0;
    for (uint32_t t = 0; t < wmat_n_tiles(w); t++) {
        uint8_t *tile = tiles + t * w->tile_bytes;
        if (act_kind_for(w->type) == ACT_F32)
            fill_floats(w, tile, seed, &counter);
        else
            fill_coded(w, tile, seed, &counter);
    }
}

int64_t samples_fixed_of(float x) {
    const double v = isnan(x) ? 0x1p48 : (double)x * 0x1p24;
    return (int64_t)rint(v < 0x1p48 ? v > -0x1p48 ? v : -0x1p48 : 0x1p48);
}

/* The next n bytes of *at, or of a size that is counted from NULL. */
static void *take_bytes(uint8_t *base, size_t *used, size_t n) {
    uint8_t *p = base != NULL ? base + *used : NULL;
    *used += round_up(n, CACHE_LINE);
    return p;
}

static size_t place_act(struct act *a, uint8_t *at) {
    const size_t n = (size_t)a->n_tokens * a->n_cols, n_blocks = n / ACT_BLOCK;
    size_t used = 0;
    if (a->kind == ACT_F32) {
        a->f = take_bytes(at, &used, n * sizeof *a->f);
        return used;
    }
    a->q = take_bytes(at, &used, n);
    a->d = take_bytes(at, &used, n_blocks * sizeof *a->d);
    a->sums = take_bytes(at, &used, n_blocks * sizeof *a->sums);
    a->start = take_bytes(at, &used, n_blocks * sizeof *a->start);
    a->s = take_bytes(at, &used, n_blocks * sizeof *a->s);
    return used;
}

size_t samples_act_bytes(enum act_kind kind, uint32_t n_tokens, uint32_t n_cols) {
    struct act a = {.kind = kind, .n_tokens = n_tokens, .n_cols = n_cols};
    return place_act(&a, NULL);
}

struct act samples_act_at(uint8_t *at, enum act_kind kind, uint32_t n_tokens, uint32_t n_cols) {
    struct act a = {.kind = kind, .n_tokens = n_tokens, .n_cols = n_cols};
    place_act(&a, at);
    return a;
}
