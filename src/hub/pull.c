/* pull.c: Downloads the files of a model one after the other, and continues what was cut. */
#include "hub/pull.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/util.h"
#include "hub/checksum.h"
#include "hub/pieces.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOCKED_MS 100

/* ---- the list ------------------------------------------------------------------------------ */

static enum status list_files(struct hub_connection *c, const struct hub_name *name,
                              const char *revision, struct hub_files *out, struct err *err) {
    struct buf path = {.len = 0};
    json_t *reply = NULL;
    if (!hub_file_name_is_safe(revision) || strpbrk(revision, "?#% ") != NULL)
        return err_set(err, ST_BAD_INPUT, "'%.80s' is no name of a revision", revision);
    buf_printf(&path, "api/models/%s/revision/%s?blobs=true", name->repo, revision);
    enum status st = path.failed ? err_set(err, ST_NO_MEMORY, "no memory for a request")
                                 : hub_json(c, buf_cstr(&path), name->repo, &reply, err);
    buf_free(&path);
    TRY(st);
    st = hub_files_read(out, reply, err);
    json_decref(reply);
    return st == ST_OK ? ST_OK : err_prefix(err, st, "%s: ", name->repo);
}

enum status hub_list(const struct hub_name *name, const struct hub_settings *settings,
                     const char *revision, struct hub_files *out, struct err *err) {
    struct hub_connection *c;
    TRY(hub_open(&c, settings, err));
    enum status st = list_files(c, name, revision, out, err);
    hub_close(c);
    return st;
}

/* ---- one file ------------------------------------------------------------------------------- */

struct pulling {
    const struct hub_name *name;
    const struct progress *progress;
    struct hub_connection *connection;
    const struct hub_settings *settings;
    const struct hub_files *files;
    char folder[PATH_MAX];
    uint64_t total, done; /* done: of files before this one */
    uint64_t came;
    /* The file under way. */
    const struct hub_file *file;
    char blob[PATH_MAX], part[PATH_MAX];
    int fd;
    uint64_t at;
    struct hub_checksum sum;
};

static bool is_wanted(void *user) {
    struct pulling *p = user;
    return progress_report(p->progress, p->done + p->at, p->total);
}

static enum status write_failed(const struct pulling *p, struct err *err) {
    if (errno == ENOSPC || errno == EDQUOT)
        return err_set(err, ST_NO_MEMORY,
                       "%s: the disk of %.200s is full; what came of %s stays", p->name->repo,
                       p->folder, p->file->name);
    return err_set(err, ST_IO, "%.300s: %s", p->part, strerror(errno));
}

