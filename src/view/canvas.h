/* canvas.h: lines of cells in styles, each cut at a width: what a full-screen command shows. Text
 * from elsewhere cannot control the terminal: what is not printable becomes '?'. */
#ifndef LOCKSTEP_VIEW_CANVAS_H
#define LOCKSTEP_VIEW_CANVAS_H

#include "base/buf.h"
#include "cli/style.h"

#include <stdbool.h>
#include <stddef.h>

struct canvas {
    int columns; /* 0: lines may be of any length */
    bool styled;
    int column;        /* where the line under way is */
    size_t n_lines;    /* complete ones */
    struct buf text;   /* theirs, each with a '\n' */
    size_t line_begin; /* in text, of the one under way */
};

void canvas_begin(struct canvas *c, int columns, bool styled);
void canvas_free(struct canvas *c);

__attribute__((format(printf, 3, 4))) void canvas_put(struct canvas *c, enum style s,
                                                      const char *fmt, ...);
/* A cell of that width, at its left or (width < 0) right; a text that is longer is cut. A blank
 * follows. */
void canvas_cell(struct canvas *c, enum style s, int width, const char *text);
void canvas_end_line(struct canvas *c);
/* A text up to the end of the line, and on further lines, which begin with so many blanks. Ends the
 * last one. */
void canvas_wrap(struct canvas *c, enum style s, int indent, const char *text);
/* The i-th line, without its end. */
const char *canvas_line(const struct canvas *c, size_t i, size_t *n);

#endif
