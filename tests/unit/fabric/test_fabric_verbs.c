/* What only the verbs link has: queue pairs shared by many groups, cables that have to be
 * found, and messages that the hardware loses, damages or fails. Over the stand-in libibverbs
 * (standin_verbs.c). */
#include "link_suite.h"

#include "base/pool.h"
#include "link/verbs_system.h"

#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ---- ten groups, one device of ten queue pairs ------------------------------------------- */

#define N_GROUPS 10
#define N_QUESTIONS 20

struct group {
    struct fabric_config cfg;
    char at[NET_TEXT_BYTES];
    struct fabric *f;
    int index;
};

/* All groups at once, each with its own thread, sizes out of step. */
static void *use_group(void *group_) {
    struct group *g = group_;
    static const int both[] = {0, 1};
    int64_t x[6000];
    struct team *t;
    struct err err;
    EXPECT(fabric_team(g->f, &t, both, 2, &err) == ST_OK, "%s", err.text);
    for (int k = 0; k < 60; k++) {
        size_t n = (size_t)(k * 97 + g->index * 411) % ARRAY_LEN(x) + 1;
        for (size_t i = 0; i < n; i++)
            x[i] = (int64_t)i * (g->index + 1) + k;
        EXPECT(fabric_allreduce(t, x, n, &err) == ST_OK, "group %d: %s", g->index, err.text);
        for (size_t i = 0; i < n; i++)
            EXPECT(x[i] == 2 * ((int64_t)i * (g->index + 1) + k), "group %d", g->index);
    }
    return NULL;
}

static void open_group(struct group *g, int rank) {
    struct err err;
    g->cfg.rank = rank;
    g->cfg.rendezvous = g->at;
    if (rank != 0) {
        close(g->cfg.listen_fd);
        g->cfg.listen_fd = -1;
    }
    EXPECT(fabric_open(&g->f, &g->cfg, &err) == ST_OK, "group %d: %s", g->index, err.text);
    EXPECT(str_eq(fabric_link_name(g->f, !rank), "verbs"), "link");
}

static void open_groups(struct group *groups, int rank) {
    for (int i = 0; i < N_GROUPS; i++)
        open_group(&groups[i], rank);
}

/* Sleeps until asked, answers. */
static void *answer(void *group_) {
    struct fabric *f = ((struct group *)group_)->f;
    for (int k = 0; k < N_QUESTIONS; k++) {
        char c;
        TRY_CALL(fabric_wait(f, 0, -1, e));
        TRY_CALL(fabric_recv(f, 0, &c, 1, e));
        TRY_CALL(fabric_send(f, 0, &c, 1, e));
    }
    return NULL;
}

/* Nine groups of the other process sleep while one is asked. A wake-up that got lost would take
 * until the sleeper looks by itself: 200 ms. */
static void ask(struct group *groups) {
    int late = 0;
    for (uint64_t k = 0; k < N_QUESTIONS; k++)
        for (uint64_t i = 0; i < N_GROUPS; i++) {
            struct fabric *f = groups[(i * 7 + k) % N_GROUPS].f;
            char c = (char)k;
            usleep((useconds_t)rng_u64(3, k * N_GROUPS + i) % 500);
            uint64_t begin = clock_ns();
            TRY_CALL(fabric_send(f, 1, &c, 1, e));
            TRY_CALL(fabric_recv(f, 1, &c, 1, e));
            EXPECT(c == (char)k, "answer");
            late += clock_ns() - begin > 100000000u;
        }
    EXPECT_SOON(late <= N_QUESTIONS * N_GROUPS / 50, "%d of %d answers", late,
                N_QUESTIONS * N_GROUPS);
}

static void in_threads(struct group *groups, void *(*use)(void *)) {
    pthread_t threads[N_GROUPS];
    for (int i = 0; i < N_GROUPS; i++)
        pthread_create(&threads[i], NULL, use, &groups[i]);
    for (int i = 0; i < N_GROUPS; i++)
        pthread_join(threads[i], NULL);
}

static void be_in_ten_groups(struct group *groups, int rank) {
    open_groups(groups, rank);
    in_threads(groups, use_group);
    if (rank == 0)
        ask(groups);
    else
        in_threads(groups, answer);
    for (int i = 0; i < N_GROUPS; i++)
        fabric_close(groups[i].f);
    _exit(0);
}

