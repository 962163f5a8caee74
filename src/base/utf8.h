/* utf8.h: decodes one character at a time, strictly (no overlong forms, no surrogates, at most
 * U+10FFFF). */
#ifndef LOCKSTEP_BASE_UTF8_H
#define LOCKSTEP_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Decodes the character at s[0..n), n >= 1. Returns its length if it is complete and valid, 0
 * if all n bytes are the beginning of a valid one, and -1 otherwise. */
static inline int utf8_check(const uint8_t *s, size_t n) {
    uint8_t c = s[0];
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4)
        return -1;
    int len = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (n < 2)
        return 0;
    uint8_t low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    uint8_t high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < low || s[1] > high)
        return -1;
    for (int i = 2; i < len; i++) {
        if ((size_t)i >= n)
            return 0;
        if ((s[i] & 0xc0) != 0x80)
            return -1;
    }
    return len;
}

/* The code point of the valid character at s, len as utf8_check() returned it. */
static inline uint32_t utf8_decode(const uint8_t *s, int len) {
    if (len == 1)
        return s[0];
    uint32_t c = s[0] & (0x7fu >> len);
    for (int i = 1; i < len; i++)
        c = c << 6 | (s[i] & 0x3fu);
    return c;
}

/* Writes the character c (a valid code point) to out[4]; returns its length. */
static inline int utf8_encode(uint32_t c, uint8_t *out) {
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    int len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--) {
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    out[0] = (uint8_t)((0xf00u >> len) | c);
    return len;
}

/* The number of bytes at the start of s that are valid UTF-8. */
static inline size_t utf8_valid_prefix(const uint8_t *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        int len = utf8_check(s + i, n - i);
        if (len <= 0)
            break;
        i += (size_t)len;
    }
    return i;
}

#endif
