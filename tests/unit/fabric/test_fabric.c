/* The fabric over every link of the table, with real processes: sums against serial int64 sums,
 * the other collectives, death and silence, strangers at the door, nothing left behind.
 * labels: waits */
#include "link_suite.h"

#include "fabric/handshake.h"
#include "link/wire.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void expect_all_zero(struct ranks *r) {
    assert_true(ranks_succeed(r));
}

/* Where the silence limit is short, a rank that the machine did not let run is taken for a dead
 * one. */
static bool starved(const struct err *err) {
    return strstr(err->text, "has been silent for") != NULL;
}

/* The link is the first argument of every test below. */
static void on_every_link(int n, void (*run)(struct ranks *, struct fabric *)) {
    struct ranks r;
    EACH_LINK(ops) {
        if (n > 4 && (*ops)->id == FABRIC_LINK_VERBS)
            continue; /* one device of 10 queue pairs reaches 3 peers */
        ranks_init(&r, n, (*ops)->id);
        r.run = run;
        expect_all_zero(&r);
    }
    if (n > 3) /* waits of many ranks on few cores take long, and show nothing new */
        return;
    ranks_init(&r, n, FABRIC_LINK_AUTO);
    r.cfg.emulate = "latency=20us,jitter=10us,bandwidth=40Gbit";
    r.run = run;
    expect_all_zero(&r);
}

/* ---- sums -------------------------------------------------------------------------------- */

static void sums_equal_the_serial_sum(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n++)
        on_every_link(n, run_sums);
}

static void run_teams(struct ranks *r, struct fabric *f) {
    (void)r;
    static const int teams[][5] = {{2, 0, 1},    {2, 1, 2},       {2, 3, 2}, {2, 3, 0},
                                   {3, 3, 1, 0}, {4, 2, 0, 3, 1}, {1, 2}};
    struct team *t[ARRAY_LEN(teams)] = {NULL};
    for (size_t k = 0; k < ARRAY_LEN(teams); k++)
        for (int i = 1; i <= teams[k][0]; i++)
            if (teams[k][i] == fabric_rank(f)) {
                TRY_CALL(fabric_team(f, &t[k], teams[k] + 1, teams[k][0], e));
                EXPECT(team_size(t[k]) == teams[k][0] && team_index(t[k]) == i - 1, "place");
            }
    for (int round = 0; round < 5; round++)
        for (size_t k = 0; k < ARRAY_LEN(teams); k++)
            if (t[k] != NULL)
                sum_once(f, t[k], teams[k] + 1, teams[k][0], 3, 1000u * (size_t)(round + 1));
}

static void overlapping_teams(void **state) {
    (void)state;
    on_every_link(4, run_teams);
}

/* ---- the other calls --------------------------------------------------------------------- */

static void broadcasts(void **state) {
    (void)state;
    on_every_link(2, run_broadcasts);
    on_every_link(4, run_broadcasts);
}

static void unequal_gathers(void **state) {
    (void)state;
    on_every_link(1, run_gathers);
    on_every_link(2, run_gathers);
    on_every_link(4, run_gathers);
}

static void barriers(void **state) {
    (void)state;
    on_every_link(3, run_barriers);
}

static void sends_keep_their_order(void **state) {
    (void)state;
    on_every_link(2, run_sends);
    on_every_link(3, run_sends);
}

/* Rank 0 fills the wire, begins one message more, and ends it only after all that it had sent has
 * gone out and it has received so many messages that credits were returned: what was written into
 * the slot is what arrives. A relay in a gather does this. */
#define HELD_REPLIES 12

static void send_held(struct ranks *r, struct fabric *f) {
    struct link *l = f->peers[1].link;
    void *payload;
    int n = 0;
    while (n < 4000 && !l->tx_pending && l->ops->slot(l) != NULL) {
        TRY_CALL(message_begin(f, 1, &payload, e));
        memset(payload, n, LINK_SLOT_BYTES);
        TRY_CALL(message_end(f, 1, WIRE_DATA_P2P, 0, 0, LINK_SLOT_BYTES, e));
        n++;
    }
    atomic_store(&r->notes->count, n);
    TRY_CALL(message_begin(f, 1, &payload, e));
    memset(payload, 0xa5, LINK_SLOT_BYTES);
    atomic_store(&r->notes->count, -n);
    for (int i = 0; i < HELD_REPLIES; i++)
        TRY_CALL(message_recv(f, 1, WIRE_DATA_P2P, 0, 0, NULL, 0, e));
    TRY_CALL(message_flush(f, e));
    TRY_CALL(message_end(f, 1, WIRE_DATA_P2P, 0, 0, LINK_SLOT_BYTES, e));
    TRY_CALL(message_flush(f, e));
}