/* A message to a group that is closed lies where the next group of the two processes, which gets
 * the same place in their pair, finds it: it is not that one's. The first group keeps the pair. */
static void be_in_the_next_group(struct group *groups, int rank) {
    char c = 'o';
    for (int i = 0; i < 2; i++)
        open_group(&groups[i], rank);
    struct fabric *f = groups[1].f;
    if (rank == 1)
        TRY_CALL(fabric_send(f, 0, &c, 1, e));
    else
        usleep(200000);
    fabric_close(f);
    open_group(&groups[2], rank);
    f = groups[2].f;
    c = 'n';
    if (rank == 1)
        TRY_CALL(fabric_send(f, 0, &c, 1, e));
    else
        TRY_CALL(fabric_recv(f, 1, &c, 1, e));
    EXPECT(c == 'n', "the message of a group before");
    TRY_CALL(fabric_meet(team_of_all(f), e));
    fabric_close(f);
    fabric_close(groups[0].f);
    _exit(0);
}

/* 0, or how the processes ended: 1 goes before EXIT_LATE. */
static int two_in_groups(void (*be)(struct group *groups, int rank)) {
    static struct group groups[N_GROUPS];
    pid_t pids[2];
    int worst = 0;
    for (int i = 0; i < N_GROUPS; i++) {
        struct ranks r;
        ranks_init(&r, 2, FABRIC_LINK_VERBS);
        groups[i] = (struct group){.cfg = r.cfg, .index = i};
        groups[i].cfg.listen_fd = r.listen_fd;
        memcpy(groups[i].at, r.rendezvous, sizeof groups[i].at);
        munmap(r.notes, sizeof *r.notes);
    }
    for (int rank = 0; rank < 2; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            alarm(120);
            be(groups, rank);
        }
    }
    for (int i = 0; i < N_GROUPS; i++)
        close(groups[i].cfg.listen_fd);
    for (int rank = 0; rank < 2; rank++) {
        int status;
        waitpid(pids[rank], &status, 0);
        assert_true(WIFEXITED(status));
        if (status != 0 && worst != 1)
            worst = WEXITSTATUS(status);
    }
    return worst;
}

static void ten_groups_share_the_queue_pairs(void **state) {
    (void)state;
    int status = EXIT_LATE;
    for (int i = 0; i < LATE_TRIES && status == EXIT_LATE; i++)
        status = two_in_groups(be_in_ten_groups);
    assert_int_equal(status, 0);
}

static void a_closed_group_leaves_nothing_to_the_next(void **state) {
    (void)state;
    assert_int_equal(two_in_groups(be_in_the_next_group), 0);
}

/* Other systems may have no completion events: then sleepers nap. */
static void naps_do_where_no_events_come(void **state) {
    (void)state;
    void (*const runs[])(struct ranks *, struct fabric *) = {run_sends, run_idle};
    setenv("STANDIN_NO_EVENTS", "1", 1);
    for (size_t k = 0; k < ARRAY_LEN(runs); k++) {
        struct ranks r;
        ranks_init(&r, 3, FABRIC_LINK_VERBS);
        r.run = runs[k];
        assert_true(ranks_succeed(&r));
    }
    unsetenv("STANDIN_NO_EVENTS");
}

/* ---- what hardware does wrong ------------------------------------------------------------ */

struct fault {
    const char *variable, *number, *words, *other_words;
};

static void run_fault(struct ranks *r, struct fabric *f) {
    const struct fault *fault = r->arg;
    static const int both[] = {0, 1};
    static int64_t x[3000];
    struct team *t;
    struct err err;
    enum status st = fabric_team(f, &t, both, 2, &err);
    uint64_t begin = clock_ns();
    for (int k = 0; st == ST_OK && k < 1000; k++) {
        begin = clock_ns();
        for (size_t i = 0; i < ARRAY_LEN(x); i++)
            x[i] = (int64_t)i - k;
        st = fabric_allreduce(t, x, ARRAY_LEN(x), &err);
        for (size_t i = 0; st == ST_OK && i < ARRAY_LEN(x); i++)
            EXPECT(x[i] == 2 * ((int64_t)i - k), "%s: x[%zu] of sum %d is %lld",
                   fault->variable, i, k, (long long)x[i]);
    }
    EXPECT(st == ST_PEER_LOST, "%s: %s", fault->variable, status_name(st));
    EXPECT_SOON(strstr(err.text, "has been silent for") == NULL, "%s", err.text);
    EXPECT(strstr(err.text, fault->words) || strstr(err.text, fault->other_words),
           "%s: expected \"%s\" in: %s", fault->variable, fault->words, err.text);
    EXPECT_SOON(clock_ns() - begin < 900000000u, "%s", fault->variable);
}

