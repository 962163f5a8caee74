/* link_emulated.c: the link `emulated`: any other link, made worse:
 * "latency=300us,jitter=20us,bandwidth=10Gbit,loss=1%".
 *
 * The receiving side does it. It takes messages out of the inner link at once and holds them
 * until the emulated wire would have delivered them. The wire is busy for bytes / bandwidth per
 * message, one after the other, and each message arrives latency (+- jitter) later. The
 * sender's clock is in the header, so both ranks must be on one host.
 *
 * Faults occur at message numbers that a fixed seed decides, so the same run fails in the same
 * place. Nothing is repaired here: the tests check that the group notices. */
#include "link/links.h"

#include "base/c_locale.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define QUEUE 64u /* messages on the emulated wire */
#define QUEUE_STRIDE (sizeof(struct wire_msg) + LINK_SLOT_BYTES)

struct emulation {
    double latency_ns, jitter_ns, ns_per_byte;
    double loss, reorder, corrupt; /* probabilities per message */
    double stall, dead;            /* after this many messages; 0: never */
    double lose_nth, flip_nth;     /* just this message, from 1; 0: none */
};

struct emulated_link {
    struct link base;
    struct link *inner;
    struct emulation e;
    char name[24];
    uint64_t seed, count;  /* messages taken from the inner link */
    uint8_t *queue;        /* [QUEUE][QUEUE_STRIDE] */
    uint64_t due[QUEUE];   /* when each arrives */
    uint32_t head, tail;   /* they wrap */
    uint64_t wire_free_ns; /* when the emulated wire has carried what came so far */
};

static struct emulated_link *emulated_of(struct link *l) {
    return (struct emulated_link *)l;
}

/* ---- "latency=300us,bandwidth=10Gbit" ---------------------------------------------------- */

struct unit {
    const char *name;
    double factor;
};

/* A number with one of the units, at most max, at the start of *at, which moves behind it. */
static bool parse_quantity(const char **at, const struct unit *units, double max, double *out) {
    char *end;
    locale_t callers = c_locale_begin();
    double v = strtod(*at, &end);
    c_locale_end(callers);
    size_t n = strcspn(end, ",");
    for (; units->name != NULL; units++)
        if (end != *at && v >= 0 && v * units->factor <= max && strlen(units->name) == n &&
            strncmp(end, units->name, n) == 0) {
            *out = v * units->factor;
            *at = end + n;
            return true;
        }
    return false;
}

static const struct unit times[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};
static const struct unit speeds[] = {{"kbit", 125}, {"Mbit", 125e3}, {"Gbit", 125e6},
                                     {"MB", 1e6},   {"GB", 1e9},     {NULL, 0}};
static const struct unit shares[] = {{"%", 0.01}, {"", 1}, {NULL, 0}};
static const struct unit counts[] = {{"", 1}, {NULL, 0}};

static enum status parse_emulation(struct emulation *e, const char *text, struct err *err) {
    double bandwidth = 0;
    const struct {
        const char *name;
        const struct unit *units;
        double max;
        double *out;
    } keys[] = {
        {"latency=", times, 3600e9, &e->latency_ns}, {"jitter=", times, 3600e9, &e->jitter_ns},
        {"bandwidth=", speeds, 1e15, &bandwidth},    {"loss=", shares, 1, &e->loss},
        {"reorder=", shares, 1, &e->reorder},        {"corrupt=", shares, 1, &e->corrupt},
        {"stall=", counts, 1e15, &e->stall},         {"dead=", counts, 1e15, &e->dead},
        {"lose=", counts, 1e15, &e->lose_nth},       {"flip=", counts, 1e15, &e->flip_nth}};
    *e = (struct emulation){0};
    for (const char *at = text; *at != '\0'; at += *at == ',') {
        size_t k = 0;
        while (k < ARRAY_LEN(keys) && !str_starts(at, keys[k].name))
            k++;
        const char *value = k < ARRAY_LEN(keys) ? at + strlen(keys[k].name) : NULL;
        if (value == NULL || !parse_quantity(&value, keys[k].units, keys[k].max, keys[k].out))
            return err_set(err, ST_BAD_INPUT,
                           "emulated link: \"%s\": expected latency=300us, jitter=20us, "
                           "bandwidth=10Gbit, loss=1%%, reorder=1%%, corrupt=1%%, stall=100, "
                           "dead=100, lose=100 or flip=100 (messages), joined by commas",
                           at);
        at = value;
    }
    e->ns_per_byte = bandwidth > 0 ? 1e9 / bandwidth : 0;
    return ST_OK;
}