static void expect_filled(struct fabric *f, int with) {
    static uint8_t buf[LINK_SLOT_BYTES];
    TRY_CALL(message_recv(f, 0, WIRE_DATA_P2P, 0, 0, buf, sizeof buf, e));
    for (size_t i = 0; i < sizeof buf; i++)
        EXPECT(buf[i] == (uint8_t)with, "byte %zu is %d, not %d", i, buf[i], (uint8_t)with);
}

static void run_held_slot(struct ranks *r, struct fabric *f) {
    void *payload;
    if (fabric_rank(f) == 0) {
        send_held(r, f);
        return;
    }
    int n;
    while ((n = atomic_load(&r->notes->count)) == 0)
        usleep(1000);
    n = abs(n);
    for (int i = 0; i < n; i++) {
        expect_filled(f, i);
        while (i == n / 2 && atomic_load(&r->notes->count) > 0)
            usleep(1000); /* where no slot was free, now one is */
    }
    for (int i = 0; i < HELD_REPLIES; i++) {
        TRY_CALL(message_begin(f, 0, &payload, e));
        TRY_CALL(message_end(f, 0, WIRE_DATA_P2P, 0, 0, 0, e));
    }
    TRY_CALL(message_flush(f, e));
    expect_filled(f, 0xa5);
}

static void a_slot_that_is_filled_stays_where_it_is(void **state) {
    (void)state;
    on_every_link(2, run_held_slot);
}

static void waiting_uses_no_cpu(void **state) {
    (void)state;
    on_every_link(3, run_idle);
}

/* Much longer than the silence limit, but alive: nobody is lost. */
static void run_slow(struct ranks *r, struct fabric *f) {
    (void)r;
    struct team *t = team_of_all(f);
    struct err err;
    if (fabric_rank(f) == 1)
        usleep(700000);
    enum status st = fabric_barrier(t, &err);
    EXPECT_SOON(st == ST_OK || !starved(&err), "%s", err.text);
    EXPECT(st == ST_OK, "%s", err.text);
}

static void computing_is_not_silence(void **state) {
    (void)state;
    EACH_LINK(ops) {
        struct ranks r;
        ranks_init(&r, 3, (*ops)->id);
        r.cfg.silence_ms = 200;
        r.run = run_slow;
        expect_all_zero(&r);
    }
}

/* Rank 1 loads for longer than the others may wait in a call: they meet without a limit, and at
 * once after it there is one. */
static void run_meeting(struct ranks *r, struct fabric *f) {
    (void)r;
    struct team *t = team_of_all(f);
    struct err err;
    if (fabric_rank(f) == 1)
        usleep(2500000);
    enum status st = fabric_meet(t, &err);
    EXPECT_SOON(st == ST_OK || !starved(&err), "%s", err.text);
    EXPECT(st == ST_OK, "%s", err.text);
    if (fabric_rank(f) == 1)
        usleep(2500000);
    EXPECT(fabric_barrier(t, &err) == ST_PEER_LOST, "the limit of a call");
    EXPECT_SOON(strstr(err.text, "rank 1") && strstr(err.text, "lives but has sent nothing"),
                "%s", err.text);
}

static void who_loads_is_waited_for(void **state) {
    (void)state;
    EACH_LINK(ops) {
        struct ranks r;
        ranks_init(&r, 3, (*ops)->id);
        r.cfg.compute_ms = 1000;
        r.run = run_meeting;
        expect_all_zero(&r);
    }
}

/* ---- algorithms and wires ---------------------------------------------------------------- */

static void every_algorithm_gives_the_same_bits(void **state) {
    (void)state;
    on_every_link(2, run_algorithms);
    on_every_link(3, run_algorithms);
    on_every_link(4, run_algorithms);
}

static void expect_algorithm(struct team *t, size_t n, const char *either, const char * or) {
    const char *name = team_algorithm(t, n);
    EXPECT(str_eq(name, either) || str_eq(name, or), "%s: expected %s or %s", name, either, or);
}

static void run_line_of_3(struct ranks *r, struct fabric *f) {
    run_algorithms(r, f);
    expect_algorithm(team_of_all(f), 1000, "tree", "tree");
}

static void run_ring_of_4(struct ranks *r, struct fabric *f) {
    run_algorithms(r, f);
    expect_algorithm(team_of_all(f), 1000, "tree", "ring");
}

static void run_wires(int n, const uint64_t *wires,
                      void (*run)(struct ranks *, struct fabric *)) {
    EACH_LINK(ops) {
        struct ranks r;
        ranks_init(&r, n, (*ops)->id);
        r.cfg.wires = wires;
        r.run = run;
        expect_all_zero(&r);
    }
}

/* 0 - 1 - 2; four in a ring; four where only the cable between 1 and 3 is missing. */
static void missing_wires_are_gone_round(void **state) {
    (void)state;
    static const uint64_t line[] = {0x2, 0x5, 0x2}, ring[] = {0xa, 0x5, 0xa, 0x5},
                          one_less[] = {0xe, 0x5, 0xb, 0x5};
    run_wires(3, line, run_line_of_3);
    run_wires(4, ring, run_ring_of_4);
    run_wires(4, one_less, run_ring_of_4);
}

