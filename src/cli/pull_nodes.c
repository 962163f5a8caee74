/* pull_nodes.c: Asks nodes to download from this machine, a thread for each, and hears them. */
#include "cli/pull_nodes.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "base/words.h"
#include "cli/nodes.h"
#include "cluster/client.h"
#include "node/hub_relay.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct pulling_node {
    struct pull_nodes *all;
    char name[256], address[NET_TEXT_BYTES];
    pthread_t thread;
    bool has_thread;
    _Atomic uint64_t bytes;
    atomic_bool ended;
    char *path; /* NULL: it failed */
    struct err err;
};

struct pull_nodes {
    struct identity id;
    struct hub_relay *relay;
    const struct hub_name *name;
    const char *revision;
    atomic_bool stop;
    struct pulling_node *list;
    int n;
};

/* ---- one node ------------------------------------------------------------------------------ */

static bool hear(void *user, char *line) {
    struct pulling_node *n = user;
    json_t *o = json_loads(line, 0, NULL);
    const char *path = json_string_value(json_object_get(o, "path"));
    const char *sentence = json_string_value(json_object_get(o, "error"));
    const json_t *bytes = json_object_get(o, "bytes");
    if (json_is_integer(bytes))
        n->bytes = (uint64_t)json_integer_value(bytes);
    if (path != NULL) {
        mem_free(n->path);
        n->path = mem_strdup(path);
    } else if (sentence != NULL) {
        err_set(&n->err, ST_IO, "%s", sentence);
    }
    json_decref(o);
    return true;
}

static bool is_wanted(void *user) {
    const struct pulling_node *n = user;
    return !n->all->stop;
}

static enum status ask(struct pulling_node *n, struct err *err) {
    const struct client_stream to = {hear, n};
    const struct pull_nodes *all = n->all;
    struct client *c;
    char name[HUB_REPO_BYTES + HUB_FILE_BYTES + 1];
    snprintf(name, sizeof name, "%s%s%s", all->name->repo, *all->name->want ? ":" : "",
             all->name->want);
    TRY(client_open(&c, &all->id, n->address, err));
    client_ask_whether(c, is_wanted, n);
    json_t *body = json_pack("{s:s, s:s, s:i}", "name", name, "revision", all->revision, "port",
                             hub_relay_port(all->relay));
    enum status st = client_lines(c, "/v1/models/pull", body, &to, err);
    json_decref(body);
    client_close(c);
    return st;
}

static void *pull_on_node(void *user) {
    struct pulling_node *n = user;
    struct err err;
    err_set(&n->err, ST_IO, "it ended without a word");
    if (ask(n, &err) != ST_OK)
        n->err = err;
    n->ended = true;
    return NULL;
}

/* ---- which nodes ---------------------------------------------------------------------------- */

static enum status check_names(const char *which, const json_t *answers, struct err *err) {
    size_t n;
    for (const char *at; (at = words_next(&which, &n)) != NULL;) {
        size_t i;
        const json_t *o;
        bool found = n == 0;
        json_array_foreach(answers, i, o) {
            found |= words_equal(at, n, json_text(o, "name"));
        }
        if (!found)
            return err_set(err, ST_NOT_FOUND, "no node is called %.*s (lockstep nodes)", (int)n,
                           at);
    }
    return ST_OK;
}

static enum status add(struct pull_nodes *p, const json_t *o, struct err *err) {
    struct pulling_node *n = &p->list[p->n];
    const char *why = json_string_value(json_object_get(o, "error"));
    if (why != NULL)
        return err_set(err, ST_IO, "%s: %s", json_text(o, "name"), why);
    snprintf(n->name, sizeof n->name, "%s", json_text(o, "name"));
    snprintf(n->address, sizeof n->address, "%s", json_text(o, "address"));
    n->all = p;
    p->n++;
    return ST_OK;
}

static enum status choose(struct pull_nodes *p, const char *which, const json_t *answers,
                          struct err *err) {
    size_t i;
    const json_t *o;
    bool all = str_eq(which, "all");
    if (!all)
        TRY(check_names(which, answers, err));
    p->list = mem_calloc(json_array_size(answers) + 1, sizeof *p->list);
    if (p->list == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a list of nodes");
    json_array_foreach(answers, i, o) {
        bool wanted = all || str_list_has(which, json_text(o, "name"));
        if (wanted && !nodes_is_this_machine(json_text(o, "machine")))
            TRY(add(p, o, err));
    }
    return p->n > 0
               ? ST_OK
               : err_set(err, ST_BAD_INPUT, "--nodes %s: there is no other machine", which);
}

static enum status find_nodes(struct pull_nodes *p, const char *which, struct err *err) {
    char stranger[NET_TEXT_BYTES];
    size_t n_strangers;
    json_t *found;
    TRY(nodes_find(&p->id, NULL, &found, stranger, &n_strangers, err));
    json_t *answers = nodes_ask_all(&p->id, found, "/v1/node");
    enum status st = choose(p, which, answers, err);
    json_decref(answers);
    json_decref(found);
    return st;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void start(struct pull_nodes *p) {
    for (int i = 0; i < p->n; i++) {
        struct pulling_node *n = &p->list[i];
        n->has_thread = thread_start(&n->thread, pull_on_node, n) == 0;
        if (n->has_thread)
            continue;
        err_set(&n->err, ST_NO_MEMORY, "no thread to ask it");
        n->ended = true;
    }
}

enum status pull_nodes_begin(struct pull_nodes **out, const char *which,
                             const struct hub_name *name, const char *revision,
                             const struct hub_files *files, struct err *err) {
    struct pull_nodes *p = mem_calloc(1, sizeof *p);
    if (p == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to ask nodes");
    p->name = name;
    p->revision = revision;
    enum status st = nodes_identity(&p->id, err);
    if (st != ST_OK) {
        mem_free(p);
        return st;
    }
    st = find_nodes(p, which, err);
    if (st == ST_OK)
        st = hub_relay_open(&p->relay, &p->id, name, files, err);
    if (st == ST_OK) {
        start(p);
        *out = p;
        return ST_OK;
    }
    identity_deinit(&p->id);
    mem_free(p->list);
    mem_free(p);
    return st;
}

uint64_t pull_nodes_bytes(struct pull_nodes *p) {
    uint64_t sum = 0;
    for (int i = 0; i < p->n; i++)
        sum += p->list[i].bytes;
    return sum;
}

int pull_nodes_n(const struct pull_nodes *p) {
    return p->n;
}

int pull_nodes_running(struct pull_nodes *p) {
    int n = 0;
    for (int i = 0; i < p->n; i++)
        n += !p->list[i].ended;
    return n;
}

int pull_nodes_end(struct pull_nodes *p, bool stop, pull_nodes_fn fn, void *user) {
    int n_here = 0;
    p->stop = stop;
    for (int i = 0; i < p->n; i++) {
        struct pulling_node *n = &p->list[i];
        if (n->has_thread)
            pthread_join(n->thread, NULL);
        n_here += n->path != NULL;
        fn(user, n->name, n->path, n->path != NULL ? NULL : n->err.text);
        mem_free(n->path);
    }
    hub_relay_close(p->relay);
    identity_deinit(&p->id);
    mem_free(p->list);
    mem_free(p);
    return n_here;
}
