/* chat_write.h: calls as a model writes them, for templates that show what a model has said and not
 * what it has called. */
#ifndef LOCKSTEP_CHAT_CHAT_WRITE_H
#define LOCKSTEP_CHAT_CHAT_WRITE_H

#include "chat/chat_parse.h"

#include <jansson.h>
#include <stdbool.h>

/* Whether calls can be written in this format. */
bool chat_writes_calls(enum chat_format format);

/* The text of a message's calls, as a new reference; NULL: no memory. */
json_t *chat_write_calls(enum chat_format format, const json_t *calls);

#endif
