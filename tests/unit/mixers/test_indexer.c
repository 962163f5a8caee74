/* Attention with a choice of keys: scores, the choice, attention to what was chosen. Every
 * instruction set against the definition for equal bits; the definition against the same formulas
 * in double, and against kernels.h's attention where everything is chosen; the choice against a
 * sort. */
#include "kernel_fixture.h"

#include "base/util.h"
#include "mixers/indexer.h"

#include <math.h>
#include <stdlib.h>

#define MAX_PAGES 32

/* A cache with n_pos positions of random keys and values. */
struct cache {
    struct kv_shape shape;
    uint32_t n_pos;
    struct buf page[MAX_PAGES], k, v;
    const uint8_t *pages[MAX_PAGES];
};

static void cache_fill(struct cache *c, struct random *r) {
    const struct kv_shape *s = &c->shape;
    c->k = floats_random(r, (size_t)c->n_pos * s->n_kv_heads * s->k_dim, -3, 3);
    c->v = floats_random(r, (size_t)c->n_pos * s->n_kv_heads * s->v_dim, -3, 3);
    for (uint32_t i = 0; i * KV_PAGE < c->n_pos; i++) {
        c->page[i] = buf_new(kv_page_bytes(s), 64);
        memset(c->page[i].p, 0, c->page[i].n);
        c->pages[i] = c->page[i].p;
    }
    for (uint32_t pos = 0; pos < c->n_pos; pos++)
        definition()->kv_store(s, c->page[pos / KV_PAGE].p, pos % KV_PAGE,
                               (float *)c->k.p + (size_t)pos * s->n_kv_heads * s->k_dim,
                               (float *)c->v.p + (size_t)pos * s->n_kv_heads * s->v_dim);
}

static void cache_free(struct cache *c) {
    for (uint32_t i = 0; i * KV_PAGE < c->n_pos; i++)
        buf_free(&c->page[i]);
    buf_free(&c->k);
    buf_free(&c->v);
}

static const uint32_t dims[] = {1, 8, 24, 40, 64, 72};
static const uint32_t positions_of[] = {1, 15, 16, 17, 63, 65, 511, 513, 1030, 1600};

/* ---- scores -------------------------------------------------------------------------------- */

struct scores_case {
    struct cache cache;
    uint32_t n_heads, begin;
    bool weighted;
    struct buf q, weights;
};

static struct scores_case scores_random(uint64_t seed) {
    struct random r = {.seed = seed};
    struct scores_case c = {.n_heads = 1 + random_below(&r, 9),
                            .weighted = random_below(&r, 3)};
    c.n_heads = c.weighted ? c.n_heads : 1;
    c.cache.n_pos = PICK(&r, positions_of);
    c.cache.shape = (struct kv_shape){.type = (enum kv_type)random_below(&r, KV_N_TYPES),
                                      .n_kv_heads = 1,
                                      .k_dim = PICK(&r, dims)};
    c.begin = random_below(&r, c.cache.n_pos) & ~15u;
    cache_fill(&c.cache, &r);
    c.q = floats_random(&r, (size_t)c.n_heads * c.cache.shape.k_dim, -3, 3);
    c.weights = floats_random(&r, c.n_heads, -2, 2);
    return c;
}

/* Of all positions; those before c->begin stay 0. */
static struct buf scores_run(const struct scores_case *c, const struct kernels *k) {
    const size_t k_dim = c->cache.shape.k_dim;
    struct buf scores = floats_new(round_up(c->cache.n_pos, 16)),
               scratch = buf_new(16 * k_dim * sizeof(float), 64);
    memset(scores.p, 0, scores.n);
    const struct index_scores_args a = {.shape = &c->cache.shape,
                                        .pages = c->cache.pages,
                                        .q = (float *)c->q.p,
                                        .q_stride = k_dim,
                                        .weights = c->weighted ? (float *)c->weights.p : NULL,
                                        .n_heads = c->n_heads,
                                        .begin = c->begin,
                                        .end = c->cache.n_pos,
                                        .scores = (float *)scores.p,
                                        .scratch = (float *)scratch.p};
    indexer_kernels_of(k)->scores(&a);
    buf_free(&scratch);
    return scores;
}

