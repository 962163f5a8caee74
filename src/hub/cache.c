/* cache.c: Finds and places a hub's models in the folder that programs for the hub share. */
#include "hub/cache.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/program.h"
#include "base/util.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 8
#define SNAPSHOTS_MAX 256
#define TOKEN_BYTES_MAX 4096

/* ---- where --------------------------------------------------------------------------------- */

/* HF_HOME, or what stands for it; false: there is no home directory. */
static bool hf_home(char out[PATH_MAX]) {
    const char *own = env_get("HF_HOME"), *xdg = env_get("XDG_CACHE_HOME"),
               *home = env_get("HOME");
    int n = -1;
    if (own != NULL)
        n = snprintf(out, PATH_MAX, "%s", own);
    else if (xdg != NULL)
        n = snprintf(out, PATH_MAX, "%s/huggingface", xdg);
    else if (home != NULL)
        n = snprintf(out, PATH_MAX, "%s/.cache/huggingface", home);
    return n >= 0 && n < PATH_MAX;
}

enum status hub_cache_root(char out[PATH_MAX], struct err *err) {
    char home[PATH_MAX];
    const char *own = env_get("HF_HUB_CACHE");
    int n = -1;
    if (own != NULL)
        n = snprintf(out, PATH_MAX, "%s", own);
    else if (hf_home(home))
        n = snprintf(out, PATH_MAX, "%s/hub", home);
    if (n < 0 || n >= PATH_MAX)
        return err_set(err, ST_NOT_FOUND,
                       "there is no place for models: neither $HF_HOME nor $HOME is set");
    return ST_OK;
}

bool hub_token(char *out, size_t size) {
    char home[PATH_MAX], path[PATH_MAX];
    char *text = NULL;
    const char *from = env_get("HF_TOKEN");
    if (from == NULL && hf_home(home) &&
        snprintf(path, sizeof path, "%s/token", home) < PATH_MAX &&
        file_read_text(&text, NULL, path, TOKEN_BYTES_MAX, NULL) == ST_OK)
        from = text;
    if (from == NULL)
        return false;
    size_t n = strcspn(from, " \t\r\n");
    bool good = n > 0 && n < size;
    if (good)
        snprintf(out, size, "%.*s", (int)n, from);
    mem_free(text);
    return good;
}

static enum status too_long(const char *what, struct err *err) {
    return err_set(err, ST_BAD_INPUT, "%.200s: too long a path", what);
}

enum status hub_cache_folder(const char *repo, char out[PATH_MAX], struct err *err) {
    char root[PATH_MAX];
    TRY(hub_cache_root(root, err));
    const char *slash = strchr(repo, '/');
    int n = snprintf(out, PATH_MAX, "%s/models--%.*s--%s", root, (int)(slash - repo), repo,
                     slash + 1);
    return n < PATH_MAX ? ST_OK : too_long(root, err);
}

/* ---- reading a snapshot -------------------------------------------------------------------- */

struct walk {
    struct hub_files *files;
    const char *root; /* of the snapshot */
    bool no_memory;
};

/* The name of the blob that the link leads to; "": it leads elsewhere. */
static void hash_of(const char *path, char out[HUB_HASH_BYTES]) {
    char to[PATH_MAX];
    ssize_t n = readlink(path, to, sizeof to - 1);
    *out = '\0';
    if (n <= 0)
        return;
    to[n] = '\0';
    const char *slash = strrchr(to, '/'), *base = slash != NULL ? slash + 1 : to;
    if (hub_is_hash(base, 40) || hub_is_hash(base, 64))
        memcpy(out, base, strlen(base) + 1);
}

static void walk_folder(struct walk *w, const char *path, int depth);

static void walk_entry(struct walk *w, const char *path, int depth) {
    char hash[HUB_HASH_BYTES];
    struct stat st, own;
    if (stat(path, &st) != 0 || lstat(path, &own) != 0)
        return;
    const char *name = path + strlen(w->root) + 1;
    if (S_ISDIR(own.st_mode) && depth > 0)
        walk_folder(w, path, depth - 1);
    else if (S_ISREG(st.st_mode) && hub_file_name_is_safe(name)) {
        hash_of(path, hash);
        w->no_memory |= !hub_files_add(w->files, name, (uint64_t)st.st_size, hash);
    }
}

