/* controller_disk.c: what a node keeps across its starts: the deployments, and who was there. */
#include "node/controller_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>

#define KNOWN_GAP_S 10.0 /* between looks whether others are there now */

/* Under the save lock. */
static enum status write_list(struct controller *k, const struct deployments *list,
                              struct err *err) {
    char digest[DEPLOYMENTS_DIGEST_BYTES];
    deployments_digest(list, digest);
    if (str_eq(digest, k->saved))
        return ST_OK;
    TRY(deployments_write(list, k->list_path, err));
    snprintf(k->saved, sizeof k->saved, "%s", digest);
    return ST_OK;
}

/* by_name: NULL if there is no memory. */
static struct deployments copy_list(struct controller *k) {
    pthread_mutex_lock(&k->lock);
    struct deployments copy = {.by_name = json_deep_copy(k->list.by_name)};
    pthread_mutex_unlock(&k->lock);
    return copy;
}

void controller_save_list(struct controller *k) {
    struct err err;
    char digest[DEPLOYMENTS_DIGEST_BYTES];
    pthread_mutex_lock(&k->save_lock);
    pthread_mutex_lock(&k->lock);
    deployments_digest(&k->list, digest);
    pthread_mutex_unlock(&k->lock);
    if (!str_eq(digest, k->saved)) {
        struct deployments copy = copy_list(k);
        enum status st = copy.by_name != NULL ? write_list(k, &copy, &err) : ST_AGAIN;
        if (st != ST_OK && st != ST_AGAIN && !k->said_save)
            log_error("deployments are not kept across a start of this node: %s", err.text);
        k->said_save = st != ST_OK;
        deployments_deinit(&copy);
    }
    pthread_mutex_unlock(&k->save_lock);
}

static void set_hasty(struct controller *k, const char *name, bool is) {
    if (name == NULL)
        return;
    pthread_mutex_lock(&k->lock);
    if (is)
        json_object_set_new(k->hasty, name, json_true());
    else
        json_object_del(k->hasty, name);
    pthread_mutex_unlock(&k->lock);
}

/* What is newer in a copy of the list; another node may have told of something meanwhile. */
static enum status take_changes(struct controller *k, const struct deployments *copy,
                                struct err *err) {
    bool changed;
    json_t *list = deployments_list(copy);
    if (list == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for deployments");
    pthread_mutex_lock(&k->lock);
    enum status st = deployments_merge(&k->list, list, &changed, err);
    pthread_mutex_unlock(&k->lock);
    json_decref(list);
    return st;
}

enum status controller_change_list(struct controller *k,
                                   enum status (*change)(struct deployments *d,
                                                         const json_t *wish, struct err *err),
                                   const json_t *wish, const char *hasty, struct err *err) {
    pthread_mutex_lock(&k->save_lock);
    struct deployments copy = copy_list(k);
    enum status st = copy.by_name != NULL
                         ? change(&copy, wish, err)
                         : err_set(err, ST_NO_MEMORY, "no memory for deployments");
    if (st == ST_OK && (st = write_list(k, &copy, err)) != ST_OK)
        err_prefix(err, st, "nothing is changed, since %s could not keep it: ", k->name);
    if (st == ST_OK) {
        set_hasty(k, hasty, true); /* before the thread sees it */
        st = take_changes(k, &copy, err);
        if (st != ST_OK)
            set_hasty(k, hasty, false);
    }
    pthread_mutex_unlock(&k->save_lock);
    deployments_deinit(&copy);
    return st;
}

/* [{"name", "addresses"}] of all that are heard. */
static json_t *list_known(const struct controller *k) {
    json_t *known = json_array();
    for (size_t i = 0; i < k->n_others; i++)
        json_array_append_new(known,
                              json_pack("{s:s, s:o}", "name", k->others[i].name, "addresses",
                                        controller_addresses(&k->others[i])));
    return known;
}

void controller_save_known(struct controller *k, double now) {
    struct file_new file;
    struct err err;
    if (now < k->save_known_s)
        return;
    k->save_known_s = now + KNOWN_GAP_S;
    pthread_mutex_lock(&k->lock);
    json_t *known = list_known(k);
    pthread_mutex_unlock(&k->lock);
    if (!json_equal(known, k->known) && file_new_open(&file, k->known_path, &err) == ST_OK) {
        if (json_dumpf(known, file.f, JSON_COMPACT) == 0)
            file_new_finish(&file, true, &err);
        file_new_drop(&file);
        json_decref(k->known);
        k->known = json_incref(known);
    }
    json_decref(known);
}

enum status controller_load(struct controller *k, struct err *err) {
    char *text;
    enum status st = deployments_read(&k->list, k->list_path, err);
    if (st != ST_OK && st != ST_NOT_FOUND)
        return st;
    /* Else an empty one is written now: whether that works is known before there is something to
     * keep. */
    if (st == ST_OK)
        deployments_digest(&k->list, k->saved);
    if (file_read_text(&text, NULL, k->known_path, (size_t)1 << 20, err) == ST_OK) {
        k->known = json_loads(text, 0, NULL); /* a damaged one is none */
        mem_free(text);
    }
    return ST_OK;
}
