/* chat_write.h: writes calls in the model's own format, for templates that show a message's
 * text but not its calls. */
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
