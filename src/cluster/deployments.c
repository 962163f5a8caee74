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

#define FILE_MAX_BYTES ((size_t)8 << 20)

void deployments_init(struct deployments *d) {
    *d = (struct deployments){.list = NULL};
}

void deployments_deinit(struct deployments *d) {
    for (size_t i = 0; i < d->n; i++)
        deployment_free(d->list[i]);
    mem_free(d->list);
    deployments_init(d);
}

/* Greater than the known version of the name (NULL: none), and than earlier versions made by
 * other nodes, which this one may receive later. */
static json_int_t next_version(const struct deployment *before) {
    json_int_t now = (json_int_t)time(NULL);
    return MAX(before != NULL ? before->version + 1 : 1, now);
}

/* ---- the list ---------------------------------------------------------------------------- */

static enum status no_memory(struct err *err) {
    return err_set(err, ST_NO_MEMORY, "no memory for a deployment");
}

/* Its index; d->n: it is not there. */
static size_t place_of(const struct deployments *d, const char *name) {
    size_t i = 0;
    while (i < d->n && !str_eq(d->list[i]->name, name))
        i++;
    return i;
}

const struct deployment *deployments_find(const struct deployments *d, const char *name) {
    size_t i = place_of(d, name);
    return i < d->n ? d->list[i] : NULL;
}

size_t deployments_n_up(const struct deployments *d) {
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++)
        n += d->list[i]->up;
    return n;
}

static size_t n_names(const struct deployments *d) {
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++)
        n += d->list[i]->of != NULL;
    return n;
}

static enum status check_room(const struct deployments *d, const struct deployment *one,
                              size_t max, struct err *err) {
    const struct deployment *before = deployments_find(d, one->name);
    bool names = one->of != NULL && (before == NULL || before->of == NULL);
    bool more = one->up && (before == NULL || !before->up);
    if ((more && deployments_n_up(d) >= max) || (names && n_names(d) >= max))
        return err_set(err, ST_NO_MEMORY, "more than %d %s", (int)max,
                       more ? "deployments" : "further names of deployments");
    return ST_OK;
}

/* A name, of which all are kept, is none. */
static bool is_down(const struct deployment *one) {
    return !one->up && one->of == NULL;
}

static bool is_earlier(const struct deployment *a, const struct deployment *b) {
    return a->version != b->version ? a->version < b->version : strcmp(a->name, b->name) < 0;
}

/* Of those that are down the earliest, if there are too many; d->n: there are not. */
static size_t find_superfluous(const struct deployments *d) {
    size_t n = 0, earliest = d->n;
    for (size_t i = 0; i < d->n; i++) {
        if (!is_down(d->list[i]))
            continue;
        n++;
        if (earliest == d->n || is_earlier(d->list[i], d->list[earliest]))
            earliest = i;
    }
    return n > DEPLOYMENTS_DOWN_MAX ? earliest : d->n;
}

/* Would it be forgotten at once? */
static bool is_superfluous(const struct deployments *d, const struct deployment *one) {
    size_t n_later = 0;
    for (size_t i = 0; i < d->n && is_down(one); i++)
        n_later += is_down(d->list[i]) && is_earlier(one, d->list[i]);
    return n_later >= DEPLOYMENTS_DOWN_MAX;
}

/* Which ones stay is a function of all that are known, in whatever order they arrived. */
static void forget_superfluous(struct deployments *d) {
    for (size_t i; (i = find_superfluous(d)) < d->n;) {
        deployment_free(d->list[i]);
        memmove(d->list + i, d->list + i + 1, (--d->n - i) * sizeof d->list[0]);
    }
}

/* `one` is taken over, also after an error. */
static enum status set(struct deployments *d, struct deployment *one, struct err *err) {
    size_t i = place_of(d, one->name);
    if (i == d->n && !mem_reserve(&d->list, &d->cap, d->n + 1, sizeof d->list[0])) {
        deployment_free(one);
        return no_memory(err);
    }
    if (i == d->n)
        d->n++;
    else
        deployment_free(d->list[i]);
    d->list[i] = one;
    forget_superfluous(d);
    return ST_OK;
}

