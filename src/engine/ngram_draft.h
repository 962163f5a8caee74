/* ngram_draft.h: drafts tokens without a second model (prompt lookup): the tokens that followed
 * the last time when the text ended as it does now. */
#ifndef LOCKSTEP_ENGINE_NGRAM_DRAFT_H
#define LOCKSTEP_ENGINE_NGRAM_DRAFT_H

#include <stddef.h>
#include <stdint.h>

/* Writes up to k drafted tokens after ids [n] (space for k more) and returns how many. They are
 * the continuation of an earlier match of the last tokens: the latest of the longest ones. A
 * match has at least NGRAM_MIN tokens; only the last NGRAM_BACK tokens are searched. */
#define NGRAM_MIN 2
#define NGRAM_LONG 8 /* a match this long is long enough */
#define NGRAM_BACK 8192
size_t ngram_draft(int32_t *ids, size_t n, size_t k);

/* How far the guesses of one sequence are to be trusted. */
struct ngram_trust {
    double hits, misses; /* of single guesses, older ones forgotten */
    uint32_t n_without;  /* tokens since the last guess */
};
void ngram_trust_init(struct ngram_trust *t);
/* n_right of n guesses were right (all before the first wrong one). */
void ngram_trust_learn(struct ngram_trust *t, size_t n, size_t n_right);
/* How many drafted tokens pay, at most k_max. The i-th one is right with probability p^i. It
 * must be worth its price: the share of a step's time that one more token costs, times the
 * tokens that the step makes anyway. Every NGRAM_PROBE tokens one is tried anyway, to see
 * whether the text has changed. */
#define NGRAM_PROBE 32
size_t ngram_trust_k(struct ngram_trust *t, double price, size_t k_max);

#endif
