/* Subnormals do not matter: every kernel of every instruction set gives the same bits with them
 * flushed and without, on numbers as small as the contract lets them be (docs/numerics.md). What it
 * writes is again 0, NaN, or at least 2^-40. */
#include "kernel_fixture.h"

#include "base/exact.h"
#include "flush.h"
#include "kernels/activation.h"
#include "mixers/indexer.h"
#include "mixers/recurrent.h"
#include "model/depth_mix.h"
#include "quant/quant.h"

#include <stdlib.h>

#define ROUNDS 60

/* ---- numbers at the lower end of what there may be --------------------------------------- */

/* Of magnitudes from 2^low on, over `spread` powers of two. */
struct level {
    int low;
    uint32_t spread;
};

static struct level random_level(struct random *r) {
    struct level l = {-40, 1 + random_below(r, 44)};
    if (random_below(r, 4) == 0)
        l.low += (int)random_below(r, 60);
    return l;
}

static float hostile(struct random *r, struct level l) {
    float m = 1.0f + (float)(random_u64(r) & 0x7fffff) * 0x1p-23f;
    if (random_below(r, 3) == 0)
        m = 1.0f + (float)(random_u64(r) & 7) * 0x1p-23f; /* products that cancel */
    float x = ldexpf(m, l.low + (int)random_below(r, l.spread));
    return random_below(r, 30) == 0 ? 0.0f : random_below(r, 2) ? x : -x;
}

static struct buf hostile_floats(struct random *r, size_t n) {
    struct buf b = floats_new(n);
    struct level l = random_level(r);
    for (size_t i = 0; i < n; i++)
        ((float *)b.p)[i] = hostile(r, l);
    return b;
}

static struct buf copy_of(const struct buf *b) {
    struct buf c = floats_new(b->n / sizeof(float));
    memcpy(c.p, b->p, b->n);
    return c;
}

static void check_tidy(const float *x, size_t n, const char *isa, const char *what) {
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) < EXACT_LEAST && (x[i] != 0 || signbit(x[i])))
            fail_msg("%s %s: [%zu] is %a", isa, what, i, (double)x[i]);
}

/* Runs `call`, whose results are n floats at `to`, twice: as IEEE says, then flushing. */
#define BOTH(isa, what, to, count, seed, call)                                   \
    do {                                                                         \
        struct buf ieee_ = floats_new(count), was_ = floats_new(count);          \
        memcpy(was_.p, to, was_.n);                                              \
        call;                                                                    \
        memcpy(ieee_.p, to, ieee_.n);                                            \
        memcpy(to, was_.p, was_.n);                                              \
        flush_subnormals(true);                                                  \
        call;                                                                    \
        flush_subnormals(false);                                                 \
        check_floats(to, (float *)ieee_.p, count, isa, what ", flushing", seed); \
        buf_free(&ieee_);                                                        \
        buf_free(&was_);                                                         \
    } while (0)
#define BOTH_TIDY(isa, what, to, count, seed, call) \
    do {                                            \
        BOTH(isa, what, to, count, seed, call);     \
        check_tidy(to, count, isa, what);           \
    } while (0)

/* ---- products ---------------------------------------------------------------------------- */

/* An f16 scale, now and then subnormal; a bf16 one, now and then below what counts. */
static uint16_t random_scale(struct random *r, bool bf16) {
    if (bf16)
        return f32_to_bf16(hostile(r, (struct level){-44, 30}));
    return (uint16_t)((random_u64(r) & 0x83ff) | random_below(r, 16) << 10);
}

static bool has_bf16(enum qtype type) {
    return type == QT_MLX4 || type == QT_MLX8;
}

/* Any bytes, with finite scales. In most types they are the first two f16 of a block, or its last
 * ones. */
static void random_block(struct random *r, enum qtype type, uint8_t *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        b[i] = (uint8_t)random_u64(r);
    uint16_t d = random_scale(r, has_bf16(type)), m = random_scale(r, has_bf16(type));
    if (type == QT_MXFP4) {
        b[offsetof(struct block_mxfp4, e)] = (uint8_t)random_below(r, 140);
        return;
    }
    if (type == QT_NVFP4) {
        for (size_t i = 0; i < 4; i++)
            b[i] = (uint8_t)random_below(r, 127);
        return;
    }
    if (type == QT_IQ1_M)
        return;
    size_t at = type == QT_Q6_K || type == QT_Q3_K || type == QT_TQ1_0 || type == QT_TQ2_0
                    ? n - 2
                : type == QT_Q2_K ? n - 4
                                  : 0;
    memcpy(b + at, &d, 2);
    if (type == QT_Q4_1 || type == QT_Q5_1 || type == QT_Q4_K || type == QT_Q5_K ||
        type == QT_Q2_K || type == QT_MLX4 || type == QT_MLX8 || type == QT_MLX8_F16)
        memcpy(b + at + 2, &m, 2);
}

