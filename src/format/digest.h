/* digest.h: tells whether two machines have the same model. */
#ifndef LOCKSTEP_FORMAT_DIGEST_H
#define LOCKSTEP_FORMAT_DIGEST_H

#include "format/gguf.h"

#define GGUF_DIGEST_BYTES 16

struct gguf_digest {
    /* keys, short values, lengths of arrays; names, types and sizes of tensors */
    uint8_t header[GGUF_DIGEST_BYTES];
    uint8_t data[GGUF_DIGEST_BYTES]; /* the beginning of each tensor's first and last row */
    bool has_data;                   /* else data is nothing: only a header is here */
};

/* Reads a page or two of each tensor: a model that was trained on, or quantized in another way,
 * differs in all of them. */
void gguf_digest(struct gguf_digest *out, const struct gguf *g);

/* By what both have. */
bool gguf_digest_same(const struct gguf_digest *a, const struct gguf_digest *b);

#endif
