/* message.c: messages over the links: sequence numbers, checks, and every wait of the fabric. */
#include "fabric/group.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/util.h"
#include "fabric/check.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* Asleep, a rank looks by itself this often: for lost messages and the compute limit. */
#define NAP_US 20000

/* ---- the end of the group ------------------------------------------------------------------- */

void group_kick(struct fabric *f) {
    wake_ring(&f->kick);
    for (int r = 0; r < f->cfg.n_ranks; r++) {
        struct link *l = f->peers[r].link;
        if (l != NULL && l->ops->kick != NULL)
            l->ops->kick(l);
    }
}

void group_failure_set(struct fabric *f, int lost_rank, const char *fmt, ...) {
    enum group_failure whole = GROUP_WHOLE;
    if (!atomic_compare_exchange_strong(&f->failure, &whole, GROUP_FAILING)) {
        /* Another thread was first, and may still be writing. This thread must not return
         * before the group counts as lost: its caller would go on with data that this thread
         * has just found damaged. */
        while (!group_has_failed(f))
            sched_yield();
        return;
    }
    f->lost_rank = lost_rank;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->lost_text, sizeof f->lost_text, fmt, ap);
    va_end(ap);
    atomic_store_explicit(&f->failure, GROUP_FAILED, memory_order_release);
    wake_ring(&f->side_wake);
    group_kick(f);
}

enum status group_failure_check(struct fabric *f, struct err *err) {
    if (group_has_failed(f))
        return err_set(err, ST_PEER_LOST, "%s", f->lost_text);
    if (atomic_load_explicit(&f->aborted, memory_order_relaxed))
        return err_set(err, ST_CANCELLED, "the group was aborted");
    return ST_OK;
}

/* For this long the side thread may report first why a link failed. It learns of a goodbye or
 * of a death at once, as soon as it gets a core. */
#define FIRST_WORD_MS 500

/* Of a peer with a failed link. */
static bool has_left(struct fabric *f, struct peer *p) {
    for (int ms = 0; ms < FIRST_WORD_MS && !group_has_failed(f) && !atomic_load(&p->left); ms++)
        poll(NULL, 0, 1);
    return atomic_load(&p->left);
}

static enum status blame_link(struct fabric *f, struct peer *p, const struct err *why,
                              struct err *err) {
    group_failure_set(f, p->rank, "rank %d (pid %d): %s", p->rank, p->pid, why->text);
    return group_failure_check(f, err);
}

/* A link's error is the end of the group; the side thread may know a better reason. */
static enum status link_failed(struct fabric *f, struct peer *p, const struct err *why,
                               struct err *err) {
    if (has_left(f, p))
        group_failure_set(f, p->rank, "rank %d has left", p->rank);
    return blame_link(f, p, why, err);
}

/* ---- waiting ----------------------------------------------------------------------------- */

struct waiter {
    struct peer *peer;
    bool for_slot; /* waits for a free send slot, else for a message */
    bool idle;     /* between two requests, or before the first: no compute limit */
    unsigned turns;
    uint64_t begin_ns, spin_end_ns;
    uint64_t seen_ns; /* of the last look at the clock */
};

static enum status push_pending(struct fabric *f, struct err *err) {
    for (int r = 0; r < f->cfg.n_ranks; r++) {
        struct link *l = f->peers[r].link;
        struct err why;
        if (l != NULL && l->tx_pending && l->ops->progress(l, &why) != ST_OK)
            return link_failed(f, &f->peers[r], &why, err);
    }
    return ST_OK;
}

static bool any_pending(const struct fabric *f, const struct link *but) {
    for (int r = 0; r < f->cfg.n_ranks; r++)
        if (f->peers[r].link != NULL && f->peers[r].link != but && f->peers[r].link->tx_pending)
            return true;
    return false;
}

/* Sleeps on the awaited link, and on the sockets that still have something to send. */
static void sleep_on_sockets(struct fabric *f, struct waiter *w, int timeout_us) {
    struct pollfd fds[FABRIC_MAX_RANKS + 1];
    nfds_t n = 0;
    fds[n++] = (struct pollfd){.fd = f->kick.fds[0], .events = POLLIN};
    for (int r = 0; r < f->cfg.n_ranks; r++) {
        struct link *l = f->peers[r].link;
        if (l != NULL && l->ops->poll_fd != NULL && (l == w->peer->link || l->tx_pending)) {
            fds[n] = l->ops->poll_fd(l, w->for_slot);
            if (l != w->peer->link)
                fds[n].events = POLLOUT;
            n++;
        }
    }
    if (poll(fds, n, (timeout_us + 999) / 1000) > 0 && fds[0].revents != 0)
        wake_drain(&f->kick);
}

