/* The shaders: every function of shaders.h against the scalar definition for equal bits, on a
 * device with and without what it may lack (LOCKSTEP_DEVICE_WITHOUT). Without a device there
 * is nothing to test; a processor with a software driver of Vulkan is one.
 * labels: slow */
#include "products_fixture.h"

#include "shaders/definition.h"
#include "shaders/shaders_impl.h"

#include <stdlib.h>

/* ---- products ---------------------------------------------------------------------------- */

static const uint32_t token_counts[] = {1, 2, 11, 12, 13, 25};

static void check_act_pack(struct on *on, enum act_kind kind, uint32_t n_tokens,
                           uint32_t n_cols) {
    size_t ldx = n_cols + 3, n = (size_t)n_tokens * n_cols, n_blocks = n / ACT_BLOCK;
    float *x = take_blocks(on, n_tokens * ldx, n_tokens);
    struct act got = take_act(on, kind, n_tokens, n_cols),
               want = take_act(on, kind, n_tokens, n_cols);
    definition()->act_pack(&want, x, ldx, 0, (uint32_t)div_up(n_cols, ACT_BLOCK));
    shaders_act_pack(on->s, &got, x, ldx);
    finish(on);
    if (kind == ACT_F32) {
        compare(on, got.f, want.f, n, "act_pack f");
        return;
    }
    compare_bytes(on, got.q, want.q, n, "act_pack q");
    compare(on, got.d, want.d, n_blocks, "act_pack d");
    compare_bytes(on, got.sums, want.sums, n_blocks * sizeof *got.sums, "act_pack sums");
    compare_bytes(on, got.start, want.start, n_blocks * sizeof *got.start, "act_pack start");
    compare(on, got.s, want.s, n_blocks, "act_pack s");
}

static void activations_are_packed_alike(void **state) {
    (void)state;
    FOR_EACH_DEVICE(on)
    for (size_t i = 0; i < ARRAY_LEN(token_counts); i++) {
        check_act_pack(on, ACT_Q8, token_counts[i], i % 2 == 0 ? 32 : 9 * ACT_BLOCK);
        check_act_pack(on, ACT_F32, token_counts[i], i % 2 == 0 ? 1 : 300);
    }
}

/* Each number of tokens on one of the devices: groups and squares of tokens end anywhere. */
static void products_of_any_number_of_tokens_are_alike(void **state) {
    (void)state;
    static const enum qtype types[VARIANTS] = {QT_Q8_0, QT_Q4_K, QT_F16};
    for (size_t i = 0; i < VARIANTS; i++) {
        struct err err = {0};
        if (shaders_prepare(devices[i].s, types[i], &err) != ST_OK)
            fail_msg("%s", err.text);
        for (uint32_t n = (uint32_t)i + 1; n <= 70; n += VARIANTS)
            check_product(
                &devices[i], types[i],
                &(struct product_case){1 + n * 7 % 70, 64 + 32 * (n / 3 % 3), 0, 32, n});
    }
}

/* A driver takes long for the products of a type: each type on one of the devices. */
static void products_are_alike(void **state) {
    (void)state;
    size_t i = 0;
    for (int type = 0; type < QT_N; type++)
        if (wmat_type_supported((enum qtype)type))
            check_type(&devices[i++ % VARIANTS], (enum qtype)type, 1);
}

/* ---- vectors ----------------------------------------------------------------------------- */

#define ROWS 3
static const uint32_t lengths[] = {1, 31, 256, 257, 700};

static float *take_exponents(struct on *on, size_t n, uint64_t seed) {
    float *x = take_floats(on, n, seed);
    for (size_t i = 0; i < n; i += 2)
        x[i] *= 32;
    x[n / 2] = NAN;
    x[n / 3] = -INFINITY;
    return x;
}

static void check_norms(struct on *on, uint32_t n) {
    size_t ld = n + 2;
    float *x = take_floats(on, ROWS * ld, n), *w = take_floats(on, n, n + 1);
    float *got = take_copy(on, x, ROWS * ld * 4), *want = take_copy(on, x, ROWS * ld * 4);
    samples_mild(x, 2 * ld, n);
    for (size_t r = 0; r < ROWS; r++)
        definition()->rmsnorm(want + r * ld, x + r * ld, w, n, 1e-5f);
    shaders_rmsnorm(on->s, (struct rows){got, ld}, (struct rows){x, ld}, w, n, ROWS, 1e-5f);
    finish(on);
    compare(on, got, want, ROWS * ld, "rmsnorm");
}

