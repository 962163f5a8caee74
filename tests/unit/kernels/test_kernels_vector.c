/* The kernels beside the products: norms, RoPE, SwiGLU, fixed point, the KV cache, attention.
 * Every instruction set against the definition for equal bits; the definition against the same
 * formulas in double. */
#include "kernel_fixture.h"

#include "base/exact.h"
#include "quant/quant.h"

#include <stdlib.h>

static const size_t lengths[] = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 257};

static void put(struct buf *b, const float *x) {
    memcpy(b->p, x, b->n);
}

/* ---- elementwise and norms ---------------------------------------------------------------- */

static void spoil_some(struct random *r, struct buf *b) {
    static const float odd[] = {0.0f, -0.0f, 1e-40f, 1e38f, -1e38f, INFINITY, -INFINITY, NAN};
    if (random_below(r, 4) == 0)
        ((float *)b->p)[random_below(r, (uint32_t)(b->n / 4))] = PICK(r, odd);
}

static void check_elementwise(const struct kernels *k, struct random *r, size_t n) {
    struct buf a = floats_random(r, n, -20, 20), b = floats_random(r, n, -2, 2);
    spoil_some(r, &a);
    spoil_some(r, &b);
    struct buf got = floats_new(n), want = floats_new(n);
    const float *x = (float *)a.p, *z = (float *)b.p;
    float *y = (float *)got.p, *w = (float *)want.p;
    const struct kernels *def = definition();

    def->swiglu(w, x, z, n);
    k->swiglu(y, x, z, n);
    check_floats(y, w, n, k->name, "swiglu", r->seed);
    put(&got, x);
    k->swiglu(y, y, z, n);
    check_floats(y, w, n, k->name, "swiglu into gate", r->seed);
    put(&want, x);
    def->softcap(w, 5.0f, n);
    put(&got, x);
    k->softcap(y, 5.0f, n);
    check_floats(y, w, n, k->name, "softcap", r->seed);

    def->exp(w, x, n);
    k->exp(y, x, n);
    check_floats(y, w, n, k->name, "exp", r->seed);

    put(&want, z);
    put(&got, z);
    def->add(w, x, n);
    k->add(y, x, n);
    check_floats(y, w, n, k->name, "add", r->seed);

    for (int weighted = 0; weighted < 2; weighted++) {
        def->rmsnorm(w, x, weighted ? z : NULL, n, 1e-5f);
        k->rmsnorm(y, x, weighted ? z : NULL, n, 1e-5f);
        check_floats(y, w, n, k->name, "rmsnorm", r->seed);
        put(&got, x);
        k->rmsnorm(y, y, weighted ? z : NULL, n, 1e-5f);
        check_floats(y, w, n, k->name, "rmsnorm in place", r->seed);
    }
    buf_free(&a);
    buf_free(&b);
    buf_free(&got);
    buf_free(&want);
}

/* Any magnitude up to saturated sums of many segments. */
static void check_fixed(const struct kernels *k, struct random *r, size_t n) {
    struct buf fixed = buf_new(n * 8, 8), got = floats_random(r, n, -9, 9),
               want = floats_new(n);
    int64_t *f = (int64_t *)fixed.p;
    for (size_t i = 0; i < n; i++)
        f[i] = (int64_t)random_u64(r) >> random_below(r, 64);
    put(&want, (float *)got.p);
    definition()->fixed_add((float *)want.p, f, n);
    k->fixed_add((float *)got.p, f, n);
    check_floats((float *)got.p, (float *)want.p, n, k->name, "fixed_add", r->seed);
    definition()->fixed_get((float *)want.p, f, n);
    k->fixed_get((float *)got.p, f, n);
    check_floats((float *)got.p, (float *)want.p, n, k->name, "fixed_get", r->seed);
    buf_free(&fixed);
    buf_free(&got);
    buf_free(&want);
}

