/* file_map.h: a model's file, mapped for reading.
 *
 * A file that is modified in place changes in the map, too. Memory behind the end of a
 * truncated file is not accessible: reading it raises SIGBUS. So the owner of a map guards it,
 * and checks it before data read from it is used. A file that is replaced, renamed or deleted
 * does not change in the map. */
#ifndef LOCKSTEP_BASE_FILE_MAP_H
#define LOCKSTEP_BASE_FILE_MAP_H

#include "base/file_id.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_map {
    char *path; /* owned */
    const uint8_t *bytes;
    size_t size;
    int guard;         /* number of its guard and 1; 0: none */
    struct file_id id; /* when it was opened */
    bool mapped;       /* we mapped it, and unmap it; false: the caller owns the bytes */
};

/* A regular file that is not empty. The sentence begins with the path. */
enum status file_map_open(struct file_map *out, const char *path, struct err *err);
void file_map_close(struct file_map *m);

/* Once, by the program and not the library: reading a guarded map behind the file's end gives
 * zeros from here on, and file_map_is_intact() knows. Any other SIGBUS ends the process. */
void file_map_catch(void);
/* Guards the map until it is closed; of very many the last are not. */
void file_map_guard(struct file_map *m);
/* Is what was read so far what the file was when it was opened? Allocates nothing. */
bool file_map_is_intact(const struct file_map *m);

#endif
