/* Microbatches: a step cut in two is the same tokens at the same positions, with the same pages
 * under them. */
#include "base/util.h"
#include "model/microbatch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define WINDOW 100
#define N_MAX 700

/* Where each token of a step lies: what the layers look up. */
struct place {
    int32_t token;
    uint32_t pos, page, window_page;
    uint32_t state; /* that it goes on from */
};

static uint32_t places_of(const struct step *s, struct place *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_runs; i++) {
        const struct step_run *run = &s->runs[i];
        for (uint32_t k = 0; k < run->n_tokens; k++, n++) {
            uint32_t pos = run->pos + k;
            out[n] =
                (struct place){s->tokens[n], pos, s->pages[run->page_begin + pos / KV_PAGE],
                               s->window_pages[run->window_begin + pos / KV_PAGE -
                                               kv_window_first(WINDOW, run->pos)],
                               k == 0 ? run->state_from : run->state};
        }
    }
    return n;
}

/* Runs of so many tokens from such positions on, with pages numbered as they come. */
static struct step make_step(const uint32_t (*runs)[2], uint32_t n_runs, struct step_run *list,
                             int32_t *tokens, uint32_t *pages, uint32_t *window_pages) {
    struct step s = {.n_runs = n_runs,
                     .tokens = tokens,
                     .runs = list,
                     .pages = pages,
                     .window_pages = window_pages};
    for (uint32_t i = 0; i < n_runs; i++) {
        uint32_t pos = runs[i][0], end = pos + runs[i][1];
        list[i] = (struct step_run){pos,
                                    runs[i][1],
                                    s.n_pages,
                                    s.n_window_pages,
                                    .state_from = 2 * i,
                                    .state = 2 * i + 1};
        for (uint32_t p = 0; p < div_up(end, KV_PAGE); p++)
            pages[s.n_pages++] = 100 * i + p;
        for (uint32_t p = kv_window_first(WINDOW, pos); p < div_up(end, KV_PAGE); p++)
            window_pages[s.n_window_pages++] = 5000 + 100 * i + p;
        for (uint32_t t = 0; t < runs[i][1]; t++)
            tokens[s.n_tokens++] = (int32_t)(1000 * i + t);
    }
    return s;
}

static void the_microbatches_are_the_step(void **state) {
    (void)state;
    static const uint32_t one[][2] = {{0, 512}}, odd[][2] = {{333, 121}},
                          many[][2] = {{5, 1}, {0, 130}, {700, 3}, {64, 60}, {9, 1}},
                          even[][2] = {{0, 60}, {0, 60}};
    const struct {
        const uint32_t (*runs)[2];
        uint32_t n;
    } steps[] = {{one, 1}, {odd, 1}, {many, 5}, {even, 2}};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        for (uint32_t n_microbatches = 1; n_microbatches <= MICROBATCHES_MAX;
             n_microbatches++) {
            static struct place whole[N_MAX], microbatches[N_MAX];
            static int32_t tokens[N_MAX];
            uint32_t pages[64], window_pages[64];
            struct step_run list[8], cut[8 + MICROBATCHES_MAX - 1];
            struct step s =
                make_step(steps[i].runs, steps[i].n, list, tokens, pages, window_pages);
            struct microbatch w[MICROBATCHES_MAX];
            microbatch_cut(w, n_microbatches, &s, WINDOW, cut);
            assert_int_equal(places_of(&s, whole), s.n_tokens);
            uint32_t n = 0;
            for (uint32_t k = 0; k < n_microbatches; k++) {
                assert_int_equal(w[k].first, n);
                assert_int_equal(places_of(&w[k].step, microbatches + n), w[k].step.n_tokens);
                assert_true(n_microbatches == 1 || w[k].step.n_tokens >= MICROBATCH_LEAST);
                n += w[k].step.n_tokens;
                assert_true(k + 1 == n_microbatches || n % ACT_GROUP == 0);
            }
            assert_int_equal(n, s.n_tokens);
            assert_memory_equal(microbatches, whole, n * sizeof *whole);
        }
}

static void microbatches_must_hide_more_than_they_cost(void **state) {
    (void)state;
    const uint64_t GB = 1000000000;
    uint32_t least = MICROBATCHES_MAX * MICROBATCH_LEAST;
    assert_int_equal(microbatch_worth(0, 16, 0), least);
    assert_int_equal(microbatch_worth(GB / 10, 16, 1000000), least); /* 10 ms against 32 */
    /* 100 ms of reading; 20 layers hide 40 sums, of 60 tokens 4 ms: 25 times 60 tokens hide as
     * much. */
    assert_int_equal(microbatch_worth(GB, 20, 100000), 25 * MICROBATCH_LEAST);
    assert_int_equal(microbatch_worth(1000000 * GB, 1, 0), UINT32_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_microbatches_are_the_step),
        cmocka_unit_test(microbatches_must_hide_more_than_they_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