static void walk_folder(struct walk *w, const char *path, int depth) {
    char inner[PATH_MAX];
    DIR *dir = opendir(path);
    if (dir == NULL)
        return;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, "..") &&
            snprintf(inner, sizeof inner, "%s/%s", path, e->d_name) < PATH_MAX)
            walk_entry(w, inner, depth);
    closedir(dir);
}

enum status hub_files_in(const char *folder, struct hub_files *out, struct err *err) {
    struct hub_files f = {.n = 0};
    struct walk w = {&f, folder, false};
    walk_folder(&w, folder, DEPTH_MAX);
    if (w.no_memory) {
        hub_files_deinit(&f);
        return err_set(err, ST_NO_MEMORY, "no memory for a list of files");
    }
    *out = f;
    return ST_OK;
}

/* ---- finding ------------------------------------------------------------------------------- */

struct snapshot {
    char commit[HUB_HASH_BYTES];
    bool is_main;
    time_t when;
};

static int compare(const void *a, const void *b) {
    const struct snapshot *x = a, *y = b;
    if (x->is_main != y->is_main)
        return x->is_main ? -1 : 1;
    if (x->when != y->when)
        return x->when > y->when ? -1 : 1;
    return strcmp(x->commit, y->commit);
}

/* "": not known. */
static void read_main(const char *folder, char out[HUB_HASH_BYTES]) {
    char path[PATH_MAX], *text = NULL;
    *out = '\0';
    if (snprintf(path, sizeof path, "%s/refs/main", folder) >= PATH_MAX ||
        file_read_text(&text, NULL, path, 256, NULL) != ST_OK)
        return;
    text[strcspn(text, " \r\n")] = '\0';
    if (hub_is_hash(text, 40))
        snprintf(out, HUB_HASH_BYTES, "%s", text);
    mem_free(text);
}

static size_t snapshots_of(const char *folder, struct snapshot out[SNAPSHOTS_MAX]) {
    char path[PATH_MAX], inner[PATH_MAX], current[HUB_HASH_BYTES];
    struct stat st;
    size_t n = 0;
    read_main(folder, current);
    DIR *dir =
        snprintf(path, sizeof path, "%s/snapshots", folder) < PATH_MAX ? opendir(path) : NULL;
    if (dir == NULL)
        return 0;
    for (const struct dirent *e; n < SNAPSHOTS_MAX && (e = readdir(dir)) != NULL;) {
        if (!hub_is_hash(e->d_name, 40) ||
            snprintf(inner, sizeof inner, "%s/%s", path, e->d_name) >= PATH_MAX ||
            stat(inner, &st) != 0)
            continue;
        out[n] = (struct snapshot){.is_main = str_eq(e->d_name, current), .when = st.st_mtime};
        memcpy(out[n++].commit, e->d_name, strlen(e->d_name) + 1);
    }
    closedir(dir);
    qsort(out, n, sizeof *out, compare);
    return n;
}

bool hub_cache_snapshot(const char *folder, size_t i, char out[PATH_MAX]) {
    struct snapshot *all = mem_calloc(SNAPSHOTS_MAX, sizeof *all);
    bool there = all != NULL && i < snapshots_of(folder, all) &&
                 snprintf(out, PATH_MAX, "%s/snapshots/%s", folder, all[i].commit) < PATH_MAX;
    mem_free(all);
    return there;
}

/* Whether it has all shards that its index names is seen when it is opened. */
static enum status find_in(const char *root, const struct hub_name *name, char out[PATH_MAX],
                           struct err *err) {
    struct hub_files f;
    long first;
    TRY(hub_files_in(root, &f, err));
    enum status st = hub_files_choose(&f, name, &first, err);
    if (st == ST_OK && snprintf(out, PATH_MAX, "%s%s%s", root, first >= 0 ? "/" : "",
                                first >= 0 ? f.list[first].name : "") >= PATH_MAX)
        st = too_long(root, err);
    hub_files_deinit(&f);
    return st;
}

