/* removal.c: Removes a model's files, wherever its name says that they lie. */
#include "cluster/removal.h"

#include "base/json.h"
#include "base/util.h"
#include "cluster/catalog.h"
#include "cluster/model_files.h"
#include "cluster/store.h"
#include "hub/stores.h"
#include "hub/upkeep.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static enum status remove_files(const struct model_files *m, const char *path,
                                struct err *err) {
    char file[PATH_MAX];
    for (size_t i = 0; i < m->n; i++)
        if (!model_files_place(m, i, path, file, sizeof file) || unlink(file) != 0)
            return err_set(err, ST_IO, "%s: %s", m->list[i].name, strerror(errno));
    if (m->folder && rmdir(path) != 0)
        return err_set(err, ST_IO, "%s: %s", path, strerror(errno));
    return ST_OK;
}

static enum status remove_stored(const char *folder, const char *name, uint64_t *bytes,
                                 struct err *err) {
    char own[PATH_MAX], path[PATH_MAX];
    struct model_files m;
    if (folder == NULL)
        TRY(store_path(own, sizeof own, err));
    json_t *all = catalog_read(folder != NULL ? folder : own);
    const char *found = catalog_find(all, name);
    snprintf(path, sizeof path, "%s", found != NULL ? found : "");
    json_decref(all);
    if (*path == '\0')
        return err_set(err, ST_NOT_FOUND,
                       "%s has no model called %s (lockstep models lists them)",
                       folder != NULL ? folder : own, name);
    TRY(model_files_read(&m, path, err));
    *bytes = m.bytes;
    enum status st = remove_files(&m, path, err);
    model_files_deinit(&m);
    return st;
}

enum status model_remove(const char *folder, const char *name, uint64_t *bytes,
                         struct err *err) {
    struct hub_name hub;
    if (!stores_is_name(name) && strchr(name, '/') == NULL)
        return remove_stored(folder, name, bytes, err);
    if (stores_is_name(name) && !str_starts(name, HUB_PREFIX))
        return err_set(err, ST_UNSUPPORTED,
                       "%s belongs to another program, which has a way to remove it", name);
    TRY(hub_name_parse(&hub, name, err));
    return hub_remove(&hub, bytes, err);
}
