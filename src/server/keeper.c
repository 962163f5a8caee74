/* The keeper's thread goes round a few times a second: it hears its children, asks the other nodes, decides
 * for each deployment whether it is this node's, and does what follows. What it decides from is guarded by the lock, and so is
 * what the handlers answer with; what it does (children, files, the network) it does without. */
#include "server/keeper.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/client.h"
#include "cluster/deployments.h"
#include "cluster/store.h"
#include "fabric/wake.h"
#include "server/front.h"
#include "server/peers.h"
#include "server/reply.h"
#include "server/share.h"
#include "server/tenant.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_MS 200
#define GOSSIP_S 1.0
/* A node that has not been heard of for so long does nothing any more, as far as the others can know. */
#define DEAD_S 10.0
/* One that hangs holds up the round no longer than that. */
#define EXCHANGE_S 2.0
/* After its own start a node first hears who serves what; and, after a power cut, waits a while for those whom it knew
 * before: otherwise the first to be back would serve alone. */
#define SETTLE_S 5.0
#define RETURN_S 30.0
#define KNOWN_S 60.0
#define FIND_S 15.0  /* between looks for a model that was not there */
#define PORT_S 10.0  /* and for a port */
#define FETCH_S 60.0 /* and after a copy that failed */
/* A child that ends is started again after 2, 4, ... 64 seconds; having listened for so long, it starts afresh. */
#define RETRY_LOG2_MAX 6
#define PROVEN_S 60.0
#define PEERS_MAX 128
#define OTHERS_MAX 128
#define ID_BYTES 33

/* Another node, from what it said last. */
struct other {
    char id[ID_BYTES], name[64];
    char host[NET_TEXT_BYTES]; /* where this node reaches it; "": it reached this one */
    char address[NET_TEXT_BYTES];
    double heard_s;
    json_t *runs, *able; /* owned */
};

/* Somebody to ask. The thread's. */
struct peer {
    char key[NET_TEXT_BYTES + 8]; /* what it is known by: the beacon's id, or the seed */
    char address[NET_TEXT_BYTES];
    char digest[DEPLOYMENTS_DIGEST_BYTES]; /* of the deployments that it knows */
    char id[ID_BYTES];                     /* the keeper's; "": it has not answered yet */
    struct client *client;
    int n_tries; /* which of its addresses comes next */
    bool present;
};

/* A deployment as this node sees it. The thread's, but for the list itself and what it publishes. */
struct run {
    struct run *next;
    char name[64];
    json_t *wanted;     /* owned copy; NULL: it is down */
    json_int_t version; /* of `wanted` */
    bool mine, hasty;   /* this node is to serve it; at once, being asked for it here */
    char target[NET_TEXT_BYTES]; /* who listens, "host:port"; "": nobody */
    uint64_t seen_term;
    struct tenant tenant;
    json_int_t running_version;
    uint64_t term; /* 0: not running */
    int failures;
    double retry_s;
    struct model_files files;
    char path[PATH_MAX];         /* of the model; "": not here */
    double find_s;               /* when to look for it again */
    struct share *share;         /* of it, for nodes that lack it */
    struct fetch *fetch;         /* of it from such a one; NULL: none is under way */
    double fetch_s;              /* when to try again */
    char source[NET_TEXT_BYTES]; /* who shares it; "": nobody */
    struct front *front;
    double port_s; /* when to try the port again */
    bool said_port;
};

/* A model on its way here, on a thread of its own. */
struct fetch {
    pthread_t thread;
    atomic_bool unwanted, done; /* release by who sets it, acquire by who looks */
    const struct keeper *keeper;
    const struct run *run; /* whose files and source do not change meanwhile */
    char from[NET_TEXT_BYTES];
    enum status st;
    struct err err;
};

struct keeper {
    const struct identity *id;
    struct discovery *discovery;
    char *seeds, *models, *state, *program, *list_path, *known_path;
    char self[ID_BYTES], name[64];
    double begin_s;
    pthread_t thread;
    struct wake wake;

    /* The thread's. */
    struct peer peers[PEERS_MAX];
    size_t n_peers;
    struct discovered found[DISCOVERY_NODES_MAX];
    struct run *runs;
    json_t *known; /* names of the nodes that were there when this one last ran, or are now */
    double gossip_s, exchange_until_s;
    bool leaving;
    char saved[DEPLOYMENTS_DIGEST_BYTES];
    bool said_save;

    pthread_mutex_t lock; /* guards what follows */
    bool closing;
    struct deployments list;
    json_t *hasty; /* names that this node was asked for */
    struct other others[OTHERS_MAX];
    size_t n_others;
    json_t *self_runs, *self_able; /* what this node says of itself */
};

static bool is_closing(struct keeper *k) {
    pthread_mutex_lock(&k->lock);
    bool closing = k->closing;
    pthread_mutex_unlock(&k->lock);
    return closing;
}

/* ---- what others say -------------------------------------------------------------------------- */

static void other_clear(struct other *o) {
    json_decref(o->runs);
    json_decref(o->able);
    memset(o, 0, sizeof *o);
}

