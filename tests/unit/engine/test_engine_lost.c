/* The engine: ranks and machines that are lost and come back, in the middle of answers and at rest,
 * also under a storm of requests.
 * labels: waits */
#include "engine_fixture.h"

/* One request alone gets what it is to get. */
static void assert_answers(struct engine *e) {
    call_run(e, &calls[3]);
    assert_same(&calls[3].out[0], &expected[3]);
}

static void assert_machines(const struct engine_stats *s, int n_ranks, const char *left_out) {
    assert_int_equal(s->n_ranks, n_ranks);
    assert_string_equal(s->left_out, left_out);
}

/* ---- a loss ------------------------------------------------------------------------------ */

/* Kills a rank of two under eight requests: everybody hears it, and why. Seconds till the last
 * did. */
static double lose_a_rank(void) {
    struct engine_config cfg = plain_config();
    cfg.model.n_ranks = 2;
    cfg.n_running_max = 4;
    cfg.no_speculation = true;
    struct engine *e = open_engine(&cfg);
    static struct call some[8];
    gate_close();
    for (int i = 0; i < 8; i++) {
        some[i] = calls[0];
        some[i].req.n_predict = -1;
        some[i].req.client = (uint64_t)i;
        call_submit(e, &some[i]);
    }
    gate_wait_reached();
    kill(engine_rank_pid(e, 1), SIGKILL);
    double began = clock_s();
    gate_open();
    for (int i = 0; i < 8; i++)
        call_wait(&some[i]);
    double took = clock_s() - began;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(some[i].out[0].done.stop, ENGINE_STOP_ERROR);
        assert_int_equal(some[i].out[0].done.st, ST_PEER_LOST);
        assert_non_null(strstr(some[i].out[0].error, "rank 1"));
    }
    while (stats_of(e).healthy)
        usleep(1000);
    assert_non_null(strstr(stats_of(e).why, "rank 1"));
    print_message("%.3f s, why: %s\n", took, stats_of(e).why);
    struct err err = {.text = ""};
    assert_int_equal(engine_submit(e, &calls[0].req, NULL, &err), ST_PEER_LOST);
    engine_close(e);
    return took;
}

/* Within a second; a machine that is busy with something else gets more than one try. */
static void a_lost_rank_ends_every_request(void **state) {
    (void)state;
    double best = INFINITY;
    for (int i = 0; i < 4 && best > 1.0; i++)
        best = fmin(best, lose_a_rank());
    assert_true(best < 1.0);
}

#ifdef __linux__
#include <sys/syscall.h>

static atomic_bool wall_goes_back;

/* In place of the C library's: with wall_goes_back somebody sets the wall's clock back by an
 * hour whenever it was read. */
int clock_gettime(clockid_t id, struct timespec *t) {
    int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_REALTIME && atomic_load(&wall_goes_back))
        t->tv_sec += 3600;
    return rc;
}
#endif

/* Nobody asks anything, and still it shows. */
static void a_rank_lost_at_rest_is_noticed(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.model.n_ranks = 2;
    struct engine *e = open_engine(&cfg);
    call_run(e, &calls[0]);
    kill(engine_rank_pid(e, 1), SIGKILL);
    for (int i = 0; i < 500 && stats_of(e).healthy; i++)
        usleep(10000);
    assert_false(stats_of(e).healthy);
    assert_non_null(strstr(stats_of(e).why, "rank 1"));
    engine_close(e);
}

static void a_clock_that_is_set_back_lets_nobody_sleep(void **state) {
#ifdef __linux__
    atomic_store(&wall_goes_back, true);
    a_rank_lost_at_rest_is_noticed(state);
    atomic_store(&wall_goes_back, false);
#else
    (void)state;
    skip(); /* a libc whose clock cannot be replaced */
#endif
}

/* ---- failover ------------------------------------------------------------------------ */

