/* wire.h: the structs that another process sends us, with asserted sizes. All of them are
 * hostile until checked. The blobs that the ends of one kind of link exchange are elsewhere
 * (verbs_pair.h, verbs_cables.c). Little-endian only: all supported systems are. */
#ifndef LOCKSTEP_LINK_WIRE_H
#define LOCKSTEP_LINK_WIRE_H

#include <assert.h>
#include <stdint.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

#define WIRE_MAGIC 0x6b636f6cu /* "lock" */
#define WIRE_VERSION 4u
#define WIRE_NONCE_BYTES 32
#define WIRE_MAC_BYTES 32

/* ---- bootstrap: hello -> proof -> join -> answer, on every new TCP connection --------------
 *
 * Both sides prove that they hold the group's token without revealing it. Each MAC is keyed
 * with the token and covers both nonces, so a recorded exchange is useless. */

/* Connector to acceptor. */
struct wire_hello {
    uint32_t magic, version;
    uint8_t nonce[WIRE_NONCE_BYTES];
};
static_assert(sizeof(struct wire_hello) == 40, "wire_hello");

/* Acceptor to connector. */
struct wire_proof {
    uint32_t magic, version;
    uint8_t nonce[WIRE_NONCE_BYTES];
    uint8_t mac[WIRE_MAC_BYTES];
};
static_assert(sizeof(struct wire_proof) == 72, "wire_proof");

enum wire_channel { WIRE_SIDE, WIRE_DATA, WIRE_N_CHANNELS };

/* A rank's identity, and the addresses where others find it. */
struct wire_rank {
    uint32_t rank, pid;
    uint8_t host_id[32]; /* equal: same boot of the same system in the same namespaces */
    uint8_t address[16]; /* IPv6, or IPv4 mapped into it */
    uint32_t port;       /* where it accepts the higher ranks */
    uint32_t scope_id;   /* IPv6 link-local: of the acceptor's interface, 0 otherwise */
};
static_assert(sizeof(struct wire_rank) == 64, "wire_rank");

/* Connector to acceptor: what it asks for; rank == WIRE_WRONG_TOKEN: goodbye, your proof is
 * wrong. */
#define WIRE_WRONG_TOKEN 0xffffffffu
struct wire_join {
    struct wire_rank who;
    uint32_t n_ranks, channel;
    uint32_t wires; /* hash of the configured wires: all must agree on them */
    uint32_t unused;
    uint8_t mac[WIRE_MAC_BYTES];
};
static_assert(sizeof(struct wire_join) == 112, "wire_join");

/* Acceptor to connector; status is an enum status, text the sentence when it is not ST_OK. */
struct wire_answer {
    uint32_t status;
    char text[252];
};
static_assert(sizeof(struct wire_answer) == 256, "wire_answer");

/* Between two ranks that agree on a link: what the other needs to open it. */
#define WIRE_BLOB_BYTES 2040
struct wire_offer {
    uint32_t link; /* enum fabric_link */
    uint32_t ok;   /* 0: the sender cannot use this link */
    uint8_t blob[WIRE_BLOB_BYTES];
};
static_assert(sizeof(struct wire_offer) == 2048, "wire_offer");

/* When all links are open: bit q, the sender has shared memory or a cable to rank q. */
struct wire_row {
    uint64_t bits;
};
static_assert(sizeof(struct wire_row) == 8, "wire_row");

/* ---- the side channel: liveness ------------------------------------------------------------ */

enum wire_side_kind {
    WIRE_BEAT = 1, /* alive; counts of messages sent to you over the link, and of yours that
                    * are consumed */
    WIRE_BYE,      /* I leave on purpose after this many messages */
    WIRE_LOST,     /* the group is over: `rank` is lost, text says why */
};
struct wire_side {
    uint32_t magic, kind;
    uint64_t sent, received;
    uint32_t rank;
    char text[228];
};
static_assert(sizeof(struct wire_side) == 256, "wire_side");

/* ---- messages over a link ------------------------------------------------------------------ */

enum wire_kind {
    WIRE_DATA_P2P = 1,
    WIRE_BROADCAST,
    WIRE_GATHER,
    WIRE_BARRIER,
    WIRE_SHARE,
    WIRE_SUM, /* blocks of 64 with a bitmap in front: int64 where the bit is set, else int32 */
    WIRE_SUM_32, /* all blocks fit: n int32 */
    WIRE_N_KINDS
};

/* In front of each message in its slot; the payload follows directly. */
struct wire_msg {
    uint32_t seq;     /* counts the messages of this direction of this pair, from 0 */
    uint32_t n_bytes; /* of the payload */
    uint16_t kind;    /* enum wire_kind */
    uint16_t team;    /* which team's call this belongs to: both sides must be in the same */
    uint32_t check;   /* over this header (with check = 0) and the payload */
    uint64_t offset;  /* where in the caller's data this piece begins */
    uint64_t sent_ns; /* the sender's clock: only the emulated link reads it */
};
static_assert(sizeof(struct wire_msg) == 32, "wire_msg");

#endif