enum status deployments_copy(struct deployments *out, const struct deployments *d,
                             struct err *err) {
    struct deployment *one;
    enum status st = ST_OK;
    deployments_init(out);
    for (size_t i = 0; i < d->n && st == ST_OK; i++) {
        one = deployment_copy(d->list[i]);
        st = one != NULL ? set(out, one, err) : no_memory(err);
    }
    if (st != ST_OK)
        deployments_deinit(out);
    return st;
}

static bool has_same_file(const struct deployment *a, const struct deployment *b,
                          const char *option) {
    const char *x = deployment_file(a, option), *y = deployment_file(b, option);
    return x == NULL || y == NULL ? x == y : str_eq(x, y);
}

bool deployments_may_share_port(const struct deployment *a, const struct deployment *b) {
    return has_same_file(a, b, "tls-cert") && has_same_file(a, b, "tls-key");
}

/* The name of a deployment that has its port and cannot share it; NULL: none. */
static const char *who_bars_port(const struct deployments *d, const struct deployment *wanted) {
    for (size_t i = 0; i < d->n; i++) {
        const struct deployment *one = d->list[i];
        if (one->up && one->port == wanted->port && !deployments_may_share_port(one, wanted))
            return one->name;
    }
    return NULL;
}

/* The request, in JSON, becomes the version after the known one. If the deployment is up
 * already, it keeps its home and its start time. */
static enum status follow(json_t *wish, const struct deployment *before, struct err *err) {
    static const char *const kept[] = {"home", "since", "moved", "layout"};
    bool is_up = before != NULL && before->up;
    json_int_t version = is_up ? before->version : next_version(before);
    if (json_object_set_new(wish, "version", json_integer(version)) != 0)
        return no_memory(err);
    for (size_t i = 0; i < ARRAY_LEN(kept) && is_up; i++) {
        json_t *value = json_object_get(before->json, kept[i]);
        if (value != NULL)
            json_object_set(wish, kept[i], value);
        else
            json_object_del(wish, kept[i]);
    }
    return ST_OK;
}

static enum status read_wish(const struct deployments *d, const json_t *wish,
                             struct deployment **out, struct err *err) {
    json_t *json = json_deep_copy(wish);
    struct deployment *form;
    if (json == NULL || json_object_set_new(json, "version", json_integer(1)) != 0) {
        json_decref(json);
        return no_memory(err);
    }
    enum status st = deployment_parse(&form, json, err);
    if (st == ST_OK) {
        st = follow(json, deployments_find(d, form->name), err);
        deployment_free(form);
    }
    if (st == ST_OK)
        st = deployment_parse(out, json, err);
    json_decref(json);
    return st;
}

/* Of a wish that is not what is up already. */
static enum status check_wish(const struct deployments *d, const struct deployment *one,
                              struct err *err) {
    const struct deployment *before = deployments_find(d, one->name);
    const char *other = who_bars_port(d, one);
    const struct deployment *named = deployments_named(d, one->name);
    if (named != NULL)
        return err_set(err, ST_BAD_INPUT, "%s is another name of %s", one->name, named->name);
    if (before != NULL && before->up)
        return err_set(err, ST_BAD_INPUT, "%s is up already, in another way: lockstep down %s",
                       one->name, one->name);
    if (other != NULL)
        return err_set(
            err, ST_BAD_INPUT,
            "%s has that port with another certificate (or none): give another --port, or "
            "the same certificate",
            other);
    return check_room(d, one, DEPLOYMENTS_MAX, err);
}

enum status deployments_put(struct deployments *d, const json_t *wish, struct err *err) {
    struct deployment *one;
    TRY(read_wish(d, wish, &one, err));
    const struct deployment *before = deployments_find(d, one->name);
    bool same = before != NULL && before->up && deployment_equal(before, one);
    enum status st = same ? ST_OK : check_wish(d, one, err);
    if (st == ST_OK && !same)
        return set(d, one, err);
    deployment_free(one);
    return st;
}

