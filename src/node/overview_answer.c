/* overview_answer.c: one answer of what all nodes tell: the nodes with their workers, the links,
 * the deployments, the models and the history. */
#include "node/overview_internal.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "cluster/devices.h"

#include <stdio.h>

/* An answer on its way. */
struct answer {
    struct controller *k;
    const struct overview_viewer *viewer;
    json_t *out;             /* owned */
    json_t *told;            /* by node: what it tells; owned */
    json_t *nodes, *by_name; /* the list in `out`, and its entries by name; owned */
    json_t *links;           /* in `out` */
    json_t *deployments;     /* in `out` */
};

static bool sees(const struct answer *a, const char *deployment) {
    return a->viewer->sees(a->viewer->user, deployment);
}

static void copy_fields(json_t *to, const json_t *from, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_object_get(from, names[i]);
        if (v != NULL)
            json_object_set(to, names[i], v);
    }
}

/* ---- nodes ------------------------------------------------------------------------------- */

/* What a node says of its machine, as far as it has the form. */
static void add_facts(json_t *node, const json_t *told) {
    static const char *const texts[] = {"processor", "isa"};
    static const char *const numbers[] = {"cores", "memory", "memory_free", "load",
                                          "disk_free"};
    static const char *const lists[] = {"devices", "devices_error", "downloads"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (json_is_string(json_object_get(told, texts[i])))
            copy_fields(node, told, &texts[i], 1);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (json_is_number(json_object_get(told, numbers[i])))
            copy_fields(node, told, &numbers[i], 1);
    copy_fields(node, told, lists, ARRAY_LEN(lists));
    node_devices_mend(node);
    if (!json_is_array(json_object_get(node, "downloads")))
        json_object_set_new(node, "downloads", json_array());
}

/* told: taken over; NULL: nothing. */
static void add_node(struct answer *a, const char *name, json_t *node, json_t *told) {
    add_facts(node, told);
    json_object_set_new(node, "workers", json_array());
    json_array_append_new(a->nodes, node);
    json_object_set(a->by_name, name, node);
    json_object_set_new(a->told, name, told != NULL ? told : json_object());
}

static json_t *host_text(const char *host) {
    char bare[NET_TEXT_BYTES];
    size_t n = strlen(host);
    bool bracket = n > 2 && host[0] == '[' && host[n - 1] == ']';
    snprintf(bare, sizeof bare, "%.*s", (int)(bracket ? n - 2 : n), bracket ? host + 1 : host);
    return *bare != '\0' ? json_string(bare) : json_null();
}

static json_t *own_host(struct controller *k) {
    char host[NET_TEXT_BYTES] = "";
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others && host[0] == '\0'; i++) {
        const char *at = k->others[i].reaches_at, *colon = strrchr(at, ':');
        if (colon != NULL)
            snprintf(host, sizeof host, "%.*s", (int)(colon - at), at);
    }
    pthread_mutex_unlock(&k->lock);
    return host_text(host);
}

static void add_nodes(struct answer *a) {
    static const char *const states[] = {
        [SEEN_HERE] = "here", [SEEN_LOST] = "lost", [SEEN_LEFT] = "left"};
    struct overview *v = a->k->overview;
    double now = clock_s();
    add_node(a, a->k->name,
             json_pack("{s:s, s:s, s:f, s:s, s:f, s:o}", "name", a->k->name, "state", "here",
                       "age_s", 0.0, "version", LOCKSTEP_VERSION, "since", v->opened_unix,
                       "address", own_host(a->k)),
             overview_self(a->k));
    pthread_mutex_lock(&v->lock);
    for (size_t i = 0; i < v->n_seen; i++) {
        const struct seen_node *s = v->seen[i];
        add_node(a, s->name,
                 json_pack("{s:s, s:s, s:f, s:s, s:f, s:o}", "name", s->name, "state",
                           states[s->state], "age_s", now - s->heard_s, "version", s->version,
                           "since", s->since, "address", host_text(s->host)),
                 json_incref(s->told));
    }
    pthread_mutex_unlock(&v->lock);
}

/* ---- what servers tell ------------------------------------------------------------------- */

