/* What DeepSeek V4 needs: mixed residual streams and keys of whole blocks, against their formulas
 * in double; every instruction set against the definition for equal bits; pages of few positions
 * against whole ones. */
#include "kernel_fixture.h"

#include "base/util.h"
#include "mixers/indexer.h"
#include "model/block_key.h"
#include "model/stream_mix.h"

#include <math.h>
#include <stdlib.h>

static double sigmoid64(double x) {
    return 1 / (1 + exp(-x));
}

static void check_near(const float *got, const double *want, size_t n, double tolerance,
                       const char *what, uint64_t seed) {
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance))
            fail_msg("%s, seed %llu: [%zu] is %.9g, in double %.9g", what,
                     (unsigned long long)seed, i, (double)got[i], want[i]);
}

/* ---- hyper-connections ---------- */

#define STREAMS HYPER_STREAMS_MAX
#define COEFFICIENTS (STREAMS * (STREAMS + 2))

struct hyper_case {
    struct hyper_args args;
    struct buf streams, m, y;
    float scale[3], base[COEFFICIENTS];
};

static struct hyper_case *hyper_random(uint64_t seed) {
    static const uint32_t widths[] = {1, 15, 16, 17, 64, 65, 200};
    struct hyper_case *c = calloc(1, sizeof *c);
    struct random r = {.seed = seed};
    const uint32_t n = 2 + random_below(&r, STREAMS - 1), e = PICK(&r, widths);
    for (int i = 0; i < 3; i++)
        c->scale[i] = random_float(&r, -1, 1);
    for (int i = 0; i < COEFFICIENTS; i++)
        c->base[i] = random_float(&r, -2, 2);
    c->args = (struct hyper_args){.n = n,
                                  .n_embd = e,
                                  .n_iterations = 1 + random_below(&r, 20),
                                  .eps = 1e-6f,
                                  .rms_eps = 1e-6f,
                                  .scale = c->scale,
                                  .base = c->base};
    c->streams = floats_random(&r, (size_t)n * e, -3, 3);
    c->m = floats_random(&r, (size_t)n * (n + 2), -5, 5);
    c->y = floats_random(&r, e, -3, 3);
    return c;
}

static void hyper_free(struct hyper_case *c) {
    buf_free(&c->streams);
    buf_free(&c->m);
    buf_free(&c->y);
    free(c);
}

static double inverse_rms64(const struct hyper_case *c) {
    const float *s = (float *)c->streams.p;
    const size_t n = c->streams.n / sizeof *s;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)s[i] * (double)s[i];
    return 1 / sqrt(sum / (double)n + (double)c->args.rms_eps);
}

/* [from][to] of logits, in place. */
static void sinkhorn64(double *c, uint32_t n, uint32_t n_iterations, double eps) {
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < n; j++)
            sum += exp(c[i * n + j]);
        for (uint32_t j = 0; j < n; j++)
            c[i * n + j] = exp(c[i * n + j]) / sum + eps;
    }
    for (uint32_t pass = 0; pass < 2 * n_iterations - 1; pass++)
        for (uint32_t i = 0; i < n; i++) {
            double sum = eps;
            for (uint32_t j = 0; j < n; j++)
                sum += pass % 2 == 0 ? c[j * n + i] : c[i * n + j];
            for (uint32_t j = 0; j < n; j++)
                *(pass % 2 == 0 ? &c[j * n + i] : &c[i * n + j]) /= sum;
        }
}

static void coefficients64(const struct hyper_case *c, double *out) {
    const uint32_t n = c->args.n;
    const float *m = (float *)c->m.p;
    const double r = inverse_rms64(c), eps = (double)c->args.eps;
    for (uint32_t i = 0; i < n * (n + 2); i++) {
        double scale = (double)c->scale[i < n ? 0 : i < 2 * n ? 1 : 2];
        double x = (double)m[i] * r * scale + (double)c->base[i];
        out[i] = i < n ? sigmoid64(x) + eps : i < 2 * n ? 2 * sigmoid64(x) : x;
    }
    sinkhorn64(out + 2 * (size_t)n, n, c->args.n_iterations, eps);
}

/* A value of 4 rounds by 2^-22; a sum divides twenty times what has eight terms, each pass by some
 * roundings of 1. */
#define HYPER_TOLERANCE (200 * 0x1p-24)

