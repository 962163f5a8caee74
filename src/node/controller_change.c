/* controller_change.c: what people change from a page or a program, at the deployments' ports: puts
 * up, takes down, moves, and tells what another placement would give. */
#include "node/controller_change.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "cluster/catalog.h"
#include "hub/stores.h"
#include "node/overview_internal.h"

#include <stdio.h>
#include <time.h>

/* ---- what there is ----------------------------------------------------------------------- */

/* {"name", "id"} of one that is up. */
static json_t *name_and_id(struct controller *k, const char *name) {
    char id[DEPLOYMENTS_DIGEST_BYTES] = "";
    pthread_mutex_lock(&k->lock);
    const struct deployment *one = deployments_find(&k->list, name);
    if (one != NULL)
        deployment_digest(one, id);
    pthread_mutex_unlock(&k->lock);
    return json_pack("{s:s, s:s}", "name", name, "id", id);
}

static enum status need_text(const json_t *wish, const char *key, const char **out,
                             struct err *err) {
    *out = json_string_value(json_object_get(wish, key));
    return *out != NULL && **out != '\0'
               ? ST_OK
               : err_set(err, ST_BAD_INPUT, "the request has no \"%s\"", key);
}

static enum status find_seen(const struct change *c, const char *name, struct err *err) {
    return c->sees(c->user, name)
               ? ST_OK
               : err_set(err, ST_NOT_FOUND, "no deployment is called %.80s", name);
}

/* ---- down, move -------------------------------------------------------------------------- */

static enum status remove_named(struct deployments *d, const json_t *wish, struct err *err) {
    return deployments_remove(d, json_text(wish, "name"), err);
}

static enum status take_down(const struct change *c, json_t **out, struct err *err) {
    const char *name;
    TRY(need_text(c->wish, "name", &name, err));
    TRY(find_seen(c, name, err));
    TRY(controller_change_list(c->k, remove_named, c->wish, NULL, err));
    *out = json_pack("{s:s}", "name", name);
    return ST_OK;
}

static enum status move_named(struct deployments *d, const json_t *wish, struct err *err) {
    return deployments_move(d, json_text(wish, "name"), json_text(wish, "node"), err);
}

/* Under the lock: what that node reports; NULL: it is not there. */
static const struct node_report *report_by(const struct controller *k, const char *node) {
    if (str_eq(node, k->name))
        return &k->self_report;
    for (size_t i = 0; i < k->n_others; i++)
        if (str_eq(k->others[i].name, node))
            return &k->others[i].report;
    return NULL;
}

/* Whether it could serve it. *serves: it does already. */
static enum status check_target(struct controller *k, const char *name, const char *node,
                                bool *serves, struct err *err) {
    enum status st = ST_OK;
    pthread_mutex_lock(&k->lock);
    const struct node_report *report = report_by(k, node);
    const struct run_report *run = report != NULL ? report_of(report, name) : NULL;
    *serves = run != NULL && run->term > 0;
    if (run == NULL)
        st = err_set(err, ST_NOT_FOUND, "no node is called %.80s", node);
    else if (!*serves && (report_able(report, name) == NULL || run->standby != STANDBY_READY))
        st = err_set(err, ST_REFUSED, "%s cannot serve %s: %s", node, name,
                     run->standby_sentence[0] != '\0' ? run->standby_sentence
                                                      : "it takes no part in it");
    pthread_mutex_unlock(&k->lock);
    return st;
}

static enum status move(const struct change *c, json_t **out, struct err *err) {
    const char *name, *node;
    bool serves;
    TRY(need_text(c->wish, "name", &name, err));
    TRY(need_text(c->wish, "node", &node, err));
    TRY(find_seen(c, name, err));
    TRY(check_target(c->k, name, node, &serves, err));
    if (!serves)
        TRY(controller_change_list(c->k, move_named, c->wish, NULL, err));
    *out = name_and_id(c->k, name);
    return ST_OK;
}

/* ---- up ---------------------------------------------------------------------------------- */

/* A model that is to be put up: where it is, and its files. */
struct offer {
    json_t *files; /* owned */
    char hint[PATH_MAX], node[64];
};

static enum status find_here(const struct change *c, const char *name, struct offer *out,
                             struct err *err) {
    struct model_files files;
    json_t *catalog = catalog_read_all(c->k->models);
    const char *path = catalog_find(catalog, name);
    snprintf(out->hint, sizeof out->hint, "%s", path != NULL ? path : "");
    json_decref(catalog);
    if (out->hint[0] == '\0')
        return ST_NOT_FOUND;
    TRY(model_files_read(&files, out->hint, err));
    out->files = model_files_json(&files);
    model_files_deinit(&files);
    snprintf(out->node, sizeof out->node, "%s", c->k->name);
    return out->files != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory for a model");
}