static void run_two_hosts(struct ranks *r, struct fabric *f) {
    int me = fabric_rank(f);
    for (int i = 0; i < r->n; i++)
        EXPECT(i == me || str_eq(fabric_link_name(f, i), "shm") == (i / 2 == me / 2),
               "rank %d to %d: %s", me, i, fabric_link_name(f, i));
    run_algorithms(r, f);
}

/* As on another host. */
static int leave_ipc_namespace(void) {
#ifdef __linux__
    return unshare(CLONE_NEWIPC);
#else
    return -1;
#endif
}

/* Ranks 0, 1 here and 2, 3 in another namespace: shm inside, another link between, all
 * algorithms. */
static void two_hosts_of_two_ranks(void **state) {
    (void)state;
    struct ranks r;
    ranks_init(&r, 4, FABRIC_LINK_AUTO);
    r.run = run_two_hosts;
    pid_t runner = fork();
    if (runner != 0) {
        int status;
        close(r.listen_fd);
        waitpid(runner, &status, 0);
        munmap(r.notes, sizeof *r.notes);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
            print_message("skip: no right to make a namespace\n");
            skip();
        }
        assert_int_equal(status, 0);
        return;
    }
    ranks_start_one(&r, 0);
    ranks_start_one(&r, 1);
    if (leave_ipc_namespace() != 0) {
        kill(r.pids[0], SIGKILL);
        kill(r.pids[1], SIGKILL);
        _exit(77);
    }
    ranks_start_one(&r, 2);
    ranks_start_one(&r, 3);
    ranks_wait(&r);
    _exit(r.exits[0] || r.exits[1] || r.exits[2] || r.exits[3]);
}

/* ---- death ------------------------------------------------------------------------------- */

static enum status op_sum(struct fabric *f, struct team *t, struct err *err) {
    (void)f;
    static int64_t x[50000];
    return fabric_allreduce(t, x, ARRAY_LEN(x), err);
}
static enum status op_small_sum(struct fabric *f, struct team *t, struct err *err) {
    (void)f;
    int64_t x[10] = {0};
    return fabric_allreduce(t, x, ARRAY_LEN(x), err);
}
static enum status op_broadcast(struct fabric *f, struct team *t, struct err *err) {
    (void)f;
    static uint8_t buf[1u << 20];
    enum status st = ST_OK;
    for (int root = 0; st == ST_OK && root < team_size(t); root++)
        st = fabric_broadcast(t, root, buf, sizeof buf, err);
    return st;
}
static enum status op_gather(struct fabric *f, struct team *t, struct err *err) {
    (void)f;
    static uint8_t part[100000], all[300000];
    static const size_t bytes[] = {100000, 100000, 100000};
    enum status st = ST_OK;
    for (int root = 0; st == ST_OK && root < team_size(t); root++)
        st = fabric_gather(t, root, part, all, bytes, err);
    return st;
}
static enum status op_barrier(struct fabric *f, struct team *t, struct err *err) {
    (void)f;
    return fabric_barrier(t, err);
}
static enum status op_recv(struct fabric *f, struct team *t, struct err *err) {
    (void)t;
    char c = 0;
    int me = fabric_rank(f), n = fabric_n_ranks(f);
    enum status st = fabric_send(f, (me + 1) % n, &c, 1, err);
    return st == ST_OK ? fabric_recv(f, (me + n - 1) % n, &c, 1, err) : st;
}
static enum status op_wait(struct fabric *f, struct team *t, struct err *err) {
    (void)t;
    return fabric_wait(f, (fabric_rank(f) + 1) % fabric_n_ranks(f), -1, err);
}

static const struct op {
    const char *name;
    enum status (*call)(struct fabric *f, struct team *t, struct err *err);
} ops[] = {{"sum", op_sum},       {"small sum", op_small_sum}, {"broadcast", op_broadcast},
           {"gather", op_gather}, {"barrier", op_barrier},     {"send and recv", op_recv},
           {"wait", op_wait}};

#define VICTIM 1

struct death {
    const struct op *op;
    int signal;
    int within_ms;
    const char *words;
};

