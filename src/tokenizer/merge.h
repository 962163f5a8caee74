/* merge.h: joins the symbols of a word, best pair first, until nothing joins.
 *
 * Both kinds of vocabulary do this. BPE starts from bytes and takes the pair of lowest merge
 * rank (tiktoken: the pair whose result has the lowest rank). SentencePiece starts from
 * characters and takes the pair of highest score. Among equal pairs the leftmost comes first. A
 * heap of candidate pairs over a linked list of symbols: O(n log n). */
#ifndef LOCKSTEP_TOKENIZER_MERGE_H
#define LOCKSTEP_TOKENIZER_MERGE_H

#include "base/status.h"
#include "tokenizer/vocab.h"

#include <stddef.h>
#include <stdint.h>

struct merge_symbol {
    uint32_t begin, len; /* bytes of the word; len 0: joined to the symbol before */
    int32_t prev, next;  /* -1: none */
    int32_t id;          /* -1: no token has these bytes */
};

struct merge_pair {
    uint32_t priority;
    int32_t left;
    uint32_t len; /* of both: stale if the symbols have grown since */
    int32_t id;
};

/* Work space, reused from word to word. All zero before the first. */
struct merger {
    const struct vocab *v;
    const char *text;
    struct merge_symbol *symbols;
    size_t n_symbols, symbols_cap;
    struct merge_pair *heap;
    size_t n_heap, heap_cap;
};

void merger_deinit(struct merger *m);

/* Leaves in m->symbols, from index 0 along next, what text [0, len) becomes. len >= 1. */
enum status merge_word(struct merger *m, const char *text, size_t len);

#endif
