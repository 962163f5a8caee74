/* deployments.c: The list of deployments: merging, storing, and the choice of the node that
 * serves each. */
#include "cluster/deployments.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/util.h"
#include "cluster/model_files.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define NAME_MAX_BYTES 63 /* DEPLOYMENT_NAME_RULE */
#define ARGS_MAX 256
#define VERSION_MAX ((json_int_t)1 << 52)
#define FILE_MAX_BYTES ((size_t)8 << 20)
#define CANONICAL (JSON_COMPACT | JSON_SORT_KEYS)

enum status deployments_init(struct deployments *d, struct err *err) {
    d->by_name = json_object();
    return d->by_name != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory for deployments");
}

void deployments_deinit(struct deployments *d) {
    json_decref(d->by_name);
    d->by_name = NULL;
}

/* ---- the form ---------------------------------------------------------------------------- */

bool deployment_name_is_good(const char *name) {
    size_t n = strlen(name);
    for (const char *c = name; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~' || *c == '/' || *c == ',')
            return false;
    return n >= 1 && n <= NAME_MAX_BYTES && *name != '.' && *name != '-';
}

static bool are_words(const json_t *list) {
    size_t i;
    json_t *word;
    if (!json_is_array(list) || json_array_size(list) > ARGS_MAX)
        return false;
    json_array_foreach((json_t *)(uintptr_t)list, i, word) {
        if (!json_is_string(word) ||
            strlen(json_string_value(word)) != json_string_length(word))
            return false;
    }
    return true;
}

/* By option of lockstep serve; each becomes a file on the node that serves. */
static bool are_files(const json_t *files) {
    const char *option;
    json_t *text;
    if (!json_is_object(files))
        return false;
    json_object_foreach((json_t *)(uintptr_t)files, option, text) {
        if (!json_is_string(text) ||
            (!str_eq(option, "api-key-file") && !str_eq(option, "tls-cert") &&
             !str_eq(option, "tls-key")))
            return false;
    }
    return true;
}

static enum status check_what_runs(const json_t *d, const char *name, struct err *err) {
    const char *home, *nodes, *hint;
    json_t *model, *args, *files;
    struct model_files parsed;
    int port, tls, copies;
    if (json_unpack((json_t *)(uintptr_t)d, "{s:s, s:i, s:b, s:s, s:b, s:o, s:s, s:o, s:o}",
                    "home", &home, "port", &port, "tls", &tls, "nodes", &nodes, "copies",
                    &copies, "model", &model, "hint", &hint, "args", &args, "files",
                    &files) != 0 ||
        port < 1 || port > 65535 || !are_words(args) || !are_files(files))
        return err_set(
            err, ST_BAD_INPUT,
            "the deployment %s is not {\"home\": .., \"port\": .., \"tls\": .., "
            "\"nodes\": .., \"copies\": .., \"model\": .., \"hint\": .., \"args\": [..], "
            "\"files\": {..}}",
            name);
    TRY(model_files_from_json(&parsed, model, err));
    model_files_deinit(&parsed);
    return ST_OK;
}

enum status deployment_check(const json_t *d, struct err *err) {
    const char *name;
    json_int_t version;
    int removed = 0;
    if (json_unpack((json_t *)(uintptr_t)d, "{s:s, s:I, s?b}", "name", &name, "version",
                    &version, "removed", &removed) != 0 ||
        version < 1 || version > VERSION_MAX)
        return err_set(err, ST_BAD_INPUT,
                       "a deployment is {\"name\": .., \"version\": 1 or more, ..}");
    if (!deployment_name_is_good(name))
        return err_set(err, ST_BAD_INPUT,
                       "%.80s is no name for a deployment: " DEPLOYMENT_NAME_RULE, name);
    return removed ? ST_OK : check_what_runs(d, name, err);
}

bool deployment_is_up(const json_t *d) {
    return !json_is_true(json_object_get(d, "removed"));
}

static const char *name_of(const json_t *d) {
    return json_string_value(json_object_get(d, "name"));
}

static json_int_t version_of(const json_t *d) {
    return json_integer_value(json_object_get(d, "version"));
}

/* Greater than that of what is known of the name (NULL: nothing), and than those that other
 * nodes made before, of which this one may hear later. */
static json_int_t next_version(const json_t *before) {
    json_int_t now = (json_int_t)time(NULL);
    return MAX(before != NULL ? version_of(before) + 1 : 1, now);
}

/* ---- the list ---------------------------------------------------------------------------- */

json_t *deployments_find(const struct deployments *d, const char *name) {
    return json_object_get(d->by_name, name);
}

size_t deployments_n_up(const struct deployments *d) {
    const char *name;
    json_t *one;
    size_t n = 0;
    json_object_foreach(d->by_name, name, one) {
        n += deployment_is_up(one);
    }
    return n;
}

static enum status check_room(const struct deployments *d, const json_t *one, size_t max,
                              struct err *err) {
    const json_t *before = deployments_find(d, name_of(one));
    bool more = deployment_is_up(one) && (before == NULL || !deployment_is_up(before));
    return !more || deployments_n_up(d) < max
               ? ST_OK
               : err_set(err, ST_NO_MEMORY, "more than %d deployments", (int)max);
}

static bool is_earlier(const json_t *a, const json_t *b) {
    return version_of(a) != version_of(b) ? version_of(a) < version_of(b)
                                          : strcmp(name_of(a), name_of(b)) < 0;
}

/* Of those that are down the earliest, if there are too many; NULL: there are not. */
static json_t *find_superfluous(const struct deployments *d) {
    const char *name;
    json_t *one, *earliest = NULL;
    size_t n = 0;
    json_object_foreach(d->by_name, name, one) {
        if (deployment_is_up(one))
            continue;
        n++;
        if (earliest == NULL || is_earlier(one, earliest))
            earliest = one;
    }
    return n > DEPLOYMENTS_DOWN_MAX ? earliest : NULL;
}

/* Would it be forgotten at once? */
static bool is_superfluous(const struct deployments *d, const json_t *one) {
    const char *name;
    json_t *other;
    size_t n_later = 0;
    if (deployment_is_up(one))
        return false;
    json_object_foreach(d->by_name, name, other) {
        n_later += !deployment_is_up(other) && is_earlier(one, other);
    }
    return n_later >= DEPLOYMENTS_DOWN_MAX;
}

/* Which ones stay is a function of all that were heard of, whoever heard of what first. */
static void forget_superfluous(struct deployments *d) {
    for (json_t *one; (one = find_superfluous(d)) != NULL;)
        json_object_del(d->by_name, name_of(one));
}

static enum status set(struct deployments *d, json_t *one, struct err *err) {
    if (one == NULL || json_object_set_new(d->by_name, name_of(one), one) != 0)
        return err_set(err, ST_NO_MEMORY, "no memory for a deployment");
    forget_superfluous(d);
    return ST_OK;
}

static bool has_same_file(const json_t *a, const json_t *b, const char *which) {
    const char *x = json_string_value(json_object_get(json_object_get(a, "files"), which));
    const char *y = json_string_value(json_object_get(json_object_get(b, "files"), which));
    return x == NULL || y == NULL ? x == y : str_eq(x, y);
}

bool deployments_may_share_port(const json_t *a, const json_t *b) {
    return has_same_file(a, b, "tls-cert") && has_same_file(a, b, "tls-key");
}

/* The name of one that has its port and cannot share it; NULL: there is none. */
static const char *who_bars_port(const struct deployments *d, const json_t *wanted) {
    const char *name;
    json_t *one;
    json_object_foreach(d->by_name, name, one) {
        if (deployment_is_up(one) &&
            json_equal(json_object_get(one, "port"), json_object_get(wanted, "port")) &&
            !deployments_may_share_port(one, wanted))
            return name;
    }
    return NULL;
}

static void take_over(json_t *one, const json_t *before, const char *key) {
    json_t *value = json_object_get(before, key);
    if (value != NULL)
        json_object_set(one, key, value);
    else
        json_object_del(one, key);
}

enum status deployments_put(struct deployments *d, const json_t *deployment, struct err *err) {
    const json_t *before;
    json_t *one = json_deep_copy(deployment);
    enum status st = ST_OK;
    if (one == NULL || json_object_set_new(one, "version", json_integer(1)) != 0)
        st = err_set(err, ST_NO_MEMORY, "no memory for a deployment");
    if (st == ST_OK)
        st = deployment_check(one, err);
    if (st != ST_OK) {
        json_decref(one);
        return st;
    }
    before = deployments_find(d, name_of(one));
    bool is_up = before != NULL && deployment_is_up(before);
    json_object_set_new(one, "version",
                        json_integer(is_up ? version_of(before) : next_version(before)));
    if (is_up) { /* whoever asks for it once more, and when */
        take_over(one, before, "home");
        take_over(one, before, "since");
    }
    const char *other = who_bars_port(d, one);
    bool same = is_up && json_equal(before, one);
    if (is_up && !same)
        st = err_set(err, ST_BAD_INPUT, "%s is up already, in another way: lockstep down %s",
                     name_of(one), name_of(one));
    else if (!same && other != NULL)
        st = err_set(
            err, ST_BAD_INPUT,
            "%s has that port with another certificate (or none): give another --port, or "
            "the same certificate",
            other);
    else if (!same)
        st = check_room(d, one, DEPLOYMENTS_MAX, err);
    if (st == ST_OK && !same)
        return set(d, one, err);
    json_decref(one);
    return st;
}

enum status deployments_remove(struct deployments *d, const char *name, struct err *err) {
    const json_t *one = deployments_find(d, name);
    if (one == NULL || !deployment_is_up(one))
        return err_set(err, ST_NOT_FOUND, "no deployment is called %.80s", name);
    return set(
        d,
        json_pack("{s:s, s:I, s:b}", "name", name, "version", next_version(one), "removed", 1),
        err);
}

static int by_name(const void *a_, const void *b_) {
    return strcmp(name_of(*(json_t *const *)a_), name_of(*(json_t *const *)b_));
}

json_t *deployments_list(const struct deployments *d) {
    const char *name;
    json_t *one, *list = json_array(),
                 **sorted = mem_calloc(json_object_size(d->by_name) + 1, sizeof(json_t *));
    size_t n = 0;
    if (sorted == NULL || list == NULL) {
        mem_free(sorted);
        json_decref(list);
        return NULL;
    }
    json_object_foreach(d->by_name, name, one) {
        sorted[n++] = one;
    }
    qsort(sorted, n, sizeof sorted[0], by_name);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_deep_copy(sorted[i]));
    mem_free(sorted);
    return list;
}