static void other_drop(struct keeper *k, size_t i) {
    other_clear(&k->others[i]);
    k->others[i] = k->others[--k->n_others];
    memset(&k->others[k->n_others], 0, sizeof k->others[0]);
}

static struct other *other_place(struct keeper *k, const char *id) {
    for (size_t i = 0; i < k->n_others; i++)
        if (str_eq(k->others[i].id, id))
            return &k->others[i];
    return k->n_others < OTHERS_MAX ? &k->others[k->n_others++] : NULL;
}

static void expire_others(struct keeper *k, double now) {
    for (size_t i = k->n_others; i-- > 0;)
        if (now - k->others[i].heard_s > DEAD_S) {
            log_warn("%s is not heard of any more", k->others[i].name);
            other_drop(k, i);
        }
}

/* "host:port" or "[v6]:port" without its port. */
static void host_part(const char *address, char out[NET_TEXT_BYTES]) {
    const char *colon = strrchr(address, ':');
    snprintf(out, NET_TEXT_BYTES, "%.*s",
             (int)(colon != NULL ? (size_t)(colon - address) : strlen(address)), address);
}

/* What a node says of itself and knows; address: where this node reached it, or NULL. Under the lock. */
static enum status hear_other(struct keeper *k, const json_t *said, const char *address,
                              struct err *err) {
    const char *id, *name;
    json_t *runs, *able, *list = NULL;
    bool changed;
    int leaving = 0;
    if (json_unpack((json_t *)(uintptr_t)said, "{s:s, s:s, s:o, s:o, s?o, s?b}", "node", &id,
                    "name", &name, "runs", &runs, "able", &able, "deployments", &list,
                    "leaving", &leaving) != 0 ||
        strlen(id) != ID_BYTES - 1 || !deployment_name_is_good(name) || !json_is_object(runs) ||
        !json_is_object(able))
        return err_set(
            err, ST_BAD_INPUT,
            "a node says {\"node\": id, \"name\": .., \"runs\": {..}, \"able\": {..}}");
    if (str_eq(id, k->self))
        return ST_OK;
    struct other *o = other_place(k, id);
    if (o == NULL)
        return err_set(err, ST_NO_MEMORY, "more than %d nodes", OTHERS_MAX);
    if (leaving) {
        other_drop(k, (size_t)(o - k->others));
        return ST_OK;
    }
    snprintf(o->id, sizeof o->id, "%s", id);
    snprintf(o->name, sizeof o->name, "%s", name);
    o->heard_s = clock_s();
    json_decref(o->runs);
    json_decref(o->able);
    o->runs = json_deep_copy(runs);
    o->able = json_deep_copy(able);
    if (address != NULL) {
        snprintf(o->address, sizeof o->address, "%s", address);
        host_part(address, o->host);
    }
    return list != NULL ? deployments_merge(&k->list, list, &changed, err) : ST_OK;
}

/* What this node says to one whose deployments have that digest. Under the lock; NULL: no memory. */
static json_t *say(struct keeper *k, const char *its_digest) {
    char digest[DEPLOYMENTS_DIGEST_BYTES];
    deployments_digest(&k->list, digest);
    json_t *o = json_pack("{s:s, s:s, s:s, s:o, s:o}", "node", k->self, "name", k->name,
                          "digest", digest, "runs", json_deep_copy(k->self_runs), "able",
                          json_deep_copy(k->self_able));
    if (o != NULL && !str_eq(digest, its_digest)) {
        json_t *list = deployments_list(&k->list);
        json_object_set_new(o, "deployments", json_deep_copy(list));
        json_decref(list);
    }
    if (o != NULL && k->leaving)
        json_object_set_new(o, "leaving", json_true());
    return o;
}

/* ---- asking them ------------------------------------------------------------------------------ */

static bool in_time(void *user) {
    struct keeper *k = user;
    return clock_s() < k->exchange_until_s && (k->leaving || !is_closing(k));
}

static void exchange(struct keeper *k, struct peer *p) {
    struct err err;
    json_t *question, *answer = NULL;
    pthread_mutex_lock(&k->lock);
    question = say(k, p->digest);
    pthread_mutex_unlock(&k->lock);
    if (question == NULL)
        return;
    enum status st = ST_OK;
    if (p->client == NULL)
        st = client_open(&p->client, k->id, p->address, &err);
    if (st == ST_OK) {
        k->exchange_until_s = clock_s() + EXCHANGE_S;
        client_ask_whether(p->client, in_time, k);
        st = client_json(p->client, "/v1/deployments/sync", question, &answer, &err);
    }
    json_decref(question);
    if (st == ST_OK) {
        pthread_mutex_lock(&k->lock);
        st = hear_other(k, answer, p->address, &err);
        pthread_mutex_unlock(&k->lock);
    }
    const char *digest = json_string_value(json_object_get(answer, "digest"));
    const char *id = json_string_value(json_object_get(answer, "node"));
    if (st == ST_OK && digest != NULL && id != NULL) {
        snprintf(p->digest, sizeof p->digest, "%s", digest);
        snprintf(p->id, sizeof p->id, "%s", id);
    } else { /* another of its addresses the next time */
        log_debug("%s: %s", p->address, err.text);
        client_close(p->client);
        p->client = NULL;
        p->digest[0] = '\0';
        p->n_tries++;
    }
    json_decref(answer);
}

