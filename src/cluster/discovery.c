/* discovery.c: the table of nodes, and the thread that maintains it. Only the thread uses the
 * sockets; the table has a lock. */
#include "cluster/discovery.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/multicast.h"
#include "net/wake.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <stdlib.h>

#define MS 1000000ull
#define LOOK_NS (3000 * MS)
#define SILENT_INTERVALS 5
#define STRANGER_NS (60000 * MS)
/* How long a beacon takes at most over one network after it has come over another. */
#define SAME_BEACON_NS (1000 * MS)
#define GONE_MAX 256
/* However many ask, a node answers this often. */
#define ANSWER_GAP_NS (100 * MS)
/* A flood: after this many datagrams in a window, the thread sleeps for the rest of it. Each
 * costs some microseconds (at most an HMAC). At 170,000 a second this thread took 8 % of a
 * core. 256 nodes that answer at once, on several networks each, stay below the limit. */
#define WINDOW_NS (100 * MS)
#define WINDOW_DATAGRAMS 2000
#define DATAGRAMS_AT_ONCE 16 /* from one port before the next one's turn */

struct path {
    struct net_address from;
    char interface[IF_NAMESIZE];
    uint64_t heard_ns;
};

struct heard_node {
    struct beacon beacon;
    bool left; /* kept for its silence: a beacon from before may still wait at another port */
    uint64_t heard_ns, counted_ns; /* counted: when the beacon came first */
    int n_paths;
    struct path paths[DISCOVERY_ADDRESSES_MAX];
};

/* A daemon that is no longer in the table: its earlier beacons are old. */
struct gone {
    uint8_t node[BEACON_ID_BYTES];
    uint64_t count;
};

struct stranger {
    struct net_address from;
    uint64_t heard_ns;
};

struct discovery {
    uint8_t key[BEACON_KEY_BYTES];
    struct beacon self; /* without a port, if it is not to be seen */
    uint64_t interval_ns;
    pthread_t thread;
    struct wake wake;

    /* The thread's. */
    struct multicast multicast;
    uint64_t count;            /* of the last beacon that was said */
    uint64_t said_ns;          /* when the last beacon went out */
    uint64_t beat_ns, look_ns; /* when the next is due */
    uint64_t window_ns;        /* when it began */
    int n_in_window;

    pthread_mutex_t lock; /* guards what follows */
    bool asked, closing;
    uint64_t unseen_ns; /* when a node that does not fit the table was last heard; 0: never */
    int n_nodes, n_strangers;
    struct heard_node nodes[DISCOVERY_NODES_MAX];
    struct stranger strangers[DISCOVERY_STRANGERS_MAX];
    struct gone gone[GONE_MAX]; /* a ring */
    size_t n_gone;              /* that ever were */
};

/* ---- the table --------------------------------------------------------------------------- */

static bool same_host(const struct net_address *a, const struct net_address *b) {
    if (a->sa.ss_family != b->sa.ss_family)
        return false;
    if (a->sa.ss_family == AF_INET)
        return ((const struct sockaddr_in *)&a->sa)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)&b->sa)->sin_addr.s_addr;
    const struct sockaddr_in6 *x = (const void *)&a->sa, *y = (const void *)&b->sa;
    return IN6_ARE_ADDR_EQUAL(&x->sin6_addr, &y->sin6_addr) &&
           x->sin6_scope_id == y->sin6_scope_id;
}

static struct net_address with_port(const struct net_address *host, uint16_t port) {
    struct net_address a = *host;
    if (a.sa.ss_family == AF_INET)
        ((struct sockaddr_in *)&a.sa)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)&a.sa)->sin6_port = htons(port);
    return a;
}

static void remember_gone(struct discovery *d, const struct beacon *b) {
    struct gone *g = &d->gone[d->n_gone++ % GONE_MAX];
    memcpy(g->node, b->node, BEACON_ID_BYTES);
    g->count = b->count;
}