static void check_rope(const struct kernels *k, struct random *r) {
    uint32_t n_heads = 1 + random_below(r, 3), n_rot = 2 * (1 + random_below(r, 40));
    uint32_t head_dim = n_rot + random_below(r, 9);
    size_t n = (size_t)n_heads * head_dim;
    struct buf x = floats_random(r, n, -3, 3), y = floats_new(n);
    struct buf c = floats_random(r, n_rot / 2, -1, 1), s = floats_random(r, n_rot / 2, -1, 1);
    enum rope_mode mode = random_below(r, 2) ? ROPE_NORM : ROPE_NEOX;
    put(&y, (float *)x.p);
    definition()->rope((float *)x.p, n_heads, head_dim, n_rot, (float *)c.p, (float *)s.p,
                       mode);
    k->rope((float *)y.p, n_heads, head_dim, n_rot, (float *)c.p, (float *)s.p, mode);
    check_floats((float *)y.p, (float *)x.p, n, k->name,
                 mode == ROPE_NORM ? "rope norm" : "rope neox", r->seed);
    buf_free(&x);
    buf_free(&y);
    buf_free(&c);
    buf_free(&s);
}

static void every_isa_gives_the_bits_of_the_definition(void **state) {
    (void)state;
    isa_or_skip();
    FOR_EACH_ISA(k)
    for (uint64_t seed = 0; seed < 30; seed++) {
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
            check_elementwise(k, &(struct random){.seed = seed << 8 | i}, lengths[i]);
            check_fixed(k, &(struct random){.seed = seed << 8 | i}, lengths[i]);
        }
        check_rope(k, &(struct random){.seed = seed});
    }
}

/* exp over its whole range, dense at its ends and where the result is rounded to 1. */
static void every_isa_has_the_exp_of_the_definition(void **state) {
    (void)state;
    isa_or_skip();
    enum { N = 1 << 18 };
    static float x[N], got[N], want[N];
    for (uint32_t i = 0; i < N / 2; i++) {
        uint32_t bits = i * 32771u; /* odd: visits all exponents and signs */
        memcpy(&x[i], &bits, 4);
        x[N / 2 + i] = -90.0f + 180.0f * (float)i / (N / 2);
    }
    static const float ends[] = {EXACT_EXP_MIN, EXACT_EXP_MAX};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            x[3 * i + j] =
                j == 0 ? ends[i] : nextafterf(ends[i], j == 1 ? -INFINITY : INFINITY);
    definition()->exp(want, x, N);
    FOR_EACH_ISA(k) {
        k->exp(got, x, N);
        check_floats(got, want, N, k->name, "exp", 0);
    }
}

/* ---- the definition against double ---------------------------------------------------------- */

static void check_close(double got, double want, double bound, const char *what, size_t i) {
    if (!(fabs(got - want) <= bound))
        fail_msg("%s [%zu]: %.9g, in double %.9g, bound %.3g", what, i, got, want, bound);
}

/* The sum of squares errs by at most n/16 + 5 roundings, its square root by half of that, and
 * five more operations follow: all relative. */
static void rmsnorm_is_a_norm(void **state) {
    (void)state;
    for (size_t l = 0; l < ARRAY_LEN(lengths); l++) {
        size_t n = lengths[l];
        struct random r = {.seed = l};
        float x[257], w[257], y[257];
        double squares = 0;
        for (size_t i = 0; i < n; i++) {
            x[i] = random_float(&r, -3, 3);
            w[i] = random_float(&r, -2, 2);
            squares += (double)x[i] * (double)x[i];
        }
        definition()->rmsnorm(y, x, w, n, 1e-5f);
        double scale = 1 / sqrt(squares / (double)n + (double)1e-5f);
        for (size_t i = 0; i < n; i++) {
            double want = (double)x[i] * scale * (double)w[i];
            check_close((double)y[i], want, fabs(want) * ((double)n / 32 + 10) * 0x1p-24,
                        "rmsnorm", i);
        }
    }
}

/* exp within 1.05 ulp (test_exact.c), then three roundings; what is too small is 0. */
static void swiglu_is_silu_times_up(void **state) {
    (void)state;
    struct random r = {.seed = 1};
    for (size_t i = 0; i < 1000; i++) {
        float gate = random_float(&r, -30, 30), up = random_float(&r, -3, 3), y;
        definition()->swiglu(&y, &gate, &up, 1);
        double want = (double)gate / (1 + exp(-(double)gate)) * (double)up;
        check_close((double)y, want, fabs(want) * 8 * 0x1p-24 + (double)EXACT_LEAST, "swiglu",
                    i);
    }
}

