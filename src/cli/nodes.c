/* nodes.c: Turns --nodes into hosts: finds the nodes, and ensures that each one has the model.
 */
#include "cli/nodes.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "cli/device_list.h"
#include "cluster/catalog.h"
#include "cluster/client.h"
#include "cluster/store.h"
#include "net/host_id.h"
#include "node/model_share.h"
#include "node/node.h"
#include "ranks/launch.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Answers come within milliseconds, or a little later from a busy machine. Strangers do not
 * answer. If no node does, the command waits until strangers have sent their own beacons. */
#define DISCOVER_MS 1200
#define STRANGERS_MS (DISCOVERY_INTERVAL_MS + 600)
#define ASK_AGAIN_MS 400
#define AUTO "auto"

enum status nodes_identity(struct identity *out, struct err *err) {
    struct cluster_key key;
    char path[PATH_MAX];
    TRY(cluster_key_path(path, sizeof path, err));
    enum status st = cluster_key_read(&key, path, err);
    if (st == ST_NOT_FOUND)
        return err_set(
            err, st,
            "there is no cluster key yet (%s): lockstep node and lockstep key make one", path);
    TRY(st);
    st = identity_make(out, &key, err);
    sodium_memzero(&key, sizeof key);
    return st;
}

/* Those that answer a question on all networks, which takes a second. */
static enum status discover(const struct identity *id, json_t *list,
                            char stranger[NET_TEXT_BYTES], size_t *n_strangers,
                            struct err *err) {
    struct discovery_config cfg = {.self = NULL};
    struct discovery *d;
    struct discovered *found = mem_calloc(DISCOVERY_NODES_MAX, sizeof *found);
    char others[DISCOVERY_STRANGERS_MAX][NET_TEXT_BYTES];
    size_t n = 0;
    if (found == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a list of nodes");
    memcpy(cfg.key, id->beacon_key, sizeof cfg.key);
    enum status st = discovery_open(&d, &cfg, err);
    if (st != ST_OK) {
        mem_free(found);
        return st;
    }
    *n_strangers = 0;
    for (int ms = 0; ms < DISCOVER_MS || (n + *n_strangers == 0 && ms < STRANGERS_MS);
         ms += ASK_AGAIN_MS) {
        discovery_ask(d);
        poll(NULL, 0, ASK_AGAIN_MS);
        n = discovery_nodes(d, found, DISCOVERY_NODES_MAX);
        *n_strangers = discovery_strangers(d, others, DISCOVERY_STRANGERS_MAX);
    }
    if (*n_strangers > 0)
        snprintf(stranger, NET_TEXT_BYTES, "%s", others[0]);
    discovery_close(d);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, node_seen_json(&found[i]));
    mem_free(found);
    return ST_OK;
}

/* What the node there knows of the others, and itself. */
static enum status ask_node(const struct identity *id, const char *at, json_t *list,
                            char stranger[NET_TEXT_BYTES], size_t *n_strangers,
                            struct err *err) {
    json_t *answer;
    TRY(client_get(id, at, "/v1/nodes", &answer, err));
    json_t *self = json_object_get(answer, "self"),
           *strangers = json_object_get(answer, "strangers"),
           *place = json_pack("{s:s, s:s}", "address", at, "interface", "");
    json_array_append_new(json_object_get(self, "addresses"), place);
    json_array_append(list, self);
    json_array_extend(list, json_object_get(answer, "nodes"));
    *n_strangers = json_array_size(strangers);
    if (*n_strangers > 0)
        snprintf(stranger, NET_TEXT_BYTES, "%s",
                 json_string_value(json_array_get(strangers, 0)));
    json_decref(answer);
    return ST_OK;
}

enum status nodes_find(const struct identity *id, const char *at, json_t **out,
                       char stranger[NET_TEXT_BYTES], size_t *n_strangers, struct err *err) {
    json_t *list = json_array();
    enum status st =
        ask_node(id, at != NULL ? at : "127.0.0.1", list, stranger, n_strangers, err);
    /* No node here, or it has just begun. */
    if (at == NULL && (st != ST_OK || json_array_size(list) < 2)) {
        json_array_clear(list);
        st = discover(id, list, stranger, n_strangers, err);
    }
    if (st == ST_OK)
        *out = catalog_sorted(list);
    json_decref(list);
    return st;
}

/* ---- asking all of them ------------------------------------------------------------------ */

