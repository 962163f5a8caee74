/* The sampler beside its definition in double, written here from sampler.h's words: the same
 * tokens are kept and the same one is drawn, unless the draw falls within rounding of a border.
 * And the same bits on every instruction set. */
#include "base/rng.h"
#include "base/util.h"
#include "engine/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N 3001
/* f32 exp, good to 2 ulp (2.4e-7), of arguments rounded to f32 (8 * 6e-8), summed: borders
 * nearer than this are no-man's-land. */
#define BORDER 2e-6

static float logits[N];
static int32_t history[64];

/* Bits of the tokens that end a sequence of DRY. */
static uint64_t every_eighth[N / 64 + 1];

static struct engine_sampling off(void) {
    struct engine_sampling s;
    engine_sampling_init(&s);
    s.base.top_k = 0;
    s.base.top_p = 1;
    s.base.min_p = 0;
    s.base.temperature = 1;
    return s;
}

static struct sampler open_sampler(enum isa isa) {
    struct sampler sm;
    struct err err;
    assert_int_equal(sampler_init(&sm, kernels_get(isa), N, N, &err), ST_OK);
    return sm;
}

static void fill(uint64_t seed) {
    for (int i = 0; i < N; i++)
        logits[i] =
            (float)(8 * (rng_uniform(seed, (uint64_t)i) - rng_uniform(seed + 1, (uint64_t)i)));
    for (int i = 0; i < 64; i++)
        history[i] = (int32_t)(rng_u64(seed + 2, (uint64_t)i) % 40);
}

/* ---- the definition ---------------------------------------------------------------------- */

struct option {
    int id;
    double logit, p, key;
};

static int by_logit(const void *a, const void *b) {
    const struct option *x = a, *y = b;
    return x->logit != y->logit ? (x->logit > y->logit ? -1 : 1) : x->id - y->id;
}

static int by_key(const void *a, const void *b) {
    const struct option *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->id - y->id;
}

static double softmax(struct option *o, int n, double temperature) {
    double best = o[0].logit, sum = 0;
    for (int i = 0; i < n; i++)
        best = fmax(best, o[i].logit);
    for (int i = 0; i < n; i++)
        sum += o[i].p = exp((o[i].logit - best) / temperature);
    for (int i = 0; i < n; i++)
        o[i].p /= sum;
    return sum;
}

/* Keeps options in their order until they hold `mass`. */
static int keep_mass(struct option *o, int n, double mass, bool *near) {
    double upto = 0;
    for (int i = 0; i < n; i++) {
        upto += o[i].p;
        *near |= fabs(upto - mass) < BORDER;
        if (upto >= mass)
            return i + 1;
    }
    return n;
}

/* The longest sequence before each place that is also the end of the history; id comes there. */
static int repeats(const struct sampler_input *in, int id) {
    int longest = 0;
    for (size_t at = 1; at < in->n_history; at++) {
        size_t length = 0;
        while (length < at &&
               in->history[at - 1 - length] == in->history[in->n_history - 1 - length] &&
               in->history[at - 1 - length] % 8 != 7)
            length++;
        if (in->history[at] == id && id % 8 != 7)
            longest = MAX(longest, (int)length);
    }
    return longest;
}

static int keep_within(struct option *o, int n, double n_sigma, bool *near) {
    double mean = 0, squares = 0, best = -1e9;
    int kept = 0;
    for (int i = 0; i < n; i++) {
        mean += o[i].logit / n;
        best = fmax(best, o[i].logit);
    }
    for (int i = 0; i < n; i++)
        squares += (o[i].logit - mean) * (o[i].logit - mean) / n;
    for (int i = 0; i < n; i++) {
        double above = o[i].logit - (best - n_sigma * sqrt(squares));
        *near |= fabs(above) < BORDER;
        if (above >= 0)
            o[kept++] = o[i];
    }
    return kept;
}

