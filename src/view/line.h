/* line.h: reads lines that a person types: editing and history on a terminal (libedit), plain
 * reading from a pipe or a file. */
#ifndef LOCKSTEP_VIEW_LINE_H
#define LOCKSTEP_VIEW_LINE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct line_reader;

enum line_result { LINE_OK, LINE_END, LINE_INTERRUPTED, LINE_TERMINATED, LINE_FAILED };

/* history_path is read and written at every line, and others may write it, too; NULL: no
 * history. Editing needs a terminal on stdin and stdout. */
enum status line_open(struct line_reader **out, const char *history_path, struct err *err);
void line_close(struct line_reader *r); /* NULL is fine */

/* People are typing: prompts are worth printing. */
bool line_is_terminal(const struct line_reader *r);

/* The next message: one line, or several. A line that ends in '\' continues on the next one.
 * Lines between """ and """ belong together, and so does text that is pasted in one piece.
 * Alt-Enter begins another line within the editor.
 * *text is NUL-terminated, borrowed until the next call; *len is without that NUL.
 *
 *   LINE_INTERRUPTED  Ctrl-C: the typed text is dropped (on a terminal; it and SIGTERM need
 *                     the caller's cli_on_interrupt())
 *   LINE_END          Ctrl-D, end of file
 *   LINE_TERMINATED   SIGTERM
 *   LINE_FAILED       a read error (errno) */
enum line_result line_read(struct line_reader *r, const char *prompt, const char **text,
                           size_t *len);

#endif