struct asked {
    const struct identity *id;
    const json_t *seen;
    const char *path;
    pthread_t thread;
    json_t *answer; /* owned */
};

/* What GET path gives at the first of its addresses that answers, and which that is. */
static enum status ask_anywhere(const struct identity *id, const json_t *seen, const char *path,
                                json_t **out, char address[NET_TEXT_BYTES], struct err *err) {
    size_t i;
    json_t *one;
    enum status st = err_set(err, ST_NOT_FOUND, "the node %s has no address that can be used",
                             json_text(seen, "name"));
    json_array_foreach(json_object_get(seen, "addresses"), i, one) {
        snprintf(address, NET_TEXT_BYTES, "%s", json_text(one, "address"));
        st = client_get(id, address, path, out, err);
        if (st == ST_OK || st == ST_REFUSED)
            return st;
    }
    return st;
}

/* What the node says, and where it was heard; with "error" if it does not answer. */
static void *ask(void *user) {
    struct asked *a = user;
    json_t *o = json_deep_copy(a->seen), *facts = NULL;
    char address[NET_TEXT_BYTES];
    struct err err;
    if (ask_anywhere(a->id, a->seen, a->path, &facts, address, &err) == ST_OK) {
        json_object_set_new(o, "address", json_string(address));
        json_object_update(o, facts);
    } else {
        json_object_set_new(o, "error", json_string(err.text));
    }
    json_decref(facts);
    a->answer = o;
    return NULL;
}

/* All at once: one that does not answer takes some seconds for each of its addresses. */
json_t *nodes_ask_all(const struct identity *id, const json_t *nodes, const char *path) {
    size_t n = json_array_size(nodes), n_threads = 0;
    struct asked *list = mem_calloc(n + 1, sizeof *list);
    json_t *all = json_array();
    if (list == NULL)
        return all;
    for (size_t i = 0; i < n; i++)
        list[i] = (struct asked){.id = id, .seen = json_array_get(nodes, i), .path = path};
    while (n_threads < n && thread_start(&list[n_threads].thread, ask, &list[n_threads]) == 0)
        n_threads++;
    for (size_t i = 0; i < n; i++) {
        if (i < n_threads)
            pthread_join(list[i].thread, NULL);
        else
            ask(&list[i]);
        json_array_append_new(all, list[i].answer);
    }
    mem_free(list);
    return all;
}

/* ---- one node that is to take part ------------------------------------------------------- */

struct member {
    char name[64];
    char address[NET_TEXT_BYTES]; /* host:port of its API */
    char own[NET_TEXT_BYTES]; /* this machine's address as seen from there, without a port */
    json_t *facts;            /* GET /v1/node */
    int n_ranks;
    /* Giving it the model, on a thread of its own: */
    const struct placing *placing;
    pthread_t thread;
    _Atomic uint64_t bytes;
    bool copied, linked; /* linked: it reads its weights from here */
    atomic_bool done;
    enum status st;
    struct err err;
};

enum weights_way { WEIGHTS_AUTO, WEIGHTS_COPY, WEIGHTS_STREAM };

struct placing {
    struct identity id;
    enum weights_way way;
    char model_path[PATH_MAX]; /* absolute */
    struct model_files files;
    struct model_share *share;
    struct member *list;
    size_t n;
    int n_own_ranks; /* of this machine */
    char own_name[64];
    const char *devices; /* as the user names them; borrowed */
    bool provisional;    /* nodes without the model have its head, for measuring */
    bool quiet;
};
static struct placing placing; /* one command, one cluster */

bool nodes_host_of(const char *address, char *out, size_t size) {
    const char *colon = strrchr(address, ':');
    size_t n = colon != NULL ? (size_t)(colon - address) : strlen(address);
    if (*address == '[' && n >= 2 && address[n - 1] == ']') {
        address++;
        n -= 2;
    }
    return snprintf(out, size, "%.*s", (int)n, address) < (int)size;
}

/* This machine's address on the way to that one: what a socket would get that went there. */
static enum status own_address(char out[NET_TEXT_BYTES], const char *address, struct err *err) {
    struct net_address to, own;
    char text[NET_TEXT_BYTES];
    TRY(net_resolve(&to, address, false, err));
    int fd = net_socket(to.sa.ss_family, SOCK_DGRAM, 0);
    enum status st = ST_OK;
    if (fd < 0 || connect(fd, (struct sockaddr *)&to.sa, to.len) != 0)
        st = err_set(err, ST_IO, "there is no route from here to %s", address);
    if (st == ST_OK)
        st = net_local(fd, &own, err);
    if (fd >= 0)
        close(fd);
    TRY(st);
    net_text(&own, text);
    return nodes_host_of(text, out, NET_TEXT_BYTES)
               ? ST_OK
               : err_set(err, ST_BAD_INPUT, "%s: the address is too long", text);
}

