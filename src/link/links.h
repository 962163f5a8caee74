/* links.h: a link is one peer over one wire.
 *
 * A link carries messages (struct wire_msg + payload) in fixed slots, in order, both ways. It
 * knows nothing of collectives, deadlines or checks: group.h's message layer has those. Adding
 * a link takes one file with a `const struct link_ops link_xxx`, one line in links.c's table
 * and one value in enum fabric_link. The tests find it in the table.
 *
 * links.c opens a link in these steps over the side channel, the same on both sides:
 *   1. find(), if the link has it, looks for a way to the peer. There may be several, or none.
 *   2. offer() creates what the peer needs and describes it in a blob.
 *   3. accept() takes the peer's blob.
 *   4. ready() runs when both sides have accepted. No side can fail any more, and names may go.
 * If an offer or accept returns ST_AGAIN, both sides repeat from the offer on.
 *
 * Threads: the group's thread, except kick(). Nothing blocks except sleep(). No function waits
 * for the peer: "not now" is NULL or ST_AGAIN. */
#ifndef LOCKSTEP_LINK_LINKS_H
#define LOCKSTEP_LINK_LINKS_H

#include "link/config.h"
#include "link/wire.h"

#include <poll.h>

/* Payload bytes of one slot: 64 blocks of 64 int64 and their bitmap fit. */
#define LINK_SLOT_BYTES ((size_t)33 << 10)
/* Messages that keep a wire busy. */
#define LINK_AHEAD 4

struct link {
    const struct link_ops *ops;
    const char *name;  /* for sentences: ops->name, or what it wraps */
    size_t slot_bytes; /* largest payload */
    bool tx_pending;   /* sent slots that progress() must still push out */
    /* set by the caller: another message follows at once, so send() may leave this one to
     * progress() (tx_pending) and save a system call */
    bool hold;
    /* set by the caller: its core is wanted by others, so sleep() may rather end late than spin */
    bool patient;
};

/* What one end tells the other to open a link. */
#define LINK_BLOB_BYTES WIRE_BLOB_BYTES

#define LINK_DEVICE_BYTES 64

/* What a link may need to know about the pair; borrowed during open. */
struct link_env {
    int rank, peer;
    const struct wire_rank *self, *other;
    int side_fd; /* carries the offers */
    int data_fd; /* connected TCP socket of this pair; a link that keeps it sets it to -1 */
    uint64_t deadline_ns; /* for the other side's words */
    const struct fabric_config *cfg;
    /* What was found. */
    char device[LINK_DEVICE_BYTES]; /* the RDMA device that leads to the other; "": none */
    bool no_cable;           /* both sides have RDMA devices, and none reaches the other's */
    enum fabric_link opened; /* set by link_open() */
};

struct link_ops {
    const char *name;
    enum fabric_link id;
    bool same_host_only;
    /* Messages that a collective sends before it takes the peer's first one: an even number,
     * and so few that no send waits for a peer which itself is sending. */
    size_t n_ahead;
    bool private_slots; /* slot() is this process's own memory, not lines that the peer reads */

    /* Finds out with the other side, over link_talk(), what way there is; NULL: nothing to find
     * out. Fills what env has for it. ST_UNSUPPORTED: none between these two. */
    enum status (*find)(struct link_env *env, struct err *err);
    /* Makes *out and fills blob [LINK_BLOB_BYTES]. ST_UNSUPPORTED: not between these two. */
    enum status (*offer)(struct link **out, struct link_env *env, uint8_t *blob,
                         struct err *err);
    enum status (*accept)(struct link *l, struct link_env *env, const uint8_t *blob,
                          struct err *err);
    void (*ready)(struct link *l);

    /* The next free slot, NULL if none is free now. Stays the same until send(), whatever is
     * received or pushed out meanwhile. */
    struct wire_msg *(*slot)(struct link *l);
    /* Sends slot(): its header says how long it is. */
    enum status (*send)(struct link *l, struct err *err);
    /* The oldest message received, in place until done(). Only n_bytes <= slot_bytes has
     * been checked. ST_AGAIN: none yet. */
    enum status (*recv)(struct link *l, const struct wire_msg **out, struct err *err);
    void (*done)(struct link *l);
    /* Pushes what send() could not; NULL where send() always can. */
    enum status (*progress)(struct link *l, struct err *err);

    /* The peer has consumed this many messages in all. The count comes from the peer itself, a
     * little late, for a link whose own notice may be lost. It may repeat what is known
     * already. NULL: not needed. */
    void (*consumed)(struct link *l, uint64_t n_messages);

    /* Until a message may have come (or a slot may be free, if for_slot), kick(), or the
     * timeout. Links that can be polled set poll_fd instead and leave this NULL. */
    void (*sleep)(struct link *l, bool for_slot, int timeout_us);
    /* The descriptor and events that sleeping on this link means. */
    struct pollfd (*poll_fd)(struct link *l, bool for_slot);
    /* Ends a sleep(), now or when it begins. Any thread, signal handlers. NULL with poll_fd. */
    void (*kick)(struct link *l);

    void (*close)(struct link *l); /* also after a failed accept */
};

/* In order of preference (tcp can always be, so what comes after it only is where it is asked
 * for), ends with NULL. */
extern const struct link_ops *const link_table[];

extern const struct link_ops link_shm, link_tcp, link_verbs, link_ucx;

const char *link_name(enum fabric_link id);

/* The first link of the table that the configuration allows and both sides can open. The two
 * sides call this at the same time. */
enum status link_open(struct link **out, struct link_env *env, struct err *err);
/* How long find() may look for a cable to one rank before it reports that there is none. */
uint64_t link_search_ns(const struct fabric_config *cfg);
/* For find(): a blob [LINK_BLOB_BYTES] each way; the other side does the same. */
enum status link_talk(struct link_env *env, enum fabric_link id, const uint8_t *mine,
                      uint8_t *theirs, struct err *err);
/* Puts the emulation that env->cfg->emulate describes in front of *l (link_emulated.c). */
enum status link_emulate(struct link **l, const struct link_env *env, struct err *err);
/* Is the description well formed? */
enum status link_emulate_check(const char *text, struct err *err);

/* NULL is fine. */
void link_close(struct link *l);

#endif
