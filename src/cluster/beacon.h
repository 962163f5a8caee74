/* beacon.h: a beacon: one datagram by which a node of a cluster announces itself on its
 * networks.
 *
 * Pure functions, callable from any thread. The datagram, numbers in network order:
 *
 *   bytes 8   "lockstep"
 *         2   protocol version (these ten bytes are the same in every version)
 *         1   kind
 *        16   node
 *        16   machine
 *         2   port
 *         8   count
 *     1 + n   n, and the name in n bytes
 *     1 + n   n, and the version in n bytes
 *        32   crypto_auth (HMAC-SHA-512-256) of all before, under the cluster's key
 *
 * So only a holder of the key can make or change one. Anybody can record a beacon and send it
 * again from another address. The count distinguishes it from a new one (discovery.h), and TLS
 * to the address that it names then fails. No clocks are compared: those of machines may differ
 * by years. A daemon's id is random, so a recorded "I leave" only concerns a daemon that has
 * left.
 *
 * Protocol 1 had no count. Nodes that speak it are strangers (discovery_strangers()). */
#ifndef LOCKSTEP_CLUSTER_BEACON_H
#define LOCKSTEP_CLUSTER_BEACON_H

#include "base/status.h"

#include <stdint.h>

#define BEACON_PROTOCOL 2
#define BEACON_KEY_BYTES 32
#define BEACON_ID_BYTES 16
#define BEACON_BYTES_MAX 256

enum beacon_kind {
    BEACON_HERE = 1, /* I am here */
    BEACON_ASK,      /* who is here? (and so am I, if I have a port) */
    BEACON_LEAVING,
};

struct beacon {
    enum beacon_kind kind;
    uint8_t node[BEACON_ID_BYTES]; /* which daemon: random at each start */
    /* which machine (net/host_id.h): the same for all processes there */
    uint8_t machine[BEACON_ID_BYTES];
    uint64_t
        count; /* of the daemon's beacons: each one's is greater than that of the one before */
    uint16_t port; /* of the node's API, TCP; 0 only in a BEACON_ASK: who has none */
    char name[64],
        version[16]; /* UTF-8 that can be printed as it is; a name wherever there is a port */
};

/* ST_BAD_INPUT and a sentence, if b breaks a rule above. */
enum status beacon_check(const struct beacon *b, struct err *err);

/* Returns the number of bytes. b keeps the rules of beacon_check(). */
size_t beacon_write(uint8_t out[BEACON_BYTES_MAX], const struct beacon *b,
                    const uint8_t key[BEACON_KEY_BYTES]);

/*   ST_BAD_INPUT  not a beacon, or one that breaks the rules
 *   ST_REFUSED    a beacon under another key, or forged; or of another protocol version
 *
 * err may be NULL: garbage then costs no formatting. */
enum status beacon_read(struct beacon *out, const uint8_t *bytes, size_t n,
                        const uint8_t key[BEACON_KEY_BYTES], struct err *err);

#endif
