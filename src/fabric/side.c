/* side.c: the side thread: heartbeats, and which ranks are gone.
 *
 *   closed connection      -> lost at once (a killed process: the kernel closes for it)
 *   nothing for silence_ms -> lost (stopped, or the network is down)
 *   WIRE_BYE               -> left; only an error for a rank that still waits for it
 *   WIRE_LOST              -> another rank saw the end first; we take over its words
 *
 * If a process stalls for too long (stopped, suspended, starved), the others have lost it. When
 * it continues, it finds that they gave it up or have left. Then it blames itself and none of
 * them.
 *
 * A beat also has the number of messages sent over the link. So a message that the wire lost is
 * noticed although all ranks are alive (message.c). It also has the number consumed, so that a
 * link whose own notice was lost does not wait for ever. */
#include "fabric/group.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static uint64_t beat_interval_ns(const struct fabric *f) {
    return (uint64_t)MIN(MAX(f->cfg.silence_ms / 6, 5), 500) * 1000000u;
}

static uint64_t silence_ns(const struct fabric *f) {
    return (uint64_t)f->cfg.silence_ms * 1000000u;
}

/* This thread stood still for longer than that, and what the others did about it comes in now. */
static bool was_away(const struct fabric *f, uint64_t ns) {
    return f->away_ns > ns && clock_ns() - f->back_ns < silence_ns(f);
}

/* What `p` did, for the reason that it gives, is this rank's own fault. */
static void stood_still(struct fabric *f, const struct peer *p, const char *did,
                        const char *why) {
    group_failure_set(
        f, f->cfg.rank,
        "rank %d (pid %d) stood still for %llu ms (stopped, suspended or starved), and "
        "rank %d (pid %d) %s%s",
        f->cfg.rank, (int)getpid(), (unsigned long long)(f->away_ns / 1000000u), p->rank,
        p->pid, did, why);
}

static void peer_gone(struct fabric *f, struct peer *p, const char *how) {
    close(p->side_fd);
    p->side_fd = -1;
    if (atomic_load_explicit(&p->left, memory_order_relaxed))
        return;
    /* A peer that has received nothing for this long has said why and left. These words may be
     * lost if the whole machine stalled. */
    if (was_away(f, silence_ns(f)))
        stood_still(f, p, "closed its connection", "");
    else
        group_failure_set(f, p->rank, "rank %d (pid %d) is gone: %s", p->rank, p->pid, how);
}

/* ---- sending ----------------------------------------------------------------------------- */

/* Continues the frame in p->out; what the socket does not take now waits for the next round. */
static void side_write(struct fabric *f, struct peer *p) {
    while (p->side_fd >= 0 && p->out_left > 0) {
        const char *at = (const char *)&p->out + (sizeof p->out - p->out_left);
        ssize_t n = send(p->side_fd, at, p->out_left, MSG_NOSIGNAL);
        if (n > 0)
            p->out_left -= (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR)
            peer_gone(f, p, "its connection broke");
    }
}

static void side_tell(struct fabric *f, struct peer *p, enum wire_side_kind kind) {
    if (p->side_fd < 0 || p->out_left > 0)
        return;
    p->out = (struct wire_side){
        .magic = WIRE_MAGIC,
        .kind = kind,
        .sent = atomic_load_explicit(&p->sent, memory_order_relaxed),
        .received = atomic_load_explicit(&p->received, memory_order_relaxed),
    };
    if (kind == WIRE_LOST) {
        p->out.rank = (uint32_t)f->lost_rank;
        snprintf(p->out.text, sizeof p->out.text, "%.220s", f->lost_text);
    }
    p->out_left = sizeof p->out;
    side_write(f, p);
}

/* ---- hearing ----------------------------------------------------------------------------- */

static void heard_count(struct peer *p, uint64_t sent, uint64_t now) {
    if (sent == atomic_load_explicit(&p->told_sent, memory_order_relaxed))
        return;
    atomic_store_explicit(&p->told_at_ns, now, memory_order_relaxed);
    atomic_store_explicit(&p->told_sent, sent, memory_order_release);
}

static void heard_frame(struct fabric *f, struct peer *p, uint64_t now) {
    struct wire_side *in = &p->in;
    in->text[sizeof in->text - 1] = '\0';
    heard_count(p, in->sent, now);
    atomic_store_explicit(&p->told_received, in->received, memory_order_relaxed);
    if (in->magic != WIRE_MAGIC) {
        group_failure_set(f, p->rank, "rank %d (pid %d) sent garbage on its side channel",
                          p->rank, p->pid);
    } else if (in->kind == WIRE_BYE) {
        atomic_store_explicit(&p->left, true, memory_order_release);
        group_kick(f);
    } else if (in->kind == WIRE_LOST && in->rank < (uint32_t)f->cfg.n_ranks) {
        bool me = in->rank == (uint32_t)f->cfg.rank;
        if (me && was_away(f, silence_ns(f) / 2))
            stood_still(f, p, "gave it up: ", in->text);
        else
            group_failure_set(f, me ? p->rank : (int)in->rank,
                              me ? "rank %d gave this rank up: %s" : "rank %d reports: %s",
                              p->rank, in->text);
    }
}