static void scores_free(struct scores_case *c) {
    cache_free(&c->cache);
    buf_free(&c->q);
    buf_free(&c->weights);
}

/* The keys as they were stored: f32 caches only. */
static void scores_are_the_formula(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++) {
        struct scores_case c = scores_random(seed);
        const uint32_t k_dim = c.cache.shape.k_dim;
        struct buf got = scores_run(&c, definition());
        for (uint32_t pos = c.begin; pos < c.cache.n_pos && c.cache.shape.type == KV_F32;
             pos++) {
            double sum = 0, most = 0;
            for (uint32_t h = 0; h < c.n_heads; h++) {
                double dot = 0;
                for (uint32_t d = 0; d < k_dim; d++)
                    dot += (double)((float *)c.q.p)[h * k_dim + d] *
                           (double)((float *)c.cache.k.p)[(size_t)pos * k_dim + d];
                sum = !c.weighted
                          ? dot
                          : sum + (double)((float *)c.weights.p)[h] * (dot > 0 ? dot : 0);
                most += 2 * 9.0 * k_dim;
            }
            /* k_dim + n_heads roundings of sums of at most `most` */
            assert_true(fabs(sum - (double)((float *)got.p)[pos]) <=
                        most * (k_dim + c.n_heads) * 0x1p-24);
        }
        buf_free(&got);
        scores_free(&c);
    }
}

static void every_isa_scores_as_the_definition(void **state) {
    (void)state;
    isa_or_skip();
    FOR_EACH_ISA(k)
    for (uint64_t seed = 0; seed < 120; seed++) {
        struct scores_case c = scores_random(seed);
        struct buf want = scores_run(&c, definition()), got = scores_run(&c, k);
        check_floats((float *)got.p, (float *)want.p, c.cache.n_pos, k->name, "scores", seed);
        buf_free(&want);
        buf_free(&got);
        scores_free(&c);
    }
}

/* ---- the choice ------------------------------------------------------------------------------ */

struct scored {
    float score;
    uint32_t i;
};

static int better_first(const void *a_, const void *b_) {
    const struct scored *a = a_, *b = b_;
    if (isnan(a->score) != isnan(b->score))
        return isnan(a->score) ? 1 : -1;
    if (a->score != b->score && !isnan(a->score))
        return a->score > b->score ? -1 : 1;
    return a->i < b->i ? -1 : 1;
}

static int by_index(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void check_choice(const float *scores, uint32_t n, uint32_t k) {
    uint32_t *got = malloc((k + 1) * sizeof *got), want[700];
    struct scored sorted[700];
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = (struct scored){scores[i], i};
    qsort(sorted, n, sizeof *sorted, better_first);
    for (uint32_t i = 0; i < MIN(n, k); i++)
        want[i] = sorted[i].i;
    qsort(want, MIN(n, k), sizeof *want, by_index);
    assert_int_equal(index_select(scores, n, k, got), MIN(n, k));
    assert_memory_equal(got, want, MIN(n, k) * sizeof *want);
    free(got);
}

static void the_choice_is_the_beginning_of_a_sort(void **state) {
    (void)state;
    static const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 1e-45f};
    static const uint32_t sizes[] = {1, 2, 16, 17, 100, 699};
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct random r = {.seed = seed};
        uint32_t n = PICK(&r, sizes), kind = random_below(&r, 3);
        float scores[700];
        for (uint32_t i = 0; i < n; i++)
            scores[i] = kind == 0   ? random_float(&r, -4, 4)
                        : kind == 1 ? (float)random_below(&r, 5) - 2.0f
                                    : PICK(&r, special);
        check_choice(scores, n, random_below(&r, n + 3));
        check_choice(scores, n, n);
    }
}

