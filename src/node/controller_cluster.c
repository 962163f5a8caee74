/* controller_cluster.c: who may see the cluster at the deployments' ports, and who may change it:
 * GET /v1/cluster, and POST below it. On threads of the requests' own. */
#include "node/controller_change.h"

#include "api/dialects.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"

#include <sodium.h>
#include <stdio.h>
#include <strings.h>

#define ADMIN_HEADER "Lockstep-Admin"

/* ---- keys -------------------------------------------------------------------------------- */

/* The time tells nothing of how much of them is the same. */
static bool is_same(const char *a, size_t n_a, const char *b) {
    uint8_t x[crypto_generichash_BYTES], y[crypto_generichash_BYTES];
    crypto_generichash(x, sizeof x, (const uint8_t *)a, n_a, NULL, 0);
    crypto_generichash(y, sizeof y, (const uint8_t *)b, strlen(b), NULL, 0);
    return sodium_memcmp(x, y, sizeof x) == 0;
}

/* keys: one a line. */
static bool is_one_of(const char *key, const char *keys) {
    bool is = false;
    while (key != NULL && *keys != '\0') {
        size_t n = strcspn(keys, "\n");
        is |= n > 0 && is_same(keys, n, key);
        keys += n + (keys[n] == '\n');
    }
    return is;
}

/* ---- who asks ---------------------------------------------------------------------------- */

/* The names that a key is good for. */
struct asker {
    struct controller *k;
    json_t *seen;               /* names as keys; owned */
    bool admin, looks, manages; /* looks: its key is good for anything that is up */
    const char *why_not;
};

static bool sees(void *user, const char *deployment) {
    const struct asker *a = user;
    return a->admin || json_object_get(a->seen, deployment) != NULL;
}

static bool is_admin(const struct controller *k, const struct http_request *r) {
    const char *shown = http_header(r, ADMIN_HEADER), *key = http_shown_key(r);
    const char *admin = k->id->admin;
    return (shown != NULL && is_same(shown, strlen(shown), admin)) ||
           (key != NULL && is_same(key, strlen(key), admin));
}

/* Of so many that are down; then all of them are forgotten. */
#define PAST_MAX 256

void controller_remember_keys(struct controller *k, const struct deployment *one) {
    const char *keys = deployment_file(one, "api-key-file");
    if (k->past_keys == NULL)
        k->past_keys = json_object();
    if (json_object_size(k->past_keys) >= PAST_MAX)
        json_object_clear(k->past_keys);
    json_object_set_new(k->past_keys, one->name,
                        keys != NULL ? json_string(keys) : json_null());
}

/* What is down now has only a history. */
static void look_at_past(struct asker *a, const char *key) {
    const char *name;
    json_t *keys;
    json_object_foreach(a->k->past_keys, name, keys) {
        const struct deployment *now = deployments_find(&a->k->list, name);
        if ((now == NULL || !now->up) &&
            (json_is_null(keys) || is_one_of(key, json_string_value(keys))))
            json_object_set_new(a->seen, name, json_true());
    }
}

static void look_at_keys(struct asker *a, const struct http_request *r) {
    struct controller *k = a->k;
    const char *key = http_shown_key(r);
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->list.n; i++) {
        const struct deployment *one = k->list.list[i];
        const char *keys = one->up ? deployment_file(one, "api-key-file") : NULL;
        if (one->up && (keys == NULL || is_one_of(key, keys)))
            json_object_set_new(a->seen, one->name, json_true());
    }
    a->looks = a->admin || json_object_size(a->seen) > 0;
    look_at_past(a, key);
    pthread_mutex_unlock(&k->lock);
}

bool controller_may_ask(void *user, const struct http_request *r, const char *deployment) {
    struct controller *k = user;
    pthread_mutex_lock(&k->lock);
    const struct deployment *one = deployments_find(&k->list, deployment);
    const char *keys = one != NULL && one->up ? deployment_file(one, "api-key-file") : NULL;
    bool may = one != NULL && one->up && (keys == NULL || is_one_of(http_shown_key(r), keys));
    pthread_mutex_unlock(&k->lock);
    return may;
}

void controller_wake(void *user) {
    struct controller *k = user;
    wake_ring(&k->wake);
}

/* From this very machine: no proxy stands between, and no page of another name has sent it. */
static bool is_from_here(const struct http_request *r) {
    static const char *const proxied[] = {"Forwarded", "Via", "X-Forwarded-For", "X-Real-IP"};
    char host[NET_TEXT_BYTES];
    http_client_host(r, host, sizeof host);
    for (size_t i = 0; i < ARRAY_LEN(proxied); i++)
        if (http_header(r, proxied[i]) != NULL)
            return false;
    return (str_starts(host, "127.") || str_eq(host, "::1")) && http_why_not_local(r) == NULL;
}