/* In place, with gaps between heads and between tokens. */
static void check_head_norms(struct on *on, uint32_t head_dim) {
    enum { TOKENS = 3, HEADS = 2 };
    size_t stride = head_dim + 1, ld = HEADS * stride + 3;
    float *w = take_floats(on, head_dim, 5), *x = take(on, TOKENS * ld * 4);
    samples_mild(x, TOKENS * ld, 6);
    float *want = take_copy(on, x, TOKENS * ld * 4);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t h = 0; h < HEADS; h++)
            definition()->rmsnorm(want + t * ld + h * stride, want + t * ld + h * stride, w,
                                  head_dim, 1e-6f);
    shaders_head_norms(on->s, (struct rows){x, ld}, w, head_dim, HEADS, stride, TOKENS, 1e-6f);
    finish(on);
    compare(on, x, want, TOKENS * ld, "norms of heads");
}

/* LayerNorm's first half, and norms without weights: heads that are apart. */
static void check_lanes16(struct on *on, uint32_t n) {
    enum { HEADS = 3 };
    size_t stride = n + 1, ld = HEADS * stride + 2, all = ROWS * ld * 4;
    float *x = take_floats(on, ROWS * ld, n + 20), *heads, *want_heads, *got, *want;
    samples_mild(x, 2 * ld, n);
    heads = take_copy(on, x, all), want_heads = take_copy(on, x, all);
    got = take_copy(on, x, all), want = take_copy(on, x, all);
    for (size_t r = 0; r < ROWS; r++) {
        center(want + r * ld, x + r * ld, n);
        for (size_t h = 0; h < HEADS; h++)
            plain_norm(want_heads + r * ld + h * stride, n, 1e-5f);
    }
    shaders_center(on->s, (struct rows){got, ld}, (struct rows){x, ld}, n, ROWS);
    shaders_plain_norms(on->s, (struct rows){heads, ld}, n, HEADS, stride, ROWS, 1e-5f);
    finish(on);
    compare(on, got, want, ROWS * ld, "rows less their mean");
    compare(on, heads, want_heads, ROWS * ld, "norms without weights");
}

/* A norm over the row of 1, 16 and 37 heads; none: the sum is 0. */
static void check_row_norm(struct on *on, uint32_t head_dim, uint32_t n_heads) {
    const uint32_t n = head_dim * n_heads, ld = n + 3;
    float *x = take_floats(on, ROWS * ld, n), *w = take_floats(on, ld, n + 1);
    int64_t *got = take(on, ROWS * 2 * 8), *want = take(on, ROWS * 2 * 8);
    samples_mild(x, (size_t)2 * ld, n);
    float *want_x = take_copy(on, x, ROWS * ld * sizeof *x);
    for (size_t r = 0; r < ROWS; r++) {
        float sum;
        got[2 * r + 1] = want[2 * r + 1] = -5;
        want[2 * r] = 0;
        for (uint32_t h = 0; h < n_heads; h++)
            want[2 * r] +=
                samples_fixed_of(lanes16_squares(x + r * ld + (size_t)h * head_dim, head_dim));
        definition()->fixed_get(&sum, &want[2 * r], 1);
        row_norm(want_x + r * ld, w, n, sum, (float)(2 * n + 1), 1e-6f);
    }
    const struct rows rows = {x, ld};
    shaders_row_squares(on->s, got, 2, rows, head_dim, n_heads, ROWS);
    shaders_row_norm(on->s, rows, got, 2, w, n, (float)(2 * n + 1), ROWS, 1e-6f);
    finish(on);
    compare_bytes(on, got, want, ROWS * 2 * 8, "squares of a row's heads");
    compare(on, x, want_x, ROWS * ld, "norms over a row");
}

/* Gates that stand beside the queries, as they do in attn_q; gates of whole heads; numbers. */
static void check_heads(struct on *on, uint32_t dim) {
    enum { HEADS = 3 };
    size_t stride = dim + 2, ld = HEADS * stride + 1, apart = 2 * dim, ldg = HEADS * apart + 3;
    float *x = take_floats(on, ROWS * ld, dim), *want = take_copy(on, x, ROWS * ld * 4);
    float *gates = take_exponents(on, ROWS * ldg, dim), *by = take_floats(on, ROWS, 5);
    float *used = take_copy(on, gates, ROWS * ldg * 4);
    const struct shaders_heads heads = {{x, ld}, stride, dim, HEADS, ROWS};
    for (size_t r = 0; r < ROWS; r++)
        for (size_t h = 0; h < HEADS; h++) {
            float *head = want + r * ld + h * stride, one = gates[r * ldg + h];
            gate_head(definition(), head, used + r * ldg + h * apart, dim, false);
            gate_head(definition(), head, &one, dim, true);
            for (uint32_t i = 0; i < dim; i++)
                head[i] = exact_tidy(head[i] * by[r]);
        }
    shaders_gate_heads(on->s, &heads, (struct rows){gates, ldg}, apart, false);
    shaders_gate_heads(on->s, &heads, (struct rows){gates, ldg}, 1, true);
    shaders_scale_heads(on->s, &heads, by);
    finish(on);
    compare(on, x, want, ROWS * ld, "gates of heads");
}

