/* map.h: a file of a model, mapped for reading. */
#ifndef LOCKSTEP_FORMAT_MAP_H
#define LOCKSTEP_FORMAT_MAP_H

#include "base/file_id.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_map {
    char *path; /* owned */
    const uint8_t *bytes;
    size_t size;
    struct file_id id; /* when it was opened */
    bool mapped;       /* by us: to be unmapped; false: the bytes are somebody else's */
};

/* A regular file that is not empty. The sentence begins with the path. */
enum status file_map_open(struct file_map *out, const char *path, struct err *err);
void file_map_close(struct file_map *m);

#endif
