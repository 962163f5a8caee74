/* model_names.c: Turns a model's name into a path on this machine, or finds a node that offers
 * the model. */
#include "cli/model_names.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "cli/nodes.h"
#include "cluster/catalog.h"
#include "cluster/client.h"
#include "cluster/model_files.h"
#include "cluster/store.h"
#include "hub/stores.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* ---- on this machine --------------------------------------------------------------------- */

static json_t *own_models(void) {
    char store[PATH_MAX];
    struct err ignored;
    return store_path(store, sizeof store, &ignored) == ST_OK ? catalog_read(store) : NULL;
}

static json_t *models_of_own_node(void) {
    struct identity id;
    struct err ignored;
    if (nodes_identity(&id, &ignored) != ST_OK)
        return NULL;
    json_t *answer = NULL;
    (void)client_get(&id, "127.0.0.1", "/v1/models", &answer, &ignored);
    json_t *models = json_incref(json_object_get(answer, "models"));
    json_decref(answer);
    identity_deinit(&id);
    return models;
}

/* The name of one of these models that `word` may be meant for, if it is nearer than *distance. */
static void find_near(const json_t *models, const char *word, char *out, size_t size,
                      int *distance) {
    size_t i, n = strlen(word);
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)models, i, one) {
        const char *name = json_text(one, "name");
        int d = n >= 3 && str_starts(name, word) ? 1 : cli_edit_distance(word, n, name);
        if (d < *distance) {
            *distance = d;
            snprintf(out, size, "%s", name);
        }
    }
}

/* Is it meant for a model of the hub, ORG/REPO, and not for a file below a folder? */
static bool is_of_hub(const char *word) {
    const char *slash = strchr(word, '/');
    char folder[256];
    if (slash == NULL || slash == word || strchr(slash + 1, '/') != NULL || slash[1] == '\0' ||
        word[0] == '.' || word[0] == '~' || str_ends(word, ".gguf"))
        return false;
    int n = snprintf(folder, sizeof folder, "%.*s", (int)(slash - word), word);
    return n < (int)sizeof folder && access(folder, F_OK) != 0;
}

static enum status not_here(const char *word, const char *near, struct err *err) {
    if (*near != '\0')
        return err_set(
            err, ST_NOT_FOUND,
            "%s: no such file, and no model of that name on this machine (did you mean "
            "%s?)",
            word, near);
    if (strchr(word, ':') != NULL)
        return err_set(
            err, ST_NOT_FOUND,
            "%s: no such file, and no model of that name on this machine (a model of "
            "Ollama is ollama:NAME:TAG, one of the hub hf:ORG/REPO:QUANT)",
            word);
    return err_set(
        err, ST_NOT_FOUND,
        "%s: no such file, and no model of that name on this machine (lockstep models "
        "lists the cluster's, lockstep fetch copies one here, lockstep pull downloads "
        "one)",
        word);
}

enum status models_here(const char **word, struct err *err) {
    static char path[PATH_MAX];
    const char *found = NULL;
    char near[256] = "";
    int distance = 3;
    if (stores_is_name(*word) && access(*word, F_OK) != 0) {
        TRY(stores_find(*word, path, err));
        *word = path;
        return ST_OK;
    }
    if (access(*word, F_OK) != 0 && is_of_hub(*word))
        return err_set(
            err, ST_NOT_FOUND,
            "%s: no such file (a model of Hugging Face's hub is hf:%s; lockstep pull %s "
            "downloads it)",
            *word, *word, *word);
    if (strchr(*word, '/') != NULL || access(*word, F_OK) == 0)
        return ST_OK;
    for (int of_node = 0; of_node < 2 && found == NULL; of_node++) {
        json_t *models = of_node ? models_of_own_node() : own_models();
        found = catalog_find(models, *word);
        if (found != NULL)
            snprintf(path, sizeof path, "%s", found);
        else
            find_near(models, *word, near, sizeof near, &distance);
        json_decref(models);
    }
    if (found == NULL)
        return not_here(*word, near, err);
    *word = path;
    return ST_OK;
}

/* ---- in the cluster ---------------------------------------------------------------------- */

