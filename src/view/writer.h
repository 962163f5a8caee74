/* writer.h: writes an answer to stdout while it is made. On a terminal, words are wrapped at its
 * width, thoughts are dimmed, and control characters are made visible: a model's text must not
 * control the terminal. Elsewhere the text goes out as it is, without the thoughts. */
#ifndef LOCKSTEP_VIEW_WRITER_H
#define LOCKSTEP_VIEW_WRITER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct writer {
    bool terminal; /* stdout is one */
    bool wraps;    /* and it can move its cursor */
    bool thinking; /* thoughts are being written */
    bool any;      /* something was */
    bool in_code;  /* between lines of ``` */
    int columns;
    int column;      /* where the cursor is */
    struct buf word; /* what was written since the last blank: it moves if it does not fit */
    int word_width;
    struct buf partial; /* the beginning of a character */
    char line_begin[3]; /* the line's first characters */
    size_t n_line;
};

void writer_begin(struct writer *w);
/* False: stdout cannot be written any more. */
bool writer_put(struct writer *w, const char *text, size_t n, bool is_thought);
/* Ends the line that was begun. */
void writer_end(struct writer *w);

#endif