static void check_sums(struct on *on, uint32_t n) {
    size_t ldx = n + 1, ldy = n + 4;
    float *a = take_floats(on, ROWS * ldx, n), *b = take_floats(on, ROWS * ldy, n + 9);
    float *sum = take_copy(on, a, ROWS * ldx * 4), *want = take_copy(on, a, ROWS * ldx * 4);
    float *capped = take_exponents(on, ROWS * ldx, 3);
    float *want_capped = take_copy(on, capped, ROWS * ldx * 4), *by = take_floats(on, ROWS, 7);
    for (size_t r = 0; r < ROWS; r++) {
        definition()->add(want + r * ldx, b + r * ldy, n);
        definition()->add(want + r * ldx, b, n);
        for (size_t i = 0; i < n; i++)
            want[r * ldx + i] = exact_tidy(exact_tidy(want[r * ldx + i] * 0.37f) * by[r]);
        times(want + r * ldx, want + r * ldx, b + r * ldy, n);
        definition()->softcap(want_capped + r * ldx, 30.0f, n);
    }
    shaders_add(on->s, (struct rows){sum, ldx}, (struct rows){b, ldy}, n, ROWS);
    shaders_add_vector(on->s, (struct rows){sum, ldx}, b, n, ROWS);
    shaders_scale(on->s, (struct rows){sum, ldx}, 0.37f, n, ROWS);
    shaders_scale_rows(on->s, (struct rows){sum, ldx}, by, n, ROWS);
    shaders_softcap(on->s, (struct rows){capped, ldx}, 30.0f, n, ROWS);
    shaders_times(on->s, (struct rows){sum, ldx}, (struct rows){b, ldy}, n, ROWS);
    finish(on);
    compare(on, sum, want, ROWS * ldx, "sums");
    compare(on, capped, want_capped, ROWS * ldx, "softcap");
}

static void check_fixed(struct on *on, uint32_t n) {
    size_t ldx = n + 1, ld_acc = n + 2;
    int64_t *acc = take(on, ROWS * ld_acc * 8);
    float *bias = take_floats(on, n, n + 3), *x = take_floats(on, ROWS * ldx, n + 4);
    float *got = take_copy(on, x, ROWS * ldx * 4), *want_x = take_copy(on, x, ROWS * ldx * 4);
    float *want = take_copy(on, x, ROWS * ldx * 4);
    samples_fixed(acc, ROWS * ld_acc, n);
    bias[0] = NAN, bias[n / 2] = 0x3p-25f, bias[n - 1] = -INFINITY;
    for (size_t i = 0; i < ROWS * ld_acc; i++)
        acc[i] /= 2;
    int64_t *want_acc = take_copy(on, acc, ROWS * ld_acc * 8);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t i = 0; i < n; i++)
            want_acc[r * ld_acc + i] += samples_fixed_of(bias[i] * 0.7f);
        definition()->fixed_add(want_x + r * ldx, want_acc + r * ld_acc, n);
        definition()->fixed_get(want + r * ldx, want_acc + r * ld_acc, n);
    }
    shaders_fixed_bias(on->s, acc, ld_acc, bias, 0.7f, n, ROWS);
    shaders_fixed_add(on->s, (struct rows){x, ldx}, acc, ld_acc, n, ROWS);
    shaders_fixed_get(on->s, (struct rows){got, ldx}, acc, ld_acc, n, ROWS);
    finish(on);
    compare_bytes(on, acc, want_acc, ROWS * ld_acc * 8, "fixed_bias");
    compare(on, x, want_x, ROWS * ldx, "fixed_add");
    compare(on, got, want, ROWS * ldx, "fixed_get");
}

