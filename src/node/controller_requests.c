/* controller_requests.c: the controller's HTTP answers: on the HTTP server's thread, or on one of
 * their own if they take a while. */
#include "node/controller_internal.h"

#include "api/managing.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "base/words.h"
#include "node/overview_internal.h"
#include "node/peers.h"
#include "server/reply.h"

#include <stdio.h>
#include <time.h>

#define LATER_MAX 64

/* ---- requests ---------------------------------------------------------------------------- */

/* One deployment as GET gives it. */
struct description {
    const struct deployment *deployment;
    char id[DEPLOYMENTS_DIGEST_BYTES];
    json_t *out, *silent, *standby;
    uint64_t best; /* of the node in `out`, which serves or tries to */
};

/* Running servers first, the latest of them; then failed ones. */
static uint64_t rank_of(const struct run_report *run) {
    return run->term > 0 ? run->term + 1 : run->failures > 0;
}

/* The node that serves it, or tries to. */
static void describe_run(struct description *d, const char *node,
                         const struct run_report *run) {
    if (run->state == RUN_UNKNOWN || run->version != d->deployment->version ||
        rank_of(run) <= d->best)
        return;
    d->best = rank_of(run);
    json_object_set_new(d->out, "state", json_string(run_state_name(run->state)));
    json_object_set_new(d->out, "node", json_string(node));
    json_object_set_new(d->out, "sentence", json_string(run->sentence));
}

/* A node's report of the deployment. It includes whether the node does not answer at the port,
 * and why ("": it does not know yet who serves). It also says whether the node could take over.
 */
static void describe_node(struct description *d, const char *node,
                          const struct node_report *report) {
    const struct run_report *run = report_of(report, d->deployment->name);
    bool current = str_eq(run->id, d->id);
    describe_run(d, node, run);
    if (!current || !run->answers)
        json_object_set_new(d->silent, node, json_string(current ? run->closed : ""));
    if (current && run->standby != STANDBY_NONE)
        json_object_set_new(d->standby, node, report_standby_json(run));
}

static bool is_model_somewhere(const struct controller *k, const char *name) {
    bool is = report_able(&k->self_report, name) != NULL;
    for (size_t i = 0; i < k->n_others && !is; i++)
        is = report_able(&k->others[i].report, name) != NULL;
    return is;
}

/* The words of --nodes that match no node present; NULL: no memory. */
static json_t *absent_of(const struct controller *k, const char *words) {
    json_t *absent = json_array();
    size_t len;
    if (words != NULL && str_eq(words, "auto"))
        words = NULL;
    for (const char *at; (at = words_next(&words, &len)) != NULL;) {
        char *word = mem_strndup(at, len);
        bool here = word == NULL || controller_means_self(k, word);
        for (size_t i = 0; i < k->n_others && !here; i++)
            here = controller_means(word, &k->others[i]);
        if (!here)
            json_array_append_new(absent, json_string(word));
        mem_free(word);
    }
    return absent;
}

/* {"nodes": [..], "parallel"}; null: nobody has chosen one. */
static json_t *layout_of(const struct deployment *one) {
    const char *words = one->layout_nodes;
    json_t *nodes = json_array();
    char node[NET_TEXT_BYTES];
    while (words_take(&words, node, sizeof node))
        json_array_append_new(nodes, json_string(node));
    json_t *layout = one->layout_nodes != NULL ? json_pack("{s:O, s:s}", "nodes", nodes,
                                                           "parallel", one->layout_parallel)
                                               : json_null();
    json_decref(nodes);
    return layout;
}