static void wait_asleep(struct fabric *f, struct waiter *w, int timeout_us) {
    struct link *l = w->peer->link;
    l->patient = f->patient;
    if (l->ops->poll_fd != NULL)
        sleep_on_sockets(f, w, timeout_us);
    else /* sockets that still send are not in this sleep: look after them often */
        l->ops->sleep(l, w->for_slot, any_pending(f, l) ? MIN(timeout_us, 200) : timeout_us);
}

/* If both ends waited only for a free slot, neither would receive, although messages may be
 * there. */
static bool is_there(struct peer *p) {
    const struct wire_msg *m;
    struct err unused; /* the next send or receive reports a failed link */
    return p->link->ops->recv(p->link, &m, &unused) != ST_AGAIN;
}

/* Things that only time can tell. Runs before each sleep. */
static enum status wait_judge(struct fabric *f, struct waiter *w, uint64_t now,
                              struct err *err) {
    struct peer *p = w->peer;
    uint64_t silence = (uint64_t)f->cfg.silence_ms * 1000000u;
    bool left = atomic_load_explicit(&p->left, memory_order_acquire);
    uint64_t told = atomic_load_explicit(&p->told_sent, memory_order_acquire);
    uint64_t told_at = atomic_load_explicit(&p->told_at_ns, memory_order_relaxed);
    uint64_t received = atomic_load_explicit(&p->received, memory_order_relaxed);
    if (w->for_slot && p->link->ops->consumed != NULL)
        p->link->ops->consumed(p->link,
                               atomic_load_explicit(&p->told_received, memory_order_relaxed));
    if (left && (w->for_slot || told <= received))
        group_failure_set(f, p->rank, "rank %d has left", p->rank);
    else if (told > received && now > told_at && now - told_at > silence &&
             now - w->begin_ns > silence && !(w->for_slot && is_there(p)))
        group_failure_set(
            f, p->rank,
            "rank %d (pid %d) sent message %llu, and it did not arrive within %d ms", p->rank,
            p->pid, (unsigned long long)received, f->cfg.silence_ms);
    else if (!w->idle && now - w->begin_ns > (uint64_t)f->cfg.compute_ms * 1000000u)
        group_failure_set(f, p->rank, "rank %d (pid %d) lives but has sent nothing for %d ms",
                          p->rank, p->pid, f->cfg.compute_ms);
    return group_failure_check(f, err);
}

/* Far longer than a wait sleeps: the process stalled, and a peer cannot be blamed for that
 * time. The wait begins again, so that the side thread first learns what the others did
 * meanwhile. */
#define STANDSTILL_NS 1000000000u

/* On a core that others need, a wait spins for this long before it sleeps. */
#define SHARED_SPIN_US 5u

static uint64_t spin_ns(const struct fabric *f, uint64_t now) {
    uint64_t us = f->patient ? 0 : (uint64_t)f->cfg.spin_us;
    return (core_is_shared(&f->core, now) ? MIN(us, SHARED_SPIN_US) : us) * 1000u;
}

/* One iteration of a wait. It spins for cfg.spin_us, then polls for cfg.yield_us and offers the
 * core (base/core.h). It skips this between requests, or if others want the core. Then it
 * sleeps up to timeout_us. */
static enum status wait_turn(struct fabric *f, struct waiter *w, int timeout_us,
                             struct err *err) {
    cpu_relax();
    if (w->turns++ % 16 != 15)
        return ST_OK;
    TRY(push_pending(f, err));
    uint64_t now = clock_ns();
    if (w->begin_ns == 0 || now - w->seen_ns > STANDSTILL_NS) {
        w->begin_ns = now;
        w->spin_end_ns = now + spin_ns(f, now);
        if (!w->idle && !f->patient)
            core_offer_at_times(&f->core, now);
    }
    w->seen_ns = now;
    TRY(group_failure_check(f, err));
    if (now < w->spin_end_ns)
        return ST_OK;
    if (!w->idle && !f->patient && !core_is_shared(&f->core, now) &&
        now < w->spin_end_ns + (uint64_t)f->cfg.yield_us * 1000u) {
        core_offer(&f->core, now);
        return ST_OK;
    }
    TRY(wait_judge(f, w, now, err));
    wait_asleep(f, w, timeout_us);
    w->turns = 15; /* asleep a turn is long: look at everything each time */
    return ST_OK;
}