/* Asserts the survivor's error: what, who, how soon. */
static void expect_lost(struct ranks *r, struct fabric *f, struct team *t, enum status st,
                        const struct err *err) {
    const struct death *d = r->arg;
    double ms = (double)(clock_ns() - r->notes->killed_at_ns) * 1e-6;
    char who[32];
    snprintf(who, sizeof who, "(pid %d)", (int)r->notes->pids[VICTIM]);
    EXPECT(st == ST_PEER_LOST, "%s: %s: %s", d->op->name, status_name(st), err->text);
    EXPECT_SOON(!starved(err) || (d->signal == SIGSTOP && fabric_lost_rank(f) == VICTIM), "%s",
                err->text);
    EXPECT(strstr(err->text, "rank 1") && strstr(err->text, who),
           "%s: expected rank 1 %s, got: %s", d->op->name, who, err->text);
    /* A link sees the end too, and waits for the better words only a moment (link_failed). */
    EXPECT_SOON(strstr(err->text, d->words), "%s: %s: %s", d->op->name, d->words, err->text);
    EXPECT(fabric_lost_rank(f) == VICTIM, "lost rank %d", fabric_lost_rank(f));
    struct err again;
    EXPECT(d->op->call(f, t, &again) == ST_PEER_LOST, "and so does every next call");
    EXPECT_SOON(ms < d->within_ms, "%s: told after %.0f ms: %s", d->op->name, ms, err->text);
}

static void run_death(struct ranks *r, struct fabric *f) {
    const struct death *d = r->arg;
    struct team *t = team_of_all(f);
    struct err err;
    enum status st = fabric_barrier(t, &err);
    for (int k = 0; st == ST_OK; k++) {
        if (fabric_rank(f) == VICTIM && (k == 5 || d->op->call == op_wait)) {
            usleep(20000);
            r->notes->killed_at_ns = clock_ns();
            raise(d->signal);
        }
        st = d->op->call(f, t, &err);
    }
    expect_lost(r, f, t, st, &err);
}

static void die(const struct link_ops *link, const struct op *op, int signal, int silence_ms,
                int within_ms, const char *words) {
    struct death d = {.op = op, .signal = signal, .within_ms = within_ms, .words = words};
    struct ranks r;
    ranks_init(&r, 3, link->id);
    r.cfg.silence_ms = silence_ms;
    r.run = run_death;
    r.arg = &d;
    int tries = 0;
    bool again;
    do {
        ranks_start(&r);
        int first = 0;
        if (signal == SIGSTOP) { /* who is stopped ends when the others have */
            waitpid(r.pids[0], &first, 0);
            r.pids[0] = 0;
            kill(r.pids[VICTIM], SIGKILL);
        }
        ranks_wait(&r);
        if (signal == SIGSTOP)
            r.exits[0] = WIFEXITED(first) ? WEXITSTATUS(first) : -WTERMSIG(first);
        again = ranks_forgive(&r, &tries);
        assert_int_equal(r.exits[0], 0);
        if (!again ||
            r.exits[VICTIM] != 0) /* 0: late itself, as it was thought dead before it was */
            assert_int_equal(r.exits[VICTIM], -SIGKILL);
        assert_int_equal(r.exits[2], 0);
    } while (again);
}

static void a_killed_rank_is_noticed_at_once(void **state) {
    (void)state;
    int before = count_entries("/dev/shm");
    EACH_LINK(link)
    for (size_t k = 0; k < ARRAY_LEN(ops); k++)
        die(*link, &ops[k], SIGKILL, 3000, 200, "gone");
    assert_int_equal(count_entries("/dev/shm"), before);
}

static void a_stopped_rank_is_noticed_by_its_silence(void **state) {
    (void)state;
    EACH_LINK(link) {
        die(*link, &ops[0], SIGSTOP, 300, 600, "silent for 300 ms");
        die(*link, &ops[ARRAY_LEN(ops) - 1], SIGSTOP, 300, 600, "silent for 300 ms");
    }
}

static volatile sig_atomic_t has_stood;
static void stand_still(int signal) {
    (void)signal;
    has_stood = 1;
    raise(SIGSTOP);
}

/* Rank 0 stands still in a call until the others, who compute meanwhile, have given it up and
 * left. When it is back, after more than they may keep it waiting, it knows that they are not
 * to blame. */
static void run_standstill(struct ranks *r, struct fabric *f) {
    (void)r;
    struct team *t = team_of_all(f);
    struct err err = {.text = ""};
    TRY_CALL(fabric_barrier(t, e));
    if (fabric_rank(f) == 0) {
        signal(SIGALRM, stand_still);
        ualarm(100000, 0);
    } else {
        usleep(1500000);
    }
    enum status st = fabric_barrier(t, &err);
    EXPECT_SOON(fabric_rank(f) != 0 || has_stood, "it is not stopped yet: %s", err.text);
    EXPECT_SOON(st == ST_PEER_LOST, "%s", status_name(st));
    EXPECT_SOON(!starved(&err) || fabric_lost_rank(f) == 0, "%s", err.text);
    EXPECT(fabric_lost_rank(f) == 0, "%s", err.text);
    const char *why = fabric_rank(f) == 0 ? "gave it up" : "silent for 300 ms";
    EXPECT(strstr(err.text, "rank 0") && strstr(err.text, why), "%s", err.text);
    EXPECT(fabric_rank(f) != 0 || strstr(err.text, "stood still for "), "%s", err.text);
}