/* Said by a daemon that is gone, before it went. */
static bool is_of_gone(const struct discovery *d, const struct beacon *b) {
    for (size_t i = 0; i < MIN(d->n_gone, (size_t)GONE_MAX); i++)
        if (memcmp(d->gone[i].node, b->node, BEACON_ID_BYTES) == 0 &&
            b->count <= d->gone[i].count)
            return true;
    return false;
}

/* The node's place, or a free one, or NULL. */
static struct heard_node *node_place(struct discovery *d, const uint8_t id[BEACON_ID_BYTES]) {
    struct heard_node *free = NULL;
    for (int i = 0; i < d->n_nodes; i++) {
        if (memcmp(d->nodes[i].beacon.node, id, BEACON_ID_BYTES) == 0)
            return &d->nodes[i];
        if (d->nodes[i].left)
            free = &d->nodes[i];
    }
    if (d->n_nodes < DISCOVERY_NODES_MAX)
        free = &d->nodes[d->n_nodes++];
    if (free != NULL && free->left)
        remember_gone(d, &free->beacon);
    if (free != NULL)
        *free = (struct heard_node){0};
    return free;
}

static void path_heard(struct heard_node *n, const struct net_address *from,
                       const char *interface, uint64_t now) {
    struct path *p = n->paths, *end = p + n->n_paths;
    while (p < end && !(same_host(&p->from, from) && str_eq(p->interface, interface)))
        p++;
    if (p == n->paths + DISCOVERY_ADDRESSES_MAX)
        return;
    if (p == end) {
        *p = (struct path){.from = *from};
        memcpy(p->interface, interface, IF_NAMESIZE);
        n->n_paths++;
    }
    p->heard_ns = now;
}

/* A beacon that is older than the node's last one; or the last one itself, too late to have
 * come over another network. heard_ns is 0 for a new node. */
static bool is_old(const struct heard_node *n, const struct beacon *b, uint64_t now) {
    return n->heard_ns != 0 &&
           (b->count < n->beacon.count ||
            (b->count == n->beacon.count && now - n->counted_ns > SAME_BEACON_NS));
}

static void node_heard(struct discovery *d, const struct beacon *b,
                       const struct net_address *from, const char *interface, uint64_t now) {
    if (is_of_gone(d, b))
        return;
    struct heard_node *n = node_place(d, b->node);
    if (n == NULL)
        d->unseen_ns = now;
    if (n == NULL || n->left || is_old(n, b, now))
        return;
    if (n->heard_ns == 0 || b->count > n->beacon.count)
        n->counted_ns = now;
    n->beacon = *b;
    n->heard_ns = now;
    n->left = b->kind == BEACON_LEAVING;
    path_heard(n, from, interface, now);
}

static void stranger_heard(struct discovery *d, const struct net_address *from, uint64_t now) {
    struct stranger *s = d->strangers, *oldest = s, *end = s + d->n_strangers;
    for (; s < end && !same_host(&s->from, from); s++)
        if (s->heard_ns < oldest->heard_ns)
            oldest = s;
    if (s == end && d->n_strangers < DISCOVERY_STRANGERS_MAX)
        d->n_strangers++;
    else if (s == end)
        s = oldest;
    *s = (struct stranger){.from = *from, .heard_ns = now};
}

/* Drops what was silent for too long; `lag_ns` is how long this thread itself could not listen. */
static void expire(struct discovery *d, uint64_t now, uint64_t lag_ns) {
    uint64_t limit = SILENT_INTERVALS * d->interval_ns;
    int n_nodes = 0;
    for (int i = 0; i < d->n_nodes; i++) {
        struct heard_node *n = &d->nodes[i];
        int n_paths = 0;
        n->heard_ns = MIN(n->heard_ns + lag_ns, now);
        for (int k = 0; k < n->n_paths; k++) {
            struct path *p = &n->paths[k];
            p->heard_ns = MIN(p->heard_ns + lag_ns, now);
            if (now - p->heard_ns <= limit)
                n->paths[n_paths++] = *p;
        }
        n->n_paths = n_paths;
        if (now - n->heard_ns <= limit)
            d->nodes[n_nodes++] = *n;
        else
            remember_gone(d, &n->beacon);
    }
    d->n_nodes = n_nodes;
}