static void check_activate(struct on *on, enum ffn_act act, float limit, uint32_t n) {
    size_t ldg = n + 1, ldu = n + 2;
    const struct situ_params situ = {4.0f, 25.0f};
    float *gate = take_exponents(on, ROWS * ldg, n),
          *up = take_exponents(on, ROWS * ldu, n + 1);
    float *want = take_copy(on, gate, ROWS * ldg * 4),
          *want_up = take_copy(on, up, ROWS * ldu * 4);
    for (size_t r = 0; r < ROWS; r++)
        ffn_activate(definition(), act, situ, limit, want + r * ldg, want_up + r * ldu, n);
    assert_true(shaders_activate(on->s, act, situ, limit, (struct rows){gate, ldg},
                                 (struct rows){up, ldu}, n, ROWS));
    finish(on);
    char what[64];
    snprintf(what, sizeof what, "activation %d, limit %g", act, (double)limit);
    compare(on, gate, want, ROWS * ldg, what);
}

static void check_rope(struct on *on, enum rope_mode mode, uint32_t n_rot) {
    enum { TOKENS = 3, HEADS = 2, DIM = 70 };
    size_t stride = DIM + 2, ld = HEADS * stride + 1;
    float *x = take_floats(on, TOKENS * ld, n_rot), *want = take_copy(on, x, TOKENS * ld * 4);
    float *c = take_floats(on, TOKENS * n_rot / 2, 1),
          *s = take_floats(on, TOKENS * n_rot / 2, 2);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t h = 0; h < HEADS; h++)
            definition()->rope(want + t * ld + h * stride, 1, DIM, n_rot, c + t * n_rot / 2,
                               s + t * n_rot / 2, mode);
    shaders_rope(on->s, (struct rows){x, ld}, HEADS, stride, n_rot, c, s, mode, TOKENS);
    finish(on);
    compare(on, x, want, TOKENS * ld, "rope");
}

static void vectors_are_alike(void **state) {
    (void)state;
    FOR_EACH_DEVICE(on)
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        check_norms(on, lengths[i]);
        check_head_norms(on, lengths[i]);
        check_lanes16(on, lengths[i]);
        check_heads(on, lengths[i]);
        check_sums(on, lengths[i]);
        check_fixed(on, lengths[i]);
        on->used = 0;
    }
}

static void norms_over_rows_are_alike(void **state) {
    (void)state;
    static const uint32_t heads[] = {0, 1, 16, 37};
    FOR_EACH_DEVICE(on)
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        check_row_norm(on, 40, heads[i]);
        check_row_norm(on, 5, heads[i]);
    }
}

static void activations_and_rope_are_alike(void **state) {
    (void)state;
    static const uint32_t rotated[] = {2, 36, 70};
    FOR_EACH_DEVICE(on) {
        for (int act = FFN_SWIGLU; act <= FFN_RELU2; act++)
            for (int limited = 0; limited < 2; limited++)
                check_activate(on, (enum ffn_act)act, limited ? 2.5f : 0.0f, 300);
        for (size_t i = 0; i < ARRAY_LEN(rotated); i++) {
            check_rope(on, ROPE_NORM, rotated[i]);
            check_rope(on, ROPE_NEOX, rotated[i]);
        }
    }
}

static void rows_are_copied(void **state) {
    (void)state;
    enum { N = 301, FROM = 310, TO = 320 };
    FOR_EACH_DEVICE(on) {
        uint32_t *from = take(on, ROWS * FROM * 4), *to = take(on, ROWS * TO * 4);
        uint32_t *want = take(on, ROWS * TO * 4);
        for (uint32_t i = 0; i < ROWS * FROM; i++)
            from[i] = i * 2654435761u;
        memset(to, CANARY, ROWS * TO * 4);
        memset(want, CANARY, ROWS * TO * 4);
        for (size_t r = 0; r < ROWS; r++)
            memcpy(want + r * TO, from + r * FROM, N * 4);
        shaders_copy(on->s, to, TO * 4, from, FROM * 4, N * 4, ROWS);
        finish(on);
        compare_bytes(on, to, want, ROWS * TO * 4, "copy");
    }
}

/* ---- the cache, attention ---------------------------------------------------------------- */

#define PAGES 26
#define TOKENS_MOST 5

/* Two sequences, whose pages are interleaved. */
struct cache {
    struct kv_shape shape;
    uint8_t *pages;
    uint64_t *address;          /* of both */
    const uint8_t *page[PAGES]; /* as the definition wants them */
};