static void who_stood_still_blames_nobody_else(void **state) {
    (void)state;
    EACH_LINK(link) {
        struct ranks r;
        ranks_init(&r, 3, (*link)->id);
        r.cfg.silence_ms = 300;
        r.cfg.compute_ms = 1000;
        r.run = run_standstill;
        int tries = 0;
        bool again;
        do {
            ranks_start(&r);
            int exits[3] = {0};
            for (int i = 0; i < 3; i++)
                waitpid(r.pids[i], &exits[i], i == 0 ? WUNTRACED : 0);
            if (WIFSTOPPED(exits[0])) {
                kill(r.pids[0], SIGCONT);
                waitpid(r.pids[0], &exits[0], 0);
            }
            memset(r.pids, 0, sizeof r.pids);
            ranks_wait(&r);
            for (int i = 0; i < 3; i++)
                r.exits[i] = WIFEXITED(exits[i]) ? WEXITSTATUS(exits[i]) : -WTERMSIG(exits[i]);
            again = ranks_forgive(&r, &tries);
            for (int i = 0; i < 3; i++)
                assert_int_equal(r.exits[i], 0);
        } while (again);
    }
}

/* ---- bad wires --------------------------------------------------------------------------- */

struct bad_wire {
    const char *emulate, *words;
    int silence_ms;
};

/* What the wire does to a message never becomes a wrong sum: it becomes an error in time. */
static void run_bad_wire(struct ranks *r, struct fabric *f) {
    const struct bad_wire *bad = r->arg;
    static int64_t x[20000];
    struct team *t = NULL;
    struct err err;
    int ranks[] = {0, 1};
    uint64_t begin = clock_ns();
    enum status st = fabric_team(f, &t, ranks, 2, &err);
    for (int k = 0; st == ST_OK && k < 5000; k++) {
        begin = clock_ns();
        for (size_t i = 0; i < ARRAY_LEN(x); i++)
            x[i] = term(0, fabric_rank(f), i);
        st = fabric_allreduce(t, x, ARRAY_LEN(x), &err);
        for (size_t i = 0; st == ST_OK && i < ARRAY_LEN(x); i++)
            EXPECT(x[i] == term(0, 0, i) + term(0, 1, i), "%s: a wrong sum", bad->emulate);
    }
    double ms = (double)(clock_ns() - begin) * 1e-6;
    EXPECT(st == ST_PEER_LOST, "%s: %s", bad->emulate, status_name(st));
    EXPECT_SOON(!starved(&err), "%s", err.text);
    EXPECT(strstr(err.text, bad->words), "%s: expected %s in: %s", bad->emulate, bad->words,
           err.text);
    EXPECT_SOON(ms < 2 * bad->silence_ms + 300, "%s: told after %.0f ms", bad->emulate, ms);
}

static void bad_wires_end_in_a_clean_error(void **state) {
    (void)state;
    static const struct bad_wire bad[] = {
        {"corrupt=1%", "arrived corrupted", 300},
        {"loss=1%", "message", 300}, /* out of its place, or never */
        {"latency=100us,reorder=5%", "arrived in the place of", 300},
        {"stall=50", "did not arrive within 300 ms", 300},
        {"dead=50", "died after 50 messages", 300},
    };
    EACH_LINK(link)
    for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
        struct ranks r;
        ranks_init(&r, 2, (*link)->id);
        r.cfg.emulate = bad[k].emulate;
        r.cfg.silence_ms = bad[k].silence_ms;
        r.arg = &bad[k];
        r.run = run_bad_wire;
        expect_all_zero(&r);
    }
}

/* There and back costs twice what the wire is said to cost. */
static void run_latency(struct ranks *r, struct fabric *f) {
    (void)r;
    char c = 0;
    int me = fabric_rank(f);
    double best = 1e9;
    for (int k = 0; k < 20; k++) {
        uint64_t begin = clock_ns();
        if (me == 0)
            TRY_CALL(fabric_send(f, 1, &c, 1, e));
        TRY_CALL(fabric_recv(f, !me, &c, 1, e));
        if (me == 1)
            TRY_CALL(fabric_send(f, 0, &c, 1, e));
        best = MIN(best, (double)(clock_ns() - begin) * 1e-3);
    }
    EXPECT(me != 0 || best >= 600, "twice 300 us took %.0f us", best);
    EXPECT_SOON(me != 0 || best < 1000, "twice 300 us took %.0f us", best);
}

static void emulated_latency_is_what_was_asked_for(void **state) {
    (void)state;
    struct ranks r;
    ranks_init(&r, 2, FABRIC_LINK_AUTO);
    r.cfg.emulate = "latency=300us";
    r.run = run_latency;
    expect_all_zero(&r);
}

static void bad_descriptions_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"latency",     "latency=3",        "latency=us",
                                      "speed=1Gbit", "bandwidth=-1Gbit", "loss=1%,x"};
    static const char *const good[] = {"latency=3us", "loss=0.5",
                                       "bandwidth=1.5GB,latency=1ms"};
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_int_equal(link_emulate_check(good[i], &err), ST_OK);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(link_emulate_check(bad[i], &err), ST_BAD_INPUT);
}

