/* memo.h: texts by id, within bounds of number and size. The least recently used one is dropped
 * first. /v1/responses stores its conversations here. Each has an owner, a number of an API key:
 * for others it is not there.
 *
 * Any thread. */
#ifndef LOCKSTEP_SERVER_MEMO_H
#define LOCKSTEP_SERVER_MEMO_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct memo;

enum status memo_open(struct memo **out, size_t n_max, size_t max_bytes, struct err *err);
void memo_close(struct memo *m); /* NULL is fine */

/* text is moved (mem_free). It is dropped at once if it is larger than the whole memo, if the id
 * is another owner's, or if there is no memory. */
void memo_put(struct memo *m, const char *id, int owner, char *text);
/* A copy (mem_free); NULL if it is not known, or not any more. */
char *memo_get(struct memo *m, const char *id, int owner);
bool memo_forget(struct memo *m, const char *id, int owner);

#endif
