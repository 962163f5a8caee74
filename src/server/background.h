/* background.h: answers that go on without a client. A job is one of them: it has texts that
 * clients may ask for while it is under way, and some keep their events, so that a stream may
 * begin late or again, also after the end.
 *
 * Bounds: so many jobs and bytes together. Those that have ended are dropped for newer ones, the
 * oldest first; those under way never are. The owner of a job (a number, of an API key) alone
 * finds it.
 *
 * Threads: any. The calls of a job's maker (background_tell(), _show(), _end()) come one after
 * the other. */
#ifndef LOCKSTEP_SERVER_BACKGROUND_H
#define LOCKSTEP_SERVER_BACKGROUND_H

#include "base/status.h"
#include "net/http.h"

#include <stdbool.h>
#include <stddef.h>

struct background;
struct background_job;

enum status background_open(struct background **out, size_t n_max, size_t max_bytes,
                            struct err *err);
/* All jobs have ended. NULL is fine. */
void background_close(struct background *b);

/* ---- for who makes the answer ------------------------------------------------------------ */

struct background_start {
    const char *id;
    int owner;
    char *text, *conversation; /* moved (mem_free), whatever comes of it */
    bool events;               /* they are kept */
    /* Asks for an early end, from any thread, until background_end(). It must not call back. */
    void (*cancel)(void *user);
    void *user;
};
/* *out is NULL if there is one of this id and owner already. ST_AGAIN, with a sentence: as many
 * as may be are under way. */
enum status background_begin(struct background *b, const struct background_start *start,
                             struct background_job **out, struct err *err);
/* text is moved. */
void background_show(struct background_job *job, char *text);
/* The next event, for all streams. */
void background_tell(struct background_job *job, const char *event, size_t len);
bool background_is_cancelled(const struct background_job *job);
/* The streams end, and who has cancelled gets the text (moved; NULL: no memory). The job is its
 * maker's no more. False: a client has had it forgotten. */
bool background_end(struct background_job *job, char *text);

/* ---- for clients ------------------------------------------------------------------------- */

/* Copies (mem_free) of the texts of one under way; false: there is none. */
bool background_get(struct background *b, const char *id, int owner, char **text,
                    char **conversation);

/* Streams the events after the number `after` (-1: all), then those to come, and ends http with
 * the last. Only with ST_OK, http is taken. ST_NOT_FOUND; ST_UNSUPPORTED: its events are not
 * kept, or not any more; ST_AGAIN: so many streams are enough. */
enum status background_follow(struct background *b, const char *id, int owner, long after,
                              struct http_request *http, struct err *err);
/* Cancels; http gets the text when it has ended. False, and http is not taken: none is under
 * way. */
bool background_cancel(struct background *b, const char *id, int owner,
                       struct http_request *http);
/* Cancels it and lets nobody find it. False: there is none. */
bool background_forget(struct background *b, const char *id, int owner);

#endif
