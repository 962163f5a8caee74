/* controller_disk.c: what a node stores across its starts: the deployments, and the known
 * nodes. */
#include "node/controller_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"

#include <errno.h>
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

static enum status copy_list(struct controller *k, struct deployments *out, struct err *err) {
    pthread_mutex_lock(&k->lock);
    enum status st = deployments_copy(out, &k->list, err);
    pthread_mutex_unlock(&k->lock);
    return st;
}

void controller_save_list(struct controller *k) {
    struct err err;
    char digest[DEPLOYMENTS_DIGEST_BYTES];
    pthread_mutex_lock(&k->save_lock);
    pthread_mutex_lock(&k->lock);
    deployments_digest(&k->list, digest);
    pthread_mutex_unlock(&k->lock);
    if (!str_eq(digest, k->saved)) {
        struct deployments copy;
        enum status st = copy_list(k, &copy, &err);
        if (st == ST_OK)
            st = write_list(k, &copy, &err);
        if (st != ST_OK && !k->said_save)
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
        controller_note_hasty(k, name);
    else
        controller_forget_hasty(k, name);
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
    struct deployments copy;
    enum status st = copy_list(k, &copy, err);
    if (st == ST_OK)
        st = change(&copy, wish, err);
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

/* ---- known nodes ------------------------------------------------------------------------- */

void controller_forget_known(struct controller *k) {
    for (size_t i = 0; i < k->n_known; i++)
        addresses_deinit(&k->known[i].addresses);
    mem_free(k->known);
    mem_free(k->known_text);
    k->known = NULL;
    k->known_text = NULL;
    k->n_known = 0;
}

/* From [{"name", "addresses"}]; a damaged text gives an empty list. */
static void read_known(struct controller *k, const char *text) {
    size_t i;
    json_t *one, *list = json_loads(text, 0, NULL);
    controller_forget_known(k);
    k->known = mem_calloc(json_array_size(list) + 1, sizeof *k->known);
    k->known_text = mem_strdup(text);
    json_array_foreach(list, i, one) {
        if (k->known == NULL)
            break;
        struct known_node *node = &k->known[k->n_known++];
        snprintf(node->name, sizeof node->name, "%s", json_text(one, "name"));
        addresses_parse(&node->addresses, json_object_get(one, "addresses"),
                        PEER_ADDRESSES_MAX);
    }
    json_decref(list);
}

/* [{"name", "addresses"}] of all that are heard; free() it. NULL: no memory. */
static char *known_text(struct controller *k) {
    json_t *known = json_array();
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++) {
        struct addresses addresses = controller_addresses(&k->others[i]);
        json_array_append_new(known, json_pack("{s:s, s:o}", "name", k->others[i].name,
                                               "addresses", addresses_json(&addresses)));
        addresses_deinit(&addresses);
    }
    pthread_mutex_unlock(&k->lock);
    char *text = json_dumps(known, JSON_COMPACT);
    json_decref(known);
    return text;
}

static enum status write_known(const struct controller *k, const char *text, struct err *err) {
    struct file_new file;
    TRY(file_new_open(&file, k->known_path, err));
    enum status st = fputs(text, file.f) >= 0 ? file_new_finish(&file, true, err)
                                              : file_new_failed(&file, errno, err);
    file_new_drop(&file);
    return st;
}

void controller_save_known(struct controller *k, double now) {
    struct err ignored;
    if (now < k->save_known_s)
        return;
    k->save_known_s = now + KNOWN_GAP_S;
    char *text = known_text(k);
    bool is_new = text != NULL && (k->known_text == NULL || !str_eq(text, k->known_text));
    if (is_new && write_known(k, text, &ignored) == ST_OK)
        read_known(k, text);
    free(text);
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
        read_known(k, text);
        mem_free(text);
    }
    return ST_OK;
}
