/* selftest.c: every kernel of a device against the scalar definition, on numbers that include
 * the corners. It is the answer to drivers that nobody has tried: one that rounds, contracts
 * or compares otherwise is found here, and its device is not used. */
#include "shaders/selftest.h"

#include "base/mem.h"
#include "shaders/definition.h"

#include <stdio.h>

/* ---- products ---------------------------------------------------------------------------- */

static struct act take_act(struct test *t, enum act_kind kind, uint32_t n_tokens,
                           uint32_t n_cols) {
    uint8_t *at = take(t, samples_act_bytes(kind, n_tokens, n_cols));
    return samples_act_at(at, kind, n_tokens, n_cols);
}

static void expect_act(struct test *t, const struct act *got, const struct act *want) {
    size_t n = (size_t)got->n_tokens * got->n_cols, n_blocks = n / ACT_BLOCK;
    if (got->kind == ACT_F32) {
        expect_floats(t, got->f, want->f, n);
        return;
    }
    expect_bytes(t, got->q, want->q, n);
    expect_floats(t, got->d, want->d, n_blocks);
    expect_bytes(t, got->sums, want->sums, n_blocks * sizeof *got->sums);
    expect_bytes(t, got->start, want->start, n_blocks * sizeof *got->start);
    expect_floats(t, got->s, want->s, n_blocks);
}

static enum status test_act_pack(struct test *t, struct err *err) {
    enum { TOKENS = 13, COLS = 320 };
    test_begin(t, shader_name(SHADER_ACT_PACK));
    float *x = take(t, TOKENS * COLS * sizeof *x);
    samples_blocks(x, TOKENS * COLS, 1);
    for (int kind = 0; kind < 2; kind++) {
        struct act got = take_act(t, (enum act_kind)kind, TOKENS, COLS);
        struct act want = take_act(t, (enum act_kind)kind, TOKENS, COLS);
        t->definition->act_pack(&want, x, COLS, 0, COLS / ACT_BLOCK);
        shaders_act_pack(t->s, &got, x, COLS);
        expect_act(t, &got, &want);
    }
    return test_end(t, err);
}

/* Of each token for two choices of unlike weights. */
static enum status test_act_weigh(struct test *t, struct err *err) {
    enum { TOKENS = 7, N = 2 * TOKENS, COLS = 128, N_BLOCKS = COLS / ACT_BLOCK };
    test_begin(t, shader_name(SHADER_ACT_WEIGH));
    float *x = take(t, N * COLS * sizeof *x);
    struct choice *choices = take(t, N * sizeof *choices);
    const struct shaders_chosen c = {.choices = choices, .n_tokens = TOKENS, .n_used = 2};
    for (int kind = 0; kind < 2; kind++) {
        struct act a = take_act(t, (enum act_kind)kind, TOKENS, COLS);
        struct act got = take_act(t, (enum act_kind)kind, N, COLS);
        struct act want = take_act(t, (enum act_kind)kind, N, COLS);
        samples_blocks(x, TOKENS * COLS, 7);
        t->definition->act_pack(&a, x, COLS, 0, N_BLOCKS);
        for (uint32_t i = N; i-- > 0;) {
            choices[i] = (struct choice){0, i % 3 == 0 ? 0x1p-30f : 0.37f * (float)i};
            memmove(x + i * COLS, x + i / 2 * COLS, COLS * sizeof *x);
        }
        t->definition->act_pack(&want, x, COLS, 0, N_BLOCKS);
        for (uint32_t i = 0; i < N; i++)
            act_weigh(&want, i, choices[i].weight);
        shaders_chosen_weigh(t->s, &c, &got, &a);
        expect_act(t, &got, &want);
    }
    return test_end(t, err);
}

enum { PRODUCT_ROWS = 19, PRODUCT_COLS = 17 * ACT_BLOCK, PRODUCT_LD = 32 };

