/* discovery.h: the nodes of a cluster find each other, without a list and without a daemon
 * beside ours.
 *
 * Every node says on all networks of its machine that it is there: beacons (beacon.h) by
 * multicast (multicast.h), at once when it begins, when somebody asks, and every interval. One
 * that says that it leaves, or is silent for five intervals, is gone. Interfaces are looked at
 * every three seconds: a cable may be plugged in later.
 *
 * What is found is a hint and no proof: that a beacon was made with the cluster's key says that
 * such a node has been, not that it answers at the address the datagram came from. The
 * connection there must authenticate itself.
 *
 * A beacon counts once: one with a smaller count than its daemon's last is old, and ignored; the
 * last one itself, which comes over several networks, adds addresses for a second. So what
 * somebody records and sends again later fills no table, as long as the daemon is heard or is
 * among the last 256 that were. What he passes on at once, from other addresses, does name these.
 *
 * A thread of its own does it, and sleeps in between. Whatever the networks send costs bounded
 * memory, and at most a tenth of a core. All functions but discovery_close() may be called from
 * any thread. */
#ifndef LOCKSTEP_CLUSTER_DISCOVERY_H
#define LOCKSTEP_CLUSTER_DISCOVERY_H

#include "cluster/beacon.h"
#include "net/net.h"

#include <net/if.h>

#define DISCOVERY_PORT 7342
#define DISCOVERY_INTERVAL_MS 2000
#define DISCOVERY_NODES_MAX 256 /* further ones are not seen until one of these is gone */
#define DISCOVERY_ADDRESSES_MAX 16
#define DISCOVERY_STRANGERS_MAX 16

struct discovery_config {
    uint8_t key[BEACON_KEY_BYTES];
    const struct beacon *self; /* borrowed for the call; NULL: listens and asks, is not seen */
    const char *interface;     /* borrowed for the call: the only one to use; NULL: all */
    int port;                  /* UDP; 0: DISCOVERY_PORT */
    int interval_ms;           /* 0: DISCOVERY_INTERVAL_MS; the same on all nodes */
};

struct discovered {
    struct beacon beacon;
    /* Where its API should answer (with the scope, if link-local), and this machine's interface
     * that each was heard on. The one heard first comes first. */
    struct net_address addresses[DISCOVERY_ADDRESSES_MAX];
    char interfaces[DISCOVERY_ADDRESSES_MAX][IF_NAMESIZE];
    int n_addresses;
    double age_s; /* since it was last heard */
};

struct discovery;

/* Begins, and asks who is there: on a quiet network the answers come within milliseconds.
 *
 * ST_BAD_INPUT  cfg->self breaks the rules of beacons (its kind does not matter)
 * ST_IO         there are interfaces, and none could be used (the port is taken by another
 *               program...). None at all is no error: there may be one later. */
enum status discovery_open(struct discovery **out, const struct discovery_config *cfg,
                           struct err *err);
/* Says that this node leaves. NULL is fine. */
void discovery_close(struct discovery *d);

/* Asks all nodes to say at once that they are there. Returns at once. */
void discovery_ask(struct discovery *d);

/* Copies at most max nodes, sorted by name and then by id; returns how many. Never this one. */
size_t discovery_nodes(struct discovery *d, struct discovered *out, size_t max);

/* Are there more, which are not seen? */
bool discovery_is_full(struct discovery *d);

/* Where a node may be asked, as text, best first: loopback, which is only this machine, last;
 * how many they are. */
size_t discovered_addresses(const struct discovered *d,
                            char out[DISCOVERY_ADDRESSES_MAX][NET_TEXT_BYTES]);

/* Numeric addresses from where beacons with another key or of another protocol version came
 * within the last minute, for a hint to the user; the latest first. */
size_t discovery_strangers(struct discovery *d, char (*out)[NET_TEXT_BYTES], size_t max);

#endif
