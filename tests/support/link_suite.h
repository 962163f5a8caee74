/* link_suite.h: what every link must carry, as functions that each rank of a group runs: sums
 * against serial int64 sums, the other collectives, sends, every algorithm. test_fabric runs
 * them over the links of this machine, fabric_peer over a wire between two. */
#ifndef LINK_SUITE_H
#define LINK_SUITE_H

#include "fabric_ranks.h"

#include "base/rng.h"
#include "fabric/team.h"

#include <limits.h>
#include <sys/resource.h>

#define TRY_CALL(call)                                                             \
    do {                                                                           \
        struct err err_;                                                           \
        struct err *e = &err_;                                                     \
        enum status st_ = (call);                                                  \
        EXPECT(st_ == ST_OK, "rank %d: %s: %s", fabric_rank(f), #call, err_.text); \
    } while (0)

static inline struct team *team_of_all(struct fabric *f) {
    int ranks[MAX_TEST_RANKS];
    struct team *t = NULL;
    for (int i = 0; i < fabric_n_ranks(f); i++)
        ranks[i] = i;
    TRY_CALL(fabric_team(f, &t, ranks, fabric_n_ranks(f), e));
    return t;
}

/* What rank contributes at i: mostly small, per block of `seed` also the edges of int32, values
 * whose sum leaves int32, and values whose sum wraps in int64. */
static inline int64_t term(uint64_t seed, int rank, size_t i) {
    static const int64_t edges[] = {INT32_MAX,
                                    INT32_MIN,
                                    (int64_t)INT32_MAX + 1,
                                    (int64_t)INT32_MIN - 1,
                                    INT64_MAX,
                                    INT64_MIN,
                                    0,
                                    -1};
    uint64_t v = rng_u64(seed * 64 + (uint64_t)rank, i);
    if (seed % 2 == 1 && v % 97 == 0)
        return edges[(v >> 32) % ARRAY_LEN(edges)];
    if (seed % 4 == 3 && i / 64 % 3 == 0)
        return (int64_t)v;
    return (int64_t)(v % (1u << 30)) - (1 << 29);
}

static inline void sum_once(struct fabric *f, struct team *t, const int *ranks, int n_ranks,
                            uint64_t seed, size_t n) {
    static int64_t x[100001];
    x[n] = 0x1234567;
    for (size_t i = 0; i < n; i++)
        x[i] = term(seed, fabric_rank(f), i);
    TRY_CALL(fabric_allreduce(t, x, n, e));
    for (size_t i = 0; i < n; i++) {
        uint64_t sum = 0;
        for (int k = 0; k < n_ranks; k++)
            sum += (uint64_t)term(seed, ranks[k], i);
        EXPECT((uint64_t)x[i] == sum, "rank %d, n %zu, seed %d: element %zu", fabric_rank(f), n,
               (int)seed, i);
    }
    EXPECT(x[n] == 0x1234567, "element n is untouched");
}

static inline void run_sums(struct ranks *r, struct fabric *f) {
    static const size_t sizes[] = {1,    2,    63,   64,    65,    1000,  2048,
                                   4095, 4096, 4097, 12288, 32769, 100000};
    static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct team *t = team_of_all(f);
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++)
        for (uint64_t seed = 0; seed < 4; seed++)
            sum_once(f, t, all, r->n, seed, sizes[k]);
    TRY_CALL(fabric_allreduce(t, NULL, 0, e));
}

static inline uint8_t byte_of(int rank, size_t i) {
    return (uint8_t)(rng_u64((uint64_t)rank + 1000, i / 8) >> i % 8 * 8);
}

static inline void run_broadcasts(struct ranks *r, struct fabric *f) {
    static const size_t sizes[] = {
        0, 1, 100, LINK_SLOT_BYTES - 1, LINK_SLOT_BYTES, LINK_SLOT_BYTES + 1, 1u << 20};
    static uint8_t buf[1u << 20];
    struct team *t = team_of_all(f);
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++)
        for (int root = 0; root < r->n; root++) {
            for (size_t i = 0; i < sizes[k]; i++)
                buf[i] = fabric_rank(f) == root ? byte_of(root, i) : 0;
            TRY_CALL(fabric_broadcast(t, root, buf, sizes[k], e));
            for (size_t i = 0; i < sizes[k]; i++)
                EXPECT(buf[i] == byte_of(root, i), "byte %zu of %zu", i, sizes[k]);
        }
}