/* Under way, in the middle of prompts or of answers: every answer is what it would have been. */
static void answers_go_on_when_ranks_are_lost(void **state) {
    (void)state;
    static const char *const parallel[] = {"tensor", "pipeline", "tensor"};
    for (size_t i = 0; i < ARRAY_LEN(parallel); i++) {
        struct engine_config cfg = plain_config();
        cfg.model.n_ranks = i == 0 ? 3 : 2;
        cfg.model.parallel = parallel[i];
        cfg.model.link = i == 2 ? "tcp" : "auto";
        cfg.model.failover = true;
        struct engine *e = open_engine(&cfg);
        for (uint64_t n = 1; n <= 4; n++) {
            gate_close();
            for (int k = 0; k < N_REQUESTS; k++)
                call_submit(e, &calls[k]);
            gate_wait_reached();
            if (n % 2 == 0) { /* once in the middle of an answer, once at any time later */
                gate_open();
                lose(e, 1, (useconds_t)(n * 3000));
            } else {
                lose(e, cfg.model.n_ranks - 1, 0);
                gate_open();
            }
            for (int k = 0; k < N_REQUESTS; k++) {
                call_wait(&calls[k]);
                assert_int_equal(calls[k].out[0].done.stop, ENGINE_STOP_LENGTH);
                assert_same(&calls[k].out[0], &expected[k]);
            }
            wait_for_recovery(e, n);
            assert_int_equal(stats_of(e).n_ranks, cfg.model.n_ranks);
        }
        struct engine_stats s = idle_stats_of(e);
        assert_int_equal(s.pages_used, 0);
        engine_close(e);
    }
}

static void a_rank_lost_at_rest_comes_back(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.model.n_ranks = 2;
    cfg.model.failover = true;
    struct engine *e = open_engine(&cfg);
    call_run(e, &calls[3]);
    lose(e, 1, 0);
    wait_for_recovery(e, 1);
    assert_answers(e);
    engine_close(e);
}

/* At rest a loss has nothing to do with the one before if the ranks have lived for a while in
 * between, however many there are in how short a time. */
static void ranks_lost_at_rest_again_and_again_come_back(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.model.n_ranks = 2;
    cfg.model.failover = true;
    struct engine *e = open_engine(&cfg);
    for (uint64_t n = 1; n <= RECOVERY_TRIES + 2; n++) {
        double began = clock_s();
        lose(e, 1, 0);
        wait_for_recovery(e, n);
        double took = clock_s() - began; /* more than to open it */
        usleep((useconds_t)(took * 1e6));
    }
    assert_answers(e);
    engine_close(e);
}

/* A wire that dies in the middle of the prompt, whenever that is computed: at last everybody
 * hears why. */
static void a_loss_at_the_same_place_ends_it(void **state) {
    (void)state;
    static struct call c;
    struct engine_config cfg = plain_config();
    int32_t ids[400];
    cfg.model.n_ranks = 2;
    cfg.model.failover = true;
    /* To form takes less than half of these messages, and the prompt more of them. */
    cfg.model.emulate_link = "dead=80";
    cfg.model.n_chunk = 17;
    cfg.n_step_tokens = 17;
    struct engine *e = open_engine(&cfg);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        ids[i] = (int32_t)(i % 50 + 3);
    c = calls[0];
    c.req.ids = ids;
    c.req.n_ids = ARRAY_LEN(ids);
    call_run(e, &c);
    assert_int_equal(c.out[0].done.stop, ENGINE_STOP_ERROR);
    assert_non_null(strstr(c.out[0].error, "died after 80 messages"));
    assert_int_equal(c.out[0].n_ids, 0);
    assert_int_equal(stats_of(e).recoveries, RECOVERY_TRIES);
    engine_close(e);
}

