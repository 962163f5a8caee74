/* constraint.h: turns the form that a request asks for into a constraint of the engine.
 *
 * A model may think first, or name the channel to which it writes. It is free until it begins
 * to answer, that is until it has written `trigger`. From there on the grammar applies. Until
 * then the model cannot end its turn. A model with tools may write the token that begins (or,
 * in harmony, ends) calls instead of its answer. After that token it is free. */
#ifndef LOCKSTEP_SERVER_CONSTRAINT_H
#define LOCKSTEP_SERVER_CONSTRAINT_H

#include "base/status.h"
#include "chat/chat_parse.h"
#include "engine/engine.h"
#include "grammar/token_trie.h"

#include <jansson.h>
#include <stdbool.h>

/* What is asked of a text; copied. */
struct constraint_rules {
    const char *gbnf;
    bool of_schema;      /* it was made of one, which errors speak of */
    const char *trigger; /* NULL or "": none */
    const char *call;    /* the token of calls; NULL: there are none */
    const char
        *opening;    /* what must come first, before what gbnf says; or NULL. A few tokens */
    bool ignore_end; /* the text goes on for as long as the grammar lets it */
};

/* *out is for one engine_request; free it with out->free(out->state) if the engine does not
 * take it. trie must outlive it. ST_BAD_INPUT, ST_UNSUPPORTED, ST_NO_MEMORY. */
enum status constraint_open(struct engine_constraint *out, const struct constraint_rules *rules,
                            const struct token_trie *trie, struct err *err);

/* Whether a text can be held to calls or an answer: not if what begins calls is a control token,
 * or arguments are not JSON. In a format whose answers are framed the frame is open already. */
bool constraint_knows_calls(enum chat_format format);
/* The control token before calls that can be enforced behind it: an `opening`. NULL: there is
 * none, or calls cannot be enforced. */
const char *constraint_opening(enum chat_format format);

/* The grammar of one or more calls of tools (OpenAI's array) in this format; only of the tool
 * named `only` if it is not NULL. If schema is not NULL, an answer by this schema is allowed
 * instead. If no grammar can express a tool's schema, its arguments are any object, or, if the
 * tool is "strict", ST_UNSUPPORTED. The caller owns *gbnf (mem_free). */
enum status constraint_tool_gbnf(enum chat_format format, const json_t *tools, const char *only,
                                 bool parallel, const json_t *answer, char **gbnf,
                                 struct err *err);

#endif
