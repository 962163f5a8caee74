/* node.c: lockstep node: makes this machine a member of a cluster, until SIGINT or SIGTERM. */
#include "node/node.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/program.h"
#include "base/util.h"
#include "cli/nodes.h"
#include "cli/ready.h"
#include "cluster/client.h"
#include "cluster/deployments.h"
#include "cluster/store.h"
#include "commands/serve.h"
#include "net/host_id.h"
#include "net/wake.h"
#include "node/controller.h"
#include "node/local_page.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_MS 1000

static const char *host, *name, *store, *state, *seeds;
static int port = NODE_PORT, page = -1;
static bool alone;

static const struct cli_option options[] = {
    CLI_TEXT(0, "host", "ADDRESS", &host, "address to listen on (default: all)"),
    CLI_INT(0, "port", "P", &port, 0, 65535,
            "port to listen on; 0: any free one (default 7342)"),
    CLI_INT(0, "page", "P", &page, 0, 65535,
            "port of 127.0.0.1 with the page of the cluster, for this\n"
            "machine's users; 0: none (default 7343 where the node is\n"
            "started in a terminal, else none)"),
    CLI_TEXT(0, "name", "NAME", &name, "the node's name (default: the machine's name)"),
    CLI_TEXT(0, "models", "DIR", &store,
             "the folder of models, also for copies (default\n"
             "~/.local/share/lockstep/models)"),
    CLI_TEXT(0, "state", "DIR", &state,
             "where it keeps what lockstep up asked for (default\n"
             "~/.local/share/lockstep/state)"),
    CLI_TEXT(0, "seeds", "A,B,..", &seeds,
             "addresses of other nodes, one or more, for networks\n"
             "without multicast"),
    CLI_FLAG(0, "no-discovery", &alone, "sends no beacons: others must name its address"),
    CLI_INCLUDE(ready_options),
    CLI_END};

static const struct cli_command command = {
    "node", "makes this machine part of a cluster",
    "Start one on each machine. The nodes find each other on all networks that they share.\n"
    "Whoever has the cluster's key (lockstep key) may then use all of them:\n"
    "\n"
    "  lockstep node                              on each machine\n"
    "  lockstep nodes                             on any: which machines there are\n"
    "  lockstep serve model.gguf --nodes auto     on any: a rank on each\n"
    "  lockstep up model.gguf --api-key-file keys the same, kept up by all nodes together\n"
    "\n"
    "A node is small and holds no weights. It starts a worker for each rank that a command asks\n"
    "for. If the model is not here, the node copies it from the machine that asks. Ctrl-C or\n"
    "SIGTERM ends the node and its workers. docs/nodes.md says more.",
    options};

static struct wake interrupted = WAKE_CLOSED;

static void interrupt(void *arg) {
    (void)arg;
    wake_ring(&interrupted);
}

/* ---- nodes that come and go -------------------------------------------------------------- */

struct seen {
    uint8_t node[BEACON_ID_BYTES];
    char name[64];
};

static bool is_among(const struct seen *list, size_t n, const uint8_t *node) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(list[i].node, node, BEACON_ID_BYTES) == 0)
            return true;
    return false;
}

/* Says what changed since the last look. */
static void look(struct discovery *d, struct discovered *now, struct seen *before,
                 size_t *n_before) {
    struct seen list[DISCOVERY_NODES_MAX];
    size_t n = discovery_nodes(d, now, DISCOVERY_NODES_MAX);
    for (size_t i = 0; i < n; i++) {
        const struct beacon *b = &now[i].beacon;
        char address[NET_TEXT_BYTES];
        memcpy(list[i].node, b->node, BEACON_ID_BYTES);
        snprintf(list[i].name, sizeof list[i].name, "%s", b->name);
        net_text(&now[i].addresses[0], address);
        if (!is_among(before, *n_before, b->node))
            log_info("%s is here: %s", b->name, address);
    }
    for (size_t i = 0; i < *n_before; i++)
        if (!is_among(list, n, before[i].node))
            log_info("%s is gone", before[i].name);
    memcpy(before, list, n * sizeof *list);
    *n_before = n;
}