enum status link_emulate_check(const char *text, struct err *err) {
    struct emulation e;
    return parse_emulation(&e, text, err);
}

/* ---- the wire ---------------------------------------------------------------------------- */

static double chance(const struct emulated_link *m, uint64_t what) {
    return rng_uniform(m->seed + what, m->count);
}

static struct wire_msg *queued(struct emulated_link *m, uint32_t at) {
    return (struct wire_msg *)(m->queue + at % QUEUE * QUEUE_STRIDE);
}

static uint64_t arrival(struct emulated_link *m, const struct wire_msg *msg) {
    double jitter = m->e.jitter_ns * (2 * chance(m, 1) - 1);
    double carry = m->e.ns_per_byte * (double)(msg->n_bytes + sizeof *msg);
    m->wire_free_ns = MAX(m->wire_free_ns, msg->sent_ns) + (uint64_t)carry;
    return m->wire_free_ns + (uint64_t)MAX(m->e.latency_ns + jitter, 0.0);
}

static void damage(struct emulated_link *m, struct wire_msg *msg) {
    uint64_t bit = rng_u64(m->seed + 5, m->count) % (8 * MAX(msg->n_bytes, 1u));
    if (msg->n_bytes != 0)
        ((uint8_t *)(msg + 1))[bit / 8] ^= (uint8_t)(1u << bit % 8);
    else
        msg->offset ^= 1;
}

static void swap_last_two(struct emulated_link *m) {
    static _Thread_local uint8_t spare[QUEUE_STRIDE];
    struct wire_msg *a = queued(m, m->tail - 1), *b = queued(m, m->tail - 2);
    memcpy(spare, a, QUEUE_STRIDE);
    memcpy(a, b, QUEUE_STRIDE);
    memcpy(b, spare, QUEUE_STRIDE);
}

/* One message from the inner link onto the emulated wire. */
static void enter_wire(struct emulated_link *m, const struct wire_msg *msg) {
    m->count++;
    bool stalled = m->e.stall > 0 && (double)m->count > m->e.stall;
    double nth = (double)m->count;
    if (stalled || nth == m->e.lose_nth || chance(m, 2) < m->e.loss)
        return;
    struct wire_msg *to = queued(m, m->tail);
    memcpy(to, msg, sizeof *msg + msg->n_bytes);
    m->due[m->tail % QUEUE] = arrival(m, to);
    m->tail++;
    if (nth == m->e.flip_nth || chance(m, 3) < m->e.corrupt)
        damage(m, to);
    if (m->tail - m->head >= 2 && chance(m, 4) < m->e.reorder)
        swap_last_two(m);
}

static enum status fill_wire(struct emulated_link *m, struct err *err) {
    const struct wire_msg *msg;
    enum status st = ST_OK;
    while (m->tail - m->head < QUEUE &&
           (st = m->inner->ops->recv(m->inner, &msg, err)) == ST_OK) {
        enter_wire(m, msg);
        m->inner->ops->done(m->inner);
    }
    return st == ST_AGAIN ? ST_OK : st;
}

/* ---- as a link --------------------------------------------------------------------------- */

static struct wire_msg *emulated_slot(struct link *l) {
    struct emulated_link *m = emulated_of(l);
    return m->inner->ops->slot(m->inner);
}

static enum status emulated_send(struct link *l, struct err *err) {
    struct emulated_link *m = emulated_of(l);
    m->inner->ops->slot(m->inner)->sent_ns = clock_ns();
    enum status st = m->inner->ops->send(m->inner, err);
    l->tx_pending = m->inner->tx_pending;
    return st;
}

