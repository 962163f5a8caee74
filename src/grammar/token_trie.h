/* token_trie.h: the tokens of a vocabulary as a trie over their bytes, in depth-first order. A
 * grammar is checked against all tokens at once with it. Read-only; any number of threads. */
#ifndef LOCKSTEP_GRAMMAR_TOKEN_TRIE_H
#define LOCKSTEP_GRAMMAR_TOKEN_TRIE_H

#include "base/status.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trie_node {
    uint32_t after;       /* the first node that is not below this one */
    uint32_t first_token; /* tokens[first_token .. next node's first_token) end here */
    uint16_t depth;       /* bytes before this one; a child's is one more */
    uint8_t byte;
};

#define TOKEN_SHAPES 5 /* token_shapes.h */

struct token_trie {
    const struct tokenizer *t; /* borrowed */
    int32_t n_tokens;          /* of the vocabulary */
    struct trie_node *nodes;   /* [n_nodes + 1]: children after their parent, the last a stop */
    size_t n_nodes;
    /* control tokens, those that end a turn, empty ones and ones that no UTF-8 has are left out */
    int32_t *tokens;
    int32_t *ends; /* [n_ends] the tokens that end a turn */
    size_t n_ends;
    uint16_t max_depth;
    uint32_t root[256];    /* [byte] the node of the tokens that begin with it */
    uint32_t n_below[256]; /* [byte] nodes from there on */
    struct token_shapes *shapes[TOKEN_SHAPES];
};

/* t must live as long as the trie. */
enum status token_trie_open(struct token_trie **out, const struct tokenizer *t,
                            struct err *err);
void token_trie_close(struct token_trie *trie); /* NULL is fine */

/* Of a vocabulary without tokens: for grammars that are only matched with bytes. Its t is NULL. */
extern const struct token_trie token_trie_empty;

/* Masks have a bit for each token, [div_up(n_tokens, 64)]. */
bool token_mask_is_empty(const struct token_trie *trie, const uint64_t *mask);
void token_mask_clear_ends(const struct token_trie *trie, uint64_t *mask);

#endif