static void faults_end_in_a_clean_error(void **state) {
    (void)state;
    static const struct fault faults[] = {
        {"STANDIN_LOSE", "100", "did not arrive within 300 ms", "in the place of"},
        {"STANDIN_CORRUPT", "100", "arrived corrupted", "did not arrive"},
        {"STANDIN_FAIL", "100", "a send ended in error: transport error", "reports"},
    };
    for (size_t k = 0; k < ARRAY_LEN(faults); k++) {
        struct ranks r;
        ranks_init(&r, 2, FABRIC_LINK_VERBS);
        r.cfg.silence_ms = 300;
        r.arg = &faults[k];
        r.run = run_fault;
        setenv(faults[k].variable, faults[k].number, 1);
        bool good = ranks_succeed(&r);
        unsetenv(faults[k].variable);
        assert_true(good);
    }
}

/* No message that only returns credits arrives: the counts in the beats do instead. */
static void run_lost_credits(struct ranks *r, struct fabric *f) {
    (void)r;
    for (int i = 0; i < 50; i++) {
        char c = (char)i;
        if (fabric_rank(f) == 1) {
            setenv("STANDIN_LOSE_AFTER", "0", 1);
            TRY_CALL(fabric_recv(f, 0, &c, 1, e));
            EXPECT(c == (char)i, "message %d is %d", i, c);
        } else {
            TRY_CALL(fabric_send(f, 1, &c, 1, e));
        }
    }
}

static void lost_credits_are_made_good(void **state) {
    (void)state;
    struct ranks r;
    ranks_init(&r, 2, FABRIC_LINK_VERBS);
    r.cfg.silence_ms = 600;
    r.cfg.compute_ms = 10000;
    r.run = run_lost_credits;
    assert_true(ranks_succeed(&r));
}

/* Each waits for room to send, and takes nothing in; what was lost is missed all the same. */
static void run_both_send(struct ranks *r, struct fabric *f) {
    (void)r;
    char c = 0;
    struct err err = {.text = ""};
    enum status st = ST_OK;
    for (int i = 0; st == ST_OK && i < 20; i++)
        st = fabric_send(f, !fabric_rank(f), &c, 1, &err);
    EXPECT(st == ST_PEER_LOST, "%s", status_name(st));
    EXPECT_SOON(strstr(err.text, "has been silent for") == NULL, "%s", err.text);
    EXPECT(strstr(err.text, "did not arrive within 300 ms"), "%s", err.text);
}

static void who_waits_for_room_misses_what_was_lost(void **state) {
    (void)state;
    struct ranks r;
    setenv("STANDIN_LOSE", "1", 1);
    ranks_init(&r, 2, FABRIC_LINK_VERBS);
    r.cfg.silence_ms = 300;
    r.cfg.compute_ms = 10000;
    r.run = run_both_send;
    bool good = ranks_succeed(&r);
    unsetenv("STANDIN_LOSE");
    assert_true(good);
}

/* ---- cables that nobody named ------------------------------------------------------------ */

/* Machines with several devices each, as over Thunderbolt: which device leads where is to be
 * found. */
struct cabling {
    const char *cables; /* STANDIN_CABLES */
    int n_ranks;
    const char
        *devices[4][4];    /* towards each rank; NULL: over TCP; "": one of them, whichever */
    const char *algorithm; /* how they sum; NULL: any */
};

static void run_cabled(struct ranks *r, struct fabric *f) {
    const struct cabling *c = r->arg;
    int me = fabric_rank(f);
    for (int q = 0; q < r->n; q++) {
        const char *device = fabric_link_device(f, q), *expected = c->devices[me][q];
        if (q == me)
            continue;
        EXPECT(str_eq(fabric_link_name(f, q), expected != NULL ? "verbs" : "tcp"),
               "rank %d to %d over %s", me, q, fabric_link_name(f, q));
        EXPECT(expected == NULL      ? device[0] == '\0'
               : expected[0] == '\0' ? device[0] != '\0'
                                     : str_eq(device, expected),
               "%s: rank %d to %d over device '%s'", c->cables, me, q, device);
    }
    if (c->algorithm != NULL)
        EXPECT(str_eq(team_algorithm(team_of_all(f), 2048), c->algorithm), "%s: %s", c->cables,
               team_algorithm(team_of_all(f), 2048));
    run_sums(r, f);
    run_sends(r, f);
}

