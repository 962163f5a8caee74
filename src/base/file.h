/* file.h: reads whole small text files, and creates files that are never visible half written.
 */
#ifndef LOCKSTEP_BASE_FILE_H
#define LOCKSTEP_BASE_FILE_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Reads a file of at most max_bytes. *out gets its bytes and a 0 after them (free with
 * mem_free()). *n_bytes gets their number, unless it is NULL. Works on pipes too. ST_NOT_FOUND:
 * there is no such file. ST_BAD_INPUT: it is larger. ST_IO: it exists but cannot be read.
 * ST_NO_MEMORY. */
enum status file_read_text(char **out, size_t *n_bytes, const char *path, size_t max_bytes,
                           struct err *err);

/* Appends what is left of an open one, to max_bytes at most; the sentences call it `name`. The
 * same statuses. */
enum status file_read_rest(struct buf *out, FILE *f, const char *name, size_t max_bytes,
                           struct err *err);

/* The absolute path, for a process that works in another directory. Links are not followed,
 * since a file's name may matter (the parts of a split model). ST_NOT_FOUND: nothing has this
 * path. */
enum status file_absolute(char *out, size_t size, const char *path, struct err *err);

/* Creates every missing folder above `path` with these rights. ST_IO names the first one that
 * cannot be created, and why. */
enum status file_make_folders(const char *path, mode_t mode, struct err *err);

/* Waits until the names in the folder of `path` are on the disk: what a rename there has done
 * survives a power cut. A file system that cannot say so (EINVAL) passes. ST_IO. */
enum status file_sync_folder(const char *path, struct err *err);

/* When it was last read, in Unix time, as far as its file system notes that (Linux: once a day);
 * 0: not known. */
int64_t file_used_s(const char *path);

/* Exactly n bytes from `at` on; false: they are not there, or cannot be read (errno). */
bool file_read_at(int fd, void *buf, size_t n, uint64_t at);

/* The descriptor of this process's output, stdout's or stderr's, that goes to what is there
 * (/dev/stdout); -1: neither does. */
int file_own_output(const char *path);

#define FILE_NEW_TAIL ".part"

/* A file under way: PATH.part, which becomes PATH when it is complete. What is there already
 * and no regular file (/dev/null, a pipe) is written in place: renaming would put a file where
 * the device was. So is what this process's output goes to (/dev/stdout), behind what is in it. */
struct file_new {
    FILE *f; /* to be written to; NULL: not open */
    char *path;
    char *part; /* what f writes; path itself where it is written in place */
    int lock;   /* keeps others from writing it at the same time; -1: nothing does */
};

/* ST_IO: it cannot be created, or another process is writing it; ST_NO_MEMORY. */
enum status file_new_open(struct file_new *out, const char *path, struct err *err);
/* The sentence for a write to f that failed with this errno: ST_IO. */
enum status file_new_failed(const struct file_new *n, int error, struct err *err);
/* Flushes, renames, closes. sync: returns once bytes and name are on the disk, so that a power
 * cut takes neither. ST_IO: nothing is left of it; or, with sync, it has its name but would
 * perhaps lose it. */
enum status file_new_finish(struct file_new *n, bool sync, struct err *err);
/* Closes and removes what was not finished; nothing to do for one that was, or is zero. */
void file_new_drop(struct file_new *n);

#endif