/* How many of the best are left out. o is ranked and has p. */
static int left_out(const struct option *o, int n, const struct engine_sampling *s,
                    const struct sampler_input *in, bool *near) {
    int likely = 0;
    if (s->xtc_probability == 0 || rng_uniform(in->seed ^ 0x7874632065786330u, in->n_history) >=
                                       (double)s->xtc_probability)
        return 0;
    for (int i = 0; i < n; i++) {
        *near |= fabs(o[i].p - (double)s->xtc_threshold) < BORDER;
        likely += o[i].p >= (double)s->xtc_threshold;
    }
    return MAX(likely - 1, 0);
}

/* What the token is drawn from, best first where the settings rank them. */
static struct option drawn[N];
static int n_drawn;

/* -1: too near to a border to say. */
static int defined(const struct engine_sampling *s, const struct sampler_input *in) {
    static struct option o[N];
    const struct lockstep_sampling *b = &s->base;
    bool near = false;
    int n = 0;
    for (int i = 0; i < N; i++) {
        double v = (double)in->logits[i];
        int count = 0, seen = 0;
        for (size_t j = 0; j < in->n_history; j++) {
            seen += in->history[j] == i && j + (size_t)b->repeat_last_n >= in->n_history;
            count += in->history[j] == i && j >= in->n_prompt;
        }
        if (seen > 0)
            v = v > 0 ? v / (double)b->repeat_penalty : v * (double)b->repeat_penalty;
        if (count > 0)
            v -= (double)s->presence_penalty + count * (double)s->frequency_penalty;
        int again = s->dry.multiplier > 0 ? repeats(in, i) : 0;
        if (again > 0 && again >= s->dry.allowed_length)
            v -= (double)s->dry.multiplier *
                 pow((double)s->dry.base, again - s->dry.allowed_length);
        for (size_t j = 0; j < s->n_biases; j++)
            v += s->biases[j].id == i ? (double)s->biases[j].bias : 0;
        if (in->mask == NULL || (in->mask[i / 64] >> (i % 64) & 1) != 0)
            o[n++] = (struct option){.id = i, .logit = v};
    }
    if (s->top_n_sigma > 0)
        n = keep_within(o, n, (double)s->top_n_sigma, &near);
    bool ranked = b->top_k > 0 || b->top_p < 1 || b->min_p > 0 || s->typical_p < 1 ||
                  s->xtc_probability > 0;
    if (ranked || b->temperature == 0)
        qsort(o, (size_t)n, sizeof *o, by_logit);
    drawn[0] = (struct option){.id = o[0].id, .p = 1};
    n_drawn = 1;
    if (b->temperature == 0)
        return n > 1 && o[0].logit - o[1].logit < BORDER ? -1 : o[0].id;
    if (b->top_k > 0) {
        near |= b->top_k < n && o[b->top_k - 1].logit - o[b->top_k].logit < BORDER;
        n = MIN(n, b->top_k);
    }
    if (s->typical_p < 1) {
        softmax(o, n, 1);
        double entropy = 0;
        for (int i = 0; i < n; i++)
            entropy -= o[i].p * log(o[i].p);
        for (int i = 0; i < n; i++)
            o[i].key = fabs(-log(o[i].p) - entropy);
        qsort(o, (size_t)n, sizeof *o, by_key);
        int kept = keep_mass(o, n, (double)s->typical_p, &near);
        near |= kept < n && o[kept].key - o[kept - 1].key < BORDER;
        n = kept;
        qsort(o, (size_t)n, sizeof *o, by_logit);
    }
    softmax(o, n, 1);
    int by_mass = b->top_p < 1 ? keep_mass(o, n, (double)b->top_p, &near) : n, by_min = n;
    for (int i = n - 1; i > 0; i--) {
        double part = o[i].p / o[0].p;
        near |= fabs(part - (double)b->min_p) < BORDER * (double)b->min_p;
        if (part < (double)b->min_p)
            by_min = i;
    }
    n = MIN(by_mass, by_min);
    softmax(o, n, 1);
    int gone = left_out(o, n, s, in, &near);
    softmax(o + gone, n - gone, (double)b->temperature);
    n_drawn = n - gone;
    memcpy(drawn, o + gone, (size_t)n_drawn * sizeof *o);
    double u = rng_uniform(in->seed, in->n_history), upto = 0;
    for (int i = gone; i < n; i++) {
        upto += o[i].p;
        near |= fabs(upto - u) < BORDER && o[i].p > 0;
        if (upto > u)
            return near ? -1 : o[i].id;
    }
    return -1;
}