/* ---- hearing and saying ------------------------------------------------------------------ */

static bool visible(const struct discovery *d) {
    return d->self.port != 0;
}

static void hear(struct discovery *d, const struct multicast_port *port, const uint8_t *bytes,
                 size_t n, const struct net_address *from, uint64_t now) {
    struct beacon b;
    enum status st = beacon_read(&b, bytes, n, d->key, NULL);
    if (st != ST_REFUSED && (st != ST_OK || memcmp(b.node, d->self.node, BEACON_ID_BYTES) == 0))
        return;
    pthread_mutex_lock(&d->lock);
    if (st == ST_REFUSED)
        stranger_heard(d, from, now);
    else if (b.port != 0)
        node_heard(d, &b, from, port->interface, now);
    pthread_mutex_unlock(&d->lock);
    if (st == ST_OK && b.kind == BEACON_ASK && visible(d))
        d->beat_ns = MIN(d->beat_ns, MAX(now, d->said_ns + ANSWER_GAP_NS));
}

static void hear_port(struct discovery *d, const struct multicast_port *port, uint64_t now) {
    uint8_t bytes[BEACON_BYTES_MAX + 1]; /* one more: too long is seen */
    for (int i = 0; i < DATAGRAMS_AT_ONCE; i++) {
        struct net_address from;
        size_t n;
        d->n_in_window++;
        enum status st = multicast_recv(port, bytes, sizeof bytes, &n, &from);
        if (st == ST_AGAIN)
            return;
        if (st == ST_OK && n <= BEACON_BYTES_MAX)
            hear(d, port, bytes, n, &from, now);
    }
}

/* On the ports from `from` on. */
static void say(struct discovery *d, enum beacon_kind kind, int from) {
    uint8_t bytes[BEACON_BYTES_MAX];
    struct beacon b = d->self;
    b.kind = kind;
    b.count = ++d->count;
    size_t n = beacon_write(bytes, &b, d->key);
    for (int i = from; i < d->multicast.n_ports; i++)
        multicast_send(&d->multicast.ports[i], bytes, n);
}

/* ---- the thread -------------------------------------------------------------------------- */

/* Sleeps until a datagram arrives or `until_ns`, and reads it. After too many datagrams, only
 * sleeps. */
static void listen_until(struct discovery *d, uint64_t until_ns) {
    struct pollfd fds[MULTICAST_PORTS_MAX + 1] = {{.fd = d->wake.fds[0], .events = POLLIN}};
    const struct multicast *m = &d->multicast;
    bool flooded = d->n_in_window >= WINDOW_DATAGRAMS;
    for (int i = 0; i < m->n_ports; i++)
        fds[1 + i] = (struct pollfd){.fd = m->ports[i].fd, .events = POLLIN};
    if (flooded)
        until_ns = MIN(until_ns, d->window_ns + WINDOW_NS);
    poll(fds, flooded ? 1 : (nfds_t)m->n_ports + 1, net_ms_left(until_ns));
    wake_drain(&d->wake);
    uint64_t now = clock_ns();
    if (now - d->window_ns >= WINDOW_NS) {
        d->window_ns = now;
        d->n_in_window = 0;
    }
    for (int i = 0; i < m->n_ports && !flooded; i++)
        if (fds[1 + i].revents != 0)
            hear_port(d, &m->ports[i], now);
}

static void look(struct discovery *d) {
    int first_new = multicast_look(&d->multicast, NULL);
    if (first_new < d->multicast.n_ports)
        say(d, BEACON_ASK, first_new);
}

static bool take_orders(struct discovery *d, bool *ask) {
    pthread_mutex_lock(&d->lock);
    *ask = d->asked;
    d->asked = false;
    bool closing = d->closing;
    pthread_mutex_unlock(&d->lock);
    return !closing;
}