/* Of n tokens: as floats, and in segments of a block. */
static void test_products_of(struct test *t, const struct wmat *w, uint32_t n_tokens) {
    enum act_kind kind = act_kind_for(w->type);
    size_t n = (size_t)n_tokens * PRODUCT_COLS, n_y = (size_t)n_tokens * PRODUCT_LD;
    float *x = take(t, n * sizeof *x);
    samples_tokens(x, n_tokens, PRODUCT_COLS, n_tokens);
    struct act a = take_act(t, kind, n_tokens, PRODUCT_COLS);
    t->definition->act_pack(&a, x, PRODUCT_COLS, 0, PRODUCT_COLS / ACT_BLOCK);
    float *got = take(t, n_y * sizeof *got), *want = take(t, n_y * sizeof *want);
    int64_t *got_fixed = take(t, n_y * sizeof *got_fixed);
    int64_t *want_fixed = take(t, n_y * sizeof *want_fixed);
    t->definition->matmul(w, &a, want, PRODUCT_LD, 0, 2);
    t->definition->matmul_fixed(w, &a, want_fixed, PRODUCT_LD, NULL, ACT_BLOCK, 0, 2);
    shaders_matmul(t->s, w, &a, got, PRODUCT_LD, false);
    shaders_matmul_fixed(t->s, w, &a, got_fixed, PRODUCT_LD, ACT_BLOCK);
    expect_floats(t, got, want, n_y);
    expect_bytes(t, got_fixed, want_fixed, n_y * sizeof *got_fixed);
}

enum { EXPERTS = 3, CHOOSERS = 2, USED = 2, CHOICES = CHOOSERS * USED };
static const struct choice some_choices[CHOICES] = {{2, 1}, {1, 0.3f}, {0, -2}, {2, 0.7f}};

static struct shaders_chosen take_chosen(struct test *t, const struct choice *choices,
                                         uint32_t n_tokens) {
    return (struct shaders_chosen){.choices =
                                       take_copy(t, choices, n_tokens * USED * sizeof *choices),
                                   .n_tokens = n_tokens,
                                   .n_used = USED,
                                   .end = EXPERTS,
                                   .n_experts = EXPERTS};
}

/* The matrix's tiles as those of experts, of which one is not held. */
static struct shaders_matrix *take_matrices(struct test *t, const struct wmat *w,
                                            struct wmat *experts) {
    struct shaders_matrix *list = take(t, EXPERTS * sizeof *list);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        experts[e] = *w;
        experts[e].n_rows = e == 1 ? 0 : TILE_ROWS;
        experts[e].tiles += e == 2 ? w->tile_bytes : 0;
        experts[e].scale *= (float)(e + 1);
        list[e] = shaders_matrix(t->s, &experts[e]);
    }
    return list;
}

/* By choices: as floats a row of y for each; with an input for each, the sums of a token's, and
 * these once more added to them. */
static void test_chosen_products(struct test *t, const struct wmat *w, struct shaders_chosen c,
                                 bool grouped) {
    enum { LD = TILE_ROWS, N_BLOCKS = PRODUCT_COLS / ACT_BLOCK };
    const enum act_kind kind = act_kind_for(w->type);
    const uint32_t n_choices = c.n_tokens * USED;
    const size_t n = (size_t)n_choices * LD, n_x = (size_t)n_choices * PRODUCT_COLS;
    struct wmat experts[EXPERTS];
    const struct shaders_matrix *matrices = take_matrices(t, w, experts);
    float *x = take(t, n_x * sizeof *x);
    float *got = take(t, n * sizeof *got), *want = take(t, n * sizeof *want);
    int64_t *sums = take(t, n * sizeof *sums), *want_sums = take(t, n * sizeof *want_sums);
    const struct act a = take_act(t, kind, c.n_tokens, PRODUCT_COLS),
                     b = take_act(t, kind, n_choices, PRODUCT_COLS),
                     one = take_act(t, kind, 1, PRODUCT_COLS);
    samples_mild(x, n_x, 5);
    t->definition->act_pack(&a, x, PRODUCT_COLS, 0, N_BLOCKS);
    t->definition->act_pack(&b, x, PRODUCT_COLS, 0, N_BLOCKS);
    memset(got, 0, n * sizeof *got), memset(want, 0, n * sizeof *want);
    memset(sums, 0, n * sizeof *sums), memset(want_sums, 0, n * sizeof *want_sums);
    for (uint32_t i = 0, token; i < n_choices; i++) {
        const struct wmat *m = &experts[c.choices[i].expert];
        token = i / USED;
        t->definition->act_pack(&one, x + (size_t)token * PRODUCT_COLS, PRODUCT_COLS, 0,
                                N_BLOCKS);
        t->definition->matmul(m, &one, want + (size_t)i * LD, LD, 0, wmat_n_tiles(m));
        t->definition->act_pack(&one, x + (size_t)i * PRODUCT_COLS, PRODUCT_COLS, 0, N_BLOCKS);
        for (int twice = 0; twice < 2; twice++)
            t->definition->matmul_fixed(m, &one, want_sums, LD, &token, ACT_BLOCK, 0,
                                        wmat_n_tiles(m));
    }
    if (grouped) {
        c.groups = take(t, shaders_group_words(n_choices, EXPERTS) * sizeof *c.groups);
        shaders_group(t->s, &c);
    }
    shaders_chosen_matmul(t->s, &c, matrices, experts, &a, (struct rows){got, LD}, false);
    for (int adds = 0; adds < 2; adds++)
        shaders_chosen_matmul_fixed(t->s, &c, matrices, experts, &b, sums, LD, ACT_BLOCK, adds);
    expect_floats(t, got, want, n);
    expect_bytes(t, sums, want_sums, (size_t)c.n_tokens * LD * sizeof *sums);
}

