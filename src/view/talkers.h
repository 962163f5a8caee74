/* talkers.h: who answers in lockstep chat: the model of this process, or a server. */
#ifndef LOCKSTEP_VIEW_TALKERS_H
#define LOCKSTEP_VIEW_TALKERS_H

#include "lockstep/lockstep.h"
#include "view/talk.h"

/* ls is borrowed; path: of its file, for the form of its answers. */
enum status talk_local_open(struct talker **out, struct lockstep *ls, const char *path,
                            struct err *err);
void talk_local_close(struct talker *t); /* NULL is fine */

/* urls: "A[,B..]": one cluster's, of which the first that answers is asked. model: a name there;
 * NULL: the first that it lists. ST_NOT_FOUND: the server has no such model. */
enum status talk_server_open(struct talker **out, const char *urls, const char *model,
                             const char *key, struct err *err);
void talk_server_close(struct talker *t); /* NULL is fine */
/* The address that is asked now. */
const char *talk_server_url(const struct talker *t);

#endif