/* Of two in the same version, which only two nodes that did not see each other can have made,
 * one is chosen that all choose. */
static bool is_newer(const json_t *a, const json_t *b) {
    if (version_of(a) != version_of(b))
        return version_of(a) > version_of(b);
    char *x = json_dumps(a, CANONICAL), *y = json_dumps(b, CANONICAL);
    bool newer = x != NULL && y != NULL && strcmp(x, y) > 0;
    free(x);
    free(y);
    return newer;
}

enum status deployments_merge(struct deployments *d, const json_t *list, bool *changed,
                              struct err *err) {
    size_t i;
    json_t *one;
    *changed = false;
    if (!json_is_array(list))
        return err_set(err, ST_BAD_INPUT, "no list of deployments");
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        TRY(deployment_check(one, err));
        const json_t *before = deployments_find(d, name_of(one));
        if (before != NULL ? !is_newer(one, before) : is_superfluous(d, one))
            continue;
        /* How many may be up is said to whoever wishes for one. What was wished for elsewhere
         * is so: a node that left some of it out would never again agree with the others. */
        TRY(check_room(d, one, DEPLOYMENTS_HEARD_MAX, err));
        TRY(set(d, json_deep_copy(one), err));
        *changed = true;
    }
    return ST_OK;
}

static void digest(const json_t *v, char out[DEPLOYMENTS_DIGEST_BYTES]) {
    uint8_t hash[(DEPLOYMENTS_DIGEST_BYTES - 1) / 2] = {0};
    char *text = json_dumps(v, CANONICAL);
    if (text != NULL)
        crypto_generichash(hash, sizeof hash, (const uint8_t *)text, strlen(text), NULL, 0);
    free(text);
    sodium_bin2hex(out, DEPLOYMENTS_DIGEST_BYTES, hash, sizeof hash);
}

