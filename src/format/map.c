#include "format/map.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status map_fd(int fd, const char *path, struct file_map *out, struct err *err) {
    struct stat sb;
    if (fstat(fd, &sb) != 0)
        return err_set(err, ST_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(sb.st_mode))
        return err_set(err, ST_BAD_INPUT, "%s: not a regular file", path);
    if (sb.st_size == 0)
        return err_set(err, ST_BAD_INPUT, "%s: not a model file: it is empty", path);
    size_t size = (size_t)sb.st_size;
    void *bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return err_set(err, ST_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    *out = (struct file_map){.bytes = bytes, .size = size, .mapped = true};
    (void)file_id_of(fd, &out->id);
    return ST_OK;
}

enum status file_map_open(struct file_map *out, const char *path, struct err *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for a writer */
    if (fd < 0)
        return err_set(err, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", path,
                       strerror(errno));
    struct file_map m;
    enum status st = map_fd(fd, path, &m, err);
    close(fd);
    if (st != ST_OK)
        return st;
    m.path = mem_strdup(path);
    if (!m.path) {
        file_map_close(&m);
        return err_set(err, ST_NO_MEMORY, "%s: no memory", path);
    }
    *out = m;
    return ST_OK;
}

void file_map_close(struct file_map *m) {
    if (m->mapped)
        munmap((void *)m->bytes, m->size);
    mem_free(m->path);
    *m = (struct file_map){0};
}
