/* controller_cluster.c: who may see the cluster at the deployments' ports, and who may change it:
 * GET /v1/cluster, and POST below it. On threads of the requests' own. */
#include "node/controller_internal.h"

#include "api/dialects.h"
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
    json_t *seen; /* names as keys; owned */
    bool admin, manages;
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
    pthread_mutex_unlock(&k->lock);
}

/* From this very machine: no proxy stands between, and no page of another name has sent it. */
static bool is_from_here(const struct http_request *r) {
    static const char *const proxied[] = {"Forwarded", "Via", "X-Forwarded-For", "X-Real-IP"};
    char host[NET_TEXT_BYTES];
    http_client_host(r, host, sizeof host);
    for (size_t i = 0; i < ARRAY_LEN(proxied); i++)
        if (http_header(r, proxied[i]) != NULL)
            return false;
    return (str_starts(host, "127.") || str_eq(host, "::1") ||
            str_starts(host, "::ffff:127.")) &&
           http_why_not_local(r) == NULL;
}

static void asker_init(struct asker *a, struct controller *k, const struct http_request *r) {
    *a = (struct asker){.k = k, .seen = json_object(), .admin = is_admin(k, r)};
    look_at_keys(a, r);
    a->manages = a->admin || is_from_here(r);
    a->why_not = a->manages ? ""
                            : "changes need the token that lockstep key --admin prints, or a "
                              "browser on the node's own machine";
}

static bool may_look(const struct asker *a) {
    return a->admin || json_object_size(a->seen) > 0;
}

/* ---- answers ----------------------------------------------------------------------------- */

static void refuse(struct http_request *r, int status, const char *sentence) {
    if (status == 401)
        http_set_header(r, "WWW-Authenticate", "Bearer");
    reply_json(r, status, openai_error(status, ERR_NONE, sentence, ""));
}

static void look(struct asker *a, struct http_request *r) {
    const struct overview_viewer viewer = {
        .sees = sees, .user = a, .waits = true, .manages = a->manages, .why_not = a->why_not};
    http_set_header(r, "Cache-Control", "no-store");
    reply_json_exactly(r, 200, overview_answer(a->k, &viewer));
}

void controller_answer_cluster(void *user, struct http_request *r, int port) {
    struct asker a;
    (void)port;
    asker_init(&a, user, r);
    const char *method = http_method(r);
    if (!may_look(&a))
        refuse(r, 401, "this needs an API key of a model that is up here");
    else if (str_eq(method, "GET") || str_eq(method, "HEAD"))
        look(&a, r);
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
