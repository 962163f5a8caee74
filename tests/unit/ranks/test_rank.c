/* The ranks of a model as processes of their own that share a group, opened without an engine:
 * one loads for much longer than the others may wait in a call; a stage is lost while a thread is
 * late.
 * labels: waits */
#include "fabric_ranks.h"

#include "base/mem.h"
#include "model/sequence_shard.h"
#include "ranks/rank.h"

#include <pthread.h>

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
    struct err err = {.text = ""};
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

/* ---- a stage that is lost while a thread is late ------------------------------------------ */

#ifdef HAS_WRAPPED_FORWARD
/* forward.c calls these instead (tests/CMakeLists.txt). */
void __real_pool_barrier(struct pool *pool);
void __wrap_pool_barrier(struct pool *pool);
enum status __real_fabric_send(struct fabric *f, int to, const void *buf, size_t n_bytes,
                               struct err *err);
enum status __wrap_fabric_send(struct fabric *f, int to, const void *buf, size_t n_bytes,
                               struct err *err);
enum status __real_fabric_recv(struct fabric *f, int from, void *buf, size_t n_bytes,
                               struct err *err);
enum status __wrap_fabric_recv(struct fabric *f, int from, void *buf, size_t n_bytes,
                               struct err *err);

/* Written before the threads start. */
static bool holds;
static const char *gone; /* a stage, in the eyes of the other: "next" or "previous" */
static pthread_t leader;

/* Every thread but the first is late out of each barrier: what it reads there must not have been
 * changed by the first, which is one phase further. */
void __wrap_pool_barrier(struct pool *pool) {
    __real_pool_barrier(pool);
    if (holds && !pthread_equal(pthread_self(), leader))
        usleep(5000);
}

static enum status is_gone(struct err *err) {
    return err_set(err, ST_PEER_LOST, "the %s stage is gone", gone);
}

enum status __wrap_fabric_send(struct fabric *f, int to, const void *buf, size_t n_bytes,
                               struct err *err) {
    return holds && strcmp(gone, "next") == 0 ? is_gone(err)
                                              : __real_fabric_send(f, to, buf, n_bytes, err);
}

/* At once, as where the message is there already and is damaged. */
enum status __wrap_fabric_recv(struct fabric *f, int from, void *buf, size_t n_bytes,
                               struct err *err) {
    return holds && strcmp(gone, "previous") == 0
               ? is_gone(err)
               : __real_fabric_recv(f, from, buf, n_bytes, err);
}

#define N_SHARDED SHARD_LEAST

static enum status step_of_many(struct rank *r, struct err *err) {
    int32_t tokens[N_SHARDED];
    const uint32_t pages[] = {0}, outputs[] = {N_SHARDED - 1};
    const struct step_run run = {.n_tokens = N_SHARDED};
    const struct step step = {.n_tokens = N_SHARDED,
                              .n_runs = 1,
                              .n_pages = 1,
                              .n_outputs = 1,
                              .tokens = tokens,
                              .runs = &run,
                              .pages = pages,
                              .outputs = outputs};
    for (int i = 0; i < N_SHARDED; i++)
        tokens[i] = 5 + i;
    return rank_lead_step(r, &step, NULL, err);
}

static void run_late(struct ranks *group, struct fabric *f) {
    struct rank r = {0};
    struct err err = {.text = ""};
    struct job job = {.rank = fabric_rank(f),
                      .n_ranks = group->n,
                      .tp = 2,
                      .pp = 2,
                      .n_threads = 2,
                      .n_ctx = N_CTX,
                      .n_chunk = N_CTX,
                      .n_runs = 1,
                      .n_pages = {N_CTX / KV_PAGE, 0}};
    job.model_path = mem_strdup(SOURCE_DIR "/models/jargon-3m-f16.gguf");
    holds = true;
    gone = group->arg;
    leader = pthread_self();
    enum status st = rank_init(&r, &job, NULL, &err);
    r.f = f;
    if (st == ST_OK)
        st = rank_load(&r, -1, &(struct rank_hooks){0}, &err);
    EXPECT(st == ST_OK, "%s", err.text);
    st = fabric_rank(f) == 0 ? step_of_many(&r, &err) : rank_follow(&r, &err);
    EXPECT(st == ST_PEER_LOST, "%s: %s", status_name(st), err.text);
    r.f = NULL; /* its owner closes it */
    rank_close(&r);
}

static void a_late_thread_leaves_with_the_others(void **state) {
    (void)state;
    static const char *const stages[] = {"next", "previous"};
    for (size_t i = 0; i < ARRAY_LEN(stages); i++) {
        struct ranks r;
        ranks_init(&r, 4, FABRIC_LINK_AUTO);
        r.limit_ms = 30000;
        r.run = run_late;
        r.arg = stages[i];
        assert_true(ranks_succeed(&r));
    }
}
#else
static void a_late_thread_leaves_with_the_others(void **state) {
    (void)state;
    print_message("skip: nothing can be wrapped in this build\n");
    skip();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_thread_leaves_with_the_others),
        cmocka_unit_test(who_loads_for_long_is_waited_for),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