static void random_row(struct random *r, enum qtype type, uint8_t *row, size_t bytes) {
    const size_t block = qtype_info(type)->block_bytes;
    struct level l = {-45, 1 + random_below(r, 40)}; /* some below what counts */
    for (uint8_t *b = row; b < row + bytes; b += block) {
        float f = hostile(r, l);
        uint16_t h = type == QT_BF16 ? f32_to_bf16(f) : random_scale(r, false);
        if (type == QT_F32) {
            memcpy(b, &f, sizeof f);
        } else if (type == QT_BF16 || type == QT_F16) {
            memcpy(b, &h, sizeof h);
        } else if (type == QT_F8_E4M3) {
            struct block_f8_e4m3 f8 = {.d = f};
            for (int i = 0; i < QK; i++)
                f8.qs[i] = (uint8_t)(random_below(r, 127) | random_below(r, 2) << 7);
            memcpy(b, &f8, sizeof f8);
        } else {
            random_block(r, type, b, block);
        }
    }
}

struct rows {
    const uint8_t *p;
    size_t bytes;
};

static const uint8_t *row_at(const void *ctx, uint32_t r) {
    const struct rows *rows = ctx;
    return rows->p + r * rows->bytes;
}

enum { COLS = 512, ROWS = 32, TOKENS = 3 };

static void check_product(const struct kernels *k, enum qtype type, uint64_t seed) {
    struct random r = {.seed = seed << 8 | type};
    struct rows rows;
    assert_true(qtype_row_bytes(type, COLS, &rows.bytes));
    struct buf file = buf_new(ROWS * rows.bytes, 8), x = hostile_floats(&r, TOKENS * COLS);
    for (uint32_t i = 0; i < ROWS; i++)
        random_row(&r, type, file.p + i * rows.bytes, rows.bytes);
    rows.p = file.p;
    struct wmat w = wmat_shape(type, ROWS, COLS, 0);
    struct buf tiles = buf_new(wmat_bytes(&w), 64);
    wmat_pack(&w, tiles.p, 0, ROWS / TILE_ROWS, row_at, &rows, 0);
    w.tiles = tiles.p;
    if (type == QT_NVFP4)
        w.scale = exact_tidy(fabsf(hostile(&r, (struct level){-40, 40})));
    for (uint32_t n = 1; n <= TOKENS; n += TOKENS - 1) {
        struct packed a[2];
        float y[2][TOKENS * ROWS];
        int64_t z[2][TOKENS * ROWS];
        for (int flush = 0; flush < 2; flush++) {
            flush_subnormals(flush != 0);
            a[flush] = packed_from(k, act_kind_for(type), (float *)x.p, COLS, n, COLS);
            k->matmul(&w, &a[flush].act, y[flush], ROWS, 0, ROWS / TILE_ROWS);
            k->matmul_fixed(&w, &a[flush].act, z[flush], ROWS, NULL, 128, 0, ROWS / TILE_ROWS);
            flush_subnormals(false);
        }
        check_floats(y[1], y[0], n * ROWS, k->name, qtype_info(type)->name, r.seed);
        check_tidy(y[0], n * ROWS, k->name, qtype_info(type)->name);
        assert_memory_equal(z[0], z[1], n * ROWS * sizeof z[0][0]);
        packed_free(&a[0]);
        packed_free(&a[1]);
    }
    buf_free(&file);
    buf_free(&x);
    buf_free(&tiles);
}

static void products_do_not_see_them(void **state) {
    (void)state;
    FOR_EACH_TABLE(k)
    for (uint32_t type = 0; type < QT_N; type++)
        for (uint64_t seed = 0; wmat_type_supported((enum qtype)type) && seed < ROUNDS; seed++)
            check_product(k, (enum qtype)type, seed);
}

/* ---- vectors ----------------------------------------------------------------------------- */

