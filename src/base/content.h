/* content.h: the digest of a file's contents, computed or read from a cache.
 *
 * A file is cut into blocks of CONTENT_BLOCK bytes (the last is shorter). Its digest is the
 * BLAKE2b of the blocks' BLAKE2bs. So a process that receives a file in pieces has the digest
 * without reading the file again.
 *
 * Reading 700 GB takes minutes. So a digest is stored with the file's identity, size and times
 * (file_id.h) in $XDG_CACHE_HOME/lockstep/digests (or ~/.cache), in one small file each. If any
 * of these changes, the digest is computed again. The caller must have called sodium_init(). */
#ifndef LOCKSTEP_BASE_CONTENT_H
#define LOCKSTEP_BASE_CONTENT_H

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
    /* Pauses for as long as it works, so others lose only half a core. (With a scheduler's
     * lowest priority it would never finish on a machine whose cores are always busy.) */
    bool gently;
};
/* What is kept of the file at that path, or else what it is read for. ST_AGAIN: another process
 * reads it just now; ST_IO: it cannot be read, or changed meanwhile; ST_NOT_FOUND, ST_NO_MEMORY.
 * progress may be NULL. */
enum status content_read(uint8_t out[CONTENT_BYTES], const char *path,
                         const struct content_progress *progress, struct err *err);

#endif