/* Connects and asks the node what it is. */
static enum status greet(struct member *m, const struct identity *id, struct err *err) {
    TRY(client_get(id, m->address, "/v1/node", &m->facts, err));
    const char *name = json_string_value(json_object_get(m->facts, "name"));
    const char *version = json_string_value(json_object_get(m->facts, "version"));
    if (name == NULL || version == NULL)
        return err_set(err, ST_IO, "the node at %s does not say who it is", m->address);
    snprintf(m->name, sizeof m->name, "%s", name);
    if (!str_eq(version, LOCKSTEP_VERSION))
        return err_set(err, ST_REFUSED,
                       "the node %s (%s) runs lockstep %s, this is %s: all must be the same",
                       m->name, m->address, version, LOCKSTEP_VERSION);
    return own_address(m->own, m->address, err);
}

bool nodes_is_this_machine(const char *machine_hex) {
    uint8_t id[32];
    char own[2 * BEACON_ID_BYTES + 1];
    host_id(id);
    sodium_bin2hex(own, sizeof own, id, BEACON_ID_BYTES);
    return machine_hex != NULL && str_eq(own, machine_hex);
}

/* Tries the addresses of a node that was heard until it answers. */
static enum status greet_heard(struct member *m, const struct identity *id, const json_t *node,
                               struct err *err) {
    size_t i;
    json_t *one;
    enum status st = err_set(err, ST_NOT_FOUND, "the node %s has no address that can be used",
                             json_text(node, "name"));
    json_array_foreach(json_object_get(node, "addresses"), i, one) {
        snprintf(m->address, sizeof m->address, "%s", json_text(one, "address"));
        st = greet(m, id, err);
        if (st == ST_OK || st == ST_REFUSED)
            return st;
    }
    return st;
}

/* ---- which nodes take part --------------------------------------------------------------- */

/* A slot for one more, which counts when p->n includes it; NULL: all are taken. */
static struct member *next_member(struct placing *p, struct err *err) {
    if (p->n == LOCKSTEP_MAX_RANKS - 1) {
        err_set(err, ST_BAD_INPUT, "more than %d nodes", LOCKSTEP_MAX_RANKS - 1);
        return NULL;
    }
    struct member *m = &p->list[p->n];
    *m = (struct member){.placing = p};
    return m;
}

static void drop_member(struct member *m) {
    json_decref(m->facts);
    m->facts = NULL;
}

/* All that were heard but this machine's own. One that cannot be used is left out, with a word. */
static void take_all(struct placing *p, const json_t *found) {
    size_t i;
    json_t *node;
    json_array_foreach((json_t *)(uintptr_t)found, i, node) {
        struct err why;
        if (nodes_is_this_machine(json_text(node, "machine")))
            continue;
        struct member *m = next_member(p, &why);
        if (m != NULL && greet_heard(m, &p->id, node, &why) == ST_OK) {
            p->n++;
            continue;
        }
        if (m != NULL)
            drop_member(m);
        fprintf(stderr, "leaving out %s: %s\n", json_text(node, "name"), why.text);
    }
}

/* NULL: no node has this name. */
static enum status find_name(const json_t *found, const char *name, const json_t **out,
                             struct err *err) {
    size_t i;
    json_t *node;
    *out = NULL;
    json_array_foreach((json_t *)(uintptr_t)found, i, node) {
        if (!str_eq(json_text(node, "name"), name))
            continue;
        if (*out != NULL)
            return err_set(err, ST_BAD_INPUT,
                           "two nodes are called %s: lockstep nodes shows their addresses, "
                           "which --nodes takes, too",
                           name);
        *out = node;
    }
    return ST_OK;
}

