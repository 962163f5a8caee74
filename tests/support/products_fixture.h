/* products_fixture.h: products on a device beside the scalar definition, of one matrix and of
 * experts that are chosen. */
#ifndef LOCKSTEP_TESTS_PRODUCTS_FIXTURE_H
#define LOCKSTEP_TESTS_PRODUCTS_FIXTURE_H

#include "shaders_fixture.h"

struct product_case {
    uint32_t n_rows, n_cols, col_phase, seg_cols, n_tokens;
};

/* Once more, added to the rows in reverse. */
static inline void check_added(struct on *on, const struct wmat *w, const struct act *a,
                               const struct product_case *c, int64_t *got, int64_t *want,
                               size_t ldy, const char *what) {
    uint32_t *rows = take(on, c->n_tokens * sizeof *rows);
    for (uint32_t t = 0; t < c->n_tokens; t++)
        rows[t] = c->n_tokens - 1 - t;
    definition()->matmul_fixed(w, a, want, ldy, rows, c->seg_cols, 0, wmat_n_tiles(w));
    shaders_matmul_fixed_add(on->s, w, a, got, ldy, rows, c->seg_cols);
    finish(on);
    compare_bytes(on, got, want, ldy * c->n_tokens * 8, what);
}

static inline void check_product(struct on *on, enum qtype type, const struct product_case *c) {
    struct wmat w = wmat_shape(type, c->n_rows, c->n_cols, c->col_phase);
    uint8_t *tiles = take(on, wmat_bytes(&w));
    samples_tiles(&w, tiles, type + 1000);
    w.tiles = tiles;
    w.scale = type == QT_NVFP4 ? 0.0037f : 1.0f;
    size_t ldy = round_up(c->n_rows, TILE_ROWS) + 5, n = ldy * c->n_tokens;
    float *x = take(on, sizeof(float) * c->n_tokens * c->n_cols);
    samples_tokens(x, c->n_tokens, c->n_cols, c->n_tokens + 77);
    struct act a = take_act(on, act_kind_for(type), c->n_tokens, c->n_cols);
    definition()->act_pack(&a, x, c->n_cols, 0, (uint32_t)div_up(c->n_cols, ACT_BLOCK));
    float *got = take(on, n * sizeof *got), *want = take(on, n * sizeof *want);
    int64_t *got_fixed = take(on, n * 8), *want_fixed = take(on, n * 8);
    memset(got, CANARY, n * 4), memset(want, CANARY, n * 4); /* between the rows it stays */
    memset(got_fixed, CANARY, n * 8), memset(want_fixed, CANARY, n * 8);
    definition()->matmul(&w, &a, want, ldy, 0, wmat_n_tiles(&w));
    definition()->matmul_fixed(&w, &a, want_fixed, ldy, NULL, c->seg_cols, 0, wmat_n_tiles(&w));
    shaders_matmul(on->s, &w, &a, got, ldy, false);
    shaders_matmul_fixed(on->s, &w, &a, got_fixed, ldy, c->seg_cols);
    finish(on);
    char what[128];
    snprintf(what, sizeof what, "%s %u x %u from column %u, %u tokens, segments of %u",
             qtype_info(type)->name, c->n_rows, c->n_cols, c->col_phase, c->n_tokens,
             c->seg_cols);
    compare(on, got, want, n, what);
    compare_bytes(on, got_fixed, want_fixed, n * 8, what);
    check_added(on, &w, &a, c, got_fixed, want_fixed, ldy, what);
    on->used = 0;
}

/* Its cases of so many tokens or more. */
static inline void check_type(struct on *on, enum qtype type, uint32_t least_tokens) {
    /* Of coded types all columns are multiples of a block. */
    static const struct product_case coded[] = {
        {1, 32, 0, 32, 1},       {16, 544, 96, 32, 1},   {17, 288, 224, 96, 2},
        {40, 1056, 0, 1056, 11}, {15, 512, 32, 256, 12}, {33, 640, 128, 64, 13},
        {16, 576, 160, 64, 25},  {79, 352, 64, 32, 24},  {65, 96, 32, 96, 70},
        {7, 768, 0, 256, 64},
    };
    static const struct product_case floats[] = {
        {1, 1, 0, 1, 1},        {17, 4500, 0, 4500, 1}, {16, 600, 0, 40, 2},
        {40, 257, 0, 257, 11},  {15, 255, 0, 5, 12},    {33, 1024, 0, 512, 13},
        {16, 4864, 0, 256, 25}, {79, 300, 0, 60, 24},   {65, 33, 0, 11, 70},
        {7, 600, 0, 300, 64},
    };
    struct err err = {0};
    bool is_float = act_kind_for(type) == ACT_F32;
    if (shaders_prepare(on->s, type, &err) != ST_OK)
        fail_msg("without %s: %s", on->without, err.text);
    for (size_t i = 0; i < ARRAY_LEN(coded); i++)
        if (coded[i].n_tokens >= least_tokens)
            check_product(on, type, is_float ? &floats[i] : &coded[i]);
}