static inline void gather_once(struct fabric *f, struct team *t, int n, int root,
                               bool in_place) {
    static uint8_t all[1u << 20], part[1u << 18];
    size_t bytes[MAX_TEST_RANKS], at[MAX_TEST_RANKS + 1] = {0};
    int me = fabric_rank(f);
    for (int i = 0; i < n; i++) {
        bytes[i] = i == 1 ? 0 : (size_t)(i * 50000 + 7);
        at[i + 1] = at[i] + bytes[i];
    }
    uint8_t *mine = in_place && me == root ? all + at[me] : part;
    memset(all, 0, sizeof all);
    for (size_t i = 0; i < bytes[me]; i++)
        mine[i] = byte_of(me, i);
    TRY_CALL(fabric_gather(t, root, mine, me == root ? all : NULL, bytes, e));
    for (int k = 0; me == root && k < n; k++)
        for (size_t i = 0; i < bytes[k]; i++)
            EXPECT(all[at[k] + i] == byte_of(k, i), "byte %zu of rank %d", i, k);
}

static inline void run_gathers(struct ranks *r, struct fabric *f) {
    struct team *t = team_of_all(f);
    for (int root = 0; root < r->n; root++) {
        gather_once(f, t, r->n, root, false);
        gather_once(f, t, r->n, root, true);
    }
}

/* Nobody leaves barrier k before everybody has come to it (seen where the ranks share memory). */
static inline void run_barriers(struct ranks *r, struct fabric *f) {
    struct team *t = team_of_all(f);
    for (int k = 0; k < 50; k++) {
        if (r->notes != NULL)
            atomic_fetch_add(&r->notes->count, 1);
        TRY_CALL(fabric_barrier(t, e));
        int here = r->notes != NULL ? atomic_load(&r->notes->count) : (k + 1) * r->n;
        EXPECT(here >= (k + 1) * r->n, "%d of %d arrivals", here, (k + 1) * r->n);
        TRY_CALL(fabric_barrier(t, e));
    }
}

/* A ring of sends: many sizes in a row, in order, while every rank both sends and receives. */
static inline void run_sends(struct ranks *r, struct fabric *f) {
    static uint8_t buf[200000];
    int me = fabric_rank(f), next = (me + 1) % r->n, last = (me + r->n - 1) % r->n;
    for (size_t k = 0; k < 60; k++) {
        size_t n = k * k * 50 + k;
        for (size_t i = 0; i < n; i++)
            buf[i] = byte_of(me, i + k);
        if (me == 0)
            TRY_CALL(fabric_send(f, next, buf, n, e));
        TRY_CALL(fabric_recv(f, last, buf, n, e));
        for (size_t i = 0; i < n; i += 37)
            EXPECT(buf[i] == byte_of(last, i + k), "message %zu byte %zu", k, i);
        for (size_t i = 0; i < n; i++)
            buf[i] = byte_of(me, i + k);
        if (me != 0)
            TRY_CALL(fabric_send(f, next, buf, n, e));
    }
    /* Small ones are buffered: three in flight before the first is read. */
    for (uint8_t k = 0; k < 3; k++)
        TRY_CALL(fabric_send(f, next, &k, 1, e));
    for (uint8_t k = 0, got; k < 3; k++) {
        TRY_CALL(fabric_recv(f, last, &got, 1, e));
        EXPECT(got == k, "message %d came as %d", k, got);
    }
}

/* Every algorithm that fits the team's shape, by table: the same bits. */
static inline void sum_by_all(struct fabric *f, struct team *t, uint64_t seed, size_t n) {
    static int64_t x[100001];
    for (const struct sum_algorithm *a = sum_algorithms; a->name != NULL; a++) {
        if (!a->fits(t))
            continue;
        for (size_t i = 0; i < n; i++)
            x[i] = term(seed, fabric_rank(f), i);
        TRY_CALL(a->sum(t, x, n, e));
        TRY_CALL(message_flush(f, e));
        for (size_t i = 0; i < n; i++) {
            uint64_t sum = 0;
            for (int k = 0; k < team_size(t); k++)
                sum += (uint64_t)term(seed, k, i);
            EXPECT((uint64_t)x[i] == sum, "rank %d, %s, n %zu: element %zu", fabric_rank(f),
                   a->name, n, i);
        }
    }
}

/* The two halves of every algorithm that has them: a share of the sum at each member, then rows
 * of two buffers from each to all; shares of any size, some of none. */