/* Grouped: a square of one expert's choices, and some of another's. */
static void test_grouped_products(struct test *t, const struct wmat *w) {
    enum { TOKENS = SHADERS_MANY + 2 };
    struct choice choices[TOKENS * USED];
    for (uint32_t i = 0; i < TOKENS * USED; i++)
        choices[i] = (struct choice){i % 2 == 0 ? 2 : i / 2 % EXPERTS, 1};
    test_chosen_products(t, w, take_chosen(t, choices, TOKENS), true);
}

static enum status test_products(struct test *t, enum qtype type, struct err *err) {
    char name[64];
    snprintf(name, sizeof name, "product with %s", qtype_info(type)->name);
    test_begin(t, name);
    bool floats = act_kind_for(type) == ACT_F32;
    struct wmat w = wmat_shape(type, PRODUCT_ROWS, PRODUCT_COLS, floats ? 0 : 3 * ACT_BLOCK);
    uint8_t *tiles = take(t, wmat_bytes(&w));
    samples_tiles(&w, tiles, type);
    w.tiles = tiles;
    w.scale = type == QT_NVFP4 ? 0.0037f : 1.0f;
    test_products_of(t, &w, 1);
    test_products_of(t, &w, 6);
    test_products_of(t, &w, SHADERS_SIDE + 3);
    test_chosen_products(t, &w, take_chosen(t, some_choices, CHOOSERS), false);
    test_grouped_products(t, &w);
    return test_end(t, err);
}

/* ---- vectors ----------------------------------------------------------------------------- */

enum { WIDTH = 600 };

/* Rows of one length: many roots and quotients, and sums that are rounded once in a chain. */
static void test_norms_of(struct test *t, uint32_t n, uint32_t n_rows, bool weighted,
                          float eps) {
    size_t all = (size_t)n * n_rows;
    float *x = take(t, all * sizeof *x), *w = weighted ? take_floats(t, n, 10) : NULL;
    float *got = take(t, all * sizeof *got), *want = take(t, all * sizeof *want);
    samples_mild(x, all, n);
    samples_floats(x, n, n); /* one with huge values */
    for (uint32_t i = 0; i < n_rows; i++)
        t->definition->rmsnorm(want + (size_t)i * n, x + (size_t)i * n, w, n, eps);
    shaders_rmsnorm(t->s, (struct rows){got, n}, (struct rows){x, n}, w, n, n_rows, eps);
    expect_floats(t, got, want, all);
}

static enum status test_rmsnorm(struct test *t, struct err *err) {
    test_begin(t, shader_name(SHADER_RMSNORM));
    test_norms_of(t, 1, 64, false, 0);
    test_norms_of(t, 24, 64, true, 1e-5f);
    test_norms_of(t, 1030, 16, true, 1e-6f);
    return test_end(t, err);
}

static enum status test_lanes16(struct test *t, struct err *err) {
    enum { HEAD = 50, HEADS = WIDTH / HEAD };
    test_begin(t, shader_name(SHADER_LANES16));
    float *x = take(t, WIDTH * sizeof *x), *got = take(t, WIDTH * sizeof *got);
    float *want = take(t, WIDTH * sizeof *want);
    samples_mild(x, WIDTH, 20);
    samples_floats(x, HEAD, 20); /* one with huge values */
    float *heads = take_copy(t, x, WIDTH * sizeof *x), *want_heads;
    want_heads = take_copy(t, x, WIDTH * sizeof *x);
    center(want, x, WIDTH);
    for (uint32_t h = 0; h < HEADS; h++)
        plain_norm(want_heads + (size_t)h * HEAD, HEAD, 1e-5f);
    shaders_center(t->s, (struct rows){got, WIDTH}, (struct rows){x, WIDTH}, WIDTH, 1);
    shaders_plain_norms(t->s, (struct rows){heads, WIDTH}, HEAD, HEADS, HEAD, 1, 1e-5f);
    expect_floats(t, got, want, WIDTH);
    expect_floats(t, heads, want_heads, WIDTH);
    return test_end(t, err);
}

