/* special.h: finds special tokens in text: leftmost first, and the longest one that starts
 * there. A trie over the bytes of all control, user-defined and unknown tokens. */
#ifndef LOCKSTEP_TOKENIZER_SPECIAL_H
#define LOCKSTEP_TOKENIZER_SPECIAL_H

#include "base/status.h"
#include "tokenizer/vocab.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A longer special token is refused: it bounds the time that a text can take. */
#define SPECIAL_MAX_BYTES 1024

struct special_node {
    uint8_t byte;
    int32_t id;              /* of the token that ends here, -1: none */
    uint32_t child, sibling; /* 0: none */
};

struct special_trie {
    struct special_node *nodes; /* [0] is the root */
    size_t n_nodes;
    bool starts[256]; /* some token starts with this byte */
};

/* s is all zero before. Borrows nothing. */
enum status special_init(struct special_trie *s, const struct vocab *v, struct err *err);
void special_deinit(struct special_trie *s);

struct special_match {
    size_t begin, end; /* in the text */
    int32_t id;        /* -1: none, begin = end = len */
};

/* The first special token in text at or after `from`: all of them with any, else
 * user-defined ones only. */
struct special_match special_find(const struct special_trie *s, const struct vocab *v,
                                  const char *text, size_t len, size_t from, bool any);

#endif
