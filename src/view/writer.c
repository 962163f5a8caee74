/* writer.c: Writes an answer to stdout while it is made: wrapped, and with thoughts dimmed. */
#include "view/writer.h"

#include "base/utf8.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/style.h"

#include <stdio.h>
#include <unistd.h>

#define TAB 8
#define TOO_NARROW 8 /* columns that no word fits */

void writer_begin(struct writer *w) {
    int lines;
    *w = (struct writer){.terminal = isatty(STDOUT_FILENO) != 0};
    w->wraps = w->terminal && cli_has_escapes(STDOUT_FILENO);
    style_window(STDOUT_FILENO, &w->columns, &lines);
    w->wraps = w->wraps && w->columns >= TOO_NARROW;
}

static void end_word(struct writer *w) {
    buf_clear(&w->word);
    w->word_width = 0;
}

static void new_line(struct writer *w) {
    if (w->n_line == sizeof w->line_begin && memcmp(w->line_begin, "```", 3) == 0)
        w->in_code = !w->in_code;
    w->n_line = 0;
    w->column = 0;
    end_word(w);
}

/* The cursor's word goes to the next line. The last column stays free: after a character in it
 * terminals differ in where the cursor is. */
static void move_word(struct writer *w) {
    if (w->word_width > 0)
        printf("\033[%dD\033[K", w->word_width);
    putchar('\n');
    fwrite(w->word.bytes, 1, w->word.len, stdout);
    w->column = w->word_width;
}

/* One character: its bytes, as shown. */
static void show(struct writer *w, const char *bytes, size_t n, int width, bool breaks) {
    if (breaks) /* before and after such a one, as in Chinese and Japanese */
        end_word(w);
    if (w->wraps && !w->in_code && w->column + width >= w->columns) {
        if (w->word_width + width < w->columns) {
            move_word(w);
        } else { /* longer than a line */
            putchar('\n');
            w->column = 0;
            end_word(w);
        }
    }
    fwrite(bytes, 1, n, stdout);
    w->column += width;
    if (breaks) {
        end_word(w);
    } else if (buf_add(&w->word, bytes, n)) {
        w->word_width += width;
    }
}

static void blank(struct writer *w, char c) {
    int width = c == '\t' ? TAB - w->column % TAB : 1;
    end_word(w);
    if (w->wraps && !w->in_code && w->column + width >= w->columns)
        return; /* the end of a line: the next word begins another one */
    putchar(c);
    w->column += width;
}

static void put_char(struct writer *w, const uint8_t *bytes, int n) {
    uint32_t c = n == 1 ? bytes[0] : utf8_decode(bytes, n);
    char shown[16];
    if (w->n_line < sizeof w->line_begin && c != '\n')
        w->line_begin[w->n_line++] = n == 1 ? (char)c : 0;
    if (c == '\n') {
        putchar('\n');
        new_line(w);
    } else if (c == ' ' || c == '\t') {
        blank(w, (char)c);
    } else if (c < ' ' || c == 0x7f) {
        shown[0] = '^';
        shown[1] = (char)(c ^ 0x40);
        show(w, shown, 2, 2, false);
    } else if (c >= 0x80 && c <= 0x9f) {
        snprintf(shown, sizeof shown, "\\u%04x", c);
        show(w, shown, strlen(shown), (int)strlen(shown), false);
    } else {
        int width = style_width(c);
        show(w, (const char *)bytes, (size_t)n, width, width == 2);
    }
}

/* Whole characters out of w->partial; the beginning of one stays there. */
static void put_chars(struct writer *w) {
    const uint8_t *bytes = (const uint8_t *)w->partial.bytes;
    size_t n = w->partial.len, at = 0;
    while (at < n) {
        int len = utf8_check(bytes + at, n - at);
        if (len <= 0 && n - at < 4 && bytes[at] >= 0xc2 && bytes[at] <= 0xf4)
            break;
        put_char(w, bytes + at, MAX(len, 1));
        at += (size_t)MAX(len, 1);
    }
    memmove(w->partial.bytes, w->partial.bytes + at, n - at + 1);
    w->partial.len -= at;
}

static void begin_thoughts(struct writer *w) {
    if (style_on(STDOUT_FILENO))
        fputs(style_text(STDOUT_FILENO, STYLE_DIM), stdout);
    else
        fputs("[thinking]\n", stdout);
    w->thinking = true;
}

static void end_thoughts(struct writer *w) {
    fputs(style_text(STDOUT_FILENO, STYLE_NONE), stdout);
    if (w->column > 0)
        putchar('\n');
    if (!style_on(STDOUT_FILENO))
        fputs("[answer]\n", stdout);
    else if (w->any)
        putchar('\n');
    w->thinking = w->in_code = false;
    new_line(w);
    w->in_code = false;
}

bool writer_put(struct writer *w, const char *text, size_t n, bool is_thought) {
    int lines;
    if (n == 0 || (is_thought && !w->terminal))
        return true;
    if (!w->terminal)
        return fwrite(text, 1, n, stdout) == n && fflush(stdout) == 0;
    if (is_thought != w->thinking) {
        if (is_thought)
            begin_thoughts(w);
        else
            end_thoughts(w);
    }
    style_window(STDOUT_FILENO, &w->columns, &lines); /* a window may change */
    buf_add(&w->partial, text, n);
    put_chars(w);
    w->any = true;
    return fflush(stdout) == 0;
}

void writer_end(struct writer *w) {
    for (size_t i = 0; i < w->partial.len; i++)
        put_char(w, (const uint8_t *)w->partial.bytes + i, 1);
    if (w->thinking)
        fputs(style_text(STDOUT_FILENO, STYLE_NONE), stdout);
    buf_free(&w->word);
    buf_free(&w->partial);
}