static void of_equal_scores_the_first_win(void **state) {
    (void)state;
    const float scores[] = {1, 2, 2, -0.0f, 2, 0.0f};
    uint32_t chosen[6];
    assert_int_equal(index_select(scores, 6, 2, chosen), 2);
    assert_int_equal(chosen[0], 1);
    assert_int_equal(chosen[1], 2);
    assert_int_equal(index_select(scores, 6, 5, chosen), 5);
    assert_int_equal(chosen[4], 4); /* the -0 of index 3 equals the 0 of index 5 */
    assert_int_equal(index_select(scores, 0, 5, chosen), 0);
}

/* ---- attention to what was chosen ------------------------------------------------------------ */

struct chosen_case {
    struct cache cache;
    uint32_t kv_head, n, n_queries;
    uint32_t positions[1600];
    float scale;
    struct buf q, out;
    struct attn_query queries[ATTN_TOGETHER];
};

static void choose(struct chosen_case *c, struct random *r, bool all) {
    uint32_t one_of = 1 + random_below(r, 20), kind = random_below(r, 3);
    for (uint32_t pos = 0; pos < c->cache.n_pos; pos++)
        if (all || (kind == 0   ? random_below(r, one_of) == 0
                    : kind == 1 ? pos / 8 % one_of == 0               /* blocks */
                                : pos / 128 % (1 + one_of % 4) == 0)) /* whole tiles */
            c->positions[c->n++] = pos;
    if (c->n == 0)
        c->positions[c->n++] = random_below(r, c->cache.n_pos);
}

static struct chosen_case *chosen_random(uint64_t seed, bool all) {
    struct random r = {.seed = seed};
    struct chosen_case *c = calloc(1, sizeof *c);
    struct kv_shape *s = &c->cache.shape;
    c->cache.n_pos = PICK(&r, positions_of);
    *s = (struct kv_shape){.type = (enum kv_type)random_below(&r, KV_N_TYPES),
                           .latent = random_below(&r, 2),
                           .n_kv_heads = 1 + random_below(&r, 3),
                           .k_dim = PICK(&r, dims),
                           .v_dim = PICK(&r, dims)};
    if (s->latent)
        s->v_dim = MIN(s->v_dim, s->k_dim);
    cache_fill(&c->cache, &r);
    c->kv_head = random_below(&r, s->n_kv_heads);
    c->n_queries = 1 + random_below(&r, random_below(&r, 2) ? 7 : ATTN_TOGETHER);
    c->scale = 1.0f / sqrtf((float)s->k_dim);
    c->q = floats_random(&r, (size_t)c->n_queries * s->k_dim, -3, 3);
    c->out = floats_new((size_t)c->n_queries * s->v_dim);
    bool sinks = random_below(&r, 3) == 0;
    for (uint32_t i = 0; i < c->n_queries; i++)
        c->queries[i] =
            (struct attn_query){.q = (float *)c->q.p + (size_t)i * s->k_dim,
                                .out = (float *)c->out.p + (size_t)i * s->v_dim,
                                .end = c->cache.n_pos,
                                .sink = sinks ? random_float(&r, -3, 3) : -INFINITY};
    choose(c, &r, all);
    return c;
}

static void chosen_free(struct chosen_case *c) {
    cache_free(&c->cache);
    buf_free(&c->q);
    buf_free(&c->out);
    free(c);
}

static void chosen_run(struct chosen_case *c, const struct kernels *k) {
    struct buf scratch = buf_new(chosen_scratch_floats(&c->cache.shape) * 4, 64);
    memset(c->out.p, 0, c->out.n);
    const struct chosen_args a = {.shape = &c->cache.shape,
                                  .kv_head = c->kv_head,
                                  .pages = c->cache.pages,
                                  .positions = c->positions,
                                  .n = c->n,
                                  .n_queries = c->n_queries,
                                  .queries = c->queries,
                                  .scale = c->scale,
                                  .scratch = (float *)scratch.p};
    indexer_kernels_of(k)->attend(&a);
    buf_free(&scratch);
}

static void attention_run(struct chosen_case *c, const struct kernels *k) {
    struct buf scratch = buf_new(attn_scratch_floats(&c->cache.shape) * 4, 64);
    memset(c->out.p, 0, c->out.n);
    k->attention(&(struct attn_args){.shape = &c->cache.shape,
                                     .kv_head = c->kv_head,
                                     .pages = c->cache.pages,
                                     .n_queries = c->n_queries,
                                     .queries = c->queries,
                                     .scale = c->scale,
                                     .scratch = (float *)scratch.p});
    buf_free(&scratch);
}

