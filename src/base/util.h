/* util.h: a few macros and integer helpers that every module uses. */
#ifndef LOCKSTEP_BASE_UTIL_H
#define LOCKSTEP_BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CACHE_LINE 64

static inline size_t div_up(size_t n, size_t d) {
    return n / d + (n % d != 0);
}

/* n rounded up to a multiple of m (any m > 0). The caller keeps n + m below SIZE_MAX. */
static inline size_t round_up(size_t n, size_t m) {
    return div_up(n, m) * m;
}

static inline bool is_pow2(size_t n) {
    return n != 0 && (n & (n - 1)) == 0;
}

/* *out = a * b; false (and *out unchanged) if it does not fit. */
static inline bool mul_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool add_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool str_eq(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

static inline bool str_starts(const char *s, const char *prefix) {
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

static inline bool str_ends(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && str_eq(s + n - m, tail);
}

/* Is it one of the words of a list with commas between them? */
static inline bool str_list_has(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, n) == 0 && (at[n] == '\0' || at[n] == ','))
            return true;
    }
    return false;
}

#endif
