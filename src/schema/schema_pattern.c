/* schema_pattern.c: regular expressions to regular sets. A pattern is parsed into a tree with
 * bounded depth and then translated from the left. Each part is translated together with what
 * follows it, so a look-ahead is one more term to intersect with. */
#include "schema/schema_pattern.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"
#include "grammar/grammar_impl.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NESTING 32
#define MAX_PARTS 10000
#define MAX_ASSERTIONS 64 /* the translation's depth */
#define MAX_TRANSLATED 10000
#define MANY REGULAR_MANY

enum part_kind {
    PART_SET, /* one character of ranges[first .. first+n) */
    PART_CHOICE,
    PART_SEQUENCE,
    PART_BEGIN,       /* ^ */
    PART_END,         /* $ */
    PART_BORDER,      /* \b */
    PART_LOOK_AHEAD,  /* at its one child, a choice */
    PART_LOOK_BEHIND, /* the same */
};

struct part {
    enum part_kind kind;
    uint32_t first, n;            /* children: order[first .. first+n) */
    struct part *child, *sibling; /* while it is parsed */
    uint32_t min, max;            /* how often */
    bool negated;                 /* \B, (?!, (?<! */
    bool asserts;                 /* ^ $ \b or looking around is in it */
};

struct regex {
    const char *at, *end, *begin;
    struct part *parts; /* [MAX_PARTS] */
    size_t n_parts;
    struct part **order;
    size_t n_order, order_cap;
    struct grammar_range *ranges;
    size_t n_ranges, ranges_cap;
    uint32_t nesting, n_assertions, n_translated;
    bool needs_start; /* something looks back: whether a text has begun matters inside */
    struct regular *r;
    struct err *err;
};

static enum status cannot(struct regex *r, const char *what) {
    return err_set(r->err, ST_UNSUPPORTED, "schema: pattern, byte %zu: %s",
                   (size_t)(r->at - r->begin), what);
}

static enum status new_part(struct regex *r, enum part_kind kind, struct part **out) {
    if (r->n_parts == MAX_PARTS)
        return cannot(r, "the pattern is too long");
    *out = &r->parts[r->n_parts++];
    **out = (struct part){.kind = kind, .min = 1, .max = 1};
    return ST_OK;
}

static enum status add_range(struct regex *r, uint32_t low, uint32_t high) {
    if (!mem_reserve(&r->ranges, &r->ranges_cap, r->n_ranges + 1, sizeof *r->ranges))
        return err_set(r->err, ST_NO_MEMORY, "no memory for a pattern");
    r->ranges[r->n_ranges++] = (struct grammar_range){low, high};
    return ST_OK;
}

