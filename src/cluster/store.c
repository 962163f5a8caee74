/* store.c: Finds a model on this machine, or copies it from another one, and continues
 * interrupted copies. */
#include "cluster/store.h"

#include "base/content.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/program.h"
#include "base/util.h"
#include "cluster/client.h"
#include "hub/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Asked for at once: a block. Larger ones take longer: their buffers are fresh pages each time. */
#define PIECE_BYTES CONTENT_BLOCK
#define SYNC_BLOCKS 128 /* come between two waits for the disk */
#define LOCKED_MS 100

enum status store_data_path(char *out, size_t size, const char *what, struct err *err) {
    const char *data = env_get("XDG_DATA_HOME"), *home = env_get("HOME");
    int n = -1;
    if (data != NULL)
        n = snprintf(out, size, "%s/lockstep/%s", data, what);
    else if (home != NULL)
        n = snprintf(out, size, "%s/.local/share/lockstep/%s", home, what);
    if (n < 0 || (size_t)n >= size)
        return err_set(err, ST_NOT_FOUND,
                       "there is no place for %s: $HOME is not set, and --%s not given", what,
                       what);
    return ST_OK;
}

enum status store_path(char *out, size_t size, struct err *err) {
    return store_data_path(out, size, "models", err);
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

/* What lies in the hub's cache of the machine that asks lies in this one's under the same names, if
 * it has been pulled here, too. */
static bool find_pulled(const struct model_files *m, const char *hint, char *out, size_t size) {
    const char *in_cache = strstr(hint, "/models--");
    char root[PATH_MAX];
    struct err ignored;
    return in_cache != NULL && hub_cache_root(root, &ignored) == ST_OK &&
           snprintf(out, size, "%s%s", root, in_cache) < (int)size &&
           model_files_are_at(m, out);
}

bool store_find(const char *store, const struct model_files *m, const char *hint, char *out,
                size_t size) {
    if (hint != NULL && *hint == '/' && snprintf(out, size, "%s", hint) < (int)size &&
        model_files_are_at(m, out))
        return true;
    if (hint != NULL && find_pulled(m, hint, out, size))
        return true;
    for (int apart = 0; apart < 2; apart++)
        if (place(store, m, apart, out, size) && model_files_are_at(m, out))
            return true;
    return false;
}

bool store_find_other(const char *store, const struct model_files *m, const char *hint,
                      char *out, size_t size) {
    if (hint != NULL && *hint == '/' && snprintf(out, size, "%s", hint) < (int)size &&
        access(out, F_OK) == 0)
        return true;
    return place(store, m, false, out, size) && access(out, F_OK) == 0;
}

/* ---- fetching ---------------------------------------------------------------------------- */

struct fetching {
    struct client *client;
    const struct store_progress *progress; /* NULL: not reported */
    uint64_t done;                         /* of files before this one */
    uint64_t at;                           /* of this one */
    char *piece;
};

static bool is_wanted(void *user) {
    struct fetching *f = user;
    return f->progress == NULL || f->progress->fn(f->progress->user, f->done + f->at);
}

static enum status begin_fetching(struct fetching *f, const struct identity *id,
                                  const char *address, struct err *err) {
    TRY(client_open(&f->client, id, address, err));
    client_ask_whether(f->client, is_wanted, f);
    f->piece = mem_alloc(PIECE_BYTES);
    if (f->piece != NULL)
        return ST_OK;
    client_close(f->client);
    return err_set(err, ST_NO_MEMORY, "no memory to fetch a model");
}

static void end_fetching(struct fetching *f) {
    mem_free(f->piece);
    client_close(f->client);
}

/* Up to PIECE_BYTES of file number i of the share, from f->at on; `until` bytes are wanted. */
static enum status fetch_piece(struct fetching *f, size_t i, uint64_t until, size_t *n,
                               struct err *err) {
    char source[64];
    *n = (size_t)MIN((uint64_t)PIECE_BYTES, until - f->at);
    const struct client_pieces piece = {.at = f->at, .n = *n, .count = 1};
    snprintf(source, sizeof source, "/v1/files/%zu", i);
    return client_pieces(f->client, source, &piece, f->piece, err);
}

static enum status write_failed(const char *path, struct err *err) {
    return err_set(err, errno == ENOSPC || errno == EDQUOT ? ST_NO_MEMORY : ST_IO, "%s: %s",
                   path, strerror(errno));
}

static enum status write_all(int fd, const char *bytes, size_t n, const char *path,
                             struct err *err) {
    while (n > 0) {
        ssize_t k = write(fd, bytes, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return write_failed(path, err);
        bytes += k;
        n -= (size_t)k;
    }
    return ST_OK;
}

/* From f->at to `until` of file number i of the share. */
static enum status fetch_rest(struct fetching *f, size_t i, uint64_t until, int fd,
                              const char *path, struct err *err) {
    size_t n;
    for (; f->at < until; f->at += n) {
        TRY(fetch_piece(f, i, until, &n, err));
        TRY(write_all(fd, f->piece, n, path, err));
    }
    return ST_OK;
}

/* Opens PATH.part, locked. Waits while another process has it; *gone: that process has ended
 * meanwhile, and the caller must look at what it has left. */
static enum status open_part(struct fetching *f, const char *part, int *out, bool *gone,
                             struct err *err) {
    struct stat here, there;
    int fd = open(part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set(err, ST_IO, "%s: %s", part, strerror(errno));
    enum status st = ST_OK;
    while (st == ST_OK && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            st = err_set(err, ST_IO, "%s: cannot be locked: %s", part, strerror(errno));
        else if (!is_wanted(f))
            st = err_set(err, ST_CANCELLED, "%s: given up", part);
        else
            poll(NULL, 0, LOCKED_MS);
    }
    *gone = st == ST_OK && (fstat(fd, &here) != 0 || stat(part, &there) != 0 ||
                            here.st_ino != there.st_ino || here.st_dev != there.st_dev);
    if (st == ST_OK && !*gone)
        *out = fd;
    else
        close(fd);
    return st;
}

/* The file of digests beside a part (struct part). */
static bool blocks_path(const char *part, char out[PATH_MAX]) {
    return snprintf(out, PATH_MAX, "%.*s.blocks", (int)(strlen(part) - strlen(FILE_NEW_TAIL)),
                    part) < PATH_MAX;
}

static void remove_part(const char *part) {
    char path[PATH_MAX];
    (void)unlink(part);
    if (blocks_path(part, path))
        (void)unlink(path);
}

/* Renames the part to its final name. It replaces an existing file only if that can be nothing
 * but a damaged file of this model. *taken: another file has come there since choose_place(). */
static enum status name_part(const struct model_file *file, const char *part, const char *path,
                             bool apart, bool *taken, struct err *err) {
    struct stat there;
    /* A file system without links looks first. */
    bool linked = !apart && link(part, path) == 0;
    bool in_the_way = !apart && !linked && lstat(path, &there) == 0;
    bool same = in_the_way && model_file_is_at(file, path);
    *taken = in_the_way && !same;
    if (!linked && !same && !*taken && rename(part, path) != 0)
        return err_set(err, ST_IO, "%s: %s", path, strerror(errno));
    if (!*taken)
        TRY(file_sync_folder(path, err));
    if (!*taken)
        remove_part(part);
    return ST_OK;
}

/* Every received byte is known, so the file need not be read again for its digest. */
static void remember_content(int fd, const char *path, const uint8_t content[CONTENT_BYTES]) {
    struct file_id mine, there;
    if (file_id_of(fd, &mine) && file_id_at(path, &there) && file_id_same(&mine, &there))
        content_remember(&mine, content);
}

/* ---- a part, and what of it is on the disk ------------------------------------------------ */

/* After a power cut a file may have its full length, with zeros where its data had not reached
 * the disk. So the digests of its blocks (base/content.h) are stored beside each part, as
 * they came from the network. They are written after their data is on the disk, and compared
 * with it when the copy continues. */
struct part {
    const char *path;
    int fd, blocks_fd;
    uint8_t *fresh; /* [SYNC_BLOCKS * CONTENT_BYTES] of the blocks that are not synced yet */
    size_t n_fresh;
    struct content content; /* of all blocks so far */
};

static enum status part_failed(const struct part *p, struct err *err) {
    return write_failed(p->path, err);
}

static enum status open_blocks(struct part *p, struct err *err) {
    char path[PATH_MAX];
    if (!blocks_path(p->path, path))
        return err_set(err, ST_BAD_INPUT, "%s: too long a path", p->path);
    p->blocks_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (p->blocks_fd < 0)
        return write_failed(path, err);
    p->fresh = mem_alloc(SYNC_BLOCKS * CONTENT_BYTES);
    return p->fresh != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory to fetch a model");
}

static void close_blocks(struct part *p) {
    if (p->blocks_fd >= 0)
        close(p->blocks_fd);
    mem_free(p->fresh);
}

/* Data first, then what says that they are there. */
static enum status sync_part(struct part *p, struct err *err) {
    if (p->n_fresh == 0)
        return ST_OK;
    if (fsync(p->fd) != 0)
        return part_failed(p, err);
    TRY(write_all(p->blocks_fd, (const char *)p->fresh, p->n_fresh * CONTENT_BYTES, p->path,
                  err));
    p->n_fresh = 0;
    return fsync(p->blocks_fd) == 0 ? ST_OK : part_failed(p, err);
}

static enum status add_block(struct part *p, const char *bytes, size_t n, struct err *err) {
    uint8_t *digest = p->fresh + p->n_fresh++ * CONTENT_BYTES;
    content_block(digest, bytes, n);
    content_add(&p->content, digest);
    return p->n_fresh == SYNC_BLOCKS ? sync_part(p, err) : ST_OK;
}

static uint64_t length_of(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* Does block number i of the part have the digest that it came with? */
static bool is_as_it_came(const struct part *p, uint64_t i, size_t n, char *buf,
                          uint8_t is[CONTENT_BYTES]) {
    uint8_t came[CONTENT_BYTES];
    if (!file_read_at(p->blocks_fd, came, sizeof came, i * CONTENT_BYTES) ||
        !file_read_at(p->fd, buf, n, i * CONTENT_BLOCK))
        return false;
    content_block(is, buf, n);
    return memcmp(is, came, sizeof came) == 0;
}

/* How much of the part is what came: f->at. Both files end there then, and are written on from
 * there. */
static enum status find_whole_blocks(struct fetching *f, struct part *p, uint64_t bytes,
                                     struct err *err) {
    uint8_t block[CONTENT_BYTES];
    uint64_t i = 0, at = 0;
    content_begin(&p->content);
    f->at = MIN(length_of(p->fd), bytes); /* as far as one knows */
    for (size_t n; at < bytes; at += n, i++) {
        n = (size_t)MIN((uint64_t)CONTENT_BLOCK, bytes - at);
        if (!is_as_it_came(p, i, n, f->piece, block))
            break;
        if (!is_wanted(f))
            return err_set(err, ST_CANCELLED, "%s: given up", p->path);
        content_add(&p->content, block);
    }
    f->at = at;
    off_t end = (off_t)(i * CONTENT_BYTES);
    if (ftruncate(p->fd, (off_t)at) != 0 || lseek(p->fd, (off_t)at, SEEK_SET) < 0 ||
        ftruncate(p->blocks_fd, end) != 0 || lseek(p->blocks_fd, end, SEEK_SET) < 0)
        return part_failed(p, err);
    return ST_OK;
}

/* From f->at to the end. What has come whole is kept, also where the rest does not come. */
static enum status fetch_blocks(struct fetching *f, size_t i, struct part *p, uint64_t bytes,
                                struct err *err) {
    size_t n;
    enum status st = ST_OK;
    while (st == ST_OK && f->at < bytes) {
        st = fetch_piece(f, i, bytes, &n, err);
        if (st == ST_OK)
            st = write_all(p->fd, f->piece, n, p->path, err);
        if (st == ST_OK)
            st = add_block(p, f->piece, n, err);
        if (st == ST_OK)
            f->at += n;
    }
    if (st == ST_OK)
        return sync_part(p, err);
    (void)sync_part(p, NULL);
    return st;
}

/* Fills the part that is open as fd; *content: of all of it. */
static enum status fill_part(struct fetching *f, size_t i, const struct model_file *file,
                             int fd, const char *path, uint8_t content[CONTENT_BYTES],
                             struct err *err) {
    struct part p = {.path = path, .fd = fd, .blocks_fd = -1};
    enum status st = open_blocks(&p, err);
    if (st == ST_OK)
        st = find_whole_blocks(f, &p, file->bytes, err);
    if (st == ST_OK)
        st = fetch_blocks(f, i, &p, file->bytes, err);
    bool damaged = st == ST_OK && !model_file_is_at(file, path);
    if (damaged)
        st = err_set(err, ST_IO, "%s was damaged on the way or changed meanwhile: try again",
                     file->name);
    if (st == ST_OK)
        content_end(&p.content, content);
    close_blocks(&p);
    /* It is of no use, nothing came, or it is what fills the disk. */
    if (damaged || st == ST_NO_MEMORY || (st != ST_OK && length_of(fd) == 0))
        remove_part(path);
    return st;
}

/* The paths of file i of the model that is opened as model_path, when complete and before. The
 * latter contains the digest, so the rest of another file with this name is not taken for this
 * one. */
static bool file_places(const struct model_files *m, size_t i, const char *model_path,
                        char path[PATH_MAX], char part[PATH_MAX]) {
    char hex[17];
    sodium_bin2hex(hex, sizeof hex, m->list[i].digest, 8);
    return model_files_place(m, i, model_path, path, PATH_MAX) &&
           snprintf(part, PATH_MAX, "%s.%s.part", path, hex) < PATH_MAX;
}

/* Where a model goes. */
struct destination {
    char path[PATH_MAX]; /* as which it is opened */
    bool apart;          /* the folder is named after its content: it has no other files */
};

/* *taken: another file has its name. */
static enum status fetch_file(struct fetching *f, size_t i, const struct model_files *m,
                              const struct destination *to, bool *taken, struct err *err) {
    const struct model_file *file = &m->list[i];
    char path[PATH_MAX], part[PATH_MAX];
    if (!file_places(m, i, to->path, path, part))
        return err_set(err, ST_BAD_INPUT, "%s: too long a path", to->path);
    TRY(file_make_folders(path, 0755, err));
    for (bool gone = true; gone;) {
        int fd;
        if (model_file_is_at(file, path))
            return ST_OK;
        TRY(open_part(f, part, &fd, &gone, err));
        if (gone)
            continue;
        uint8_t content[CONTENT_BYTES];
        enum status st = fill_part(f, i, file, fd, part, content, err);
        if (st == ST_OK)
            st = name_part(file, part, path, to->apart, taken, err);
        if (st == ST_OK && !*taken)
            remember_content(fd, path, content);
        close(fd);
        TRY(st);
    }
    return ST_OK;
}

static enum status fetch_all(struct fetching *f, const struct model_files *m,
                             const struct destination *to, bool *taken, struct err *err) {
    f->done = 0;
    for (size_t i = 0; i < m->n && !*taken; i++) {
        f->at = 0;
        TRY(fetch_file(f, i, m, to, taken, err));
        f->done += m->list[i].bytes;
    }
    return ST_OK;
}

/* What has arrived at one place need not be copied again to the other. Whole files are looked
 * for under both names, since another process may have copied the same; parts too. */
static void bring_along(const struct model_files *m, const struct destination *from,
                        const struct destination *to) {
    char path[PATH_MAX], part[PATH_MAX], new_path[PATH_MAX], new_part[PATH_MAX];
    for (size_t i = 0; i < m->n; i++) {
        if (!file_places(m, i, from->path, path, part) ||
            !file_places(m, i, to->path, new_path, new_part) ||
            file_make_folders(new_path, 0755, NULL) != ST_OK)
            continue;
        if (model_file_is_at(&m->list[i], path) && link(path, new_path) != 0)
            continue; /* then it comes anew */
        (void)rename(part, new_part);
        if (blocks_path(part, path) && blocks_path(new_part, new_path))
            (void)rename(path, new_path);
    }
}

static enum status check_room_at(const char *path, const struct model_files *m,
                                 struct err *err) {
    char folder[PATH_MAX];
    struct statvfs fs;
    TRY(file_make_folders(path, 0755, err));
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    uint64_t here = 0;
    for (size_t i = 0; i < m->n; i++) {
        char file[PATH_MAX], part[PATH_MAX];
        struct stat st;
        if (file_places(m, i, path, file, part) &&
            (stat(part, &st) == 0 || stat(file, &st) == 0))
            here += (uint64_t)st.st_size;
    }
    if (statvfs(folder, &fs) == 0 && m->bytes > here &&
        (uint64_t)fs.f_bavail * fs.f_frsize < m->bytes - here)
        return err_set(
            err, ST_NO_MEMORY, "%s has room for %.1f GB, the model needs %.1f GB more", folder,
            (double)fs.f_bavail * (double)fs.f_frsize * 1e-9, (double)(m->bytes - here) * 1e-9);
    return ST_OK;
}

/* Is there something else in the way? */
static bool is_taken(const struct model_files *m, const char *path) {
    char file[PATH_MAX];
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) != m->folder)
        return true;
    for (size_t i = 0; i < m->n; i++)
        if (model_files_place(m, i, path, file, sizeof file) && lstat(file, &st) == 0 &&
            !model_file_is_at(&m->list[i], file))
            return true;
    return false;
}

/* Where this model is to go: under its own name, if that is free. */
static enum status choose_place(const char *store, const struct model_files *m,
                                struct destination *out, struct err *err) {
    out->apart = false;
    bool fits = place(store, m, false, out->path, sizeof out->path);
    if (fits && is_taken(m, out->path)) {
        out->apart = true;
        fits = place(store, m, true, out->path, sizeof out->path);
    }
    return fits ? ST_OK : err_set(err, ST_BAD_INPUT, "%s/%s: too long a path", store, m->name);
}

enum status store_check_room(const char *store, const struct model_files *m, struct err *err) {
    struct destination to;
    TRY(choose_place(store, m, &to, err));
    return check_room_at(to.path, m, err);
}

enum status store_fetch(const char *store, const struct identity *id, const char *address,
                        const struct model_files *m, const struct store_progress *progress,
                        char *out, size_t size, struct err *err) {
    struct fetching f = {.progress = progress};
    struct destination to, before;
    bool taken = false;
    TRY(choose_place(store, m, &to, err));
    TRY(check_room_at(to.path, m, err));
    TRY(begin_fetching(&f, id, address, err));
    enum status st = fetch_all(&f, m, &to, &taken, err);
    if (st == ST_OK && taken) {
        before = to;
        taken = false;
        st = choose_place(store, m, &to, err);
        if (st == ST_OK) {
            bring_along(m, &before, &to);
            st = fetch_all(&f, m, &to, &taken, err);
        }
    }
    end_fetching(&f);
    if (st == ST_OK &&
        taken) /* twice: it was put there, gone when it was looked for, and is back */
        st = err_set(err, ST_IO, "%s: another process keeps replacing this file", to.path);
    if (st == ST_OK && snprintf(out, size, "%s", to.path) >= (int)size)
        st = err_set(err, ST_BAD_INPUT, "%s: too long a path", to.path);
    return st;
}

/* ---- heads alone ------------------------------------------------------------------------- */

/* A folder of its own, where no search for models looks. */
static bool link_place(const char *store, const struct model_files *m, const char *name,
                       char *out, size_t size) {
    uint8_t digest[MODEL_DIGEST_BYTES];
    char hex[2 * MODEL_DIGEST_BYTES + 1];
    model_files_digest(m, digest);
    sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
    int n = snprintf(out, size, "%s/.links/%s/%s", store, hex, name);
    return n >= 0 && (size_t)n < size;
}

/* The address is stored beside the heads; no model's file has a name that begins with a dot. */
#define LINK_ADDRESS ".address"
#define ADDRESS_MAX 256

static bool head_is_at(const struct model_file *file, const char *path) {
    struct stat there;
    return stat(path, &there) == 0 && (uint64_t)there.st_size == file->head;
}

/* PATH.part, empty, in the same manner as a whole file's: of two commands the second waits. */
static enum status open_small_part(struct fetching *f, const char *path, char part[PATH_MAX],
                                   int *fd, bool *gone, struct err *err) {
    if (snprintf(part, PATH_MAX, "%s" FILE_NEW_TAIL, path) >= PATH_MAX)
        return err_set(err, ST_BAD_INPUT, "%s: too long a path", path);
    TRY(open_part(f, part, fd, gone, err));
    if (*gone || ftruncate(*fd, 0) == 0)
        return ST_OK;
    close(*fd);
    return write_failed(part, err);
}

/* Closes it, and gives it its name if all went well. */
static enum status end_small_part(enum status st, int fd, const char *part, const char *path,
                                  struct err *err) {
    if (st == ST_OK && (fsync(fd) != 0 || rename(part, path) != 0))
        st = write_failed(path, err);
    if (st == ST_OK)
        st = file_sync_folder(path, err);
    if (st != ST_OK)
        (void)unlink(part);
    close(fd);
    return st;
}

static enum status fetch_head(struct fetching *f, size_t i, const struct model_file *file,
                              const char *path, struct err *err) {
    char part[PATH_MAX];
    for (bool gone = true; gone && !head_is_at(file, path);) {
        int fd = -1;
        TRY(open_small_part(f, path, part, &fd, &gone, err));
        if (gone)
            continue;
        f->at = 0;
        TRY(end_small_part(fetch_rest(f, i, file->head, fd, part, err), fd, part, path, err));
    }
    return ST_OK;
}

static enum status fetch_heads(const char *store, struct fetching *f,
                               const struct model_files *m, struct err *err) {
    char path[PATH_MAX];
    for (size_t i = 0; i < m->n; i++) {
        if (!link_place(store, m, m->list[i].name, path, sizeof path))
            return err_set(err, ST_BAD_INPUT, "%s: too long a path", store);
        TRY(file_make_folders(path, 0755, err));
        TRY(fetch_head(f, i, &m->list[i], path, err));
        f->done += m->list[i].head;
    }
    return ST_OK;
}

static enum status remember(const char *store, struct fetching *f, const struct model_files *m,
                            const char *address, struct err *err) {
    char path[PATH_MAX], part[PATH_MAX];
    if (!link_place(store, m, LINK_ADDRESS, path, sizeof path))
        return err_set(err, ST_BAD_INPUT, "%s: too long a path", store);
    for (bool gone = true; gone;) {
        int fd = -1;
        TRY(open_small_part(f, path, part, &fd, &gone, err));
        if (gone)
            continue;
        TRY(end_small_part(write_all(fd, address, strlen(address), part, err), fd, part, path,
                           err));
    }
    return ST_OK;
}

enum status store_link(const char *store, const struct identity *id, const char *address,
                       const struct model_files *m, const struct store_progress *progress,
                       char *out, size_t size, struct err *err) {
    struct fetching f = {.progress = progress};
    if (!model_files_have_heads(m))
        return err_set(err, ST_UNSUPPORTED, "%s is not a GGUF: it needs a whole copy", m->name);
    if (!link_place(store, m, m->name, out, size))
        return err_set(err, ST_BAD_INPUT, "%s: too long a path", store);
    if (strlen(address) > ADDRESS_MAX)
        return err_set(err, ST_BAD_INPUT, "%.40s...: the address is too long", address);
    TRY(begin_fetching(&f, id, address, err));
    enum status st = fetch_heads(store, &f, m, err);
    if (st == ST_OK)
        st = remember(store, &f, m, address, err);
    end_fetching(&f);
    return st;
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