/* Leaving on purpose: an error only for who still wants something. */
static void run_leaving(struct ranks *r, struct fabric *f) {
    (void)r;
    struct team *t = team_of_all(f);
    struct err err;
    char c = 7;
    TRY_CALL(fabric_barrier(t, e));
    if (fabric_rank(f) == 2) {
        TRY_CALL(fabric_send(f, 0, &c, 1, e));
        return;
    }
    usleep(100000);
    if (fabric_rank(f) == 0) {
        TRY_CALL(fabric_recv(f, 2, &c, 1, e)); /* sent before it left */
        EXPECT(c == 7, "the last message");
    }
    int pair[] = {0, 1};
    TRY_CALL(fabric_team(f, &t, pair, 2, e));
    TRY_CALL(fabric_barrier(t, e)); /* the others go on */
    if (fabric_rank(f) == 1)
        TRY_CALL(fabric_send(f, 0, &c, 1, e));
    if (fabric_rank(f) == 0) {
        /* Through the barrier: what follows ends the group for rank 1 too, wherever it is. */
        TRY_CALL(fabric_recv(f, 1, &c, 1, e));
        EXPECT(fabric_recv(f, 2, &c, 1, &err) == ST_PEER_LOST, "nobody is there");
        EXPECT(strstr(err.text, "rank 2 has left"), "%s", err.text);
    }
}

static void leaving_on_purpose(void **state) {
    (void)state;
    on_every_link(3, run_leaving);
}

static struct fabric *abort_this;
static void on_alarm(int signal) {
    (void)signal;
    fabric_abort(abort_this);
}

static void run_abort(struct ranks *r, struct fabric *f) {
    (void)r;
    struct err err;
    char c;
    if (fabric_rank(f) != 0) {
        EXPECT(fabric_recv(f, 0, &c, 1, &err) == ST_PEER_LOST, "rank 0 leaves");
        return;
    }
    abort_this = f;
    signal(SIGALRM, on_alarm);
    ualarm(100000, 0);
    uint64_t before = clock_ns();
    EXPECT(fabric_wait(f, 1, -1, &err) == ST_CANCELLED, "aborted");
    EXPECT_SOON(clock_ns() - before < 400000000u, "100 ms and %.0f ms",
                (double)(clock_ns() - before) * 1e-6 - 100);
}

static void abort_from_a_signal_handler(void **state) {
    (void)state;
    on_every_link(2, run_abort);
}

static void run_mismatch(struct ranks *r, struct fabric *f) {
    (void)r;
    struct team *t = team_of_all(f);
    struct err err;
    int64_t x[4] = {0};
    enum status st = fabric_rank(f) == 0 ? fabric_allreduce(t, x, 4, &err)
                                         : fabric_broadcast(t, 0, x, sizeof x, &err);
    if (st == ST_OK) /* what the others see may come one call later */
        st = fabric_barrier(t, &err);
    EXPECT(st == ST_PEER_LOST, "%s", status_name(st));
}

static void different_calls_are_told_apart(void **state) {
    (void)state;
    on_every_link(2, run_mismatch);
}

/* ---- bootstrap --------------------------------------------------------------------------- */

static int connect_raw(const struct ranks *r) {
    struct net_address to;
    struct err err;
    int fd = -1;
    assert_int_equal(net_resolve(&to, r->rendezvous, false, &err), ST_OK);
    assert_int_equal(net_connect(&fd, &to, clock_ns() + 20000000000u, &err), ST_OK);
    return fd;
}

static uint64_t soon(void) {
    return clock_ns() + 20000000000u;
}

/* What another version of the protocol hears: our version, then why it is turned away. */
static void visit_with_version_99(const struct ranks *r) {
    struct wire_hello hello = {.magic = WIRE_MAGIC, .version = 99};
    struct wire_proof proof;
    struct wire_answer answer;
    int fd = connect_raw(r);
    assert_int_equal(net_write(fd, &hello, sizeof hello, soon(), NULL), ST_OK);
    assert_int_equal(net_read(fd, &proof, sizeof proof, soon(), NULL), ST_OK);
    assert_int_equal(proof.version, WIRE_VERSION);
    assert_int_equal(net_read(fd, &answer, sizeof answer, soon(), NULL), ST_OK);
    assert_non_null(strstr(answer.text, "version 99"));
    close(fd);
}

static void visit_with_garbage(const struct ranks *r) {
    char noise[512];
    int fd = connect_raw(r);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)rng_u64(1, i);
    net_write(fd, noise, sizeof noise, soon(), NULL);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    close(fd);
}