/* 20 heads, so that some of the lanes take several. */
static enum status test_row_norm(struct test *t, struct err *err) {
    enum { ROWS = 10, HEADS = 20, HEAD = 17, ROW = HEADS * HEAD, ALL = ROWS * ROW };
    test_begin(t, shader_name(SHADER_ROW_NORM));
    float *x = take(t, ALL * sizeof *x), *w = take_floats(t, ROW, 21), sum;
    int64_t *got = take(t, ROWS * sizeof *got), *want = take(t, ROWS * sizeof *want);
    samples_mild(x, ALL, 22);
    float *want_x = take_copy(t, x, ALL * sizeof *x);
    for (size_t r = 0; r < ROWS; r++) {
        want[r] = 0;
        for (size_t h = 0; h < HEADS; h++)
            want[r] += samples_fixed_of(lanes16_squares(x + r * ROW + h * HEAD, HEAD));
        t->definition->fixed_get(&sum, &want[r], 1);
        row_norm(want_x + r * ROW, w, ROW, sum, 3 * ROW, 1e-6f);
    }
    const struct rows rows = {x, ROW};
    shaders_row_squares(t->s, got, 1, rows, HEAD, HEADS, ROWS);
    shaders_row_norm(t->s, rows, got, 1, w, ROW, 3 * ROW, ROWS, 1e-6f);
    expect_bytes(t, got, want, ROWS * sizeof *got);
    expect_floats(t, x, want_x, ALL);
    return test_end(t, err);
}

static enum status test_fixed(struct test *t, struct err *err) {
    test_begin(t, "fixed point");
    int64_t *acc = take(t, WIDTH * sizeof *acc), *want_acc;
    float *x = take_floats(t, WIDTH, 31), *get = take(t, WIDTH * sizeof *get);
    float *bias = take_floats(t, WIDTH, 32);
    bias[0] = NAN, bias[1] = INFINITY, bias[2] = -INFINITY, bias[3] = 0x3p-25f;
    samples_fixed(acc, WIDTH, 30);
    float *want = take_copy(t, x, WIDTH * sizeof *x), *want_get = take(t, WIDTH * sizeof *x);
    t->definition->fixed_add(want, acc, WIDTH);
    t->definition->fixed_get(want_get, acc, WIDTH);
    shaders_fixed_add(t->s, (struct rows){x, WIDTH}, acc, WIDTH, WIDTH, 1);
    shaders_fixed_get(t->s, (struct rows){get, WIDTH}, acc, WIDTH, WIDTH, 1);
    expect_floats(t, x, want, WIDTH);
    expect_floats(t, get, want_get, WIDTH);
    want_acc = take_copy(t, acc, WIDTH * sizeof *acc);
    /* A product of one column with 1 is rounded to fixed point in the same way. */
    float *ones = take(t, WIDTH * TILE_ROWS * sizeof *ones), one = 1.0f;
    struct wmat w = wmat_shape(QT_F32, TILE_ROWS, 1, 0);
    for (size_t i = 0; i < WIDTH; i++) {
        int64_t sums[TILE_ROWS];
        for (size_t r = 0; r < TILE_ROWS; r++)
            ones[r] = bias[i] * 0.3f;
        w.tiles = (const uint8_t *)ones;
        const struct act a = {.kind = ACT_F32, .n_tokens = 1, .n_cols = 1, .f = &one};
        t->definition->matmul_fixed(&w, &a, sums, TILE_ROWS, NULL, 1, 0, 1);
        want_acc[i] = (int64_t)((uint64_t)want_acc[i] + (uint64_t)sums[0]);
    }
    shaders_fixed_bias(t->s, acc, WIDTH, bias, 0.3f, WIDTH, 1);
    expect_bytes(t, acc, want_acc, WIDTH * sizeof *acc);
    return test_end(t, err);
}