/* ---- sending ----------------------------------------------------------------------------- */

enum status message_begin(struct fabric *f, int to, void **payload, struct err *err) {
    struct peer *p = &f->peers[to];
    struct waiter w = {.peer = p, .for_slot = true, .idle = f->meeting};
    TRY(group_failure_check(f, err));
    struct wire_msg *m;
    while ((m = p->link->ops->slot(p->link)) == NULL) {
        TRY(wait_turn(f, &w, NAP_US, err));
        TRY(push_pending(f, err));
    }
    *payload = m + 1;
    return ST_OK;
}

/* Ties the payload's check to the header: what, where in the sequence, which call. */
static uint32_t header_check(const struct wire_msg *h, uint32_t payload_check) {
    uint64_t v = ((uint64_t)h->seq << 32 | h->n_bytes) * 0x9e3779b97f4a7c15u;
    v ^= ((uint64_t)h->kind << 48 | (uint64_t)h->team << 32) ^ h->offset ^ payload_check;
    v = (v ^ v >> 31) * 0xff51afd7ed558ccdu;
    return (uint32_t)(v >> 32);
}

enum status message_end_checked(struct fabric *f, int to, enum wire_kind kind, uint16_t team,
                                uint64_t offset, size_t n_bytes, uint32_t check,
                                struct err *err) {
    struct peer *p = &f->peers[to];
    struct wire_msg *m = p->link->ops->slot(p->link);
    BUG_ON(m == NULL || n_bytes > p->link->slot_bytes);
    uint64_t seq = atomic_load_explicit(&p->sent, memory_order_relaxed);
    *m = (struct wire_msg){.seq = (uint32_t)seq,
                           .n_bytes = (uint32_t)n_bytes,
                           .kind = (uint16_t)kind,
                           .team = team,
                           .offset = offset};
    m->check = header_check(m, check);
    atomic_store_explicit(&p->sent, seq + 1, memory_order_relaxed);
    p->sent_bytes += n_bytes;
    struct err why;
    if (p->link->ops->send(p->link, &why) != ST_OK)
        return link_failed(f, p, &why, err);
    return ST_OK;
}

enum status message_end(struct fabric *f, int to, enum wire_kind kind, uint16_t team,
                        uint64_t offset, size_t n_bytes, struct err *err) {
    const struct wire_msg *m = f->peers[to].link->ops->slot(f->peers[to].link);
    BUG_ON(m == NULL);
    return message_end_checked(f, to, kind, team, offset, n_bytes, check_of(m + 1, n_bytes),
                               err);
}

/* ---- receiving --------------------------------------------------------------------------- */

static const char *kind_name(unsigned kind) {
    static const char *const names[WIRE_N_KINDS] = {
        [WIRE_DATA_P2P] = "a send", [WIRE_BROADCAST] = "a broadcast",
        [WIRE_GATHER] = "a gather", [WIRE_BARRIER] = "a barrier",
        [WIRE_SHARE] = "a share",   [WIRE_SUM] = "a sum",
        [WIRE_SUM_32] = "a sum",
    };
    return kind < WIRE_N_KINDS && names[kind] != NULL ? names[kind] : "an unknown call";
}

static enum status message_poll(struct fabric *f, struct peer *p, const struct wire_msg **out,
                                struct err *err) {
    struct err why;
    enum status st = p->link->ops->recv(p->link, out, &why);
    return st == ST_OK || st == ST_AGAIN ? st : link_failed(f, p, &why, err);
}

static bool same_kind(unsigned got, enum wire_kind expected) {
    return got == expected || (got == WIRE_SUM_32 && expected == WIRE_SUM);
}

static enum status damaged(struct fabric *f, struct peer *p, struct err *err) {
    group_failure_set(
        f, p->rank, "message %llu from rank %d (pid %d) arrived corrupted over %s",
        (unsigned long long)atomic_load_explicit(&p->received, memory_order_relaxed), p->rank,
        p->pid, p->link->name);
    return group_failure_check(f, err);
}

/* `h` is a copy of the header: the original may lie in memory that the peer writes. Runs after
 * the check, so that a flipped bit is not mistaken for a wrong call. */
