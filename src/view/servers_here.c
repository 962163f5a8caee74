/* servers_here.c: Finds the models that are up on this machine, by its node and by the default
 * port. */
#include "view/servers_here.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/nodes.h"
#include "cluster/client.h"
#include "cluster/model_files.h"

#include <stdio.h>

#define HERE "127.0.0.1"
#define LOOK_S 5.0

static bool go_on(void *user) {
    (void)user;
    return cli_interrupted() == 0;
}

/* GET /v1/models: a new reference. */
static enum status models_at(json_t **out, const char *url, const char *key, struct err *err) {
    struct ask_server *ask;
    struct ask_server_config cfg = {.key = key, .go_on = go_on};
    TRY(ask_server_open(&ask, &cfg, err));
    enum status st = ask_server_json(ask, url, "/v1/models", LOOK_S, out, err);
    ask_server_close(ask);
    return st;
}

static bool is_ours(const json_t *model) {
    return str_eq(json_text(model, "owned_by"), "lockstep");
}

/* Does the server there have it, and may it be asked? */
static bool has_model(const struct server_here *s, const char *key) {
    struct err ignored;
    json_t *o, *m;
    size_t i;
    bool has = false;
    if (models_at(&o, s->url, key, &ignored) != ST_OK)
        return false;
    json_array_foreach(json_object_get(o, "data"), i, m) {
        has = has || (str_eq(json_text(m, "id"), s->model) && is_ours(m));
    }
    json_decref(o);
    return has;
}

/* A new reference, or NULL. */
static json_t *deployments_here(void) {
    struct identity id;
    struct err ignored;
    json_t *o = NULL;
    if (nodes_identity(&id, &ignored) != ST_OK)
        return NULL;
    if (client_get(&id, HERE, "/v1/deployments", &o, &ignored) != ST_OK)
        o = NULL;
    identity_deinit(&id);
    return o;
}

static int port_of(const json_t *deployment) {
    return (int)json_integer_value(json_object_get(deployment, "port"));
}

static void set(struct server_here *out, const char *model, int port, bool tls,
                const char *state) {
    snprintf(out->url, sizeof out->url, "%s://" HERE ":%d", tls ? "https" : "http", port);
    snprintf(out->model, sizeof out->model, "%s", model);
    snprintf(out->state, sizeof out->state, "%s", state);
    out->tls = tls;
}

static void set_deployment(struct server_here *out, const json_t *one) {
    set(out, json_text(one, "name"), port_of(one), json_is_true(json_object_get(one, "tls")),
        json_text(one, "state"));
}

/* ---- all --------------------------------------------------------------------------------- */

/* *taken: a deployment has the default port. */
static size_t list_deployments(struct server_here *out, bool *taken) {
    json_t *answer = deployments_here(), *one;
    size_t i, n = 0;
    json_array_foreach(json_object_get(answer, "deployments"), i, one) {
        *taken = *taken || port_of(one) == SERVER_PORT;
        if (n < SERVERS_HERE_MAX)
            set_deployment(&out[n++], one);
    }
    json_decref(answer);
    return n;
}

/* The models of a server at the default port. It is no error if none is there. */
static enum status list_server(struct server_here *out, size_t *n, const char *key,
                               struct err *err) {
    json_t *o, *m;
    size_t i;
    struct server_here there;
    set(&there, "", SERVER_PORT, false, "");
    enum status st = models_at(&o, there.url, key, err);
    if (st != ST_OK)
        return st == ST_REFUSED || st == ST_NO_MEMORY || st == ST_CANCELLED ? st : ST_OK;
    json_array_foreach(json_object_get(o, "data"), i, m) {
        if (*n < SERVERS_HERE_MAX && is_ours(m))
            set(&out[(*n)++], json_text(m, "id"), SERVER_PORT, false, "");
    }
    json_decref(o);
    return ST_OK;
}

enum status servers_here(struct server_here **out, size_t *n, const char *key,
                         struct err *err) {
    struct server_here *list = mem_calloc(SERVERS_HERE_MAX, sizeof *list);
    bool taken = false;
    enum status st = ST_OK;
    if (list == NULL)
        return err_set(err, ST_NO_MEMORY, "not enough memory to look for what is up");
    *n = list_deployments(list, &taken);
    if (!taken)
        st = list_server(list, n, key, err);
    if (st == ST_OK || (st == ST_REFUSED && *n > 0)) {
        *out = list;
        return ST_OK;
    }
    mem_free(list);
    return st;
}

bool server_here_answers(const char *state) {
    return *state == '\0' || str_eq(state, "listening") || str_eq(state, "asleep");
}

/* ---- one of a name ------------------------------------------------------------------------- */

static bool is_it(const json_t *one, const char *word, const char *name) {
    const char *its = json_text(one, "name"), *file = json_text(one, "model");
    return (str_eq(its, word) || str_eq(its, name) || str_eq(file, name)) &&
           server_here_answers(json_text(one, "state")) &&
           !json_is_true(json_object_get(one, "tls"));
}

bool servers_here_find(struct server_here *out, const char *word, const char *key) {
    char *name = model_name_of(word);
    json_t *answer = deployments_here(), *one;
    size_t i;
    bool found = false;
    json_array_foreach(json_object_get(answer, "deployments"), i, one) {
        if (found || name == NULL || !is_it(one, word, name))
            continue;
        set_deployment(out, one);
        found = has_model(out, key);
    }
    json_decref(answer);
    if (!found && name != NULL) {
        set(out, name, SERVER_PORT, false, "");
        found = has_model(out, key);
    }
    mem_free(name);
    return found;
}