/* The place for a model of this name and size; borrowed. */
static json_t *entry_of(json_t *all, const json_t *model) {
    size_t i;
    json_t *one;
    json_array_foreach(all, i, one) {
        if (str_eq(json_text(one, "name"), json_text(model, "name")) &&
            json_integer_value(json_object_get(one, "bytes")) ==
                json_integer_value(json_object_get(model, "bytes")))
            return one;
    }
    one = json_pack("{s:O, s:O, s:O, s:[]}", "name", json_object_get(model, "name"), "bytes",
                    json_object_get(model, "bytes"), "files", json_object_get(model, "files"),
                    "nodes");
    if (one != NULL)
        json_array_append_new(all, one);
    return one;
}

/* node NULL: this machine, which has none. */
static void add_models(json_t *all, const json_t *models, const char *node,
                       const char *address) {
    size_t i;
    json_t *model;
    json_array_foreach((json_t *)(uintptr_t)models, i, model) {
        json_t *place = json_pack("{s:s?, s:O?, s:s*, s:O*}", "node", node, "path",
                                  json_object_get(model, "path"), "address", address, "used",
                                  json_object_get(model, "used"));
        json_array_append_new(json_object_get(entry_of(all, model), "nodes"), place);
    }
}

/* *here: a node of this machine is among them. */
static void add_answers(json_t *all, const json_t *answers, bool *here) {
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)answers, i, one) {
        const char *error = json_string_value(json_object_get(one, "error"));
        *here |= nodes_is_this_machine(json_string_value(json_object_get(one, "machine")));
        if (error != NULL)
            fprintf(stderr, "%s: %s\n", json_text(one, "name"), error);
        else
            add_models(all, json_object_get(one, "models"), json_text(one, "name"),
                       json_text(one, "address"));
    }
}

static bool is_name_of(const json_t *answers, const char *name) {
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)answers, i, one) {
        if (str_eq(json_text(one, "name"), name))
            return true;
    }
    return false;
}

/* What the node at that address has, which may have been heard, too. */
static void add_named(json_t *all, const json_t *answers, const struct identity *id,
                      const char *address, bool *here) {
    json_t *facts = NULL, *models = NULL;
    struct err err;
    if (is_name_of(answers, address))
        return;
    if (client_get(id, address, "/v1/node", &facts, &err) != ST_OK ||
        client_get(id, address, "/v1/models", &models, &err) != ST_OK)
        fprintf(stderr, "%s\n", err.text);
    if (models != NULL && !is_name_of(answers, json_text(facts, "name"))) {
        *here |= nodes_is_this_machine(json_string_value(json_object_get(facts, "machine")));
        add_models(all, json_object_get(models, "models"), json_text(facts, "name"), address);
    }
    json_decref(facts);
    json_decref(models);
}

static enum status ask_cluster(json_t *all, const struct identity *id, const char *also,
                               bool *here, struct err *err) {
    json_t *found;
    size_t n_strangers;
    char stranger[NET_TEXT_BYTES];
    TRY(nodes_find(id, NULL, &found, stranger, &n_strangers, err));
    json_t *answers = nodes_ask_all(id, found, "/v1/models");
    json_decref(found);
    add_answers(all, answers, here);
    if (also != NULL)
        add_named(all, answers, id, also, here);
    json_decref(answers);
    return ST_OK;
}

enum status models_everywhere(json_t **out, const char *also, struct err *err) {
    struct identity id;
    bool here = false;
    json_t *all = json_array();
    enum status st = nodes_identity(&id, err);
    if (st == ST_OK) {
        st = ask_cluster(all, &id, also, &here, err);
        identity_deinit(&id);
    } else if (st == ST_NOT_FOUND) {
        st = ST_OK;
    }
    if (st == ST_OK && !here) {
        json_t *own = own_models();
        add_models(all, own, NULL, NULL);
        json_decref(own);
    }
    if (st == ST_OK)
        *out = catalog_sorted(all);
    json_decref(all);
    return st;
}

