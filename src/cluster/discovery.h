/* discovery.h: how the nodes of a cluster find each other, without a list and without a daemon
 * beside ours.
 *
 * Every node announces itself on all networks of its machine: beacons (beacon.h) by multicast
 * (multicast.h). It sends one at the start, when another node asks, and every interval. A node
 * that says that it leaves, or is silent for five intervals, is gone. Interfaces are checked
 * every three seconds: a cable may be plugged in later.
 *
 * A beacon is a hint and not a proof. The key shows that such a node has existed, not that it
 * answers at the datagram's source address. The connection there must authenticate itself.
 *
 * A beacon counts once. One with a smaller count than its daemon's last is old, and is ignored.
 * The last one itself arrives over several networks and adds addresses for a second. So
 * recorded beacons that are sent again later fill no table, as long as the daemon is still
 * heard or is among the last 256 that were. Beacons that are forwarded at once from other
 * addresses do add these addresses.
 *
 * A thread of its own does this and sleeps in between. Whatever the networks send costs bounded
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

/* Starts, and asks for other nodes: on a quiet network the answers come within milliseconds.
 *
 *   ST_BAD_INPUT  cfg->self breaks the rules of beacons (its kind does not matter)
 *   ST_IO         there are interfaces, and none could be used (another program has the
 *                 port...). It is not an error to have no interface: one may come later. */
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

/* Numeric source addresses of beacons with another key or of another protocol version within
 * the last minute, for a hint to the user; the latest first. */
size_t discovery_strangers(struct discovery *d, char (*out)[NET_TEXT_BYTES], size_t max);

#endif
