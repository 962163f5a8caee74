/* deployment.c: reads, checks and writes one deployment as JSON. */
#include "cluster/deployment.h"

#include "base/mem.h"
#include "base/util.h"
#include "weights/plan.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME_MAX_BYTES 63 /* DEPLOYMENT_NAME_RULE */
#define VERSION_MAX ((json_int_t)1 << 52)
#define IDLE_MAX_S ((json_int_t)100 * 366 * 86400)

bool deployment_name_is_good(const char *name) {
    size_t n = strlen(name);
    for (const char *c = name; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~' || *c == '/' || *c == ',')
            return false;
    return n >= 1 && n <= NAME_MAX_BYTES && *name != '.' && *name != '-';
}

bool deployment_parallel_is_good(const char *text) {
    static const char *const words[] = {"auto", "tensor", "pipeline", "one rank"};
    int n, pp, end = 0;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_eq(text, words[i]))
            return true;
    if (sscanf(text, "tensor%4d%n", &n, &end) != 1 || text[end] != '\0')
        (void)sscanf(text, "pipeline%4d%n", &n, &end);
    return (end > 0 && text[end] == '\0' && n >= 1 && n <= PLAN_MAX_RANKS) ||
           plan_parse_layout(text, &n, &pp);
}

/* ---- reading ----------------------------------------------------------------------------- */

