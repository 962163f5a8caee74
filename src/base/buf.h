/* buf.h: a growing byte buffer.
 *
 * All zero is empty. A failed allocation sets `failed`. From then on nothing is added, so one
 * check at the end is enough. */
#ifndef LOCKSTEP_BASE_BUF_H
#define LOCKSTEP_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *bytes; /* NULL at first; a NUL follows on what was added last. Free with buf_free() */
    size_t len, cap;
    bool failed;
};

/* Each: whether it, and all that came before, was added. `bytes` may be NULL if len is 0. */
bool buf_add(struct buf *b, const void *bytes, size_t len);
bool buf_add_str(struct buf *b, const char *s);
__attribute__((format(printf, 2, 3))) bool buf_printf(struct buf *b, const char *fmt, ...);

/* As a string: NUL-terminated at len, "" where it failed. It stays the buffer's. */
const char *buf_cstr(struct buf *b);

/* Empty, with its memory; whether it failed is forgotten. */
void buf_clear(struct buf *b);
/* Empty, without. */
void buf_free(struct buf *b);

#endif