/* Somebody to ask, known as `key`; addresses: where. */
static void peer_seen(struct keeper *k, const char *key, char (*addresses)[NET_TEXT_BYTES],
                      size_t n_addresses) {
    struct peer *p = k->peers, *end = p + k->n_peers;
    while (p < end && !str_eq(p->key, key))
        p++;
    if (n_addresses == 0 || p == k->peers + PEERS_MAX)
        return;
    if (p == end) {
        memset(p, 0, sizeof *p);
        snprintf(p->key, sizeof p->key, "%s", key);
        k->n_peers++;
    }
    p->present = true;
    if (p->client == NULL)
        snprintf(p->address, sizeof p->address, "%s",
                 addresses[(size_t)p->n_tries % n_addresses]);
}

static void find_discovered(struct keeper *k) {
    char key[2 * BEACON_ID_BYTES + 1], addresses[DISCOVERY_ADDRESSES_MAX][NET_TEXT_BYTES];
    size_t n =
        k->discovery != NULL ? discovery_nodes(k->discovery, k->found, DISCOVERY_NODES_MAX) : 0;
    for (size_t i = 0; i < n; i++) {
        sodium_bin2hex(key, sizeof key, k->found[i].beacon.node, BEACON_ID_BYTES);
        peer_seen(k, key, addresses, discovered_addresses(&k->found[i], addresses));
    }
}

static void find_seeds(struct keeper *k) {
    char list[4096], *rest = list, *seed, address[1][NET_TEXT_BYTES], key[NET_TEXT_BYTES + 8];
    snprintf(list, sizeof list, "%s", k->seeds != NULL ? k->seeds : "");
    while ((seed = strsep(&rest, ",")) != NULL) {
        if (*seed == '\0')
            continue;
        if (strchr(seed, ':') != NULL)
            snprintf(address[0], sizeof address[0], "%s", seed);
        else
            snprintf(address[0], sizeof address[0], "%s:%d", seed, NODE_PORT);
        snprintf(key, sizeof key, "seed %s", seed);
        peer_seen(k, key, address, 1);
    }
}

/* A seed may be this node, or one that was heard, too. */
static bool is_asked_already(const struct keeper *k, size_t i) {
    const struct peer *p = &k->peers[i];
    if (*p->id == '\0')
        return false;
    for (size_t j = 0; j < i; j++)
        if (str_eq(k->peers[j].id, p->id))
            return true;
    return str_eq(p->id, k->self);
}

static void gossip(struct keeper *k) {
    for (size_t i = 0; i < k->n_peers; i++)
        k->peers[i].present = false;
    find_discovered(k);
    find_seeds(k);
    for (size_t i = k->n_peers; i-- > 0;)
        if (!k->peers[i].present) {
            client_close(k->peers[i].client);
            memmove(&k->peers[i], &k->peers[i + 1], (--k->n_peers - i) * sizeof k->peers[0]);
        }
    for (size_t i = 0; i < k->n_peers && !is_closing(k); i++)
        if (!is_asked_already(k, i))
            exchange(k, &k->peers[i]);
}

/* ---- who does what ---------------------------------------------------------------------------- */

static struct run *run_place(struct keeper *k, const char *name) {
    struct run **at = &k->runs;
    while (*at != NULL && !str_eq((*at)->name, name))
        at = &(*at)->next;
    if (*at == NULL && (*at = mem_calloc(1, sizeof **at)) != NULL)
        snprintf((*at)->name, sizeof(*at)->name, "%s", name);
    return *at;
}

static void forget_model(struct run *r) {
    share_close(r->share);
    r->share = NULL;
    model_files_deinit(&r->files);
    r->files = (struct model_files){.name = NULL};
    r->path[0] = '\0';
}

/* Takes over what the list says. */
static void follow_list(struct keeper *k) {
    const char *name;
    json_t *one;
    json_object_foreach(k->list.by_name, name, one) {
        struct run *r = run_place(k, name);
        json_int_t version = json_integer_value(json_object_get(one, "version"));
        bool up = deployment_is_up(one);
        if (r == NULL ||
            (r->version == version && (up ? json_equal(r->wanted, one) : r->wanted == NULL)))
            continue;
        if (r->fetch != NULL) { /* once it has ended */
            atomic_store_explicit(&r->fetch->unwanted, true, memory_order_release);
            continue;
        }
        forget_model(r);
        json_decref(r->wanted);
        r->wanted = up ? json_deep_copy(one) : NULL;
        r->version = version;
        r->hasty = json_object_get(k->hasty, name) != NULL;
        r->failures = 0;
        r->retry_s = r->find_s = r->port_s = r->fetch_s = 0;
        json_object_del(k->hasty, name);
    }
}