static bool take(struct regex *r, char c) {
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool looking_at(const struct regex *r, const char *s) {
    size_t n = strlen(s);
    return (size_t)(r->end - r->at) >= n && memcmp(r->at, s, n) == 0;
}

/* --- sets --- */

static int by_low(const void *a, const void *b) {
    const struct grammar_range *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

/* Replaces the ranges from `first` on by their complement. */
static enum status negate(struct regex *r, size_t first) {
    size_t end = r->n_ranges;
    uint32_t low = 0;
    if (end > first)
        qsort(r->ranges + first, end - first, sizeof *r->ranges, by_low);
    for (size_t i = first; i < end; i++) {
        struct grammar_range range = r->ranges[i];
        if (range.low > low)
            TRY(add_range(r, low, range.low - 1));
        low = MAX(low, range.high + 1);
    }
    if (low <= CODE_POINT_MAX)
        TRY(add_range(r, low, CODE_POINT_MAX));
    memmove(r->ranges + first, r->ranges + end, (r->n_ranges - end) * sizeof *r->ranges);
    r->n_ranges -= end - first;
    return ST_OK;
}

/* \d \w \s and their complements; *is_set is false for any other character. */
static enum status add_named_set(struct regex *r, char name, bool *is_set) {
    static const struct grammar_range digit[] = {{'0', '9'}},
                                      word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                      space[] = {{9, 13},          {' ', ' '},
                                                 {0xa0, 0xa0},     {0x1680, 0x1680},
                                                 {0x2000, 0x200a}, {0x2028, 0x2029},
                                                 {0x202f, 0x202f}, {0x205f, 0x205f},
                                                 {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    const struct grammar_range *set;
    size_t n, first = r->n_ranges;
    *is_set = true;
    switch (name | 0x20) {
    case 'd':
        set = digit;
        n = ARRAY_LEN(digit);
        break;
    case 'w':
        set = word;
        n = ARRAY_LEN(word);
        break;
    case 's':
        set = space;
        n = ARRAY_LEN(space);
        break;
    default:
        *is_set = false;
        return ST_OK;
    }
    for (size_t i = 0; i < n; i++)
        TRY(add_range(r, set[i].low, set[i].high));
    return (name & 0x20) != 0 ? ST_OK : negate(r, first);
}

static enum status parse_hex(struct regex *r, size_t n_digits, uint32_t *out) {
    uint32_t c = 0;
    for (size_t i = 0; i < n_digits; i++) {
        char d = r->at < r->end ? *r->at : '\0';
        if (d >= '0' && d <= '9')
            c = c << 4 | (uint32_t)(d - '0');
        else if ((d | 0x20) >= 'a' && (d | 0x20) <= 'f')
            c = c << 4 | (uint32_t)((d | 0x20) - 'a' + 10);
        else
            return cannot(r, "an escape has too few hexadecimal digits");
        r->at++;
    }
    *out = c;
    return ST_OK;
}

/* After \\u: XXXX, also two halves of a pair, or {X...}. */
static enum status parse_unicode(struct regex *r, uint32_t *out) {
    uint32_t low = 0;
    if (take(r, '{')) {
        size_t n = 0;
        while (n < 6 && r->at + n < r->end && r->at[n] != '}')
            n++;
        TRY(parse_hex(r, n, out));
        return n > 0 && take(r, '}') && *out <= CODE_POINT_MAX
                   ? ST_OK
                   : cannot(r, "an escape has too many hexadecimal digits");
    }
    TRY(parse_hex(r, 4, out));
    if (*out < 0xd800 || *out > 0xdbff || !looking_at(r, "\\u"))
        return ST_OK;
    r->at += 2;
    TRY(parse_hex(r, 4, &low));
    if (low < 0xdc00 || low > 0xdfff)
        return cannot(r, "half a surrogate pair");
    *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    return ST_OK;
}

/* After a backslash: one character. Sets have been taken before. */
static enum status parse_escape(struct regex *r, uint32_t *out) {
    if (r->at == r->end)
        return cannot(r, "the pattern ends in a backslash");
    char c = *r->at++;
    static const char letters[] = "nrtfv", values[] = "\n\r\t\f\v";
    const char *letter = memchr(letters, c, sizeof letters - 1);
    if (letter != NULL) {
        *out = (uint8_t)values[letter - letters];
        return ST_OK;
    }
    if (c == 'x')
        return parse_hex(r, 2, out);
    if (c == 'u')
        return parse_unicode(r, out);
    if (c == '0') {
        *out = 0;
        return ST_OK;
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
        (uint8_t)c >= 0x80) {
        r->at--;
        return cannot(r, "this escape is not supported");
    }
    *out = (uint8_t)c;
    return ST_OK;
}

static enum status parse_char(struct regex *r, uint32_t *out) {
    if (take(r, '\\'))
        return parse_escape(r, out);
    int len =
        r->at == r->end ? 0 : utf8_check((const uint8_t *)r->at, (size_t)(r->end - r->at));
    if (len <= 0)
        return cannot(r, "a character is expected");
    *out = utf8_decode((const uint8_t *)r->at, len);
    r->at += len;
    return ST_OK;
}

static enum status parse_class_item(struct regex *r) {
    bool is_set = false;
    uint32_t low = 0, high;
    if (r->end - r->at >= 2 && *r->at == '\\') {
        TRY(add_named_set(r, r->at[1], &is_set));
        if (is_set) {
            r->at += 2;
            return ST_OK;
        }
        if (r->at[1] == 'b') {
            r->at += 2;
            return add_range(r, '\b', '\b');
        }
    }
    TRY(parse_char(r, &low));
    high = low;
    if (r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
        r->at++;
        TRY(parse_char(r, &high));
        if (high < low)
            return cannot(r, "a range in a class runs backwards");
    }
    return add_range(r, low, high);
}

static enum status parse_class(struct regex *r, struct part *part) {
    bool negated = take(r, '^');
    while (!take(r, ']')) {
        if (r->at == r->end)
            return cannot(r, "a class does not end");
        TRY(parse_class_item(r));
    }
    if (negated)
        TRY(negate(r, part->first));
    part->n = (uint32_t)r->n_ranges - part->first;
    return ST_OK;
}

/* --- the tree --- */

static enum status parse_choice(struct regex *r, struct part **out);

static bool take_text(struct regex *r, const char *s) {
    if (!looking_at(r, s))
        return false;
    r->at += strlen(s);
    return true;
}

static enum status skip_name(struct regex *r) {
    while (r->at < r->end && *r->at != '>')
        r->at++;
    return take(r, '>') ? ST_OK : cannot(r, "a group's name does not end");
}

static enum status count_assertion(struct regex *r, bool looks_back) {
    r->needs_start = r->needs_start || looks_back;
    return ++r->n_assertions <= MAX_ASSERTIONS ? ST_OK : cannot(r, "too many assertions");
}

/* After "(": what kind of group; *look is a part that looks around, or NULL. */
static enum status parse_group_head(struct regex *r, struct part **look) {
    static const struct {
        const char *text;
        enum part_kind kind;
        bool negated;
    } looks[] = {{"?=", PART_LOOK_AHEAD, false},
                 {"?!", PART_LOOK_AHEAD, true},
                 {"?<=", PART_LOOK_BEHIND, false},
                 {"?<!", PART_LOOK_BEHIND, true}};
    *look = NULL;
    for (size_t i = 0; i < ARRAY_LEN(looks); i++)
        if (take_text(r, looks[i].text)) {
            TRY(count_assertion(r, looks[i].kind == PART_LOOK_BEHIND));
            TRY(new_part(r, looks[i].kind, look));
            (*look)->negated = looks[i].negated;
            (*look)->asserts = true;
            return ST_OK;
        }
    if (take_text(r, "?:"))
        return ST_OK;
    if (take_text(r, "?<") || take_text(r, "?P<"))
        return skip_name(r);
    return looking_at(r, "?") ? cannot(r, "this kind of group is not supported") : ST_OK;
}

static enum status parse_group(struct regex *r, struct part **out) {
    struct part *look, *inner = NULL;
    TRY(parse_group_head(r, &look));
    if (++r->nesting > MAX_NESTING)
        return cannot(r, "groups are nested too deeply");
    TRY(parse_choice(r, &inner));
    r->nesting--;
    if (!take(r, ')'))
        return cannot(r, ") is expected");
    *out = look != NULL ? look : inner;
    if (look != NULL)
        look->child = inner;
    return ST_OK;
}

static enum status parse_set(struct regex *r, struct part **out) {
    TRY(new_part(r, PART_SET, out));
    struct part *part = *out;
    part->first = (uint32_t)r->n_ranges;
    if (take(r, '['))
        return parse_class(r, part);
    bool is_set = false;
    uint32_t c = 0;
    if (take(r, '.')) {
        TRY(add_range(r, '\n', '\n'));
        TRY(add_range(r, '\r', '\r'));
        TRY(add_range(r, 0x2028, 0x2029));
        TRY(negate(r, part->first));
    } else if (r->end - r->at >= 2 && *r->at == '\\') {
        TRY(add_named_set(r, r->at[1], &is_set));
        r->at += is_set ? 2 : 0;
    }
    if (!is_set && r->n_ranges == part->first) {
        TRY(parse_char(r, &c));
        TRY(add_range(r, c, c));
    }
    part->n = (uint32_t)r->n_ranges - part->first;
    return ST_OK;
}

static enum status parse_number(struct regex *r, uint32_t *out) {
    uint32_t n = 0;
    const char *begin = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9' && n <= GRAMMAR_MAX_REPEAT)
        n = n * 10 + (uint32_t)(*r->at++ - '0');
    if (r->at == begin || n > GRAMMAR_MAX_REPEAT)
        return cannot(r, "a repetition is wrong or too large");
    *out = n;
    return ST_OK;
}

/* A brace that no number follows is a character. */
static bool is_quantifier(const struct regex *r) {
    if (r->at == r->end || strchr("*+?{", *r->at) == NULL)
        return false;
    return *r->at != '{' || (r->end - r->at >= 2 && r->at[1] >= '0' && r->at[1] <= '9');
}

static enum status parse_quantifier(struct regex *r, struct part *part) {
    if (take(r, '*')) {
        part->min = 0;
        part->max = MANY;
    } else if (take(r, '+')) {
        part->max = MANY;
    } else if (take(r, '?')) {
        part->min = 0;
    } else if (is_quantifier(r) && take(r, '{')) {
        TRY(parse_number(r, &part->min));
        part->max = part->min;
        if (take(r, ',')) {
            part->max = MANY;
            if (!looking_at(r, "}"))
                TRY(parse_number(r, &part->max));
        }
        if (!take(r, '}') || part->max < part->min)
            return cannot(r, "a repetition is wrong");
    } else {
        return ST_OK;
    }
    take(r, '?'); /* lazy: the same strings */
    if (is_quantifier(r))
        return cannot(r, "a repetition of a repetition is not supported");
    if (part->asserts && (part->min != 1 || part->max != 1) && part->max > 1)
        return cannot(
            r, "an anchor, a border or looking around inside a repetition is not supported");
    return ST_OK;
}

static enum status parse_anchor(struct regex *r, enum part_kind kind, bool negated,
                                bool looks_back, struct part **out) {
    TRY(count_assertion(r, looks_back));
    TRY(new_part(r, kind, out));
    (*out)->asserts = true;
    (*out)->negated = negated;
    return ST_OK;
}

static enum status parse_item(struct regex *r, bool first_of_all, struct part **out) {
    if (take(r, '^'))
        return parse_anchor(r, PART_BEGIN, false, !first_of_all, out);
    if (take(r, '$'))
        return parse_anchor(r, PART_END, false, false, out);
    if (take_text(r, "\\b"))
        return parse_anchor(r, PART_BORDER, false, true, out);
    if (take_text(r, "\\B"))
        return parse_anchor(r, PART_BORDER, true, true, out);
    if (is_quantifier(r))
        return cannot(r, "a repetition of nothing");
    return take(r, '(') ? parse_group(r, out) : parse_set(r, out);
}

/* The children of a part that is whole, in an array. */
static enum status finish(struct regex *r, struct part *parent) {
    parent->first = (uint32_t)r->n_order;
    for (struct part *p = parent->child; p != NULL; p = p->sibling) {
        if (!mem_reserve(&r->order, &r->order_cap, r->n_order + 1, sizeof(struct part *)))
            return err_set(r->err, ST_NO_MEMORY, "no memory for a pattern");
        r->order[r->n_order++] = p;
        parent->asserts = parent->asserts || p->asserts;
        parent->n++;
    }
    return ST_OK;
}

static enum status parse_sequence(struct regex *r, struct part **out) {
    TRY(new_part(r, PART_SEQUENCE, out));
    struct part *sequence = *out, **last = &sequence->child;
    while (r->at < r->end && *r->at != '|' && *r->at != ')') {
        struct part *part = NULL;
        TRY(parse_item(r, r->nesting == 0 && sequence->child == NULL, &part));
        TRY(parse_quantifier(r, part));
        *last = part;
        last = &part->sibling;
    }
    return finish(r, sequence);
}

static enum status parse_choice(struct regex *r, struct part **out) {
    TRY(new_part(r, PART_CHOICE, out));
    struct part *choice = *out, **last = &choice->child;
    do {
        struct part *sequence = NULL;
        TRY(parse_sequence(r, &sequence));
        *last = sequence;
        last = &sequence->sibling;
    } while (take(r, '|'));
    return finish(r, choice);
}

/* --- translation --- */

/* A part without assertions. */
static uint32_t plain_term(struct regex *r, const struct part *part) {
    struct regular *g = r->r;
    uint32_t term = part->kind == PART_CHOICE ? g->nothing : g->empty;
    if (part->kind == PART_SET)
        term = regular_set(g, r->ranges + part->first, part->n);
    for (uint32_t i = part->n; i-- > 0 && part->kind != PART_SET;) {
        uint32_t child = plain_term(r, r->order[part->first + i]);
        term = part->kind == PART_CHOICE ? regular_or(g, child, term)
                                         : regular_cat(g, child, term);
    }
    return regular_repeat(g, term, part->min, part->max);
}

/* What stands behind a part: the rest of its sequence from item `at` on, then what is behind that.
 * NULL: anything. */
struct behind {
    const struct part *sequence;
    uint32_t at;
    const struct behind *then;
};

/* The text before a place: what its last run of plain parts matches. */
struct before {
    uint32_t run;
    bool whole; /* the run begins where the text does */
};

static enum status translate(struct regex *r, const struct behind *behind, struct before before,
                             uint32_t *out);

static enum status translate_choice(struct regex *r, const struct part *choice,
                                    const struct behind *then, struct before before,
                                    uint32_t *out) {
    uint32_t sum = r->r->nothing;
    for (uint32_t i = 0; i < choice->n; i++) {
        struct behind behind = {r->order[choice->first + i], 0, then};
        uint32_t term = 0;
        TRY(translate(r, &behind, before, &term));
        sum = regular_or(r->r, sum, term);
    }
    *out = sum;
    return ST_OK;
}

/* Texts that end in, or begin with, one of `term`. */
static uint32_t ends_in(struct regular *g, uint32_t term) {
    return regular_cat(g, g->all, term);
}

static uint32_t begins_with(struct regular *g, uint32_t term) {
    return regular_cat(g, term, g->all);
}

static uint32_t negate_if(struct regular *g, bool negated, uint32_t term) {
    return negated ? regular_not(g, term) : term;
}

/* The run, if it ends as wanted. */
static enum status look_behind(struct regex *r, struct before before, uint32_t longest,
                               uint32_t wanted, struct before *out) {
    if (!before.whole && r->r->nodes[before.run].shortest < longest)
        return cannot(r, "looking back over what may be empty is not supported");
    *out = (struct before){regular_and(r->r, before.run, wanted), before.whole};
    return ST_OK;
}

/* A word character on one side and none on the other; negated: both or neither. The run is cut off
 * here: two translations of the rest, one for each. */
static enum status translate_border(struct regex *r, const struct part *part,
                                    const struct behind *rest, struct before before,
                                    uint32_t *out) {
    static const struct grammar_range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    struct regular *g = r->r;
    uint32_t w = regular_set(g, word, ARRAY_LEN(word)), sum = g->nothing;
    for (int is_word = 0; is_word < 2; is_word++) {
        struct before side = before;
        uint32_t next = 0;
        bool next_is_word = (is_word != 0) == part->negated;
        TRY(look_behind(r, before, 1, negate_if(g, !is_word, ends_in(g, w)), &side));
        TRY(translate(r, rest, (struct before){g->empty, false}, &next));
        next = regular_and(g, next, negate_if(g, !next_is_word, begins_with(g, w)));
        sum = regular_or(g, sum, regular_cat(g, side.run, next));
    }
    *out = sum;
    return ST_OK;
}

static enum status translate_look(struct regex *r, const struct part *part,
                                  const struct behind *rest, struct before before,
                                  uint32_t *out) {
    struct regular *g = r->r;
    uint32_t seen = 0, next = 0;
    if (part->kind == PART_LOOK_BEHIND) {
        if (part->child->asserts)
            return cannot(r, "an assertion inside of looking back is not supported");
        seen = plain_term(r, part->child);
        TRY(look_behind(r, before, g->nodes[seen].longest,
                        negate_if(g, part->negated, ends_in(g, seen)), &before));
        return translate(r, rest, before, out);
    }
    struct before here = {g->empty, before.whole && before.run == g->empty};
    TRY(translate_choice(r, part->child, NULL, here, &seen));
    TRY(translate(r, rest, here, &next));
    next = regular_and(g, next, negate_if(g, part->negated, seen));
    *out = regular_cat(g, before.run, next);
    return ST_OK;
}

static enum status translate_assertion(struct regex *r, const struct part *part,
                                       const struct behind *rest, struct before before,
                                       uint32_t *out) {
    struct regular *g = r->r;
    uint32_t next = 0;
    switch (part->kind) {
    case PART_BEGIN:
        *out = g->nothing;
        return before.whole && before.run == g->empty ? translate(r, rest, before, out) : ST_OK;
    case PART_END:
        TRY(translate(
            r, rest, (struct before){g->empty, before.whole && before.run == g->empty}, &next));
        *out = g->nodes[next].has_empty ? before.run : g->nothing;
        return ST_OK;
    case PART_BORDER:
        return translate_border(r, part, rest, before, out);
    case PART_LOOK_AHEAD:
    case PART_LOOK_BEHIND:
        return translate_look(r, part, rest, before, out);
    default: /* a group that holds some */
        return translate_choice(r, part, rest, before, out);
    }
}

/* The same, once or not at all, as its quantifier says. */
static enum status translate_optional(struct regex *r, const struct part *part,
                                      const struct behind *rest, struct before before,
                                      uint32_t *out) {
    uint32_t without = r->r->nothing, with = r->r->nothing;
    if (++r->n_translated > MAX_TRANSLATED)
        return cannot(r, "too many assertions in alternatives");
    if (part->min == 0)
        TRY(translate(r, rest, before, &without));
    if (part->max > 0)
        TRY(translate_assertion(r, part, rest, before, &with));
    *out = regular_or(r->r, without, with);
    return ST_OK;
}

/* The texts of before.run and then of what is behind. */
static enum status translate(struct regex *r, const struct behind *behind, struct before before,
                             uint32_t *out) {
    struct regular *g = r->r;
    while (behind != NULL) {
        const struct part *sequence = behind->sequence, *part = NULL;
        uint32_t i = behind->at, run = g->empty;
        while (i < sequence->n && !(part = r->order[sequence->first + i])->asserts)
            i++;
        for (uint32_t k = i; k-- > behind->at;)
            run = regular_cat(g, plain_term(r, r->order[sequence->first + k]), run);
        before.run = regular_cat(g, before.run, run);
        if (i == sequence->n) {
            behind = behind->then;
            continue;
        }
        struct behind rest = {sequence, i + 1, behind->then};
        bool may_be_empty = g->nodes[before.run].has_empty && before.run != g->empty;
        if (!(r->needs_start && before.whole && may_be_empty))
            return translate_optional(r, part, &rest, before, out);
        /* The text has not begun here, or it has. */
        uint32_t begun = 0, fresh = 0, some = regular_cat(g, g->any, g->all);
        TRY(translate_optional(r, part, &rest, (struct before){g->empty, true}, &fresh));
        before.run = regular_and(g, before.run, some);
        TRY(translate_optional(r, part, &rest, before, &begun));
        *out = regular_or(g, fresh, begun);
        return ST_OK;
    }
    *out = regular_cat(g, before.run, g->all);
    return ST_OK;
}

/* An alternative that begins with ^ stands at the start, others behind anything. */
static enum status translate_pattern(struct regex *r, const struct part *choice,
                                     uint32_t *out) {
    struct regular *g = r->r;
    uint32_t sum = g->nothing;
    for (uint32_t i = 0; i < choice->n; i++) {
        const struct part *sequence = r->order[choice->first + i];
        bool anchored = sequence->n > 0 && r->order[sequence->first]->kind == PART_BEGIN;
        struct behind behind = {sequence, 0, NULL};
        uint32_t term = 0;
        TRY(translate(r, &behind, (struct before){anchored ? g->empty : g->all, true}, &term));
        sum = regular_or(g, sum, term);
    }
    *out = sum;
    return ST_OK;
}

enum status schema_pattern(struct regular *g, uint32_t *term, const char *pattern, size_t len,
                           struct err *err) {
    struct regex r = {
        .at = pattern, .begin = pattern, .end = pattern + len, .r = g, .err = err};
    r.parts = mem_alloc(MAX_PARTS * sizeof *r.parts);
    struct part *choice = NULL;
    enum status st = ST_OK;
    if (r.parts == NULL)
        st = err_set(err, ST_NO_MEMORY, "no memory for a pattern");
    if (st == ST_OK)
        st = parse_choice(&r, &choice);
    if (st == ST_OK && r.at != r.end)
        st = cannot(&r, "something is left over");
    if (st == ST_OK)
        st = translate_pattern(&r, choice, term);
    if (st == ST_OK && regular_status(g) != ST_OK)
        st = regular_status(g) == ST_NO_MEMORY
                 ? err_set(err, ST_NO_MEMORY, "no memory for a pattern")
                 : cannot(&r, "the pattern is too large");
    mem_free(r.parts);
    mem_free(r.order);
    mem_free(r.ranges);
    return st;
}
