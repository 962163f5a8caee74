/* controller_change.c: what people change from a page or a program, at the deployments' ports: puts
 * up, takes down, moves, and tells what another placement would give. */
#include "node/controller_change.h"

#include "base/duration.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "base/words.h"
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

enum status change_find_seen(const struct change *c, const char *name, struct err *err) {
    pthread_mutex_lock(&c->k->lock);
    const struct deployment *one = deployments_find(&c->k->list, name);
    bool is_up = one != NULL && one->up;
    pthread_mutex_unlock(&c->k->lock);
    return is_up && c->sees(c->user, name)
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
    TRY(change_find_seen(c, name, err));
    TRY(controller_change_list(c->k, remove_named, c->wish, NULL, err));
    *out = json_pack("{s:s}", "name", name);
    return ST_OK;
}

static enum status move_named(struct deployments *d, const json_t *wish, struct err *err) {
    const struct deployment_move to = {
        .node = json_string_value(json_object_get(wish, "node")),
        .nodes = json_string_value(json_object_get(wish, "nodes")),
        .parallel = json_string_value(json_object_get(wish, "parallel"))};
    return deployments_move(d, json_text(wish, "name"), &to, err);
}

enum status change_nodes(const json_t *wish, char out[CHANGE_NODES_BYTES], struct err *err) {
    const json_t *nodes = json_object_get(wish, "nodes");
    json_t *one;
    size_t i, n = 0;
    out[0] = '\0';
    if (json_is_string(nodes))
        n = (size_t)snprintf(out, CHANGE_NODES_BYTES, "%s", json_string_value(nodes));
    json_array_foreach((json_t *)(uintptr_t)nodes, i, one) {
        if (!json_is_string(one) || n >= CHANGE_NODES_BYTES)
            return err_set(err, ST_BAD_INPUT, "\"nodes\" is not a list of names");
        n += (size_t)snprintf(out + n, CHANGE_NODES_BYTES - n, "%s%s", i > 0 ? "," : "",
                              json_string_value(one));
    }
    bool good =
        nodes == NULL || json_is_null(nodes) || json_is_string(nodes) || json_is_array(nodes);
    return good && n < CHANGE_NODES_BYTES
               ? ST_OK
               : err_set(err, ST_BAD_INPUT, "\"nodes\" is not a list of names");
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

/* Under the lock: whether all of these nodes could compute it. nodes: those that are to take part
 * in what is not up yet; else NULL. */
static enum status check_nodes(const struct controller *k, const char *name, const char *nodes,
                               const char *words, struct err *err) {
    enum status st = ST_OK;
    char node[NET_TEXT_BYTES];
    while (st == ST_OK && words_take(&words, node, sizeof node)) {
        const struct node_report *report = report_by(k, node);
        if (report == NULL)
            st = err_set(err, ST_NOT_FOUND, "no node is called %s", node);
        else if (nodes != NULL ? !change_is_among(nodes, node)
                               : !report_of(report, name)->named)
            st = err_set(err, ST_REFUSED, "%s takes no part in %s", node, name);
    }
    return st;
}

/* Under the lock: of these nodes the one that serves it now, or else the first that could. */
static bool find_home(const struct controller *k, const char *name, const char *words,
                      char out[64]) {
    char node[NET_TEXT_BYTES];
    out[0] = '\0';
    while (words_take(&words, node, sizeof node)) {
        const struct node_report *report = report_by(k, node);
        const struct run_report *run = report != NULL ? report_of(report, name) : NULL;
        bool serves = run != NULL && run->term > 0;
        if (serves || (out[0] == '\0' && run != NULL && run->standby == STANDBY_READY &&
                       report_able(report, name) != NULL))
            snprintf(out, 64, "%.63s", node);
        if (serves)
            break;
    }
    return out[0] != '\0';
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

/* A layout that the server has measured, and that does not fit. */
static enum status check_fits(const struct change *c, const char *name, const char *nodes,
                              const char *parallel, struct err *err) {
    json_t *one, *all = change_measured(c, name);
    size_t i;
    enum status st = ST_OK;
    json_array_foreach(all, i, one) {
        if (json_is_false(json_object_get(one, "fits")) &&
            str_eq(json_text(one, "layout"), parallel) && change_is_of_nodes(one, nodes))
            st = err_set(err, ST_REFUSED, "%s on %s does not fit: %s", parallel, nodes,
                         json_text(one, "sentence"));
    }
    json_decref(all);
    return st;
}

static enum status read_parallel(const json_t *layout, const char **out, struct err *err) {
    *out = json_string_value(json_object_get(layout, "parallel"));
    *out = *out != NULL ? *out : "auto";
    if (deployment_parallel_is_good(*out))
        return ST_OK;
    return err_set(err, ST_BAD_INPUT,
                   "\"parallel\" is the layout of a candidate, auto, tensor, pipeline, or "
                   "something like tensor2xpipeline2");
}

/* Of a wish with a layout: its home, to `to`. */
static enum status choose_layout(const struct change *c, const char *name, const char *nodes,
                                 json_t *to, struct err *err) {
    const char *node = json_string_value(json_object_get(to, "node"));
    const char *parallel;
    char home[64];
    TRY(read_parallel(to, &parallel, err));
    if (str_eq(nodes, "auto"))
        return str_eq(parallel, "auto")
                   ? ST_OK
                   : err_set(err, ST_BAD_INPUT, "a layout names its nodes");
    if (node != NULL && !str_list_has(nodes, node))
        return err_set(err, ST_BAD_INPUT, "%.63s is to answer, but not among the nodes", node);
    pthread_mutex_lock(&c->k->lock);
    enum status st = check_nodes(c->k, name, NULL, nodes, err);
    if (st == ST_OK && !find_home(c->k, name, node != NULL ? node : nodes, home))
        st = err_set(err, ST_REFUSED, "none of these nodes can serve %s", name);
    pthread_mutex_unlock(&c->k->lock);
    if (st == ST_OK)
        st = check_fits(c, name, nodes, parallel, err);
    if (st == ST_OK)
        json_object_set_new(to, "node", json_string(home));
    return st;
}

/* Whether that is what it is: nothing begins again. */
static bool has_layout(struct controller *k, const char *name, const json_t *to) {
    const char *nodes = json_string_value(json_object_get(to, "nodes"));
    const char *parallel = json_string_value(json_object_get(to, "parallel"));
    pthread_mutex_lock(&k->lock);
    const struct deployment *one = deployments_find(&k->list, name);
    bool same = nodes == NULL;
    if (!same && one != NULL && one->up && str_eq(nodes, "auto"))
        same = one->layout_nodes == NULL;
    else if (!same && one != NULL && one->up && one->layout_nodes != NULL)
        same = str_eq(one->layout_nodes, nodes) &&
               str_eq(one->layout_parallel, parallel != NULL ? parallel : "auto");
    pthread_mutex_unlock(&k->lock);
    return same;
}

static enum status move_to(const struct change *c, const char *name, json_t *to,
                           struct err *err) {
    const char *nodes = json_string_value(json_object_get(to, "nodes")), *node;
    bool serves = true;
    if (nodes != NULL)
        TRY(choose_layout(c, name, nodes, to, err));
    else
        TRY(need_text(to, "node", &node, err));
    node = json_string_value(json_object_get(to, "node"));
    if (node != NULL)
        TRY(check_target(c->k, name, node, &serves, err));
    return serves && has_layout(c->k, name, to)
               ? ST_OK
               : controller_change_list(c->k, move_named, to, NULL, err);
}

static enum status move(const struct change *c, json_t **out, struct err *err) {
    const char *name;
    char nodes[CHANGE_NODES_BYTES];
    TRY(need_text(c->wish, "name", &name, err));
    TRY(change_find_seen(c, name, err));
    TRY(change_nodes(c->wish, nodes, err));
    json_t *to = json_copy((json_t *)(uintptr_t)c->wish);
    if (nodes[0] != '\0')
        json_object_set_new(to, "nodes", json_string(nodes));
    else
        json_object_del(to, "nodes");
    enum status st = move_to(c, name, to, err);
    json_decref(to);
    if (st == ST_OK)
        *out = name_and_id(c->k, name);
    return st;
}

/* ---- up ---------------------------------------------------------------------------------- */

/* A model that is to be put up: where it is, and its files; who takes part, and who computes. */
struct offer {
    json_t *files; /* owned */
    char hint[PATH_MAX], node[64], nodes[CHANGE_NODES_BYTES], layout[CHANGE_NODES_BYTES];
    const char *parallel;
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

static bool find_holder(struct controller *k, const char *name, const char *words,
                        char node[64], char address[NET_TEXT_BYTES]) {
    struct overview *v = k->overview;
    bool found = false;
    pthread_mutex_lock(&v->lock);
    for (size_t i = 0; i < v->n_seen && !found; i++) {
        const struct seen_node *s = v->seen[i];
        found = s->state == SEEN_HERE && s->address[0] != '\0' &&
                change_is_among(words, s->name) &&
                catalog_find(json_object_get(s->told, "models"), name) != NULL;
        if (found) {
            snprintf(node, 64, "%s", s->name);
            memcpy(address, s->address, NET_TEXT_BYTES);
        }
    }
    pthread_mutex_unlock(&v->lock);
    return found;
}

bool change_find_holder(struct controller *k, const char *name, const char *words,
                        char node[64], char address[NET_TEXT_BYTES]) {
    if (find_holder(k, name, words, node, address))
        return true;
    overview_hear_models(k->overview); /* it may have just come there */
    return find_holder(k, name, words, node, address);
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
    if (!change_find_holder(c->k, name, out->layout, out->node, address))
        return err_set(err, ST_NOT_FOUND, "no node%s has a model called %.100s",
                       out->layout[0] != '\0' ? " of the layout" : "", name);
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
        if (!str_eq(option, "idle")) /* add_idle() */
            add_word(*out, option, value);
    }
    json_array_append_new(*out, json_string("--alias"));
    json_array_append_new(*out, json_string(name));
    return ST_OK;
}

#define DEFAULT_PORT 8080 /* of lockstep up */

static int port_of_wish(const struct change *c) {
    const json_t *port = json_object_get(c->wish, "port");
    return c->port != 0 ? c->port : port != NULL ? (int)json_integer_value(port) : DEFAULT_PORT;
}

/* At the page of this machine: the key that clients are to show, or that they need none. */
static enum status take_key(const struct change *c, json_t *wish, struct err *err) {
    const char *key = json_string_value(json_object_get(c->wish, "api_key"));
    json_t *files = json_object();
    json_object_set_new(wish, "port", json_integer(port_of_wish(c)));
    json_object_set_new(wish, "tls", json_false());
    if (key != NULL && *key != '\0')
        json_object_set_new(files, "api-key-file", json_sprintf("%s\n", key));
    json_object_set_new(wish, "files", files);
    if (key != NULL && *key != '\0')
        return strpbrk(key, " \t\r\n") == NULL
                   ? ST_OK
                   : err_set(err, ST_BAD_INPUT, "an API key has no blanks");
    json_array_append_new(json_object_get(wish, "args"), json_string("--insecure"));
    return json_is_true(json_object_get(c->wish, "insecure"))
               ? ST_OK
               : err_set(err, ST_BAD_INPUT,
                         "every node answers at the port: say an \"api_key\", or \"insecure\": "
                         "true");
}

/* Of the deployment at whose port it is asked, the first that the asker sees: keys, certificate. */
static enum status take_from_neighbour(const struct change *c, json_t *wish, struct err *err) {
    const struct deployment *first = NULL;
    int port = port_of_wish(c);
    if (c->port == 0 && (json_object_get(c->wish, "api_key") != NULL ||
                         json_object_get(c->wish, "insecure") != NULL))
        return take_key(c, wish, err);
    pthread_mutex_lock(&c->k->lock);
    for (size_t i = 0; i < c->k->list.n; i++) {
        const struct deployment *one = c->k->list.list[i];
        if (one->up && one->port == port && c->sees(c->user, one->name) &&
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
    if (first == NULL && c->port == 0)
        return take_key(c, wish, err);
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

/* As --idle has it, or a number of seconds: no word of lockstep serve. */
static enum status add_idle(json_t *wish, const json_t *options, struct err *err) {
    const json_t *idle = json_object_get(options, "idle");
    int64_t ms =
        json_is_number(idle) ? duration_of_seconds(json_number_value(idle)) : DURATION_NEVER;
    if (json_is_string(idle) && !duration_parse(json_string_value(idle), &ms))
        return err_set(err, ST_BAD_INPUT,
                       "the option idle is a time such as 30m, or a number of seconds");
    if (ms > 0)
        json_object_set_new(wish, "idle", json_integer((ms + 999) / 1000));
    return ST_OK;
}

/* "layout": which of the nodes are to compute it ("": it says none), and how. */
static enum status read_layout(const struct change *c, const char *name, struct offer *out,
                               struct err *err) {
    const json_t *layout = json_object_get(c->wish, "layout");
    TRY(change_nodes(layout, out->layout, err));
    TRY(read_parallel(layout, &out->parallel, err));
    if (layout == NULL || json_is_null(layout))
        return ST_OK;
    if (change_is_among(out->layout, ""))
        return err_set(err, ST_BAD_INPUT, "a layout names its nodes");
    pthread_mutex_lock(&c->k->lock);
    enum status st = check_nodes(c->k, name, out->nodes, out->layout, err);
    pthread_mutex_unlock(&c->k->lock);
    return st;
}

static enum status put_offer(const struct change *c, const char *name,
                             const struct offer *offer, struct err *err) {
    const json_t *options = json_object_get(c->wish, "options");
    json_t *words = NULL, *wish;
    TRY(words_of(options, name, &words, err));
    wish = json_pack("{s:s, s:i, s:s, s:I, s:s, s:b, s:O, s:s, s:o}", "name", name, "version",
                     1, "home", offer->node, "since", (json_int_t)time(NULL), "nodes",
                     offer->nodes, "copies", has_copies(options), "model", offer->files, "hint",
                     offer->hint, "args", words);
    enum status st = wish != NULL ? take_from_neighbour(c, wish, err)
                                  : err_set(err, ST_BAD_INPUT, "the model's path is no text");
    if (offer->layout[0] != '\0')
        json_object_set_new(
            wish, "layout",
            json_pack("{s:s, s:s}", "nodes", offer->layout, "parallel", offer->parallel));
    if (st == ST_OK)
        st = add_idle(wish, options, err);
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
    const char *model, *name = json_string_value(json_object_get(c->wish, "name"));
    struct offer offer = {.files = NULL};
    TRY(need_text(c->wish, "model", &model, err));
    char bare[REPORT_NAME_BYTES];
    name = name != NULL ? name : default_name(model, bare, sizeof bare);
    if (!deployment_name_is_good(name))
        return err_set(err, ST_BAD_INPUT,
                       "%.80s is not a valid name for a deployment: " DEPLOYMENT_NAME_RULE,
                       name);
    TRY(change_nodes(c->wish, offer.nodes, err));
    if (offer.nodes[0] == '\0')
        snprintf(offer.nodes, sizeof offer.nodes, "auto");
    TRY(read_layout(c, name, &offer, err));
    enum status st = change_is_among(offer.layout, c->k->name)
                         ? find_here(c, model, &offer, err)
                         : ST_NOT_FOUND;
    if (st == ST_NOT_FOUND)
        st = find_elsewhere(c, model, &offer, err);
    if (st == ST_OK)
        st = put_offer(c, name, &offer, err);
    json_decref(offer.files);
    if (st == ST_OK)
        *out = name_and_id(c->k, name);
    return st;
}

/* ---- which ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum status (*run)(const struct change *c, json_t **out, struct err *err);
} changes[] = {{"up", put_up}, {"down", take_down}, {"move", move}, {"plan", change_plan}};

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

/* ---- asked with the cluster's key -------------------------------------------------------- */

static bool sees_all(void *user, const char *deployment) {
    (void)user, (void)deployment;
    return true;
}

static enum status answer(struct controller *k, const char *what, const json_t *wish,
                          json_t **out, struct err *err) {
    const struct change c = {.k = k, .wish = wish, .manages = true, .sees = sees_all};
    return change_make(&c, what, out, err);
}

static enum status answer_plan(struct controller *k, const json_t *wish, json_t **out,
                               struct err *err) {
    return answer(k, "plan", wish, out, err);
}

static enum status answer_move(struct controller *k, const json_t *wish, json_t **out,
                               struct err *err) {
    return answer(k, "move", wish, out, err);
}

static void run_plan(struct controller *k, struct http_request *r) {
    controller_answer(k, r, answer_plan);
}

static void run_move(struct controller *k, struct http_request *r) {
    controller_answer(k, r, answer_move);
}

void controller_handle_plan(struct controller *k, struct http_request *r) {
    controller_run_later(k, r, run_plan);
}

void controller_handle_move(struct controller *k, struct http_request *r) {
    controller_run_later(k, r, run_move);
}