static enum status take(void *user, const void *bytes, size_t n, struct err *err) {
    struct pulling *p = user;
    for (size_t done = 0; done < n;) {
        ssize_t k = pwrite(p->fd, (const char *)bytes + done, n - done, (off_t)(p->at + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return write_failed(p, err);
        done += (size_t)k;
    }
    TRY(hub_checksum_add(&p->sum, bytes, n, err));
    p->at += n;
    p->came += n;
    return ST_OK;
}

static enum status restart(void *user, struct err *err) {
    struct pulling *p = user;
    p->at = 0;
    hub_checksum_end(&p->sum, NULL);
    if (ftruncate(p->fd, 0) != 0)
        return write_failed(p, err);
    return hub_checksum_begin(&p->sum, p->file->hash, p->file->bytes, err);
}

/* What is here of it already, into the checksum. */
static enum status begin_file(struct pulling *p, struct err *err) {
    struct stat st;
    TRY(hub_checksum_begin(&p->sum, p->file->hash, p->file->bytes, err));
    if (fstat(p->fd, &st) != 0)
        return write_failed(p, err);
    if ((uint64_t)st.st_size > p->file->bytes)
        return restart(p, err);
    TRY(hub_checksum_add_file(&p->sum, p->fd, (uint64_t)st.st_size, p->part, p->progress,
                              p->done, p->total, err));
    p->at = (uint64_t)st.st_size;
    return ST_OK;
}

static enum status fetch_rest(struct pulling *p, bool *is_right, struct err *err) {
    char is[HUB_HASH_BYTES];
    struct hub_download d = {.repo = p->name->repo,
                             .commit = p->files->commit,
                             .file = p->file->name,
                             .hash = p->file->hash,
                             .bytes = p->file->bytes,
                             .at = p->at,
                             .take = take,
                             .restart = restart,
                             .user = p};
    TRY(hub_download_pieces(p->connection, p->settings, &d, err));
    hub_checksum_end(&p->sum, is);
    *is_right = str_eq(is, p->file->hash);
    return ST_OK;
}

/* A file that was continued and is wrong has perhaps lost what was here in a power cut: it is
 * fetched whole, once. */
static enum status fetch_right(struct pulling *p, struct err *err) {
    bool is_right = false;
    TRY(begin_file(p, err));
    bool continued = p->at > 0;
    TRY(fetch_rest(p, &is_right, err));
    if (!is_right && continued) {
        TRY(restart(p, err));
        TRY(fetch_rest(p, &is_right, err));
    }
    if (is_right)
        return ST_OK;
    (void)unlink(p->part);
    return err_set(err, ST_IO,
                   "%s: %s came with another checksum than the hub lists, and is removed",
                   p->name->repo, p->file->name);
}

static enum status name_blob(struct pulling *p, struct err *err) {
    if (fsync(p->fd) != 0)
        return write_failed(p, err);
    if (rename(p->part, p->blob) != 0)
        return err_set(err, ST_IO, "%.300s: %s", p->blob, strerror(errno));
    return file_sync_folder(p->blob, err);
}

static bool has_size(const char *path, uint64_t bytes) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == bytes;
}

static enum status fetch_blob(struct pulling *p, struct err *err) {
    if (has_size(p->blob, p->file->bytes)) /* another process was quicker */
        return ST_OK;
    p->fd = open(p->part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (p->fd < 0)
        return err_set(err, ST_IO, "%.300s: %s", p->part, strerror(errno));
    enum status st = fetch_right(p, err);
    hub_checksum_end(&p->sum, NULL);
    if (st == ST_OK)
        st = name_blob(p, err);
    close(p->fd);
    return st;
}

/* The lock is huggingface_hub's own, too. */
static enum status open_lock(struct pulling *p, int *out, struct err *err) {
    char root[PATH_MAX], rest[PATH_MAX], path[PATH_MAX];
    TRY(hub_cache_root(root, err));
    if (snprintf(rest, sizeof rest, ".locks%s/%s.lock", strrchr(p->folder, '/'),
                 p->file->hash) >= PATH_MAX ||
        snprintf(path, sizeof path, "%s/%s", root, rest) >= PATH_MAX)
        return err_set(err, ST_BAD_INPUT, "%.200s: too long a path", root);
    TRY(hub_cache_make(root, rest, err));
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set(err, ST_IO, "%.300s: %s", path, strerror(errno));
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        bool busy = errno == EWOULDBLOCK || errno == EINTR;
        if (!busy || !is_wanted(p)) {
            enum status st = busy ? err_set(err, ST_CANCELLED, "%s: given up", p->name->repo)
                                  : err_set(err, ST_IO, "%.300s: %s", path, strerror(errno));
            close(fd);
            return st;
        }
        poll(NULL, 0, LOCKED_MS);
    }
    *out = fd;
    return ST_OK;
}

static bool name_parts(struct pulling *p, const struct hub_file *file) {
    p->file = file;
    p->at = 0;
    return snprintf(p->blob, sizeof p->blob, "%s/blobs/%s", p->folder, file->hash) < PATH_MAX &&
           snprintf(p->part, sizeof p->part, "%s" HUB_INCOMPLETE, p->blob) < PATH_MAX;
}

static enum status pull_file(struct pulling *p, const struct hub_file *file, struct err *err) {
    int lock = -1;
    if (!name_parts(p, file))
        return err_set(err, ST_BAD_INPUT, "%.200s: too long a path", p->folder);
    if (!has_size(p->blob, file->bytes)) {
        TRY(open_lock(p, &lock, err));
        enum status st = fetch_blob(p, err);
        close(lock);
        TRY(st);
    }
    p->done += file->bytes;
    p->at = 0;
    return hub_cache_link(p->folder, p->files->commit, file, err);
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* Bytes that are still to come. */
static uint64_t missing(struct pulling *p) {
    uint64_t n = 0;
    for (size_t i = 0; i < p->files->n; i++) {
        const struct hub_file *f = &p->files->list[i];
        struct stat st;
        if (!f->chosen || !name_parts(p, f) || has_size(p->blob, f->bytes))
            continue;
        uint64_t here = stat(p->part, &st) == 0 ? (uint64_t)st.st_size : 0;
        n += f->bytes - MIN(here, f->bytes);
    }
    return n;
}

static enum status check_room(struct pulling *p, struct err *err) {
    struct statvfs fs;
    uint64_t want = missing(p);
    if (statvfs(p->folder, &fs) != 0)
        return err_set(err, ST_IO, "%.300s: %s", p->folder, strerror(errno));
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (want > room)
        return err_set(
            err, ST_NO_MEMORY,
            "%s wants %.2f GB more, and the disk of %.200s has %.2f GB left (HF_HOME "
            "names another place)",
            p->name->repo, (double)want * 1e-9, p->folder, (double)room * 1e-9);
    return ST_OK;
}

static enum status check_chosen(struct pulling *p, struct err *err) {
    for (size_t i = 0; i < p->files->n; i++) {
        const struct hub_file *f = &p->files->list[i];
        if (f->chosen && *f->hash == '\0')
            return err_set(err, ST_UNSUPPORTED, "%s: the hub lists no checksum of %.200s",
                           p->name->repo, f->name);
        if (f->chosen && __builtin_add_overflow(p->total, f->bytes, &p->total))
            return err_set(err, ST_BAD_INPUT, "%s: the sizes of its files cannot be",
                           p->name->repo);
    }
    return ST_OK;
}

static enum status pull_files(struct pulling *p, const char *revision, struct err *err) {
    char rest[HUB_HASH_BYTES + 16];
    TRY(check_chosen(p, err));
    TRY(hub_cache_folder(p->name->repo, p->folder, err));
    snprintf(rest, sizeof rest, "snapshots/%s/", p->files->commit);
    TRY(hub_cache_make(p->folder, "blobs/", err));
    TRY(hub_cache_make(p->folder, rest, err));
    TRY(check_room(p, err));
    for (size_t i = 0; i < p->files->n; i++)
        if (p->files->list[i].chosen)
            TRY(pull_file(p, &p->files->list[i], err));
    return str_eq(revision, "main") ? hub_cache_set_main(p->folder, p->files->commit, err)
                                    : ST_OK;
}

static enum status pull_chosen(struct pulling *p, struct hub_files *files, const char *revision,
                               struct hub_pulled *out, struct err *err) {
    long first;
    TRY(hub_files_choose(files, p->name, &first, err));
    p->files = files;
    TRY(pull_files(p, revision, err));
    if (snprintf(out->path, sizeof out->path, "%s/snapshots/%s%s%s", p->folder, files->commit,
                 first >= 0 ? "/" : "", first >= 0 ? files->list[first].name : "") >= PATH_MAX)
        return err_set(err, ST_BAD_INPUT, "%.200s: too long a path", p->folder);
    out->bytes = p->total;
    out->came = p->came;
    return ST_OK;
}

enum status hub_pull_listed(const struct hub_name *name, const struct hub_settings *settings,
                            const char *revision, struct hub_files *files,
                            const struct progress *progress, struct hub_pulled *out,
                            struct err *err) {
    struct pulling p = {.name = name, .progress = progress};
    struct hub_settings own = *settings;
    own.go_on = is_wanted;
    own.user = &p;
    p.settings = &own;
    TRY(hub_open(&p.connection, &own, err));
    enum status st = pull_chosen(&p, files, revision, out, err);
    hub_close(p.connection);
    return st;
}

static bool goes_on(void *user) {
    return progress_report(user, 0, 0);
}

enum status hub_pull(const struct hub_name *name, const struct hub_settings *settings,
                     const char *revision, const struct progress *progress,
                     struct hub_pulled *out, struct err *err) {
    struct hub_settings listing = *settings;
    struct hub_files files;
    listing.go_on = goes_on;
    listing.user = (void *)(uintptr_t)progress;
    TRY(hub_list(name, &listing, revision, &files, err));
    enum status st = hub_pull_listed(name, settings, revision, &files, progress, out, err);
    hub_files_deinit(&files);
    return st;
}