/* What another node says of a deployment. */
static struct deployment_candidate candidate(const struct other *o, const char *name) {
    json_t *run = json_object_get(o->runs, name);
    json_int_t term = json_integer_value(json_object_get(run, "term"));
    return (struct deployment_candidate){
        .node = o->id,
        .name = o->name,
        .term = term > 0 ? (uint64_t)term : 0,
        .failures = (int)json_integer_value(json_object_get(run, "failures")),
        .able = json_object_get(o->able, name) != NULL};
}

/* Where another node's server listens; 0: it has none, or none that can be reached. */
static int port_of(const struct other *o, const char *name) {
    json_int_t port =
        json_integer_value(json_object_get(json_object_get(o->runs, name), "port"));
    return o->host[0] != '\0' && port > 0 && port <= UINT16_MAX ? (int)port : 0;
}

static bool is_able(const struct run *r, double now) {
    return r->wanted != NULL && r->path[0] != '\0' && now >= r->retry_s;
}

/* Whose it is; and where it is served, if elsewhere. */
static void judge(struct keeper *k, struct run *r, double now) {
    struct deployment_candidate list[OTHERS_MAX + 1];
    size_t n = 0;
    uint64_t best = 0;
    r->target[0] = r->source[0] = '\0';
    if (r->tenant.state == TENANT_LISTENING) {
        best = r->term;
        snprintf(r->target, sizeof r->target, "127.0.0.1:%d", r->tenant.port);
    }
    for (; n < k->n_others; n++) {
        const struct other *o = &k->others[n];
        list[n] = candidate(o, r->name);
        json_int_t shares = json_integer_value(json_object_get(o->able, r->name));
        if (shares > 0 && o->host[0] != '\0')
            snprintf(r->source, sizeof r->source, "%s:%d", o->host, (int)shares);
        r->seen_term = MAX(r->seen_term, list[n].term);
        int port = port_of(o, r->name);
        if (port != 0 && list[n].term > best) {
            best = list[n].term;
            snprintf(r->target, sizeof r->target, "%s:%d", o->host, port);
        }
    }
    list[n] = (struct deployment_candidate){k->self, k->name, r->term, r->failures,
                                            is_able(r, now) && r->tenant.state == TENANT_IDLE};
    const char *home = json_string_value(json_object_get(r->wanted, "home"));
    r->mine = r->wanted != NULL && deployment_owner(r->name, home, list, n + 1) == n;
}

static bool are_all_back(const struct keeper *k) {
    size_t i;
    json_t *name;
    json_array_foreach(k->known, i, name) {
        bool here = !json_is_string(name);
        for (size_t j = 0; j < k->n_others && !here; j++)
            here = str_eq(json_string_value(name), k->others[j].name);
        if (!here)
            return false;
    }
    return true;
}

static bool is_settled(const struct keeper *k, double now) {
    double age = now - k->begin_s;
    return age >= RETURN_S || (age >= SETTLE_S && are_all_back(k));
}

/* Reads what others say, and decides. True: this node may begin to serve what is its own. */
static bool judge_all(struct keeper *k, double now) {
    pthread_mutex_lock(&k->lock);
    expire_others(k, now);
    follow_list(k);
    bool settled = is_settled(k, now);
    for (struct run *r = k->runs; r != NULL; r = r->next)
        judge(k, r, now);
    pthread_mutex_unlock(&k->lock);
    return settled;
}

/* ---- doing it --------------------------------------------------------------------------------- */

static void find_model(struct keeper *k, struct run *r, double now) {
    struct err err;
    if (r->wanted == NULL || r->path[0] != '\0' || r->fetch != NULL || now < r->find_s)
        return;
    r->find_s = now + FIND_S;
    if (r->files.name == NULL &&
        model_files_from_json(&r->files, json_object_get(r->wanted, "model"), &err) != ST_OK)
        return;
    if (!store_find(k->models, &r->files, json_string_value(json_object_get(r->wanted, "hint")),
                    r->path, sizeof r->path))
        r->path[0] = '\0';
    else if (share_open(&r->share, k->id, &r->files, r->path, &err) != ST_OK)
        log_warn("%s: this node cannot give its model to others: %s", r->name, err.text);
}

static bool is_fetch_wanted(void *user, uint64_t bytes) {
    struct fetch *f = user;
    (void)bytes;
    return !atomic_load_explicit(&f->unwanted, memory_order_acquire);
}

static void *fetch_main(void *user) {
    struct fetch *f = user;
    const struct store_progress progress = {is_fetch_wanted, f};
    char path[PATH_MAX];
    f->st = store_check_room(f->keeper->models, &f->run->files, &f->err);
    if (f->st == ST_OK)
        f->st = store_fetch(f->keeper->models, f->keeper->id, f->from, &f->run->files,
                            &progress, path, sizeof path, &f->err);
    atomic_store_explicit(&f->done, true, memory_order_release);
    return NULL;
}

static void end_fetching(struct run *r, double now) {
    struct fetch *f = r->fetch;
    pthread_join(f->thread, NULL);
    if (f->st == ST_OK)
        log_info("%s: its model is here now, too", r->name);
    else if (f->st != ST_CANCELLED)
        log_warn("%s: its model does not come here, so this node cannot stand in: %s", r->name,
                 f->err.text);
    r->fetch = NULL;
    r->find_s = now;
    r->fetch_s = now + FETCH_S;
    mem_free(f);
}