static void beat(struct discovery *d, uint64_t now, uint64_t lag_ns) {
    if (visible(d))
        say(d, BEACON_HERE, 0);
    d->said_ns = now;
    d->beat_ns = now + d->interval_ns;
    pthread_mutex_lock(&d->lock);
    expire(d, now, lag_ns);
    pthread_mutex_unlock(&d->lock);
}

static void *discovery_main(void *arg) {
    struct discovery *d = arg;
    bool ask;
    say(d, BEACON_ASK, 0);
    while (take_orders(d, &ask)) {
        if (ask)
            say(d, BEACON_ASK, 0);
        uint64_t due = MIN(d->beat_ns, d->look_ns);
        listen_until(d, due);
        uint64_t now = clock_ns();
        if (now >= d->beat_ns)
            beat(d, now, now > due + d->interval_ns ? now - due : 0);
        if (now >= d->look_ns) {
            look(d);
            d->look_ns = now + LOOK_NS;
        }
    }
    if (visible(d))
        say(d, BEACON_LEAVING, 0);
    return NULL;
}

/* ---- the interface ----------------------------------------------------------------------- */

static enum status set_self(struct discovery *d, const struct beacon *self, struct err *err) {
    if (self == NULL) { /* an id, to know its own questions by */
        d->self = (struct beacon){.kind = BEACON_ASK};
        randombytes_buf(d->self.node, sizeof d->self.node);
        return ST_OK;
    }
    d->self = *self;
    d->self.kind = BEACON_HERE;
    return beacon_check(&d->self, err);
}

static enum status begin(struct discovery *d, const struct discovery_config *cfg,
                         struct err *err) {
    int failed, port = cfg->port ? cfg->port : DISCOVERY_PORT;
    if (port < 1 || port > UINT16_MAX || cfg->interval_ms < 0)
        return err_set(err, ST_BAD_INPUT, "no discovery on UDP port %d every %d ms", port,
                       cfg->interval_ms);
    if (sodium_init() < 0)
        return err_set(err, ST_IO, "libsodium does not start");
    TRY(set_self(d, cfg->self, err));
    memcpy(d->key, cfg->key, sizeof d->key);
    d->interval_ns =
        (uint64_t)(cfg->interval_ms ? cfg->interval_ms : DISCOVERY_INTERVAL_MS) * MS;
    TRY(wake_open(&d->wake, err));
    multicast_init(&d->multicast, (uint16_t)port, cfg->interface);
    multicast_look(&d->multicast, &failed);
    if (d->multicast.n_ports == 0 && failed != 0)
        return err_set(err, ST_IO, "no interface lets nodes find each other on UDP port %d: %s",
                       port, strerror(failed));
    uint64_t now = clock_ns();
    d->said_ns = d->window_ns = now;
    d->beat_ns = now + d->interval_ns;
    d->look_ns = now + LOOK_NS;
    if (thread_start(&d->thread, discovery_main, d) != 0)
        return err_set(err, ST_IO, "no thread for discovery");
    return ST_OK;
}

static void end(struct discovery *d) {
    multicast_deinit(&d->multicast);
    wake_close(&d->wake);
    pthread_mutex_destroy(&d->lock);
    sodium_memzero(d->key, sizeof d->key);
    mem_free(d);
}