static struct cache take_cache(struct on *on, struct kv_shape shape) {
    struct cache c = {.shape = shape};
    size_t bytes = kv_page_bytes(&shape), k_row = (size_t)shape.n_kv_heads * shape.k_dim,
           v_row = (size_t)shape.n_kv_heads * shape.v_dim;
    c.pages = take(on, PAGES * bytes);
    c.address = take(on, PAGES * sizeof *c.address);
    memset(c.pages, 0, PAGES * bytes);
    float *k = mem_alloc(k_row * sizeof *k), *v = mem_alloc(v_row * sizeof *v);
    for (uint32_t i = 0; i < PAGES; i++) {
        size_t place = i < PAGES / 2 ? 2 * i : 2 * (i - PAGES / 2) + 1;
        uint8_t *page = c.pages + place * bytes;
        c.page[i] = page;
        c.address[i] = device_address(on->d, page);
        for (uint32_t slot = 0; slot < KV_PAGE; slot++) {
            samples_mild(k, k_row, i * KV_PAGE + slot);
            samples_mild(v, v_row, i * KV_PAGE + slot + 5000);
            definition()->kv_store(&shape, page, slot, k, v);
        }
    }
    mem_free(k);
    mem_free(v);
    return c;
}

static void check_store(struct on *on, struct kv_shape shape) {
    enum { TOKENS = 5 };
    static const uint32_t slots[TOKENS] = {0, 1, 15, 16, 63};
    size_t bytes = kv_page_bytes(&shape), k_row = (size_t)shape.n_kv_heads * shape.k_dim,
           v_row = (size_t)shape.n_kv_heads * shape.v_dim;
    float *k = take_blocks(on, TOKENS * (k_row + 1), 3),
          *v = take_blocks(on, TOKENS * (v_row + 2), 4);
    uint8_t *got = take(on, 2 * bytes), *want = take(on, 2 * bytes);
    uint64_t *pages = take(on, sizeof(uint64_t) * TOKENS);
    for (size_t i = 0; i < 2 * bytes; i++)
        got[i] = want[i] = (uint8_t)(i * 37);
    for (uint32_t t = 0; t < TOKENS; t++) {
        pages[t] = device_address(on->d, got + t % 2 * bytes);
        definition()->kv_store(&shape, want + t % 2 * bytes, slots[t], k + t * (k_row + 1),
                               v + t * (v_row + 2));
    }
    shaders_kv_store(on->s, &shape, (struct rows){k, k_row + 1}, (struct rows){v, v_row + 2},
                     pages, take_copy(on, slots, sizeof slots), TOKENS);
    finish(on);
    compare_bytes(on, got, want, 2 * bytes, "kv_store");
}

/* Heads [first, first + n) of groups that share a kv head; the rank has those from kv head FIRST_KV
 * on. */
struct attention_case {
    uint32_t group, first, n;
    bool sinks;
    float softcap;
};
#define FIRST_KV 3

/* By so many heads together: the spans in one workgroup, and side by side. */
static void check_together(struct on *on, const struct shaders_attention *a, uint32_t together,
                           const float *want, const char *what) {
    const size_t n = a->n_tokens * a->out.ld;
    for (int by_span = 0; by_span < 2; by_span++) {
        struct shaders_attention one = *a;
        one.out.p = take(on, n * 4);
        one.max_end = by_span ? a->max_end : 0;
        memset(one.out.p, 0, n * 4);
        shaders_attention_by(on->s, &one, together);
        finish(on);
        char text[200];
        snprintf(text, sizeof text, "%s, %u together%s", what, together,
                 by_span ? ", by span" : "");
        compare(on, one.out.p, want, n, text);
    }
}