/* "name" of one that was heard, or an address, with or without the port. */
static enum status take_named(struct placing *p, const json_t *found, const char *which,
                              struct err *err) {
    char list[8192], *rest = list, *name;
    if (snprintf(list, sizeof list, "%s", which) >= (int)sizeof list)
        return err_set(err, ST_BAD_INPUT, "--nodes is too long");
    while ((name = strsep(&rest, ",")) != NULL) {
        if (*name == '\0')
            return err_set(err, ST_BAD_INPUT, "--nodes %s: a name is empty", which);
        struct member *m = next_member(p, err);
        if (m == NULL)
            return ST_BAD_INPUT;
        const json_t *heard;
        TRY(find_name(found, name, &heard, err));
        enum status st;
        if (heard != NULL) {
            st = greet_heard(m, &p->id, heard, err);
        } else {
            if (!client_full_address(name, m->address, sizeof m->address))
                return err_set(err, ST_BAD_INPUT, "--nodes: %s is too long for a name", name);
            st = greet(m, &p->id, err);
            if (st == ST_NOT_FOUND && strchr(name, ':') == NULL)
                err_set(
                    err, st,
                    "%s: no node and no machine of that name was found (lockstep nodes lists them)",
                    name);
        }
        if (st == ST_OK &&
            nodes_is_this_machine(json_string_value(json_object_get(m->facts, "machine")))) {
            drop_member(m); /* this process is its rank */
            continue;
        }
        if (st != ST_OK) {
            drop_member(m);
            return st;
        }
        for (size_t i = 0; i < p->n; i++)
            if (str_eq(p->list[i].address, m->address)) {
                drop_member(m);
                return err_set(err, ST_BAD_INPUT, "--nodes %s: %s is named twice", which, name);
            }
        p->n++;
    }
    return ST_OK;
}

/* What this machine's node is called, or the machine where there is none. */
static void find_own_name(struct placing *p, const json_t *found) {
    size_t i;
    json_t *node;
    gethostname(p->own_name, sizeof p->own_name - 1);
    json_array_foreach((json_t *)(uintptr_t)found, i, node) {
        if (nodes_is_this_machine(json_text(node, "machine")))
            snprintf(p->own_name, sizeof p->own_name, "%s", json_text(node, "name"));
    }
}

/* Of `auto` and `auto@ADDRESS`: the node that knows them; NULL: this machine's own. False: it is
 * neither. */
static bool is_auto(const char *which, const char **at) {
    *at = str_starts(which, AUTO "@") ? which + strlen(AUTO "@") : NULL;
    return *at != NULL || str_eq(which, AUTO);
}

static enum status take(struct placing *p, const char *which, struct err *err) {
    json_t *found;
    size_t n_strangers = 0;
    char stranger[NET_TEXT_BYTES];
    const char *at;
    bool all = is_auto(which, &at);
    TRY(nodes_find(&p->id, at, &found, stranger, &n_strangers, err));
    enum status st = ST_OK;
    find_own_name(p, found);
    if (all)
        take_all(p, found);
    else
        st = take_named(p, found, which, err);
    json_decref(found);
    TRY(st);
    if (all && p->n == 0) {
        fprintf(stderr, "no other node was found: one rank, on this machine\n");
        if (n_strangers > 0)
            fprintf(stderr,
                    "%s has another cluster key or version: lockstep key shows this one's\n",
                    stranger);
    }
    return ST_OK;
}

/* ---- the model on all of them ------------------------------------------------------------ */

static bool hear_progress(void *user, char *line) {
    struct member *m = user;
    json_t *o = json_loads(line, 0, NULL);
    const char *sentence = NULL;
    json_int_t bytes;
    int status = 0;
    if (json_unpack(o, "{s:I}", "bytes", &bytes) == 0)
        atomic_store_explicit(&m->bytes, (uint64_t)bytes, memory_order_relaxed);
    if (json_unpack(o, "{s:s, s?i}", "error", &sentence, "status", &status) == 0)
        m->st = err_set(&m->err, status == 507 ? ST_NO_MEMORY : ST_IO, "%s: %.400s", m->name,
                        sentence);
    else if (json_object_get(o, "path") != NULL)
        m->st = ST_OK;
    json_decref(o);
    return true;
}

static enum status fetch(struct member *m, struct client *c, const json_t *question,
                         struct err *err) {
    const struct client_stream to = {.line = hear_progress, .user = m};
    m->st = err_set(&m->err, ST_IO, "%s: the copy of the model was not completed", m->name);
    TRY(client_lines(c, "/v1/models/fetch", question, &to, err));
    m->copied = m->st == ST_OK;
    if (!m->copied)
        *err = m->err;
    return m->st;
}

