/* verbs_pair.h: the queue pairs between two processes on one RDMA device. All groups that the
 * two processes have in common share them.
 *
 *   device   verbs_device.h
 *   pair     N_CLASSES queue pairs (one per slot size) and a completion queue, to one process
 *   channel  one group's share of a pair: its credits and its received messages
 *
 * Hardware flow control is not trusted. A channel never has more than VERBS_CREDITS messages
 * under way, and for each of them a receive is posted in every class.
 *
 * Threads: groups of different threads share pairs, so a pair has a lock. It guards everything
 * in the pair, its channels included. The registry of pairs has another lock. */
#ifndef LOCKSTEP_LINK_VERBS_PAIR_H
#define LOCKSTEP_LINK_VERBS_PAIR_H

#include "link/verbs_device.h"
#include "link/wire.h"
#include "net/wake.h"

#include <pthread.h>
#include <stdbool.h>

#define VERBS_CREDITS 8u      /* messages under way per channel and direction */
#define VERBS_CREDIT_SLOTS 4u /* for messages that only return credits: at most two under way */
#define VERBS_MAX_CHANNELS 64

/* In front of every message in its slot. */
struct verbs_head {
    uint32_t channel; /* the receiver's number of it */
    uint32_t n_bytes; /* of all that follows; 0: only returns credits */
    uint64_t taken;   /* messages of the channel that the sender has consumed */
};

/* What one process tells the other to connect a pair, and to agree to share one. */
struct verbs_hello {
    uint32_t pair;    /* 0: a new one; else the first queue pair number of an existing one */
    uint32_t channel; /* how messages to me are to be marked */
    uint32_t qpn[VERBS_N_CLASSES], psn;
    struct verbs_address address;
    uint32_t reliable;
};

struct verbs_pair;

struct verbs_slot {
    struct verbs_head *head; /* in the slab; the message follows */
    int class;
};

struct verbs_channel {
    struct verbs_pair *pair;
    /* The tags of messages to here and to the peer: the channel's index in the pair + 1, and in
     * the higher bits how many channels the pair has had. So a late message to a closed channel
     * is not taken for one to the next channel with that index. 0: none yet. */
    uint32_t id, peer_id;
    uint64_t sent, taken_by_peer;               /* messages */
    uint64_t received, told;                    /* consumed here; last told to the peer */
    struct verbs_slot inbox[2 * VERBS_CREDITS]; /* by sequence number; head NULL: not there */
    struct wake wake;                           /* for its thread, asleep */
    bool asleep;
};

/* Which process: for sharing. */
struct verbs_peer_id {
    uint8_t host_id[32];
    uint32_t pid;
};

/* Is there a ready pair to that process? Over which device, and between which queue pairs of
 * class 0. */
bool verbs_pair_known(const struct verbs_peer_id *who, bool reliable,
                      char device[VERBS_NAME_BYTES], uint32_t *qpn, uint32_t *peer_qpn);

/* A channel to that process over that device (NULL: the first with an active port). It uses an
 * existing pair, or a new one whose hello is filled in. */
enum status verbs_channel_open(struct verbs_channel **out, const struct verbs_peer_id *who,
                               const char *device, bool reliable, struct verbs_hello *hello,
                               struct err *err);
/* With the other side's hello. Afterwards the queue pairs are in RTS and receives are posted,
 * which must happen before either side sends (after verbs_channel_ready()). ST_AGAIN: the two
 * sides see different pairs (another group is just opening or closing one): retry. */
enum status verbs_channel_connect(struct verbs_channel *c, const struct verbs_hello *theirs,
                                  struct err *err);
/* Both sides have connected: the pair may be shared. */
void verbs_channel_ready(struct verbs_channel *c);
void verbs_channel_close(struct verbs_channel *c);

/* May one more message go? Polls the pair. */
bool verbs_channel_has_credit(struct verbs_channel *c);
/* The peer has consumed this many of the channel's messages, as it reports elsewhere. */
void verbs_channel_consumed(struct verbs_channel *c, uint64_t n_messages);
/* ST_PEER_LOST when the pair ended in an error. */
enum status verbs_channel_broken(struct verbs_channel *c, struct err *err);
/* A slot for a message of n_bytes; false if there is no credit or no free slot. */
bool verbs_channel_slot(struct verbs_channel *c, size_t n_bytes, struct verbs_slot *out);
enum status verbs_channel_send(struct verbs_channel *c, struct verbs_slot slot,
                               uint32_t n_bytes, struct err *err);
/* The message with the next sequence number; ST_AGAIN. Polls the pair. */
enum status verbs_channel_recv(struct verbs_channel *c, struct verbs_slot *out,
                               struct err *err);
enum status verbs_channel_done(struct verbs_channel *c, struct err *err);

/* Sleeps until a message may have come (or credit, if for_slot), verbs_channel_wake(), or the
 * timeout. False, at once: this device does not report completions, so the caller must poll. */
bool verbs_channel_sleep(struct verbs_channel *c, bool for_slot, int timeout_us);
/* Any thread, signal handlers. */
void verbs_channel_wake(struct verbs_channel *c);

#endif
