/* group.h: the inside of struct fabric, for src/fabric only.
 *
 * Two threads: the group's thread (the caller of fabric_*; owns the links) and the side thread
 * (side.c; owns the side sockets), which lives from open to close. The side thread sends and
 * receives heartbeats and decides that a peer is lost. So a rank that computes for minutes
 * counts as alive, and a rank whose process stopped does not. Fields that both threads use are
 * atomic and say so. */
#ifndef LOCKSTEP_FABRIC_GROUP_H
#define LOCKSTEP_FABRIC_GROUP_H

#include "base/core.h"
#include "fabric/fabric.h"
#include "link/links.h"
#include "link/wire.h"
#include "net/wake.h"

#include <pthread.h>
#include <stdatomic.h>

struct peer {
    int rank, pid;
    bool same_host;
    int host;                       /* the lowest rank on its host */
    struct link *link;              /* NULL for oneself */
    enum fabric_link opened;        /* which: an emulated link's is what it wraps */
    char device[LINK_DEVICE_BYTES]; /* its RDMA device, or "" */

    /* Messages over the link; written by the group's thread, told to the peer by the side
     * thread (relaxed: a count that lags is harmless). */
    _Atomic uint64_t sent, received;
    uint64_t sent_bytes; /* of payload; the group's thread's */
    /* How many messages the peer says it has sent to us, and when we first got that count. The
     * side thread writes it; the group's thread finds lost messages with it. The count is
     * stored last (release) and read first (acquire). On a processor that reorders, a new count
     * with an older one's time would look like a message that has been missing since then. */
    _Atomic uint64_t told_sent, told_at_ns;
    /* What the peer says it has consumed of ours. Side thread's (relaxed: it only grows). */
    _Atomic uint64_t told_received;
    _Atomic bool left; /* said goodbye: told_sent is final (release/acquire) */

    /* Side thread only. */
    int side_fd;
    uint64_t heard_ns, beat_ns;
    struct wire_side in, out;
    size_t in_got, out_left;
};

/* Whether the group has ended. It only goes forward. */
enum group_failure {
    GROUP_WHOLE = 0, /* of a zeroed struct fabric */
    GROUP_FAILING,   /* one thread writes lost_rank and lost_text; no other may read them yet */
    GROUP_FAILED     /* they are final (stored with release, loaded with acquire) */
};

struct fabric {
    struct fabric_config cfg;
    struct peer *peers;               /* [n_ranks] */
    struct team *teams;               /* list; closed with the fabric */
    uint64_t wires[FABRIC_MAX_RANKS]; /* bit q of [r]: r and q have a wire */
    int next_hop[FABRIC_MAX_RANKS];   /* the neighbour through which that rank's words come */
    bool emulated;                    /* cfg.emulate was given */

    /* The end of the group, written once, by the thread that moves `failure` on. */
    _Atomic enum group_failure failure;
    int lost_rank;
    char lost_text[400];
    _Atomic bool aborted;

    struct core core; /* of the group's thread, where its waits poll */
    bool patient; /* the running call is beside compute: its waits sleep instead of polling */
    bool meeting; /* it is fabric_meet(): its waits sleep, for as long as the others live */

    /* The group's thread is in a call: a kick must reach whatever it sleeps on. */
    struct wake kick;      /* for sleeps in poll() */
    struct wake side_wake; /* for the side thread's */
    _Atomic bool closing;
    pthread_t side_thread;
    bool side_runs;
    /* Side thread only: for how long it last stood still, and when it was back. */
    uint64_t away_ns, back_ns;
};

/* ---- side.c ------------------------------------------------------------------------------ */

enum status side_start(struct fabric *f, struct err *err);
/* Says goodbye (or passes on why the group ended) and joins the thread. */
void side_stop(struct fabric *f);

/* ---- team.c ------------------------------------------------------------------------------ */

void team_free(struct team *t);

/* ---- failure: message.c ------------------------------------------------------------------ */

/* The first caller's words become the end of the group. Any thread. After it group_failure_check()
 * fails. */
__attribute__((format(printf, 3, 4))) void group_failure_set(struct fabric *f, int lost_rank,
                                                             const char *fmt, ...);
/* Whether lost_rank and lost_text may be read. Any thread. */
static inline bool group_has_failed(const struct fabric *f) {
    return atomic_load_explicit(&f->failure, memory_order_acquire) == GROUP_FAILED;
}
/* ST_OK while the group is whole and fabric_abort() has not been called. */
enum status group_failure_check(struct fabric *f, struct err *err);
/* Wakes the group's thread out of any sleep. Signal-safe. */
void group_kick(struct fabric *f);

/* ---- messages: message.c -----------------------------------------------------------------
 *
 * In order per pair. Every wait below spins, polls, then sleeps. It ends with ST_PEER_LOST when
 * the group is over, when a message is known to be lost, or (except in fabric_meet()) after
 * cfg.compute_ms. */

/* Reserves the next slot to that rank: its payload, link->slot_bytes long, 8-byte aligned. */
enum status message_begin(struct fabric *f, int to, void **payload, struct err *err);
enum status message_end(struct fabric *f, int to, enum wire_kind kind, uint16_t team,
                        uint64_t offset, size_t n_bytes, struct err *err);

/* The same where the payload's check (check.h) is known already. */
enum status message_end_checked(struct fabric *f, int to, enum wire_kind kind, uint16_t team,
                                uint64_t offset, size_t n_bytes, uint32_t check,
                                struct err *err);

struct message {
    struct wire_msg header; /* a copy; n_bytes fits the slot, the rest is unchecked */
    const void *payload;    /* in the link's slot, until message_accept() */
};
/* The next message from that rank, to be read in place. */
enum status message_next(struct fabric *f, int from, struct message *out, struct err *err);
/* After reading: was it whole (`check` is that of the bytes read), and the one expected? Gives
 * the slot back. A sum's kind may also be WIRE_SUM_32. */
enum status message_accept(struct fabric *f, int from, const struct message *m, uint32_t check,
                           enum wire_kind kind, uint16_t team, uint64_t offset,
                           struct err *err);
/* Both, with a copy of exactly n_bytes. */
enum status message_recv(struct fabric *f, int from, enum wire_kind kind, uint16_t team,
                         uint64_t offset, void *buf, size_t n_bytes, struct err *err);

/* Until a message from one of the two ranks (which may be the same) waits. timeout_ms < 0:
 * without limit. */
enum status message_wait(struct fabric *f, int from, int or_from, int timeout_ms,
                         struct err *err);
/* Until the links have taken all that was sent: afterwards this rank may compute for long, and
 * what it sent travels without it. Every call that sends ends with this. */
enum status message_flush(struct fabric *f, struct err *err);

#endif
