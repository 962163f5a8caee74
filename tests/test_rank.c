/* The ranks of a model as processes of their own that share a group, opened without an engine:
 * one loads for much longer than the others may wait in a call. */
#include "fabric_ranks.h"

#include "base/mem.h"
#include "engine/rank.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define COMPUTE_MS 1000
#define N_CTX 64

/* Once, in the middle of loading: for longer than COMPUTE_MS. */
static void dawdle(void *once, double fraction) {
    (void)fraction;
    if (*(bool *)once)
        usleep(2500000);
    *(bool *)once = false;
}

static enum status load_and_work(struct rank *r, struct fabric *f, const char *parallel,
                                 struct err *err) {
    bool slow = fabric_rank(f) == 1;
    struct job job = {.rank = fabric_rank(f),
                      .n_ranks = fabric_n_ranks(f),
                      .n_threads = 1,
                      .n_ctx = N_CTX,
                      .n_chunk = N_CTX,
                      .n_runs = 1,
                      .n_pages = {N_CTX / KV_PAGE, 0}};
    const struct rank_hooks hooks = {.progress = dawdle, .user = &slow};
    job.model_path = mem_strdup(SOURCE_DIR "/models/jargon-3m-f16.gguf");
    TRY(plan_parse_parallel(parallel, job.n_ranks, &job.tp, &job.pp, err));
    TRY(rank_init(r, &job, NULL, err));
    r->f = f;
    TRY(rank_load(r, -1, &hooks, err));
    EXPECT(!slow, "it has not dawdled");
    if (fabric_rank(f) != 0)
        return rank_follow(r, err);
    struct rank_report reports[PLAN_MAX_RANKS];
    TRY(rank_lead_reports(r, reports, err));
    rank_lead_close(r);
    return ST_OK;
}

static void run_ranks(struct ranks *group, struct fabric *f) {
    struct rank r = {0};
    struct err err = {""};
    enum status st = load_and_work(&r, f, group->arg, &err);
    EXPECT_SOON(st == ST_OK || (strstr(err.text, "has been silent for") == NULL &&
                                strstr(err.text, "lives but has sent nothing") == NULL),
                "%s", err.text);
    EXPECT(st == ST_OK, "%s", err.text);
    r.f = NULL; /* its owner closes it */
    rank_close(&r);
}

static void who_loads_for_long_is_waited_for(void **state) {
    (void)state;
    static const char *const parallel[] = {"tensor", "pipeline"};
    for (size_t i = 0; i < ARRAY_LEN(parallel); i++) {
        struct ranks r;
        ranks_init(&r, 2, FABRIC_LINK_AUTO);
        r.cfg.compute_ms = COMPUTE_MS;
        r.run = run_ranks;
        r.arg = parallel[i];
        assert_true(ranks_succeed(&r));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_loads_for_long_is_waited_for),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
