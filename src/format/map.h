/* map.h: a file of a model, mapped for reading.
 *
 * A file that is written to in place is so in the map, too; what lies behind the end of one that
 * is cut short is no memory any more, and reading it is SIGBUS. Whoever keeps a map guards it,
 * and asks before what was read is used. A file that is replaced, renamed or deleted stays what
 * it was. */
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
    int guard;         /* number of its guard and 1; 0: none */
    struct file_id id; /* when it was opened */
    bool mapped;       /* by us: to be unmapped; false: the bytes are somebody else's */
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
