/* content.h: the digest of all bytes of a file, and what is known of it already.
 *
 * A file is cut into blocks of CONTENT_BLOCK bytes (the last is shorter); its digest is the
 * BLAKE2b of the BLAKE2bs of these, so whoever gets a file in pieces has its digest without
 * reading it again. Reading 700 GB takes minutes, so a digest is kept with the file's identity,
 * size and times (file_id.h) in $XDG_CACHE_HOME/lockstep/digests (or ~/.cache), a small file for
 * each; it is made anew when one of these is another. sodium_init() is the caller's. */
#ifndef LOCKSTEP_FORMAT_CONTENT_H
#define LOCKSTEP_FORMAT_CONTENT_H

#include "base/file_id.h"
#include "base/status.h"

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONTENT_BLOCK ((size_t)1 << 20)
#define CONTENT_BYTES 32

void content_block(uint8_t out[CONTENT_BYTES], const void *bytes, size_t n);

/* The digest of a file from those of its blocks, in order. */
struct content {
    crypto_generichash_state state;
};
void content_begin(struct content *c);
void content_add(struct content *c, const uint8_t block[CONTENT_BYTES]);
void content_end(struct content *c, uint8_t out[CONTENT_BYTES]);

/* What is kept of a file in this state; false: nothing. */
bool content_recall(const struct file_id *id, uint8_t out[CONTENT_BYTES]);
/* Keeps it. Where that cannot be done, nothing is: it is read again. */
void content_remember(const struct file_id *id, const uint8_t digest[CONTENT_BYTES]);

/* While a file is read: bytes so far; false: enough (ST_CANCELLED). */
struct content_progress {
    bool (*fn)(void *user, uint64_t bytes);
    void *user;
    /* Rests for as long as it works: half a core is what others lose meanwhile. (With a
     * scheduler's lowest priority it would never end where cores are busy for good.) */
    bool gently;
};
/* What is kept of the file at that path, or else what it is read for. ST_AGAIN: another process
 * reads it just now; ST_IO: it cannot be read, or changed meanwhile; ST_NOT_FOUND, ST_NO_MEMORY.
 * progress may be NULL. */
enum status content_read(uint8_t out[CONTENT_BYTES], const char *path,
                         const struct content_progress *progress, struct err *err);

#endif