static void watch(struct discovery *d) {
    struct discovered *now = mem_calloc(DISCOVERY_NODES_MAX, sizeof *now);
    struct seen before[DISCOVERY_NODES_MAX];
    size_t n_before = 0;
    bool warned = false, warned_full = false;
    char strangers[DISCOVERY_STRANGERS_MAX][NET_TEXT_BYTES];
    struct pollfd p = {.fd = interrupted.fds[0], .events = POLLIN};
    while (poll(&p, 1, d != NULL ? LOOK_MS : -1) <= 0) {
        if (d == NULL || now == NULL)
            continue;
        look(d, now, before, &n_before);
        if (!warned_full && discovery_is_full(d)) {
            warned_full = true;
            log_warn("there are more than %d other nodes: further ones take part in nothing",
                     DISCOVERY_NODES_MAX);
        }
        if (!warned && discovery_strangers(d, strangers, DISCOVERY_STRANGERS_MAX) > 0) {
            warned = true;
            log_warn("the node at %s has another cluster key or version of lockstep: lockstep "
                     "key --set makes it one of this cluster",
                     strangers[0]);
        }
    }
    mem_free(now);
}

/* ---- beginning --------------------------------------------------------------------------- */

/* The key; *made: there was none. */
static enum status find_key(struct cluster_key *key, bool *made, struct err *err) {
    char path[PATH_MAX];
    TRY(cluster_key_path(path, sizeof path, err));
    return cluster_key_find(key, path, made, err);
}

static struct beacon beacon_of(int api_port, const uint8_t node[BEACON_ID_BYTES]) {
    struct beacon self = {.kind = BEACON_HERE, .port = (uint16_t)api_port};
    uint8_t machine[32];
    memcpy(self.node, node, sizeof self.node);
    host_id(machine);
    memcpy(self.machine, machine, sizeof self.machine);
    snprintf(self.name, sizeof self.name, "%s", name);
    snprintf(self.version, sizeof self.version, "%s", LOCKSTEP_VERSION);
    return self;
}

static enum status discover(struct discovery **out, const struct identity *id, int api_port,
                            const uint8_t node[BEACON_ID_BYTES], struct err *err) {
    struct beacon self = beacon_of(api_port, node);
    struct discovery_config cfg = {.self = &self};
    memcpy(cfg.key, id->beacon_key, sizeof cfg.key);
    return discovery_open(out, &cfg, err);
}

static void say_beginning(const struct node *n, const struct cluster_key *key, bool made) {
    char text[CLUSTER_KEY_TEXT_BYTES];
    cluster_key_text(key, text);
    printf("lockstep node %s listens on port %d\n", name, node_port(n));
    /* Users without the key may read a journal. */
    if (made && isatty(STDOUT_FILENO))
        printf("this is a new cluster, with the key %s\n"
               "on each other machine: lockstep key --set (and type it), then lockstep node\n",
               text);
    else if (made)
        printf("this is a new cluster: lockstep key shows its key\n");
    sodium_memzero(text, sizeof text);
}

/* Who starts it in a terminal gets the page. A service of a machine with many users does not. */
static enum status show_page(struct local_page **out, struct controller *k, struct err *err) {
    bool wanted = page > 0 || (page < 0 && isatty(STDOUT_FILENO));
    if (!wanted)
        return ST_OK;
    TRY(local_page_open(out, k, page > 0 ? page : LOCAL_PAGE_PORT, err));
    printf("the page of the cluster, on this machine: http://127.0.0.1:%d\n",
           local_page_port(*out));
    return ST_OK;
}

static enum status serve_until_interrupt(const struct node *n, struct discovery *d,
                                         struct err *err) {
    TRY(ready_say(json_pack("{s:i, s:s, s:s, s:i}", "port", node_port(n), "address",
                            host != NULL ? host : "*", "name", name, "pid", (int)getpid()),
                  err));
    watch(d);
    return ST_OK;
}

