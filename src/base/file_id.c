/* file_id.c: The identity of a file and its state: device, inode, size and times. */
#include "base/file_id.h"

#include <sys/stat.h>

#ifdef __linux__
#define MODIFIED(st) (st)->st_mtim
#define CHANGED(st) (st)->st_ctim
#else
#define MODIFIED(st) (st)->st_mtimespec
#define CHANGED(st) (st)->st_ctimespec
#endif

static int64_t ns_of(struct timespec t) {
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct file_id id_of(const struct stat *st) {
    return (struct file_id){.device = (uint64_t)st->st_dev,
                            .number = (uint64_t)st->st_ino,
                            .bytes = (uint64_t)st->st_size,
                            .modified_ns = ns_of(MODIFIED(st)),
                            .changed_ns = ns_of(CHANGED(st))};
}

bool file_id_of(int fd, struct file_id *out) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return false;
    *out = id_of(&st);
    return true;
}

bool file_id_at(const char *path, struct file_id *out) {
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    *out = id_of(&st);
    return true;
}

bool file_id_same_data(const struct file_id *a, const struct file_id *b) {
    return a->device == b->device && a->number == b->number && a->bytes == b->bytes &&
           a->modified_ns == b->modified_ns;
}

bool file_id_same(const struct file_id *a, const struct file_id *b) {
    return file_id_same_data(a, b) && a->changed_ns == b->changed_ns;
}