/* The next version of a name, which then stands for nothing; or for that deployment. */
static enum status set_bare(struct deployments *d, const char *name, const char *of,
                            struct err *err) {
    struct deployment *one;
    json_t *json = json_pack("{s:s, s:I}", "name", name, "version",
                             next_version(deployments_find(d, name)));
    if (of != NULL)
        json_object_set_new(json, "of", json_string(of));
    else
        json_object_set_new(json, "removed", json_true());
    enum status st = json != NULL ? deployment_parse(&one, json, err) : no_memory(err);
    json_decref(json);
    return st == ST_OK ? set(d, one, err) : st;
}

/* A name of that deployment; NULL: it has none. */
static const char *any_name_of(const struct deployments *d, const char *of) {
    for (size_t i = 0; i < d->n; i++)
        if (d->list[i]->of != NULL && str_eq(d->list[i]->of, of))
            return d->list[i]->name;
    return NULL;
}

enum status deployments_remove(struct deployments *d, const char *name, struct err *err) {
    const struct deployment *before = deployments_find(d, name);
    const char *further;
    if (before == NULL || !before->up)
        return err_set(err, ST_NOT_FOUND, "no deployment is called %.80s", name);
    TRY(set_bare(d, name, NULL, err));
    while ((further = any_name_of(d, name)) != NULL)
        TRY(set_bare(d, further, NULL, err));
    return ST_OK;
}

/* ---- further names ----------------------------------------------------------------------- */

const struct deployment *deployments_named(const struct deployments *d, const char *name) {
    const struct deployment *one = deployments_find(d, name);
    one = one != NULL && one->of != NULL ? deployments_find(d, one->of) : NULL;
    return one != NULL && one->up ? one : NULL;
}

json_t *deployments_names_of(const struct deployments *d, const char *of) {
    json_t *names = json_array();
    for (size_t i = 0; i < d->n; i++)
        if (d->list[i]->of != NULL && str_eq(d->list[i]->of, of))
            json_array_append_new(names, json_string(d->list[i]->name));
    return names;
}

enum status deployments_name(struct deployments *d, const char *name, const char *of,
                             struct err *err) {
    const struct deployment *before = deployments_find(d, name),
                            *model = deployments_find(d, of);
    if (!deployment_name_is_good(name))
        return err_set(err, ST_BAD_INPUT, "%.80s is not a valid name: " DEPLOYMENT_NAME_RULE,
                       name);
    if (model == NULL || !model->up)
        return err_set(err, ST_NOT_FOUND, "no deployment is called %.80s", of);
    if (before != NULL && before->up)
        return err_set(err, ST_REFUSED, "%.80s is the name of a model that is up", name);
    if ((before == NULL || before->of == NULL) && n_names(d) >= DEPLOYMENTS_NAMES_MAX)
        return err_set(err, ST_NO_MEMORY, "more than %d further names", DEPLOYMENTS_NAMES_MAX);
    return before != NULL && before->of != NULL && str_eq(before->of, of)
               ? ST_OK
               : set_bare(d, name, of, err);
}

enum status deployments_unname(struct deployments *d, const char *name, struct err *err) {
    const struct deployment *before = deployments_find(d, name);
    return before != NULL && before->of != NULL
               ? set_bare(d, before->name, NULL, err)
               : err_set(err, ST_NOT_FOUND, "%.80s is no further name of a deployment", name);
}

/* The words of --nodes, with its home, which took part without being named. */
static json_t *nodes_with_home(const struct deployment *one) {
    bool named = str_eq(one->nodes, "auto") || str_list_has(one->nodes, one->home);
    return named ? json_string(one->nodes) : json_sprintf("%s,%s", one->nodes, one->home);
}

static void set_layout(json_t *json, const struct deployment *before,
                       const struct deployment_move *to) {
    const char *kept = before->layout_nodes;
    bool is_auto = to->nodes != NULL && str_eq(to->nodes, "auto");
    if (to->nodes != NULL && !is_auto)
        json_object_set_new(json, "layout",
                            json_pack("{s:s, s:s}", "nodes", to->nodes, "parallel",
                                      to->parallel != NULL ? to->parallel : "auto"));
    else if (is_auto || (kept != NULL && to->node != NULL && !str_list_has(kept, to->node)))
        json_object_del(json, "layout");
}

