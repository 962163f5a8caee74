/* schema_text.h: text of a grammar that is being written. A failed allocation is remembered in
 * `failed` and makes the rest do nothing. All zero is empty. */
#ifndef LOCKSTEP_TOKENIZER_SCHEMA_TEXT_H
#define LOCKSTEP_TOKENIZER_SCHEMA_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *p; /* NUL-terminated, or NULL: empty */
    size_t n, cap;
    bool failed;
};

void text_deinit(struct text *t);
void text_add(struct text *t, const char *s);
void text_add_bytes(struct text *t, const char *s, size_t n);
__attribute__((format(printf, 2, 3))) void text_printf(struct text *t, const char *fmt, ...);
/* A GBNF literal of these bytes (valid UTF-8), with its quotes. */
void text_literal(struct text *t, const char *s, size_t n);
/* A character as it stands in a GBNF class. */
void text_class_char(struct text *t, uint32_t c);

#endif
