/* gbnf.c: Writes texts and characters in GBNF notation. */
#include "grammar/gbnf.h"

#include "base/utf8.h"

void gbnf_literal(struct buf *t, const char *s, size_t n) {
    buf_add_str(t, "\"");
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"' || s[i] == '\\')
            buf_printf(t, "\\%c", s[i]);
        else if ((uint8_t)s[i] < 0x20 || s[i] == 0x7f)
            buf_printf(t, "\\x%02x", (unsigned)s[i]);
        else
            buf_add(t, s + i, 1);
    }
    buf_add_str(t, "\"");
}

void gbnf_class_char(struct buf *t, uint32_t c) {
    uint8_t utf8[4];
    if (c < 0x20 || c == 0x7f)
        buf_printf(t, "\\x%02x", (unsigned)c);
    else if (c == '\\' || c == ']' || c == '[' || c == '^' || c == '-' || c == '"')
        buf_printf(t, "\\%c", (char)c);
    else
        buf_add(t, utf8, (size_t)utf8_encode(c, utf8));
}
