/* canvas.c: Lines of cells in styles, each cut at a width. */
#include "view/canvas.h"

#include "base/printable.h"
#include "base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_MAX 512

void canvas_begin(struct canvas *c, int columns, bool styled) {
    buf_clear(&c->text);
    c->columns = columns;
    c->styled = styled;
    c->column = 0;
    c->n_lines = c->line_begin = 0;
}

void canvas_free(struct canvas *c) {
    buf_free(&c->text);
}

/* How many bytes of the text fit so many columns, and which they take. */
static size_t fitting(const char *text, int columns, int *taken) {
    size_t i = 0, n = strlen(text);
    *taken = 0;
    while (i < n) {
        int len = utf8_check((const uint8_t *)text + i, n - i);
        int width = len > 0 ? style_width(utf8_decode((const uint8_t *)text + i, len)) : 1;
        if (*taken + width > columns)
            break;
        *taken += width;
        i += (size_t)MAX(len, 1);
    }
    return i;
}

static int room(const struct canvas *c) {
    return c->columns > 0 ? c->columns - c->column : INT32_MAX;
}

static void put(struct canvas *c, enum style s, const char *text, int columns) {
    static const char *const begin[] = {
        [STYLE_NONE] = "",         [STYLE_BOLD] = "\033[1m",  [STYLE_DIM] = "\033[2m",
        [STYLE_GOOD] = "\033[32m", [STYLE_WARN] = "\033[33m", [STYLE_BAD] = "\033[31m",
        [STYLE_NAME] = "\033[36m"};
    int taken;
    size_t n = fitting(text, MIN(columns, room(c)), &taken);
    bool styled = c->styled && s != STYLE_NONE && n > 0;
    if (styled)
        buf_add_str(&c->text, begin[s]);
    buf_add(&c->text, text, n);
    if (styled)
        buf_add_str(&c->text, "\033[0m");
    c->column += taken;
}

void canvas_put(struct canvas *c, enum style s, const char *fmt, ...) {
    char text[TEXT_MAX], clean[TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    copy_printable(clean, sizeof clean, text, strlen(text));
    put(c, s, clean, INT32_MAX);
}

static void blanks(struct canvas *c, int n) {
    for (n = MIN(n, room(c)); n > 0; n--) {
        buf_add(&c->text, " ", 1);
        c->column++;
    }
}

void canvas_cell(struct canvas *c, enum style s, int width, const char *text) {
    char clean[TEXT_MAX];
    int all = abs(width), taken;
    copy_printable(clean, sizeof clean, text, strlen(text));
    fitting(clean, all, &taken);
    if (width < 0)
        blanks(c, all - taken);
    put(c, s, clean, all);
    blanks(c, width < 0 ? 1 : all - taken + 1);
}

void canvas_end_line(struct canvas *c) {
    while (c->text.len > c->line_begin && c->text.bytes[c->text.len - 1] == ' ')
        c->text.bytes[--c->text.len] = '\0';
    buf_add(&c->text, "\n", 1);
    c->n_lines++;
    c->column = 0;
    c->line_begin = c->text.len;
}

/* Of a text that does not fit the line: where its last word ends that does, or a whole line. */
static size_t wrap_at(const char *text, int columns) {
    int taken;
    size_t n = fitting(text, columns, &taken), at = n;
    if (text[n] == '\0')
        return n;
    while (at > 0 && text[at] != ' ')
        at--;
    return at > 0 ? at : n;
}

void canvas_wrap(struct canvas *c, enum style s, int indent, const char *text) {
    char clean[TEXT_MAX], line[TEXT_MAX];
    copy_printable(clean, sizeof clean, text, strlen(text));
    for (const char *at = clean;;) {
        size_t n = wrap_at(at, MAX(room(c), 1));
        snprintf(line, sizeof line, "%.*s", (int)n, at);
        put(c, s, line, INT32_MAX);
        canvas_end_line(c);
        at += n;
        at += strspn(at, " ");
        if (n == 0 || *at == '\0')
            return;
        blanks(c, c->columns > 2 * indent ? indent : 0);
    }
}

const char *canvas_line(const struct canvas *c, size_t i, size_t *n) {
    const char *at = c->text.bytes;
    for (; i > 0; i--)
        at = strchr(at, '\n') + 1;
    *n = strcspn(at, "\n");
    return at;
}