static enum status keep(struct controller **out, const struct identity *id, struct discovery *d,
                        struct node *n, const uint8_t node[BEACON_ID_BYTES], struct err *err) {
    const struct controller_config cfg = {.id = id,
                                          .discovery = d,
                                          .node = node,
                                          .host = host,
                                          .seeds = seeds,
                                          .name = name,
                                          .port = node_port(n),
                                          .models = store,
                                          .state = state,
                                          .check_words = serve_check_words,
                                          .tell = node_tell,
                                          .tell_user = n};
    return controller_open(out, &cfg, err);
}

static enum status run(const struct identity *id, const struct cluster_key *key, bool made,
                       struct err *err) {
    const struct node_config cfg = {
        .id = id, .host = host, .port = port, .name = name, .store = store};
    struct discovery *d = NULL;
    struct controller *k = NULL;
    struct local_page *shown = NULL;
    struct node *n;
    uint8_t own[BEACON_ID_BYTES]; /* random: at each start it is another one */
    randombytes_buf(own, sizeof own);
    TRY(node_open(&n, &cfg, err));
    enum status st = alone ? ST_OK : discover(&d, id, node_port(n), own, err);
    if (st == ST_OK)
        st = keep(&k, id, d, n, own, err);
    if (st == ST_OK) {
        node_set_discovery(n, d);
        node_set_controller(n, k);
        cli_on_interrupt(interrupt, NULL);
        say_beginning(n, key, made);
        st = show_page(&shown, k, err);
        if (st == ST_OK && cli_flush() == CLI_GO_ON)
            st = serve_until_interrupt(n, d, err);
        ready_say_stopping();
        local_page_close(shown);
        node_set_controller(n, NULL);
        node_set_discovery(n, NULL);
    }
    if (k != NULL)
        controller_leave(k);
    discovery_close(d); /* says that it leaves before it does */
    controller_close(k);
    node_close(n);
    return st;
}

static enum status fill_names(struct err *err) {
    static char own[64], folder[PATH_MAX], beside[PATH_MAX + 16];
    if (name == NULL) {
        gethostname(own, sizeof own - 1);
        own[strcspn(own, ".")] = '\0';
        name = *own != '\0' ? own : "node";
    }
    if (!deployment_name_is_good(name) || strchr(name, ':') != NULL || str_eq(name, "auto"))
        return err_set(err, ST_BAD_INPUT,
                       "--name %.100s: a node's name is " DEPLOYMENT_NAME_RULE
                       ", no colon, and not \"auto\"",
                       name);
    static const uint8_t any[BEACON_ID_BYTES];
    struct beacon self = beacon_of(NODE_PORT, any);
    TRY(beacon_check(&self, err));
    if (store == NULL) {
        TRY(store_path(folder, sizeof folder, err));
        store = folder;
    } else if (realpath(store, folder) != NULL) {
        store = folder;
    } else {
        return err_set(err, ST_NOT_FOUND, "--models %s: %s", store, strerror(errno));
    }
    if (state == NULL) {
        TRY(store_data_path(beside, sizeof beside, "state", err));
        state = beside;
    }
    return ST_OK;
}

static enum status begin(struct err *err) {
    struct cluster_key key;
    struct identity id;
    bool made;
    TRY(ready_begin(err));
    TRY(fill_names(err));
    TRY(wake_open(&interrupted, err));
    TRY(find_key(&key, &made, err));
    TRY(identity_make(&id, &key, err));
    enum status st = run(&id, &key, made, err);
    sodium_memzero(&key, sizeof key);
    identity_deinit(&id);
    return st;
}

int cmd_node(int argc, char **argv) {
    struct err err;
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    program_confine();
    enum status st = begin(&err);
    return st == ST_OK ? 0 : cli_fail(st, "%s", err.text);
}