static enum status test_vectors(struct test *t, struct err *err) {
    test_begin(t, "sum of vectors");
    float *a = take_floats(t, WIDTH, 40), *b = take_floats(t, WIDTH, 41);
    a[0] = NAN, a[1] = INFINITY, b[2] = -INFINITY, b[3] = -a[3];
    float *sum = take_copy(t, a, WIDTH * sizeof *a),
          *scaled = take_copy(t, a, WIDTH * sizeof *a);
    float *want_sum = take_copy(t, a, WIDTH * sizeof *a);
    float *want_scaled = take(t, WIDTH * sizeof *a), *copy = take(t, WIDTH * sizeof *a);
    float *product = take_copy(t, a, WIDTH * sizeof *a),
          *want_product = take(t, WIDTH * sizeof *a);
    times(want_product, a, b, WIDTH);
    t->definition->add(want_sum, b, WIDTH);
    for (size_t i = 0; i < WIDTH; i++)
        want_scaled[i] = exact_tidy(a[i] * 0.3f);
    const struct rows sums = {sum, WIDTH}, from = {b, WIDTH}, scale = {scaled, WIDTH};
    shaders_add(t->s, sums, from, WIDTH, 1);
    shaders_scale(t->s, scale, 0.3f, WIDTH, 1);
    shaders_times(t->s, (struct rows){product, WIDTH}, from, WIDTH, 1);
    shaders_copy(t->s, copy, 0, a, 0, WIDTH * sizeof *a, 1);
    expect_floats(t, sum, want_sum, WIDTH);
    expect_floats(t, scaled, want_scaled, WIDTH);
    expect_floats(t, product, want_product, WIDTH);
    expect_bytes(t, copy, a, WIDTH * sizeof *a);
    return test_end(t, err);
}

/* -100..100, where exp() goes from 0 to infinity, and corners. */
static float *take_exponents(struct test *t, uint64_t seed) {
    float *x = take(t, WIDTH * sizeof *x);
    samples_floats(x, WIDTH, seed);
    for (size_t i = 0; i < WIDTH; i++)
        x[i] = i % 2 == 0 ? x[i] * 32 : x[i];
    x[0] = NAN, x[1] = INFINITY, x[2] = -INFINITY;
    return x;
}

static enum status test_softcap(struct test *t, struct err *err) {
    test_begin(t, "softcap");
    float *x = take_exponents(t, 50);
    float *want = take_copy(t, x, WIDTH * sizeof *x);
    t->definition->softcap(want, 5.0f, WIDTH);
    shaders_softcap(t->s, (struct rows){x, WIDTH}, 5.0f, WIDTH, 1);
    expect_floats(t, x, want, WIDTH);
    return test_end(t, err);
}

static enum status test_activate(struct test *t, struct err *err) {
    test_begin(t, shader_name(SHADER_ACTIVATE));
    const struct situ_params situ = {4.0f, 25.0f};
    for (int act = FFN_SWIGLU; act <= FFN_RELU2 + 1; act++) {
        enum ffn_act kind = act > FFN_RELU2 ? FFN_SWIGLU : (enum ffn_act)act;
        float limit = act > FFN_RELU2 || kind == FFN_SWIGLU_CLAMPED ? 2.0f : 0.0f;
        float *gate = take_exponents(t, 60 + (uint64_t)act);
        float *up = take_exponents(t, 70 + (uint64_t)act);
        float *want = take_copy(t, gate, WIDTH * sizeof *gate);
        float *want_up = take_copy(t, up, WIDTH * sizeof *up);
        ffn_activate(t->definition, kind, situ, limit, want, want_up, WIDTH);
        shaders_activate(t->s, kind, situ, limit, (struct rows){gate, WIDTH},
                         (struct rows){up, WIDTH}, WIDTH, 1);
        expect_floats(t, gate, want, WIDTH);
    }
    return test_end(t, err);
}

static enum status test_heads(struct test *t, struct err *err) {
    enum { DIM = 100, HEADS = WIDTH / DIM };
    test_begin(t, shader_name(SHADER_HEADS));
    for (int op = 0; op < 3; op++) { /* a gate for each value, for each head; a number */
        float *x = take_floats(t, WIDTH, 55), *by = take_exponents(t, 56 + (uint64_t)op);
        float *want = take_copy(t, x, WIDTH * sizeof *x), *gates;
        const struct shaders_heads heads = {{x, WIDTH}, DIM, DIM, HEADS, 1};
        const uint32_t apart = op == 0 ? DIM : 1;
        gates = take_copy(t, by, WIDTH * sizeof *by);
        for (uint32_t h = 0; h < HEADS && op < 2; h++)
            gate_head(t->definition, want + h * DIM, gates + h * apart, DIM, op == 1);
        for (uint32_t i = 0; i < WIDTH && op == 2; i++)
            want[i] = exact_tidy(want[i] * by[3]);
        if (op < 2)
            shaders_gate_heads(t->s, &heads, (struct rows){by, WIDTH}, apart, op == 1);
        else
            shaders_scale_heads(t->s, &heads, by + 3);
        expect_floats(t, x, want, WIDTH);
    }
    return test_end(t, err);
}