/* The chances of what is drawn, and of the likeliest: those of the definition. */
static void check_chances(struct sampler *sm, const struct engine_sampling *s,
                          const struct sampler_input *in, int id) {
    struct engine_top top[5];
    int n;
    float p = sampler_chances(sm, s, in, id, top, ARRAY_LEN(top), &n);
    qsort(drawn, (size_t)n_drawn, sizeof *drawn, by_logit);
    assert_true(n <= (int)ARRAY_LEN(top));
    for (int i = 0; i < n_drawn; i++)
        if (drawn[i].id == id)
            assert_float_equal(p, drawn[i].p, BORDER);
    for (int i = 0; i < n; i++)
        assert_float_equal(top[i].logprob, drawn[i].p, BORDER);
    for (int i = n; i < MIN(n_drawn, (int)ARRAY_LEN(top)); i++)
        assert_true(drawn[i].p < BORDER);
}

/* Compares on many draws; at most a few may be too near to say. */
static void check(const struct engine_sampling *s, const uint64_t *mask) {
    struct sampler sm = open_sampler(ISA_SCALAR);
    int unsure = 0, different = 0, last = -1;
    for (uint64_t draw = 0; draw < 60; draw++) {
        fill(draw / 4 * 10);
        const struct sampler_input in = {.logits = logits,
                                         .mask = mask,
                                         .history = history,
                                         .n_history = 30 + draw % 30,
                                         .n_prompt = 12,
                                         .dry_breakers = every_eighth,
                                         .seed = draw};
        int want = defined(s, &in);
        int got = sampler_next(&sm, s, &in);
        unsure += want < 0;
        different += got != last;
        last = got;
        if (want >= 0) {
            assert_int_equal(got, want);
            check_chances(&sm, s, &in, got);
        }
    }
    /* A vocabulary of 3001 has as many borders: at most every second draw may be near one. */
    assert_true(unsure <= 30);
    assert_true(different > 5);
    sampler_deinit(&sm);
}

static void each_setting_alone(void **state) {
    (void)state;
    static const struct engine_bias biases[] = {{5, 9.5f}, {7, -3}, {3000, 8}};
    struct engine_sampling list[30];
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        list[i] = off();
    n++;
    list[n++].base.temperature = 0;
    list[n++].base.temperature = 0.3f;
    list[n++].base.temperature = 2.5f;
    list[n++].base.top_k = 1000000;
    list[n++].base.top_k = 7;
    list[n++].base.top_p = 0.5f;
    list[n++].base.top_p = 0.99f; /* more than the first 128 candidates */
    list[n++].base.min_p = 0.2f;
    list[n++].base.min_p = 0.001f;
    list[n++].typical_p = 0.3f;
    list[n++].base.repeat_penalty = 1.4f;
    list[n++].presence_penalty = 2.0f;
    list[n++].frequency_penalty = -0.5f;
    list[n++].top_n_sigma = 1.5f;
    list[n++].top_n_sigma = 0.4f;
    list[n].base.top_k = 40;
    list[n].xtc_threshold = 0.02f;
    list[n++].xtc_probability = 0.5f;
    list[n].base.top_k = 12;
    list[n].xtc_threshold = 0.08f;
    list[n++].xtc_probability = 1;
    list[n].dry.multiplier = 3;
    list[n++].dry.allowed_length = 1;
    list[n].biases = biases;
    list[n++].n_biases = ARRAY_LEN(biases);
    for (int i = 0; i < n; i++)
        check(&list[i], NULL);
}

