#include "tokenizer/schema_text.h"

#include "base/mem.h"
#include "base/util.h"
#include "tokenizer/utf8.h"

#include <stdarg.h>
#include <stdio.h>

void text_deinit(struct text *t) {
    mem_free(t->p);
    *t = (struct text){0};
}

/* Room for n more bytes and a NUL. */
static bool reserve(struct text *t, size_t n) {
    t->failed = t->failed || !mem_reserve(&t->p, &t->cap, t->n + n + 1, 1);
    return !t->failed;
}

void text_add_bytes(struct text *t, const char *s, size_t n) {
    if (!reserve(t, n))
        return;
    memcpy(t->p + t->n, s, n);
    t->n += n;
    t->p[t->n] = '\0';
}

void text_add(struct text *t, const char *s) {
    text_add_bytes(t, s, strlen(s));
}

void text_printf(struct text *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0 || !reserve(t, (size_t)n))
        return;
    va_start(args, fmt);
    vsnprintf(t->p + t->n, (size_t)n + 1, fmt, args);
    va_end(args);
    t->n += (size_t)n;
}

void text_literal(struct text *t, const char *s, size_t n) {
    text_add(t, "\"");
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"' || s[i] == '\\')
            text_printf(t, "\\%c", s[i]);
        else if ((uint8_t)s[i] < 0x20 || s[i] == 0x7f)
            text_printf(t, "\\x%02x", (unsigned)s[i]);
        else
            text_add_bytes(t, s + i, 1);
    }
    text_add(t, "\"");
}

void text_class_char(struct text *t, uint32_t c) {
    uint8_t utf8[4];
    if (c < 0x20 || c == 0x7f)
        text_printf(t, "\\x%02x", (unsigned)c);
    else if (c == '\\' || c == ']' || c == '[' || c == '^' || c == '-' || c == '"')
        text_printf(t, "\\%c", (char)c);
    else
        text_add_bytes(t, (const char *)utf8, (size_t)utf8_encode(c, utf8));
}
