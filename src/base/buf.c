/* buf.c: A byte buffer that grows. An allocation that fails is remembered, so callers check
 * once at the end. */
#include "base/buf.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Makes space for len more bytes and a NUL. */
static bool reserve(struct buf *b, size_t len) {
    b->failed = b->failed || len >= SIZE_MAX - b->len ||
                !mem_reserve(&b->bytes, &b->cap, b->len + len + 1, 1);
    return !b->failed;
}

bool buf_add(struct buf *b, const void *bytes, size_t len) {
    if (!reserve(b, len))
        return false;
    if (len > 0)
        memcpy(b->bytes + b->len, bytes, len);
    b->len += len;
    b->bytes[b->len] = '\0';
    return true;
}

bool buf_add_str(struct buf *b, const char *s) {
    return buf_add(b, s, strlen(s));
}

bool buf_printf(struct buf *b, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    b->failed = b->failed || n < 0;
    if (b->failed || !reserve(b, (size_t)n))
        return false;
    va_start(args, fmt);
    vsnprintf(b->bytes + b->len, (size_t)n + 1, fmt, args);
    va_end(args);
    b->len += (size_t)n;
    return true;
}

const char *buf_cstr(struct buf *b) {
    return buf_add(b, NULL, 0) ? b->bytes : "";
}

void buf_clear(struct buf *b) {
    b->len = 0;
    b->failed = false;
}

void buf_free(struct buf *b) {
    mem_free(b->bytes);
    *b = (struct buf){0};
}
