/* chat.h: from a conversation to the prompt's text, by the model's own template, or by a
 * built-in one if the file has none.
 *
 * Requests have OpenAI's form; templates were written for Hugging Face's. They differ in these
 * ways:
 *   - Tool arguments are a JSON text or an object.
 *   - Contents may be null or lists of parts, or may not.
 *   - Some templates know no system role.
 *   - Some accept one call in a message, or ids of one form.
 *   - Some need alternating roles.
 *
 * chat_open() finds out what this template accepts by rendering small conversations.
 * chat_render() adapts the messages to it.
 *
 * Any number of threads may use a const struct chat. */
#ifndef LOCKSTEP_CHAT_CHAT_H
#define LOCKSTEP_CHAT_CHAT_H

#include "base/status.h"
#include "chat/chat_parse.h"
#include "jinja/template.h"
#include "tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct chat;

/* source: the template's text, len bytes; NULL: the file's own, or a built-in one. Keeps no
 * pointer to t or source. ST_BAD_INPUT, ST_UNSUPPORTED: template_compile()'s sentence. */
enum status chat_open(struct chat **out, const struct tokenizer *t, const char *source,
                      size_t len, struct err *err);
void chat_close(struct chat *c); /* NULL is fine */

/* The template's text, and "model", "given" or the name of the built-in one ("chatml"). */
const char *chat_source(const struct chat *c);
const char *chat_source_name(const struct chat *c);
/* The compiled template, and the variables that come from the vocabulary: an object with
 * bos_token and eos_token. Both borrowed. */
const struct template *chat_template(const struct chat *c);
const json_t *chat_token_variables(const struct chat *c);

/* How this model's output is to be read, by the template and the vocabulary. */
struct chat_style chat_style(const struct chat *c);

struct chat_request {
    const json_t *messages; /* an array, as in OpenAI's API */
    const json_t *tools;    /* an array, or NULL */
    const json_t *extra;    /* an object of further variables (enable_thinking ...), or NULL */
    bool add_generation_prompt;
    /* instead: the last message is an answer that is to go on, so the text ends where its
     * content does. ST_UNSUPPORTED: the template has no place for that */
    bool continue_last;
    const struct template_clock *now; /* NULL: the real time */
};

/* What is said of a part (or a block) of a message that is not text. */
#define CHAT_PART_BYTES 96
void chat_say_no_text(const json_t *part, char sentence[CHAT_PART_BYTES]);

/* The text of a message's content (parts are joined), as a new reference; NULL: it has none, or
 * a part is not text. */
json_t *chat_content_text(const json_t *content);

/* The text of a tool's result, as a new reference. No result gives an empty text. A part that
 * is not text gives a note that it is missing. NULL: content is neither a text, a list of parts
 * nor null; or no memory. */
json_t *chat_result_text(const json_t *content);
/* What is said instead of such a part, as a new reference. */
json_t *chat_stand_in(const json_t *part);

/* *text is owned by the caller (mem_free). ST_BAD_INPUT: messages of a wrong shape
 * ("messages[2].content must be ..."), or the template's own refusal; otherwise as
 * template_render(). */
enum status chat_render(const struct chat *c, const struct chat_request *request, char **text,
                        size_t *len, struct err *err);

#endif