static struct buf taken(const struct chosen_case *c) {
    struct buf b = floats_new(c->out.n / 4);
    memcpy(b.p, c->out.p, c->out.n);
    return b;
}

static void to_choose_all_is_to_choose_nothing(void **state) {
    (void)state;
    FOR_EACH_TABLE(k)
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct chosen_case *c = chosen_random(seed, true);
        attention_run(c, k);
        struct buf want = taken(c);
        chosen_run(c, k);
        check_floats((float *)c->out.p, (float *)want.p, want.n / 4, k->name, "all chosen",
                     seed);
        buf_free(&want);
        chosen_free(c);
    }
}

static void every_isa_attends_as_the_definition(void **state) {
    (void)state;
    isa_or_skip();
    FOR_EACH_ISA(k)
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct chosen_case *c = chosen_random(seed, false);
        chosen_run(c, definition());
        struct buf want = taken(c);
        chosen_run(c, k);
        check_floats((float *)c->out.p, (float *)want.p, want.n / 4, k->name, "some chosen",
                     seed);
        buf_free(&want);
        chosen_free(c);
    }
}

/* A dimension of a key or value in an f32 cache. */
static double stored(const struct chosen_case *c, const struct buf *b, uint32_t dim,
                     uint32_t pos, uint32_t d) {
    const struct kv_shape *s = &c->cache.shape;
    return (double)((float *)b->p)[((size_t)pos * s->n_kv_heads + c->kv_head) * dim + d];
}

static void check_query(const struct chosen_case *c, const struct attn_query *q,
                        uint64_t seed) {
    const struct kv_shape *s = &c->cache.shape;
    double logits[1600], top = isfinite(q->sink) ? (double)q->sink : -1e30, sum, out[80] = {0};
    for (uint32_t i = 0; i < c->n; i++) {
        logits[i] = 0;
        for (uint32_t d = 0; d < s->k_dim; d++)
            logits[i] += (double)q->q[d] * stored(c, &c->cache.k, s->k_dim, c->positions[i], d);
        logits[i] *= (double)c->scale;
        top = MAX(top, logits[i]);
    }
    sum = isfinite(q->sink) ? exp((double)q->sink - top) : 0;
    for (uint32_t i = 0; i < c->n; i++) {
        double p = exp(logits[i] - top);
        sum += p;
        for (uint32_t d = 0; d < s->v_dim; d++)
            out[d] += p * (s->latent ? stored(c, &c->cache.k, s->k_dim, c->positions[i], d)
                                     : stored(c, &c->cache.v, s->v_dim, c->positions[i], d));
    }
    /* A logit of up to 9 sqrt(72) is off by 72 roundings of it, so p by as much; then 1600 more. */
    for (uint32_t d = 0; d < s->v_dim; d++)
        if (!(fabs((double)q->out[d] - out[d] / sum) <= 3 * (2 * 72 * 77 + 3300) * 0x1p-24))
            fail_msg("seed %llu: [%u] is %.9g, in double %.9g", (unsigned long long)seed, d,
                     (double)q->out[d], out[d] / sum);
}

static void attention_sees_what_is_chosen(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++) {
        struct chosen_case *c = chosen_random(seed, false);
        chosen_run(c, definition());
        for (uint32_t i = 0; i < c->n_queries && c->cache.shape.type == KV_F32; i++)
            check_query(c, &c->queries[i], seed);
        chosen_free(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_the_formula),
        cmocka_unit_test(every_isa_scores_as_the_definition),
        cmocka_unit_test(the_choice_is_the_beginning_of_a_sort),
        cmocka_unit_test(of_equal_scores_the_first_win),
        cmocka_unit_test(to_choose_all_is_to_choose_nothing),
        cmocka_unit_test(every_isa_attends_as_the_definition),
        cmocka_unit_test(attention_sees_what_is_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
