/* json.c: Reads JSON with integers of any size, counts its values, and follows JSON pointers. */
#include "base/json.h"

#include "base/hex.h"
#include "base/mem.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INTEGER_CHARS 21 /* longer ones exceed 64 bits, or are padded: invalid JSON */

/* The end of the string that begins at p. */
static const char *string_end(const char *p, const char *end) {
    for (p++; p < end && *p != '"'; p++)
        p += *p == '\\';
    return MIN(p + 1, end);
}

/* The same of a number. */
static const char *number_end(const char *p, const char *end) {
    while (p < end && strchr("+-.0123456789eE", *p) != NULL && *p != '\0')
        p++;
    return p;
}

static bool is_large_integer(const char *p, size_t len) {
    char text[INTEGER_CHARS + 1];
    for (size_t i = *p == '-'; i < len; i++)
        if (p[i] < '0' || p[i] > '9')
            return false;
    if (len > INTEGER_CHARS)
        return true;
    memcpy(text, p, len);
    text[len] = '\0';
    errno = 0;
    (void)strtoll(text, NULL, 10);
    return errno == ERANGE;
}

/* The text with ".0" behind each integer beyond 64 bits, [*len]; NULL: no memory. */
static char *with_reals(const char *text, size_t *len) {
    char *copy = mem_alloc(*len + *len / 8); /* two characters for 19 or more */
    char *to = copy;
    const char *end = text + *len, *next;
    for (const char *p = text; copy != NULL && p < end; p = next) {
        bool number = *p == '-' || (*p >= '0' && *p <= '9');
        next = *p == '"' ? string_end(p, end) : number ? number_end(p, end) : p + 1;
        memcpy(to, p, (size_t)(next - p));
        to += next - p;
        if (number && is_large_integer(p, (size_t)(next - p))) {
            *to++ = '.';
            *to++ = '0';
        }
    }
    if (copy != NULL)
        *len = (size_t)(to - copy);
    return copy;
}

json_t *json_read(const char *text, size_t len, size_t flags, json_error_t *why) {
    json_error_t first, second;
    json_t *v = json_loadb(text, len, flags, &first);
    char *copy = NULL;
    if (v == NULL && json_error_code(&first) == json_error_numeric_overflow)
        copy = with_reals(text, &len);
    if (copy != NULL)
        v = json_loadb(copy, len, flags, &second);
    mem_free(copy);
    if (why != NULL)
        *why = first;
    return v;
}

size_t json_count(const char *text, size_t len) {
    const char *end = text + len;
    size_t n = 1;
    bool opened = false; /* nothing has come in the array or object yet */
    for (const char *p = text; p < end;) {
        bool blank = *p == ' ' || *p == '\t' || *p == '\n' || *p == '\r';
        n += *p == ',' || (opened && !blank && *p != ']' && *p != '}');
        opened = *p == '[' || *p == '{' || (opened && blank);
        p = *p == '"' ? string_end(p, end) : p + 1;
    }
    return n;
}

/* One character of a step of a JSON pointer: ~0 ~1 %XX or itself. */
static char pointer_char(const char **s) {
    const char *at = *s;
    if (at[0] == '~' && (at[1] == '0' || at[1] == '1')) {
        *s += 2;
        return at[1] == '0' ? '~' : '/';
    }
    if (at[0] == '%' && hex_digit(at[1]) >= 0 && hex_digit(at[2]) >= 0) {
        *s += 3;
        return (char)(hex_digit(at[1]) * 16 + hex_digit(at[2]));
    }
    return *(*s)++;
}

const json_t *json_follow(const json_t *root, const char *ref) {
    const json_t *at = root;
    if (ref[0] != '#' || (ref[1] != '\0' && ref[1] != '/'))
        return NULL;
    for (const char *s = ref + 1; *s == '/';) {
        char name[512];
        size_t n = 0;
        for (s++; *s != '\0' && *s != '/' && n + 1 < sizeof name;)
            name[n++] = pointer_char(&s);
        name[n] = '\0';
        at = json_is_array(at) ? json_array_get(at, strtoul(name, NULL, 10))
                               : json_object_get(at, name);
    }
    return at;
}