static enum status test_rope(struct test *t, struct err *err) {
    enum { HEADS = 3, DIM = 40, ROT = 36 };
    test_begin(t, shader_name(SHADER_ROPE));
    float *c = take_floats(t, ROT / 2, 80), *s = take_floats(t, ROT / 2, 81);
    for (int mode = 0; mode < 2; mode++) {
        float *x = take_floats(t, HEADS * DIM, 82 + (uint64_t)mode);
        float *want = take_copy(t, x, HEADS * DIM * sizeof *x);
        t->definition->rope(want, HEADS, DIM, ROT, c, s, (enum rope_mode)mode);
        shaders_rope(t->s, (struct rows){x, HEADS * DIM}, HEADS, DIM, ROT, c, s,
                     (enum rope_mode)mode, 1);
        expect_floats(t, x, want, HEADS * DIM);
    }
    return test_end(t, err);
}

/* ---- experts ----------------------------------------------------------------------------- */

/* Of logits of every kind (samples_logits). */
static void test_route_of(struct test *t, struct router r, bool all) {
    const size_t n = (size_t)SAMPLES_LOGITS * r.n_experts, n_out = SAMPLES_LOGITS * r.n_used;
    float *logits = take(t, n * sizeof *logits),
          *scratch = take(t, r.n_experts * sizeof(float));
    struct choice *got = take(t, n_out * sizeof *got), *want = take(t, n_out * sizeof *want);
    float *shared = take(t, SAMPLES_LOGITS * 4), *want_shared = take(t, SAMPLES_LOGITS * 4);
    for (uint32_t i = 0; i < SAMPLES_LOGITS; i++)
        samples_logits(logits + (size_t)i * r.n_experts, r.n_experts, i, r.n_experts + i);
    if (all) {
        float *bias = take(t, r.n_experts * sizeof(float));
        samples_logits(bias, r.n_experts, 2, 1); /* so that many are equal */
        r.bias = r.choice_bias = bias;
        r.expert_scale = take_floats(t, r.n_experts, 2);
    }
    float *own = take_copy(t, logits, n * sizeof *logits);
    for (uint32_t i = 0; i < SAMPLES_LOGITS; i++) {
        want_shared[i] = logits[(size_t)i * r.n_experts];
        router_choose(t->definition, &r, own + (size_t)i * r.n_experts, NULL, scratch,
                      want + (size_t)i * r.n_used);
    }
    sigmoids(t->definition, want_shared, SAMPLES_LOGITS);
    shaders_route(t->s, &r,
                  &(struct shaders_routing){.logits = {logits, r.n_experts},
                                            .shared_logits = {logits, r.n_experts},
                                            .shared_weights = shared,
                                            .out = got,
                                            .n_tokens = SAMPLES_LOGITS});
    expect_floats(t, (float *)got, (float *)want, 2 * n_out);
    expect_floats(t, shared, want_shared, SAMPLES_LOGITS);
}

static enum status test_route(struct test *t, struct err *err) {
    static const struct router routers[] = {
        {40, 6, 1, 1, GATING_SOFTMAX, false, true, 1.0f, NULL, NULL, NULL},
        {300, 33, 1, 1, GATING_SIGMOID, false, true, 2.5f, NULL, NULL, NULL},
        {64, 7, 8, 3, GATING_SIGMOID, false, true, 2.5f, NULL, NULL, NULL},
        {24, 6, 6, 3, GATING_SOFTMAX, true, false, 16.0f, NULL, NULL, NULL},
        {20, 4, 1, 1, GATING_SOFTMAX_CHOSEN, false, false, 1.0f, NULL, NULL, NULL},
        {5, 5, 1, 1, GATING_SOFTMAX, false, true, 1.0f, NULL, NULL, NULL}, /* all of them */
    };
    test_begin(t, shader_name(SHADER_ROUTE));
    for (size_t i = 0; i < ARRAY_LEN(routers); i++)
        test_route_of(t, routers[i], i % 2 == 0);
    return test_end(t, err);
}

