/* openai_items.h: the items of a conversation in the Responses API (messages, thoughts,
 * function calls and their results), and the messages that the service takes. */
#ifndef LOCKSTEP_API_OPENAI_ITEMS_H
#define LOCKSTEP_API_OPENAI_ITEMS_H

#include "base/buf.h"
#include "server/params.h"

/* Checks the field `input`, a text or an array of items (no references any more), and adds it
 * to `items`. */
void items_add_input(struct params *p, json_t *items);

/* Items that were checked, or came out of here, as messages of the older API, in a new array.
 * Thoughts become reasoning_content, and calls tool_calls, of the message that they belong to.
 * instructions: system instructions, or NULL; they come before the conversation's own. */
json_t *items_messages(const json_t *items, const char *instructions);

/* A thought's text as its item's encrypted_content, a new reference: sent back, it is read like
 * the text. */
json_t *items_carried(const json_t *thought);

/* The request's tools as functions, in the service's shape: a new reference. Custom tools, whose
 * input is a text, become functions of one text. Tools that a server would run itself are left out
 * beside others, since programs send them unasked; alone they are a defect. */
json_t *items_tools(struct params *p);
/* The text of a custom tool's call, a new reference. */
json_t *items_custom_input(const struct buf *arguments);

#endif
