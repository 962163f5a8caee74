/* file_id.h: identifies a file and its state. Writing to it, truncating it or replacing it
 * changes the id, as far as the system's clock distinguishes writes (milliseconds). It includes
 * the status change time (ctime). Unlike the modification time, ctime cannot be set back
 * (touch, rsync --times). */
#ifndef LOCKSTEP_BASE_FILE_ID_H
#define LOCKSTEP_BASE_FILE_ID_H

#include <stdbool.h>
#include <stdint.h>

struct file_id {
    uint64_t device, number, bytes;
    int64_t modified_ns, changed_ns; /* since 1970; content, and status */
};

/* Of an open file; false: it cannot be had (errno). */
bool file_id_of(int fd, struct file_id *out);
/* Of what is at that path, links followed. */
bool file_id_at(const char *path, struct file_id *out);
bool file_id_same(const struct file_id *a, const struct file_id *b);
/* The same but for the status, which a new name or other rights change, too. */
bool file_id_same_data(const struct file_id *a, const struct file_id *b);

#endif
