/* pair_speed.c: each two ranks exchange a few messages, as many pairs at once as there can be. */
#include "ranks/pair_speed.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/mem.h"
#include "base/util.h"

#include <string.h>

#define SMALL_TRIES 15
#define SMALL_LEAST 3
#define SMALL_NS 8e6
#define LARGE_BYTES ((size_t)256 << 10)
#define LARGE_TRIES 3
#define LARGE_NS 30e6
#define NOTICEABLE 1.1  /* else the size of a message is nothing beside its delay */
#define SPEED_MOST 1e15 /* of a rank that does not measure */

struct probe {
    struct fabric *f;
    uint64_t *buf; /* [LARGE_BYTES] */
};

/* `tries` messages of n bytes to the other, each with a word back; the first word says whether it
 * is the last. Out: the median of the round trips. */
static enum status ask(double *out_ns, struct probe *p, int other, size_t n, size_t tries,
                       size_t least, double budget_ns, struct err *err) {
    double ns[SMALL_TRIES], spent_ns = 0;
    size_t done = 0;
    for (bool last = false; !last;) {
        last = done + 1 == tries || (done + 1 >= least && spent_ns > budget_ns);
        p->buf[0] = last;
        uint64_t began = clock_ns();
        TRY(fabric_send(p->f, other, p->buf, n, err));
        TRY(fabric_recv(p->f, other, p->buf, sizeof *p->buf, err));
        ns[done] = (double)(clock_ns() - began);
        spent_ns += ns[done++];
    }
    *out_ns = median(ns, done);
    return ST_OK;
}

static enum status answer(struct probe *p, int other, size_t n, struct err *err) {
    for (bool last = false; !last;) {
        TRY(fabric_recv(p->f, other, p->buf, n, err));
        last = p->buf[0] != 0;
        TRY(fabric_send(p->f, other, p->buf, sizeof *p->buf, err));
    }
    return ST_OK;
}

static enum status measure(struct pair_speed *out, struct probe *p, int other,
                           struct err *err) {
    double small_ns, large_ns;
    TRY(ask(&small_ns, p, other, sizeof *p->buf, SMALL_TRIES, SMALL_LEAST, SMALL_NS, err));
    TRY(ask(&large_ns, p, other, LARGE_BYTES, LARGE_TRIES, 1, LARGE_NS, err));
    out->latency_s = small_ns * 0.5e-9;
    if (large_ns > NOTICEABLE * small_ns)
        out->bandwidth = (double)LARGE_BYTES / ((large_ns - small_ns) * 1e-9);
    return ST_OK;
}

static enum status be_measured(struct probe *p, int other, struct err *err) {
    TRY(answer(p, other, sizeof *p->buf, err));
    return answer(p, other, LARGE_BYTES, err);
}

/* Whom a rank meets in a round, as in a tournament: the last of an even number stands still, and
 * the others go round. */
static int partner(int rank, int round, int even) {
    int turning = even - 1;
    if (rank == turning)
        return round;
    if (rank == round)
        return turning;
    return (2 * round - rank + 2 * turning) % turning;
}

static enum status meet_all(struct pair_speed *mine, struct probe *p, struct err *err) {
    int rank = fabric_rank(p->f), n = fabric_n_ranks(p->f), even = n + n % 2;
    for (int round = 0; round < even - 1; round++) {
        int other = partner(rank, round, even);
        if (other >= n)
            continue;
        TRY(rank < other ? measure(&mine[other], p, other, err) : be_measured(p, other, err));
    }
    return ST_OK;
}

static bool makes_sense(const struct pair_speed *s) {
    return s->latency_s >= 0 && s->latency_s < SPEED_MOST && s->bandwidth >= 0 &&
           s->bandwidth < SPEED_MOST;
}

static void keep_upper(struct pair_speeds *all) {
    for (int i = 0; i < PLAN_MAX_RANKS; i++)
        for (int j = 0; j < PLAN_MAX_RANKS; j++)
            if (j <= i || !makes_sense(&all->of[i][j]))
                all->of[i][j] = (struct pair_speed){.latency_s = 0};
}

enum status pair_speed_measure(struct pair_speeds *out, struct fabric *f, struct team *all,
                               struct err *err) {
    struct pair_speed mine[PLAN_MAX_RANKS] = {{.latency_s = 0}};
    size_t parts[PLAN_MAX_RANKS];
    struct probe p = {.f = f, .buf = mem_calloc(1, LARGE_BYTES)};
    for (int i = 0; i < PLAN_MAX_RANKS; i++)
        parts[i] = sizeof mine;
    if (p.buf == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to measure the wires");
    enum status st = fabric_barrier(all, err);
    if (st == ST_OK)
        st = meet_all(mine, &p, err);
    mem_free(p.buf);
    TRY(st);
    if (fabric_rank(f) == 0)
        memset(out, 0, sizeof *out);
    TRY(fabric_gather(all, 0, mine, out != NULL ? out->of : NULL, parts, err));
    if (fabric_rank(f) == 0)
        keep_upper(out);
    return ST_OK;
}