static void check_attention(struct on *on, const struct cache *c,
                            const struct attention_case *of, bool apart) {
    /* The second sequence's positions, windows, spans' borders, the first's. */
    static const struct shaders_query queries[TOKENS_MOST] = {{PAGES / 2, 0, 1, 0},
                                                              {0, 0, 512, 0},
                                                              {PAGES / 2, 3, 513, 0},
                                                              {0, 500, 830, 0},
                                                              {0, 530, 531, 0}};
    const uint32_t k_dim = c->shape.k_dim, v_dim = c->shape.v_dim, used = (uint32_t)on->used;
    size_t q_stride = k_dim + 1, ldq = of->n * q_stride + 2, out_stride = v_dim + 3,
           ld_out = of->n * out_stride;
    float *q = take(on, TOKENS_MOST * ldq * 4), *sink = take(on, of->n * 4);
    float *want = take(on, TOKENS_MOST * ld_out * 4);
    float *scratch = take(on, attn_scratch_floats(&c->shape) * 4);
    samples_mild(q, TOKENS_MOST * ldq, 8);
    samples_mild(sink, of->n, 9);
    memset(want, 0, TOKENS_MOST * ld_out * 4);
    for (uint32_t t = 0; t < TOKENS_MOST; t++)
        for (uint32_t h = 0; h < of->n; h++) {
            struct attn_query one = {q + t * ldq + h * q_stride,
                                     want + t * ld_out + h * out_stride, queries[t].begin,
                                     queries[t].end, of->sinks ? sink[h] : -INFINITY};
            definition()->attention(
                &(struct attn_args){.shape = &c->shape,
                                    .kv_head = (of->first + h) / of->group - FIRST_KV,
                                    .pages = c->page + queries[t].page_begin,
                                    .n_queries = 1,
                                    .queries = &one,
                                    .scale = 0.2f,
                                    .softcap = of->softcap,
                                    .scratch = scratch});
        }
    const struct shaders_attention a = {.shape = &c->shape,
                                        .queries = take_copy(on, queries, sizeof queries),
                                        .pages = c->address,
                                        .n_tokens = TOKENS_MOST,
                                        .n_heads = of->n,
                                        .first_head = of->first,
                                        .group = of->group,
                                        .first_kv = FIRST_KV,
                                        .q = {q, ldq},
                                        .out = {NULL, ld_out},
                                        .q_stride = q_stride,
                                        .out_stride = out_stride,
                                        .sinks = of->sinks ? sink : NULL,
                                        .scale = 0.2f,
                                        .softcap = of->softcap,
                                        .max_end = 830};
    char what[128];
    snprintf(what, sizeof what,
             "attention, kv type %d%s, k %u, v %u, heads %u + %u by %u, softcap %g, sinks %d",
             c->shape.type, c->shape.latent ? ", latent" : "", k_dim, v_dim, of->first, of->n,
             of->group, (double)of->softcap, of->sinks);
    check_together(on, &a, shaders_heads_together(of->group), want, what);
    if (apart)
        check_together(on, &a, 1, want, what);
    on->used = used;
}

/* Heads that begin and end amid groups of 1, 2, 3, 4, 7 and 8, and within one part of a group. */
static void the_cache_and_attention_are_alike(void **state) {
    (void)state;
    static const uint32_t dims[][2] = {{24, 40}, {33, 1}, {64, 270}, {576, 512}};
    static const struct attention_case cases[] = {
        {1, 3, 2, false, 0}, {2, 6, 4, true, 0},   {3, 10, 4, true, 0},   {4, 12, 8, false, 5},
        {4, 14, 5, true, 0}, {7, 22, 11, true, 0}, {8, 27, 10, false, 0}, {8, 26, 1, true, 5},
    };
    struct err err = {0};
    FOR_EACH_DEVICE(on)
    for (int type = 0; type < KV_N_TYPES; type++) {
        for (uint32_t group = 1; group <= SHADERS_HEADS_MOST; group++)
            if (shaders_prepare_attention(on->s, (enum kv_type)type, group, &err) != ST_OK)
                fail_msg("without %s: %s", on->without, err.text);
        for (size_t i = 0; i < ARRAY_LEN(dims); i++) {
            struct kv_shape shape = {.type = (enum kv_type)type,
                                     .latent = i % 2 == 1,
                                     .n_kv_heads = 2,
                                     .k_dim = dims[i][0],
                                     .v_dim = dims[i][1]};
            check_store(on, shape);
            struct cache c = take_cache(on, shape);
            /* The small one has all cases, the others one each. */
            for (size_t k = 0; k < ARRAY_LEN(cases); k++)
                if (i == 0 || k == 2 + ((size_t)type + i) % 3)
                    check_attention(on, &c, &cases[k], i == 0);
            on->used = 0;
        }
    }
}

/* ---- experts ----------------------------------------------------------------------------- */

/* Router n of many: each size with each way of groups, of gating and of what is added. */
static struct router router_of(uint32_t n) {
    static const struct {
        uint32_t n_experts, n_used, n_groups, n_groups_used;
    } sizes[] = {{1, 1, 1, 1},     {2, 2, 2, 1},      {37, 5, 1, 1},
                 {64, 64, 64, 64}, {256, 8, 8, 4},    {257, 9, 1, 1},
                 {512, 10, 64, 7}, {1024, 64, 16, 3}, {1024, 1, 1, 1}};
    const size_t i = n % ARRAY_LEN(sizes), way = n / ARRAY_LEN(sizes);
    return (struct router){
        .n_experts = sizes[i].n_experts,
        .n_used = MIN(sizes[i].n_used,
                      sizes[i].n_groups_used * (sizes[i].n_experts / sizes[i].n_groups)),
        .n_groups = sizes[i].n_groups,
        .n_groups_used = sizes[i].n_groups_used,
        .gating = (enum gating)((n + way) % 3),
        .groups_by_best = way % 2 == 1,
        .normalize = (n + way / 2) % 2 == 1,
        .scale = n % 4 == 0 ? 1.0f : 2.448f};
}

