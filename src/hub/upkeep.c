/* upkeep.c: Removes models from the hub's cache, and reads them again for their checksums. */
#include "hub/upkeep.h"

#include "base/util.h"
#include "hub/cache.h"
#include "hub/checksum.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- removing ------------------------------------------------------------------------------- */

/* Does a snapshot still lead to this blob? *any: a snapshot leads to something. */
static enum status is_linked(const char *folder, const char *hash, bool *linked,
                             struct err *err) {
    char root[PATH_MAX];
    *linked = false;
    for (size_t i = 0; !*linked && hub_cache_snapshot(folder, i, root); i++) {
        struct hub_files f;
        TRY(hub_files_in(root, &f, err));
        for (size_t k = 0; k < f.n; k++)
            *linked |= hash == NULL || str_eq(f.list[k].hash, hash);
        hub_files_deinit(&f);
    }
    return ST_OK;
}

static enum status remove_file(const char *path, uint64_t *bytes, struct err *err) {
    struct stat st;
    if (lstat(path, &st) != 0 || unlink(path) != 0)
        return errno == ENOENT ? ST_OK
                               : err_set(err, ST_IO, "%.300s: %s", path, strerror(errno));
    if (S_ISREG(st.st_mode))
        *bytes += (uint64_t)st.st_size;
    return ST_OK;
}

static enum status remove_chosen(const char *folder, const char *root,
                                 const struct hub_files *f, uint64_t *bytes, struct err *err) {
    char path[PATH_MAX];
    for (size_t i = 0; i < f->n; i++) {
        const struct hub_file *one = &f->list[i];
        bool linked = true;
        if (!one->chosen || snprintf(path, sizeof path, "%s/%s", root, one->name) >= PATH_MAX)
            continue;
        TRY(remove_file(path, bytes, err));
        char *slash =
            strrchr(path, '/'); /* an empty subfolder, as of the parts of a split one */
        *slash = '\0';
        if (!str_eq(path, root))
            (void)rmdir(path);
        if (*one->hash == '\0')
            continue;
        TRY(is_linked(folder, one->hash, &linked, err));
        if (!linked && snprintf(path, sizeof path, "%s/blobs/%s", folder, one->hash) < PATH_MAX)
            TRY(remove_file(path, bytes, err));
    }
    return ST_OK;
}

static void remove_all_in(const char *folder, const char *inner, uint64_t *bytes) {
    char path[PATH_MAX], file[PATH_MAX];
    DIR *dir =
        snprintf(path, sizeof path, "%s/%s", folder, inner) < PATH_MAX ? opendir(path) : NULL;
    if (dir == NULL)
        return;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, "..") &&
            snprintf(file, sizeof file, "%s/%s", path, e->d_name) < PATH_MAX)
            (void)remove_file(file, bytes, NULL);
    closedir(dir);
    (void)rmdir(path);
}

/* A repository of which no snapshot has a file. */
static void remove_rest(const char *folder, uint64_t *bytes) {
    char root[PATH_MAX];
    while (hub_cache_snapshot(folder, 0, root) && rmdir(root) == 0)
        ;
    remove_all_in(folder, "blobs", bytes);
    remove_all_in(folder, "refs", bytes);
    remove_all_in(folder, "snapshots", bytes);
    (void)rmdir(folder);
}

enum status hub_remove(const struct hub_name *name, uint64_t *bytes, struct err *err) {
    char folder[PATH_MAX], root[PATH_MAX];
    bool found = false, left = true;
    struct stat st;
    *bytes = 0;
    TRY(hub_cache_folder(name->repo, folder, err));
    for (size_t i = 0; hub_cache_snapshot(folder, i, root); i++) {
        struct hub_files f;
        long first;
        TRY(hub_files_in(root, &f, err));
        enum status why = hub_files_choose(&f, name, &first, err);
        enum status did = why == ST_OK ? remove_chosen(folder, root, &f, bytes, err) : ST_OK;
        hub_files_deinit(&f);
        TRY(did);
        if (why == ST_BAD_INPUT)
            return why;
        found |= why == ST_OK;
    }
    TRY(is_linked(folder, NULL, &left, err));
    if (!found && (left || stat(folder, &st) != 0))
        return err_set(err, ST_NOT_FOUND, "nothing of %s%s%s is here", name->repo,
                       *name->want != '\0' ? ":" : "", name->want);
    if (!left)
        remove_rest(folder, bytes);
    return ST_OK;
}

/* ---- verifying ------------------------------------------------------------------------------ */

static enum status verify_file(const struct hub_file *f, const char *path,
                               const struct progress *progress, uint64_t done, uint64_t total,
                               struct err *err) {
    struct hub_checksum sum;
    char is[HUB_HASH_BYTES];
    if (*f->hash == '\0')
        return err_set(err, ST_UNSUPPORTED,
                       "%.300s is no link to a blob: its checksum is not known", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, ST_IO, "%.300s: %s", path, strerror(errno));
    enum status st = hub_checksum_begin(&sum, f->hash, f->bytes, err);
    if (st == ST_OK)
        st = hub_checksum_add_file(&sum, fd, f->bytes, path, progress, done, total, err);
    close(fd);
    hub_checksum_end(&sum, is);
    if (st == ST_OK && !str_eq(is, f->hash))
        st = err_set(err, ST_IO, "%.300s is damaged: its checksum is another one", path);
    return st;
}

static enum status verify_chosen(const struct hub_files *f, const char *root,
                                 const struct progress *progress, uint64_t *bytes,
                                 struct err *err) {
    char path[PATH_MAX];
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < f->n; i++)
        total += f->list[i].chosen ? f->list[i].bytes : 0;
    for (size_t i = 0; i < f->n; i++) {
        if (!f->list[i].chosen ||
            snprintf(path, sizeof path, "%s/%s", root, f->list[i].name) >= PATH_MAX)
            continue;
        TRY(verify_file(&f->list[i], path, progress, done, total, err));
        done += f->list[i].bytes;
    }
    *bytes = total;
    return ST_OK;
}

enum status hub_verify(const struct hub_name *name, const struct progress *progress,
                       uint64_t *bytes, struct err *err) {
    char path[PATH_MAX], folder[PATH_MAX], root[PATH_MAX];
    struct hub_files f;
    long first;
    TRY(hub_cache_find(name, path, err)); /* its sentences */
    TRY(hub_cache_folder(name->repo, folder, err));
    for (size_t i = 0; hub_cache_snapshot(folder, i, root); i++) {
        if (!str_starts(path, root))
            continue;
        TRY(hub_files_in(root, &f, err));
        enum status st = hub_files_choose(&f, name, &first, err);
        if (st == ST_OK)
            st = verify_chosen(&f, root, progress, bytes, err);
        hub_files_deinit(&f);
        return st;
    }
    return err_set(err, ST_NOT_FOUND, "%s is gone", name->repo);
}
