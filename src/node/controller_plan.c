/* controller_plan.c: what placements would give: of a server that runs, from what its ranks have
 * measured; of a model that is not up, from what the nodes know of themselves. */
#include "node/controller_change.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "base/words.h"
#include "cluster/catalog.h"
#include "hf/hf_folder.h"
#include "node/overview_internal.h"
#include "quant/quant.h"
#include "ranks/forecast.h"
#include "ranks/machine_speed.h"

#include <stdio.h>

bool change_is_among(const char *words, const char *name) {
    return *words == '\0' || str_eq(words, "auto") || str_list_has(words, name);
}

bool change_is_of_nodes(const json_t *candidate, const char *words) {
    const json_t *names = json_object_get(candidate, "nodes");
    size_t i;
    json_t *name;
    json_array_foreach((json_t *)(uintptr_t)names, i, name) {
        if (!json_is_string(name) || !str_list_has(words, json_string_value(name)))
            return false;
    }
    return words_count(words) == json_array_size(names);
}

json_t *change_measured(const struct change *c, const char *name) {
    const struct overview_viewer viewer = {
        .sees = c->sees, .user = c->user, .waits = true, .why_not = ""};
    json_t *all = overview_answer(c->k, &viewer), *one, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(all, "deployments"), i, one) {
        if (str_eq(json_text(one, "name"), name))
            found = json_incref(json_object_get(one, "candidates"));
    }
    json_decref(all);
    return found;
}

static enum status plan_running(const struct change *c, const char *name, const char *nodes,
                                json_t **out) {
    json_t *one, *list = json_array(), *all = change_measured(c, name);
    size_t i;
    json_array_foreach(all, i, one) {
        if (*nodes == '\0' || change_is_of_nodes(one, nodes))
            json_array_append(list, one);
    }
    json_decref(all);
    *out = json_pack("{s:s, s:s, s:O}", "name", name, "sentence",
                     json_array_size(list) > 0
                         ? "predicted from what the machines measured when the server began"
                         : "nothing was measured for these machines: lockstep plan predicts "
                           "it from numbers",
                     "candidates", list);
    json_decref(list);
    return ST_OK;
}

/* ---- a model that is not up ---------------------------------------------------------------- */

#define MACHINES_MAX 16

/* A machine that may take part, and what it says of itself. */
struct planned_machine {
    char name[64], address[NET_TEXT_BYTES]; /* "": this one, which is where others reach it */
    const struct planning *of;
    json_t *speed; /* owned; NULL: it has not said it */
    pthread_t thread;
    bool asked;
};

struct planning {
    struct controller *k;
    const char *model;
    struct gguf *g;
    struct hparams hp;
    json_t *question; /* controller_speed()'s; owned */
    struct planned_machine list[MACHINES_MAX];
    int n;
    struct pair_speed links[MACHINES_MAX * MACHINES_MAX];
    bool measured[MACHINES_MAX * MACHINES_MAX]; /* by ranks; else it is a connection's */
};

static void add_machine(struct planning *p, const char *name, const char *address) {
    if (p->n == MACHINES_MAX)
        return;
    struct planned_machine *m = &p->list[p->n++];
    m->of = p;
    snprintf(m->name, sizeof m->name, "%s", name);
    snprintf(m->address, sizeof m->address, "%s", address);
}

static void find_machines(struct planning *p, const char *nodes) {
    struct overview *v = p->k->overview;
    if (change_is_among(nodes, p->k->name))
        add_machine(p, p->k->name, "");
    pthread_mutex_lock(&v->lock);
    for (size_t i = 0; i < v->n_seen; i++) {
        const struct seen_node *s = v->seen[i];
        if (s->state == SEEN_HERE && s->address[0] != '\0' && change_is_among(nodes, s->name))
            add_machine(p, s->name, s->address);
    }
    pthread_mutex_unlock(&v->lock);
}

static void *ask_main(void *user) {
    struct planned_machine *m = user;
    const struct planning *p = m->of;
    struct client *client;
    struct err err;
    if (m->address[0] == '\0') {
        (void)controller_speed(p->k, p->question, &m->speed, &err);
    } else if (client_open(&client, p->k->id, m->address, &err) == ST_OK) {
        if (client_json(client, "/v1/cluster/speed", p->question, &m->speed, &err) != ST_OK)
            m->speed = NULL;
        client_close(client);
    }
    return NULL;
}

