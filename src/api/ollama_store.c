/* ollama_store.c: Reads what clients of Ollama's API want done with models on the disk, and
 * refuses what they may not, or what there is not. */
#include "api/ollama_store.h"

#include "api/managing.h"
#include "api/ollama.h"
#include "api/ollama_pull.h"
#include "base/util.h"
#include "cluster/catalog.h"
#include "cluster/removal.h"
#include "cluster/store.h"
#include "hub/stores.h"

#include <limits.h>
#include <stdio.h>

#define PULLS_MAX 8
#define NAME_BYTES 640
#define LATEST ":latest"

/* ---- names ------------------------------------------------------------------------------- */

/* Ollama's clients add ":latest" to a name without a tag. */
static void without_latest(const char *given, char out[NAME_BYTES]) {
    size_t n = strlen(given) - (str_ends(given, LATEST) ? strlen(LATEST) : 0);
    snprintf(out, NAME_BYTES, "%.*s", (int)n, given);
}

/* "hf.co/ORG/REPO:QUANT" is "hf:ORG/REPO:QUANT" here; false: no name of that hub. */
static bool hub_name_of(const char *given, char out[NAME_BYTES]) {
    static const char *const hosts[] = {HUB_PREFIX, "hf.co/", "huggingface.co/"};
    char bare[NAME_BYTES];
    without_latest(given, bare);
    const char *at = bare + (str_starts(bare, "https://") ? strlen("https://") : 0);
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
        if (str_starts(at, hosts[i])) {
            snprintf(out, NAME_BYTES, HUB_PREFIX "%s", at + strlen(hosts[i]));
            return true;
        }
    return false;
}

/* By the name of a catalog, and where it is. */
static bool look_up(const json_t *catalog, const char *name, char out[PATH_MAX]) {
    const char *path = catalog_find(catalog, name);
    snprintf(out, PATH_MAX, "%s", path != NULL ? path : "");
    return path != NULL;
}

/* A model of the disk under the name by which lockstep knows it. A name of Ollama's library may
 * stand for what Ollama keeps here. */
static bool find_on_disk(const struct ollama_store *s, const char *given, char name[NAME_BYTES],
                         char path[PATH_MAX]) {
    char folder[PATH_MAX];
    struct err ignored;
    if (hub_name_of(given, name))
        return stores_find(name, path, &ignored) == ST_OK;
    if (s->folder == NULL && store_path(folder, sizeof folder, &ignored) != ST_OK)
        return false;
    json_t *all = catalog_read_all(s->folder != NULL ? s->folder : folder);
    without_latest(given, name);
    bool found = look_up(all, name, path);
    if (!found) {
        snprintf(name, NAME_BYTES, "ollama:%s%s", given,
                 strchr(given, ':') == NULL ? LATEST : "");
        found = look_up(all, name, path);
    }
    json_decref(all);
    return found;
}

bool ollama_store_hint(const struct ollama_store *s, void *asker, const char *given, char *out,
                       size_t size) {
    char name[NAME_BYTES], path[PATH_MAX], user[OLLAMA_SERVED_BYTES];
    if (strlen(given) >= NAME_BYTES / 2 || !find_on_disk(s, given, name, path))
        return false;
    if (s->uses(asker, path, user))
        snprintf(out, size, "the model \"%s\" is up here as %s", given, user);
    else
        snprintf(out, size, "the model \"%s\" is on the disk and not up: %s %s puts it up",
                 given, s->starts, name);
    return true;
}

/* ---- the request ------------------------------------------------------------------------- */

static void refuse(const struct ollama_client *c, int status, const char *sentence) {
    reply_json(c->request, status, ollama_error(status, ERR_NONE, sentence, ""));
}

static void refuse_with(const struct ollama_client *c, enum status st, const struct err *err) {
    refuse(c, managing_status(st), err->text);
}

static void done(const struct ollama_client *c) {
    http_reply(c->request, 200, "application/json", "", 0);
}

/* Whether this client may; else it has been told why not. */
static bool may_change(const struct ollama_client *c) {
    int status;
    const char *why = managing_why_not_from_page(c->request, &status);
    if (why == NULL && !c->manages) {
        why = c->why_not;
        status = 403;
    }
    if (why != NULL)
        refuse(c, status, why);
    return why == NULL;
}

