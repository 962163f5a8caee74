/* controller_asker.c: who asks at the deployments' ports: by its keys what it may see, and by the
 * admin's token, or from where it asks, whether it may change something. */
#include "node/controller_asker.h"

#include "api/managing.h"
#include "base/util.h"

#include <sodium.h>

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

/* May who shows that key, or none, use what is up? */
static bool may_use(const struct deployment *one, const char *key) {
    const char *keys = deployment_file(one, "api-key-file");
    return one->up && (keys == NULL || is_one_of(key, keys));
}

/* ---- who asks ---------------------------------------------------------------------------- */

bool asker_sees(void *user, const char *deployment) {
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
        if (may_use(one, key))
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
    bool may = one != NULL && may_use(one, http_shown_key(r));
    pthread_mutex_unlock(&k->lock);
    return may;
}

void controller_wake(void *user) {
    struct controller *k = user;
    wake_ring(&k->wake);
}

void asker_init(struct asker *a, struct controller *k, const struct http_request *r) {
    *a = (struct asker){.k = k, .seen = json_object(), .admin = is_admin(k, r)};
    look_at_keys(a, r);
    a->manages = a->admin || managing_is_from_here(r);
    a->why_not = a->manages ? ""
                            : "changes need the token that lockstep key --admin prints, or a "
                              "browser on the node's own machine";
}

void asker_deinit(struct asker *a) {
    json_decref(a->seen);
}