static const struct cabling cablings[] = {
    {"0.0-1.0", 2, {{0, "standin0"}, {"standin0"}}, NULL},
    /* Two cables between the same two machines, crossed: both must take the same. */
    {"0.0-1.1 0.1-1.0", 2, {{0, ""}, {""}}, NULL},
    /* A device that leads to nobody before the one that does. */
    {"0.0-7.0 0.1-1.2 1.0-8.0 1.1-9.0", 2, {{0, "standin1"}, {"standin2"}}, NULL},
    {"0.0-1.1 1.0-2.1 2.0-0.1",
     3,
     {{0, "standin0", "standin1"}, {"standin1", 0, "standin0"}, {"standin0", "standin1"}},
     NULL},
    {"0.0-1.1 1.0-2.1",
     3,
     {{0, "standin0"}, {"standin1", 0, "standin0"}, {0, "standin1"}},
     "tree"},
    /* More devices than are tried at once. */
    {"0.0-5.0 0.1-5.1 0.2-5.2 0.3-1.3 1.0-6.0 1.1-6.1 1.2-2.0 2.1-0.2",
     3,
     {{0, "standin3", "standin2"}, {"standin3", 0, "standin2"}, {"standin1", "standin0"}},
     NULL},
    {"0.0-1.1 1.0-2.1 2.0-3.1 3.0-0.1",
     4,
     {{0, "standin0", 0, "standin1"},
      {"standin1", 0, "standin0"},
      {0, "standin1", 0, "standin0"},
      {"standin0", 0, "standin1"}},
     NULL},
};

static void cables_are_found(void **state) {
    (void)state;
    for (size_t k = 0; k < 2 * ARRAY_LEN(cablings); k++) {
        struct ranks r;
        const struct cabling *c = &cablings[k / 2];
        setenv("STANDIN_CABLES", c->cables, 1);
        if (k % 2 == 1) /* hardware that says by itself where no cable leads */
            setenv("STANDIN_TELLS", "1", 1);
        ranks_init(&r, c->n_ranks, FABRIC_LINK_VERBS);
        r.arg = c;
        r.run = run_cabled;
        bool good = ranks_succeed(&r);
        unsetenv("STANDIN_CABLES");
        unsetenv("STANDIN_TELLS");
        assert_true(good);
    }
}

static void run_one_message(struct ranks *r, struct fabric *f) {
    (void)r;
    char c = 5;
    EXPECT(fabric_link_device(f, !fabric_rank(f))[0] != '\0', "device");
    if (fabric_rank(f) == 0)
        TRY_CALL(fabric_send(f, 1, &c, 1, e));
    else
        TRY_CALL(fabric_recv(f, 0, &c, 1, e));
    EXPECT(c == 5, "message");
}

/* The first message on a cable may get lost. */
static void a_lost_message_is_not_a_missing_cable(void **state) {
    (void)state;
    struct ranks r;
    setenv("STANDIN_CABLES", "0.0-1.1 0.1-2.0", 1);
    setenv("STANDIN_LOSE", "1", 1);
    ranks_init(&r, 2, FABRIC_LINK_VERBS);
    r.run = run_one_message;
    bool good = ranks_succeed(&r);
    unsetenv("STANDIN_LOSE");
    unsetenv("STANDIN_CABLES");
    assert_true(good);
}

/* RDMA alone was asked for, and a machine has a device but no cable to the others: all are
 * told. */
static void ranks_without_cables_are_named(void **state) {
    (void)state;
    pid_t pids[3];
    struct ranks r;
    setenv("STANDIN_CABLES", "0.0-1.1 1.0-0.1 2.0-5.0", 1);
    ranks_init(&r, ARRAY_LEN(pids), FABRIC_LINK_VERBS);
    for (int rank = 0; rank < r.n; rank++) {
        pids[rank] = fork();
        if (pids[rank] != 0)
            continue;
        struct fabric_config cfg = ranks_config(&r, rank);
        struct fabric *f;
        struct err err;
        alarm(60);
        EXPECT(fabric_open(&f, &cfg, &err) == ST_UNSUPPORTED, "rank %d: %s", rank, err.text);
        EXPECT(strstr(err.text, "no RDMA cable leads from rank 0 to rank 2") != NULL, "%s",
               err.text);
        _exit(0);
    }
    close(r.listen_fd);
    munmap(r.notes, sizeof *r.notes);
    unsetenv("STANDIN_CABLES");
    for (int rank = 0; rank < r.n; rank++) {
        int status;
        waitpid(pids[rank], &status, 0);
        assert_int_equal(status, 0);
    }
}

