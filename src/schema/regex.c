/* regex.c: A regular expression as GBNF: its automaton, a rule for each state. */
#include "schema/regex.h"

#include "base/mem.h"
#include "base/util.h"
#include "grammar/gbnf.h"
#include "schema/regular.h"
#include "schema/schema_pattern.h"

#include <string.h>

#define MAX_STATES 10000

static void write_state(struct buf *t, const struct regular_automaton *a, size_t i) {
    const struct regular_state *s = &a->states[i];
    if (i == 0)
        buf_add_str(t, "root ::= ");
    else
        buf_printf(t, "r%zu ::= ", i);
    if (s->accepts)
        buf_add_str(t, "\"\"");
    for (uint32_t k = 0; k < s->n; k++) {
        const struct regular_edge *e = &a->edges[s->first + k];
        buf_add_str(t, k > 0 || s->accepts ? " | [" : "[");
        gbnf_class_char(t, e->low);
        buf_add_str(t, "-");
        gbnf_class_char(t, e->high);
        buf_add_str(t, "] ");
        if (e->to == 0)
            buf_add_str(t, "root");
        else
            buf_printf(t, "r%u", e->to);
    }
    buf_add_str(t, "\n");
}

static enum status write_automaton(const struct regular_automaton *a, char **gbnf,
                                   struct err *err) {
    struct buf t = {0};
    if (regular_automaton_is_empty(a))
        return err_set(err, ST_UNSUPPORTED, "the regular expression matches no text");
    for (size_t i = 0; i < a->n_states; i++)
        write_state(&t, a, i);
    *gbnf = t.failed ? NULL : mem_strdup(t.bytes);
    buf_free(&t);
    return *gbnf != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory for a grammar");
}

/* What schema_pattern() takes matches somewhere, so it is anchored on both sides; alone first, as
 * "a)(b" between parentheses would be another expression. */
static enum status whole_term(struct regular *r, const char *regex, uint32_t *term,
                              struct err *err) {
    struct buf anchored = {0};
    TRY(schema_pattern(r, term, regex, strlen(regex), err));
    buf_printf(&anchored, "^(?:%s)$", regex);
    enum status st = anchored.failed
                         ? err_set(err, ST_NO_MEMORY, "no memory for a regular expression")
                         : schema_pattern(r, term, anchored.bytes, anchored.len, err);
    buf_free(&anchored);
    return st;
}

static enum status make_automaton(struct regular_automaton *a, struct regular *r, uint32_t term,
                                  struct err *err) {
    enum status st = regular_automaton_init(a, r, term, MAX_STATES);
    if (st == ST_OK)
        return ST_OK;
    return err_set(err, st,
                   st == ST_NO_MEMORY ? "no memory for a regular expression"
                                      : "the regular expression is too large");
}

enum status regex_to_gbnf(const char *regex, char **gbnf, struct err *err) {
    struct regular r;
    struct regular_automaton a = {0};
    uint32_t term = 0;
    *gbnf = NULL;
    regular_init(&r);
    enum status st = whole_term(&r, regex, &term, err);
    if (st == ST_OK)
        st = make_automaton(&a, &r, term, err);
    if (st == ST_OK)
        st = write_automaton(&a, gbnf, err);
    regular_automaton_deinit(&a);
    regular_deinit(&r);
    return st;
}