/* Ranks that cannot come back: after some tries everybody hears why. */
static void a_recovery_that_fails_says_so(void **state) {
    (void)state;
    char worker[] = "/tmp/lockstep-worker-XXXXXX";
    int fd = mkstemp(worker);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(unlink(worker), 0);
    assert_int_equal(symlink(this_program(), worker), 0);
    struct engine_config cfg = plain_config();
    cfg.model.n_ranks = 2;
    cfg.model.worker_path = worker;
    cfg.model.failover = true;
    struct engine *e = open_engine(&cfg);
    assert_int_equal(unlink(worker), 0);
    static struct call c;
    c = calls[0];
    gate_close();
    call_submit(e, &c);
    gate_wait_reached();
    lose(e, 1, 0);
    gate_open();
    call_wait(&c);
    assert_int_equal(c.out[0].done.stop, ENGINE_STOP_ERROR);
    assert_non_null(strstr(c.out[0].error, worker));
    while (stats_of(e).healthy)
        usleep(1000);
    assert_non_null(strstr(stats_of(e).why, worker));
    engine_close(e);
}

/* ---- machines that come back --------------------------------------------------------- */

/* Machines that are all this one. An ssh that goes nowhere reaches them, unless a file beside
 * it says that the machine is off; where one says that it is broken, it answers, but no rank
 * lives there; one that hangs never answers, and the file gets the pid of whoever waits. */
struct machines {
    char dir[64], ssh[128];
};

static void set_machine(const struct machines *m, const char *host, const char *what, bool is) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s-%s", m->dir, what, host);
    if (!is) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

static void machines_begin(struct machines *m) {
    static const char script[] =
        "#!/bin/sh\n"
        "host=$1\n"
        "shift\n"
        "[ ! -e \"${0%/*}/off-$host\" ] || exit 255\n"
        "hung=${0%/*}/hung-$host\n"
        "[ ! -e \"$hung\" ] || { echo $$ >\"$hung\"; exec sleep 1000; }\n"
        "[ \"$2\" != --version ] || exit 0\n"
        "[ ! -e \"${0%/*}/broken-$host\" ] || exit 1\n"
        "exec sh -c \"$*\"\n";
    snprintf(m->dir, sizeof m->dir, "/tmp/lockstep-machines-XXXXXX");
    assert_non_null(mkdtemp(m->dir));
    snprintf(m->ssh, sizeof m->ssh, "%s/ssh", m->dir);
    FILE *f = fopen(m->ssh, "w");
    assert_non_null(f);
    fputs(script, f);
    assert_int_equal(fchmod(fileno(f), 0700), 0);
    fclose(f);
    setenv("LOCKSTEP_SSH", m->ssh, 1);
}

static void machines_end(const struct machines *m) {
    unsetenv("LOCKSTEP_SSH");
    assert_int_equal(unlink(m->ssh), 0);
    assert_int_equal(rmdir(m->dir), 0);
}

static struct engine_config three_machines(void) {
    struct engine_config cfg = plain_config();
    cfg.model.hosts = "127.0.0.1,127.0.0.2,127.0.0.3";
    cfg.model.n_split = 3;
    for (int i = 0; i < 3; i++)
        cfg.model.split[i] = 3 - i;
    cfg.model.failover = true;
    cfg.rejoin_idle_s = 0.2;
    return cfg;
}

static void wait_for_rejoin(struct engine *e, uint64_t n) {
    while (stats_of(e).rejoins < n && stats_of(e).healthy)
        usleep(1000);
    assert_int_equal(stats_of(e).rejoins, n);
    assert_true(stats_of(e).healthy);
}

/* Whether a child of this process has ended; it stays until this process asks for it. */
static bool has_ended(pid_t pid) {
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f != NULL) {
        (void)!fscanf(f, "%*d (%*[^)]) %c", &state);
        fclose(f);
    }
    return state == 'Z';
}