/* A node that lacks the model could not go on when the one that serves is gone: it gets a copy, once that listens and has
 * time. */
static void fetch_model(struct keeper *k, struct run *r, double now) {
    if (r->fetch != NULL) {
        if (atomic_load_explicit(&r->fetch->done, memory_order_acquire))
            end_fetching(r, now);
        return;
    }
    if (r->wanted == NULL || r->path[0] != '\0' || now < r->fetch_s || *r->target == '\0' ||
        *r->source == '\0' || !json_is_true(json_object_get(r->wanted, "copies")))
        return;
    struct fetch *f = mem_calloc(1, sizeof *f);
    r->fetch_s = now + FETCH_S;
    if (f == NULL)
        return;
    f->keeper = k;
    f->run = r;
    memcpy(f->from, r->source, sizeof f->from);
    if (thread_start(&f->thread, fetch_main, f) != 0) {
        mem_free(f);
        return;
    }
    r->fetch = f;
    log_info("%s: its model comes here from %s", r->name, f->from);
}

/* --nodes for the child: of those that the user named, or of all, the living ones; false: none but this machine. */
static bool nodes_for(struct keeper *k, const struct run *r, char *out, size_t size) {
    const char *wish = json_string_value(json_object_get(r->wanted, "nodes"));
    bool all = str_eq(wish, "auto");
    size_t n = 0;
    if (all && k->discovery != NULL) {
        snprintf(out, size, "auto");
        return true;
    }
    *out = '\0';
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++) {
        const struct other *o = &k->others[i];
        char list[4096], *rest = list, *word;
        bool named = all;
        snprintf(list, sizeof list, "%s", wish);
        while (!named && (word = strsep(&rest, ",")) != NULL)
            named = str_eq(word, o->name) || str_eq(word, o->address) || str_eq(word, o->host);
        if (named && o->address[0] != '\0' && n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? "," : "", o->address);
    }
    pthread_mutex_unlock(&k->lock);
    return n > 0 && n < size;
}

static void failed(struct run *r, double now) {
    r->failures++;
    r->retry_s = now + ldexp(1, MIN(r->failures, RETRY_LOG2_MAX));
    log_error("%s: %s; once more in %.0f s, here or elsewhere", r->name, r->tenant.last,
              r->retry_s - now);
}

static void begin_serving(struct keeper *k, struct run *r, double now) {
    char nodes[4096];
    struct err err;
    const struct tenant_place place = {.program = k->program,
                                       .state = k->state,
                                       .path = r->path,
                                       .nodes =
                                           nodes_for(k, r, nodes, sizeof nodes) ? nodes : NULL};
    r->hasty = false;
    if (tenant_start(&r->tenant, r->wanted, &place, &err) != ST_OK) {
        snprintf(r->tenant.last, sizeof r->tenant.last, "%.399s", err.text);
        failed(r, now);
        return;
    }
    r->term = ++r->seen_term;
    r->running_version = r->version;
    log_info("%s: this node serves it", r->name);
}

static void go_on_serving(struct run *r, double now) {
    bool stopping = r->tenant.state == TENANT_STOPPING;
    if (r->tenant.state == TENANT_LISTENING && now - r->tenant.begin_s >= PROVEN_S)
        r->failures = 0;
    if (!stopping && (!r->mine || r->running_version != r->version)) {
        log_info("%s: %s", r->name,
                 r->wanted == NULL ? "it is taken down" : "another node serves it");
        tenant_stop(&r->tenant);
    }
    if (!tenant_look(&r->tenant, r->name))
        return;
    r->term = 0;
    forget_model(r); /* it may be gone, and that be the cause */
    r->find_s = now;
    if (!stopping)
        failed(r, now);
}

static void keep_front(struct run *r, double now) {
    struct err err;
    const json_t *files = json_object_get(r->wanted, "files");
    const struct front_config cfg = {
        .port = (int)json_integer_value(json_object_get(r->wanted, "port")),
        .tls_cert_pem = json_string_value(json_object_get(files, "tls-cert")),
        .tls_key_pem = json_string_value(json_object_get(files, "tls-key"))};
    if (r->front == NULL && now >= r->port_s) {
        r->port_s = now + PORT_S;
        if (front_open(&r->front, &cfg, &err) != ST_OK) {
            if (!r->said_port)
                log_warn("%s: its port is not to be had on this machine: %s", r->name,
                         err.text);
            r->said_port = true;
        }
    }
    if (r->front != NULL)
        front_to(r->front, *r->target != '\0' ? r->target : NULL);
}

static void do_all(struct keeper *k, bool settled, double now) {
    for (struct run *r = k->runs; r != NULL; r = r->next) {
        if (r->wanted != NULL) {
            keep_front(r, now);
        } else {
            front_close(r->front);
            r->front = NULL;
            r->said_port = false;
        }
        if (r->tenant.state != TENANT_IDLE) {
            go_on_serving(r, now);
            continue;
        }
        find_model(k, r, now);
        fetch_model(k, r, now);
        if (r->wanted != NULL && r->mine && (settled || r->hasty))
            begin_serving(k, r, now);
    }
}