static void the_coefficients_are_the_formula(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct hyper_case *c = hyper_random(seed);
        double want[COEFFICIENTS];
        float *m = (float *)c->m.p, end[STREAMS];
        memcpy(end, m, c->args.n * sizeof *end);
        coefficients64(c, want);
        hyper_begin(definition(), &c->args, (float *)c->streams.p, m);
        check_near(m, want, c->m.n / sizeof *m, HYPER_TOLERANCE, "hyper_begin", seed);
        hyper_end(definition(), &c->args, (float *)c->streams.p, end);
        check_floats(end, m, c->args.n, "scalar", "hyper_end", seed);
        hyper_free(c);
    }
}

static void every_isa_mixes_as_the_definition(void **state) {
    (void)state;
    isa_or_skip();
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct hyper_case *c = hyper_random(seed);
        float want[COEFFICIENTS], got[COEFFICIENTS];
        memcpy(want, c->m.p, c->m.n);
        hyper_begin(definition(), &c->args, (float *)c->streams.p, want);
        FOR_EACH_ISA(k) {
            memcpy(got, c->m.p, c->m.n);
            hyper_begin(k, &c->args, (float *)c->streams.p, got);
            check_floats(got, want, c->m.n / sizeof *got, k->name, "hyper_begin", seed);
        }
        hyper_free(c);
    }
}

static void streams_are_read_and_written(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct hyper_case *c = hyper_random(seed);
        const uint32_t n = c->args.n, e = c->args.n_embd;
        const float *m = (float *)c->m.p, *y = (float *)c->y.p;
        float *s = (float *)c->streams.p;
        struct buf x = floats_new(e);
        double *read = calloc(e, sizeof *read),
               *written = calloc((size_t)n * e, sizeof *written);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < e; k++)
                read[k] += (double)m[i] * (double)s[i * e + k];
        for (uint32_t j = 0; j < n; j++)
            for (uint32_t k = 0; k < e; k++) {
                written[j * e + k] = (double)m[n + j] * (double)y[k];
                for (uint32_t i = 0; i < n; i++)
                    written[j * e + k] += (double)m[2 * n + i * n + j] * (double)s[i * e + k];
            }
        hyper_read((float *)x.p, m, s, n, e);
        /* Nine terms of at most 15, each rounded, and their sums of at most 135. */
        check_near((float *)x.p, read, e, 18 * 135 * 0x1p-24, "hyper_read", seed);
        hyper_write(s, m + n, m + 2 * (size_t)n, y, n, e);
        check_near(s, written, (size_t)n * e, 18 * 135 * 0x1p-24, "hyper_write", seed);
        free(read);
        free(written);
        buf_free(&x);
        hyper_free(c);
    }
}

/* ---- a key of a block ---------- */

#define ROWS_MAX 128

static void a_key_is_the_formula_on_every_isa(void **state) {
    (void)state;
    static const uint32_t dims[] = {1, 15, 16, 40, 64}, counts[] = {1, 4, 8, 128};
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct random r = {.seed = seed};
        const uint32_t dim = PICK(&r, dims), n = PICK(&r, counts);
        struct buf values = floats_random(&r, (size_t)n * dim, -3, 3),
                   gates = floats_random(&r, (size_t)n * dim, -9, 9), out = floats_new(dim),
                   other = floats_new(dim), scratch = floats_new(3 * (size_t)dim);
        const float *v[ROWS_MAX], *g[ROWS_MAX];
        double want[64] = {0};
        for (uint32_t i = 0; i < n; i++) {
            v[i] = (float *)values.p + (size_t)i * dim;
            g[i] = (float *)gates.p + (size_t)i * dim;
        }
        for (uint32_t c = 0; c < dim; c++) {
            double sum = 0;
            for (uint32_t i = 0; i < n; i++) {
                want[c] += exp((double)g[i][c]) * (double)v[i][c];
                sum += exp((double)g[i][c]);
            }
            want[c] /= sum;
        }
        compress_rows(definition(), (float *)out.p, v, g, n, dim, (float *)scratch.p);
        /* Values of 3; exp errs by 2 roundings and one of its argument, up to 18; 128 sums. */
        check_near((float *)out.p, want, dim, 3 * (20 + 2 * 128) * 0x1p-24, "a key", seed);
        FOR_EACH_ISA(k) {
            compress_rows(k, (float *)other.p, v, g, n, dim, (float *)scratch.p);
            check_floats((float *)other.p, (float *)out.p, dim, k->name, "a key", seed);
        }
        struct buf *all[] = {&values, &gates, &out, &other, &scratch};
        for (size_t i = 0; i < ARRAY_LEN(all); i++)
            buf_free(all[i]);
    }
}

