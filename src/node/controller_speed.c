/* controller_speed.c: how fast a node is, for who plans a model that is not up: what it reads and
 * computes with weights of a type, and how long it takes to reach the others. Measured when it is
 * asked for, and kept for a while. */
#include "node/controller_internal.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "net/net.h"
#include "quant/quant.h"
#include "ranks/machine_speed.h"

#include <unistd.h>

#define SPEED_KEPT_S 600.0
#define CONNECTS 5
#define CONNECT_S 1.0

/* ---- this machine ------------------------------------------------------------------------ */

/* With other work under way it is slower than it is: of measurements of a while the best counts. */
struct speed_kept {
    pthread_mutex_t lock; /* held while it measures: one at a time */
    enum qtype type;
    size_t bytes;
    double rate, ops, when_s;
};
static struct speed_kept kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum status measure(double *rate, double *ops, enum qtype type, size_t bytes,
                           struct err *err) {
    const struct kernels *kernels;
    struct pool *pool;
    struct machine_speed *m;
    TRY(kernels_select(&kernels, err));
    TRY(pool_open(&pool, MIN(machine_n_cores(), POOL_MAX_THREADS), err));
    const struct machine_speed_wish wish = {
        .type = type, .bytes = bytes, .kernels = kernels, .pool = pool};
    enum status st = machine_speed_open(&m, &wish, err);
    if (st == ST_OK) {
        st = machine_speed_read(rate, m, err);
        *ops = st == ST_OK ? machine_speed_batch(m) : 0;
        machine_speed_close(m);
    }
    pool_close(pool);
    return st;
}

static enum status speed_here(double *rate, double *ops, enum qtype type, size_t bytes,
                              struct err *err) {
    enum status st = ST_OK;
    pthread_mutex_lock(&kept.lock);
    bool known = kept.rate > 0 && kept.type == type && kept.bytes == bytes &&
                 clock_s() - kept.when_s < SPEED_KEPT_S;
    if (!known)
        st = measure(rate, ops, type, bytes, err);
    if (!known && st == ST_OK) {
        kept.type = type;
        kept.bytes = bytes;
        kept.rate = *rate;
        kept.ops = *ops;
        kept.when_s = clock_s();
    }
    if (st == ST_OK) {
        *rate = kept.rate;
        *ops = kept.ops;
    }
    pthread_mutex_unlock(&kept.lock);
    return st;
}

/* A connection takes a round trip: half of the fastest of some; 0: it is not reached. */
static double latency_to(const char *address) {
    struct net_address at;
    struct err ignored;
    double best = 0;
    if (net_resolve(&at, address, false, &ignored) != ST_OK)
        return 0;
    for (int i = 0; i < CONNECTS; i++) {
        int fd;
        double began = clock_s();
        if (net_connect(&fd, &at, clock_ns() + (uint64_t)(CONNECT_S * 1e9), &ignored) != ST_OK)
            return 0;
        double took = clock_s() - began;
        close(fd);
        best = best == 0 ? took : MIN(best, took);
    }
    return best / 2;
}

enum status controller_speed(struct controller *k, const json_t *wish, json_t **out,
                             struct err *err) {
    enum qtype type;
    double rate = 0, ops = 0;
    const json_t *address;
    size_t i;
    json_int_t bytes = json_integer_value(json_object_get(wish, "bytes"));
    (void)k;
    if (!qtype_from_name(json_text(wish, "type"), &type) || !wmat_type_supported(type) ||
        bytes < 1)
        return err_set(err, ST_BAD_INPUT, "a speed is asked for with a type and bytes");
    TRY(speed_here(&rate, &ops, type, MIN((size_t)bytes, MACHINE_SPEED_BYTES), err));
    json_t *reached = json_object();
    json_array_foreach(json_object_get(wish, "peers"), i, address) {
        double latency = json_is_string(address) ? latency_to(json_string_value(address)) : 0;
        if (latency > 0)
            json_object_set_new(reached, json_string_value(address), json_real(latency));
    }
    uint64_t free_bytes = mem_available();
    *out = json_pack("{s:f, s:f, s:i, s:I, s:o}", "rate", rate, "ops", ops, "threads",
                     machine_n_cores(), "memory", (json_int_t)(free_bytes - free_bytes / 16),
                     "peers", reached);
    return ST_OK;
}

static void run_speed(struct controller *k, struct http_request *r) {
    controller_answer(k, r, controller_speed);
}

void controller_handle_speed(struct controller *k, struct http_request *r) {
    controller_run_later(k, r, run_speed);
}
