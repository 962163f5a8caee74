/* Shaders of a device with memory of its own: what they take over the bus is counted, and a matrix
 * may lie in several pieces of it.
 * labels: slow */
#include "shaders_fixture.h"

/* ---- the bus ----------------------------------------------------------------------------- */

static void expect_bytes(const struct on *on, uint64_t *before, uint64_t bytes,
                         const char *what) {
    const uint64_t now = device_counts(on->d).bus_bytes;
    if (now - *before != bytes)
        fail_msg("%s: %d bytes are counted, and not %d", what, (int)(now - *before),
                 (int)bytes);
    *before = now;
}

/* Of N tokens with heads of 40, all in the host's memory. */
static void bytes_over_a_bus_are_counted(void **state) {
    struct on *on = *state;
    enum { N = 3, HEADS = 5, DIM = 40, LD = 210 };
    float *x = take_floats(on, (size_t)N * LD, 1), *y = take_floats(on, (size_t)N * LD, 2);
    int64_t *sums = take(on, N * sizeof *sums);
    const struct rows rows = {x, LD}, others = {y, LD};
    const struct shaders_heads heads = {rows, DIM + 1, DIM, HEADS, N};
    const uint64_t all = sizeof(float) * N * HEADS * DIM;
    uint64_t before = device_counts(on->d).bus_bytes;
    shaders_center(on->s, others, rows, DIM, N);
    expect_bytes(on, &before, 2 * all / HEADS, "rows less their mean");
    shaders_plain_norms(on->s, rows, DIM, HEADS, DIM, N, 1e-5f);
    expect_bytes(on, &before, 2 * all, "norms without weights");
    shaders_row_squares(on->s, sums, 1, rows, DIM, HEADS, N);
    expect_bytes(on, &before, all + N * sizeof *sums, "squares of a row's heads");
    shaders_row_norm(on->s, rows, sums, 1, y, HEADS * DIM, HEADS * DIM, N, 1e-6f);
    expect_bytes(on, &before, 2 * all + N * sizeof *sums, "norms over a row");
    shaders_gate_heads(on->s, &heads, others, DIM, false);
    expect_bytes(on, &before, 2 * all, "gates of values");
    shaders_gate_heads(on->s, &heads, others, 1, true);
    expect_bytes(on, &before, all + sizeof(float) * N * HEADS, "gates of heads");
    shaders_scale_heads(on->s, &heads, y);
    expect_bytes(on, &before, all + sizeof(float) * N, "heads times numbers");
    finish(on);
}

/* ---- pieces ------------------------------------------------------------------------------ */

/* A matrix in three pieces, which do not follow each other in the device's memory. */
static void check_cut_product(struct on *on, enum qtype type, uint32_t n_tokens) {
    enum { COLS = 512, TILES = 3 * 64, LDY = TILES * TILE_ROWS };
    struct wmat w = wmat_shape(type, TILES * TILE_ROWS - 5, COLS, 0);
    const size_t third = 64 * w.tile_bytes, bytes = TILES * w.tile_bytes; /* of whole pages */
    uint8_t *tiles = mem_huge_alloc(bytes);
    samples_tiles(&w, tiles, type + 2000);
    w.tiles = tiles;
    w.scale = type == QT_NVFP4 ? 0.0037f : 1.0f;
    float *x = take_floats(on, (size_t)n_tokens * COLS, 9);
    samples_tokens(x, n_tokens, COLS, 78);
    struct act a = take_act(on, act_kind_for(type), n_tokens, COLS);
    definition()->act_pack(&a, x, COLS, 0, COLS / ACT_BLOCK);
    const size_t n = (size_t)LDY * n_tokens;
    float *got = take(on, n * 4), *want = take(on, n * 4);
    int64_t *got_fixed = take(on, n * 8), *want_fixed = take(on, n * 8);
    definition()->matmul(&w, &a, want, LDY, 0, TILES);
    definition()->matmul_fixed(&w, &a, want_fixed, LDY, NULL, 64, 0, TILES);
    struct err err = {0};
    for (size_t i = 3; i-- > 0;)
        if (device_map(on->d, tiles + i * third, third, DEVICE_COPY, &err) != ST_OK)
            fail_msg("%s", err.text);
    shaders_matmul(on->s, &w, &a, got, LDY, false);
    shaders_matmul_fixed(on->s, &w, &a, got_fixed, LDY, 64);
    finish(on);
    compare(on, got, want, n, "a matrix in pieces");
    compare_bytes(on, got_fixed, want_fixed, n * 8, "a matrix in pieces");
    for (size_t i = 0; i < 3; i++)
        device_unmap(on->d, tiles + i * third);
    mem_huge_free(tiles, bytes);
    on->used = 0;
}

static void matrices_may_be_in_pieces(void **state) {
    static const enum qtype types[] = {QT_F16, QT_Q4_K};
    static const uint32_t n_tokens[] = {1, 13, 30};
    struct on *on = *state;
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (shaders_prepare(on->s, types[i], &err) != ST_OK)
            fail_msg("%s", err.text);
        for (size_t k = 0; k < ARRAY_LEN(n_tokens); k++)
            check_cut_product(on, types[i], n_tokens[k]);
    }
}

static int open_one(void **state) {
    static struct on on;
    open_variant(&on, "unified");
    *state = &on;
    return 0;
}

static int close_one(void **state) {
    close_variant(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_over_a_bus_are_counted),
        cmocka_unit_test(matrices_may_be_in_pieces),
    };
    return device_is_testable() ? cmocka_run_group_tests(tests, open_one, close_one) : 77;
}
