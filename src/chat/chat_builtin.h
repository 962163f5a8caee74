/* chat_builtin.h: templates for model files without one, chosen by the special tokens of the
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
/* NULL if the name is unknown. */
const struct chat_builtin *chat_builtin_find(const char *name);

#endif
