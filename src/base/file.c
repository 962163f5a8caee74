/* file.c: Reads and writes whole small files, and puts new files in place only when they are
 * complete. */
#include "base/file.h"

#include "base/mem.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum status file_read_text(char **out, size_t *n_bytes, const char *path, size_t max_bytes,
                           struct err *err) {
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return err_set(err, errno == ENOENT || errno == ENOTDIR ? ST_NOT_FOUND : ST_IO,
                       "%s: %s", path, strerror(errno));
    struct buf text = {0};
    enum status st = file_read_rest(&text, f, path, max_bytes, err);
    fclose(f);
    if (st != ST_OK) {
        buf_free(&text);
        return st;
    }
    *out = text.bytes;
    if (n_bytes != NULL)
        *n_bytes = text.len;
    return ST_OK;
}

enum status file_read_rest(struct buf *out, FILE *f, const char *name, size_t max_bytes,
                           struct err *err) {
    char piece[16384];
    size_t n;
    while (out->len <= max_bytes && (n = fread(piece, 1, sizeof piece, f)) > 0 &&
           buf_add(out, piece, n))
        ;
    if (ferror(f))
        return err_set(err, ST_IO, "%s: %s", name, strerror(errno));
    if (out->len > max_bytes)
        return err_set(err, ST_BAD_INPUT, "%s: larger than %zu bytes", name, max_bytes);
    return buf_add(out, NULL, 0) ? ST_OK
                                 : err_set(err, ST_NO_MEMORY, "no memory to read %s", name);
}

enum status file_absolute(char *out, size_t size, const char *path, struct err *err) {
    struct stat there;
    size_t n = 0;
    if (stat(path, &there) != 0)
        return err_set(err, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", path,
                       strerror(errno));
    if (*path != '/') {
        if (getcwd(out, size) == NULL)
            return err_set(err, ST_IO, "the working directory has no path: %s",
                           strerror(errno));
        n = strlen(out);
    }
    int k = snprintf(out + n, size - n, "%s%s", *path != '/' ? "/" : "", path);
    return k >= 0 && (size_t)k < size - n
               ? ST_OK
               : err_set(err, ST_BAD_INPUT, "%s: too long a path", path);
}