/* Two products and a sum of each pair: within 2 roundings of the pair's magnitude. */
static void rope_turns_pairs(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        enum { HEADS = 3, DIM = 10, ROT = 6 };
        struct random r = {.seed = (uint64_t)mode};
        float x[HEADS * DIM], y[HEADS * DIM], c[ROT / 2], s[ROT / 2];
        for (size_t i = 0; i < HEADS * DIM; i++)
            y[i] = x[i] = random_float(&r, -3, 3);
        for (size_t i = 0; i < ROT / 2; i++) {
            float angle = random_float(&r, -3, 3);
            c[i] = cosf(angle);
            s[i] = sinf(angle);
        }
        definition()->rope(y, HEADS, DIM, ROT, c, s, (enum rope_mode)mode);
        for (size_t h = 0; h < HEADS * DIM; h += DIM) {
            for (size_t i = 0; i < ROT / 2; i++) {
                size_t a = h + (mode == ROPE_NORM ? 2 * i : i);
                size_t b = mode == ROPE_NORM ? a + 1 : a + ROT / 2;
                double x0 = (double)x[a], x1 = (double)x[b], ci = (double)c[i],
                       si = (double)s[i];
                double bound = (fabs(x0) + fabs(x1)) * 2 * 0x1p-24;
                check_close((double)y[a], x0 * ci - x1 * si, bound, "rope", a);
                check_close((double)y[b], x0 * si + x1 * ci, bound, "rope", b);
            }
            for (size_t i = h + ROT; i < h + DIM; i++)
                assert_true(y[i] == x[i]);
        }
    }
}

/* 2^-24 units: exact where f32 can hold the result. */
static void fixed_point_is_exact_where_it_fits(void **state) {
    (void)state;
    const int64_t y[] = {
        0, 1, -1, 1 << 24, -(1 << 24) - 1, INT64_C(1) << 55, (INT64_C(1) << 25) + 1};
    const float want[] = {0, 0x1p-24f, -0x1p-24f, 1, -1, 0x1p31f, 2}; /* the last is a tie */
    float got[ARRAY_LEN(y)];
    definition()->fixed_get(got, y, ARRAY_LEN(y));
    for (size_t i = 0; i < ARRAY_LEN(y); i++)
        assert_true(i == 4 ? got[i] == -1.0f : got[i] == want[i]);
}

/* matmul_fixed rounds to the nearest multiple of 2^-24, ties to even, and saturates. */
static void fixed_point_rounds_and_saturates(void **state) {
    (void)state;
    static const struct {
        float x;
        int64_t fixed;
    } cases[] = {{0x1p-25f, 0},
                 {0x3p-25f, 2},
                 {-0x3p-25f, -2},
                 {0x5p-25f, 2},
                 {1.0f, 1 << 24},
                 {0x1p24f, INT64_C(1) << 48},
                 {0x1.000002p24f, INT64_C(1) << 48},
                 {-0x1p31f, -(INT64_C(1) << 48)},
                 {3e38f, INT64_C(1) << 48},
                 {-INFINITY, -(INT64_C(1) << 48)},
                 {NAN, INT64_C(1) << 48},
                 {-0x1.fffffep23f, -0x1fffffeL * (INT64_C(1) << 23)},
                 {127.99999f, 2147483520},
                 {128.0f, INT64_C(1) << 31}};
    FOR_EACH_TABLE(k)
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        /* One column of weight 1 in every row. */
        _Alignas(64) float tile[TILE_ROWS], x[16];
        int64_t y[TILE_ROWS];
        for (int j = 0; j < TILE_ROWS; j++)
            tile[j] = 1.0f;
        x[0] = cases[i].x;
        struct wmat w = wmat_shape(QT_F32, TILE_ROWS, 1, 0);
        w.tiles = (const uint8_t *)tile;
        k->matmul_fixed(&w, &(struct act){.kind = ACT_F32, .n_tokens = 1, .n_cols = 1, .f = x},
                        y, TILE_ROWS, NULL, 1, 0, 1);
        for (int j = 0; j < TILE_ROWS; j++)
            if (y[j] != cases[i].fixed)
                fail_msg("%s: %a gives %lld", k->name, (double)cases[i].x, (long long)y[j]);
    }
}

