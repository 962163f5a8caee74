/* plain_tools.h: tools for models whose template has none. The system message describes them,
 * and calls and results have Hermes' form (<tool_call>, <tool_response>). */
#ifndef LOCKSTEP_SERVER_PLAIN_TOOLS_H
#define LOCKSTEP_SERVER_PLAIN_TOOLS_H

#include <jansson.h>

/* A copy of the messages with one more paragraph in their system message. */
json_t *messages_with_system(const json_t *messages, const char *paragraph);
/* A copy with calls and results as text. */
json_t *messages_as_text(const json_t *messages);
/* A copy that tells of the tools, with calls and results as text. */
json_t *messages_with_tools(const json_t *messages, const json_t *tools);

#endif