enum status deployments_move(struct deployments *d, const char *name,
                             const struct deployment_move *to, struct err *err) {
    const struct deployment *before = deployments_find(d, name);
    struct deployment *one;
    if (before == NULL || !before->up)
        return err_set(err, ST_NOT_FOUND, "no deployment is called %.80s", name);
    json_t *json = json_deep_copy(before->json);
    json_object_set_new(json, "version", json_integer(next_version(before)));
    json_object_set_new(json, "nodes", nodes_with_home(before));
    if (to->node != NULL)
        json_object_set_new(json, "home", json_string(to->node));
    json_object_set_new(json, "moved", json_true());
    set_layout(json, before, to);
    enum status st = json != NULL ? deployment_parse(&one, json, err) : no_memory(err);
    json_decref(json);
    return st == ST_OK ? set(d, one, err) : st;
}

static int by_name(const void *a_, const void *b_) {
    const struct deployment *const *a = a_, *const *b = b_;
    return strcmp((*a)->name, (*b)->name);
}

json_t *deployments_list(const struct deployments *d) {
    json_t *list = json_array();
    struct deployment **sorted = mem_calloc(d->n + 1, sizeof *sorted);
    if (sorted == NULL || list == NULL) {
        mem_free(sorted);
        json_decref(list);
        return NULL;
    }
    for (size_t i = 0; i < d->n; i++)
        sorted[i] = d->list[i];
    qsort(sorted, d->n, sizeof *sorted, by_name);
    for (size_t i = 0; i < d->n; i++)
        json_array_append_new(list, json_deep_copy(sorted[i]->json));
    mem_free(sorted);
    return list;
}

/* Two deployments of the same version can only come from two nodes that did not see each other.
 * All nodes choose the same one of the two. */
static bool is_newer(const struct deployment *a, const struct deployment *b) {
    if (a->version != b->version)
        return a->version > b->version;
    char *x = json_dumps(a->json, JSON_COMPACT | JSON_SORT_KEYS);
    char *y = json_dumps(b->json, JSON_COMPACT | JSON_SORT_KEYS);
    bool newer = x != NULL && y != NULL && strcmp(x, y) > 0;
    free(x);
    free(y);
    return newer;
}

/* `one` is taken over. The limit of models that are up applies only to a user's request. A list
 * from another node is taken as it is: a node that left out a part would never again agree with
 * the others. */
static enum status merge_one(struct deployments *d, struct deployment *one, bool *changed,
                             struct err *err) {
    const struct deployment *before = deployments_find(d, one->name);
    bool old = before != NULL ? !is_newer(one, before) : is_superfluous(d, one);
    enum status st = old ? ST_OK : check_room(d, one, DEPLOYMENTS_HEARD_MAX, err);
    if (old || st != ST_OK) {
        deployment_free(one);
        return st;
    }
    *changed = true;
    return set(d, one, err);
}

enum status deployments_merge(struct deployments *d, const json_t *list, bool *changed,
                              struct err *err) {
    size_t i;
    json_t *json;
    struct deployment *one;
    *changed = false;
    if (!json_is_array(list))
        return err_set(err, ST_BAD_INPUT, "no list of deployments");
    json_array_foreach((json_t *)(uintptr_t)list, i, json) {
        TRY(deployment_parse(&one, json, err));
        TRY(merge_one(d, one, changed, err));
    }
    return ST_OK;
}

void deployments_digest(const struct deployments *d, char out[DEPLOYMENTS_DIGEST_BYTES]) {
    json_t *all = json_object();
    for (size_t i = 0; i < d->n; i++)
        json_object_set(all, d->list[i]->name, d->list[i]->json);
    deployments_json_digest(all, out);
    json_decref(all);
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

/* ---- the owner --------------------------------------------------------------------------- */

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