/* A rank with this change to its configuration is refused with these words. */
static void visit_as_rank(const struct ranks *r, int rank, int n_ranks, uint8_t token,
                          const char *words) {
    struct fabric_config cfg = r->cfg;
    struct fabric *f = NULL;
    struct err err = {.text = ""};
    cfg.rank = rank;
    cfg.n_ranks = n_ranks;
    cfg.rendezvous = r->rendezvous;
    memset(cfg.token, token, sizeof cfg.token);
    assert_int_equal(fabric_open(&f, &cfg, &err), ST_REFUSED);
    if (strstr(err.text, words) == NULL)
        fail_msg("expected \"%s\" in: %s", words, err.text);
}

static void read_all(int fd, char *text, size_t size) {
    size_t n = 0;
    ssize_t got;
    while (n + 1 < size && (got = read(fd, text + n, size - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
}

/* Strangers come while rank 0 waits for rank 1; then rank 1 comes and the group works. */
static void strangers_are_refused_and_disturb_nobody(void **state) {
    (void)state;
    struct ranks r;
    ranks_init(&r, 2, FABRIC_LINK_AUTO);
    r.run = run_sums;
    int told[2], keep = dup(STDERR_FILENO);
    assert_int_equal(pipe(told), 0);
    dup2(told[1], STDERR_FILENO);
    close(told[1]);
    ranks_start_one(&r, 0);
    dup2(keep, STDERR_FILENO);
    close(keep);
    int silent = connect_raw(&r); /* connects, says nothing, stays */
    visit_with_garbage(&r);
    visit_with_version_99(&r);
    visit_as_rank(&r, 1, 2, 0x11, "its token is not ours");
    visit_as_rank(&r, 1, 3, 0x5a, "it counts 3 ranks in the group, this one has 2");
    ranks_start_one(&r, 1);
    ranks_wait(&r);
    close(silent);
    assert_int_equal(r.exits[0], 0);
    assert_int_equal(r.exits[1], 0);
    char text[4096];
    read_all(told[0], text, sizeof text);
    close(told[0]);
    static const char *const said[] = {"it does not speak our protocol", "version 99",
                                       "it has another group's token", "it counts 3 ranks"};
    for (size_t i = 0; i < ARRAY_LEN(said); i++)
        if (strstr(text, said[i]) == NULL)
            fail_msg("rank 0 did not say \"%s\" but: %s", said[i], text);
}

/* More silent strangers than there are places: a visitor who is slow keeps his as long as
 * nobody needs it; then the ones that have had their time make room, and rank 1 comes in. */
static void a_crowd_at_the_door(void **state) {
    (void)state;
    struct ranks r;
    ranks_init(&r, 2, FABRIC_LINK_AUTO);
    r.run = run_sums;
    ranks_start_one(&r, 0);
    int slow = connect_raw(&r), silent[40];
    struct wire_hello hello = {.magic = WIRE_MAGIC, .version = WIRE_VERSION};
    struct wire_proof proof;
    sleep(4); /* more than a visitor's time */
    assert_int_equal(net_write(slow, &hello, sizeof hello, soon(), NULL), ST_OK);
    assert_int_equal(net_read(slow, &proof, sizeof proof, soon(), NULL), ST_OK);
    assert_int_equal(proof.magic, WIRE_MAGIC);
    for (size_t i = 0; i < ARRAY_LEN(silent); i++)
        silent[i] = connect_raw(&r);
    ranks_start_one(&r, 1);
    ranks_wait(&r);
    assert_int_equal(r.exits[0], 0);
    assert_int_equal(r.exits[1], 0);
    struct wire_answer answer;
    assert_int_equal(net_read(slow, &answer, sizeof answer, soon(), NULL), ST_OK);
    assert_non_null(strstr(answer.text, "did not prove itself in time"));
    close(slow);
    for (size_t i = 0; i < ARRAY_LEN(silent); i++)
        close(silent[i]);
}

static void a_missing_rank_is_named(void **state) {
    (void)state;
    struct ranks r;
    ranks_init(&r, 3, FABRIC_LINK_AUTO);
    struct fabric_config cfg = r.cfg;
    struct fabric *f = NULL;
    struct err err;
    cfg.rendezvous = r.rendezvous;
    cfg.listen_fd = r.listen_fd;
    cfg.bootstrap_ms = 200;
    uint64_t missing = 0;
    cfg.missing = &missing;
    assert_int_equal(fabric_open(&f, &cfg, &err), ST_TIMEOUT);
    assert_int_equal(missing, 1 << 1 | 1 << 2);
    assert_non_null(strstr(err.text, "rank 1, 2 of 3 did not come within 200 ms"));
    munmap(r.notes, sizeof *r.notes);
}

/* A rank that has come, whose time is over before rank 0's, waits for what that says. */
static void come_in_vain(const struct ranks *r, int rank, int bootstrap_ms) {
    struct fabric_config cfg = ranks_config(r, rank);
    struct fabric *f = NULL;
    struct err err = {.text = ""};
    cfg.bootstrap_ms = bootstrap_ms;
    enum status st = fabric_open(&f, &cfg, &err);
    EXPECT_SOON(strstr(err.text, "at the rendezvous") == NULL, "%s", err.text);
    EXPECT(strstr(err.text, "rank 2 of 3 did not come within 3000 ms"), "%s", err.text);
    EXPECT(st == (rank == 0 ? ST_TIMEOUT : ST_PEER_LOST), "%s", status_name(st));
    _exit(0);
}

static void who_has_come_names_the_missing_rank_too(void **state) {
    (void)state;
    struct ranks r;
    ranks_init(&r, 3, FABRIC_LINK_AUTO);
    r.cfg.silence_ms = 10000;
    int tries = 0;
    do {
        for (int i = 0; i < 2; i++) {
            fflush(NULL);
            r.pids[i] = fork();
            if (r.pids[i] == 0)
                come_in_vain(&r, i, i == 0 ? 3000 : 1500);
        }
        ranks_wait(&r);
        if (r.exits[1] == EXIT_LATE) /* then rank 0 missed it, too */
            r.exits[0] = 0;
    } while (ranks_forgive(&r, &tries));
    assert_int_equal(r.exits[0], 0);
    assert_int_equal(r.exits[1], 0);
}

static void run_nothing(struct ranks *r, struct fabric *f) {
    (void)r, (void)f;
}

/* Killed after it has joined, while the group waits for a third: everybody hears of it. */
static void a_rank_killed_in_the_bootstrap(void **state) {
    (void)state;
    struct ranks r;
    ranks_init(&r, 4, FABRIC_LINK_AUTO);
    r.run = run_nothing;
    int tries = 0;
    bool late;
    do {
        for (int i = 0; i < 3; i++) /* rank 3 never comes */
            ranks_start_one(&r, i);
        usleep(300000); /* whether all have joined by then shows in the time only */
        uint64_t before = clock_ns();
        kill(r.pids[VICTIM], SIGKILL);
        ranks_wait(&r);
        assert_int_equal(r.exits[0], 1);
        assert_int_equal(r.exits[2], 1);
        late = clock_ns() - before > 500000000u;
        assert_true(!late || ++tries < LATE_TRIES);
        if (late)
            ranks_renew(&r);
    } while (late);
}

static void bad_configurations_are_refused(void **state) {
    (void)state;
    struct fabric_config cfg;
    struct fabric *f = NULL;
    struct err err;
    fabric_config_defaults(&cfg);
    cfg.n_ranks = FABRIC_MAX_RANKS + 1;
    assert_int_equal(fabric_open(&f, &cfg, &err), ST_BAD_INPUT);
    cfg.n_ranks = 2;
    cfg.rank = 2;
    assert_int_equal(fabric_open(&f, &cfg, &err), ST_BAD_INPUT);
    cfg.rank = 1;
    cfg.rendezvous = "nowhere";
    assert_int_equal(fabric_open(&f, &cfg, &err), ST_BAD_INPUT);
    assert_null(f);
}

/* Argument: only the tests of this name (cmocka's wildcards). */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_equal_the_serial_sum),
        cmocka_unit_test(overlapping_teams),
        cmocka_unit_test(broadcasts),
        cmocka_unit_test(unequal_gathers),
        cmocka_unit_test(barriers),
        cmocka_unit_test(sends_keep_their_order),
        cmocka_unit_test(a_slot_that_is_filled_stays_where_it_is),
        cmocka_unit_test(waiting_uses_no_cpu),
        cmocka_unit_test(computing_is_not_silence),
        cmocka_unit_test(who_loads_is_waited_for),
        cmocka_unit_test(every_algorithm_gives_the_same_bits),
        cmocka_unit_test(missing_wires_are_gone_round),
        cmocka_unit_test(two_hosts_of_two_ranks),
        cmocka_unit_test(a_killed_rank_is_noticed_at_once),
        cmocka_unit_test(a_stopped_rank_is_noticed_by_its_silence),
        cmocka_unit_test(who_stood_still_blames_nobody_else),
        cmocka_unit_test(bad_wires_end_in_a_clean_error),
        cmocka_unit_test(emulated_latency_is_what_was_asked_for),
        cmocka_unit_test(bad_descriptions_are_refused),
        cmocka_unit_test(leaving_on_purpose),
        cmocka_unit_test(abort_from_a_signal_handler),
        cmocka_unit_test(different_calls_are_told_apart),
        cmocka_unit_test(strangers_are_refused_and_disturb_nobody),
        cmocka_unit_test(a_crowd_at_the_door),
        cmocka_unit_test(a_missing_rank_is_named),
        cmocka_unit_test(who_has_come_names_the_missing_rank_too),
        cmocka_unit_test(a_rank_killed_in_the_bootstrap),
        cmocka_unit_test(bad_configurations_are_refused),
    };
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
