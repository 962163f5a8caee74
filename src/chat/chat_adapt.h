/* chat_adapt.h: adapts a conversation to a template. chat.c finds out the template's habits;
 * this file acts on them. */
#ifndef LOCKSTEP_CHAT_CHAT_ADAPT_H
#define LOCKSTEP_CHAT_CHAT_ADAPT_H

#include "base/status.h"
#include "chat/chat_parse.h"

#include <jansson.h>
#include <stdbool.h>

struct chat_habits {
    bool wants_argument_text; /* tool arguments as JSON text, not as an object */
    bool refuses_null;        /* content: null */
    bool refuses_system;      /* a system message */
    bool refuses_late_system; /* one after others, at the end or not */
    bool refuses_repeats;     /* two messages of one role in a row */
    bool counts_turns;        /* the user's is the first, then every other one */
    bool wants_parts;         /* content as a list of parts only */
    bool refuses_ids;         /* ids of calls other than 9 letters and digits */
    bool refuses_text_calls;  /* arguments that are not an object */
    bool refuses_both;        /* a content and reasoning in a message with a call */
    bool refuses_many;        /* several calls in a message; or only the first comes through */
    bool wants_whole_tools;   /* none without a description or parameters */
    bool wants_tool_list;     /* an empty one where there are none */
    bool wants_functions;     /* the tools as a text, and a date, in variables (Firefunction) */
    bool hides_content;       /* beside a call, and shows thoughts there */
    bool thinks_in_blocks;   /* contents are {"blocks": [...]}, thoughts among them (Apertus) */
    enum chat_format writes; /* calls are hidden, and read as text in this format; else plain */
};

/* Changes the messages, an array, in place. ST_BAD_INPUT, ST_UNSUPPORTED: a message of a wrong
 * shape, by its place. */
enum status chat_adapt(const struct chat_habits *h, json_t *messages, struct err *err);

/* The tools, an array, as the template takes them: a new reference, maybe to the same. NULL: no
 * memory. */
json_t *chat_adapt_tools(const struct chat_habits *h, const json_t *tools);

/* The tools' functions as an indented text, as a new reference. */
json_t *chat_functions_text(const json_t *tools);

/* Says what the model thought, under each name that it goes by and that is missing or empty. */
void chat_set_reasoning(json_t *message, const char *text);

#endif