static void settings_together(void **state) {
    (void)state;
    static uint64_t mask[N / 64 + 1];
    for (int i = 0; i < N; i += 3)
        mask[i / 64] |= 1ull << (i % 64);
    struct engine_sampling s;
    engine_sampling_init(&s);
    check(&s, NULL);
    check(&s, mask);
    s.typical_p = 0.8f;
    s.base.repeat_penalty = 0.8f;
    s.frequency_penalty = 0.3f;
    check(&s, mask);
    s.top_n_sigma = 2;
    s.xtc_probability = 0.8f;
    s.xtc_threshold = 0.01f;
    s.dry.multiplier = 0.8f;
    check(&s, mask);
    s = off();
    s.base.temperature = 1.5f;
    check(&s, mask);
    s.base.top_p = 0.9f;
    s.base.min_p = 0.01f;
    check(&s, mask);
}

/* A long sequence cannot come again, short of a breaker; and one that is allowed can. */
static void sequences_end(void **state) {
    (void)state;
    static const int32_t song[] = {1, 2, 3, 4, 5, 6, 9, 1, 2, 3, 4, 5, 6};
    struct sampler sm = open_sampler(ISA_SCALAR);
    struct engine_sampling s = off();
    struct sampler_input in = {.logits = logits, .history = song, .dry_breakers = every_eighth};
    s.base.temperature = 0;
    s.dry.multiplier = 1;
    memset(logits, 0, sizeof logits);
    for (size_t n = 8; n <= ARRAY_LEN(song); n++) {
        const int32_t next = song[n - 7]; /* once more */
        const uint32_t length = (uint32_t)n - 7;
        in.n_history = n;
        logits[next] = 1 + powf(1.75f, (float)length - 2);
        logits[100] = 1.001f; /* as much as is left */
        assert_int_equal(sampler_next(&sm, &s, &in), length < 2 ? next : 100);
        logits[100] = 0.999f;
        assert_int_equal(sampler_next(&sm, &s, &in), next);
        logits[next] = 0;
    }
    s.dry.last_n = 6; /* does not see the first time */
    logits[9] = 5;
    assert_int_equal(sampler_next(&sm, &s, &in), 9);
    s.dry.last_n = INT32_MAX;
    assert_int_equal(sampler_next(&sm, &s, &in), 100);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(sm.counts[i], 0);
    sampler_deinit(&sm);
}

static void one_token_left_is_taken(void **state) {
    (void)state;
    struct sampler sm = open_sampler(ISA_SCALAR);
    struct engine_sampling list[] = {off(), off(), off(), off()};
    list[1].base.temperature = 0;
    list[2].base.top_k = 40;
    list[2].typical_p = 0.5f;
    list[3].base.top_p = 0.9f;
    for (int only = 0; only < N; only += 300)
        for (size_t i = 0; i < ARRAY_LEN(list); i++) {
            uint64_t mask[N / 64 + 1] = {0};
            mask[only / 64] = 1ull << (only % 64);
            fill((uint64_t)only);
            const struct sampler_input in = {
                .logits = logits, .mask = mask, .history = history};
            assert_int_equal(sampler_next(&sm, &list[i], &in), only);
        }
    sampler_deinit(&sm);
}

static void the_same_on_every_instruction_set(void **state) {
    (void)state;
    struct engine_sampling list[3];
    list[0] = off();
    engine_sampling_init(&list[1]);
    list[2] = off();
    list[2].base.top_p = 0.95f;
    struct sampler scalar = open_sampler(ISA_SCALAR);
    for (int isa = 0; isa < ISA_N; isa++) {
        if (kernels_get((enum isa)isa) == NULL)
            continue;
        struct sampler sm = open_sampler((enum isa)isa);
        for (uint64_t draw = 0; draw < 100; draw++)
            for (size_t i = 0; i < ARRAY_LEN(list); i++) {
                fill(draw);
                const struct sampler_input in = {
                    .logits = logits, .history = history, .n_history = 20, .seed = draw};
                int32_t id = sampler_next(&scalar, &list[i], &in);
                assert_int_equal(sampler_next(&sm, &list[i], &in), id);
                struct engine_top a[5], b[5];
                float x = sampler_logprobs(&scalar, logits, id, a, 5);
                float y = sampler_logprobs(&sm, logits, id, b, 5);
                assert_memory_equal(&x, &y, sizeof x);
                assert_memory_equal(a, b, sizeof a);
            }
        sampler_deinit(&sm);
    }
    sampler_deinit(&scalar);
}