static enum status test_chosen_biases(struct test *t, struct err *err) {
    test_begin(t, shader_name(SHADER_CHOSEN));
    struct shaders_chosen c = take_chosen(t, some_choices, CHOOSERS);
    const size_t n = WIDTH, all = CHOICES * n;
    float *x = take_floats(t, all, 100), *biases = take_floats(t, EXPERTS * n, 101);
    int64_t *acc = take(t, CHOOSERS * n * sizeof *acc);
    samples_fixed(acc, CHOOSERS * n, 102);
    float *want = take_copy(t, x, all * sizeof *x);
    int64_t *want_acc = take_copy(t, acc, CHOOSERS * n * sizeof *acc);
    c.begin = 1;
    for (size_t i = 0; i < CHOICES; i++) {
        const float *bias = biases + some_choices[i].expert * n, by = some_choices[i].weight;
        t->definition->add(want + i * n, bias, n);
        for (size_t k = 0; k < n; k++) {
            want[i * n + k] = exact_tidy(want[i * n + k] * by);
            int64_t *sum = &want_acc[i / USED * n + k];
            if (some_choices[i].expert >= c.begin)
                *sum = (int64_t)((uint64_t)*sum + (uint64_t)samples_fixed_of(bias[k] * by));
        }
    }
    shaders_chosen_add(t->s, &c, (struct rows){x, n}, biases, n, WIDTH);
    shaders_chosen_scale(t->s, &c, (struct rows){x, n}, WIDTH);
    shaders_chosen_fixed_bias(t->s, &c, acc, n, biases, n, WIDTH);
    expect_floats(t, x, want, all);
    expect_bytes(t, acc, want_acc, CHOOSERS * n * sizeof *acc);
    return test_end(t, err);
}

/* ---- the cache, attention ---------------------------------------------------------------- */

enum { KV_HEADS = 2, POSITIONS = ATTN_SPAN + 40, PAGES = POSITIONS / KV_PAGE + 1 };

/* Some positions by the device, and all of them by the definition. */
static uint8_t *test_store(struct test *t, const struct kv_shape *shape) {
    enum { TOKENS = 3, FIRST = 30 };
    size_t page_bytes = kv_page_bytes(shape), k_row = KV_HEADS * shape->k_dim,
           v_row = KV_HEADS * shape->v_dim;
    uint8_t *pages = take(t, PAGES * page_bytes), *got = take(t, page_bytes), *want;
    float *k = take(t, POSITIONS * k_row * sizeof *k),
          *v = take(t, POSITIONS * v_row * sizeof *v);
    samples_mild(k, POSITIONS * k_row, 90);
    samples_mild(v, POSITIONS * v_row, 91);
    uint64_t *address = take(t, TOKENS * sizeof *address);
    uint32_t *slots = take(t, TOKENS * sizeof *slots);
    memset(pages, 0, PAGES * page_bytes);
    for (size_t i = 0; i < POSITIONS; i++)
        t->definition->kv_store(shape, pages + i / KV_PAGE * page_bytes, i % KV_PAGE,
                                k + i * k_row, v + i * v_row);
    samples_blocks(k, TOKENS * k_row, 94);
    samples_blocks(v, TOKENS * v_row, 95);
    want = take_copy(t, pages, page_bytes);
    memcpy(got, pages, page_bytes);
    for (uint32_t i = 0; i < TOKENS; i++) {
        address[i] = device_address(t->s->d, got);
        slots[i] = FIRST + i;
        t->definition->kv_store(shape, want, slots[i], k + i * k_row, v + i * v_row);
    }
    shaders_kv_store(t->s, shape, (struct rows){k, k_row}, (struct rows){v, v_row}, address,
                     slots, TOKENS);
    expect_bytes(t, got, want, page_bytes);
    return pages;
}