/* Stops this process until the others have given it up and ended, 30 s at most. */
static void stand_still(struct engine *e, int n_ranks) {
    pid_t me = getpid(), others[3];
    for (int i = 1; i < n_ranks; i++)
        others[i] = engine_rank_pid(e, i);
    pid_t helper = fork();
    assert_true(helper >= 0);
    if (helper == 0) {
        kill(me, SIGSTOP);
        for (int ms = 0, i = 1; ms < 30000 && i < n_ranks; ms += 10, usleep(10000))
            i += has_ended(others[i]);
        kill(me, SIGCONT);
        _exit(0);
    }
    assert_int_equal(waitpid(helper, NULL, 0), helper);
}

/* Rank 0 was stopped, and its machines have given it up: nothing is wrong with them, and all
 * take part again. */
static void a_server_that_stood_still_goes_on_with_all(void **state) {
    (void)state;
    struct machines m;
    machines_begin(&m);
    struct engine_config cfg = three_machines();
    struct engine *e = open_engine(&cfg);
    stand_still(e, 3);
    wait_for_recovery(e, 1);
    struct engine_stats s = stats_of(e);
    assert_machines(&s, 3, "");
    assert_int_equal(s.rejoins, 0);
    assert_answers(e);
    engine_close(e);
    machines_end(&m);
}

/* Nothing runs: who is off is left out; who is back takes part again. One of two at first, and
 * then the other. */
static void a_machine_that_is_back_takes_part_again(void **state) {
    (void)state;
    struct machines m;
    machines_begin(&m);
    struct engine_config cfg = three_machines();
    struct engine *e = open_engine(&cfg);
    assert_int_equal(stats_of(e).n_ranks, 3);
    assert_string_equal(stats_of(e).left_out, "");
    set_machine(&m, "127.0.0.2", "off", true);
    set_machine(&m, "127.0.0.3", "off", true);
    lose(e, 1, 0);
    wait_for_recovery(e, 1); /* which finds that the other is off, too */
    struct engine_stats s = stats_of(e);
    assert_machines(&s, 1, "127.0.0.2, 127.0.0.3");
    assert_answers(e);
    set_machine(&m, "127.0.0.3", "off", false);
    wait_for_rejoin(e, 1);
    s = stats_of(e);
    assert_machines(&s, 2, "127.0.0.2");
    call_run(e, &calls[4]);
    assert_same(&calls[4].out[0], &expected[4]);
    set_machine(&m, "127.0.0.2", "off", false);
    wait_for_rejoin(e, 2);
    s = stats_of(e);
    assert_machines(&s, 3, "");
    call_run(e, &calls[5]);
    assert_same(&calls[5].out[0], &expected[5]);
    engine_close(e);
    machines_end(&m);
}

/* Something always runs, and nobody can tell from the answers that somebody came in between. */
static void a_machine_comes_back_in_the_middle_of_answers(void **state) {
    (void)state;
    struct machines m;
    machines_begin(&m);
    struct engine_config cfg = three_machines();
    cfg.rejoin_idle_s = INFINITY;
    cfg.rejoin_latest_s = 0;
    struct engine *e = open_engine(&cfg);
    lose(e, 2, 0);
    for (int i = 0; i < N_REQUESTS; i++)
        call_submit(e, &calls[i]);
    uint64_t n = 0;
    do {
        n = stats_of(e).rejoins; /* once more after it */
        for (int i = 0; i < N_REQUESTS; i++) {
            call_wait(&calls[i]);
            assert_same(&calls[i].out[0], &expected[i]);
            call_submit(e, &calls[i]);
        }
    } while (n == 0 && stats_of(e).healthy);
    for (int i = 0; i < N_REQUESTS; i++) {
        call_wait(&calls[i]);
        assert_same(&calls[i].out[0], &expected[i]);
    }
    assert_int_equal(stats_of(e).n_ranks, 3);
    engine_close(e);
    machines_end(&m);
}