/* RC is asked for, the device has only UC: told, and no other link was allowed. */
static void reliable_queue_pairs_may_be_missing(void **state) {
    (void)state;
    struct ranks r;
    ranks_init(&r, 2, FABRIC_LINK_VERBS);
    r.cfg.rdma_reliable = true;
    ranks_start(&r); /* run is never reached */
    ranks_wait(&r);
    assert_int_equal(r.exits[0], 1);
    assert_int_equal(r.exits[1], 1);
}

/* ---- systems ------------------------------------------------------------------------------ */

/* Apple's note: messages of several frames from macOS 26.3 on. */
static void old_systems_carry_single_frames_only(void **state) {
    (void)state;
    static const char *const old[] = {"", "15.7.1", "26", "26.2", "26.2.9"},
                             *const new[] = {"26.3", "26.3.1", "26.10", "27", "27.0", "100.1"};
    for (size_t i = 0; i < ARRAY_LEN(old); i++)
        assert_false(verbs_macos_carries_frames(old[i]));
    for (size_t i = 0; i < ARRAY_LEN(new); i++)
        assert_true(verbs_macos_carries_frames(new[i]));
    struct err err;
    assert_int_equal(verbs_system_check(&err), ST_OK);
}

/* ---- a library that changes the floating-point environment -------------------------------- */

static bool is_default_env(void) {
    volatile float small = 0x1p-126f, half = 0.5f;
    return fegetround() == FE_TONEAREST && small * half != 0.0f;
}

static void look_at_env(void *good, struct pool *pool, int thread) {
    (void)pool;
    ((bool *)good)[thread] = is_default_env();
}

/* What computes afterwards: the thread that opened the group, a pool's threads, and the caller of
 * a pool, whose own environment comes back. */
static void run_float_env(struct ranks *r, struct fabric *f) {
    (void)r, (void)f;
    struct pool *pool;
    bool good[3] = {false};
    struct err err;
    EXPECT(dlopen(getenv("LOCKSTEP_IBVERBS"), RTLD_NOW | RTLD_NOLOAD) != NULL,
           "the library is not there");
    EXPECT(is_default_env(), "the group's thread");
    fesetround(FE_UPWARD);
    EXPECT(pool_open(&pool, 3, &err) == ST_OK, "%s", err.text);
    pool_run(pool, look_at_env, good);
    EXPECT(good[0] && good[1] && good[2], "%d %d %d", good[0], good[1], good[2]);
    EXPECT(fegetround() == FE_UPWARD, "the caller's own environment");
    pool_close(pool);
}

static void a_library_may_set_the_float_environment(void **state) {
    (void)state;
    struct ranks r;
    setenv("STANDIN_FLOAT", "1", 1);
    ranks_init(&r, 2, FABRIC_LINK_VERBS);
    r.run = run_float_env;
    assert_true(ranks_succeed(&r));
    unsetenv("STANDIN_FLOAT");
}

int main(void) {
#ifndef STANDIN_VERBS
    printf("skip: no <infiniband/verbs.h>\n");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_groups_share_the_queue_pairs),
        cmocka_unit_test(naps_do_where_no_events_come),
        cmocka_unit_test(cables_are_found),
        cmocka_unit_test(a_lost_message_is_not_a_missing_cable),
        cmocka_unit_test(ranks_without_cables_are_named),
        cmocka_unit_test(faults_end_in_a_clean_error),
        cmocka_unit_test(lost_credits_are_made_good),
        cmocka_unit_test(who_waits_for_room_misses_what_was_lost),
        cmocka_unit_test(a_closed_group_leaves_nothing_to_the_next),
        cmocka_unit_test(reliable_queue_pairs_may_be_missing),
        cmocka_unit_test(old_systems_carry_single_frames_only),
        cmocka_unit_test(a_library_may_set_the_float_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