static void check_route(struct on *on, uint32_t n) {
    struct router r = router_of(n);
    const size_t ld = r.n_experts + 3, n_out = (size_t)SAMPLES_LOGITS * r.n_used;
    float *logits = take(on, SAMPLES_LOGITS * ld * 4), *bias = take(on, ld * 4);
    struct choice *got = take(on, n_out * sizeof *got), *want = take(on, n_out * sizeof *want);
    float scratch[SHADERS_EXPERTS_MAX];
    char what[64];
    for (uint32_t i = 0; i < SAMPLES_LOGITS; i++)
        samples_logits(logits + i * ld, ld, i, n * SAMPLES_LOGITS + i);
    samples_logits(bias, ld, n % 2 == 0 ? 0 : 2, n);
    r.bias = n % 3 == 0 ? bias : NULL;
    r.choice_bias = n % 5 < 2 ? bias : NULL;
    r.expert_scale = n % 4 == 3 ? bias : NULL;
    float *own = take_copy(on, logits, SAMPLES_LOGITS * ld * 4);
    for (uint32_t i = 0; i < SAMPLES_LOGITS; i++)
        router_choose(definition(), &r, own + i * ld, NULL, scratch,
                      want + (size_t)i * r.n_used);
    shaders_route(on->s, &r,
                  &(struct shaders_routing){
                      .logits = {logits, ld}, .out = got, .n_tokens = SAMPLES_LOGITS});
    finish(on);
    snprintf(what, sizeof what, "router %u: %u of %u experts", n, r.n_used, r.n_experts);
    compare(on, (float *)got, (float *)want, 2 * n_out,
            what); /* and the experts by their bits */
    on->used = 0;
}

static void experts_are_chosen_alike(void **state) {
    (void)state;
    FOR_EACH_DEVICE(on)
    for (uint32_t n = 0; n < 36; n++)
        check_route(on, n);
}

static void experts_are_read_by_choice(void **state) {
    (void)state;
    static const enum qtype types[VARIANTS] = {QT_NVFP4, QT_F16, QT_Q4_K};
    struct err err = {0};
    for (size_t i = 0; i < VARIANTS; i++) {
        if (shaders_prepare(devices[i].s, types[i], &err) != ST_OK)
            fail_msg("without %s: %s", without[i], err.text);
        check_chosen(&devices[i], types[i], 1, false);
        check_chosen(&devices[i], types[i], 13, false);
        check_chosen(&devices[i], types[i], 26, false);
        check_chosen(&devices[i], types[i], 13, true);
        check_chosen(&devices[i], types[i], 130, true); /* a square of each, and some */
        check_chosen(&devices[i], types[i], 150, true); /* two squares */
    }
}

/* Packed values of a token times the weights of its choices: as moe.c weighs inputs. */
static void check_weighed(struct on *on, enum act_kind kind, uint32_t n_tokens) {
    enum { USED = 3, COLS = 352 };
    const uint32_t n = n_tokens * USED;
    const size_t n_blocks = COLS / ACT_BLOCK;
    struct choice *choices = take(on, n * sizeof *choices);
    float *x = take(on, (size_t)n * COLS * 4);
    const struct act a = take_act(on, kind, n_tokens, COLS), got = take_act(on, kind, n, COLS),
                     want = take_act(on, kind, n, COLS);
    for (uint32_t t = 0; t < n_tokens; t++)
        samples_tokens(x + (size_t)t * COLS, 1, COLS, t);
    definition()->act_pack(&a, x, COLS, 0, n_blocks);
    for (uint32_t i = n; i-- > 0;) {
        choices[i] = (struct choice){i, i % 5 == 0 ? 0x1p-30f : 0.3f * (float)i};
        memmove(x + (size_t)i * COLS, x + (size_t)(i / USED) * COLS, COLS * 4);
    }
    definition()->act_pack(&want, x, COLS, 0, n_blocks);
    for (uint32_t i = 0; i < n; i++)
        act_weigh(&want, i, choices[i].weight);
    const struct shaders_chosen c = {.choices = choices, .n_tokens = n_tokens, .n_used = USED};
    shaders_chosen_weigh(on->s, &c, &got, &a);
    finish(on);
    if (kind == ACT_Q8) {
        compare(on, got.d, want.d, n * n_blocks, "scales of what is weighed");
        compare(on, got.s, want.s, n * n_blocks, "sums of what is weighed");
        compare_bytes(on, got.q, want.q, (size_t)n * COLS, "codes of what is weighed");
        compare_bytes(on, got.sums, want.sums, n * n_blocks * sizeof *got.sums, "halves");
        compare_bytes(on, got.start, want.start, n * n_blocks * sizeof *got.start, "starts");
    } else {
        compare(on, got.f, want.f, (size_t)n * COLS, "what is weighed");
    }
    on->used = 0;
}

