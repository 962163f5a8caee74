/* meter.c: measures links. Every rank is a child process. Times are taken on rank 0 and come
 * back through shared memory. */
#include "fabric/meter.h"

#include "base/clock.h"
#include "base/core.h"
#include "base/rng.h"
#include "base/util.h"
#include "link/links.h"
#include "link/raw.h"
#include "net/net.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t meter_sizes[] = {8, 64, 512, 2048, 8192, 65536, 1u << 20};
#define N_SIZES ARRAY_LEN(meter_sizes)
#define MAX_SAMPLES 20000
#define LIMIT_S 120                  /* for ten rounds */
#define RAW_PIECE ((size_t)32 << 10) /* both sides of an exchange fit a socket's buffer */

enum meter_op { METER_RAW, METER_RAW_EXCHANGE, METER_PINGPONG, METER_SUM, METER_N_OPS };

struct samples {
    size_t n;
    float us[MAX_SAMPLES];
};

/* Shared by the parent and the ranks. */
struct meter_shared {
    struct samples samples[METER_N_OPS][N_SIZES];
    struct err errors[FABRIC_MAX_RANKS];
    enum status status[FABRIC_MAX_RANKS];
};

struct meter {
    const struct meter_config *cfg;
    struct meter_shared *shared;
    struct raw *raw; /* NULL: no bare medium */
    struct fabric *f;
    struct team *all;
    uint8_t *buf;
    int rank;
    pid_t parent;
};

/* Few large, many small: about the same time for each. */
static size_t samples_per_round(size_t bytes) {
    return MIN(MAX((1u << 20) / bytes, 12u), 200u);
}

static size_t n_sizes(const struct meter_config *cfg) {
    size_t n = 0;
    while (n < N_SIZES && meter_sizes[n] <= cfg->max_bytes)
        n++;
    return n;
}

static void take(struct samples *s, double us) {
    if (s->n < MAX_SAMPLES)
        s->us[s->n++] = (float)us;
}

/* ---- one measured call ------------------------------------------------------------------- */

static enum status raw_round_trip(struct meter *m, size_t bytes, struct err *err) {
    (void)err;
    if (m->rank == 0)
        raw_send(m->raw, 0, m->buf, bytes);
    raw_recv(m->raw, m->rank, m->buf, bytes);
    if (m->rank == 1)
        raw_send(m->raw, 1, m->buf, bytes);
    return ST_OK;
}

/* What a sum cannot beat: both sides send, then both receive. */
static enum status raw_exchange(struct meter *m, size_t bytes, struct err *err) {
    (void)err;
    for (size_t at = 0; at < bytes; at += RAW_PIECE) {
        size_t n = MIN(bytes - at, RAW_PIECE);
        raw_send(m->raw, m->rank, m->buf + at, n);
        raw_recv(m->raw, m->rank, m->buf + m->cfg->max_bytes + at, n);
    }
    return ST_OK;
}

static enum status fabric_round_trip(struct meter *m, size_t bytes, struct err *err) {
    if (m->rank == 0)
        TRY(fabric_send(m->f, 1, m->buf, bytes, err));
    TRY(fabric_recv(m->f, !m->rank, m->buf, bytes, err));
    if (m->rank == 1)
        TRY(fabric_send(m->f, 0, m->buf, bytes, err));
    return ST_OK;
}

static enum status sum_once(struct meter *m, size_t bytes, struct err *err) {
    return fabric_allreduce(m->all, (int64_t *)m->buf, bytes / 4, err);
}

typedef enum status timed_fn(struct meter *m, size_t bytes, struct err *err);

/* `ways`: messages one after the other in a call. */
static enum status measure(struct meter *m, timed_fn *fn, int ways, struct samples *s,
                           size_t bytes, struct err *err) {
    size_t n = samples_per_round(bytes);
    for (size_t i = 0; i < n + 3; i++) { /* the first few find cold caches */
        uint64_t begin = clock_ns();
        TRY(fn(m, bytes, err));
        if (i >= 3 && m->rank == 0)
            take(s, (double)(clock_ns() - begin) * 1e-3 / ways);
    }
    return ST_OK;
}

static enum status measure_size(struct meter *m, size_t k, struct err *err) {
    struct samples(*s)[N_SIZES] = m->shared->samples;
    size_t bytes = meter_sizes[k];
    if (getppid() != m->parent)
        return err_set(err, ST_CANCELLED, "who asked for the measurement is gone");
    TRY(fabric_barrier(m->all, err));
    if (m->rank < 2 && m->raw != NULL)
        TRY(measure(m, raw_round_trip, 2, &s[METER_RAW][k], bytes, err));
    if (m->rank < 2 && m->raw != NULL)
        TRY(measure(m, raw_exchange, 1, &s[METER_RAW_EXCHANGE][k], bytes, err));
    if (m->rank < 2)
        TRY(measure(m, fabric_round_trip, 2, &s[METER_PINGPONG][k], bytes, err));
    memset(m->buf, 0, bytes * 2); /* as int64: small numbers, as in a model */
    TRY(fabric_barrier(m->all, err));
    return measure(m, sum_once, 1, &s[METER_SUM][k], bytes, err);
}

/* ---- a rank ------------------------------------------------------------------------------ */