/* As many segments as a model may have, each at the limit: the sum is exact, and no addition
 * leaves an int64 (UBSan sees one that does in the definition). */
static void sums_of_saturated_segments_fit(void **state) {
    (void)state;
    static _Alignas(64) float tile[FIXED_TERMS_MAX * TILE_ROWS], x[FIXED_TERMS_MAX];
    const float limits[] = {INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < ARRAY_LEN(tile); i++)
        tile[i] = 1.0f;
    struct wmat w = wmat_shape(QT_F32, TILE_ROWS, FIXED_TERMS_MAX, 0);
    w.tiles = (const uint8_t *)tile;
    const struct act act = {.kind = ACT_F32, .n_tokens = 1, .n_cols = FIXED_TERMS_MAX, .f = x};
    FOR_EACH_TABLE(k)
    for (size_t l = 0; l < ARRAY_LEN(limits); l++) {
        int64_t y[TILE_ROWS], want = FIXED_TERMS_MAX * (INT64_C(1) << 48);
        for (size_t i = 0; i < ARRAY_LEN(x); i++)
            x[i] = limits[l];
        k->matmul_fixed(&w, &act, y, TILE_ROWS, NULL, 1, 0, 1);
        for (int j = 0; j < TILE_ROWS; j++)
            if (y[j] != (limits[l] < 0 ? -want : want))
                fail_msg("%s: %g gives %lld", k->name, (double)limits[l], (long long)y[j]);
    }
}

/* ---- attention --------------------------------------------------------------------------- */

#define MAX_QUERIES (2 * ATTN_TOGETHER + 10)
#define MAX_PAGES 32

struct attn_case {
    struct kv_shape shape;
    uint32_t n_pos, n_queries, kv_head;
    float scale, softcap;
    struct buf page[MAX_PAGES], q, out;
    struct buf k, v; /* [n_pos, n_kv_heads, dim] f32, as stored */
    struct attn_query queries[MAX_QUERIES];
};

static void cache_fill(struct attn_case *c, const struct kernels *k) {
    const struct kv_shape *s = &c->shape;
    size_t bytes = kv_page_bytes(s);
    for (uint32_t i = 0; i * KV_PAGE < c->n_pos; i++) {
        c->page[i] = buf_new(bytes, 64);
        memset(c->page[i].p, 0, bytes); /* as mem_huge_alloc gives them */
    }
    for (uint32_t pos = 0; pos < c->n_pos; pos++)
        k->kv_store(s, c->page[pos / KV_PAGE].p, pos % KV_PAGE,
                    (float *)c->k.p + (size_t)pos * s->n_kv_heads * s->k_dim,
                    s->latent ? NULL
                              : (float *)c->v.p + (size_t)pos * s->n_kv_heads * s->v_dim);
}

static void cache_free(struct attn_case *c) {
    for (uint32_t i = 0; i * KV_PAGE < c->n_pos; i++)
        buf_free(&c->page[i]);
}

