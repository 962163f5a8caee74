/* constraint.h: from what a request asks of the text's form to a constraint of the engine.
 *
 * A model that thinks first, or names the channel it writes to, is left alone until it begins
 * to answer: until `trigger` was written. From there on the grammar rules. While it is waited
 * for the model cannot end its turn. One that may call tools may write the token that begins
 * (or, in harmony, ends) calls instead of its answer: then the rest is its own. */
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
    bool ignore_end;     /* the text goes on for as long as the grammar lets it */
};

/* *out is for one engine_request; free it with out->free(out->state) if the engine does not
 * take it. trie must outlive it. ST_BAD_INPUT, ST_UNSUPPORTED, ST_NO_MEMORY. */
enum status constraint_open(struct engine_constraint *out, const struct constraint_rules *rules,
                            const struct token_trie *trie, struct err *err);

/* Can calls be enforced? Not where they are made of control tokens, or are no JSON. */
bool constraint_knows_calls(enum chat_format format);

/* The grammar of one or more calls of tools (OpenAI's array) in such a format, only of the one
 * of them named `only` if not NULL; or, where that is allowed, of an answer by this schema
 * instead (NULL: it is not). Arguments whose schema asks for what no grammar can say are any
 * object, or, if the tool is "strict", ST_UNSUPPORTED. The caller owns *gbnf (mem_free). */
enum status constraint_tool_gbnf(enum chat_format format, const json_t *tools, const char *only,
                                 bool parallel, const json_t *answer, char **gbnf,
                                 struct err *err);

#endif