static enum status read_args(struct deployment *d, const json_t *list, struct err *err) {
    size_t i;
    json_t *word;
    if (json_array_size(list) > DEPLOYMENT_ARGS_MAX)
        return err_set(err, ST_BAD_INPUT, "a deployment has more than %d words",
                       DEPLOYMENT_ARGS_MAX);
    d->args = mem_calloc(json_array_size(list) + 1, sizeof *d->args);
    if (d->args == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a deployment");
    json_array_foreach((json_t *)(uintptr_t)list, i, word) {
        if (!json_is_string(word) ||
            strlen(json_string_value(word)) != json_string_length(word))
            return err_set(err, ST_BAD_INPUT, "word %zu of a deployment is not a string", i);
        d->args[d->n_args++] = json_string_value(word);
    }
    return ST_OK;
}

static bool read_files(struct deployment *d, const json_t *files) {
    static const char *const options[DEPLOYMENT_FILES_MAX] = {"api-key-file", "tls-cert",
                                                              "tls-key"};
    const char *option;
    json_t *text;
    if (!json_is_object(files))
        return false;
    json_object_foreach((json_t *)(uintptr_t)files, option, text) {
        size_t i = 0;
        while (i < ARRAY_LEN(options) && !str_eq(option, options[i]))
            i++;
        if (!json_is_string(text) || i == ARRAY_LEN(options))
            return false;
        d->files[d->n_files++] = (struct deployment_file){options[i], json_string_value(text)};
    }
    return true;
}

/* The whole of it, or nothing. */
static bool read_layout(struct deployment *d) {
    const json_t *layout = json_object_get(d->json, "layout");
    if (layout == NULL)
        return true;
    d->layout_nodes = json_string_value(json_object_get(layout, "nodes"));
    d->layout_parallel = json_string_value(json_object_get(layout, "parallel"));
    return d->layout_nodes != NULL && *d->layout_nodes != '\0' && d->layout_parallel != NULL &&
           deployment_parallel_is_good(d->layout_parallel);
}

static enum status read_idle(struct deployment *d, struct err *err) {
    const json_t *idle = json_object_get(d->json, "idle");
    d->idle_s = json_integer_value(idle);
    return idle == NULL || (d->idle_s >= 1 && d->idle_s <= IDLE_MAX_S)
               ? ST_OK
               : err_set(err, ST_BAD_INPUT,
                         "the \"idle\" of the deployment %s is not a number of seconds",
                         d->name);
}

static enum status read_what_runs(struct deployment *d, struct err *err) {
    json_t *model, *args, *files;
    int tls, copies;
    if (json_unpack(d->json, "{s:s, s:i, s:b, s:s, s:b, s:o, s:s, s:o, s:o}", "home", &d->home,
                    "port", &d->port, "tls", &tls, "nodes", &d->nodes, "copies", &copies,
                    "model", &model, "hint", &d->hint, "args", &args, "files", &files) != 0 ||
        d->port < 1 || d->port > 65535 || !json_is_array(args) || !read_files(d, files) ||
        !read_layout(d))
        return err_set(
            err, ST_BAD_INPUT,
            "the deployment %s is not {\"home\": .., \"port\": .., \"tls\": .., "
            "\"nodes\": .., \"copies\": .., \"model\": .., \"hint\": .., \"args\": [..], "
            "\"files\": {..}}",
            d->name);
    TRY(read_args(d, args, err));
    TRY(read_idle(d, err));
    d->tls = tls;
    d->copies = copies;
    d->moved = json_is_true(json_object_get(d->json, "moved"));
    d->since = json_integer_value(json_object_get(d->json, "since"));
    return model_files_from_json(&d->model, model, err);
}

static enum status read_deployment(struct deployment *d, struct err *err) {
    int removed = 0;
    if (json_unpack(d->json, "{s:s, s:I, s?b, s?s}", "name", &d->name, "version", &d->version,
                    "removed", &removed, "of", &d->of) != 0 ||
        d->version < 1 || d->version > VERSION_MAX)
        return err_set(err, ST_BAD_INPUT,
                       "a deployment is {\"name\": .., \"version\": 1 or more, ..}");
    if (!deployment_name_is_good(d->name))
        return err_set(err, ST_BAD_INPUT,
                       "%.80s is not a valid name for a deployment: " DEPLOYMENT_NAME_RULE,
                       d->name);
    if (d->of != NULL && (removed || !deployment_name_is_good(d->of)))
        return err_set(err, ST_BAD_INPUT, "%s is a name of no deployment that can be", d->name);
    d->up = !removed && d->of == NULL;
    d->home = d->nodes = d->hint = "";
    return d->up ? read_what_runs(d, err) : ST_OK;
}

enum status deployment_parse(struct deployment **out, const json_t *json, struct err *err) {
    struct deployment *d = mem_calloc(1, sizeof *d);
    if (d == NULL || (d->json = json_deep_copy(json)) == NULL) {
        mem_free(d);
        return json != NULL ? err_set(err, ST_NO_MEMORY, "no memory for a deployment")
                            : err_set(err, ST_BAD_INPUT, "a deployment is an object");
    }
    enum status st = read_deployment(d, err);
    if (st == ST_OK)
        *out = d;
    else
        deployment_free(d);
    return st;
}

struct deployment *deployment_copy(const struct deployment *d) {
    struct deployment *copy;
    return deployment_parse(&copy, d->json, NULL) == ST_OK ? copy : NULL;
}

void deployment_free(struct deployment *d) {
    if (d == NULL)
        return;
    model_files_deinit(&d->model);
    mem_free(d->args);
    json_decref(d->json);
    mem_free(d);
}

/* ---- questions --------------------------------------------------------------------------- */

bool deployment_equal(const struct deployment *a, const struct deployment *b) {
    return json_equal(a->json, b->json);
}

bool deployment_same_layout(const struct deployment *a, const struct deployment *b) {
    if (a->layout_nodes == NULL || b->layout_nodes == NULL)
        return a->layout_nodes == b->layout_nodes;
    return str_eq(a->layout_nodes, b->layout_nodes) &&
           str_eq(a->layout_parallel, b->layout_parallel);
}

const char *deployment_file(const struct deployment *d, const char *option) {
    for (size_t i = 0; i < d->n_files; i++)
        if (str_eq(d->files[i].option, option))
            return d->files[i].text;
    return NULL;
}

void deployments_json_digest(const json_t *v, char out[DEPLOYMENTS_DIGEST_BYTES]) {
    uint8_t hash[(DEPLOYMENTS_DIGEST_BYTES - 1) / 2] = {0};
    char *text = json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS);
    if (text != NULL)
        crypto_generichash(hash, sizeof hash, (const uint8_t *)text, strlen(text), NULL, 0);
    free(text);
    sodium_bin2hex(out, DEPLOYMENTS_DIGEST_BYTES, hash, sizeof hash);
}

void deployment_digest(const struct deployment *d, char out[DEPLOYMENTS_DIGEST_BYTES]) {
    deployments_json_digest(d->json, out);
}
