/* regular.h: regular sets of texts, combined with and, or, not, and turned into automata.
 *
 * A set is a term: a number in a `struct regular`, equal for terms that are built alike. The
 * automaton comes from derivatives (Brzozowski 1964; Owens, Reppy, Turon 2009). What may follow
 * a character is a term again, and each such term is a state. So intersection and complement
 * cost nothing to express, and a limit on the length is one more term to intersect with.
 *
 * The alphabet is the Unicode characters (no surrogates). Everything is bounded. If a bound is
 * reached or memory is short, regular_status() says so, and terms made since then are invalid.
 */
#ifndef LOCKSTEP_SCHEMA_REGULAR_H
#define LOCKSTEP_SCHEMA_REGULAR_H

#include "base/status.h"
#include "grammar/grammar_impl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGULAR_MANY UINT32_MAX

enum regular_kind {
    REGULAR_SET,    /* one character of some ranges; none: no text at all */
    REGULAR_EMPTY,  /* the empty text */
    REGULAR_CAT,    /* a, then b */
    REGULAR_OR,     /* a or b */
    REGULAR_AND,    /* both */
    REGULAR_NOT,    /* all but a */
    REGULAR_REPEAT, /* a, min to max times */
    REGULAR_MULTIPLE
};

struct regular_node {
    enum regular_kind kind;
    uint32_t a, b;              /* terms; of a set ranges[a .. a+b) */
    uint32_t min, max;          /* of a repetition */
    bool has_empty;             /* the empty text is one of the set */
    bool plain;                 /* neither AND nor NOT nor MULTIPLE is below */
    uint32_t shortest, longest; /* characters; of a term that is not plain 0 and MANY */
    uint32_t chain;
};

struct regular {
    struct regular_node *nodes;
    struct grammar_range *ranges;
    uint32_t *buckets, *memo, *memo_turn;
    size_t n_nodes, n_ranges, nodes_cap, ranges_cap, memo_cap, turn_cap;
    uint32_t turn, depth;
    uint32_t nothing, empty, any, all; /* no text, the empty one, one character, all texts */
    size_t work;
    enum status st;
};

/* All zero before; deinit in any case. */
void regular_init(struct regular *r);
void regular_deinit(struct regular *r);
/* ST_OK, ST_NO_MEMORY, or ST_UNSUPPORTED: too large. */
enum status regular_status(const struct regular *r);

/* Ranges in any order, which may overlap. */
uint32_t regular_set(struct regular *r, const struct grammar_range *ranges, size_t n);
uint32_t regular_text(struct regular *r, const char *utf8, size_t len);
uint32_t regular_cat(struct regular *r, uint32_t a, uint32_t b);
uint32_t regular_or(struct regular *r, uint32_t a, uint32_t b);
uint32_t regular_and(struct regular *r, uint32_t a, uint32_t b);
uint32_t regular_not(struct regular *r, uint32_t a);
uint32_t regular_repeat(struct regular *r, uint32_t a, uint32_t min, uint32_t max);
/* Decimal numbers, "-12.50", that are whole multiples of m / 10^places; m > 0, places < 20. Only of
 * use in an intersection with what numbers look like. */
uint32_t regular_multiple(struct regular *r, uint32_t m, uint32_t places);

bool regular_matches(struct regular *r, uint32_t term, const char *utf8, size_t len);

/* --- automata --- */

struct regular_edge {
    uint32_t low, high; /* characters */
    uint32_t to;        /* a state */
};

struct regular_state {
    uint32_t first, n; /* edges[first .. first+n), ascending */
    uint32_t term;
    bool accepts;
};

/* Deterministic. State 0 is the start. Every state leads to acceptance, except possibly the
 * start (it has no edges then). */
struct regular_automaton {
    struct regular_state *states;
    struct regular_edge *edges;
    size_t n_states, n_edges, states_cap, edges_cap;
};

/* ST_UNSUPPORTED: more than max_states states. a is all zero before; deinit it in any case. */
enum status regular_automaton_init(struct regular_automaton *a, struct regular *r,
                                   uint32_t term, size_t max_states);
void regular_automaton_deinit(struct regular_automaton *a);
bool regular_automaton_is_empty(const struct regular_automaton *a);

#endif