/* Fills *out from a place where the model is, unless that is not the one that is asked for. */
static bool holds(struct models_holder *out, const json_t *model, const json_t *place,
                  const char *from) {
    char host[NET_TEXT_BYTES];
    const char *node = json_text(place, "node"), *address = json_text(place, "address");
    if (*address == '\0' ||
        (from != NULL && !str_eq(from, node) && !str_eq(from, address) &&
         !(nodes_host_of(address, host, sizeof host) && str_eq(from, host))))
        return false;
    snprintf(out->node, sizeof out->node, "%s", node);
    snprintf(out->address, sizeof out->address, "%s", address);
    out->bytes = (uint64_t)json_integer_value(json_object_get(model, "bytes"));
    return true;
}

static enum status choose(struct models_holder *out, const json_t *all, const char *bare,
                          const char *from, struct err *err) {
    size_t i, k;
    json_t *model, *place;
    const char *path = ""; /* of the one that is found, on its node */
    bool found = false;
    json_array_foreach((json_t *)(uintptr_t)all, i, model) {
        if (!str_eq(json_text(model, "name"), bare))
            continue;
        json_array_foreach(json_object_get(model, "nodes"), k, place) {
            struct models_holder one;
            char size[32], other[32];
            if (!holds(&one, model, place, from))
                continue;
            /* Which of its own a node offers by that name. */
            bool of_same = found && from != NULL && str_eq(one.address, out->address);
            if (of_same && catalog_compare_paths(path, json_text(place, "path")) <= 0)
                continue;
            if (found && !of_same && one.bytes != out->bytes)
                return err_set(err, ST_BAD_INPUT,
                               "two models are called %s: one of %s on %s, one of %s on %s "
                               "(lockstep fetch %s --from NODE takes one of them)",
                               bare, cli_bytes(out->bytes, size), out->node,
                               cli_bytes(one.bytes, other), one.node, bare);
            if (!found || of_same) {
                *out = one;
                path = json_text(place, "path");
            }
            found = true;
        }
    }
    return found ? ST_OK
                 : err_set(err, ST_NOT_FOUND,
                           "no node%s%s has a model called %s (lockstep models lists them)",
                           from != NULL ? " called " : "", from != NULL ? from : "", bare);
}

enum status models_holder(struct models_holder *out, const char *name, const char *from,
                          const char *also, struct err *err) {
    json_t *all;
    TRY(models_everywhere(&all, also, err));
    char *bare = model_name_of(name);
    enum status st = bare != NULL ? choose(out, all, bare, from, err)
                                  : err_set(err, ST_NO_MEMORY, "no memory for a name");
    mem_free(bare);
    json_decref(all);
    return st;
}

/* ---- an offer ---------------------------------------------------------------------------- */

struct offered {
    enum status (*use)(void *user, const json_t *offer, struct err *err);
    void *user;
    enum status st;
    struct err *err;
};

/* The connection stays while it is used. */
static bool hear_offer(void *user, char *line) {
    struct offered *o = user;
    json_t *offer = json_loads(line, 0, NULL);
    o->st = offer != NULL ? o->use(o->user, offer, o->err)
                          : err_set(o->err, ST_IO, "the node's offer is not valid JSON");
    json_decref(offer);
    return false;
}

enum status models_offer(const struct identity *id, const struct models_holder *holder,
                         const char *name,
                         enum status (*use)(void *user, const json_t *offer, struct err *err),
                         void *user, struct err *err) {
    struct err why;
    struct offered o = {.use = use, .user = user, .st = ST_AGAIN, .err = err};
    const struct client_stream to = {hear_offer, &o};
    struct client *c;
    json_t *question = json_pack("{s:s}", "name", name);
    if (question == NULL)
        return err_set(err, ST_BAD_INPUT, "%s is not valid UTF-8 text", name);
    enum status st = client_open(&c, id, holder->address, &why);
    if (st == ST_OK) {
        st = client_lines(c, "/v1/models/offer", question, &to, &why);
        client_close(c);
    }
    json_decref(question);
    if (o.st != ST_AGAIN)
        return o.st;
    return err_set(err, st != ST_OK ? st : ST_IO, "%s: %s", holder->node,
                   st != ST_OK ? why.text : "it offered nothing");
}
