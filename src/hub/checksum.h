/* checksum.h: the names that a hub gives to files by what is in them: a SHA-256, or git's SHA-1. */
#ifndef LOCKSTEP_HUB_CHECKSUM_H
#define LOCKSTEP_HUB_CHECKSUM_H

#include "base/status.h"
#include "format/progress.h"
#include "hub/files.h"

struct hub_checksum {
    void *hash; /* of the library; NULL: none */
    size_t n_bytes;
};

/* of: the expected digits; their number says which kind it is. bytes: of the whole file. */
enum status hub_checksum_begin(struct hub_checksum *c, const char *of, uint64_t bytes,
                               struct err *err);
enum status hub_checksum_add(struct hub_checksum *c, const void *bytes, size_t n,
                             struct err *err);
/* Ends it. out: the digits; NULL: they are not wanted. */
void hub_checksum_end(struct hub_checksum *c, char out[HUB_HASH_BYTES]);

/* The first n bytes of an open file. progress may be NULL; its bytes begin at *done, which goes
 * on. ST_IO; ST_CANCELLED. */
enum status hub_checksum_add_file(struct hub_checksum *c, int fd, uint64_t n, const char *path,
                                  const struct progress *progress, uint64_t done,
                                  uint64_t total, struct err *err);

#endif
