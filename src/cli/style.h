/* style.h: how a terminal shows text: bold, dim, colours, its width. NO_COLOR turns styles off,
 * and CLICOLOR_FORCE turns them on where no terminal is (no-color.org, bixense.com/clicolors). */
#ifndef LOCKSTEP_CLI_STYLE_H
#define LOCKSTEP_CLI_STYLE_H

#include <stdbool.h>
#include <stddef.h>

enum style { STYLE_NONE, STYLE_BOLD, STYLE_DIM, STYLE_GOOD, STYLE_WARN, STYLE_BAD, STYLE_NAME };

/* Whether what goes to fd may have styles. */
bool style_on(int fd);
/* The escape sequence that begins the style, "" where styles are off. STYLE_NONE ends all. */
const char *style_text(int fd, enum style s);

/* The columns and lines of the terminal; 80 and 24 where they are not known. */
void style_window(int fd, int *columns, int *lines);
/* The columns that a character takes; control characters 0. */
int style_width(unsigned code_point);
/* The columns of a text of valid UTF-8; other bytes count one each. */
size_t style_text_width(const char *text, size_t n);
/* Sets the locale's characters to UTF-8 where the system has such a locale: the line editor needs
 * it. */
void style_use_utf8(void);

#endif
