/* memo.h: texts by id, within bounds: when there are too many, or too large ones, the one that was
 * not used for the longest time goes first. What /v1/responses remembers of its conversations.
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

/* text is moved (mem_free). One larger than the whole memo, or for which there is no memory, is
 * forgotten at once. */
void memo_put(struct memo *m, const char *id, char *text);
/* A copy (mem_free); NULL if it is not known, or not any more. */
char *memo_get(struct memo *m, const char *id);
bool memo_forget(struct memo *m, const char *id);

#endif
