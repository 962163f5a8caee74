/* controller_models.c: models on this node's disk, for clients of Ollama's API at the
 * deployments' ports, and further names of what is up. On threads of the requests' own. */
#include "node/controller_asker.h"

#include "api/dialects.h"
#include "base/util.h"

#include <stdio.h>

#define LATEST ":latest"

/* ---- names ------------------------------------------------------------------------------- */

/* Under the lock: what is up and means that name, as gateways find it; NULL: nothing. */
static const struct deployment *find_up(const struct controller *k, const char *name) {
    char bare[GATEWAY_NAME_BYTES];
    for (size_t i = 0; i < k->list.n; i++) {
        const struct deployment *one = k->list.list[i];
        if (one->up &&
            (service_name_is(name, one->name) || service_name_is(name, one->model.name)))
            return one;
    }
    const struct deployment *named = deployments_named(&k->list, name);
    size_t n = strlen(name);
    if (named != NULL || !str_ends(name, LATEST) || n - strlen(LATEST) >= sizeof bare)
        return named;
    snprintf(bare, sizeof bare, "%.*s", (int)(n - strlen(LATEST)), name);
    return deployments_named(&k->list, bare);
}

bool controller_real_name(void *user, const char *name, char out[GATEWAY_NAME_BYTES]) {
    struct controller *k = user;
    pthread_mutex_lock(&k->lock);
    const struct deployment *one = find_up(k, name);
    if (one != NULL)
        snprintf(out, GATEWAY_NAME_BYTES, "%s", one->name);
    pthread_mutex_unlock(&k->lock);
    return one != NULL;
}

json_t *controller_names_of(void *user, const char *deployment) {
    struct controller *k = user;
    pthread_mutex_lock(&k->lock);
    json_t *names = deployments_names_of(&k->list, deployment);
    pthread_mutex_unlock(&k->lock);
    return names;
}

/* ---- what is up -------------------------------------------------------------------------- */

/* The deployment that this client means; false: none that it may see. */
static bool find_seen(struct asker *a, const char *name, char real[GATEWAY_NAME_BYTES]) {
    return controller_real_name(a->k, name, real) && asker_sees(a, real);
}

static bool is_served(void *asker, const char *name) {
    char real[GATEWAY_NAME_BYTES];
    return find_seen(asker, name, real);
}

/* By the content of the files: the node that serves may be another one. Not under the lock, since
 * they are read. */
static bool uses(void *asker, const char *path, char name[OLLAMA_SERVED_BYTES]) {
    struct controller *k = ((struct asker *)asker)->k;
    struct deployments list;
    bool found = false;
    struct err ignored;
    pthread_mutex_lock(&k->lock);
    enum status st = deployments_copy(&list, &k->list, &ignored);
    pthread_mutex_unlock(&k->lock);
    for (size_t i = 0; st == ST_OK && i < list.n && !found; i++) {
        const struct deployment *one = list.list[i];
        found = one->up && model_files_are_at(&one->model, path);
        if (found)
            snprintf(name, OLLAMA_SERVED_BYTES, "%s", one->name);
    }
    if (st == ST_OK)
        deployments_deinit(&list);
    return found;
}

/* ---- changes ----------------------------------------------------------------------------- */

static enum status name_one(struct deployments *d, const json_t *wish, struct err *err) {
    return deployments_name(d, json_string_value(json_object_get(wish, "name")),
                            json_string_value(json_object_get(wish, "of")), err);
}

static enum status unname_one(struct deployments *d, const json_t *wish, struct err *err) {
    return deployments_unname(d, json_string_value(json_object_get(wish, "name")), err);
}

static enum status change(struct controller *k,
                          enum status (*how)(struct deployments *d, const json_t *wish,
                                             struct err *err),
                          json_t *wish, struct err *err) {
    enum status st = wish != NULL ? controller_change_list(k, how, wish, NULL, err)
                                  : err_set(err, ST_BAD_INPUT, "the name is no text");
    json_decref(wish);
    wake_ring(&k->wake);
    return st;
}

static enum status copy(void *asker, const char *source, const char *name, struct err *err) {
    struct asker *a = asker;
    char real[GATEWAY_NAME_BYTES];
    if (!find_seen(a, source, real))
        return err_set(err, ST_NOT_FOUND,
                       "the model \"%.100s\" is not up here, and only a model that is can have "
                       "further names (lockstep up --alias gives it its first)",
                       source);
    return change(a->k, name_one, json_pack("{s:s, s:s}", "name", name, "of", real), err);
}

static enum status forget(void *asker, const char *name, struct err *err) {
    struct asker *a = asker;
    pthread_mutex_lock(&a->k->lock);
    const struct deployment *named = deployments_named(&a->k->list, name);
    bool sees = named != NULL && asker_sees(a, named->name);
    pthread_mutex_unlock(&a->k->lock);
    return sees ? change(a->k, unname_one, json_pack("{s:s}", "name", name), err)
                : err_set(err, ST_NOT_FOUND, "no model that is up has this name, too");
}

/* ---- requests ---------------------------------------------------------------------------- */

void controller_init_models(struct controller *k) {
    k->store = (struct ollama_store){.starts = "lockstep up",
                                     .is_served = is_served,
                                     .uses = uses,
                                     .copy = copy,
                                     .forget = forget};
}

void controller_answer_models(void *user, const struct gateway_client *c) {
    struct controller *k = user;
    struct asker a;
    asker_init(&a, k, c->request);
    const struct ollama_client client = {.request = c->request,
                                         .manages = a.manages,
                                         .why_not = a.why_not,
                                         .asker = &a,
                                         .goes_on = c->goes_on,
                                         .waiter = c->waiter};
    if (a.looks) {
        ollama_store_answer(&k->store, &client);
    } else {
        http_set_header(c->request, "WWW-Authenticate", "Bearer");
        reply_json(c->request, 401,
                   ollama_error(401, ERR_NONE,
                                "this needs an API key of a model that is up here", ""));
    }
    asker_deinit(&a);
}

bool controller_why_unknown(void *user, const struct http_request *r, const char *name,
                            char *out, size_t size) {
    struct controller *k = user;
    struct asker a;
    asker_init(&a, k, r);
    bool says = a.looks && a.manages && ollama_store_hint(&k->store, &a, name, out, size);
    asker_deinit(&a);
    return says;
}