/* The address of a node that tells of a model of that name, and its name; false: none does. */
static bool find_holder(const struct change *c, const char *name, char node[64],
                        char address[NET_TEXT_BYTES]) {
    struct overview *v = c->k->overview;
    bool found = false;
    pthread_mutex_lock(&v->lock);
    for (size_t i = 0; i < v->n_seen && !found; i++) {
        const struct seen_node *s = v->seen[i];
        found = s->state == SEEN_HERE && s->address[0] != '\0' &&
                catalog_find(json_object_get(s->told, "models"), name) != NULL;
        if (found) {
            snprintf(node, 64, "%s", s->name);
            memcpy(address, s->address, NET_TEXT_BYTES);
        }
    }
    pthread_mutex_unlock(&v->lock);
    return found;
}

/* The first line is the offer; it exists until we hang up. */
static bool hear_offer(void *user, char *line) {
    struct offer *out = user;
    json_t *said = json_loads(line, 0, NULL);
    out->files = json_incref(json_object_get(said, "model"));
    snprintf(out->hint, sizeof out->hint, "%s", json_text(said, "path"));
    json_decref(said);
    return false;
}

static enum status find_elsewhere(const struct change *c, const char *name, struct offer *out,
                                  struct err *err) {
    char address[NET_TEXT_BYTES];
    struct client *client;
    const struct client_stream to = {hear_offer, out};
    if (!find_holder(c, name, out->node, address))
        return err_set(err, ST_NOT_FOUND, "no node has a model called %.100s", name);
    json_t *question = json_pack("{s:s}", "name", name);
    enum status st = client_open(&client, c->k->id, address, err);
    if (st == ST_OK) {
        st = client_lines(client, "/v1/models/offer", question, &to, err);
        client_close(client);
    }
    json_decref(question);
    if (out->files != NULL)
        return ST_OK;
    return st != ST_OK && st != ST_CANCELLED
               ? st
               : err_set(err, ST_IO, "%s offers no model", out->node);
}

static void add_word(json_t *words, const char *option, const json_t *value) {
    if (json_is_false(value) || json_is_null(value))
        return;
    json_array_append_new(words, json_sprintf("--%s", option));
    if (json_is_string(value))
        json_array_append(words, (json_t *)(uintptr_t)value);
    else if (json_is_integer(value))
        json_array_append_new(words,
                              json_sprintf("%lld", (long long)json_integer_value(value)));
    else if (json_is_real(value))
        json_array_append_new(words, json_sprintf("%.15g", json_real_value(value)));
}

/* {"ctx": 4096} as the words of lockstep serve, of which only some may be said
 * (controller_config's check_words). */
static enum status words_of(const json_t *options, const char *name, json_t **out,
                            struct err *err) {
    const char *option;
    json_t *value;
    if (options != NULL && !json_is_object(options))
        return err_set(err, ST_BAD_INPUT, "\"options\" is not an object");
    *out = json_array();
    json_object_foreach((json_t *)(uintptr_t)options, option, value) {
        if (json_is_object(value) || json_is_array(value) || str_eq(option, "alias") ||
            str_eq(option, "port")) {
            json_decref(*out);
            return err_set(err, ST_BAD_INPUT, "\"options\" may not say %.60s so", option);
        }
        add_word(*out, option, value);
    }
    json_array_append_new(*out, json_string("--alias"));
    json_array_append_new(*out, json_string(name));
    return ST_OK;
}

/* Of the deployment at whose port it is asked, the first that the asker sees: keys, certificate. */
static enum status take_from_neighbour(const struct change *c, json_t *wish, struct err *err) {
    const struct deployment *first = NULL;
    pthread_mutex_lock(&c->k->lock);
    for (size_t i = 0; i < c->k->list.n; i++) {
        const struct deployment *one = c->k->list.list[i];
        if (one->up && one->port == c->port && c->sees(c->user, one->name) &&
            (first == NULL || one->since < first->since))
            first = one;
    }
    if (first != NULL) {
        json_object_set_new(wish, "port", json_integer(first->port));
        json_object_set_new(wish, "tls", json_boolean(first->tls));
        json_object_set_new(wish, "files",
                            json_deep_copy(json_object_get(first->json, "files")));
        if (deployment_file(first, "api-key-file") == NULL)
            json_array_append_new(json_object_get(wish, "args"), json_string("--insecure"));
    }
    pthread_mutex_unlock(&c->k->lock);
    return first != NULL ? ST_OK : err_set(err, ST_NOT_FOUND, "no deployment has this port");
}

/* Whether the words may be said, and the rest has the form. */
static enum status check(const struct change *c, const json_t *wish, struct err *err) {
    struct deployment *d;
    TRY(deployment_parse(&d, wish, err));
    enum status st = c->k->check_words(d->args, d->n_args, err);
    deployment_free(d);
    return st;
}

static bool has_copies(const json_t *options) {
    return !str_eq(json_text(options, "weights"), "stream");
}