enum status file_make_folders(const char *path, mode_t mode, struct err *err) {
    char part[PATH_MAX];
    struct stat st;
    for (const char *slash = strchr(path + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        int why = mkdir(part, mode) == 0 ? 0 : errno;
        if (why == 0 || (stat(part, &st) == 0 && S_ISDIR(st.st_mode)))
            continue;
        return err_set(err, ST_IO, "%s: %s", part, strerror(why == EEXIST ? ENOTDIR : why));
    }
    return ST_OK;
}

enum status file_sync_folder(const char *path, struct err *err) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash == NULL ? 1 : (int)MAX(slash - path, 1);
    if (snprintf(folder, sizeof folder, "%.*s", n, slash == NULL ? "." : path) >= PATH_MAX)
        return err_set(err, ST_IO, "%s: too long a path", path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    int why = errno;
    if (fd >= 0)
        close(fd);
    return good ? ST_OK
                : err_set(err, ST_IO, "%s: its names cannot be written: %s", folder,
                          strerror(why));
}

bool file_read_at(int fd, void *buf, size_t n, uint64_t at) {
    for (size_t done = 0; done < n;) {
        ssize_t k = pread(fd, (char *)buf + done, n - done, (off_t)(at + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        done += (size_t)k;
    }
    return true;
}

/* ---- new files ----------------------------------------------------------------------------- */

static bool in_place(const struct file_new *n) {
    return strcmp(n->part, n->path) == 0;
}

static bool is_at(int fd, const char *path) {
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

/* Opens an empty part file that no other process writes and returns its descriptor. -1 and
 * errno on failure (EWOULDBLOCK: another process writes it). On a file system without locks
 * there is no such check. */
static int open_part(const char *part) {
    for (;;) {
        int fd = open(part, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0)
            return -1;
        bool busy = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        /* Or has the one before given it its final name since? */
        bool renamed = !busy && !is_at(fd, part);
        if (!busy && !renamed && ftruncate(fd, 0) == 0)
            return fd;
        int why = busy ? EWOULDBLOCK : errno;
        close(fd);
        errno = why;
        if (!renamed)
            return -1;
    }
}

static enum status start_part(struct file_new *n, struct err *err) {
    int fd = open_part(n->part);
    n->lock = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1; /* until it has its final name */
    n->f = fd >= 0 && n->lock >= 0 ? fdopen(fd, "wb") : NULL;
    if (n->f != NULL)
        return ST_OK;
    int why = errno;
    if (fd >= 0)
        close(fd);
    if (n->lock >= 0)
        close(n->lock);
    if (why == EWOULDBLOCK)
        return err_set(err, ST_IO, "%s is being written by another command", n->path);
    return file_new_failed(n, why, err);
}

int file_own_output(const char *path) {
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (is_at(fd, path))
            return fd;
    return -1;
}

/* own: -1, or a descriptor to share, since another one would begin at the start of the file
 * again. */
static enum status start_in_place(struct file_new *n, int own, struct err *err) {
    int fd = own >= 0 ? fcntl(own, F_DUPFD_CLOEXEC, 0) : -1;
    n->f = own < 0 ? fopen(n->part, "wb") : fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (n->f != NULL)
        return ST_OK;
    int why = errno;
    if (fd >= 0)
        close(fd);
    return file_new_failed(n, why, err);
}

enum status file_new_open(struct file_new *out, const char *path, struct err *err) {
    struct file_new n = {.path = mem_strdup(path),
                         .part = mem_alloc(strlen(path) + sizeof FILE_NEW_TAIL),
                         .lock = -1};
    struct stat there;
    enum status st = ST_OK;
    if (n.path == NULL || n.part == NULL) {
        st = err_set(err, ST_NO_MEMORY, "no memory to write %s", path);
    } else {
        bool regular = stat(path, &there) != 0 || S_ISREG(there.st_mode);
        int own = regular ? file_own_output(path) : -1;
        bool whole = regular && own < 0;
        sprintf(n.part, "%s%s", path, whole ? FILE_NEW_TAIL : "");
        st = whole ? start_part(&n, err) : start_in_place(&n, own, err);
    }
    if (st != ST_OK) {
        mem_free(n.path);
        mem_free(n.part);
        return st;
    }
    *out = n;
    return ST_OK;
}

enum status file_new_failed(const struct file_new *n, int error, struct err *err) {
    return err_set(err, ST_IO, "cannot write %s: %s", n->part, strerror(error));
}

void file_new_drop(struct file_new *n) {
    if (n->f != NULL) {
        fclose(n->f);
        if (!in_place(n))
            unlink(n->part);
    }
    if (n->path != NULL && n->lock >= 0)
        close(n->lock);
    mem_free(n->path);
    mem_free(n->part);
    *n = (struct file_new){0};
}

enum status file_new_finish(struct file_new *n, bool sync, struct err *err) {
    bool ok = fflush(n->f) == 0 && !ferror(n->f) &&
              (!sync || in_place(n) || fsync(fileno(n->f)) == 0);
    if (ok) { /* closing may fail too: some file systems write only then */
        ok = fclose(n->f) == 0 && (in_place(n) || rename(n->part, n->path) == 0);
        n->f = NULL;
    }
    enum status st = ok ? ST_OK : file_new_failed(n, errno, err);
    if (!ok && n->f == NULL && !in_place(n)) /* file_new_drop() removes what is open */
        unlink(n->part);
    if (ok && sync && !in_place(n))
        st = file_sync_folder(n->path, err);
    file_new_drop(n);
    return st;
}

int64_t file_used_s(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_atime : 0;
}