enum status hub_cache_find(const struct hub_name *name, char out[PATH_MAX], struct err *err) {
    char folder[PATH_MAX], root[PATH_MAX];
    struct err why;
    TRY(hub_cache_folder(name->repo, folder, err));
    enum status st = ST_NOT_FOUND;
    for (size_t i = 0; st == ST_NOT_FOUND && hub_cache_snapshot(folder, i, root); i++)
        st = find_in(root, name, out, &why);
    if (st == ST_NOT_FOUND)
        return err_set(err, st, "%s%s%s is not here: lockstep pull %s%s%s downloads it",
                       name->repo, *name->want != '\0' ? ":" : "", name->want, name->repo,
                       *name->want != '\0' ? ":" : "", name->want);
    return st == ST_OK ? ST_OK : err_set(err, st, "%s", why.text);
}

/* ---- placing ------------------------------------------------------------------------------- */

static enum status failed(const char *path, struct err *err) {
    return err_set(err, ST_IO, "%.300s: %s", path, strerror(errno));
}

enum status hub_cache_make(const char *folder, const char *rest, struct err *err) {
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", folder, rest) >= PATH_MAX)
        return too_long(folder, err);
    path[strlen(folder) + 1] = '\0'; /* the folder itself may lie behind a link */
    TRY(file_make_folders(path, 0755, err));
    snprintf(path, sizeof path, "%s/%s", folder, rest);
    for (char *p = path + strlen(folder); (p = strchr(p + 1, '/')) != NULL; *p = '/') {
        *p = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            return failed(path, err);
        if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))
            return err_set(err, ST_IO, "%.300s is a link, and not a folder: it is refused",
                           path);
    }
    return ST_OK;
}

static atomic_uint n_links; /* two threads may make the same one */

enum status hub_cache_link(const char *folder, const char *commit, const struct hub_file *file,
                           struct err *err) {
    char rest[PATH_MAX], path[PATH_MAX], fresh[PATH_MAX], to[PATH_MAX], is[HUB_HASH_BYTES];
    size_t n = 0;
    if (snprintf(rest, sizeof rest, "snapshots/%s/%s", commit, file->name) >= PATH_MAX ||
        snprintf(path, sizeof path, "%s/%s", folder, rest) >= PATH_MAX ||
        snprintf(fresh, sizeof fresh, "%s/snapshots/.%s.%ld.%u", folder, file->hash,
                 (long)getpid(), atomic_fetch_add(&n_links, 1)) >= PATH_MAX)
        return too_long(folder, err);
    TRY(hub_cache_make(folder, rest, err));
    hash_of(path, is);
    if (str_eq(is, file->hash) && access(path, R_OK) == 0)
        return ST_OK;
    for (const char *p = rest; *p != '\0'; p++)
        if (*p == '/')
            n += (size_t)snprintf(to + n, sizeof to - n, "../");
    snprintf(to + n, sizeof to - n, "blobs/%s", file->hash);
    (void)unlink(fresh);
    if (symlink(to, fresh) != 0)
        return failed(fresh, err);
    if (rename(fresh, path) != 0) {
        enum status st = failed(path, err);
        (void)unlink(fresh);
        return st;
    }
    return file_sync_folder(path, err);
}

#define MAIN_TRIES 100
#define MAIN_GAP_MS 20

static bool says(const char *path, const char *commit) {
    char *text = NULL;
    struct err ignored;
    bool same = file_read_text(&text, NULL, path, HUB_HASH_BYTES, &ignored) == ST_OK &&
                str_eq(text, commit);
    mem_free(text);
    return same;
}

static enum status write_main(const char *path, const char *commit, struct err *err) {
    struct file_new file;
    TRY(file_new_open(&file, path, err));
    if (fputs(commit, file.f) < 0) {
        enum status st = file_new_failed(&file, errno, err);
        file_new_drop(&file);
        return st;
    }
    return file_new_finish(&file, true, err);
}

/* Two that pull the same at once end at the same time. */
enum status hub_cache_set_main(const char *folder, const char *commit, struct err *err) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/refs/main", folder) >= PATH_MAX)
        return too_long(folder, err);
    TRY(hub_cache_make(folder, "refs/main", err));
    for (int i = 1;; i++) {
        if (says(path, commit))
            return ST_OK;
        enum status st = write_main(path, commit, err);
        if (st == ST_OK || i == MAIN_TRIES)
            return st;
        poll(NULL, 0, MAIN_GAP_MS);
    }
}
