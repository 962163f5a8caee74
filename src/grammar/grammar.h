/* grammar.h: which tokens may come next, if the text must have a given form.
 *
 * A grammar is written in GBNF, the notation of llama.cpp's grammars:
 *
 *     root  ::= "yes" | "no" | list          # the text as a whole is a root
 *     list  ::= "[" item ("," item){0,9} "]"
 *     item  ::= [a-z]+ | "\"" [^"\\]* "\""
 *
 * It has literals (escapes \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH), classes with ranges
 * and ^, "." for any character, ( ) | * + ? {m} {m,} {m,n} {,n}, and # comments. A rule ends at
 * the end of its line, except inside ( ) and after | and ::=. In literals and classes the end
 * of a line stands for itself. <NAME> is the token whose text is <NAME>, which may be one that no
 * text is made of (<|im_start|>), or these characters if the vocabulary has none.
 *
 * How it is fast: the grammar becomes an automaton over bytes with a stack of rule returns. The
 * configurations after some text (a set of positions, each with its stack) are a *state*. A
 * state is computed once and numbered. From then on a byte is a table look-up. The tokens
 * allowed in a state are found by walking the trie of all tokens through that table. They are
 * cached.
 *
 * Hostile grammars: the size of text, rules and automaton is bounded. Rules that call
 * themselves before reading a byte are refused, and so are roots that can never end. Nesting
 * deeper than GRAMMAR_MAX_DEPTH is not allowed to begin. A grammar with too many readings of
 * one text ends with an error, and so does one that takes too much work. A unit of work is a
 * trie node visited, or an eighth of a configuration in a new step of the automaton (both about
 * 2 ns). Work is counted, not timed, so the same text ends in the same way everywhere.
 *
 * One thread at a time uses what belongs to one grammar. */
#ifndef LOCKSTEP_GRAMMAR_GRAMMAR_H
#define LOCKSTEP_GRAMMAR_GRAMMAR_H

#include "base/status.h"
#include "grammar/token_trie.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_MAX_BYTES (1 << 20) /* of GBNF */
#define GRAMMAR_MAX_DEPTH 512       /* rules that wait for an inner rule to end */

#define GRAMMAR_MASK_WORK (INT64_C(1) << 25) /* of one mask, in units */
/* Of all masks of one grammar: so much at first, and more with each token that is accepted. */
#define GRAMMAR_FIRST_WORK (INT64_C(1) << 30)
#define GRAMMAR_TOKEN_WORK (INT64_C(1) << 21)

struct grammar;

/* trie must live as long as the grammar. ST_BAD_INPUT names the line and the defect; with
 * ERR_GRAMMAR_ENDLESS: no text can be of it. */
enum status grammar_open(struct grammar **out, const char *gbnf, size_t len,
                         const struct token_trie *trie, struct err *err);
/* Leaves so much work for its masks instead of GRAMMAR_FIRST_WORK. */
void grammar_limit_work(struct grammar *g, int64_t units);
/* After its matchers. NULL is fine. */
void grammar_close(struct grammar *g);

/* One text that is being written. Any number per grammar, each at its own place. */
struct grammar_matcher;

enum status grammar_matcher_open(struct grammar_matcher **out, struct grammar *g,
                                 struct err *err);
void grammar_matcher_close(struct grammar_matcher *m); /* NULL is fine */
/* to stands where from stands; both of the same grammar. */
void grammar_matcher_copy(struct grammar_matcher *to, const struct grammar_matcher *from);

/* The tokens that may come next: bit id%64 of (*mask)[id/64], for all ids of the vocabulary.
 * End tokens are included if the text may end. Borrowed until the next call on any matcher of
 * this grammar. Never empty: ST_UNSUPPORTED says why no token can follow or why that is unknown
 * (too ambiguous, too much work, or no token has the required bytes). */
enum status grammar_matcher_mask(struct grammar_matcher *m, const uint64_t **mask,
                                 struct err *err);
/* Finds the mask already if that takes at most so much work. */
void grammar_matcher_prepare(struct grammar_matcher *m, int64_t units);
/* Goes on by the token id (TOKEN_NONE: stays) and gives the mask, if all that is known already:
 * a few microseconds, nothing is allocated. False: nothing has changed. */
bool grammar_matcher_known(struct grammar_matcher *m, int32_t id, const uint64_t **mask);

/* Goes on by a token; false, and nothing changes, if it is not allowed here. After an end
 * token nothing is. */
bool grammar_matcher_accept(struct grammar_matcher *m, int32_t id);
/* The same for plain bytes. */
bool grammar_matcher_accept_bytes(struct grammar_matcher *m, const char *bytes, size_t len);
/* The text may end here. */
bool grammar_matcher_may_end(const struct grammar_matcher *m);

#endif