static json_t *describe(const struct controller *k, const struct deployment *one) {
    struct description d = {
        .deployment = one, .silent = json_object(), .standby = json_object()};
    deployment_digest(one, d.id);
    d.out = json_pack(
        "{s:s, s:s, s:I, s:I, s:b, s:s, s:n, s:s}", "name", one->name, "model", one->model.name,
        "model_bytes", (json_int_t)one->model.bytes, "port", (json_int_t)one->port, "tls",
        one->tls, "state", run_state_name(RUN_WAITING), "node", "sentence",
        is_model_somewhere(k, one->name) ? "" : "its model is on no node that is there");
    const struct run_report *mine = report_of(&k->self_report, one->name);
    bool known = str_eq(mine->id, d.id);
    describe_node(&d, k->name, &k->self_report);
    for (size_t i = 0; i < k->n_others; i++)
        describe_node(&d, k->others[i].name, &k->others[i].report);
    json_object_set_new(d.out, "id", json_string(d.id));
    json_object_set_new(d.out, "names", deployments_names_of(&k->list, one->name));
    json_object_set_new(d.out, "nodes", json_string(one->nodes));
    json_object_set_new(d.out, "layout", layout_of(one));
    json_object_set_new(d.out, "since",
                        one->since > 0 ? json_integer(one->since) : json_null());
    json_object_set_new(d.out, "idle_s",
                        mine->idle_ms >= 0 && known ? json_real((double)mine->idle_ms * 1e-3)
                                                    : json_null());
    json_object_set_new(d.out, "unloads",
                        mine->unloads > 0 && known ? json_integer(mine->unloads) : json_null());
    json_object_set_new(d.out, "absent", absent_of(k, one->nodes));
    json_object_set_new(d.out, "silent", d.silent);
    json_object_set_new(d.out, "standby", d.standby);
    return d.out;
}

json_t *controller_deployments(struct controller *k) {
    json_t *list = json_array();
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->list.n; i++)
        if (k->list.list[i]->up)
            json_array_append_new(list, describe(k, k->list.list[i]));
    pthread_mutex_unlock(&k->lock);
    return list;
}

static json_t *names_present(struct controller *k) {
    json_t *names = json_pack("[s]", k->name);
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++)
        json_array_append_new(names, json_string(k->others[i].name));
    pthread_mutex_unlock(&k->lock);
    return names;
}

void controller_handle_list(struct controller *k, struct http_request *r) {
    reply_json(r, 200,
               json_pack("{s:o, s:o}", "deployments", controller_deployments(k), "present",
                         names_present(k)));
}

static void answer(struct controller *k, struct http_request *r, enum status st,
                   const char *sentence) {
    if (st == ST_OK)
        controller_handle_list(k, r);
    else
        peers_refuse(r, http_status_of(st), sentence);
    wake_ring(&k->wake);
}

/* Whether another user may set these words. */
static enum status check_words(const struct controller *k, const json_t *wish,
                               struct err *err) {
    struct deployment *d;
    TRY(deployment_parse(&d, wish, err));
    enum status st = k->check_words(d->args, d->n_args, err);
    deployment_free(d);
    return st;
}

static void put(struct controller *k, struct http_request *r, const json_t *body) {
    struct err err;
    json_t *wish = json_copy((json_t *)(uintptr_t)body);
    json_object_set_new(wish, "version",
                        json_integer(1)); /* deployments_put() has the true one */
    json_object_set_new(wish, "home", json_string(k->name));
    json_object_set_new(wish, "since", json_integer((json_int_t)time(NULL)));
    enum status st = check_words(k, wish, &err);
    if (st == ST_OK)
        st = controller_change_list(k, deployments_put, wish, json_text(wish, "name"), &err);
    json_decref(wish);
    answer(k, r, st, err.text);
}

static enum status remove_named(struct deployments *d, const json_t *wish, struct err *err) {
    const char *name = json_string_value(json_object_get(wish, "name"));
    return name != NULL ? deployments_remove(d, name, err)
                        : err_set(err, ST_BAD_INPUT, "the request names none");
}

static void take_down(struct controller *k, struct http_request *r, const json_t *body) {
    struct err err;
    enum status st = controller_change_list(k, remove_named, body, NULL, &err);
    answer(k, r, st, err.text);
}