static void check_vectors(const struct kernels *k, uint64_t seed) {
    struct random r = {.seed = seed};
    const size_t n = 1 + random_below(&r, 300);
    struct buf a = hostile_floats(&r, n), b = hostile_floats(&r, n),
               out = hostile_floats(&r, n);
    const float *x = (float *)a.p, *z = (float *)b.p;
    float *y = (float *)out.p;
    struct buf fixed = buf_new(n * 8, 8);
    for (size_t i = 0; i < n; i++)
        ((int64_t *)fixed.p)[i] = (int64_t)random_below(&r, 1000) - 500;
    BOTH_TIDY(k->name, "swiglu", y, n, seed, k->swiglu(y, x, z, n));
    BOTH_TIDY(k->name, "add", y, n, seed, k->add(y, x, n));
    BOTH_TIDY(k->name, "fixed_add", y, n, seed, k->fixed_add(y, (int64_t *)fixed.p, n));
    BOTH_TIDY(k->name, "fixed_get", y, n, seed, k->fixed_get(y, (int64_t *)fixed.p, n));
    BOTH_TIDY(k->name, "rmsnorm", y, n, seed, k->rmsnorm(y, x, z, n, 1e-6f));
    BOTH_TIDY(k->name, "rmsnorm, no eps", y, n, seed, k->rmsnorm(y, x, NULL, n, 0.0f));
    memcpy(y, x, out.n);
    BOTH_TIDY(k->name, "softcap", y, n, seed, k->softcap(y, 30.0f, n));
    BOTH(k->name, "exp", y, n, seed, k->exp(y, x, n));
    for (int mode = 0; mode < 2; mode++) {
        uint32_t n_rot = (uint32_t)n / 2 * 2;
        memcpy(y, x, out.n);
        BOTH_TIDY(k->name, "rope", y, n, seed,
                  k->rope(y, 1, (uint32_t)n, n_rot, z, z + n_rot / 2, (enum rope_mode)mode));
    }
    buf_free(&a);
    buf_free(&b);
    buf_free(&out);
    buf_free(&fixed);
}

static void check_activations(const struct kernels *k, uint64_t seed) {
    static const enum ffn_act acts[] = {FFN_SWIGLU, FFN_SWIGLU_OAI, FFN_GEGLU, FFN_SITU,
                                        FFN_RELU2};
    struct random r = {.seed = seed};
    const size_t n = 1 + random_below(&r, 300);
    struct buf gate = hostile_floats(&r, n), up = hostile_floats(&r, n);
    float *y = (float *)gate.p, *z = (float *)up.p;
    for (size_t i = 0; i < ARRAY_LEN(acts); i++)
        for (int limited = 0; limited < 2; limited++) {
            struct buf g = copy_of(&gate), u = copy_of(&up);
            BOTH_TIDY(k->name, "activation", (float *)g.p, n, seed, {
                memcpy(u.p, up.p, u.n);
                ffn_activate(k, acts[i], (struct situ_params){4, 25}, limited ? 7.0f : 0.0f,
                             (float *)g.p, (float *)u.p, n);
            });
            buf_free(&g);
            buf_free(&u);
        }
    BOTH_TIDY(k->name, "sigmoids", y, n, seed, sigmoids(k, y, n));
    BOTH_TIDY(k->name, "softmax", z, n, seed, softmax(k, z, n));
    buf_free(&gate);
    buf_free(&up);
}

static void check_depth_mix(const struct kernels *k, uint64_t seed) {
    struct random r = {.seed = seed};
    const uint32_t n = 1 + random_below(&r, 5), e = 1 + random_below(&r, 90);
    struct buf all[5], score = hostile_floats(&r, e), out = floats_new(e);
    const float *streams[5];
    for (uint32_t i = 0; i < n; i++) {
        all[i] = hostile_floats(&r, e);
        streams[i] = (float *)all[i].p;
    }
    memset(out.p, 0, out.n);
    BOTH_TIDY(k->name, "depth_mix", (float *)out.p, e, seed,
              depth_mix(k, (float *)out.p, streams, n, (float *)score.p, e, 1e-6f));
    for (uint32_t i = 0; i < n; i++)
        buf_free(&all[i]);
    buf_free(&score);
    buf_free(&out);
}

static void vectors_do_not_see_them(void **state) {
    (void)state;
    FOR_EACH_TABLE(k)
    for (uint64_t seed = 0; seed < 20 * ROUNDS; seed++) {
        check_vectors(k, seed);
        check_activations(k, seed);
        check_depth_mix(k, seed);
    }
}

/* ---- attention --------------------------------------------------------------------------- */

enum { PAGES = 18, DIM = 48, LEN = PAGES * KV_PAGE, HEADS = 2 };

struct cache {
    struct kv_shape shape;
    struct buf page[PAGES], q;
    const uint8_t *pages[PAGES];
    uint32_t n_pos;
    float sink;
};