/* A node's name from where a server reached it, which may be any of its addresses. */
static void name_host(struct answer *a, const char *host, char out[64]) {
    struct controller *k = a->k;
    out[0] = '\0';
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others && out[0] == '\0'; i++)
        if (controller_means(host, &k->others[i]))
            snprintf(out, 64, "%s", k->others[i].name);
    pthread_mutex_lock(&k->overview->lock);
    for (size_t i = 0; i < k->overview->n_seen && out[0] == '\0'; i++)
        if (client_is_address(host, k->overview->seen[i]->address))
            snprintf(out, 64, "%s", k->overview->seen[i]->name);
    pthread_mutex_unlock(&k->overview->lock);
    if (out[0] == '\0' && controller_means_self(k, host))
        snprintf(out, 64, "%s", k->name);
    pthread_mutex_unlock(&k->lock);
    if (out[0] == '\0')
        snprintf(out, 64, "%.63s", host);
}

static void add_worker(struct answer *a, const char *deployment, const char *node,
                       const json_t *worker) {
    json_t *list = json_object_get(json_object_get(a->by_name, node), "workers");
    json_t *one = json_copy((json_t *)(uintptr_t)worker);
    json_object_set_new(one, "model", json_string(deployment));
    json_array_append(list, one); /* of a node that is not known any more, to nothing */
    json_decref(one);
}

/* The names of a server's nodes: {its own name for one: the cluster's}. */
static json_t *take_workers(struct answer *a, const char *deployment, const char *server,
                            const json_t *doc) {
    json_t *names = json_object(), *node, *worker;
    size_t i, w;
    json_array_foreach(json_object_get(doc, "nodes"), i, node) {
        char name[64];
        const char *own = json_text(node, "name");
        snprintf(name, sizeof name, "%s", server);
        if (i > 0)
            name_host(a, own, name);
        json_object_set_new(names, own, json_string(name));
        json_array_foreach(json_object_get(node, "workers"), w, worker) {
            if (json_is_object(worker))
                add_worker(a, deployment, name, worker);
        }
    }
    return names;
}

static void rename_text(json_t *o, const char *key, const json_t *names) {
    const char *name = json_string_value(json_object_get(names, json_text(o, key)));
    if (name != NULL)
        json_object_set_new(o, key, json_string(name));
}

static void take_links(struct answer *a, const char *deployment, const json_t *doc,
                       const json_t *names) {
    json_t *link;
    size_t i;
    json_array_foreach(json_object_get(doc, "links"), i, link) {
        if (!json_is_object(link))
            continue;
        json_t *one = json_copy(link);
        json_object_set_new(one, "model", json_string(deployment));
        rename_text(one, "a", names);
        rename_text(one, "b", names);
        json_array_append_new(a->links, one);
    }
}

/* Machines that were left out have no workers: they are known by where they were reached. */
static void rename_candidates(struct answer *a, json_t *candidates, const json_t *names) {
    json_t *one, *name;
    size_t i, n;
    json_array_foreach(candidates, i, one) {
        json_t *nodes = json_array();
        json_array_foreach(json_object_get(one, "nodes"), n, name) {
            const char *text = json_is_string(name) ? json_string_value(name) : "";
            json_t *known = json_object_get(names, text);
            char found[64];
            if (known != NULL) {
                json_array_append(nodes, known);
                continue;
            }
            name_host(a, text, found);
            json_array_append_new(nodes, json_string(found));
        }
        json_object_set_new(one, "nodes", nodes);
    }
}

static void take_figures(struct answer *a, json_t *deployment, const json_t *doc,
                         const json_t *names) {
    static const char *const fields[] = {
        "ranks",    "parallel", "left_out",          "placement",         "layers", "heads",
        "requests", "cache",    "tokens_per_second", "prompt_per_second", "context"};
    const json_t *its = json_array_get(json_object_get(doc, "deployments"), 0);
    copy_fields(deployment, its, fields, ARRAY_LEN(fields));
    json_t *candidates = json_deep_copy(json_object_get(its, "candidates"));
    if (json_is_array(candidates)) {
        rename_candidates(a, candidates, names);
        json_object_set(deployment, "candidates", candidates);
    }
    json_decref(candidates);
    if (str_eq(json_text(its, "state"), "recovering") &&
        str_eq(json_text(deployment, "state"), "listening")) {
        json_object_set_new(deployment, "state", json_string("recovering"));
        json_object_set_new(deployment, "sentence", json_string(json_text(its, "sentence")));
    }
}

/* ---- deployments ------------------------------------------------------------------------- */

