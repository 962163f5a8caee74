/* shm_segment_linux.c: shared memory on Linux. A memfd has no name at all. The other process of
 * the same user opens it through /proc/PID/fd, which also fails if the two are not on one host.
 */
#include "link/shm_segment.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status map(struct shm_segment *s, int fd, size_t size_bytes, struct err *err) {
    void *p = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_set(err, ST_NO_MEMORY, "cannot map %zu bytes of shared memory: %s",
                       size_bytes, strerror(errno));
    madvise(p, size_bytes, MADV_HUGEPAGE);
    s->base = p;
    s->size_bytes = size_bytes;
    return ST_OK;
}

enum status shm_segment_create(struct shm_segment *s, size_t size_bytes, struct err *err) {
    *s = (struct shm_segment){.fd = -1};
    int fd = memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)size_bytes) != 0) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return err_set(err, ST_NO_MEMORY, "cannot create %zu bytes of shared memory: %s",
                       size_bytes, strerror(error));
    }
    /* A peer that shrinks the file would turn our next access into SIGBUS. */
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    enum status st = map(s, fd, size_bytes, err);
    if (st != ST_OK) {
        close(fd);
        return st;
    }
    s->fd = fd;
    snprintf(s->name, sizeof s->name, "/proc/%d/fd/%d", (int)getpid(), fd);
    return ST_OK;
}

enum status shm_segment_attach(struct shm_segment *s, const char *name, size_t size_bytes,
                               struct err *err) {
    *s = (struct shm_segment){.fd = -1};
    struct stat sb;
    if (!str_starts(name, "/proc/") || strstr(name, "..") != NULL)
        return err_set(err, ST_BAD_INPUT, "\"%s\" names no shared memory", name);
    int fd = open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, ST_UNSUPPORTED, "cannot open the peer's shared memory %s: %s", name,
                       strerror(errno));
    enum status st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode) || (size_t)sb.st_size != size_bytes ||
        seals < 0 || !(seals & F_SEAL_SHRINK))
        st = err_set(err, ST_UNSUPPORTED, "%s is not the peer's shared memory", name);
    else
        st = map(s, fd, size_bytes, err);
    close(fd);
    return st;
}

void shm_segment_hide(struct shm_segment *s) {
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

void shm_segment_close(struct shm_segment *s) {
    shm_segment_hide(s);
    if (s->base != NULL)
        munmap(s->base, s->size_bytes);
    s->base = NULL;
}