static void inputs_are_weighed_alike(void **state) {
    (void)state;
    FOR_EACH_DEVICE(on)
    for (uint32_t n_tokens = 1; n_tokens < 20; n_tokens += 6) {
        check_weighed(on, ACT_Q8, n_tokens);
        check_weighed(on, ACT_F32, n_tokens);
    }
}

static void large_mixtures_are_not_a_device_s(void **state) {
    (void)state;
    struct router r = router_of(4);
    assert_true(shaders_can_route(&r));
    r.gating = GATING_SQRT_SOFTPLUS;
    assert_false(shaders_can_route(&r));
    r = router_of(4), r.n_experts = SHADERS_EXPERTS_MAX + 8;
    assert_false(shaders_can_route(&r));
    r = router_of(4), r.n_used = SHADERS_USED_MAX + 1;
    assert_false(shaders_can_route(&r));
    r = router_of(4), r.n_groups = 2 * SHADERS_EXPERT_GROUPS_MAX;
    assert_false(shaders_can_route(&r));
}

/* ---- what is refused --------------------------------------------------------------------- */

/* A device whose arithmetic has this fault does not open, and the sentence names what differs. */
static void check_fault(const char *fault, const char *named, enum qtype type) {
    struct err err = {0};
    struct device *d;
    struct shaders *s = NULL;
    const char *name = getenv("LOCKSTEP_TEST_DEVICE");
    setenv("LOCKSTEP_DEVICE_FAULT", fault, 1);
    assert_int_equal(device_open(&d, name != NULL ? name : "0", &err), ST_OK);
    enum status st = shaders_open(&s, d, &err);
    if (st == ST_OK)
        st = shaders_prepare(s, type, &err);
    if (st == ST_OK)
        st = shaders_prepare_attention(s, KV_Q8_0, 3, &err);
    assert_int_equal(st, ST_BAD_INPUT);
    if (strstr(err.text, named) == NULL)
        fail_msg("%s: %s", fault, err.text);
    shaders_close(s);
    device_close(d);
    unsetenv("LOCKSTEP_DEVICE_FAULT");
}

static void a_device_with_a_fault_is_refused(void **state) {
    (void)state;
    check_fault("fma:q4_0", "product with q4_0 differs", QT_Q4_0);
    check_fault("fma:f16", "product with f16 differs", QT_F16);
    check_fault("division", "act_pack differs", QT_F16);
    check_fault("division:rmsnorm", "rmsnorm differs", QT_F16);
    check_fault("fma:attention q8_0", "attention q8_0 differs", QT_F16);
    check_fault("division:norm of 16 lanes", "norm of 16 lanes differs", QT_F16);
    check_fault("fma:gates of heads", "gates of heads differs", QT_F16);
    check_fault("division:norm of a row of heads", "norm of a row of heads differs", QT_F16);
    check_fault("division:choice of experts", "choice of experts differs", QT_F16);
    check_fault("fma:choice of experts", "choice of experts differs", QT_F16);
    check_fault("division:convolution", "convolution differs", QT_F16);
    check_fault("fma:gates of a recurrence", "gates of a recurrence differs", QT_F16);
    check_fault("fma:recurrence", "recurrence differs", QT_F16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_packed_alike),
        cmocka_unit_test(vectors_are_alike),
        cmocka_unit_test(norms_over_rows_are_alike),
        cmocka_unit_test(activations_and_rope_are_alike),
        cmocka_unit_test(rows_are_copied),
        cmocka_unit_test(the_cache_and_attention_are_alike),
        cmocka_unit_test(products_are_alike),
        cmocka_unit_test(products_of_any_number_of_tokens_are_alike),
        cmocka_unit_test(experts_are_chosen_alike),
        cmocka_unit_test(experts_are_read_by_choice),
        cmocka_unit_test(inputs_are_weighed_alike),
        cmocka_unit_test(large_mixtures_are_not_a_device_s),
        cmocka_unit_test(a_device_with_a_fault_is_refused),
    };
    return device_is_testable() ? cmocka_run_group_tests(tests, open_all, close_all) : 77;
}