static void sync_with(struct controller *k, struct http_request *r, const json_t *body) {
    struct err err;
    char from[NET_TEXT_BYTES];
    http_client_host(r, from, sizeof from);
    pthread_mutex_lock(&k->lock);
    enum status st = controller_hear(k, body, NULL, from, &err);
    json_t *said = st == ST_OK ? controller_say(k, json_text(body, "digest"),
                                                json_text(body, "members"), NULL)
                               : NULL;
    pthread_mutex_unlock(&k->lock);
    if (st == ST_OK)
        reply_json(r, 200, said);
    else
        peers_refuse(r, http_status_of(st), err.text);
}

static void with_body(struct controller *k, struct http_request *r,
                      void (*handle)(struct controller *k, struct http_request *r,
                                     const json_t *body)) {
    json_error_t why;
    size_t n;
    const char *text = http_body(r, &n);
    if (json_count(text, n) > JSON_REQUEST_VALUES_MAX) {
        peers_refuse(r, 400, "the request has too many JSON values");
        return;
    }
    json_t *body = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(body))
        handle(k, r, body);
    else
        peers_refuse(r, 400, body == NULL ? why.text : "the request is not a JSON object");
    json_decref(body);
}

void controller_handle_put(struct controller *k, struct http_request *r) {
    with_body(k, r, put);
}

void controller_handle_remove(struct controller *k, struct http_request *r) {
    with_body(k, r, take_down);
}

void controller_handle_self(struct controller *k, struct http_request *r) {
    if (http_query(r, "watched") != NULL)
        overview_want_models(k->overview);
    reply_json_exactly(r, 200, overview_self(k));
}

void controller_handle_sync(struct controller *k, struct http_request *r) {
    with_body(k, r, sync_with);
}

/* ---- answers that take a while ----------------------------------------------------------- */

struct later {
    struct controller *k;
    struct http_request *r;
    void (*run)(struct controller *k, struct http_request *r);
};

static void *later_main(void *user) {
    struct later *l = user;
    struct controller *k = l->k;
    l->run(k, l->r);
    mem_free(l);
    pthread_mutex_lock(&k->lock);
    k->n_later--;
    pthread_cond_broadcast(&k->later_ended);
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* False: too much is under way. */
static bool count_in(struct controller *k) {
    pthread_mutex_lock(&k->lock);
    bool good = k->n_later < LATER_MAX;
    k->n_later += good;
    pthread_mutex_unlock(&k->lock);
    return good;
}

void controller_run_later(struct controller *k, struct http_request *r,
                          void (*run)(struct controller *k, struct http_request *r)) {
    pthread_t thread;
    struct later *l = mem_calloc(1, sizeof *l);
    bool counted = l != NULL && count_in(k);
    if (counted) {
        *l = (struct later){k, r, run};
        if (thread_start(&thread, later_main, l) == 0) {
            pthread_detach(thread);
            return;
        }
        pthread_mutex_lock(&k->lock);
        k->n_later--;
        pthread_mutex_unlock(&k->lock);
    }
    mem_free(l);
    peers_refuse(r, 503, "this node has too much to do");
}

void controller_wait_for_later(struct controller *k) {
    pthread_mutex_lock(&k->lock);
    while (k->n_later > 0)
        pthread_cond_wait(&k->later_ended, &k->lock);
    pthread_mutex_unlock(&k->lock);
}

json_t *controller_wish(const struct http_request *r) {
    size_t n;
    const char *text = http_body(r, &n);
    return json_count(text, n) <= JSON_REQUEST_VALUES_MAX
               ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL)
               : NULL;
}

void controller_answer(struct controller *k, struct http_request *r,
                       controller_answerer *find) {
    struct err err = {.text = ""};
    json_t *out = NULL, *wish = controller_wish(r);
    enum status st = json_is_object(wish)
                         ? find(k, wish, &out, &err)
                         : err_set(&err, ST_BAD_INPUT, "the request is not a JSON object");
    if (st == ST_OK)
        reply_json(r, 200, out);
    else
        peers_refuse(r, managing_status(st), err.text);
    json_decref(wish);
}