/* ---- pages of few positions ---------- */

static void fill(const struct kernels *k, const struct kv_shape *s, struct buf *page,
                 const float *rows, uint32_t n) {
    *page = buf_new(kv_page_bytes(s), 64);
    memset(page->p, 0, page->n);
    for (uint32_t i = 0; i < n; i++)
        k->kv_store(s, page->p, i, rows + (size_t)i * s->k_dim, rows);
}

/* A page of 16 scores as the first 16 positions of a page of 64 do. */
static void a_page_of_sixteen_scores_as_a_whole_one(void **state) {
    (void)state;
    for (int type = 0; type < KV_N_TYPES; type++)
        FOR_EACH_TABLE(k) {
            struct random r = {.seed = (uint64_t)type};
            const struct kv_shape whole = {
                .type = (enum kv_type)type, .n_kv_heads = 1, .k_dim = 40};
            struct kv_shape few = whole;
            few.n_slots = 16;
            struct buf rows = floats_random(&r, 16 * 40, -3, 3), pages[2],
                       q = floats_random(&r, 3 * 40, -3, 3),
                       weights = floats_random(&r, 3, -2, 2);
            float scores[2][16], scratch[16 * 40];
            const struct kv_shape *shapes[] = {&whole, &few};
            assert_true(kv_page_bytes(&few) <= kv_page_bytes(&whole) / 4 + 64);
            for (int i = 0; i < 2; i++) {
                fill(k, shapes[i], &pages[i], (float *)rows.p, 16);
                const uint8_t *page = pages[i].p;
                const struct index_scores_args a = {.shape = shapes[i],
                                                    .pages = &page,
                                                    .q = (float *)q.p,
                                                    .q_stride = 40,
                                                    .weights = (float *)weights.p,
                                                    .n_heads = 3,
                                                    .end = 16,
                                                    .scores = scores[i],
                                                    .scratch = scratch};
                indexer_kernels_of(k)->scores(&a);
            }
            check_floats(scores[1], scores[0], 16, k->name, "scores", (uint64_t)type);
            struct buf *all[] = {&rows, &q, &weights, &pages[0], &pages[1]};
            for (size_t i = 0; i < ARRAY_LEN(all); i++)
                buf_free(all[i]);
        }
}

/* A latent row of a page of 1 is that of a page of 64, and so are its scales. */
static void a_latent_page_of_one_is_a_row(void **state) {
    (void)state;
    for (int type = 0; type < KV_N_TYPES; type++)
        FOR_EACH_TABLE(k) {
            struct random r = {.seed = (uint64_t)type};
            const struct kv_shape whole = {.type = (enum kv_type)type,
                                           .latent = true,
                                           .n_kv_heads = 1,
                                           .k_dim = 72,
                                           .v_dim = 72};
            struct kv_shape one = whole;
            one.n_slots = 1;
            struct buf rows = floats_random(&r, 72, -3, 3), pages[2];
            const size_t bytes = 80 * kv_value_bytes(whole.type);
            fill(k, &whole, &pages[0], (float *)rows.p, 1);
            fill(k, &one, &pages[1], (float *)rows.p, 1);
            assert_memory_equal(pages[0].p, pages[1].p, bytes);
            if (type == KV_Q8_0)
                assert_memory_equal(pages[0].p + kv_layout(&whole).k_scales,
                                    pages[1].p + kv_layout(&one).k_scales, 3 * 2);
            assert_true(kv_page_bytes(&one) <= bytes + 64);
            buf_free(&rows);
            buf_free(&pages[0]);
            buf_free(&pages[1]);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_coefficients_are_the_formula),
        cmocka_unit_test(every_isa_mixes_as_the_definition),
        cmocka_unit_test(streams_are_read_and_written),
        cmocka_unit_test(a_key_is_the_formula_on_every_isa),
        cmocka_unit_test(a_page_of_sixteen_scores_as_a_whole_one),
        cmocka_unit_test(a_latent_page_of_one_is_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