static void asker_init(struct asker *a, struct controller *k, const struct http_request *r) {
    *a = (struct asker){.k = k, .seen = json_object(), .admin = is_admin(k, r)};
    look_at_keys(a, r);
    a->manages = a->admin || is_from_here(r);
    a->why_not = a->manages ? ""
                            : "changes need the token that lockstep key --admin prints, or a "
                              "browser on the node's own machine";
}

/* ---- answers ----------------------------------------------------------------------------- */

static void refuse(struct http_request *r, int status, const char *sentence) {
    if (status == 401)
        http_set_header(r, "WWW-Authenticate", "Bearer");
    reply_json(r, status, openai_error(status, ERR_NONE, sentence, ""));
}

static void look(struct asker *a, struct http_request *r, int port) {
    const struct overview_viewer viewer = {.sees = sees,
                                           .user = a,
                                           .waits = true,
                                           .manages = a->manages,
                                           .is_local = port == 0,
                                           .why_not = a->why_not};
    http_set_header(r, "Cache-Control", "no-store");
    reply_json_exactly(r, 200, overview_answer(a->k, &viewer));
}

/* A page of another origin cannot make a browser send this without asking first, and is not let
 * in when it asks. NULL: it is good. */
static const char *why_not_from_there(const struct http_request *r, int *status) {
    static const char json[] = "application/json";
    const char *type = http_header(r, "Content-Type"), *origin = http_header(r, "Origin");
    const char *host = http_header(r, "Host"),
               *from = origin != NULL ? strstr(origin, "://") : NULL;
    size_t n = strlen(json);
    *status = 415;
    if (type == NULL || strncasecmp(type, json, n) != 0 || (type[n] != '\0' && type[n] != ';'))
        return "the Content-Type of a change is application/json";
    *status = 403;
    if (origin != NULL && (from == NULL || host == NULL || strcasecmp(from + 3, host) != 0))
        return "the Origin header names another page than that of this node";
    return NULL;
}

/* ST_REFUSED is for now, and not for who asks: 409. */
static int change_status(enum status st) {
    return st == ST_REFUSED ? 409 : http_status_of(st);
}

static void make_change(struct asker *a, struct http_request *r, const char *what, int port) {
    struct err err;
    size_t n;
    const char *text = http_body(r, &n);
    json_t *out = NULL, *wish = json_count(text, n) <= JSON_REQUEST_VALUES_MAX
                                    ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL)
                                    : NULL;
    const struct change change = {
        .k = a->k, .wish = wish, .port = port, .manages = a->manages, .sees = sees, .user = a};
    if (!a->manages && json_object_get(wish, "model") != NULL) { /* models of nodes, not up */
        refuse(r, 403, a->why_not);
        json_decref(wish);
        return;
    }
    enum status st = json_is_object(wish)
                         ? change_make(&change, what, &out, &err)
                         : err_set(&err, ST_BAD_INPUT, "the request is not a JSON object");
    if (st == ST_OK)
        reply_json_exactly(r, 200, out);
    else
        refuse(r, change_status(st), err.text);
    json_decref(wish);
    wake_ring(&a->k->wake);
}

/* To plan what is up is only to look. */
static void change(struct asker *a, struct http_request *r, const char *what, int port) {
    int status;
    const char *why = why_not_from_there(r, &status);
    if (why != NULL)
        refuse(r, status, why);
    else if (!a->manages && !str_eq(what, "plan"))
        refuse(r, 403, a->why_not);
    else
        make_change(a, r, what, port);
}

/* What the path has below /v1/cluster: "" for that itself. */
static const char *what_of(const struct http_request *r) {
    static const char above[] = "/v1/cluster";
    const char *path = http_path(r);
    path += strlen(path_without_version(above, path));
    return path + (*path == '/');
}

void controller_answer_cluster(void *user, struct http_request *r, int port) {
    struct asker a;
    asker_init(&a, user, r);
    a.admin |= port == 0 && a.manages; /* it is the machine's own page */
    a.looks |= a.admin;
    const char *method = http_method(r), *what = what_of(r);
    bool gets = str_eq(method, "GET") || str_eq(method, "HEAD"), posts = str_eq(method, "POST");
    if (!a.looks)
        refuse(r, 401, "this needs an API key of a model that is up here");
    else if (*what != '\0' && !change_is_known(what))
        refuse(r, 404, "there is nothing at this path");
    else if (*what == '\0' && gets)
        look(&a, r, port);
    else if (*what != '\0' && posts)
        change(&a, r, what, port);
    else
        refuse(r, 405, "this path does not support that method");
    json_decref(a.seen);
}

static bool sees_all(void *user, const char *deployment) {
    (void)user, (void)deployment;
    return true;
}

void controller_handle_cluster(struct controller *k, struct http_request *r) {
    const struct overview_viewer viewer = {.sees = sees_all, .manages = true, .why_not = ""};
    reply_json_exactly(r, 200, overview_answer(k, &viewer));
}