/* A name, which may be called otherwise. */
static const char *need_name(struct params *p, const char *field, const char *older) {
    const char *name = NULL;
    param_text(p, field, &name);
    if (name == NULL && older != NULL)
        param_text(p, older, &name);
    if (p->st != ST_OK)
        return NULL;
    if (name == NULL || *name == '\0')
        params_fail(p, field, "the request has no \"%s\"", field);
    else if (strlen(name) >= NAME_BYTES / 2)
        params_fail(p, field, "\"%s\" is too long for the name of a model", field);
    return name;
}

/* Of a request that was read: whether it is good; else the client has been told why not. */
static bool is_good(const struct ollama_client *c, const struct params *p) {
    if (p->st != ST_OK)
        reply_error(c->request, &ollama_dialect, p->st, &p->err, p->field);
    return p->st == ST_OK;
}

/* ---- pull -------------------------------------------------------------------------------- */

static void say_success(const struct ollama_client *c, bool stream) {
    static const char line[] = "{\"status\":\"success\"}\n";
    http_reply(c->request, 200, stream ? "application/x-ndjson" : "application/json", line,
               sizeof line - 1);
}

static void pull_named(struct ollama_store *s, const struct ollama_client *c, const char *name,
                       bool stream) {
    struct hub_name which;
    struct err err;
    char next[NAME_BYTES + 64];
    enum status st = hub_name_parse(&which, name, &err);
    if (st != ST_OK) {
        refuse_with(c, st, &err);
    } else if (atomic_fetch_add(&s->n_pulls, 1) >= PULLS_MAX) {
        atomic_fetch_sub(&s->n_pulls, 1);
        refuse(c, 503, "as many models as may be are being pulled already");
    } else {
        snprintf(next, sizeof next, "to use it: %s %s", s->starts, name);
        ollama_pull_from_hub(c, &which, stream, next);
        atomic_fetch_sub(&s->n_pulls, 1);
    }
}

/* Of a model that is none of the hub's: good if it is on the disk, for who may know that. */
static void pull_other(const struct ollama_store *s, const struct ollama_client *c,
                       const char *given, bool stream) {
    char name[NAME_BYTES], path[PATH_MAX];
    struct err err;
    if (c->manages && find_on_disk(s, given, name, path)) {
        say_success(c, stream);
        return;
    }
    err_set(&err, ST_NOT_FOUND,
            "the model \"%s\" does not exist here, and Ollama's library is not asked: pull "
            "hf.co/ORG/REPO:QUANT, such as hf.co/Qwen/Qwen3-0.6B-GGUF:Q8_0, which comes from "
            "Hugging Face",
            given);
    refuse_with(c, ST_NOT_FOUND, &err);
}

/* Clients fetch a model that they do not find under the name that they were given, such as one
 * without its tag. The one that is served is there already, for all who may use it. */
static void pull(struct ollama_store *s, const struct ollama_client *c) {
    struct params p;
    bool stream = true, insecure = false; /* the hub's certificate is looked at anyway */
    const char *given = NULL;
    char name[NAME_BYTES];
    if (params_init(&p, c->request)) {
        given = need_name(&p, "model", "name");
        param_bool(&p, "stream", &stream);
        param_bool(&p, "insecure", &insecure);
    }
    if (!is_good(c, &p))
        ;
    else if (s->is_served(c->asker, given))
        say_success(c, stream);
    else if (!hub_name_of(given, name))
        pull_other(s, c, given, stream);
    else if (may_change(c))
        pull_named(s, c, name, stream);
    params_deinit(&p);
}

/* ---- delete, copy ------------------------------------------------------------------------ */

/* A model that is served, or whose files one reads that is, stays. */
static enum status check_unused(const struct ollama_store *s, const struct ollama_client *c,
                                const char *given, const char *path, struct err *err) {
    char user[OLLAMA_SERVED_BYTES];
    if (s->is_served(c->asker, given))
        return err_set(err, ST_REFUSED,
                       "the model \"%s\" is up, and not deleted before it is down", given);
    if (path != NULL && s->uses(c->asker, path, user))
        return err_set(
            err, ST_REFUSED,
            "the model \"%s\" is what is up as %s, and not deleted before it is down", given,
            user);
    return ST_OK;
}