static void side_read(struct fabric *f, struct peer *p, uint64_t now) {
    while (p->side_fd >= 0) {
        ssize_t n = recv(p->side_fd, (char *)&p->in + p->in_got, sizeof p->in - p->in_got, 0);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return;
        if (n <= 0) {
            peer_gone(f, p,
                      n == 0 || errno == ECONNRESET
                          ? "it closed its connection (killed or crashed)"
                          : strerror(errno));
            return;
        }
        p->heard_ns = now;
        p->in_got += (size_t)n;
        if (p->in_got == sizeof p->in) {
            p->in_got = 0;
            heard_frame(f, p, now);
        }
    }
}

/* ---- the thread -------------------------------------------------------------------------- */

static void side_sleep(struct fabric *f, int timeout_ms) {
    struct pollfd fds[FABRIC_MAX_RANKS + 1];
    nfds_t n = 0;
    fds[n++] = (struct pollfd){.fd = f->side_wake.fds[0], .events = POLLIN};
    for (int r = 0; r < f->cfg.n_ranks; r++) {
        const struct peer *p = &f->peers[r];
        short events = (short)(POLLIN | (p->out_left > 0 ? POLLOUT : 0));
        fds[n++] = (struct pollfd){.fd = p->side_fd, .events = events};
    }
    poll(fds, n, timeout_ms);
    wake_drain(&f->side_wake);
}

/* Beats are due, silence is judged. */
static void side_time(struct fabric *f, struct peer *p, uint64_t now) {
    uint64_t limit = silence_ns(f);
    if (p->side_fd < 0)
        return;
    if (now == f->back_ns) /* a peer cannot be blamed for what this rank did not receive */
        p->heard_ns = now;
    if (now - p->beat_ns >= beat_interval_ns(f)) {
        p->beat_ns = now;
        side_tell(f, p, WIRE_BEAT);
    }
    if (now > p->heard_ns && now - p->heard_ns > limit &&
        !atomic_load_explicit(&p->left, memory_order_relaxed))
        group_failure_set(
            f, p->rank,
            "rank %d (pid %d) has been silent for %d ms (stopped, or the network is down)",
            p->rank, p->pid, f->cfg.silence_ms);
}

static void tell_all(struct fabric *f, enum wire_side_kind kind) {
    for (int r = 0; r < f->cfg.n_ranks; r++)
        side_tell(f, &f->peers[r], kind);
}

static void *side_main(void *f_) {
    struct fabric *f = f_;
    bool told = false;
    uint64_t before = clock_suspended_ns();
    int nap_ms = (int)(beat_interval_ns(f) / 1000000u);
    while (!atomic_load_explicit(&f->closing, memory_order_acquire)) {
        side_sleep(f, nap_ms);
        uint64_t now = clock_ns(), lag = clock_suspended_ns() - before;
        before += lag;
        if (lag > silence_ns(f) / 2) {
            f->away_ns = lag;
            f->back_ns = now;
        }
        for (int r = 0; r < f->cfg.n_ranks; r++) {
            struct peer *p = &f->peers[r];
            side_write(f, p);
            side_read(f, p, now);
            side_time(f, p, now);
        }
        if (!told && group_has_failed(f)) {
            tell_all(f, WIRE_LOST);
            told = true;
        }
    }
    if (!told) /* otherwise they know better than "has left" */
        tell_all(f, group_has_failed(f) ? WIRE_LOST : WIRE_BYE);
    return NULL;
}

enum status side_start(struct fabric *f, struct err *err) {
    uint64_t now = clock_ns();
    for (int r = 0; r < f->cfg.n_ranks; r++)
        f->peers[r].heard_ns = now;
    int rc = thread_start(&f->side_thread, side_main, f);
    if (rc != 0)
        return err_set(err, ST_NO_MEMORY, "cannot start the fabric's side thread: %s",
                       strerror(rc));
    f->side_runs = true;
    return ST_OK;
}

void side_stop(struct fabric *f) {
    if (!f->side_runs)
        return;
    atomic_store_explicit(&f->closing, true, memory_order_release);
    wake_ring(&f->side_wake);
    pthread_join(f->side_thread, NULL);
    f->side_runs = false;
}
