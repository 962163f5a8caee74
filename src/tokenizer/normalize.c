/* normalize.c: normalizes characters with their marks, one after the other. */
#include "tokenizer/normalize.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"

#include <string.h>
#include <utf8proc.h>

#define PIECE_CHARS 32

/* All others are marks, or Hangul vowels and final consonants: only these have combining classes,
 * or are second in a composition. */
static bool begins_piece(uint32_t c) {
    if (c < 0x300)
        return true;
    if (c >= 0x1160 && c <= 0x11ff)
        return false;
    utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    return kind != UTF8PROC_CATEGORY_MN && kind != UTF8PROC_CATEGORY_MC &&
           kind != UTF8PROC_CATEGORY_ME;
}

/* A character and what follows it until another one begins a piece. */
static size_t piece_at(const char *text, size_t len, size_t *n_chars) {
    const uint8_t *s = (const uint8_t *)text;
    size_t at = 0;
    for (*n_chars = 0; at < len; ++*n_chars) {
        int n = utf8_check(s + at, len - at);
        if (n <= 0 || (*n_chars > 0 && begins_piece(utf8_decode(s + at, n))))
            break;
        at += (size_t)n;
    }
    return at;
}

/* What becomes of a piece; the result is at most three times as long. */
static size_t put_piece(const char *text, size_t len, size_t n_chars, char *out) {
    /* Four for each, and reencode's NUL. */
    utf8proc_int32_t chars[4 * PIECE_CHARS + 1];
    const utf8proc_option_t form = (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    utf8proc_ssize_t n = -1;
    if (n_chars <= PIECE_CHARS && (n_chars > 1 || (uint8_t)text[0] >= 0x80))
        n = utf8proc_decompose((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len, chars,
                               4 * PIECE_CHARS, form);
    if (n >= 0 && n <= 4 * PIECE_CHARS)
        n = utf8proc_reencode(chars, n, form);
    if (n < 0 || n > 4 * PIECE_CHARS * 4) {
        memcpy(out, text, len);
        return len;
    }
    memcpy(out, chars, (size_t)n);
    return (size_t)n;
}

/* ASCII text is in any form. */
static bool is_ascii(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)text[i] >= 0x80)
            return false;
    return true;
}

#define GROWS 3

enum status normalize_nfc(const char *text, size_t len, char **out, size_t *out_len) {
    char *all = NULL;
    size_t n_all = 0, cap = 0, n_chars;
    *out = NULL;
    *out_len = 0;
    if (is_ascii(text, len))
        return ST_OK;
    for (size_t at = 0; at < len;) {
        size_t n = piece_at(text + at, len - at, &n_chars);
        BUG_ON(n == 0);
        if (!mem_reserve(&all, &cap, n_all + GROWS * n, 1)) {
            mem_free(all);
            return ST_NO_MEMORY;
        }
        n_all += put_piece(text + at, n, n_chars, all + n_all);
        at += n;
    }
    if (n_all == len && memcmp(all, text, len) == 0) {
        mem_free(all);
        return ST_OK;
    }
    *out = all;
    *out_len = n_all;
    return ST_OK;
}
