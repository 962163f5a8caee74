/* shm_segment_darwin.c: shared memory on macOS, which has no memfd. A POSIX name exists from
 * create to hide, that is for the duration of one handshake. Not yet run. */
#include "link/shm_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
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
    s->base = p;
    s->size_bytes = size_bytes;
    return ST_OK;
}

enum status shm_segment_create(struct shm_segment *s, size_t size_bytes, struct err *err) {
    *s = (struct shm_segment){.fd = -1};
    snprintf(s->name, sizeof s->name, "/ls.%08x%08x", randombytes_random(),
             randombytes_random());
    int fd = shm_open(s->name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return err_set(err, ST_NO_MEMORY, "cannot create shared memory %s: %s", s->name,
                       strerror(errno));
    enum status st =
        ftruncate(fd, (off_t)size_bytes) == 0
            ? map(s, fd, size_bytes, err)
            : err_set(err, ST_NO_MEMORY, "shared memory %s: %s", s->name, strerror(errno));
    s->fd = fd;
    if (st != ST_OK)
        shm_segment_hide(s);
    return st;
}

enum status shm_segment_attach(struct shm_segment *s, const char *name, size_t size_bytes,
                               struct err *err) {
    *s = (struct shm_segment){.fd = -1};
    struct stat sb;
    int fd = shm_open(name, O_RDWR);
    if (fd < 0)
        return err_set(err, ST_UNSUPPORTED, "cannot open the peer's shared memory %s: %s", name,
                       strerror(errno));
    enum status st =
        fstat(fd, &sb) == 0 && (size_t)sb.st_size >= size_bytes
            ? map(s, fd, size_bytes, err)
            : err_set(err, ST_UNSUPPORTED, "%s is not the peer's shared memory", name);
    close(fd);
    return st;
}

void shm_segment_hide(struct shm_segment *s) {
    if (s->fd < 0)
        return;
    close(s->fd);
    shm_unlink(s->name);
    s->fd = -1;
}

void shm_segment_close(struct shm_segment *s) {
    shm_segment_hide(s);
    if (s->base != NULL)
        munmap(s->base, s->size_bytes);
    s->base = NULL;
}
