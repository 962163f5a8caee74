/* api_grammar.h: the form that a lockstep_request asks for, as masks of tokens. The thread that
 * generates uses it between steps. */
#ifndef LOCKSTEP_ENGINE_API_GRAMMAR_H
#define LOCKSTEP_ENGINE_API_GRAMMAR_H

#include "engine/api_impl.h"
#include "grammar/grammar.h"

/* All zero: no form is asked. */
struct api_grammar {
    const struct token_trie *trie; /* the model's */
    struct grammar *grammar;
    struct grammar_matcher *matcher;
    bool ignore_end;
    uint64_t *mask; /* [div_up(n_vocab, 64)] what may come next; NULL: no form is asked */
};

/* ST_BAD_INPUT, ST_UNSUPPORTED, ST_NO_MEMORY. api_grammar_close() is due in any case. */
enum status api_grammar_open(struct api_grammar *g, struct lockstep *ls,
                             const struct lockstep_request *req, struct err *err);
void api_grammar_close(struct api_grammar *g);

/* Goes on by the token id, which the mask allowed (TOKEN_NONE: none yet), and makes the next mask.
 * ST_UNSUPPORTED says why nothing can follow. */
enum status api_grammar_next(struct api_grammar *g, int32_t id, struct err *err);

#endif