static const char *state_of(const struct run *r) {
    switch (r->tenant.state) {
    case TENANT_STARTING:
        return "starting";
    case TENANT_LISTENING:
        return "listening";
    case TENANT_STOPPING:
        return "stopping";
    default:
        return r->failures > 0 ? "failed" : "waiting";
    }
}

/* What the others, and users, hear of this node. One that stops does not run it any more. */
static void publish(struct keeper *k, double now) {
    json_t *runs = json_object(), *able = json_object();
    for (struct run *r = k->runs; r != NULL; r = r->next) {
        bool idle = r->tenant.state == TENANT_IDLE;
        if (r->wanted == NULL && idle)
            continue;
        bool runs_it =
            r->tenant.state == TENANT_STARTING || r->tenant.state == TENANT_LISTENING;
        json_object_set_new(
            runs, r->name,
            json_pack("{s:I, s:s, s:I, s:i, s:i, s:s}", "version",
                      idle ? r->version : r->running_version, "state", state_of(r), "term",
                      (json_int_t)(runs_it ? r->term : 0), "failures", r->failures, "port",
                      runs_it ? r->tenant.port : 0, "sentence", r->tenant.last));
        /* Where others may fetch the model from; 0: they may not, but this node may serve. */
        if (is_able(r, now))
            json_object_set_new(able, r->name,
                                json_integer(r->share != NULL ? share_port(r->share) : 0));
    }
    pthread_mutex_lock(&k->lock);
    json_decref(k->self_runs);
    json_decref(k->self_able);
    k->self_runs = runs;
    k->self_able = able;
    pthread_mutex_unlock(&k->lock);
}

/* ---- what is kept ----------------------------------------------------------------------------- */

static void save_list(struct keeper *k) {
    char digest[DEPLOYMENTS_DIGEST_BYTES];
    struct deployments copy = {.by_name = NULL};
    struct err err;
    pthread_mutex_lock(&k->lock);
    deployments_digest(&k->list, digest);
    if (!str_eq(digest, k->saved))
        copy.by_name = json_deep_copy(k->list.by_name);
    pthread_mutex_unlock(&k->lock);
    if (copy.by_name == NULL)
        return;
    enum status st = deployments_write(&copy, k->list_path, &err);
    if (st == ST_OK)
        memcpy(k->saved, digest, sizeof k->saved);
    else if (!k->said_save)
        log_error("deployments are not kept across a start of this node: %s", err.text);
    k->said_save = st != ST_OK;
    deployments_deinit(&copy);
}

/* Who is there, for the next start. Not at once: after a start they are not all back. */
static void save_known(struct keeper *k, double now) {
    struct file_new file;
    struct err err;
    if (now - k->begin_s < KNOWN_S)
        return;
    json_t *names = json_array();
    pthread_mutex_lock(&k->lock);
    bool has_any = json_object_size(k->list.by_name) > 0;
    for (size_t i = 0; i < k->n_others; i++)
        json_array_append_new(names, json_string(k->others[i].name));
    pthread_mutex_unlock(&k->lock);
    if (has_any && !json_equal(names, k->known) &&
        file_new_open(&file, k->known_path, &err) == ST_OK) {
        if (json_dumpf(names, file.f, JSON_COMPACT) == 0)
            file_new_finish(&file, true, &err);
        file_new_drop(&file);
        json_decref(k->known);
        k->known = json_incref(names);
    }
    json_decref(names);
}

/* ---- the thread ------------------------------------------------------------------------------- */

static void *keeper_main(void *user) {
    struct keeper *k = user;
    struct pollfd fd = {.fd = k->wake.fds[0], .events = POLLIN};
    while (!is_closing(k)) {
        double now = clock_s();
        if (now >= k->gossip_s) {
            k->gossip_s = now + GOSSIP_S;
            gossip(k);
            now = clock_s();
        }
        do_all(k, judge_all(k, now), now);
        publish(k, now);
        save_list(k);
        save_known(k, now);
        poll(&fd, 1, LOOK_MS);
        wake_drain(&k->wake);
    }
    return NULL;
}

/* ---- requests --------------------------------------------------------------------------------- */

/* Who serves it, or tries to. */
static void describe(const json_t *one, const char *node, const json_t *runs, json_int_t *best,
                     json_t *out) {
    const char *name = json_string_value(json_object_get(one, "name")), *state, *sentence;
    json_int_t term, version;
    int failures;
    if (json_unpack(json_object_get(runs, name), "{s:I, s:s, s:I, s:i, s:s}", "version",
                    &version, "state", &state, "term", &term, "failures", &failures, "sentence",
                    &sentence) != 0 ||
        version != json_integer_value(json_object_get(one, "version")))
        return;
    /* Runs first, the latest of them; else who failed. */
    json_int_t rank = term > 0 ? term + 1 : failures > 0 ? 1 : 0;
    if (rank <= *best)
        return;
    *best = rank;
    json_object_set_new(out, "state", json_string(state));
    json_object_set_new(out, "node", json_string(node));
    json_object_set_new(out, "sentence", json_string(sentence));
}