static enum status put_offer(const struct change *c, const char *name, const char *nodes,
                             const struct offer *offer, struct err *err) {
    const json_t *options = json_object_get(c->wish, "options");
    json_t *words = NULL, *wish;
    TRY(words_of(options, name, &words, err));
    wish = json_pack("{s:s, s:i, s:s, s:I, s:s, s:b, s:O, s:s, s:o}", "name", name, "version",
                     1, "home", offer->node, "since", (json_int_t)time(NULL), "nodes", nodes,
                     "copies", has_copies(options), "model", offer->files, "hint", offer->hint,
                     "args", words);
    enum status st = wish != NULL ? take_from_neighbour(c, wish, err)
                                  : err_set(err, ST_BAD_INPUT, "the model's path is no text");
    if (st == ST_OK)
        st = check(c, wish, err);
    if (st == ST_OK)
        st = controller_change_list(c->k, deployments_put, wish,
                                    str_eq(offer->node, c->k->name) ? name : NULL, err);
    json_decref(wish);
    return st;
}

/* As lockstep up has it: of "hf:ORG/REPO:QUANT" it is REPO, of "ollama:NAME:TAG" NAME. */
static const char *default_name(const char *model, char *out, size_t size) {
    if (!stores_is_name(model))
        return model;
    const char *slash = strrchr(model, '/'),
               *begin = slash != NULL ? slash : strchr(model, ':');
    snprintf(out, size, "%.*s", (int)strcspn(begin + 1, ":"), begin + 1);
    return out;
}

static enum status put_up(const struct change *c, json_t **out, struct err *err) {
    const char *model, *nodes = json_string_value(json_object_get(c->wish, "nodes"));
    const char *name = json_string_value(json_object_get(c->wish, "name"));
    struct offer offer = {.files = NULL};
    TRY(need_text(c->wish, "model", &model, err));
    char bare[REPORT_NAME_BYTES];
    name = name != NULL ? name : default_name(model, bare, sizeof bare);
    if (!deployment_name_is_good(name))
        return err_set(err, ST_BAD_INPUT,
                       "%.80s is not a valid name for a deployment: " DEPLOYMENT_NAME_RULE,
                       name);
    enum status st = find_here(c, model, &offer, err);
    if (st == ST_NOT_FOUND)
        st = find_elsewhere(c, model, &offer, err);
    if (st == ST_OK)
        st = put_offer(c, name, nodes != NULL && *nodes != '\0' ? nodes : "auto", &offer, err);
    json_decref(offer.files);
    if (st == ST_OK)
        *out = name_and_id(c->k, name);
    return st;
}

/* ---- plan -------------------------------------------------------------------------------- */

/* Is every word one of the names, and every name one of the words? */
static bool are_just(const char *words, const json_t *names) {
    size_t i, n = 0;
    json_t *name;
    for (const char *at = words; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        n++;
    }
    json_array_foreach((json_t *)(uintptr_t)names, i, name) {
        if (!json_is_string(name) || !str_list_has(words, json_string_value(name)))
            return false;
    }
    return n == json_array_size(names);
}

/* What the server has measured when it began. */
static json_t *measured_of(const struct change *c, const char *name) {
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

static enum status plan(const struct change *c, json_t **out, struct err *err) {
    const char *name, *nodes = json_string_value(json_object_get(c->wish, "nodes"));
    json_t *one, *list = json_array();
    size_t i;
    enum status st = need_text(c->wish, "name", &name, err);
    if (st == ST_OK)
        st = find_seen(c, name, err);
    json_t *all = st == ST_OK ? measured_of(c, name) : NULL;
    json_array_foreach(all, i, one) {
        if (nodes == NULL || are_just(nodes, json_object_get(one, "nodes")))
            json_array_append(list, one);
    }
    json_decref(all);
    if (st == ST_OK)
        *out =
            json_pack("{s:s, s:s, s:O}", "name", name, "sentence",
                      json_array_size(list) > 0
                          ? "predicted from what the machines measured when the server began"
                          : "nothing was measured for these machines: lockstep plan predicts "
                            "it from numbers",
                      "candidates", list);
    json_decref(list);
    return st;
}

/* ---- which ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum status (*run)(const struct change *c, json_t **out, struct err *err);
} changes[] = {{"up", put_up}, {"down", take_down}, {"move", move}, {"plan", plan}};

bool change_is_known(const char *what) {
    for (size_t i = 0; i < ARRAY_LEN(changes); i++)
        if (str_eq(changes[i].name, what))
            return true;
    return false;
}

enum status change_make(const struct change *c, const char *what, json_t **out,
                        struct err *err) {
    for (size_t i = 0; i < ARRAY_LEN(changes); i++)
        if (str_eq(changes[i].name, what))
            return changes[i].run(c, out, err);
    return err_set(err, ST_NOT_FOUND, "there is no change of that name");
}