/* Spans, windows, a query whose range begins in the middle of a lane group, sinks. */
static struct attn_case attn_random(struct random *r) {
    static const uint32_t dims[] = {1, 8, 16, 24, 64, 72};
    static const uint32_t positions[] = {1, 15, 16, 17, 63, 64, 65, 511, 512, 513, 1030, 1600};
    struct attn_case c = {.n_pos = PICK(r, positions),
                          .softcap = random_below(r, 3) ? 0.0f : 5.0f};
    c.shape = (struct kv_shape){.type = (enum kv_type)random_below(r, KV_N_TYPES),
                                .n_kv_heads = 1 + random_below(r, 3),
                                .k_dim = PICK(r, dims),
                                .v_dim = PICK(r, dims)};
    c.shape.latent = random_below(r, 3) == 0;
    if (c.shape.latent)
        c.shape.v_dim = MIN(c.shape.v_dim, c.shape.k_dim);
    c.n_queries =
        random_below(r, 3) ? 1 + random_below(r, 8) : 1 + random_below(r, MAX_QUERIES);
    c.kv_head = random_below(r, c.shape.n_kv_heads);
    c.scale = 1.0f / sqrtf((float)c.shape.k_dim);
    size_t kv = (size_t)c.n_pos * c.shape.n_kv_heads;
    c.k = floats_random(r, kv * c.shape.k_dim, -3, 3);
    c.v = floats_random(r, kv * c.shape.v_dim, -3, 3);
    for (size_t i = 0; i < kv && c.shape.latent; i++)
        memcpy((float *)c.v.p + i * c.shape.v_dim, (float *)c.k.p + i * c.shape.k_dim,
               c.shape.v_dim * sizeof(float));
    c.q = floats_random(r, c.n_queries * c.shape.k_dim, -3, 3);
    c.out = floats_new(c.n_queries * c.shape.v_dim);
    bool sinks = random_below(r, 3) == 0, windows = random_below(r, 3) == 0;
    uint32_t same_end = random_below(r, 2) ? 1 + random_below(r, c.n_pos) : 0;
    for (uint32_t i = 0; i < c.n_queries; i++) {
        struct attn_query *q = &c.queries[i];
        q->q = (float *)c.q.p + (size_t)i * c.shape.k_dim;
        q->out = (float *)c.out.p + (size_t)i * c.shape.v_dim;
        q->end = same_end ? same_end : 1 + random_below(r, c.n_pos);
        q->begin = windows ? random_below(r, q->end) : 0;
        q->sink = sinks ? random_float(r, -3, 3) : -INFINITY;
    }
    return c;
}

static void attn_free(struct attn_case *c) {
    buf_free(&c->k);
    buf_free(&c->v);
    buf_free(&c->q);
    buf_free(&c->out);
}

static void attn_run(struct attn_case *c, const struct kernels *k) {
    const uint8_t *pages[MAX_PAGES];
    for (uint32_t i = 0; i * KV_PAGE < c->n_pos; i++)
        pages[i] = c->page[i].p;
    struct buf scratch = buf_new(attn_scratch_floats(&c->shape) * 4, 64);
    memset(c->out.p, 0, c->out.n);
    k->attention(&(struct attn_args){.shape = &c->shape,
                                     .kv_head = c->kv_head,
                                     .pages = pages,
                                     .n_queries = c->n_queries,
                                     .queries = c->queries,
                                     .scale = c->scale,
                                     .softcap = c->softcap,
                                     .scratch = (float *)scratch.p});
    buf_free(&scratch);
}

static const char *const kv_names[KV_N_TYPES] = {
    [KV_F16] = "f16", [KV_F32] = "f32", [KV_Q8_0] = "q8_0"};

static void check_attention(const struct kernels *k, uint64_t seed) {
    struct attn_case c = attn_random(&(struct random){.seed = seed});
    cache_fill(&c, definition());
    attn_run(&c, definition());
    struct buf want = floats_new(c.out.n / 4);
    memcpy(want.p, c.out.p, c.out.n);
    uint8_t *first = malloc(c.page[0].n);
    memcpy(first, c.page[0].p, c.page[0].n);
    cache_free(&c);

    cache_fill(&c, k);
    assert_memory_equal(first, c.page[0].p, c.page[0].n);
    attn_run(&c, k);
    char what[128];
    snprintf(what, sizeof what,
             "attention, %s%s, k %u, v %u, %u positions, %u queries, softcap %g",
             kv_names[c.shape.type], c.shape.latent ? ", latent" : "", c.shape.k_dim,
             c.shape.v_dim, c.n_pos, c.n_queries, (double)c.softcap);
    check_floats((float *)c.out.p, (float *)want.p, want.n / 4, k->name, what, seed);
    cache_free(&c);
    free(first);
    buf_free(&want);
    attn_free(&c);
}

static void every_isa_attends_as_the_definition(void **state) {
    (void)state;
    isa_or_skip();
    FOR_EACH_ISA(k)
    for (uint64_t seed = 0; seed < 80; seed++)
        check_attention(k, seed);
}

