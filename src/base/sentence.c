/* sentence.c: Puts sentences for people into fixed buffers, as valid UTF-8, and quotes names
 * from outside. */
#include "base/sentence.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* A character that was cut at the end is left out. */
void sentence_mend(char *text) {
    size_t n = strlen(text), at = 0;
    while ((at += utf8_valid_prefix((const uint8_t *)text + at, n - at)) < n) {
        if (utf8_check((const uint8_t *)text + at, n - at) == 0)
            text[n = at] = '\0';
        else
            text[at++] = '?';
    }
}

void sentence_vprint(char *out, size_t size, const char *fmt, va_list ap) {
    if (vsnprintf(out, size, fmt, ap) < 0)
        *out = '\0';
    sentence_mend(out);
}

void sentence_print(char *out, size_t size, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    sentence_vprint(out, size, fmt, ap);
    va_end(ap);
}