static enum status rank_measures(struct meter *m, const struct fabric_config *fc,
                                 struct err *err) {
    int ranks[FABRIC_MAX_RANKS];
    for (int i = 0; i < fc->n_ranks; i++)
        ranks[i] = i;
    TRY(fabric_open(&m->f, fc, err));
    TRY(fabric_team(m->f, &m->all, ranks, fc->n_ranks, err));
    for (int round = 0; round < m->cfg->n_rounds; round++)
        for (size_t k = 0; k < n_sizes(m->cfg); k++)
            TRY(measure_size(m, k, err));
    return fabric_barrier(m->all, err);
}

static _Noreturn void rank_main(struct meter *m, struct fabric_config *fc, const char *at) {
    core_pin(m->rank);
    fc->rank = m->rank;
    fc->rendezvous = at;
    if (m->rank != 0) {
        close(fc->listen_fd);
        fc->listen_fd = -1;
    }
    m->buf = aligned_alloc(4096, round_up(2 * m->cfg->max_bytes, 4096));
    m->shared->status[m->rank] =
        m->buf == NULL ? err_set(&m->shared->errors[m->rank], ST_NO_MEMORY, "no memory")
                       : rank_measures(m, fc, &m->shared->errors[m->rank]);
    fabric_close(m->f);
    _exit(0);
}

/* ---- the parent -------------------------------------------------------------------------- */

static void wait_for_ranks(const pid_t *pids, int n, int n_rounds) {
    uint64_t end = clock_ns() + LIMIT_S * 1000000000ull * (uint64_t)(1 + n_rounds / 10);
    for (int i = 0; i < n; i++) {
        int status;
        while (pids[i] > 0 && waitpid(pids[i], &status, WNOHANG) == 0) {
            if (clock_ns() > end)
                kill(pids[i], SIGKILL);
            usleep(2000);
        }
    }
}

static enum status start_ranks(struct meter *m, pid_t *pids, struct err *err) {
    struct fabric_config fc;
    struct net_address at;
    char text[NET_TEXT_BYTES];
    fabric_config_defaults(&fc);
    fc.n_ranks = m->cfg->n_ranks;
    fc.link = m->cfg->link;
    fc.emulate = m->cfg->emulate;
    fc.max_message_bytes = 2 * m->cfg->max_bytes;
    for (size_t i = 0; i < sizeof fc.token; i++)
        fc.token[i] = (uint8_t)(rng_u64(clock_ns() ^ (uint64_t)getpid(), i) >> 24);
    TRY(net_resolve(&at, "127.0.0.1:0", true, err));
    TRY(net_listen(&fc.listen_fd, &at, err));
    TRY(net_local(fc.listen_fd, &at, err));
    net_text(&at, text);
    for (int r = 0; r < fc.n_ranks; r++) {
        m->shared->status[r] = ST_IO; /* until the rank itself says otherwise */
        m->rank = r;
        pids[r] = fork();
        if (pids[r] == 0)
            rank_main(m, &fc, text);
    }
    close(fc.listen_fd);
    return ST_OK;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double quantile(struct samples *s, double q) {
    if (s->n == 0)
        return 0;
    qsort(s->us, s->n, sizeof s->us[0], by_value);
    return (double)s->us[(size_t)(q * (double)(s->n - 1))];
}

static void report(const struct meter *m, struct meter_row *rows, size_t *n_rows) {
    static const char *const names[] = {[METER_PINGPONG] = "pingpong", [METER_SUM] = "sum"};
    *n_rows = 0;
    for (int op = METER_PINGPONG; op < METER_N_OPS; op++)
        for (size_t k = 0; k < n_sizes(m->cfg); k++) {
            struct samples *s = &m->shared->samples[op][k];
            rows[(*n_rows)++] = (struct meter_row){
                .link = link_name(m->cfg->link),
                .op = names[op],
                .bytes = meter_sizes[k],
                .median_us = quantile(s, 0.5),
                .p99_us = quantile(s, 0.99),
                .raw_median_us = quantile(&m->shared->samples[METER_RAW][k], 0.5),
                .raw_exchange_us = quantile(&m->shared->samples[METER_RAW_EXCHANGE][k], 0.5),
            };
        }
}

enum status meter_run(const struct meter_config *cfg, struct meter_row *rows, size_t *n_rows,
                      struct err *err) {
    if (cfg->n_ranks < 2 || cfg->n_ranks > FABRIC_MAX_RANKS)
        return err_set(err, ST_BAD_INPUT, "%d ranks: expected 2 to %d", cfg->n_ranks,
                       FABRIC_MAX_RANKS);
    struct meter m = {.cfg = cfg, .parent = getpid()};
    pid_t pids[FABRIC_MAX_RANKS] = {0};
    m.shared =
        mmap(NULL, sizeof *m.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m.shared == MAP_FAILED)
        return err_set(err, ST_NO_MEMORY, "no memory for the samples");
    enum status st = raw_open(&m.raw, cfg->link, cfg->max_bytes, err);
    if (st == ST_OK || st == ST_UNSUPPORTED)
        st = start_ranks(&m, pids, err);
    wait_for_ranks(pids, cfg->n_ranks, cfg->n_rounds);
    for (int r = 0; st == ST_OK && r < cfg->n_ranks; r++)
        if (m.shared->status[r] != ST_OK)
            st = err_set(err, m.shared->status[r], "rank %d: %s", r,
                         m.shared->errors[r].text[0] ? m.shared->errors[r].text : "crashed");
    if (st == ST_OK)
        report(&m, rows, n_rows);
    raw_close(m.raw);
    munmap(m.shared, sizeof *m.shared);
    return st;
}