static bool is_model_somewhere(const struct keeper *k, const char *name) {
    bool is = json_object_get(k->self_able, name) != NULL;
    for (size_t i = 0; i < k->n_others && !is; i++)
        is = json_object_get(k->others[i].able, name) != NULL;
    return is;
}

json_t *keeper_deployments(struct keeper *k) {
    const char *name;
    json_t *one, *list = json_array();
    pthread_mutex_lock(&k->lock);
    json_object_foreach(k->list.by_name, name, one) {
        json_int_t best = 0;
        if (!deployment_is_up(one))
            continue;
        json_t *o = json_pack(
            "{s:s, s:O, s:O, s:O, s:s, s:n, s:s}", "name", name, "model",
            json_object_get(json_object_get(one, "model"), "name"), "port",
            json_object_get(one, "port"), "tls", json_object_get(one, "tls"), "state",
            "waiting", "node", "sentence",
            is_model_somewhere(k, name) ? "" : "its model is on no node that is there");
        describe(one, k->name, k->self_runs, &best, o);
        for (size_t i = 0; i < k->n_others; i++)
            describe(one, k->others[i].name, k->others[i].runs, &best, o);
        json_array_append_new(list, o);
    }
    pthread_mutex_unlock(&k->lock);
    return list;
}

static void handle_list(struct keeper *k, struct http_request *r, const json_t *body) {
    (void)body;
    reply_json(r, 200, json_pack("{s:o}", "deployments", keeper_deployments(k)));
}

static void answer(struct keeper *k, struct http_request *r, enum status st,
                   const char *sentence) {
    if (st == ST_OK)
        handle_list(k, r, NULL);
    else
        peers_refuse(r, http_status_of(st), sentence);
    wake_ring(&k->wake);
}

static void handle_put(struct keeper *k, struct http_request *r, const json_t *body) {
    struct err err;
    json_t *one = json_copy((json_t *)(uintptr_t)body);
    json_object_set_new(one, "home", json_string(k->name));
    pthread_mutex_lock(&k->lock);
    enum status st = deployments_put(&k->list, one, &err);
    if (st == ST_OK)
        json_object_set_new(k->hasty, json_string_value(json_object_get(one, "name")),
                            json_true());
    pthread_mutex_unlock(&k->lock);
    json_decref(one);
    answer(k, r, st, err.text);
}

static void handle_remove(struct keeper *k, struct http_request *r, const json_t *body) {
    struct err err;
    const char *name = json_string_value(json_object_get(body, "name"));
    pthread_mutex_lock(&k->lock);
    enum status st = name != NULL ? deployments_remove(&k->list, name, &err)
                                  : err_set(&err, ST_BAD_INPUT, "the request names none");
    pthread_mutex_unlock(&k->lock);
    answer(k, r, st, err.text);
}

static void handle_sync(struct keeper *k, struct http_request *r, const json_t *body) {
    struct err err;
    const char *digest = json_string_value(json_object_get(body, "digest"));
    pthread_mutex_lock(&k->lock);
    enum status st = hear_other(k, body, NULL, &err);
    json_t *said = st == ST_OK ? say(k, digest != NULL ? digest : "") : NULL;
    pthread_mutex_unlock(&k->lock);
    if (st == ST_OK)
        reply_json(r, 200, said);
    else
        peers_refuse(r, http_status_of(st), err.text);
}

static const struct {
    const char *method, *path;
    void (*handle)(struct keeper *k, struct http_request *r, const json_t *body);
} routes[] = {{"GET", "/v1/deployments", handle_list},
              {"POST", "/v1/deployments", handle_put},
              {"POST", "/v1/deployments/remove", handle_remove},
              {"POST", "/v1/deployments/sync", handle_sync}};

static void handle_with_body(struct keeper *k, struct http_request *r, size_t route) {
    json_error_t why;
    size_t n;
    const char *text = http_body(r, &n);
    json_t *body = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(body))
        routes[route].handle(k, r, body);
    else
        peers_refuse(r, 400, body == NULL ? why.text : "the request is no JSON object");
    json_decref(body);
}

bool keeper_handle(struct keeper *k, struct http_request *r) {
    bool known = false;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!str_eq(http_path(r), routes[i].path))
            continue;
        known = true;
        if (!str_eq(http_method(r), routes[i].method))
            continue;
        if (str_eq(routes[i].method, "GET"))
            routes[i].handle(k, r, NULL);
        else
            handle_with_body(k, r, i);
        return true;
    }
    if (known)
        peers_refuse(r, 405, "this path does not know that method");
    return known;
}

/* ---- opening and closing ---------------------------------------------------------------------- */