static enum status delete_named(const struct ollama_store *s, const struct ollama_client *c,
                                const char *given, struct err *err) {
    char name[NAME_BYTES], path[PATH_MAX];
    uint64_t bytes;
    without_latest(given, name);
    enum status st = s->forget != NULL ? s->forget(c->asker, name, err) : ST_NOT_FOUND;
    if (st != ST_NOT_FOUND)
        return st;
    TRY(check_unused(s, c, given, NULL, err));
    if (!find_on_disk(s, given, name, path))
        return err_set(err, ST_NOT_FOUND, "model '%s' not found", given);
    TRY(check_unused(s, c, given, path, err));
    return model_remove(s->folder, name, &bytes, err);
}

static void delete (struct ollama_store *s, const struct ollama_client *c) {
    struct params p;
    struct err err;
    const char *given = NULL;
    if (params_init(&p, c->request))
        given = need_name(&p, "model", "name");
    if (is_good(c, &p) && may_change(c)) {
        enum status st = delete_named(s, c, given, &err);
        if (st == ST_OK)
            done(c);
        else
            refuse_with(c, st, &err);
    }
    params_deinit(&p);
}

static void copy_named(struct ollama_store *s, const struct ollama_client *c,
                       const char *source, const char *destination) {
    char name[NAME_BYTES];
    struct err err;
    if (s->copy == NULL) {
        refuse(
            c, 501,
            "this server has one model, and a name for it: lockstep serve --alias NAME gives "
            "it another one (models of lockstep up may have several)");
        return;
    }
    without_latest(destination, name);
    enum status st = s->copy(c->asker, source, name, &err);
    if (st == ST_OK)
        done(c);
    else
        refuse_with(c, st, &err);
}

static void copy(struct ollama_store *s, const struct ollama_client *c) {
    struct params p;
    const char *source = NULL, *destination = NULL;
    if (params_init(&p, c->request)) {
        source = need_name(&p, "source", NULL);
        destination = need_name(&p, "destination", NULL);
    }
    if (is_good(c, &p) && may_change(c))
        copy_named(s, c, source, destination);
    params_deinit(&p);
}

/* ---- what there is not ------------------------------------------------------------------- */

static void push(struct ollama_store *s, const struct ollama_client *c) {
    (void)s;
    refuse(c, 501, "/api/push is not supported: models come from a hub, and go to none");
}

static void create(struct ollama_store *s, const struct ollama_client *c) {
    (void)s;
    refuse(c, 501,
           "/api/create and /api/blobs are not supported: lockstep quantize makes a model of "
           "another weight type, and a request says the system message and the settings");
}

/* ---- the paths --------------------------------------------------------------------------- */

static const struct {
    const char *method, *path; /* method NULL: any; a path that ends in '/': all below it */
    void (*answer)(struct ollama_store *s, const struct ollama_client *c);
} paths[] = {{"POST", "/api/pull", pull},   {"DELETE", "/api/delete", delete},
             {"POST", "/api/copy", copy},   {NULL, "/api/push", push},
             {NULL, "/api/create", create}, {NULL, "/api/blobs/", create}};

/* A slash at the path's end changes nothing. ARRAY_LEN(paths): none of these. */
static size_t place_of(const char *path) {
    size_t i = 0;
    for (; i < ARRAY_LEN(paths); i++) {
        size_t n = strlen(paths[i].path);
        if (strncmp(path, paths[i].path, n) == 0 &&
            (paths[i].path[n - 1] == '/' || path[n] == '\0' || str_eq(path + n, "/")))
            break;
    }
    return i;
}

bool ollama_store_has(const char *path) {
    return place_of(path) < ARRAY_LEN(paths);
}

bool ollama_store_takes_long(const char *path) {
    return place_of(path) == 0;
}

void ollama_store_answer(struct ollama_store *s, const struct ollama_client *c) {
    size_t i = place_of(http_path(c->request));
    if (paths[i].method == NULL || str_eq(paths[i].method, http_method(c->request))) {
        paths[i].answer(s, c);
        return;
    }
    http_set_header(c->request, "Allow", paths[i].method);
    refuse(c, 405, "this path does not support that method");
}
