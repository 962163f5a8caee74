/* chat_builtin.h: templates for model files that bring none, chosen by the special tokens of the
 * vocabulary. */
#ifndef LOCKSTEP_CHAT_CHAT_BUILTIN_H
#define LOCKSTEP_CHAT_CHAT_BUILTIN_H

#include "tokenizer/tokenizer.h"

struct chat_builtin {
    const char *name;
    const char *telltale; /* a token that only vocabularies of this format have; NULL: none */
    const char *source;
};

/* ChatML if nothing speaks for another. Static. */
const struct chat_builtin *chat_builtin_choose(const struct tokenizer *t);
/* NULL if there is none of this name. */
const struct chat_builtin *chat_builtin_find(const char *name);

#endif
