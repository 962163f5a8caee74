/* What a controller answers, on the HTTP server's thread. */
#include "node/controller_internal.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "node/peers.h"
#include "server/reply.h"

#include <stdio.h>
#include <time.h>

/* ---- requests ---------------------------------------------------------------------------- */

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

/* Notes that a node does not answer at the port, and why; "": it does not know yet who serves. */
static void note_silent(const char *name, const char *id, const char *node, const json_t *runs,
                        json_t *silent) {
    const json_t *its = json_object_get(runs, name);
    const char *its_id = json_string_value(json_object_get(its, "id"));
    bool current = its_id != NULL && str_eq(its_id, id);
    const char *closed = json_string_value(json_object_get(its, "closed"));
    if (!current || !json_is_true(json_object_get(its, "answers")))
        json_object_set_new(silent, node, json_string(current && closed != NULL ? closed : ""));
}

/* Whether a node could serve it if the one that does were lost. */
static void note_standby(const char *name, const char *id, const char *node, const json_t *runs,
                         json_t *standby) {
    const json_t *its = json_object_get(runs, name);
    const char *its_id = json_string_value(json_object_get(its, "id"));
    json_t *what = json_object_get(its, "standby");
    if (its_id != NULL && str_eq(its_id, id) &&
        json_is_string(json_object_get(what, "reason")) &&
        json_is_string(json_object_get(what, "sentence")))
        json_object_set_new(standby, node, json_deep_copy(what));
}

static bool is_model_somewhere(const struct controller *k, const char *name) {
    bool is = json_object_get(k->self_able, name) != NULL;
    for (size_t i = 0; i < k->n_others && !is; i++)
        is = json_object_get(k->others[i].able, name) != NULL;
    return is;
}

/* The words of --nodes that mean nobody who is there; NULL: no memory. */
static json_t *absent_of(const struct controller *k, const char *words) {
    json_t *absent = json_array();
    while (words != NULL && !str_eq(words, "auto")) {
        size_t n = strcspn(words, ",");
        char *word = mem_strndup(words, n);
        bool here = word == NULL || controller_means_self(k, word);
        for (size_t i = 0; i < k->n_others && !here; i++)
            here = controller_means(word, &k->others[i]);
        if (!here)
            json_array_append_new(absent, json_string(word));
        mem_free(word);
        words = words[n] == ',' ? words + n + 1 : NULL;
    }
    return absent;
}

json_t *controller_deployments(struct controller *k) {
    const char *name;
    char id[DEPLOYMENTS_DIGEST_BYTES];
    json_t *one, *list = json_array();
    pthread_mutex_lock(&k->lock);
    json_object_foreach(k->list.by_name, name, one) {
        json_int_t best = 0;
        if (!deployment_is_up(one))
            continue;
        json_t *silent = json_object(), *standby = json_object();
        deployment_digest(one, id);
        json_t *o = json_pack(
            "{s:s, s:s, s:I, s:b, s:s, s:n, s:s}", "name", name, "model",
            json_string_value(json_object_get(json_object_get(one, "model"), "name")), "port",
            json_integer_value(json_object_get(one, "port")), "tls",
            json_is_true(json_object_get(one, "tls")), "state", "waiting", "node", "sentence",
            is_model_somewhere(k, name) ? "" : "its model is on no node that is there");
        describe(one, k->name, k->self_runs, &best, o);
        note_silent(name, id, k->name, k->self_runs, silent);
        note_standby(name, id, k->name, k->self_runs, standby);
        for (size_t i = 0; i < k->n_others; i++) {
            describe(one, k->others[i].name, k->others[i].runs, &best, o);
            note_silent(name, id, k->others[i].name, k->others[i].runs, silent);
            note_standby(name, id, k->others[i].name, k->others[i].runs, standby);
        }
        json_object_set_new(o, "id", json_string(id));
        const char *nodes = json_string_value(json_object_get(one, "nodes"));
        json_object_set_new(o, "nodes", json_string(nodes));
        json_object_set_new(o, "absent", absent_of(k, nodes));
        json_object_set_new(o, "silent", silent);
        json_object_set_new(o, "standby", standby);
        json_array_append_new(list, o);
    }
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

static void put(struct controller *k, struct http_request *r, const json_t *body) {
    struct err err;
    json_t *one = json_copy((json_t *)(uintptr_t)body);
    json_object_set_new(one, "home", json_string(k->name));
    json_object_set_new(one, "since", json_integer((json_int_t)time(NULL)));
    enum status st = k->check_words(json_object_get(one, "args"), &err);
    if (st == ST_OK)
        st = controller_change_list(k, deployments_put, one,
                                    json_string_value(json_object_get(one, "name")), &err);
    json_decref(one);
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
        peers_refuse(r, 400, body == NULL ? why.text : "the request is no JSON object");
    json_decref(body);
}

void controller_handle_put(struct controller *k, struct http_request *r) {
    with_body(k, r, put);
}

void controller_handle_remove(struct controller *k, struct http_request *r) {
    with_body(k, r, take_down);
}

void controller_handle_sync(struct controller *k, struct http_request *r) {
    with_body(k, r, sync_with);
}