/* Keys spread the logits, so that some weights are just above nothing. */
static struct cache cache_new(const struct kernels *k, struct random *r, uint64_t seed) {
    struct cache c = {.n_pos = 1 + random_below(r, LEN),
                      .sink = random_below(r, 3) ? -INFINITY : 2.0f};
    c.shape = (struct kv_shape){.type = (enum kv_type)(seed % KV_N_TYPES),
                                .latent = seed / KV_N_TYPES % 2 != 0,
                                .n_kv_heads = 1,
                                .k_dim = DIM,
                                .v_dim = DIM};
    struct level l = random_level(r);
    float spread = (float)random_below(r, 12);
    for (uint32_t i = 0; i < PAGES; i++) {
        c.page[i] = buf_new(kv_page_bytes(&c.shape), 64);
        memset(c.page[i].p, 0, c.page[i].n);
        c.pages[i] = c.page[i].p;
    }
    for (uint32_t pos = 0; pos < c.n_pos; pos++) {
        float key[DIM], value[DIM];
        for (int d = 0; d < DIM; d++) {
            value[d] = hostile(r, l);
            key[d] = c.shape.latent && random_below(r, 2)
                         ? value[d]
                         : exact_tidy(random_float(r, -1, 1) * spread);
        }
        k->kv_store(&c.shape, c.page[pos / KV_PAGE].p, pos % KV_PAGE, key, value);
    }
    c.q = floats_random(r, HEADS * DIM, -1, 1);
    for (size_t i = 0; i < DIM; i++)
        ((float *)c.q.p)[i] = hostile(r, l);
    exact_tidy_all((float *)c.q.p, HEADS * DIM);
    return c;
}

static void cache_free(struct cache *c) {
    for (uint32_t i = 0; i < PAGES; i++)
        buf_free(&c->page[i]);
    buf_free(&c->q);
}

static void check_attention(const struct kernels *k, uint64_t seed) {
    struct random r = {.seed = seed};
    struct cache c = cache_new(k, &r, seed);
    float out[HEADS * DIM] = {0};
    struct attn_query queries[HEADS];
    for (size_t i = 0; i < HEADS; i++)
        queries[i] = (struct attn_query){.q = (float *)c.q.p + i * DIM,
                                         .out = out + i * DIM,
                                         .end = c.n_pos,
                                         .sink = c.sink};
    struct buf scratch = buf_new(attn_scratch_floats(&c.shape) * 4, 64);
    const struct attn_args a = {.shape = &c.shape,
                                .pages = c.pages,
                                .n_queries = HEADS,
                                .queries = queries,
                                .scale = 0.144f,
                                .softcap = random_below(&r, 3) ? 0.0f : 20.0f,
                                .scratch = (float *)scratch.p};
    BOTH_TIDY(k->name, "attention", out, HEADS * DIM, seed, k->attention(&a));
    buf_free(&scratch);

    uint32_t *chosen = malloc(c.n_pos * sizeof *chosen), n = 0;
    assert_non_null(chosen);
    for (uint32_t pos = 0; pos < c.n_pos; pos++)
        if (random_below(&r, 3) == 0 || pos + 1 == c.n_pos)
            chosen[n++] = pos;
    struct buf more = buf_new(chosen_scratch_floats(&c.shape) * 4, 64);
    const struct chosen_args b = {.shape = &c.shape,
                                  .pages = c.pages,
                                  .positions = chosen,
                                  .n = n,
                                  .n_queries = HEADS,
                                  .queries = queries,
                                  .scale = 0.144f,
                                  .scratch = (float *)more.p};
    BOTH_TIDY(k->name, "attention to chosen keys", out, HEADS * DIM, seed,
              indexer_kernels_of(k)->attend(&b));
    buf_free(&more);
    free(chosen);
    cache_free(&c);
}

static void check_scores(const struct kernels *k, uint64_t seed) {
    struct random r = {.seed = seed};
    struct cache c = cache_new(k, &r, seed % KV_N_TYPES);
    struct buf scores = floats_new(round_up(c.n_pos, 16)), scratch = buf_new(16 * DIM * 4, 64),
               weights = hostile_floats(&r, HEADS);
    memset(scores.p, 0, scores.n);
    const struct index_scores_args a = {.shape = &c.shape,
                                        .pages = c.pages,
                                        .q = (float *)c.q.p,
                                        .q_stride = DIM,
                                        .weights = (float *)weights.p,
                                        .n_heads = HEADS,
                                        .end = c.n_pos,
                                        .scores = (float *)scores.p,
                                        .scratch = (float *)scratch.p};
    BOTH(k->name, "scores", (float *)scores.p, scores.n / 4, seed,
         indexer_kernels_of(k)->scores(&a));
    buf_free(&scores);
    buf_free(&scratch);
    buf_free(&weights);
    cache_free(&c);
}