/* As each choice by itself, and what is not held as nothing: inputs of several groups of tokens.
 * The first of the experts is another rank's if choices are grouped. */
static inline void check_chosen(struct on *on, enum qtype type, uint32_t n_tokens,
                                bool grouped) {
    enum { EXPERTS = 5, USED = 3, COLS = 512, N_ROWS = 40, LD = 48, SEGMENT = 64 };
    const uint32_t n = n_tokens * USED;
    struct wmat experts[EXPERTS];
    struct shaders_matrix *matrices = take(on, sizeof *matrices * EXPERTS);
    struct choice *choices = take(on, n * sizeof *choices);
    float *x = take(on, (size_t)n * COLS * 4), *got = take(on, (size_t)n * LD * 4);
    int64_t *sums = take(on, (size_t)n_tokens * LD * 8);
    float *want = take(on, (size_t)n * LD * 4);
    int64_t *want_sums = take(on, (size_t)n_tokens * LD * 8);
    const struct act a = take_act(on, act_kind_for(type), n_tokens, COLS),
                     b = take_act(on, act_kind_for(type), n, COLS),
                     one = take_act(on, act_kind_for(type), 1, COLS);
    samples_mild(x, (size_t)n * COLS, n);
    definition()->act_pack(&a, x, COLS, 0, COLS / ACT_BLOCK);
    definition()->act_pack(&b, x, COLS, 0, COLS / ACT_BLOCK);
    memset(got, 0, (size_t)n * LD * 4), memset(want, 0, (size_t)n * LD * 4);
    memset(sums, 0, (size_t)n_tokens * LD * 8), memset(want_sums, 0, (size_t)n_tokens * LD * 8);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        experts[e] = wmat_shape(type, e == 3 ? 0 : N_ROWS, COLS, 0);
        uint8_t *tiles = take(on, wmat_bytes(&experts[e]));
        samples_tiles(&experts[e], tiles, e);
        experts[e].tiles = tiles;
        experts[e].scale = type == QT_NVFP4 ? 0.01f * (float)(e + 1) : 1.0f;
        matrices[e] = shaders_matrix(on->s, &experts[e]);
    }
    for (uint32_t i = 0, token; i < n; i++) {
        choices[i] = (struct choice){(7 * i + i / USED) % EXPERTS, 1};
        const struct wmat *w = &experts[choices[i].expert];
        if (grouped && choices[i].expert == 0)
            continue;
        token = i / USED;
        definition()->act_pack(&one, x + (size_t)token * COLS, COLS, 0, COLS / ACT_BLOCK);
        definition()->matmul(w, &one, want + (size_t)i * LD, LD, 0, wmat_n_tiles(w));
        definition()->act_pack(&one, x + (size_t)i * COLS, COLS, 0, COLS / ACT_BLOCK);
        definition()->matmul_fixed(w, &one, want_sums, LD, &token, SEGMENT, 0, wmat_n_tiles(w));
    }
    struct shaders_chosen c = {.choices = choices,
                               .n_tokens = n_tokens,
                               .n_used = USED,
                               .begin = grouped,
                               .end = EXPERTS,
                               .n_experts = EXPERTS};
    if (grouped) {
        c.groups = take(on, shaders_group_words(n, EXPERTS) * sizeof *c.groups);
        shaders_group(on->s, &c);
    }
    shaders_chosen_matmul(on->s, &c, matrices, experts, &a, (struct rows){got, LD}, false);
    shaders_chosen_matmul_fixed(on->s, &c, matrices, experts, &b, sums, LD, SEGMENT, false);
    finish(on);
    compare(on, got, want, (size_t)n * LD, qtype_info(type)->name);
    compare_bytes(on, sums, want_sums, (size_t)n_tokens * LD * 8, qtype_info(type)->name);
    on->used = 0;
}

#endif