/* Nothing but the heads: the node's rank asks for its slices as it loads. */
static enum status link_weights(struct member *m, struct client *c, const json_t *question,
                                struct err *err) {
    json_t *answer;
    TRY(client_json(c, "/v1/models/link", question, &answer, err));
    json_decref(answer);
    m->linked = true;
    return ST_OK;
}

static json_t *ask_about_model(const struct member *m) {
    const struct placing *p = m->placing;
    char from[NET_TEXT_BYTES + 16];
    net_join(from, sizeof from, m->own, model_share_port(p->share));
    return json_pack("{s:o, s:s, s:s}", "model", model_files_json(&p->files), "hint",
                     p->model_path, "from", from);
}

static enum status give_model(struct member *m, struct err *err) {
    const struct placing *p = m->placing;
    bool may_link = model_files_have_heads(&p->files);
    struct client *c;
    json_t *answer = NULL, *question = ask_about_model(m);
    if (question == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a question");
    enum status st = client_open(&c, &p->id, m->address, err);
    if (st == ST_OK) {
        st = client_json(c, "/v1/models/find", question, &answer, err);
        if (st == ST_NOT_FOUND && (p->way == WEIGHTS_STREAM || p->provisional))
            st = link_weights(m, c, question, err);
        else if (st == ST_NOT_FOUND)
            st = fetch(m, c, question, err);
        if (st == ST_NO_MEMORY && p->way == WEIGHTS_AUTO && may_link)
            st = link_weights(m, c, question, err);
        client_close(c);
    }
    json_decref(answer);
    json_decref(question);
    return st;
}

static void *give_main(void *user) {
    struct member *m = user;
    struct err err;
    enum status st = give_model(m, &err);
    m->st = st;
    if (st != ST_OK)
        m->err = err;
    atomic_store_explicit(&m->done, true, memory_order_release);
    return NULL;
}

/* One line while copies are made: the slowest of them. */
static void show_copies(const struct placing *p, bool *shown) {
    uint64_t least = UINT64_MAX;
    const char *who = NULL;
    for (size_t i = 0; i < p->n; i++) {
        uint64_t bytes = atomic_load_explicit(&p->list[i].bytes, memory_order_relaxed);
        if (!atomic_load_explicit(&p->list[i].done, memory_order_acquire) && bytes != 0 &&
            bytes < least) {
            least = bytes;
            who = p->list[i].name;
        }
    }
    if (who == NULL || p->quiet || !cli_has_escapes(STDERR_FILENO))
        return;
    char text[32];
    fprintf(stderr, "\r\033[Kcopying the model to %s: %.0f%% of %s", who,
            100 * (double)least / (double)p->files.bytes, cli_bytes(p->files.bytes, text));
    *shown = true;
}

static bool all_done(const struct placing *p) {
    for (size_t i = 0; i < p->n; i++)
        if (!atomic_load_explicit(&p->list[i].done, memory_order_acquire))
            return false;
    return true;
}

static enum status give_all(struct placing *p, struct err *err) {
    bool shown = false;
    size_t n_started = 0;
    enum status st = ST_OK;
    double begin = clock_s();
    for (; n_started < p->n && st == ST_OK; n_started++) {
        struct member *m = &p->list[n_started];
        m->bytes = 0;
        m->done = false;
        m->linked = false;
        if (thread_start(&m->thread, give_main, m) != 0) {
            st = err_set(err, ST_NO_MEMORY, "no thread to copy a model");
            break;
        }
    }
    while (st == ST_OK && !all_done(p)) {
        poll(NULL, 0, 20);
        show_copies(p, &shown);
    }
    for (size_t i = 0; i < n_started; i++) {
        struct member *m = &p->list[i];
        pthread_join(m->thread, NULL);
        if (st == ST_OK && m->st != ST_OK) {
            st = m->st;
            *err = m->err;
        }
        if (m->copied && !p->quiet)
            fprintf(stderr, "%s%s has a copy of the model now (%.1f s)\n",
                    shown ? "\r\033[K" : "", m->name, clock_s() - begin);
        if (m->linked && !p->provisional && !p->quiet)
            fprintf(stderr, "%s reads its weights from here as it loads\n", m->name);
    }
    return st;
}

/* "own,a:7342,b:7342"; the options borrow it for the rest of the process. */
static char hosts[LOCKSTEP_MAX_RANKS * (NET_TEXT_BYTES + 1)];

static size_t add_host(size_t n, const char *host, int n_ranks) {
    for (int i = 0; i < n_ranks && n < sizeof hosts; i++)
        n += (size_t)snprintf(hosts + n, sizeof hosts - n, "%s%s", n > 0 ? "," : "", host);
    return n;
}

static int count_ranks(const struct placing *p) {
    int n = p->n_own_ranks;
    for (size_t i = 0; i < p->n; i++)
        n += p->list[i].n_ranks;
    return n;
}

/* The devices of the ranks, where the user names those of nodes; borrowed as hosts. With --failover
 * a node may be missing now. */
static char devices[LOCKSTEP_MAX_RANKS * 256];

static enum status name_devices(const struct placing *p, struct lockstep_options *opt,
                                int n_own_ranks, struct err *err) {
    struct device_host list[LOCKSTEP_MAX_RANKS + 1] = {{p->own_name, n_own_ranks}};
    const char *absent;
    size_t absent_len;
    if (!device_list_has_nodes(p->devices))
        return ST_OK;
    for (size_t i = 0; i < p->n; i++)
        list[i + 1] = (struct device_host){p->list[i].name, p->list[i].n_ranks};
    TRY(device_list_check(p->devices, list, p->n + 1, &absent, &absent_len, err));
    if (absent != NULL && !opt->failover)
        return err_set(err, ST_BAD_INPUT, "--device %s: no node called %.*s takes part",
                       p->devices, (int)absent_len, absent);
    if (absent != NULL && !p->quiet)
        fprintf(stderr, "warning: --device: no node called %.*s takes part now\n",
                (int)absent_len, absent);
    TRY(device_list_of_ranks(devices, sizeof devices, p->devices, list, p->n + 1, err));
    opt->devices = devices;
    return ST_OK;
}

enum status nodes_name_devices(struct lockstep_options *opt, bool quiet, struct err *err) {
    struct placing alone = {.quiet = quiet, .devices = opt->devices};
    char stranger[NET_TEXT_BYTES];
    struct identity id;
    size_t n_strangers;
    json_t *found = NULL;
    if (!device_list_has_nodes(opt->devices))
        return ST_OK;
    if (nodes_identity(&id, NULL) == ST_OK) {
        (void)nodes_find(&id, NULL, &found, stranger, &n_strangers, NULL);
        identity_deinit(&id);
    }
    find_own_name(&alone, found);
    json_decref(found);
    return name_devices(&alone, opt, MAX(opt->n_ranks, 1), err);
}

static enum status name_hosts(const struct placing *p, struct lockstep_options *opt,
                              struct err *err) {
    char own[NET_TEXT_BYTES + 8];
    net_join(own, sizeof own, p->list[0].own, 0);
    size_t n = add_host(0, own, p->n_own_ranks);
    for (size_t i = 0; i < p->n; i++) {
        /* The ranks meet at one address of this machine, which all must reach. */
        if (!str_eq(p->list[i].own, p->list[0].own) && !p->quiet)
            fprintf(stderr,
                    "%s sees this machine as %s, %s as %s: they must reach each other, too\n",
                    p->list[0].name, p->list[0].own, p->list[i].name, p->list[i].own);
        n = add_host(n, p->list[i].address, p->list[i].n_ranks);
    }
    if (n >= sizeof hosts || count_ranks(p) > LOCKSTEP_MAX_RANKS)
        return err_set(err, ST_BAD_INPUT, "more than %d ranks on these nodes",
                       LOCKSTEP_MAX_RANKS);
    opt->hosts = hosts;
    opt->by_nodes = true;
    return name_devices(p, opt, p->n_own_ranks, err);
}

static bool any_is_linked(const struct placing *p) {
    for (size_t i = 0; i < p->n; i++)
        if (p->list[i].linked)
            return true;
    return false;
}

/* The result of the measurement: a machine stays if any of its ranks does. This machine is the
 * first. */
static bool stays[LOCKSTEP_MAX_RANKS];

static bool hear_placed(void *user, uint64_t keep, const char *why) {
    const struct placing *p = user;
    int rank = p->n_own_ranks;
    bool all = true;
    for (size_t i = 0; i < p->n; i++) {
        uint64_t ranks = UINT64_MAX >> (64 - p->list[i].n_ranks) << rank;
        stays[i] = (keep & ranks) != 0;
        all &= stays[i];
        rank += p->list[i].n_ranks;
    }
    if (!all && !p->quiet) {
        fprintf(stderr, "placement: %s; leaving out", why);
        for (size_t i = 0, n = 0; i < p->n; i++)
            if (!stays[i])
                fprintf(stderr, "%s %s", n++ > 0 ? "," : "", p->list[i].name);
        fprintf(stderr, " (--nodes with their names insists on them)\n");
    }
    return all && !p->provisional;
}

enum status nodes_place_again(struct lockstep_options *opt, struct err *err) {
    struct placing *p = &placing;
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        if (stays[i])
            p->list[n++] = p->list[i];
        else
            drop_member(&p->list[i]);
    p->n = n;
    opt->placed = NULL;
    opt->hosts = NULL;
    opt->by_nodes = false;
    if (n == 0)
        return name_devices(p, opt, p->n_own_ranks, err);
    if (p->provisional) {
        p->provisional = false;
        TRY(give_all(p, err));
    }
    return name_hosts(p, opt, err);
}

/* By default a machine has as many ranks as NUMA domains. */
static void set_ranks(struct placing *p, const struct lockstep_options *opt) {
    bool one_each =
        opt->n_split != 0 || (opt->parallel != NULL && strchr(opt->parallel, 'x') != NULL);
    p->n_own_ranks = one_each ? 1 : machine_n_domains();
    for (size_t i = 0; i < p->n; i++) {
        json_int_t n = json_integer_value(json_object_get(p->list[i].facts, "numa_domains"));
        p->list[i].n_ranks = one_each ? 1 : (int)MIN(MAX(n, 1), LOCKSTEP_MAX_RANKS);
    }
}

/* Whether a measurement decides which machines compute. Then no machine gets a copy before it.
 */
static bool is_measured(const struct lockstep_options *opt, const char *which) {
    const char *at;
    return is_auto(which, &at) && opt->n_split == 0 &&
           (opt->parallel == NULL || str_eq(opt->parallel, "auto"));
}

static enum status place(struct placing *p, struct lockstep_options *opt, const char *which,
                         struct err *err) {
    TRY(take(p, which, err));
    set_ranks(p, opt);
    p->devices = opt->devices;
    if (p->n == 0)
        return name_devices(p, opt, MAX(opt->n_ranks, 1), err);
    TRY(model_files_read(&p->files, p->model_path, err));
    TRY(model_files_find_heads(&p->files, p->model_path, err));
    TRY(model_share_open(&p->share, &p->id, &p->files, p->model_path, err));
    if (is_measured(opt, which)) {
        opt->placed = hear_placed;
        opt->placed_user = p;
        p->provisional = p->way != WEIGHTS_STREAM && model_files_have_heads(&p->files);
    }
    TRY(give_all(p, err));
    p->provisional = p->provisional && any_is_linked(p);
    if (!p->quiet) {
        fprintf(stderr, "nodes: this machine");
        for (size_t i = 0; i < p->n; i++)
            fprintf(stderr, ", %s (%s)", p->list[i].name, p->list[i].address);
        fprintf(stderr, "\n");
    }
    return name_hosts(p, opt, err);
}
void nodes_end(void) {
    model_share_close(placing.share);
    for (size_t i = 0; placing.list != NULL && i < placing.n; i++)
        drop_member(&placing.list[i]);
    mem_free(placing.list);
    model_files_deinit(&placing.files);
    identity_deinit(&placing.id);
    placing = (struct placing){.quiet = false};
}

enum status nodes_place(struct lockstep_options *opt, const char *which, const char *weights,
                        bool quiet, struct err *err) {
    struct placing *p = &placing;
    nodes_end();
    TRY(file_absolute(p->model_path, sizeof p->model_path, opt->model_path, err));
    TRY(nodes_identity(&p->id, err));
    p->quiet = quiet;
    p->way = weights == NULL || str_eq(weights, "auto") ? WEIGHTS_AUTO
             : str_eq(weights, "copy")                  ? WEIGHTS_COPY
                                                        : WEIGHTS_STREAM;
    p->list = mem_calloc(LOCKSTEP_MAX_RANKS, sizeof *p->list);
    enum status st = p->list != NULL ? place(p, opt, which, err)
                                     : err_set(err, ST_NO_MEMORY, "no memory for nodes");
    if (st != ST_OK || !any_is_linked(p)) {
        model_share_close(p->share);
        p->share = NULL;
    }
    if (st != ST_OK)
        nodes_end();
    return st;
}
