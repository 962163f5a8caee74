/* content.c: Computes the digest of a model's files in the background, and stores known digests
 * on disk. */
#include "base/content.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/program.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#define KEPT_MAX 512
#define REST_BYTES (16 * (uint64_t)CONTENT_BLOCK)
#define REST_MAX_NS ((uint64_t)1000000000)

void content_block(uint8_t out[CONTENT_BYTES], const void *bytes, size_t n) {
    crypto_generichash(out, CONTENT_BYTES, bytes, n, NULL, 0);
}

void content_begin(struct content *c) {
    crypto_generichash_init(&c->state, NULL, 0, CONTENT_BYTES);
}

void content_add(struct content *c, const uint8_t block[CONTENT_BYTES]) {
    crypto_generichash_update(&c->state, block, CONTENT_BYTES);
}

void content_end(struct content *c, uint8_t out[CONTENT_BYTES]) {
    crypto_generichash_final(&c->state, out, CONTENT_BYTES);
}

/* ---- what is kept ------------------------------------------------------------------------ */

/* One file for each that was read, whichever state it was in. */
static bool kept_path(const struct file_id *id, char out[PATH_MAX]) {
    const char *cache = env_get("XDG_CACHE_HOME"), *home = env_get("HOME");
    int n = -1;
    if (cache != NULL)
        n = snprintf(out, PATH_MAX, "%s/lockstep/digests/%" PRIx64 "-%" PRIx64, cache,
                     id->device, id->number);
    else if (home != NULL)
        n = snprintf(out, PATH_MAX, "%s/.cache/lockstep/digests/%" PRIx64 "-%" PRIx64, home,
                     id->device, id->number);
    return n > 0 && n < PATH_MAX;
}

bool content_recall(const struct file_id *id, uint8_t out[CONTENT_BYTES]) {
    char path[PATH_MAX], hex[2 * CONTENT_BYTES + 1], *text;
    struct file_id then = *id;
    size_t n = 0;
    if (!kept_path(id, path) || file_read_text(&text, NULL, path, KEPT_MAX, NULL) != ST_OK)
        return false;
    bool is = sscanf(text, "%" SCNu64 " %" SCNd64 " %" SCNd64 " %64[0-9a-f]", &then.bytes,
                     &then.modified_ns, &then.changed_ns, hex) == 4 &&
              file_id_same(&then, id) &&
              sodium_hex2bin(out, CONTENT_BYTES, hex, strlen(hex), NULL, &n, NULL) == 0 &&
              n == CONTENT_BYTES;
    mem_free(text);
    return is;
}

static void write_kept(struct file_new *file, const struct file_id *id,
                       const uint8_t digest[CONTENT_BYTES]) {
    char hex[2 * CONTENT_BYTES + 1];
    sodium_bin2hex(hex, sizeof hex, digest, CONTENT_BYTES);
    if (fprintf(file->f, "%" PRIu64 " %" PRId64 " %" PRId64 " %s\n", id->bytes, id->modified_ns,
                id->changed_ns, hex) > 0)
        (void)file_new_finish(file, false, NULL);
}

/* Held while the file is read, so that only one of a machine's ranks reads it. *file stays zero
 * if digests cannot be stored. */
static enum status begin_keeping(const struct file_id *id, struct file_new *file) {
    char path[PATH_MAX];
    *file = (struct file_new){.f = NULL};
    if (!kept_path(id, path) || file_make_folders(path, 0700, NULL) != ST_OK)
        return ST_OK;
    errno = 0;
    return file_new_open(file, path, NULL) != ST_OK && errno == EWOULDBLOCK ? ST_AGAIN : ST_OK;
}

void content_remember(const struct file_id *id, const uint8_t digest[CONTENT_BYTES]) {
    struct file_new file;
    if (begin_keeping(id, &file) == ST_OK && file.f != NULL)
        write_kept(&file, id, digest);
    file_new_drop(&file);
}

/* ---- reading ----------------------------------------------------------------------------- */

static void rest(uint64_t *since_ns) {
    uint64_t worked_ns = clock_ns() - *since_ns;
    poll(NULL, 0, (int)(MIN(worked_ns, REST_MAX_NS) / 1000000));
    *since_ns = clock_ns();
}

static enum status read_blocks(uint8_t out[CONTENT_BYTES], int fd, const char *path,
                               uint64_t bytes, const struct content_progress *progress,
                               struct err *err) {
    struct content all;
    uint8_t block[CONTENT_BYTES];
    uint8_t *buf = mem_alloc(CONTENT_BLOCK);
    enum status st =
        buf != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory to read %s", path);
    uint64_t began_ns = clock_ns();
    content_begin(&all);
    for (uint64_t at = 0; st == ST_OK && at < bytes; at += CONTENT_BLOCK) {
        size_t n = (size_t)MIN((uint64_t)CONTENT_BLOCK, bytes - at);
        if (progress != NULL && !progress->fn(progress->user, at))
            st = err_set(err, ST_CANCELLED, "%s: given up", path);
        else if (!file_read_at(fd, buf, n, at))
            st = err_set(err, ST_IO, "%s: cannot be read", path);
        else
            content_block(block, buf, n);
        content_add(&all, block);
        if (progress != NULL && progress->gently &&
            at % REST_BYTES == REST_BYTES - CONTENT_BLOCK)
            rest(&began_ns);
    }
    content_end(&all, out);
    mem_free(buf);
    return st;
}

static enum status read_open(uint8_t out[CONTENT_BYTES], int fd, const char *path,
                             const struct content_progress *progress, struct err *err) {
    struct file_id id, after;
    struct file_new file;
    if (!file_id_of(fd, &id))
        return err_set(err, ST_IO, "%s: %s", path, strerror(errno));
    if (content_recall(&id, out))
        return ST_OK;
    if (begin_keeping(&id, &file) != ST_OK)
        return err_set(err, ST_AGAIN, "%s is being read by another process", path);
    /* What is kept must not outlive, in a power cut, what it was made of. */
    (void)fsync(fd);
    enum status st = read_blocks(out, fd, path, id.bytes, progress, err);
    if (st == ST_OK && (!file_id_of(fd, &after) || !file_id_same(&id, &after)))
        st = err_set(err, ST_IO, "%s has changed while it was read", path);
    if (st == ST_OK && file.f != NULL)
        write_kept(&file, &id, out);
    file_new_drop(&file);
    return st;
}

enum status content_read(uint8_t out[CONTENT_BYTES], const char *path,
                         const struct content_progress *progress, struct err *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait */
    if (fd < 0)
        return err_set(err, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", path,
                       strerror(errno));
    enum status st = read_open(out, fd, path, progress, err);
    close(fd);
    return st;
}
