/* token_shapes.h: a vocabulary's tokens, grouped by what a grammar can distinguish.
 *
 * Within a JSON string, "the", "and" and "x-y" are three plain characters each. A set of ASCII
 * bytes says which bytes are alike (there: all but the quote, the backslash and control
 * characters). A token's *shape* is its bytes with each of these as SHAPE_ALIKE, and each whole
 * character beyond ASCII as SHAPE_CHARACTER. The shapes of 151,000 tokens are a trie of some
 * thousands of nodes instead of half a million. Long lists of tokens of one shape are stored as
 * masks.
 *
 * A state of a grammar's automaton may walk such a trie as long as all alike bytes lead to the
 * same state. If they do not, the tokens from there on are checked one by one.
 *
 * Made with the token_trie, one for each of a few sets; read-only. */
#ifndef LOCKSTEP_GRAMMAR_TOKEN_SHAPES_H
#define LOCKSTEP_GRAMMAR_TOKEN_SHAPES_H

#include "grammar/token_trie.h"

#define SHAPE_ALIKE 256
#define SHAPE_CHARACTER 257
#define SHAPE_NO_MASK UINT32_MAX

struct byte_set {
    uint64_t bits[2]; /* ASCII only */
};

static inline bool byte_set_has(const struct byte_set *set, uint8_t byte) {
    return byte < 128 && (set->bits[byte / 64] >> byte % 64 & 1) != 0;
}

struct shape_node {
    uint32_t after;       /* the first node that is not below this one */
    uint32_t first_token; /* tokens[first_token .. next node's first_token) have this shape */
    uint32_t mask;  /* of these, [mask * mask_words] of masks; or SHAPE_NO_MASK: they are few */
    uint16_t depth; /* symbols before this one */
    uint16_t symbol; /* a byte, or one of the two above */
};

struct token_shapes {
    struct byte_set alike;
    struct shape_node *nodes; /* [n_nodes + 1]: as in a token_trie */
    size_t n_nodes;
    int32_t *tokens; /* as in the token_trie, in another order */
    uint64_t *masks;
    size_t mask_words;
};

/* Of the set `which` (below TOKEN_SHAPES). The trie's own fields must be there. NULL: no memory. */
struct token_shapes *token_shapes_new(const struct token_trie *trie, size_t which);
void token_shapes_free(struct token_shapes *s); /* NULL is fine */

#endif