static enum status emulated_progress(struct link *l, struct err *err) {
    struct emulated_link *m = emulated_of(l);
    enum status st = m->inner->ops->progress(m->inner, err);
    l->tx_pending = m->inner->tx_pending;
    return st;
}

static enum status emulated_recv(struct link *l, const struct wire_msg **out, struct err *err) {
    struct emulated_link *m = emulated_of(l);
    enum status st = fill_wire(m, err);
    if (m->e.dead > 0 && (double)m->count > m->e.dead)
        return err_set(err, ST_PEER_LOST, "the emulated link died after %.0f messages",
                       m->e.dead);
    if (m->head == m->tail)
        return st == ST_OK ? ST_AGAIN : st;
    if (clock_ns() < m->due[m->head % QUEUE])
        return ST_AGAIN;
    *out = queued(m, m->head);
    return ST_OK;
}

static void emulated_done(struct link *l) {
    emulated_of(l)->head++;
}

static void emulated_consumed(struct link *l, uint64_t n_messages) {
    struct link *inner = emulated_of(l)->inner;
    if (inner->ops->consumed != NULL)
        inner->ops->consumed(inner, n_messages);
}

static void sleep_ns(uint64_t ns) {
    struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000u),
                          .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&ts, NULL);
}

/* A system's sleep is tens of us late: the last of the way to an arrival is spun, unless others
 * want the core. */
#define LATE_NS 80000u

static void emulated_sleep(struct link *l, bool for_slot, int timeout_us) {
    struct emulated_link *m = emulated_of(l);
    uint64_t now = clock_ns(), due = m->due[m->head % QUEUE];
    if (m->head != m->tail && !for_slot) {
        uint64_t spun = l->patient ? 0 : LATE_NS;
        if (due > now + spun)
            sleep_ns(MIN(due - now - spun, (uint64_t)timeout_us * 1000u));
    } else if (m->inner->ops->sleep != NULL) {
        m->inner->patient = l->patient;
        m->inner->ops->sleep(m->inner, for_slot, timeout_us);
    } else { /* kick() does not reach this poll: look often */
        struct pollfd p = m->inner->ops->poll_fd(m->inner, for_slot);
        poll(&p, 1, MIN((timeout_us + 999) / 1000, 5));
    }
}

static void emulated_kick(struct link *l) {
    struct emulated_link *m = emulated_of(l);
    if (m->inner->ops->kick != NULL)
        m->inner->ops->kick(m->inner);
}

static void emulated_close(struct link *l) {
    struct emulated_link *m = emulated_of(l);
    link_close(m->inner);
    mem_huge_free(m->queue, QUEUE * QUEUE_STRIDE);
    mem_free(m);
}

static const struct link_ops link_emulated = {
    .name = "emulated",
    .n_ahead = LINK_AHEAD,
    .slot = emulated_slot,
    .send = emulated_send,
    .recv = emulated_recv,
    .done = emulated_done,
    .progress = emulated_progress,
    .consumed = emulated_consumed,
    .sleep = emulated_sleep,
    .kick = emulated_kick,
    .close = emulated_close,
};

enum status link_emulate(struct link **l, const struct link_env *env, struct err *err) {
    struct emulation e;
    TRY(parse_emulation(&e, env->cfg->emulate, err));
    struct emulated_link *m = mem_calloc(1, sizeof *m);
    uint8_t *queue = mem_huge_alloc(QUEUE * QUEUE_STRIDE);
    if (m == NULL || queue == NULL) {
        mem_free(m);
        mem_huge_free(queue, QUEUE * QUEUE_STRIDE);
        return err_set(err, ST_NO_MEMORY, "no memory for an emulated link");
    }
    m->base = (struct link){.ops = &link_emulated, .slot_bytes = (*l)->slot_bytes};
    snprintf(m->name, sizeof m->name, "emulated %s", (*l)->name);
    m->base.name = m->name;
    m->inner = *l;
    m->e = e;
    m->queue = queue;
    m->seed = (uint64_t)env->peer * 1000003u + (uint64_t)env->rank * 101u;
    *l = &m->base;
    return ST_OK;
}
