/* tokenizer_impl.h: shared by tokenizer.c (opening, look-ups) and encode.c (text to ids). */
#ifndef LOCKSTEP_TOKENIZER_TOKENIZER_IMPL_H
#define LOCKSTEP_TOKENIZER_TOKENIZER_IMPL_H

#include "tokenizer/pretokenizer.h"
#include "tokenizer/special.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

#define MAX_END_TOKENS 64

/* Special tokens that remove adjacent spaces. */
enum { STRIPS_LEFT = 1, STRIPS_RIGHT = 2 };

struct tokenizer {
    struct tokenizer_facts facts; /* its strings are owned */
    struct vocab v;
    struct special_trie special;
    struct pretokenizer *pre; /* VOCAB_BPE only */
    bool ignore_merges;       /* VOCAB_BPE: a word that is a token is taken as such */
    bool nfc;                 /* VOCAB_BPE: text is normalized first */
    bool spaces_are_tokens;   /* runs of spaces, or of U+2581, that text is searched for */
    bool add_space_prefix;    /* VOCAB_SPM: text between special tokens gets a space in front */
    bool prefix_unless_space; /* of that only what does not begin with one */
    bool prefix_first;        /* of that only what begins the whole text */
    uint8_t *strips;          /* [n_tokens] STRIPS_*; NULL: none does */
    int32_t ends[MAX_END_TOKENS];
    size_t n_ends;
};

#endif