/* {node: sentence} as [{"node", "sentence"}]; {node: {..}} likewise. */
static json_t *as_list(json_t *by_node) {
    const char *node;
    json_t *v, *list = json_array();
    json_object_foreach(by_node, node, v) {
        json_t *one = json_is_object(v) ? json_copy(v) : json_pack("{s:O}", "sentence", v);
        json_object_set_new(one, "node", json_string(node));
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *copies_of(struct answer *a, const char *deployment) {
    const char *node;
    json_t *told, *copy, *list = json_array();
    size_t i;
    json_object_foreach(a->told, node, told) {
        json_array_foreach(json_object_get(told, "copies"), i, copy) {
            if (!str_eq(json_text(copy, "name"), deployment))
                continue;
            json_t *one = json_copy(copy);
            char from[64] = "";
            name_host(a, json_text(copy, "at"), from);
            json_object_del(one, "name");
            json_object_del(one, "at");
            json_object_set_new(one, "to", json_string(node));
            json_object_set_new(one, "from", json_string(from));
            json_array_append_new(list, one);
        }
    }
    return list;
}

static void add_deployment(struct answer *a, json_t *one) {
    const char *name = json_text(one, "name"), *node = json_text(one, "node");
    const json_t *doc =
        json_object_get(json_object_get(json_object_get(a->told, node), "servers"), name);
    json_object_del(one, "id");
    json_object_set_new(one, "silent", as_list(json_object_get(one, "silent")));
    json_object_set_new(one, "standby", as_list(json_object_get(one, "standby")));
    json_object_set_new(one, "copies", copies_of(a, name));
    if (json_is_object(doc) && *node != '\0') {
        json_t *names = take_workers(a, name, node, doc);
        take_links(a, name, doc, names);
        take_figures(a, one, doc, names);
        json_decref(names);
    }
    json_array_append(a->deployments, one);
}

static void add_deployments(struct answer *a) {
    json_t *one, *list = controller_deployments(a->k);
    size_t i;
    json_array_foreach(list, i, one) {
        if (sees(a, json_text(one, "name")))
            add_deployment(a, one);
    }
    json_decref(list);
}

/* ---- models and history ------------------------------------------------------------------ */

static json_t *all_models(struct answer *a) {
    const char *node;
    json_t *told, *model, *all = json_array(), *by_name = json_object();
    size_t i;
    json_object_foreach(a->told, node, told) {
        const json_t *state = json_object_get(json_object_get(a->by_name, node), "state");
        json_array_foreach(json_object_get(told, "models"), i, model) {
            const char *name = json_text(model, "name");
            json_t *one = json_object_get(by_name, name);
            if (*name == '\0' || !str_eq(json_string_value(state), "here"))
                continue;
            if (one == NULL) {
                one = json_pack("{s:s, s:O, s:[]}", "name", name, "bytes",
                                json_object_get(model, "bytes"), "nodes");
                json_array_append_new(all, one);
                json_object_set(by_name, name, one);
            }
            json_array_append_new(json_object_get(one, "nodes"), json_string(node));
        }
    }
    json_decref(by_name);
    return all;
}

static json_t *all_events(struct answer *a) {
    const char *node;
    json_t *told, *one, *seen = json_array();
    size_t n = 0, i;
    json_t **lists = mem_calloc(json_object_size(a->told) + 1, sizeof *lists);
    json_object_foreach(a->told, node, told) {
        if (lists != NULL)
            lists[n++] = json_object_get(told, "events");
    }
    json_t *all = history_merge(lists, n);
    mem_free(lists);
    json_array_foreach(all, i, one) {
        const char *model = json_string_value(json_object_get(one, "model"));
        if (model == NULL || sees(a, model))
            json_array_append(seen, one);
    }
    json_decref(all);
    return seen;
}

json_t *overview_answer(struct controller *k, const struct overview_viewer *viewer) {
    struct answer a = {.k = k,
                       .viewer = viewer,
                       .told = json_object(),
                       .nodes = json_array(),
                       .by_name = json_object(),
                       .links = json_array(),
                       .deployments = json_array()};
    overview_look(k->overview, viewer->waits);
    add_nodes(&a);
    add_deployments(&a);
    a.out = json_pack("{s:s, s:s, s:f, s:{s:b, s:s}, s:o, s:o, s:o}", "self", k->name,
                      "version", LOCKSTEP_VERSION, "time", history_now(), "may", "manage",
                      viewer->manages, "sentence", viewer->why_not, "nodes", a.nodes, "links",
                      a.links, "deployments", a.deployments);
    if (viewer->manages)
        json_object_set_new(a.out, "models", all_models(&a));
    if (viewer->is_local)
        json_object_set_new(a.out, "local", json_true());
    json_object_set_new(a.out, "events", all_events(&a));
    json_decref(a.told);
    json_decref(a.by_name);
    return a.out;
}