static void attention_does_not_see_them(void **state) {
    (void)state;
    FOR_EACH_TABLE(k)
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        check_attention(k, seed);
        check_scores(k, seed);
    }
}

/* ---- recurrent layers -------------------------------------------------------------------- */

static void check_recurrence(const struct kernels *k, uint64_t seed) {
    struct random r = {.seed = seed};
    const uint32_t n = 1 + random_below(&r, 12), k_dim = 1 + random_below(&r, 40),
                   cols = 1 + random_below(&r, 90), pad = (uint32_t)round_up(cols, 16);
    const bool delta = seed % 2 != 0;
    struct buf q = hostile_floats(&r, n * k_dim), key = hostile_floats(&r, n * k_dim),
               v = hostile_floats(&r, n * cols), decay = hostile_floats(&r, n * k_dim),
               beta = hostile_floats(&r, n), s = floats_new((size_t)pad * k_dim),
               o = floats_new((size_t)n * cols);
    for (size_t i = 0; i < (size_t)n * k_dim; i++) {
        float *d = (float *)decay.p + i, *p = (float *)key.p + i;
        *d = ldexpf(random_float(&r, 0.5f, 1), -(int)random_below(&r, 20));
        *d = *d < RECURRENCE_LEAST ? 0.0f : *d;
        *p = delta && fabsf(*p) < RECURRENCE_LEAST ? RECURRENCE_LEAST : *p;
    }
    memset(s.p, 0, s.n);
    memset(o.p, 0, o.n);
    const struct recurrence_args a = {.n_tokens = n,
                                      .k_dim = k_dim,
                                      .n_cols = cols,
                                      .delta = delta,
                                      .q = (float *)q.p,
                                      .k = (float *)key.p,
                                      .v = (float *)v.p,
                                      .ldq = k_dim,
                                      .ldk = k_dim,
                                      .ldv = cols,
                                      .decay = (float *)decay.p,
                                      .decay_step = 1,
                                      .ld_decay = k_dim,
                                      .beta = (float *)beta.p,
                                      .ld_beta = 1,
                                      .state = (float *)s.p,
                                      .o = (float *)o.p,
                                      .ldo = cols};
    BOTH_TIDY(k->name, "recurrence", (float *)o.p, o.n / 4, seed, {
        memset(s.p, 0, s.n);
        recurrent_kernels_of(k)->recurrence(&a);
    });
    check_tidy((float *)s.p, s.n / 4, k->name, "the state");
    struct buf *all[] = {&q, &key, &v, &decay, &beta, &s, &o};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_free(all[i]);
}

static void check_conv(const struct kernels *k, uint64_t seed) {
    struct random r = {.seed = seed};
    const uint32_t n = 1 + random_below(&r, 9), channels = 1 + random_below(&r, 40),
                   ld = (uint32_t)round_up(channels, 16), taps = 2 + random_below(&r, 4);
    struct buf x = hostile_floats(&r, n * ld), w = hostile_floats(&r, channels * taps),
               history = hostile_floats(&r, (taps - 1) * ld), was = copy_of(&history);
    const struct conv_args a = {.x = (float *)x.p,
                                .ldx = ld,
                                .n_tokens = n,
                                .n_channels = channels,
                                .n_taps = taps,
                                .w = (float *)w.p,
                                .history = (float *)history.p,
                                .ld_history = ld,
                                .silu = seed % 2 != 0};
    BOTH_TIDY(k->name, "conv", (float *)x.p, x.n / 4, seed, {
        memcpy(history.p, was.p, was.n);
        recurrent_kernels_of(k)->conv(&a);
    });
    buf_free(&x);
    buf_free(&w);
    buf_free(&history);
    buf_free(&was);
}

static void states_do_not_see_them(void **state) {
    (void)state;
    FOR_EACH_TABLE(k)
    for (uint64_t seed = 0; seed < 10 * ROUNDS; seed++) {
        check_recurrence(k, seed);
        check_conv(k, seed);
    }
}

/* The test would prove nothing if the processor did not flush. */
static void the_processor_flushes(void **state) {
    (void)state;
    assert_false(flushes_subnormals());
    flush_subnormals(true);
    bool flushes = flushes_subnormals();
    flush_subnormals(false);
    assert_true(flushes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_processor_flushes),
        cmocka_unit_test(products_do_not_see_them),
        cmocka_unit_test(vectors_do_not_see_them),
        cmocka_unit_test(attention_does_not_see_them),
        cmocka_unit_test(states_do_not_see_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