/* Rows of the output matrix that belong to no token, however large their logits: as if they
 * were not there. */
static void padding_never_comes(void **state) {
    (void)state;
    enum { TEXT = N - 101 };
    struct sampler all, text;
    struct err err;
    assert_int_equal(sampler_init(&all, kernels_get(ISA_SCALAR), N, TEXT, &err), ST_OK);
    assert_int_equal(sampler_init(&text, kernels_get(ISA_SCALAR), TEXT, TEXT, &err), ST_OK);
    struct engine_sampling s[4] = {off(), off(), off(), off()};
    s[1].base.temperature = 0;
    s[2].base.top_k = 40;
    s[2].base.repeat_penalty = 1.3f;
    s[3].base.top_p = 0.9f;
    s[3].presence_penalty = 0.5f;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct engine_top a[5], b[5];
        fill(seed);
        for (int i = TEXT; i < N; i++)
            logits[i] = 100;
        history[3] = N - 1; /* a prompt may name it */
        struct sampler_input in = {.logits = logits,
                                   .history = history,
                                   .n_history = 64,
                                   .n_prompt = 60,
                                   .seed = seed};
        for (size_t k = 0; k < ARRAY_LEN(s); k++) {
            history[3] = N - 1;
            int32_t id = sampler_next(&all, &s[k], &in);
            assert_true(id < TEXT);
            history[3] = history[4];
            assert_int_equal(id, sampler_next(&text, &s[k], &in));
        }
        assert_true(sampler_logprobs(&all, logits, 5, a, 5) ==
                    sampler_logprobs(&text, logits, 5, b, 5));
        for (int i = 0; i < 5; i++)
            assert_true(a[i].id == b[i].id && a[i].logprob == b[i].logprob);
    }
    sampler_deinit(&all);
    sampler_deinit(&text);
}

/* Greedy: the lowest id of the largest logits, wherever they lie; what is no number is never
 * above another. */
static void greedy_takes_the_first_of_the_largest(void **state) {
    (void)state;
    static const int places[] = {0,   1,   15,   16,   255,   256,  257,
                                 511, 512, 2815, 2816, N - 2, N - 1};
    struct sampler sm = open_sampler(ISA_SCALAR);
    struct engine_sampling s = off();
    s.base.temperature = 0;
    struct sampler_input in = {.logits = logits};
    for (size_t a = 0; a < ARRAY_LEN(places); a++)
        for (size_t b = a; b < ARRAY_LEN(places); b++) {
            for (int i = 0; i < N; i++)
                logits[i] = i % 7 == 3 ? NAN : i % 5 == 1 ? -INFINITY : -3.5f;
            logits[0] = -INFINITY;
            logits[places[a]] = logits[places[b]] = 1e-30f;
            assert_int_equal(sampler_next(&sm, &s, &in), places[a]);
        }
    for (int i = 0; i < N; i++)
        logits[i] = -INFINITY;
    assert_int_equal(sampler_next(&sm, &s, &in), 0);
    sampler_deinit(&sm);
}

int main(void) {
    for (int i = 7; i < N; i += 8)
        every_eighth[i / 64] |= 1ull << (i % 64);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_setting_alone),
        cmocka_unit_test(settings_together),
        cmocka_unit_test(sequences_end),
        cmocka_unit_test(one_token_left_is_taken),
        cmocka_unit_test(the_same_on_every_instruction_set),
        cmocka_unit_test(padding_never_comes),
        cmocka_unit_test(greedy_takes_the_first_of_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
