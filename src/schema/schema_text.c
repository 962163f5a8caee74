/* schema_text.c: regular sets as GBNF for the characters inside a JSON string. A set that
 * consists only of character sets, sequences, alternatives and repetitions is written directly.
 * So is one with a length that decides one repetition. Everything else is written as its
 * automaton, a rule for each state. */
#include "schema/schema_impl.h"

#include "base/mem.h"
#include "base/util.h"
#include "grammar/gbnf.h"
#include "schema/regular.h"

#include <string.h>

#define MAX_STATES 10000 /* of an automaton that is written out */
#define INLINE_RANGES 3  /* sets of more become rules, that many strings share */
#define MANY REGULAR_MANY

/* --- sets --- */

/* The characters of a set as a JSON string has them: " and \ and some control characters as
 * two, other control characters not at all. */
static void write_set(struct buf *t, const struct grammar_range *ranges, uint32_t n) {
    static const struct grammar_range plain[] = {
        {' ', '!'}, {'#', '['}, {']', '~'}, {0x80, 0xd7ff}, {0xe000, CODE_POINT_MAX}};
    static const char escaped[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
    buf_add_str(t, "([");
    for (uint32_t i = 0; i < n; i++)
        for (size_t k = 0; k < ARRAY_LEN(plain); k++) {
            uint32_t low = MAX(ranges[i].low, plain[k].low);
            uint32_t high = MIN(ranges[i].high, plain[k].high);
            if (low > high)
                continue;
            gbnf_class_char(t, low);
            if (low < high) {
                buf_add_str(t, "-");
                gbnf_class_char(t, high);
            }
        }
    buf_add_str(t, "]");
    for (size_t k = 0; k < sizeof escaped - 1; k++)
        for (uint32_t i = 0; i < n; i++)
            if (ranges[i].low <= (uint8_t)escaped[k] && (uint8_t)escaped[k] <= ranges[i].high) {
                buf_add_str(t, " | ");
                gbnf_literal(t, (const char[]){'\\', letters[k]}, 2);
                break;
            }
    buf_add_str(t, ")");
}

/* Appends a set, as a rule if it is long. */
static enum status add_set(struct schema_builder *b, struct buf *t, uint32_t term) {
    struct regular_node n = b->regular.nodes[term];
    const struct grammar_range *ranges = b->regular.ranges + n.a;
    if (term == b->regular.any) {
        buf_add_str(t, "char");
        return ST_OK;
    }
    if (n.b <= INLINE_RANGES && (n.b == 0 || ranges[n.b - 1].high < 0x80)) {
        write_set(t, ranges, n.b);
        return ST_OK;
    }
    for (size_t i = 0; i < b->n_sets; i++)
        if (b->sets[i].term == term) {
            buf_printf(t, "r%u", b->sets[i].rule);
            return ST_OK;
        }
    unsigned rule = 0;
    TRY(schema_new_rule(b, &rule));
    if (!mem_reserve(&b->sets, &b->sets_cap, b->n_sets + 1, sizeof *b->sets))
        return schema_no_memory(b);
    b->sets[b->n_sets++] = (struct schema_set){term, rule};
    buf_printf(&b->out, "r%u ::= ", rule);
    write_set(&b->out, ranges, n.b);
    buf_add_str(&b->out, "\n");
    buf_printf(t, "r%u", rule);
    return ST_OK;
}

/* --- terms as they stand --- */

static enum status add_plain(struct schema_builder *b, struct buf *t, uint32_t term) {
    struct regular_node n = b->regular.nodes[term];
    switch (n.kind) {
    case REGULAR_EMPTY:
        buf_add_str(t, "\"\"");
        return ST_OK;
    case REGULAR_CAT:
    case REGULAR_OR: {
        enum regular_kind kind = n.kind;
        buf_add_str(t, "(");
        for (; n.kind == kind; n = b->regular.nodes[term]) {
            TRY(add_plain(b, t, n.a));
            buf_add_str(t, kind == REGULAR_CAT ? " " : " | ");
            term = n.b;
        }
        TRY(add_plain(b, t, term));
        buf_add_str(t, ")");
        return ST_OK;
    }
    case REGULAR_REPEAT:
        TRY(add_plain(b, t, n.a));
        if (n.max == MANY)
            buf_printf(t, "{%u,}", n.min);
        else
            buf_printf(t, "{%u,%u}", n.min, n.max);
        return ST_OK;
    default:
        return add_set(b, t, term);
    }
}

/* --- a length --- */

/* How often an item of `each` characters fits between min and max, besides `fixed` others. */
static uint32_t fit_repeat(struct regular *r, struct regular_node n, uint32_t fixed,
                           uint32_t min, uint32_t max) {
    uint32_t each = r->nodes[n.a].longest;
    uint32_t least = min > fixed ? (min - fixed + each - 1) / each : 0;
    if (fixed > max)
        return r->nothing;
    uint32_t most = max == MANY ? MANY : (max - fixed) / each;
    least = MAX(least, n.min);
    most = MIN(most, n.max);
    return least <= most ? regular_repeat(r, n.a, least, most) : r->nothing;
}

static bool is_fixed(const struct regular_node *n) {
    return n->shortest == n->longest && n->longest < MANY;
}

static bool fit(struct regular *r, uint32_t term, uint32_t min, uint32_t max, uint32_t *out);

/* A sequence in which only one item varies: a repetition of something of fixed length. */
static bool fit_sequence(struct regular *r, uint32_t term, uint32_t min, uint32_t max,
                         uint32_t *out) {
    uint32_t fixed = 0, varies = MANY, head = r->empty;
    for (uint32_t rest = term; rest != MANY;) {
        struct regular_node n = r->nodes[rest];
        uint32_t item = n.kind == REGULAR_CAT ? n.a : rest;
        const struct regular_node *x = &r->nodes[item];
        rest = n.kind == REGULAR_CAT ? n.b : MANY;
        if (is_fixed(x)) {
            fixed += x->longest;
            if (fixed >= MANY / 2)
                return false;
            continue;
        }
        if (varies != MANY || x->kind != REGULAR_REPEAT || !is_fixed(&r->nodes[x->a]))
            return false;
        varies = item;
    }
    if (varies == MANY)
        return false;
    uint32_t wanted = fit_repeat(r, r->nodes[varies], fixed, min, max);
    uint32_t items[64], n_items = 0;
    for (uint32_t rest = term; rest != MANY && n_items < ARRAY_LEN(items);) {
        struct regular_node n = r->nodes[rest];
        uint32_t item = n.kind == REGULAR_CAT ? n.a : rest;
        items[n_items++] = item == varies ? wanted : item;
        rest = n.kind == REGULAR_CAT ? n.b : MANY;
        if (rest != MANY && n_items == ARRAY_LEN(items))
            return false;
    }
    while (n_items > 0)
        head = regular_cat(r, items[--n_items], head);
    *out = head;
    return true;
}

/* *out: the texts of the term that have min to max characters; false if that takes counting. */
static bool fit(struct regular *r, uint32_t term, uint32_t min, uint32_t max, uint32_t *out) {
    const struct regular_node n = r->nodes[term];
    if (n.shortest >= min && n.longest <= max) {
        *out = term;
        return true;
    }
    if (n.shortest > max || n.longest < min) {
        *out = r->nothing;
        return true;
    }
    if (n.kind != REGULAR_OR)
        return n.plain && fit_sequence(r, term, min, max, out);
    uint32_t sum = r->nothing, part = term;
    for (uint32_t rest = term; rest != MANY;) {
        struct regular_node list = r->nodes[rest];
        if (!fit(r, list.kind == REGULAR_OR ? list.a : rest, min, max, &part))
            return false;
        sum = regular_or(r, sum, part);
        rest = list.kind == REGULAR_OR ? list.b : MANY;
    }
    *out = sum;
    return true;
}

/* --- automata --- */

/* The set of the characters on a state's edges to one other state, from the edge i on. */
static uint32_t edge_set(struct schema_builder *b, const struct regular_automaton *a,
                         const struct regular_state *s, uint32_t i,
                         struct grammar_range *ranges) {
    uint32_t n = 0, to = a->edges[s->first + i].to;
    for (; i < s->n; i++)
        if (a->edges[s->first + i].to == to)
            ranges[n++] =
                (struct grammar_range){a->edges[s->first + i].low, a->edges[s->first + i].high};
    return regular_set(&b->regular, ranges, n);
}

static bool seen_before(const struct regular_automaton *a, const struct regular_state *s,
                        uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (a->edges[s->first + k].to == a->edges[s->first + i].to)
            return true;
    return false;
}

static enum status add_state(struct schema_builder *b, struct buf *t,
                             const struct regular_automaton *a, uint32_t i, unsigned first,
                             struct grammar_range *ranges) {
    const struct regular_state *s = &a->states[i];
    if (s->term == b->regular.all) {
        buf_add_str(t, "char*");
        return ST_OK;
    }
    buf_add_str(t, s->accepts ? "\"\"" : SCHEMA_NOTHING);
    for (uint32_t k = 0; k < s->n; k++) {
        if (seen_before(a, s, k))
            continue;
        buf_add_str(t, " | ");
        TRY(add_set(b, t, edge_set(b, a, s, k, ranges)));
        buf_printf(t, " r%u", first + a->edges[s->first + k].to);
    }
    return ST_OK;
}

static enum status add_automaton(struct schema_builder *b, struct buf *t,
                                 const struct regular_automaton *a) {
    unsigned first = b->n_rules, rule;
    struct grammar_range *ranges = mem_alloc((a->n_edges + 1) * sizeof *ranges);
    enum status st = ranges == NULL ? schema_no_memory(b) : ST_OK;
    for (size_t i = 0; i < a->n_states && st == ST_OK; i++)
        st = schema_new_rule(b, &rule);
    for (uint32_t i = 0; i < a->n_states && st == ST_OK; i++) {
        struct buf body = {0};
        st = add_state(b, &body, a, i, first, ranges);
        schema_put_rule(b, first + i, &body);
        buf_free(&body);
    }
    mem_free(ranges);
    buf_printf(t, "r%u", first);
    return st;
}

enum status schema_regular_status(struct schema_builder *b) {
    enum status st = regular_status(&b->regular);
    if (st == ST_NO_MEMORY)
        return schema_no_memory(b);
    return st == ST_OK ? ST_OK : schema_unsupported(b, "its patterns are too large");
}

enum status schema_add_text(struct schema_builder *b, struct buf *t, uint32_t term,
                            uint32_t min, uint32_t max) {
    struct regular *r = &b->regular;
    uint32_t fitted = term;
    bool fits = fit(r, term, min, max, &fitted);
    if (fits && r->nodes[fitted].plain && r->st == ST_OK)
        return add_plain(b, t, fitted);
    struct regular_automaton a = {0};
    if (!fits)
        fitted = regular_and(r, term, regular_repeat(r, r->any, min, max));
    enum status st = regular_automaton_init(&a, r, fitted, MAX_STATES);
    if (st == ST_OK)
        st = add_automaton(b, t, &a);
    else if (st == ST_UNSUPPORTED && regular_status(r) == ST_OK)
        st = fits ? schema_unsupported(b, "its patterns are too large")
                  : schema_unsupported(
                        b, "minLength or maxLength is too large beside such a pattern");
    else
        st = schema_regular_status(b);
    regular_automaton_deinit(&a);
    return st;
}
