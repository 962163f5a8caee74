#include "cluster/store.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/util.h"
#include "cluster/client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Asked for at once. Larger ones take longer: their buffers are fresh pages each time. */
#define PIECE_BYTES ((size_t)1 << 20)

enum status store_path(char *out, size_t size, struct err *err) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int n = -1;
    if (data != NULL && *data != '\0')
        n = snprintf(out, size, "%s/lockstep/models", data);
    else if (home != NULL && *home != '\0')
        n = snprintf(out, size, "%s/.local/share/lockstep/models", home);
    if (n < 0 || (size_t)n >= size)
        return err_set(err, ST_NOT_FOUND, "there is no place for models: $HOME is not set");
    return ST_OK;
}

/* Under its own name, or, where another model has that, in a folder named after its content. */
static bool place(const char *store, const struct model_files *m, bool apart, char *out,
                  size_t size) {
    uint8_t digest[MODEL_DIGEST_BYTES];
    char hex[17];
    int n;
    model_files_digest(m, digest);
    sodium_bin2hex(hex, sizeof hex, digest, 8);
    if (apart)
        n = snprintf(out, size, "%s/%s/%s", store, hex, m->name);
    else
        n = snprintf(out, size, "%s/%s", store, m->name);
    return n >= 0 && (size_t)n < size;
}

bool store_find(const char *store, const struct model_files *m, const char *hint, char *out,
                size_t size) {
    if (hint != NULL && *hint == '/' && snprintf(out, size, "%s", hint) < (int)size &&
        model_files_are_at(m, out))
        return true;
    for (int apart = 0; apart < 2; apart++)
        if (place(store, m, apart, out, size) && model_files_are_at(m, out))
            return true;
    return false;
}

/* ---- fetching -------------------------------------------------------------------------------- */