/* It answers, but no rank lives there: one pause, and the others go on. */
static void a_machine_that_only_seems_to_be_back_is_done_without(void **state) {
    (void)state;
    struct machines m;
    machines_begin(&m);
    struct engine_config cfg = three_machines();
    struct engine *e = open_engine(&cfg);
    set_machine(&m, "127.0.0.3", "broken", true);
    lose(e, 2, 0);
    wait_for_recovery(e, 2); /* without it, and without it again */
    struct engine_stats s = stats_of(e);
    assert_machines(&s, 2, "127.0.0.3");
    assert_int_equal(s.rejoins, 0);
    assert_answers(e);
    engine_close(e);
    set_machine(&m, "127.0.0.3", "broken", false);
    machines_end(&m);
}

/* Whoever asks ends with the engine. */
static void a_machine_that_hangs_holds_nobody_up(void **state) {
    (void)state;
    struct machines m;
    machines_begin(&m);
    struct engine_config cfg = three_machines();
    struct engine *e = open_engine(&cfg);
    set_machine(&m, "127.0.0.2", "hung", true);
    lose(e, 1, 0);
    char path[256];
    int pid = 0;
    snprintf(path, sizeof path, "%s/hung-127.0.0.2", m.dir);
    while (pid == 0) {
        assert_answers(e);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        if (fscanf(f, "%d", &pid) != 1)
            pid = 0;
        fclose(f);
    }
    assert_int_equal(kill(pid, 0), 0);
    engine_close(e);
    assert_int_equal(kill(pid, 0), -1);
    set_machine(&m, "127.0.0.2", "hung", false);
    machines_end(&m);
}

/* ---- storms -------------------------------------------------------------------------- */

/* Eight threads, each with one request after the other: answers, embeddings, several choices,
 * cancelled at any moment or never, in a cache that is too small. What came is always a
 * beginning of what is due. */
#define STORM_THREADS 8
#define STORM_ROUNDS 25

struct storm {
    struct engine *e;
    uint64_t seed;
    pthread_t thread;
    struct call call;
    int n_cancelled, n_whole, n_wrong;
};
static atomic_int n_storming; /* threads */

/* The handle is good as long as on_done has not come. */
static void cancel_if_running(struct call *c) {
    pthread_mutex_lock(&lock);
    if (!c->over)
        engine_cancel(c->e, c->handle);
    pthread_mutex_unlock(&lock);
}

static void storm_round(struct storm *s, uint64_t round) {
    uint64_t dice = rng_u64(s->seed, round);
    size_t which = dice % N_REQUESTS;
    struct call *c = &s->call;
    memset(c, 0, sizeof *c);
    c->req = calls[which].req;
    c->req.client = s->seed % 5;
    c->req.embed = dice / 16 % 8 == 0;
    c->req.n_choices = !c->req.embed && dice / 128 % 4 == 0 ? 2 : 1;
    c->cancel_at = dice / 512 % 4 == 0 ? 1 + dice / 2048 % 50 : 0;
    call_submit(s->e, c);
    if (dice / 4096 % 4 == 0) {
        usleep((useconds_t)(dice / 16384 % 3000));
        cancel_if_running(c);
    }
    call_wait(c);
    const struct output *got = &c->out[0], *want = &expected[which];
    bool cancelled = got->done.stop == ENGINE_STOP_CANCELLED;
    s->n_cancelled += cancelled;
    s->n_whole += !cancelled && !c->req.embed;
    bool right = got->n_ids <= want->n_ids &&
                 memcmp(got->ids, want->ids, got->n_ids * sizeof *got->ids) == 0 &&
                 (cancelled || c->req.embed || got->n_ids == want->n_ids);
    s->n_wrong += !right;
}

static void *storm_main(void *arg) {
    struct storm *s = arg;
    for (uint64_t round = 0; round < STORM_ROUNDS; round++)
        storm_round(s, round);
    atomic_fetch_sub(&n_storming, 1);
    return NULL;
}

/* Until so many more tokens have come that some were computed after the last loss, or there are no
 * more to come. Ranks that are lost more than RECOVERY_TRIES times with nothing between are given
 * up, and how far a loaded machine comes between two losses nobody knows. */
