/* file.h: small text files, whole. */
#ifndef LOCKSTEP_BASE_FILE_H
#define LOCKSTEP_BASE_FILE_H

#include "base/status.h"

#include <stddef.h>

/* Reads a file of max_bytes at most: *out gets its bytes and a 0 behind them, freed with mem_free(); *n_bytes,
 * unless it is NULL, how many they are. Works on pipes too. ST_NOT_FOUND: it cannot be opened; ST_BAD_INPUT:
 * it is larger; ST_IO, ST_NO_MEMORY. */
enum status file_read_text(char **out, size_t *n_bytes, const char *path, size_t max_bytes,
                           struct err *err);

#endif
