/* printable.h: which characters may be printed unchanged. */
#ifndef LOCKSTEP_BASE_PRINTABLE_H
#define LOCKSTEP_BASE_PRINTABLE_H

#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>

/* Excludes control characters (they would drive a terminal), characters that only change the
 * look of their neighbours, and invalid code points. Spaces are printable. */
static inline bool is_printable(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

/* Copies a file's text as far as it fits. "?" replaces invalid UTF-8 and characters that are
 * not printable. size > 0. */
static inline void copy_printable(char *buf, size_t size, const char *s, size_t n) {
    const uint8_t *from = (const uint8_t *)s;
    size_t used = 0, len;
    for (size_t at = 0; at < n; at += len) {
        int valid = utf8_check(from + at, n - at);
        bool good = valid > 0 && is_printable(utf8_decode(from + at, valid));
        len = valid > 0 ? (size_t)valid : 1;
        size_t put = good ? len : 1;
        if (used + put >= size)
            break;
        memcpy(buf + used, good ? from + at : (const uint8_t *)"?", put);
        used += put;
    }
    buf[used] = '\0';
}

#endif