/* All at once; those that do not answer take no part. */
static enum status ask_machines(struct planning *p, struct err *err) {
    struct gguf_totals all;
    json_t *peers = json_array();
    int n = 0;
    gguf_totals(p->g, &all);
    for (int i = 0; i < p->n; i++)
        if (p->list[i].address[0] != '\0')
            json_array_append_new(peers, json_string(p->list[i].address));
    p->question = json_pack(
        "{s:s, s:I, s:o}", "type", qtype_info(machine_speed_type(&all))->name, "bytes",
        (json_int_t)MAX(all.n_bytes / (uint64_t)MAX(p->n, 1), 1u), "peers", peers);
    for (int i = 0; i < p->n; i++)
        p->list[i].asked = thread_start(&p->list[i].thread, ask_main, &p->list[i]) == 0;
    for (int i = 0; i < p->n; i++)
        if (p->list[i].asked)
            pthread_join(p->list[i].thread, NULL);
    for (int i = 0; i < p->n; i++)
        if (json_number_value(json_object_get(p->list[i].speed, "rate")) > 0)
            p->list[n++] = p->list[i];
        else
            json_decref(p->list[i].speed);
    p->n = n;
    return n > 0 ? ST_OK
                 : err_set(err, ST_NOT_FOUND, "none of these nodes says how fast it is");
}

static int machine_called(const struct planning *p, const char *name) {
    int i = 0;
    while (i < p->n && !str_eq(p->list[i].name, name))
        i++;
    return i;
}

static double connection_s(const struct planned_machine *from,
                           const struct planned_machine *to) {
    return to->address[0] == '\0' ? 0
                                  : json_number_value(json_object_get(
                                        json_object_get(from->speed, "peers"), to->address));
}

/* What ranks have measured between these two machines, and else what a connection takes. */
static void find_links(struct planning *p, const struct change *c) {
    const struct overview_viewer viewer = {
        .sees = c->sees, .user = c->user, .waits = true, .why_not = ""};
    json_t *all = overview_answer(p->k, &viewer), *link;
    size_t i;
    json_array_foreach(json_object_get(all, "links"), i, link) {
        int a = machine_called(p, json_text(link, "a")),
            b = machine_called(p, json_text(link, "b"));
        double latency = json_number_value(json_object_get(link, "latency_us")) * 1e-6;
        int at = MIN(a, b) * p->n + MAX(a, b);
        if (MAX(a, b) >= p->n || a == b || latency <= 0 ||
            (p->measured[at] && p->links[at].latency_s <= latency))
            continue;
        p->measured[at] = true;
        p->links[at] =
            (struct pair_speed){latency, json_number_value(json_object_get(link, "bandwidth"))};
    }
    json_decref(all);
    for (int a = 0; a < p->n; a++)
        for (int b = a + 1; b < p->n; b++) {
            double there = connection_s(&p->list[a], &p->list[b]);
            if (!p->measured[a * p->n + b])
                p->links[a * p->n + b].latency_s =
                    there > 0 ? there : connection_s(&p->list[b], &p->list[a]);
        }
}

static json_t *known(double v) {
    return v > 0 ? json_real(v) : json_null();
}

static json_t *say_links(const struct planning *p) {
    json_t *list = json_array();
    for (int a = 0; a < p->n; a++)
        for (int b = a + 1; b < p->n; b++) {
            int at = a * p->n + b;
            json_array_append_new(
                list,
                json_pack("{s:s, s:s, s:o, s:o, s:s}", "a", p->list[a].name, "b",
                          p->list[b].name, "latency_us", known(p->links[at].latency_s * 1e6),
                          "bandwidth", known(p->links[at].bandwidth), "from",
                          p->measured[at] ? "measured by ranks"
                                          : "the round trip of a connection"));
        }
    return list;
}

static json_t *say_machines(const struct planning *p) {
    json_t *list = json_array();
    for (int i = 0; i < p->n; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:O, s:O, s:s}", "name", p->list[i].name, "bytes_per_second",
                            json_object_get(p->list[i].speed, "rate"), "operations_per_second",
                            json_object_get(p->list[i].speed, "ops"), "from",
                            "measured by its node"));
    return list;
}

static json_t *say_layout(const struct planning *p, const struct calibration_layout *c) {
    const struct plan shape = {.n_ranks = c->tp * c->pp, .tp = c->tp, .pp = c->pp};
    char layout[64];
    json_t *nodes = json_array();
    plan_text(&shape, layout, sizeof layout);
    for (int i = 0; i < p->n; i++)
        if (c->ranks >> i & 1)
            json_array_append_new(nodes, json_string(p->list[i].name));
    return json_pack("{s:s, s:o, s:b, s:s, s:o, s:o, s:o, s:o, s:b, s:s}", "layout", layout,
                     "nodes", nodes, "fits", c->fits, "sentence", c->why_not,
                     "tokens_per_second", known(c->tokens_per_s), "prompt_per_second",
                     known(c->prompt_s > 0 ? 1 / c->prompt_s : 0), "reading_ms",
                     known(c->reading_s * 1e3), "wires_ms", known(c->between_s * 1e3), "chosen",
                     0, "from", "nodes");
}