enum status discovery_open(struct discovery **out, const struct discovery_config *cfg,
                           struct err *err) {
    struct discovery *d = mem_calloc(1, sizeof *d);
    if (d == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for discovery");
    d->wake = (struct wake)WAKE_CLOSED;
    pthread_mutex_init(&d->lock, NULL);
    enum status st = begin(d, cfg, err);
    if (st == ST_OK)
        *out = d;
    else
        end(d);
    return st;
}

static void order(struct discovery *d, bool *what) {
    pthread_mutex_lock(&d->lock);
    *what = true;
    pthread_mutex_unlock(&d->lock);
    wake_ring(&d->wake);
}

void discovery_close(struct discovery *d) {
    if (d == NULL)
        return;
    order(d, &d->closing);
    pthread_join(d->thread, NULL);
    end(d);
}

void discovery_ask(struct discovery *d) {
    order(d, &d->asked);
}

static int by_name(const void *a_, const void *b_) {
    const struct beacon *a = &(*(const struct heard_node *const *)a_)->beacon;
    const struct beacon *b = &(*(const struct heard_node *const *)b_)->beacon;
    int c = strcmp(a->name, b->name);
    return c != 0 ? c : memcmp(a->node, b->node, BEACON_ID_BYTES);
}

static void describe(struct discovered *out, const struct heard_node *n, uint64_t now) {
    memset(out, 0, sizeof *out);
    out->beacon = n->beacon;
    out->age_s = (double)(now - MIN(now, n->heard_ns)) * 1e-9;
    out->n_addresses = n->n_paths;
    for (int i = 0; i < n->n_paths; i++) {
        out->addresses[i] = with_port(&n->paths[i].from, n->beacon.port);
        memcpy(out->interfaces[i], n->paths[i].interface, IF_NAMESIZE);
    }
}

size_t discovery_nodes(struct discovery *d, struct discovered *out, size_t max) {
    const struct heard_node *living[DISCOVERY_NODES_MAX];
    size_t n = 0;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->n_nodes; i++)
        if (!d->nodes[i].left)
            living[n++] = &d->nodes[i];
    qsort(living, n, sizeof living[0], by_name);
    n = MIN(n, max);
    uint64_t now = clock_ns();
    for (size_t i = 0; i < n; i++)
        describe(&out[i], living[i], now);
    pthread_mutex_unlock(&d->lock);
    return n;
}

bool discovery_is_full(struct discovery *d) {
    uint64_t now = clock_ns();
    pthread_mutex_lock(&d->lock);
    bool full =
        d->unseen_ns != 0 && now - MIN(now, d->unseen_ns) <= SILENT_INTERVALS * d->interval_ns;
    pthread_mutex_unlock(&d->lock);
    return full;
}

/* Loopback is other processes of this machine; link-local IPv6 means another thing on each
 * machine. */
static bool is_usable(const struct net_address *a) {
    if (a->sa.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a->sa;
        return !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
    }
    return a->sa.ss_family == AF_INET;
}

static bool is_loopback(const struct net_address *a) {
    if (a->sa.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&a->sa)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)&a->sa)->sin_addr.s_addr) >> 24 == 127;
}

/* IPv4 before IPv6, which not every program on the way speaks. */
static int turn_of(const struct net_address *a) {
    return is_loopback(a) ? 2 : a->sa.ss_family == AF_INET6;
}

size_t discovered_addresses(const struct discovered *d,
                            char out[DISCOVERY_ADDRESSES_MAX][NET_TEXT_BYTES]) {
    size_t n = 0;
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < d->n_addresses; i++)
            if (is_usable(&d->addresses[i]) && turn_of(&d->addresses[i]) == turn)
                net_text(&d->addresses[i], out[n++]);
    return n;
}

static int latest_first(const void *a_, const void *b_) {
    const struct stranger *a = a_, *b = b_;
    return (a->heard_ns < b->heard_ns) - (a->heard_ns > b->heard_ns);
}

size_t discovery_strangers(struct discovery *d, char (*out)[NET_TEXT_BYTES], size_t max) {
    struct stranger all[DISCOVERY_STRANGERS_MAX];
    uint64_t now = clock_ns();
    size_t n = 0;
    pthread_mutex_lock(&d->lock);
    size_t n_all = (size_t)d->n_strangers;
    memcpy(all, d->strangers, n_all * sizeof all[0]);
    pthread_mutex_unlock(&d->lock);
    qsort(all, n_all, sizeof all[0], latest_first);
    for (size_t i = 0; i < n_all && n < max; i++)
        if (now - MIN(now, all[i].heard_ns) < STRANGER_NS &&
            getnameinfo((struct sockaddr *)&all[i].from.sa, all[i].from.len, out[n],
                        NET_TEXT_BYTES, NULL, 0, NI_NUMERICHOST) == 0)
            n++;
    return n;
}
