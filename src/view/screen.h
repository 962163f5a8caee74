/* screen.h: the whole terminal for one command: keys as they are pressed, frames of lines, and the
 * terminal as it was at the end, whichever way the command ends.
 *
 * It writes the few sequences of ECMA-48 and xterm that all terminals in use know (cursor home,
 * erase, the alternate screen, styles). So no library and no terminfo file is needed for it.
 *
 * One thread; a process has at most one. Ctrl-C, SIGTERM and SIGHUP become keys; Ctrl-Z stops the
 * process as usual, with the terminal as the shell wants it. */
#ifndef LOCKSTEP_VIEW_SCREEN_H
#define LOCKSTEP_VIEW_SCREEN_H

#include "base/status.h"
#include "view/canvas.h"

enum screen_key {
    SCREEN_KEY_NONE, /* the time is over, or screen_wake() */
    SCREEN_KEY_OTHER,
    SCREEN_KEY_QUIT,      /* q, Esc */
    SCREEN_KEY_INTERRUPT, /* Ctrl-C, a signal that ends, or the terminal is gone */
    SCREEN_KEY_RESIZED,   /* or it is to be drawn again after a stop */
    SCREEN_KEY_UP,
    SCREEN_KEY_DOWN,
    SCREEN_KEY_PAGE_UP,
    SCREEN_KEY_PAGE_DOWN,
    SCREEN_KEY_HOME,
    SCREEN_KEY_END,
    SCREEN_KEY_NEXT, /* Tab, right */
    SCREEN_KEY_BACK, /* Shift-Tab, left */
};

/* ST_UNSUPPORTED: stdin or stdout is no terminal, or one that knows no escape sequences. */
enum status screen_open(struct err *err);
void screen_close(void);
/* Waits for a key, at most wait_ms. A digit's or letter's code is in *letter. */
enum screen_key screen_key(int wait_ms, char *letter);
/* From any thread: screen_key() returns. */
void screen_wake(void);
/* head's lines, then those of body from line `from` on, as many as fit above foot's. */
void screen_draw(const struct canvas *head, const struct canvas *body, size_t from,
                 const struct canvas *foot, int lines);

#endif