static inline void halves_by_all(struct fabric *f, struct team *t, uint64_t seed,
                                 uint32_t rows) {
    enum { WIDTH = 96, TAG = 5 };
    static int64_t x[1100 * WIDTH];
    static uint8_t wide[1100 * WIDTH], tags[1100 * TAG];
    const struct fabric_rows list[] = {{wide, WIDTH}, {tags, TAG}};
    uint32_t first[MAX_TEST_RANKS + 1] = {0};
    size_t begin[MAX_TEST_RANKS + 1] = {0};
    int me = team_index(t), n = team_size(t);
    for (int i = 0; i < n; i++) {
        uint32_t more =
            i + 1 == n ? rows : (uint32_t)(rng_u64(seed, (uint64_t)i) % 3) * rows / 3;
        first[i + 1] = MIN(first[i] + more, rows);
        begin[i + 1] = (size_t)first[i + 1] * WIDTH;
    }
    for (const struct sum_algorithm *a = sum_algorithms; a->name != NULL; a++) {
        if (!a->fits(t) || a->share == NULL)
            continue;
        for (size_t i = 0; i < begin[n]; i++)
            x[i] = term(seed, me, i);
        TRY_CALL(a->reduce_scatter(t, x, begin, e));
        for (size_t i = begin[me]; i < begin[me + 1]; i++) {
            uint64_t sum = 0;
            for (int k = 0; k < n; k++)
                sum += (uint64_t)term(seed, k, i);
            EXPECT((uint64_t)x[i] == sum, "rank %d, %s by shares, %u rows: element %zu", me,
                   a->name, rows, i);
        }
        memset(wide, 0, sizeof wide);
        memset(tags, 0, sizeof tags);
        for (size_t i = begin[me]; i < begin[me + 1]; i++)
            wide[i] = byte_of(me, i);
        for (size_t i = (size_t)first[me] * TAG; i < (size_t)first[me + 1] * TAG; i++)
            tags[i] = byte_of(me + 50, i);
        TRY_CALL(a->share(t, list, ARRAY_LEN(list), first, e));
        TRY_CALL(message_flush(f, e));
        for (int k = 0; k < n; k++) {
            for (size_t i = begin[k]; i < begin[k + 1]; i++)
                EXPECT(wide[i] == byte_of(k, i), "%s, share of %d: byte %zu", a->name, k, i);
            for (size_t i = (size_t)first[k] * TAG; i < (size_t)first[k + 1] * TAG; i++)
                EXPECT(tags[i] == byte_of(k + 50, i), "%s, tag of %d: %zu", a->name, k, i);
        }
    }
}

static inline void run_algorithms(struct ranks *r, struct fabric *f) {
    (void)r;
    static const size_t sizes[] = {1, 64, 65, 300, 4097, 50000, 100000};
    struct team *t = team_of_all(f);
    for (int past = 0; past < 2; past++) {
        t->past_caches = past == 1;
        for (size_t k = 0; k < ARRAY_LEN(sizes); k++)
            sum_by_all(f, t, 3, sizes[k]);
        for (uint32_t k = 0; k < 6; k++)
            halves_by_all(f, t, k, (uint32_t[]){1, 16, 90, 513, 1000, 1100}[k]);
    }
    run_broadcasts(r, f);
    run_gathers(r, f);
    run_barriers(r, f);
    EXPECT(team_algorithm(t, 1000) != NULL, "the choice is told");
}

/* ---- idling ------------------------------------------------------------------------------ */

#define IDLE_MS 250
#define IDLE_WINDOWS 4
/* All threads' sleeps in a window. What one costs is the machine's affair, 5 to 100 us; so 25
 * of them are less than 1 % of a core even where everything is slow. */
#define IDLE_WAKES 25

struct idleness {
    long wakes;
    double cpu_ms;
};

static inline struct idleness idleness_now(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (struct idleness){u.ru_nvcsw,
                             (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
                                 (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-3};
}

/* A worker between requests: no time limit but its own, and hardly any CPU. The least of some
 * windows: what else goes on in the machine only adds. */
static inline void run_idle(struct ranks *r, struct fabric *f) {
    struct team *t = team_of_all(f);
    struct idleness least = {LONG_MAX, 1e9};
    struct err err;
    char c = 0;
    if (fabric_rank(f) == 0) {
        while (atomic_load(&r->notes->count) < r->n - 1)
            usleep(10000);
        TRY_CALL(fabric_broadcast(t, 0, &c, 1, e));
        return;
    }
    EXPECT(fabric_wait(f, 0, IDLE_MS, &err) == ST_AGAIN, "nothing is there yet");
    for (int k = 0; k < IDLE_WINDOWS; k++) {
        struct idleness before = idleness_now();
        EXPECT(fabric_wait(f, 0, IDLE_MS, &err) == ST_AGAIN, "nothing is there yet");
        struct idleness after = idleness_now();
        least.wakes = MIN(least.wakes, after.wakes - before.wakes);
        least.cpu_ms = MIN(least.cpu_ms, after.cpu_ms - before.cpu_ms);
    }
    atomic_fetch_add(&r->notes->count, 1);
    TRY_CALL(fabric_wait(f, 0, -1, e));
    TRY_CALL(fabric_broadcast(t, 0, &c, 1, e));
    EXPECT(least.wakes <= IDLE_WAKES, "idle for %d ms it woke %ld times", IDLE_MS, least.wakes);
    EXPECT(least.cpu_ms < IDLE_MS / 4, "idle for %d ms it spun for %.1f ms", IDLE_MS,
           least.cpu_ms);
}

#endif