/* What the cache holds of value d of the n values x, by kernels.h's words. */
static double cached(const struct attn_case *c, const float *x, uint32_t n, uint32_t d) {
    if (c->shape.type == KV_F32)
        return (double)x[d];
    if (c->shape.type == KV_F16)
        return (double)f16_to_f32(f32_to_f16(x[d]));
    float amax = 0;
    for (uint32_t i = d / 32 * 32; i < MIN(n, d / 32 * 32 + 32); i++)
        amax = fmaxf(amax, fabsf(x[i]));
    float scale = f16_to_f32(f32_to_f16(amax / 127));
    float code = rintf(fmaxf(fminf(x[d] / scale, 127), -127));
    /* Half a step, or what the rounding of the scale to f16 (2^-11) lost at the largest. */
    assert_true(fabsf(scale * code - x[d]) <= scale * 0.5f + amax * 0x1p-10f);
    return (double)(scale * code);
}

/* softmax(scale * q.K) V in double.
 *
 * Bound. A logit is a sum of k_dim rounded terms: it errs by (k_dim + 3) * 2^-24 of the sum of its
 * terms' magnitudes, A at most; softcap shrinks that and adds 2^-22 of the cap. So p errs
 * relatively by that, e, twice (numerator and sum), plus exp and the summations over n positions
 * (n + 20 roundings each way); the result errs by that part of the largest |v|. */
static void check_query(const struct attn_case *c, const struct attn_query *q, uint64_t seed) {
    const struct kv_shape *s = &c->shape;
    double sum = 0, out[72] = {0}, e = 0, largest_v = 0;
    double sink = (double)q->sink, top = isfinite(sink) ? sink : -1e300;
    static double logits[1600];
    for (uint32_t pos = q->begin; pos < q->end; pos++) {
        const float *k =
            (float *)c->k.p + ((size_t)pos * s->n_kv_heads + c->kv_head) * s->k_dim;
        double dot = 0, magnitude = 0;
        for (uint32_t d = 0; d < s->k_dim; d++) {
            double term = (double)q->q[d] * cached(c, k, s->k_dim, d);
            dot += term;
            magnitude += fabs(term);
        }
        dot *= (double)c->scale;
        if (c->softcap != 0)
            dot = (double)c->softcap * tanh(dot / (double)c->softcap);
        logits[pos] = dot;
        top = MAX(top, dot);
        e = MAX(e, magnitude * (double)c->scale * (s->k_dim + 3) * 0x1p-24);
    }
    e += (double)c->softcap * 0x1p-22;
    for (uint32_t pos = q->begin; pos < q->end; pos++) {
        const float *k =
            (float *)c->k.p + ((size_t)pos * s->n_kv_heads + c->kv_head) * s->k_dim;
        const float *v =
            (float *)c->v.p + ((size_t)pos * s->n_kv_heads + c->kv_head) * s->v_dim;
        double p = exp(logits[pos] - top);
        sum += p;
        for (uint32_t d = 0; d < s->v_dim; d++) {
            double value = cached(c, s->latent ? k : v, s->latent ? s->k_dim : s->v_dim, d);
            out[d] += p * value;
            largest_v = MAX(largest_v, fabs(value));
        }
    }
    sum += isfinite(sink) ? exp(sink - top) : 0;
    double bound = largest_v * (2 * e + 2 * (q->end - q->begin + 20) * 0x1p-24);
    for (uint32_t d = 0; d < s->v_dim; d++)
        if (!(fabs((double)q->out[d] - out[d] / sum) <= bound))
            fail_msg("attention, seed %llu: [%u] is %.9g, in double %.9g, bound %.3g",
                     (unsigned long long)seed, d, (double)q->out[d], out[d] / sum, bound);
}

static void attention_is_softmax_times_values(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct attn_case c = attn_random(&(struct random){.seed = seed});
        cache_fill(&c, definition());
        attn_run(&c, definition());
        for (uint32_t i = 0; i < c.n_queries; i++)
            check_query(&c, &c.queries[i], seed);
        cache_free(&c);
        attn_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_is_a_norm),
        cmocka_unit_test(swiglu_is_silu_times_up),
        cmocka_unit_test(rope_turns_pairs),
        cmocka_unit_test(fixed_point_is_exact_where_it_fits),
        cmocka_unit_test(fixed_point_rounds_and_saturates),
        cmocka_unit_test(sums_of_saturated_segments_fit),
        cmocka_unit_test(attention_is_softmax_times_values),
        cmocka_unit_test(every_isa_gives_the_bits_of_the_definition),
        cmocka_unit_test(every_isa_has_the_exp_of_the_definition),
        cmocka_unit_test(every_isa_attends_as_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
