/* checksum.c: Computes the checksums of a hub's files, with GnuTLS, which is fast at it. */
#include "hub/checksum.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/util.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <sodium.h>
#include <stdio.h>

#define PIECE ((size_t)1 << 20)

enum status hub_checksum_begin(struct hub_checksum *c, const char *of, uint64_t bytes,
                               struct err *err) {
    char head[40];
    gnutls_hash_hd_t hash;
    bool git = strlen(of) == 40;
    *c = (struct hub_checksum){NULL, git ? 20 : 32};
    if (gnutls_hash_init(&hash, git ? GNUTLS_DIG_SHA1 : GNUTLS_DIG_SHA256) != 0)
        return err_set(err, ST_UNSUPPORTED, "this system's GnuTLS has no %s",
                       git ? "SHA-1" : "SHA-256");
    c->hash = hash;
    if (git) {
        int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)bytes);
        return hub_checksum_add(c, head, (size_t)n + 1, err);
    }
    return ST_OK;
}

enum status hub_checksum_add(struct hub_checksum *c, const void *bytes, size_t n,
                             struct err *err) {
    return gnutls_hash(c->hash, bytes, n) == 0
               ? ST_OK
               : err_set(err, ST_NO_MEMORY, "no memory for a checksum");
}

void hub_checksum_end(struct hub_checksum *c, char out[HUB_HASH_BYTES]) {
    uint8_t digest[32];
    if (c->hash == NULL)
        return;
    gnutls_hash_deinit(c->hash, digest);
    c->hash = NULL;
    if (out != NULL)
        sodium_bin2hex(out, HUB_HASH_BYTES, digest, c->n_bytes);
}

enum status hub_checksum_add_file(struct hub_checksum *c, int fd, uint64_t n, const char *path,
                                  const struct progress *progress, uint64_t done,
                                  uint64_t total, struct err *err) {
    uint8_t *piece = mem_alloc(PIECE);
    enum status st =
        piece != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory for a checksum");
    for (uint64_t at = 0; st == ST_OK && at < n;) {
        size_t k = (size_t)MIN((uint64_t)PIECE, n - at);
        if (!progress_report(progress, done + at, total))
            st = err_set(err, ST_CANCELLED, "%s: given up", path);
        else if (!file_read_at(fd, piece, k, at))
            st = err_set(err, ST_IO, "%s: cannot be read: %s", path,
                         errno != 0 ? strerror(errno) : "it is too short");
        else
            st = hub_checksum_add(c, piece, k, err);
        at += k;
    }
    mem_free(piece);
    return st;
}