/* Every folder above the file. */
static enum status make_folders(const char *path, struct err *err) {
    char part[PATH_MAX];
    struct stat st;
    const char *last = strrchr(path, '/');
    for (const char *slash = strchr(path + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (mkdir(part, 0755) != 0 && slash == last &&
            (stat(part, &st) != 0 || !S_ISDIR(st.st_mode)))
            return err_set(err, ST_IO, "%s: %s", part, strerror(errno));
    }
    return ST_OK;
}

struct fetching {
    struct client *client;
    const struct store_progress *progress;
    uint64_t done; /* of files before this one */
    char *piece;
};

static enum status write_all(int fd, const char *bytes, size_t n, const char *path,
                             struct err *err) {
    while (n > 0) {
        ssize_t k = write(fd, bytes, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_set(err, errno == ENOSPC || errno == EDQUOT ? ST_NO_MEMORY : ST_IO,
                           "%s: %s", path, strerror(errno));
        bytes += k;
        n -= (size_t)k;
    }
    return ST_OK;
}

/* From `at` to the end of file number i of the share. */
static enum status fetch_rest(struct fetching *f, size_t i, const struct model_file *file,
                              int fd, uint64_t at, const char *path, struct err *err) {
    char source[64];
    snprintf(source, sizeof source, "/v1/files/%zu", i);
    while (at < file->bytes) {
        size_t n = (size_t)MIN((uint64_t)PIECE_BYTES, file->bytes - at);
        const struct client_pieces piece = {.at = at, .n = n, .count = 1};
        TRY(client_pieces(f->client, source, &piece, f->piece, err));
        TRY(write_all(fd, f->piece, n, path, err));
        at += n;
        if (f->progress != NULL && !f->progress->fn(f->progress->user, f->done + at))
            return err_set(err, ST_CANCELLED, "%s: given up", path);
    }
    return ST_OK;
}

/* Into PATH.part, which is locked, and then PATH. */
static enum status fetch_into(struct fetching *f, size_t i, const struct model_file *file,
                              const char *part, const char *path, struct err *err) {
    int fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set(err, ST_IO, "%s: %s", part, strerror(errno));
    enum status st = ST_OK;
    off_t at = 0;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        st = err_set(err, ST_IO, "%s is being fetched already", path);
    if (st == ST_OK)
        at = lseek(fd, 0, SEEK_END);
    if (st == ST_OK && at > (off_t)file->bytes && ftruncate(fd, at = 0) != 0)
        st = err_set(err, ST_IO, "%s: %s", part, strerror(errno));
    if (st == ST_OK && lseek(fd, at, SEEK_SET) < 0)
        st = err_set(err, ST_IO, "%s: %s", part, strerror(errno));
    if (st == ST_OK)
        st = fetch_rest(f, i, file, fd, (uint64_t)at, part, err);
    if (st == ST_OK && fsync(fd) != 0)
        st = err_set(err, ST_IO, "%s: %s", part, strerror(errno));
    if (st == ST_OK && !model_file_is_at(file, part)) {
        (void)unlink(part);
        st = err_set(err, ST_IO, "%s came damaged or changed meanwhile: once more, please",
                     file->name);
    }
    if (st == ST_OK && rename(part, path) != 0)
        st = err_set(err, ST_IO, "%s: %s", path, strerror(errno));
    close(fd);
    return st;
}

static enum status fetch_file(struct fetching *f, size_t i, const struct model_files *m,
                              const char *model_path, struct err *err) {
    const struct model_file *file = &m->list[i];
    char path[PATH_MAX], part[PATH_MAX], hex[17];
    sodium_bin2hex(hex, sizeof hex, file->digest, 8);
    /* The digest in the name: what was left of another file of this name is none of this one. */
    if (!model_files_place(m, i, model_path, path, sizeof path) ||
        snprintf(part, sizeof part, "%s.%s.part", path, hex) >= (int)sizeof part)
        return err_set(err, ST_BAD_INPUT, "%s: too long a path", model_path);
    if (model_file_is_at(file, path))
        return ST_OK;
    TRY(make_folders(path, err));
    return fetch_into(f, i, file, part, path, err);
}

static enum status check_room_at(const char *path, const struct model_files *m,
                                 struct err *err) {
    char folder[PATH_MAX];
    struct statvfs fs;
    TRY(make_folders(path, err));
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    uint64_t here = 0;
    for (size_t i = 0; i < m->n; i++) {
        char file[PATH_MAX], part[PATH_MAX + 32], hex[17];
        struct stat st;
        sodium_bin2hex(hex, sizeof hex, m->list[i].digest, 8);
        if (!model_files_place(m, i, path, file, sizeof file))
            continue;
        snprintf(part, sizeof part, "%s.%s.part", file, hex);
        if (stat(part, &st) == 0 || stat(file, &st) == 0)
            here += (uint64_t)st.st_size;
    }
    if (statvfs(folder, &fs) == 0 && m->bytes > here &&
        (uint64_t)fs.f_bavail * fs.f_frsize < m->bytes - here)
        return err_set(
            err, ST_NO_MEMORY, "%s has room for %.1f GB, the model needs %.1f GB more", folder,
            (double)fs.f_bavail * (double)fs.f_frsize * 1e-9, (double)(m->bytes - here) * 1e-9);
    return ST_OK;
}

/* Is there something of another model in the way? */
static bool is_taken(const struct model_files *m, const char *path) {
    char file[PATH_MAX];
    struct stat st;
    for (size_t i = 0; i < m->n; i++)
        if (model_files_place(m, i, path, file, sizeof file) && stat(file, &st) == 0 &&
            !model_file_is_at(&m->list[i], file))
            return true;
    return false;
}

/* Where this model is to go: under its own name, if that is free. */
static enum status choose_place(const char *store, const struct model_files *m, char *out,
                                size_t size, struct err *err) {
    if (!place(store, m, false, out, size) ||
        (is_taken(m, out) && !place(store, m, true, out, size)))
        return err_set(err, ST_BAD_INPUT, "%s/%s: too long a path", store, m->name);
    return ST_OK;
}

enum status store_check_room(const char *store, const struct model_files *m, struct err *err) {
    char path[PATH_MAX];
    TRY(choose_place(store, m, path, sizeof path, err));
    return check_room_at(path, m, err);
}

enum status store_fetch(const char *store, const struct identity *id, const char *address,
                        const struct model_files *m, const struct store_progress *progress,
                        char *out, size_t size, struct err *err) {
    struct fetching f = {.progress = progress};
    TRY(choose_place(store, m, out, size, err));
    TRY(check_room_at(out, m, err));
    TRY(client_open(&f.client, id, address, err));
    f.piece = mem_alloc(PIECE_BYTES);
    enum status st =
        f.piece != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory to fetch a model");
    for (size_t i = 0; st == ST_OK && i < m->n; i++) {
        st = fetch_file(&f, i, m, out, err);
        f.done += m->list[i].bytes;
    }
    mem_free(f.piece);
    client_close(f.client);
    return st;
}

/* ---- heads alone ----------------------------------------------------------------------------- */

/* A folder of its own, out of the way of whoever looks for models. */
static bool link_place(const char *store, const struct model_files *m, const char *name,
                       char *out, size_t size) {
    uint8_t digest[MODEL_DIGEST_BYTES];
    char hex[2 * MODEL_DIGEST_BYTES + 1];
    model_files_digest(m, digest);
    sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
    int n = snprintf(out, size, "%s/.links/%s/%s", store, hex, name);
    return n >= 0 && (size_t)n < size;
}

/* The address is beside the heads; no model's file has a name that begins with a dot. */
#define LINK_ADDRESS ".address"
#define ADDRESS_MAX 256

static enum status fetch_head(struct client *c, size_t i, const struct model_file *file,
                              const char *path, struct err *err) {
    struct file_new to;
    char source[64];
    uint8_t *piece = mem_alloc(PIECE_BYTES);
    if (piece == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to fetch a model");
    snprintf(source, sizeof source, "/v1/files/%zu", i);
    enum status st = file_new_open(&to, path, err);
    for (uint64_t at = 0; st == ST_OK && at < file->head; at += PIECE_BYTES) {
        const struct client_pieces p = {
            .at = at, .n = (size_t)MIN((uint64_t)PIECE_BYTES, file->head - at), .count = 1};
        st = client_pieces(c, source, &p, piece, err);
        if (st == ST_OK && fwrite(piece, 1, p.n, to.f) != p.n)
            st = file_new_failed(&to, errno, err);
    }
    if (st == ST_OK)
        st = file_new_finish(&to, false, err);
    file_new_drop(&to);
    mem_free(piece);
    return st;
}

static enum status fetch_heads(const char *store, struct client *c, const struct model_files *m,
                               struct err *err) {
    char path[PATH_MAX];
    struct stat there;
    for (size_t i = 0; i < m->n; i++) {
        if (!link_place(store, m, m->list[i].name, path, sizeof path))
            return err_set(err, ST_BAD_INPUT, "%s: too long a path", store);
        TRY(make_folders(path, err));
        if (stat(path, &there) != 0 || (uint64_t)there.st_size != m->list[i].head)
            TRY(fetch_head(c, i, &m->list[i], path, err));
    }
    return ST_OK;
}

static enum status remember(const char *store, const struct model_files *m, const char *address,
                            struct err *err) {
    char path[PATH_MAX];
    struct file_new to;
    if (!link_place(store, m, LINK_ADDRESS, path, sizeof path))
        return err_set(err, ST_BAD_INPUT, "%s: too long a path", store);
    TRY(file_new_open(&to, path, err));
    enum status st = fputs(address, to.f) >= 0 ? file_new_finish(&to, false, err)
                                               : file_new_failed(&to, errno, err);
    file_new_drop(&to);
    return st;
}

enum status store_link(const char *store, const struct identity *id, const char *address,
                       const struct model_files *m, char *out, size_t size, struct err *err) {
    struct client *c;
    if (!model_files_have_heads(m))
        return err_set(err, ST_UNSUPPORTED, "%s is no GGUF: only a whole copy of it will do",
                       m->name);
    if (!link_place(store, m, m->name, out, size))
        return err_set(err, ST_BAD_INPUT, "%s: too long a path", store);
    TRY(client_open(&c, id, address, err));
    enum status st = fetch_heads(store, c, m, err);
    client_close(c);
    return st == ST_OK ? remember(store, m, address, err) : st;
}

bool store_find_link(const char *store, const struct model_files *m, char *out, size_t size,
                     char *address, size_t address_size) {
    char path[PATH_MAX], *text;
    struct err ignored;
    if (!link_place(store, m, m->name, out, size) ||
        !link_place(store, m, LINK_ADDRESS, path, sizeof path) ||
        file_read_text(&text, NULL, path, ADDRESS_MAX, &ignored) != ST_OK)
        return false;
    bool fits = snprintf(address, address_size, "%s", text) < (int)address_size;
    mem_free(text);
    return fits;
}