static bool copy_texts(struct keeper *k, const struct keeper_config *cfg) {
    static const char *const names[] = {"deployments.json", "known.json"};
    char **const paths[] = {&k->list_path, &k->known_path};
    for (int i = 0; i < 2; i++) {
        size_t size = strlen(cfg->state) + strlen(names[i]) + 2;
        if ((*paths[i] = mem_alloc(size)) == NULL)
            return false;
        snprintf(*paths[i], size, "%s/%s", cfg->state, names[i]);
    }
    k->models = mem_strdup(cfg->models);
    k->state = mem_strdup(cfg->state);
    k->seeds = cfg->seeds != NULL ? mem_strdup(cfg->seeds) : NULL;
    k->program = cfg->program != NULL ? mem_strdup(cfg->program) : NULL;
    return k->models != NULL && k->state != NULL && (cfg->seeds == NULL || k->seeds != NULL) &&
           (cfg->program == NULL || k->program != NULL);
}

static void keeper_free(struct keeper *k) {
    while (k->runs != NULL) {
        struct run *r = k->runs;
        k->runs = r->next;
        front_close(r->front);
        forget_model(r);
        json_decref(r->wanted);
        mem_free(r);
    }
    for (size_t i = 0; i < k->n_peers; i++)
        client_close(k->peers[i].client);
    while (k->n_others > 0)
        other_drop(k, 0);
    deployments_deinit(&k->list);
    json_decref(k->hasty);
    json_decref(k->known);
    json_decref(k->self_runs);
    json_decref(k->self_able);
    wake_close(&k->wake);
    pthread_mutex_destroy(&k->lock);
    mem_free(k->seeds);
    mem_free(k->models);
    mem_free(k->state);
    mem_free(k->program);
    mem_free(k->list_path);
    mem_free(k->known_path);
    mem_free(k);
}

static enum status load(struct keeper *k, struct err *err) {
    char *text;
    enum status st = deployments_read(&k->list, k->list_path, err);
    if (st != ST_OK && st != ST_NOT_FOUND)
        return st;
    deployments_digest(&k->list, k->saved);
    if (file_read_text(&text, NULL, k->known_path, (size_t)1 << 20, err) == ST_OK) {
        k->known = json_loads(text, 0, NULL); /* a damaged one is none */
        mem_free(text);
    }
    return ST_OK;
}

enum status keeper_open(struct keeper **out, const struct keeper_config *cfg, struct err *err) {
    struct keeper *k = mem_calloc(1, sizeof *k);
    uint8_t id[(ID_BYTES - 1) / 2];
    if (k == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a cluster's deployments");
    k->id = cfg->id;
    k->discovery = cfg->discovery;
    k->wake = (struct wake)WAKE_CLOSED;
    k->begin_s = clock_s();
    randombytes_buf(id, sizeof id);
    sodium_bin2hex(k->self, sizeof k->self, id, sizeof id);
    snprintf(k->name, sizeof k->name, "%s", cfg->name);
    pthread_mutex_init(&k->lock, NULL);
    k->hasty = json_object();
    k->self_runs = json_object();
    k->self_able = json_object();
    enum status st = deployments_init(&k->list, err);
    if (st == ST_OK && (k->hasty == NULL || k->self_runs == NULL || k->self_able == NULL ||
                        !copy_texts(k, cfg)))
        st = err_set(err, ST_NO_MEMORY, "no memory for a cluster's deployments");
    if (st == ST_OK)
        st = load(k, err);
    if (st == ST_OK)
        st = wake_open(&k->wake, err);
    if (st == ST_OK && thread_start(&k->thread, keeper_main, k) != 0)
        st = err_set(err, ST_NO_MEMORY, "no thread for a cluster's deployments");
    if (st != ST_OK) {
        keeper_free(k);
        return st;
    }
    *out = k;
    return ST_OK;
}

/* Children first, all at once. Then the others are told, who need not wait until this node is missed. */
static void stop_all(struct keeper *k) {
    bool any = true;
    for (struct run *r = k->runs; r != NULL; r = r->next) {
        tenant_stop(&r->tenant);
        if (r->fetch != NULL)
            atomic_store_explicit(&r->fetch->unwanted, true, memory_order_release);
    }
    for (struct run *r = k->runs; r != NULL; r = r->next)
        if (r->fetch != NULL)
            end_fetching(r, clock_s());
    for (double end = clock_s() + TENANT_FINISH_S + 5; any && clock_s() < end;) {
        any = false;
        for (struct run *r = k->runs; r != NULL; r = r->next) {
            tenant_look(&r->tenant, r->name);
            any = any || r->tenant.state != TENANT_IDLE;
        }
        if (any)
            poll(NULL, 0, 20);
    }
}

static void say_goodbye(struct keeper *k) {
    k->leaving = true;
    for (size_t i = 0; i < k->n_peers; i++)
        if (k->peers[i].client != NULL && !is_asked_already(k, i))
            exchange(k, &k->peers[i]);
}

void keeper_close(struct keeper *k) {
    if (k == NULL)
        return;
    pthread_mutex_lock(&k->lock);
    k->closing = true;
    pthread_mutex_unlock(&k->lock);
    wake_ring(&k->wake);
    pthread_join(k->thread, NULL);
    stop_all(k);
    say_goodbye(k);
    keeper_free(k);
}
