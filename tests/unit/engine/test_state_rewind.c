/* The library's one sequence on models with recurrent layers, with an indexer's keys, with keys of
 * whole blocks of positions (deepseek4), and with layers that use the cache of others: wherever a
 * prompt departs from what was fed before, the answer is that of a sequence that was fed nothing
 * before; and what is fed again is what lies behind the last snapshot. */
#include "base/util.h"
#include "lockstep/lockstep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL(name) SHARED_DIR "/golden/logits/" name ".gguf"
static const char *const models[] = {MODEL("qwen35"), MODEL("deepseek4")};
/* These in chunks of one size: a decay for each channel, Mamba-2 of one and of two groups, short
 * convolutions, an indexer of positions and one of blocks, shared caches. */
static const char *const others[] = {
    MODEL("kimi-linear"), MODEL("nemotron_h"), MODEL("granitehybrid"), MODEL("lfm2"),
    MODEL("glm-dsa"),     MODEL("minimax-m3"), MODEL("gemma4-ple"),
};
enum { N_PREDICT = 12, N_MOST = 700 };

static struct lockstep *open_model(const char *model, int n_chunk) {
    struct lockstep_options opt;
    struct lockstep_error err;
    struct lockstep *ls = NULL;
    lockstep_options_init(&opt);
    opt.model_path = model;
    opt.n_threads = 2;
    opt.n_chunk = n_chunk;
    if (lockstep_open(&ls, &opt, &err) != LOCKSTEP_OK)
        fail_msg("%s", err.text);
    return ls;
}

struct answer {
    int32_t ids[N_PREDICT];
    size_t n, n_cached;
};

static bool keep(void *user, int32_t id, const char *text, size_t len) {
    struct answer *a = user;
    (void)text;
    (void)len;
    a->ids[a->n++] = id;
    return true;
}

static struct answer answer_to(struct lockstep *ls, const int32_t *ids, size_t n) {
    struct answer a = {.n = 0};
    struct lockstep_request req;
    struct lockstep_sampling greedy;
    struct lockstep_result result;
    struct lockstep_error err;
    lockstep_request_init(&req);
    req.ids = ids;
    req.n_ids = n;
    req.n_predict = N_PREDICT;
    req.ignore_end = true;
    lockstep_sampling_init(&greedy);
    greedy.temperature = 0;
    req.sampling = &greedy;
    req.on_token = keep;
    req.user = &a;
    if (lockstep_generate(ls, &req, &result, &err) != LOCKSTEP_OK)
        fail_msg("%s", err.text);
    a.n_cached = result.n_cached;
    return a;
}

static void check_model(const char *model, int chunk_begin, int chunk_end) {
    /* A prompt is so many tokens of the first one's beginning, and others behind them. */
    static const struct {
        size_t n_same, n_all;
    } prompts[] = {{0, 150},   {150, 300}, {140, 200}, {60, 64},  {60, 65},
                   {64, 600},  {590, 610}, {0, 1},     {0, 640},  {640, 660},
                   {639, 641}, {3, 130},   {130, 131}, {129, 150}};
    for (int n_chunk = chunk_begin; n_chunk <= chunk_end; n_chunk += 50) {
        struct lockstep *used = open_model(model, n_chunk);
        int32_t ids[N_MOST] = {0};
        for (size_t i = 0; i < ARRAY_LEN(prompts); i++) {
            for (size_t k = prompts[i].n_same; k < prompts[i].n_all; k++)
                ids[k] = (int32_t)(10 + (k * 7919 + i * 31 + k * k) % 240);
            struct lockstep *fresh = open_model(model, 0);
            struct answer want = answer_to(fresh, ids, prompts[i].n_all);
            struct answer got = answer_to(used, ids, prompts[i].n_all);
            lockstep_close(fresh);
            assert_int_equal(got.n, want.n);
            assert_memory_equal(got.ids, want.ids, want.n * sizeof *want.ids);
            assert_true(got.n_cached <= prompts[i].n_same);
        }
        lockstep_close(used);
    }
}

static void answers_do_not_depend_on_what_was_fed_before(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(models); i++)
        if (access(models[i], R_OK) == 0) /* a clone has not all of them */
            check_model(models[i], 0, 100);
}

static void nor_with_other_kinds_of_states_and_caches(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (access(others[i], R_OK) == 0)
            check_model(others[i], 50, 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_do_not_depend_on_what_was_fed_before),
        cmocka_unit_test(nor_with_other_kinds_of_states_and_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
