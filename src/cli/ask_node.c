/* ask_node.c: one connection to a node, which is asked again and again while something begins. */
#include "cli/ask_node.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/util.h"
#include "cli/nodes.h"

#include <poll.h>
#include <stdio.h>

#define ASK_MS 300
/* A node that cannot find the model has looked for it by then. */
#define FIND_S 20.0
/* The other nodes learn which one serves within a second or two. */
#define SPREAD_S 5.0

enum status ask_node_open(struct ask_node *a, const char *address, struct err *err) {
    a->address = address;
    TRY(nodes_identity(&a->id, err));
    enum status st = client_open(&a->client, &a->id, address, err);
    if (st != ST_OK)
        identity_deinit(&a->id);
    return st;
}

void ask_node_close(struct ask_node *a) {
    client_close(a->client);
    identity_deinit(&a->id);
}

enum status ask_node_json(struct ask_node *a, const char *path, const json_t *body,
                          json_t **out, struct err *err) {
    enum status st = client_json(a->client, path, body, out, err);
    if (st == ST_TIMEOUT && str_eq(a->address, ASK_NODE_DEFAULT))
        return err_set(
            err, st,
            "no node answers at 127.0.0.1:%d: lockstep node starts one, --node names another",
            NODE_PORT);
    return st;
}

json_t *ask_node_find(const json_t *deployments, const char *name) {
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(deployments, "deployments"), i, one) {
        const char *its = json_string_value(json_object_get(one, "name"));
        if (its != NULL && str_eq(its, name))
            return json_incref(one);
    }
    return NULL;
}

enum status ask_node_deployment(struct ask_node *a, const char *name, json_t **out,
                                struct err *err) {
    json_t *answer;
    TRY(ask_node_json(a, "/v1/deployments", NULL, &answer, err));
    *out = ask_node_find(answer, name);
    json_decref(answer);
    return ST_OK;
}

/* ---- waiting ----------------------------------------------------------------------------- */

/* Whether a node does not know yet which node serves it. */
static bool is_spreading(const json_t *one) {
    const char *who;
    json_t *why;
    json_object_foreach(json_object_get(one, "silent"), who, why) {
        if (json_string_length(why) == 0)
            return true;
    }
    return false;
}

struct waiting {
    const char *as, *id;       /* of what was asked for */
    double begin_s, listens_s; /* clock; 0: it does not listen yet */
};

/* What its state means: ST_OK: it listens; ST_AGAIN: it may listen later. one: NULL if there is
 * none. */
static enum status state_of(struct waiting *w, const json_t *one, struct err *err) {
    const char *state = json_text(one, "state"), *sentence = json_text(one, "sentence");
    bool asleep = str_eq(state, "asleep"), listens = asleep || str_eq(state, "listening");
    if (one == NULL)
        return err_set(err, ST_CANCELLED, "%s was taken down meanwhile", w->as);
    if (!str_eq(json_text(one, "id"), w->id))
        return err_set(
            err, ST_BAD_INPUT,
            "%s was put up differently elsewhere at the same time, and that version stays",
            w->as);
    if (str_eq(state, "failed") || (listens && !asleep && *sentence != '\0'))
        return err_set(err, ST_IO, "%s on %s: %s", w->as, json_text(one, "node"), sentence);
    if (str_eq(state, "waiting") && *sentence != '\0' && clock_s() - w->begin_s > FIND_S)
        return err_set(err, ST_NOT_FOUND,
                       "%s: %s (the node looks for it at the same path, as the user that "
                       "runs the node)",
                       w->as, sentence);
    if (listens && w->listens_s == 0)
        w->listens_s = clock_s();
    return listens && (!is_spreading(one) || clock_s() - w->listens_s > SPREAD_S) ? ST_OK
                                                                                  : ST_AGAIN;
}

enum status ask_node_wait(struct ask_node *a, const char *name, const char *id, json_t **out,
                          struct err *err) {
    struct waiting w = {.as = name, .id = id, .begin_s = clock_s()};
    char said[128] = "", now[128];
    for (;; poll(NULL, 0, ASK_MS)) {
        json_t *one;
        TRY(ask_node_deployment(a, name, &one, err));
        enum status st = state_of(&w, one, err);
        if (st == ST_OK) {
            *out = one;
            return st;
        }
        const char *where = json_text(one, "node");
        snprintf(now, sizeof now, "%s%s%s", json_text(one, "state"),
                 *where != '\0' ? " on " : "", where);
        if (st == ST_AGAIN && !str_eq(now, said)) {
            snprintf(said, sizeof said, "%s", now);
            fprintf(stderr, "%s: %s\n", name, now);
        }
        json_decref(one);
        if (st != ST_AGAIN)
            return st;
    }
}
