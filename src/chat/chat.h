/* chat.h: from a conversation to the prompt's text, by the model's own template or, for files
 * without one, by a built-in choice.
 *
 * Requests come in OpenAI's shape, templates were written for Hugging Face's: they disagree on
 * whether tool arguments are a JSON text or an object, on contents that are null or lists of
 * parts, some know no system role, some take one call in a message or ids of one form, and some
 * want roles to alternate. chat_open() finds out by rendering small conversations what this
 * template takes, and chat_render() adapts the messages to it.
 *
 * A const struct chat may be used by any number of threads. */
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

/* The text of a message's content, that of parts joined, as a new reference; NULL: it has none,
 * or a part is no text. */
json_t *chat_content_text(const json_t *content);

/* The text of a tool's result, as a new reference: of nothing an empty one, of a part that is
 * no text what says that it is missing. NULL: content is neither a text, a list of parts nor
 * nothing, or no memory. */
json_t *chat_result_text(const json_t *content);
/* What is said instead of such a part, as a new reference. */
json_t *chat_stand_in(const json_t *part);

/* *text is owned by the caller (mem_free). ST_BAD_INPUT: messages of a wrong shape
 * ("messages[2].content must be ..."), or the template's own refusal; otherwise as
 * template_render(). */
enum status chat_render(const struct chat *c, const struct chat_request *request, char **text,
                        size_t *len, struct err *err);

#endif