static enum status forecast(const struct planning *p, uint32_t n_ctx, json_t **out,
                            struct err *err) {
    struct placement_machine machines[MACHINES_MAX];
    struct calibration_layout *list = mem_calloc(FORECAST_LAYOUTS, sizeof *list);
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const json_t *speed = p->list[i].speed;
        machines[i] = (struct placement_machine){
            .memory_bytes = (uint64_t)json_integer_value(json_object_get(speed, "memory")),
            .rate = json_number_value(json_object_get(speed, "rate")),
            .n_threads = (int)json_integer_value(json_object_get(speed, "threads")),
            .int8_ops = json_number_value(json_object_get(speed, "ops"))};
    }
    const struct forecast_wish wish = {.g = p->g,
                                       .hp = &p->hp,
                                       .n_ctx = n_ctx,
                                       .n = p->n,
                                       .machines = machines,
                                       .links = p->links};
    enum status st = list != NULL ? forecast_make(list, &n, &wish, err)
                                  : err_set(err, ST_NO_MEMORY, "no memory for a plan");
    json_t *candidates = json_array();
    for (int i = 0; i < n && st == ST_OK; i++)
        json_array_append_new(candidates, say_layout(p, &list[i]));
    if (st == ST_OK)
        *out = json_pack(
            "{s:s, s:s, s:O, s:o, s:o}", "model", p->model, "sentence",
            "predicted from the model's header, from how fast the nodes read and compute now, "
            "and from the links as far as they are known; the server measures itself when it "
            "begins",
            "candidates", candidates, "machines", say_machines(p), "links", say_links(p));
    json_decref(candidates);
    mem_free(list);
    return st;
}

static enum status plan_here(const struct change *c, const char *path, const char *nodes,
                             json_t **out, struct err *err) {
    const struct gguf_options header = {.header_only = true};
    struct planning *p = mem_calloc(1, sizeof *p);
    json_int_t n_ctx =
        json_integer_value(json_object_get(json_object_get(c->wish, "options"), "ctx"));
    if (p == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a plan");
    p->k = c->k;
    p->model = json_text(c->wish, "model");
    enum status st = hf_open_any(&p->g, path, &header, err);
    if (st == ST_OK)
        st = hparams_read(&p->hp, p->g, err);
    if (st == ST_OK) {
        find_machines(p, nodes);
        st = ask_machines(p, err);
    }
    if (st == ST_OK) {
        find_links(p, c);
        st = forecast(p, n_ctx > 0 && n_ctx <= UINT32_MAX ? (uint32_t)n_ctx : 0, out, err);
    }
    for (int i = 0; i < p->n; i++)
        json_decref(p->list[i].speed);
    json_decref(p->question);
    gguf_close(p->g);
    mem_free(p);
    return st;
}

/* Who has the model reads its header. */
static enum status plan_there(const struct change *c, const char *model, json_t **out,
                              struct err *err) {
    char node[64], address[NET_TEXT_BYTES];
    struct client *client;
    if (json_is_true(json_object_get(c->wish, "here")) ||
        !change_find_holder(c->k, model, "", node, address))
        return err_set(err, ST_NOT_FOUND, "no node has a model called %.100s", model);
    json_t *question = json_copy((json_t *)(uintptr_t)c->wish);
    json_object_set_new(question, "here", json_true());
    enum status st = client_open(&client, c->k->id, address, err);
    if (st == ST_OK) {
        st = client_json(client, "/v1/cluster/plan", question, out, err);
        client_close(client);
    }
    json_decref(question);
    return st;
}

static enum status plan_model(const struct change *c, const char *model, const char *nodes,
                              json_t **out, struct err *err) {
    json_t *catalog = catalog_read_all(c->k->models);
    const char *found = catalog_find(catalog, model);
    char *path = found != NULL ? mem_strdup(found) : NULL;
    json_decref(catalog);
    enum status st =
        path != NULL ? plan_here(c, path, nodes, out, err) : plan_there(c, model, out, err);
    mem_free(path);
    return st;
}

/* ---- which ------------------------------------------------------------------------------- */

enum status change_plan(const struct change *c, json_t **out, struct err *err) {
    const char *name = json_string_value(json_object_get(c->wish, "name"));
    const char *model = json_string_value(json_object_get(c->wish, "model"));
    char nodes[CHANGE_NODES_BYTES];
    TRY(change_nodes(c->wish, nodes, err));
    if (model != NULL && *model != '\0' && c->manages)
        return plan_model(c, model, nodes, out, err);
    if (name == NULL || *name == '\0')
        return err_set(err, ST_BAD_INPUT, "the request has no \"name\"");
    TRY(change_find_seen(c, name, err));
    return plan_running(c, name, nodes, out);
}
