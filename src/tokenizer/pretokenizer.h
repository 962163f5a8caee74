/* pretokenizer.h: splits a text into the words inside which byte-level BPE merges.
 *
 * How it splits is a fact of the model, known by the name in tokenizer.ggml.pre. The table is
 * in pretokenizer_table.c. Read-only after opening; a run's own state is in struct splitter. */
#ifndef LOCKSTEP_TOKENIZER_PRETOKENIZER_H
#define LOCKSTEP_TOKENIZER_PRETOKENIZER_H

#include "base/status.h"
#include "format/gguf.h"

#include <stdbool.h>
#include <stddef.h>

#define PRETOKENIZER_MAX_RULES 6

/* One step. Matches of the pattern and the text between them become separate pieces. The next
 * rule splits each piece further and does not see its neighbours. */
struct pretokenizer_rule {
    const char *pattern; /* as in the model's tokenizer.json: \s is Unicode's White_Space */
    bool thousands;      /* cut each match into threes from its right end */
};

struct pretokenizer_spec {
    const char *names; /* values of tokenizer.ggml.pre, space separated, the usual one first */
    struct pretokenizer_rule rules[PRETOKENIZER_MAX_RULES]; /* ends at a NULL pattern */
    bool ignore_merges; /* a word that is a token is taken as such */
    bool add_bos;       /* unless the file says otherwise */
};

extern const struct pretokenizer_spec pretokenizer_specs[];
extern const size_t n_pretokenizer_specs;

/* NULL if the name is unknown. */
const struct pretokenizer_spec *pretokenizer_find(struct gguf_str name);

/* Finds a spec by the patterns of a tokenizer.json, in order. The rules must be the same, but
 * characters outside ASCII and line ends may be spelled in any way. NULL: the table has none. */
const struct pretokenizer_spec *pretokenizer_find_patterns(const struct gguf_str *patterns,
                                                           size_t n, bool ignore_merges);

struct pretokenizer;

enum status pretokenizer_open(struct pretokenizer **out, const struct pretokenizer_spec *spec,
                              struct err *err);
/* For tests: its splitters count the steps that they take, and are slower for it. */
enum status pretokenizer_open_counting(struct pretokenizer **out,
                                       const struct pretokenizer_spec *spec, struct err *err);
void pretokenizer_close(struct pretokenizer *p); /* NULL is fine */

/* Checks by some sample characters that PCRE2 uses the Unicode version PRETOKENIZER_UNICODE. If
 * not (false), characters that were added or changed between the versions may be split into
 * other words, and so get other tokens, than elsewhere. */
#define PRETOKENIZER_UNICODE "14.0"
bool pretokenizer_unicode_is_usual(void);

/* The state of one run; not shared between threads. */
struct splitter;
struct splitter *splitter_open(const struct pretokenizer *p); /* NULL: no memory */
void splitter_close(struct splitter *s);

/* Calls word(arg, ...) for the pieces of text in order; together they are the text. text must
 * be valid UTF-8. Takes time linear in len. Stops at the first word() that fails. */
enum status splitter_run(struct splitter *s, const char *text, size_t len,
                         enum status (*word)(void *arg, const char *text, size_t len),
                         void *arg);

/* Counts of all runs so far. n_given_up: matches that reached the limit; the table's patterns
 * never do. n_steps: pattern items that were tried; 0 unless opened for counting. */
struct splitter_work {
    uint64_t n_steps, n_given_up;
};
struct splitter_work splitter_work(const struct splitter *s);

#endif