static enum status test_attention(struct test *t, struct kv_shape shape, uint32_t group,
                                  float softcap, struct err *err) {
    const uint32_t n_heads = KV_HEADS * group;
    test_begin(t, shaders_attention_name(shape.type));
    const uint8_t *pages = test_store(t, &shape), *page[PAGES];
    uint64_t *address = take(t, PAGES * sizeof *address);
    float *q = take(t, n_heads * shape.k_dim * sizeof *q),
          *sinks = take(t, n_heads * sizeof *sinks);
    samples_mild(q, n_heads * shape.k_dim, 92);
    samples_mild(sinks, n_heads, 93);
    float *got = take(t, n_heads * shape.v_dim * sizeof *got);
    float *want = take(t, n_heads * shape.v_dim * sizeof *want);
    float *scratch = take(t, attn_scratch_floats(&shape) * sizeof *scratch);
    struct shaders_query *query = take(t, sizeof *query);
    *query = (struct shaders_query){.begin = 5, .end = POSITIONS};
    for (size_t i = 0; i < PAGES; i++) {
        page[i] = pages + i * kv_page_bytes(&shape);
        address[i] = device_address(t->s->d, page[i]);
    }
    sinks[1] = -INFINITY;
    for (uint32_t h = 0; h < n_heads; h++) {
        struct attn_query one = {q + h * shape.k_dim, want + h * shape.v_dim, query->begin,
                                 query->end, sinks[h]};
        t->definition->attention(&(struct attn_args){.shape = &shape,
                                                     .kv_head = h / group,
                                                     .pages = page,
                                                     .n_queries = 1,
                                                     .queries = &one,
                                                     .scale = 0.3f,
                                                     .softcap = softcap,
                                                     .scratch = scratch});
    }
    shaders_attention_by(t->s,
                         &(struct shaders_attention){.shape = &shape,
                                                     .queries = query,
                                                     .pages = address,
                                                     .n_tokens = 1,
                                                     .n_heads = n_heads,
                                                     .group = group,
                                                     .q = {q, n_heads * shape.k_dim},
                                                     .out = {got, n_heads * shape.v_dim},
                                                     .q_stride = shape.k_dim,
                                                     .out_stride = shape.v_dim,
                                                     .sinks = sinks,
                                                     .scale = 0.3f,
                                                     .softcap = softcap,
                                                     .max_end = shape.latent ? 0 : POSITIONS},
                         group);
    expect_floats(t, got, want, n_heads * shape.v_dim);
    return test_end(t, err);
}

/* ---- all --------------------------------------------------------------------------------- */

static enum status open_memory(struct test *t, struct shaders *s, struct err *err) {
    *t = (struct test){
        .s = s, .definition = kernels_get(ISA_SCALAR), .memory = mem_huge_alloc(MEMORY)};
    if (t->memory == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a self-test");
    enum status st = device_map(s->d, t->memory, MEMORY, DEVICE_SHARED, err);
    if (st != ST_OK)
        mem_huge_free(t->memory, MEMORY);
    return st;
}

static void close_memory(struct test *t) {
    if (device_unmap(t->s->d, t->memory))
        mem_huge_free(t->memory, MEMORY);
}

enum status shaders_test(struct shaders *s, struct err *err) {
    static enum status (*const tests[])(struct test *, struct err *) = {
        test_act_pack,      test_act_weigh, test_rmsnorm,
        test_lanes16,       test_row_norm,  test_fixed,
        test_vectors,       test_softcap,   test_activate,
        test_heads,         test_rope,      test_route,
        test_chosen_biases, test_conv,      test_recurrent_gates,
        test_recurrence,
    };
    struct test t;
    enum status st = open_memory(&t, s, err);
    if (st != ST_OK)
        return st;
    for (size_t i = 0; st == ST_OK && i < ARRAY_LEN(tests); i++)
        st = tests[i](&t, err);
    close_memory(&t);
    return st;
}

enum status shaders_test_attention(struct shaders *s, enum kv_type type, uint32_t together,
                                   struct err *err) {
    struct kv_shape shape = {.type = type, .n_kv_heads = KV_HEADS, .k_dim = 40, .v_dim = 24};
    struct test t;
    enum status st = open_memory(&t, s, err);
    if (st != ST_OK)
        return st;
    for (int i = 0; st == ST_OK && i < (together > 1 ? 4 : 2); i++) {
        shape.latent = i % 2 == 1;
        st = test_attention(&t, shape, i < 2 ? 1 : together,
                            type == KV_F32 && i % 2 == 0 ? 5.0f : 0.0f, err);
    }
    close_memory(&t);
    return st;
}

enum status shaders_test_products(struct shaders *s, enum qtype type, struct err *err) {
    struct test t;
    enum status st = open_memory(&t, s, err);
    if (st != ST_OK)
        return st;
    st = test_products(&t, type, err);
    close_memory(&t);
    return st;
}