static void wait_for_tokens(struct engine *e) {
    uint64_t enough = stats_of(e).tokens_generated + 100;
    while (stats_of(e).tokens_generated < enough && atomic_load(&n_storming) > 0)
        usleep(1000);
}

/* n_losses times meanwhile a rank is killed. */
static void storm(const struct engine_config *cfg, int n_losses) {
    static struct storm storms[STORM_THREADS];
    struct engine *e = open_engine(cfg);
    atomic_store(&n_storming, STORM_THREADS);
    for (size_t i = 0; i < STORM_THREADS; i++) {
        storms[i] = (struct storm){.e = e, .seed = i};
        assert_int_equal(pthread_create(&storms[i].thread, NULL, storm_main, &storms[i]), 0);
    }
    int n_cancelled = 0, n_whole = 0;
    for (int i = 0; i < n_losses; i++) {
        lose(e, 1 + i % (cfg->model.n_ranks - 1),
             (useconds_t)(rng_u64(7, (uint64_t)i) % 20000));
        if (i % RECOVERY_TRIES == RECOVERY_TRIES - 1)
            wait_for_tokens(e);
    }
    for (size_t i = 0; i < STORM_THREADS; i++) {
        pthread_join(storms[i].thread, NULL);
        assert_int_equal(storms[i].n_wrong, 0);
        n_cancelled += storms[i].n_cancelled;
        n_whole += storms[i].n_whole;
    }
    print_message("%d whole answers, %d cancelled\n", n_whole, n_cancelled);
    assert_true(n_whole > 20 && n_cancelled > 20);
    struct engine_stats s = idle_stats_of(e);
    assert_int_equal(s.pages_used, 0);
    assert_int_equal(s.running, 0);
    assert_int_equal(s.queued, 0);
    assert_true(s.recoveries <= (uint64_t)n_losses && (s.recoveries > 0 || n_losses == 0));
    engine_close(e);
}

static struct engine_config storm_config(void) {
    struct engine_config cfg = plain_config();
    cfg.n_running_max = 6;
    cfg.kv_memory_bytes = 12 * (size_t)KV_PAGE * 2 * 2 * 2 * 32 * 2;
    return cfg;
}

static void a_storm_of_requests(void **state) {
    (void)state;
    struct engine_config cfg = storm_config();
    storm(&cfg, 0);
}

static void a_storm_while_ranks_are_lost(void **state) {
    (void)state;
    struct engine_config cfg = storm_config();
    cfg.model.n_ranks = 2;
    cfg.model.failover = true;
    storm(&cfg, 8);
}

int main(int argc, char **argv) {
    if (is_worker(argc, argv))
        return lockstep_worker_main(argc - 1, argv + 1);
    golden_or_skip(MODEL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_rank_ends_every_request),
        cmocka_unit_test(a_rank_lost_at_rest_is_noticed),
        cmocka_unit_test(a_clock_that_is_set_back_lets_nobody_sleep),
        cmocka_unit_test(answers_go_on_when_ranks_are_lost),
        cmocka_unit_test(a_rank_lost_at_rest_comes_back),
        cmocka_unit_test(ranks_lost_at_rest_again_and_again_come_back),
        cmocka_unit_test(a_loss_at_the_same_place_ends_it),
        cmocka_unit_test(a_recovery_that_fails_says_so),
        cmocka_unit_test(a_server_that_stood_still_goes_on_with_all),
        cmocka_unit_test(a_machine_that_is_back_takes_part_again),
        cmocka_unit_test(a_machine_comes_back_in_the_middle_of_answers),
        cmocka_unit_test(a_machine_that_only_seems_to_be_back_is_done_without),
        cmocka_unit_test(a_machine_that_hangs_holds_nobody_up),
        cmocka_unit_test(a_storm_of_requests),
        cmocka_unit_test(a_storm_while_ranks_are_lost),
    };
    return cmocka_run_group_tests(tests, make_expected, NULL);
}