void deployments_digest(const struct deployments *d, char out[DEPLOYMENTS_DIGEST_BYTES]) {
    digest(d->by_name, out);
}

void deployment_digest(const json_t *deployment, char out[DEPLOYMENTS_DIGEST_BYTES]) {
    digest(deployment, out);
}

/* ---- on disk ----------------------------------------------------------------------------- */

enum status deployments_read(struct deployments *d, const char *path, struct err *err) {
    char *text;
    size_t n;
    bool changed;
    TRY(file_read_text(&text, &n, path, FILE_MAX_BYTES, err));
    json_t *list = json_loadb(text, n, 0, NULL);
    mem_free(text);
    enum status st = deployments_merge(d, list, &changed, err);
    json_decref(list);
    return st == ST_OK ? st : err_prefix(err, st, "%s: ", path);
}

enum status deployments_write(const struct deployments *d, const char *path, struct err *err) {
    struct file_new file = {.f = NULL};
    json_t *list = deployments_list(d);
    if (list == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to write %s", path);
    enum status st = file_make_folders(path, 0700, err);
    if (st == ST_OK)
        st = file_new_open(&file, path, err);
    if (st == ST_OK && (fchmod(fileno(file.f), 0600) != 0 ||
                        json_dumpf(list, file.f, JSON_INDENT(1) | JSON_SORT_KEYS) != 0))
        st = file_new_failed(&file, errno, err);
    if (st == ST_OK)
        st = file_new_finish(&file, true, err);
    file_new_drop(&file);
    json_decref(list);
    return st;
}

/* ---- who --------------------------------------------------------------------------------- */

/* Rendezvous hashing: each name has an order of nodes of its own, which a node that comes or
 * goes does not change. */
static uint64_t order(const char *name, const struct deployment_candidate *c) {
    crypto_generichash_state h;
    uint64_t hash;
    crypto_generichash_init(&h, NULL, 0, crypto_generichash_BYTES_MIN);
    crypto_generichash_update(&h, (const uint8_t *)name, strlen(name) + 1);
    crypto_generichash_update(&h, (const uint8_t *)c->name, strlen(c->name) + 1);
    crypto_generichash_update(&h, (const uint8_t *)c->node, strlen(c->node));
    uint8_t out[crypto_generichash_BYTES_MIN];
    crypto_generichash_final(&h, out, sizeof out);
    memcpy(&hash, out, sizeof hash);
    return hash;
}

static bool is_before(const char *name, const char *home, const struct deployment_candidate *a,
                      const struct deployment_candidate *b) {
    if ((a->term > 0) != (b->term > 0))
        return a->term > 0;
    if (a->term > 0 && a->ranks != b->ranks)
        return a->ranks > b->ranks;
    if (a->term != b->term)
        return a->term < b->term;
    if (a->failures != b->failures)
        return a->failures < b->failures;
    bool a_home = str_eq(a->name, home), b_home = str_eq(b->name, home);
    if (a_home != b_home)
        return a_home;
    uint64_t x = order(name, a), y = order(name, b);
    return x != y ? x < y : strcmp(a->node, b->node) < 0;
}

size_t deployment_owner(const char *name, const char *home,
                        const struct deployment_candidate *list, size_t n) {
    size_t owner = n;
    for (size_t i = 0; i < n; i++) {
        if (list[i].term == 0 && !list[i].able)
            continue;
        if (owner == n || is_before(name, home, &list[i], &list[owner]))
            owner = i;
    }
    return owner;
}