static enum status message_expect(struct fabric *f, struct peer *p, const struct wire_msg *h,
                                  enum wire_kind kind, uint16_t team, uint64_t offset,
                                  struct err *err) {
    uint32_t seq = (uint32_t)atomic_load_explicit(&p->received, memory_order_relaxed);
    if (h->seq != seq)
        group_failure_set(
            f, p->rank,
            "message %u from rank %d (pid %d) arrived in the place of message %u over %s",
            h->seq, p->rank, p->pid, seq, p->link->name);
    else if (!same_kind(h->kind, kind) || h->team != team || h->offset != offset)
        group_failure_set(
            f, p->rank,
            "rank %d is at byte %llu of %s in team %04x, this rank at byte %llu of %s in "
            "team %04x: the ranks do not make the same calls",
            p->rank, (unsigned long long)h->offset, kind_name(h->kind), h->team,
            (unsigned long long)offset, kind_name(kind), team);
    else
        return ST_OK;
    return group_failure_check(f, err);
}

enum status message_next(struct fabric *f, int from, struct message *out, struct err *err) {
    struct peer *p = &f->peers[from];
    struct waiter w = {.peer = p, .idle = f->meeting};
    const struct wire_msg *m;
    enum status st;
    while ((st = message_poll(f, p, &m, err)) == ST_AGAIN)
        TRY(wait_turn(f, &w, NAP_US, err));
    TRY(st);
    out->header = *m;
    out->payload = m + 1;
    return out->header.n_bytes <= p->link->slot_bytes ? ST_OK : damaged(f, p, err);
}

enum status message_accept(struct fabric *f, int from, const struct message *m, uint32_t check,
                           enum wire_kind kind, uint16_t team, uint64_t offset,
                           struct err *err) {
    struct peer *p = &f->peers[from];
    if (m->header.check != header_check(&m->header, check))
        return damaged(f, p, err);
    TRY(message_expect(f, p, &m->header, kind, team, offset, err));
    atomic_store_explicit(&p->received,
                          atomic_load_explicit(&p->received, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    p->link->ops->done(p->link);
    return ST_OK;
}

enum status message_recv(struct fabric *f, int from, enum wire_kind kind, uint16_t team,
                         uint64_t offset, void *buf, size_t n_bytes, struct err *err) {
    struct message m;
    TRY(message_next(f, from, &m, err));
    size_t n = MIN(n_bytes, (size_t)m.header.n_bytes), sent = m.header.n_bytes;
    uint32_t check = check_of(m.payload, sent);
    if (n != 0)
        memcpy(buf, m.payload, n);
    TRY(message_accept(f, from, &m, check, kind, team, offset, err));
    if (sent == n_bytes)
        return ST_OK;
    group_failure_set(f, from, "rank %d sent %zu bytes where %zu were expected", from, sent,
                      n_bytes);
    return group_failure_check(f, err);
}

enum status message_wait(struct fabric *f, int from, int or_from, int timeout_ms,
                         struct err *err) {
    struct peer *p = &f->peers[from], *q = &f->peers[or_from];
    struct waiter w = {.peer = q, .idle = true};
    uint64_t end = timeout_ms < 0 ? UINT64_MAX : clock_ns() + (uint64_t)timeout_ms * 1000000u;
    /* Asleep on one link the other is looked at this often. */
    uint64_t limit_us = p == q ? 200000 : 1000;
    bool direct = p != q;
    const struct wire_msg *m;
    struct err why;
    enum status st;
    TRY(group_failure_check(f, err));
    while ((st = message_poll(f, q, &m, err)) == ST_AGAIN) {
        if (direct && (st = p->link->ops->recv(p->link, &m, &why)) == ST_OK)
            break;
        if (direct && st != ST_AGAIN) {
            if (!has_left(f, p))
                return blame_link(f, p, &why, err);
            direct =
                false; /* its last word may be with the other peer, which is checked itself */
        }
        uint64_t now = clock_ns();
        if (now >= end)
            return ST_AGAIN;
        TRY(wait_turn(f, &w, (int)MIN((end - now) / 1000 + 1, limit_us), err));
    }
    return st;
}

enum status message_flush(struct fabric *f, struct err *err) {
    for (int r = 0; r < f->cfg.n_ranks; r++) {
        struct peer *p = &f->peers[r];
        struct waiter w = {.peer = p, .for_slot = true, .idle = f->meeting};
        while (p->link != NULL && p->link->tx_pending) {
            TRY(wait_turn(f, &w, NAP_US, err));
            TRY(push_pending(f, err));
        }
    }
    return ST_OK;
}
