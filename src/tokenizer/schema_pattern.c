/* schema_pattern.c: regular expressions to GBNF: parsed into a tree with bounded depth, narrowed
 * to the wanted length, written out.
 *
 * Lengths are counted in characters and saturate at MANY. */
#include "tokenizer/schema_pattern.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"
#include "tokenizer/gbnf.h"
#include "tokenizer/grammar_impl.h"

#include <stdlib.h>

#define MAX_NESTING 32
#define MAX_PARTS 10000
#define MANY UINT32_MAX

enum part_kind {
    PART_SET,    /* one character of ranges[first .. first+n) */
    PART_ANY,    /* the rule `char`: what stands before and after a pattern without anchors */
    PART_CHOICE, /* sequences, linked by `sibling` from `child` on */
    PART_SEQUENCE
};

struct part {
    enum part_kind kind;
    uint32_t first, n;
    struct part *child, *sibling;
    uint32_t min, max;          /* how often */
    uint32_t shortest, longest; /* of one, in characters */
};

struct regex {
    const char *at, *end, *begin;
    struct part *parts; /* [MAX_PARTS] */
    size_t n_parts;
    struct grammar_range *ranges;
    size_t n_ranges, ranges_cap;
    uint32_t nesting;
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
    **out = (struct part){.kind = kind, .min = 1, .max = 1, .shortest = 1, .longest = 1};
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
    if (c == 'u' && !take(r, '{'))
        return parse_hex(r, 4, out);
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

static enum status parse_group(struct regex *r, struct part **out) {
    if (take(r, '?') && !take(r, ':')) {
        /* (?<name>...) is a group, (?= (?! (?<= (?<! look around */
        if (!looking_at(r, "<") || looking_at(r, "<=") || looking_at(r, "<!"))
            return cannot(r, "look-around is not supported");
        while (r->at < r->end && *r->at != '>')
            r->at++;
        if (!take(r, '>'))
            return cannot(r, "a group's name does not end");
    }
    if (++r->nesting > MAX_NESTING)
        return cannot(r, "groups are nested too deeply");
    TRY(parse_choice(r, out));
    r->nesting--;
    return take(r, ')') ? ST_OK : cannot(r, ") is expected");
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

static enum status parse_quantifier(struct regex *r, struct part *part) {
    if (take(r, '*')) {
        part->min = 0;
        part->max = MANY;
    } else if (take(r, '+')) {
        part->max = MANY;
    } else if (take(r, '?')) {
        part->min = 0;
    } else if (take(r, '{')) {
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
    if (r->at < r->end && strchr("*+?{", *r->at) != NULL)
        return cannot(r, "a repetition of a repetition is not supported");
    return ST_OK;
}

static uint32_t plus(uint32_t a, uint32_t b) {
    return a > MANY - b ? MANY : a + b;
}

static uint32_t times(uint32_t a, uint32_t b) {
    uint64_t product = (uint64_t)a * b;
    return a == 0 || b == 0 ? 0 : product >= MANY ? MANY : (uint32_t)product;
}

static void append(struct part *parent, struct part ***last, struct part *child) {
    **last = child;
    *last = &child->sibling;
    if (parent->kind == PART_SEQUENCE) {
        parent->shortest = plus(parent->shortest, times(child->shortest, child->min));
        parent->longest = plus(parent->longest, times(child->longest, child->max));
    } else {
        parent->shortest = MIN(parent->shortest, child->shortest);
        parent->longest = MAX(parent->longest, child->longest);
    }
}

/* What may stand before or after a pattern that is not anchored there. */
static enum status append_anything(struct regex *r, struct part *sequence,
                                   struct part ***last) {
    struct part *any = NULL;
    TRY(new_part(r, PART_ANY, &any));
    any->min = 0;
    any->max = MANY;
    append(sequence, last, any);
    return ST_OK;
}

/* The anchors of the whole are those of each of its alternatives. */
static enum status parse_sequence(struct regex *r, struct part **out) {
    TRY(new_part(r, PART_SEQUENCE, out));
    struct part *sequence = *out, **last = &sequence->child;
    sequence->shortest = sequence->longest = 0;
    bool top = r->nesting == 0, anchored = false;
    if (top && !take(r, '^'))
        TRY(append_anything(r, sequence, &last));
    while (r->at < r->end && *r->at != '|' && *r->at != ')') {
        struct part *part = NULL;
        if (*r->at == '^' || (*r->at == '$' && !top))
            return cannot(r, "an anchor inside the pattern is not supported");
        if (take(r, '$')) {
            anchored = true;
            break;
        }
        if (strchr("*+?{", *r->at) != NULL)
            return cannot(r, "a repetition of nothing");
        TRY(take(r, '(') ? parse_group(r, &part) : parse_set(r, &part));
        TRY(parse_quantifier(r, part));
        append(sequence, &last, part);
    }
    return top && !anchored ? append_anything(r, sequence, &last) : ST_OK;
}

static enum status parse_choice(struct regex *r, struct part **out) {
    TRY(new_part(r, PART_CHOICE, out));
    struct part *choice = *out, **last = &choice->child;
    choice->shortest = MANY;
    choice->longest = 0;
    do {
        struct part *sequence = NULL;
        TRY(parse_sequence(r, &sequence));
        append(choice, &last, sequence);
    } while (take(r, '|'));
    return ST_OK;
}

/* --- the wanted length --- */

/* Raises and lowers the repetitions of a top-level sequence, from the left, until every
 * string has min to max characters. */
static enum status narrow(struct regex *r, struct part *sequence, uint32_t min, uint32_t max) {
    uint32_t missing = min > sequence->shortest ? min - sequence->shortest : 0;
    uint32_t total = sequence->shortest;
    for (struct part *p = sequence->child; p != NULL && missing > 0; p = p->sibling) {
        if (p->shortest == 0)
            continue;
        uint32_t more = MIN((uint32_t)div_up(missing, p->shortest), p->max - p->min);
        p->min += more;
        total = plus(total, times(more, p->shortest));
        missing -= MIN(missing, times(more, p->shortest));
    }
    if (missing > 0)
        return cannot(r, "no string that matches is as long as minLength");
    if (max == MANY)
        return ST_OK;
    /* What each part takes at least, at its longest; what is left over goes to the first. */
    uint32_t taken = 0;
    for (const struct part *p = sequence->child; p != NULL; p = p->sibling)
        taken = plus(taken, times(p->longest, p->min));
    if (total > max || taken > max)
        return cannot(r, "its strings cannot be kept within maxLength");
    uint32_t left = max - taken;
    for (struct part *p = sequence->child; p != NULL; p = p->sibling) {
        if (p->longest == 0)
            continue;
        uint32_t more = MIN(left / p->longest, p->max - p->min);
        p->max = p->min + more;
        left -= more * p->longest;
    }
    return ST_OK;
}

static enum status narrow_all(struct regex *r, struct part *choice, uint32_t min,
                              uint32_t max) {
    for (struct part *p = choice->child; p != NULL; p = p->sibling)
        if (p->shortest < min || p->longest > max)
            TRY(narrow(r, p, min, max));
    return ST_OK;
}

/* --- writing --- */

/* The characters of a set as a JSON string has them: " and \ and some control characters as
 * two, other control characters not at all. */
static void write_set(struct buf *t, const struct regex *r, const struct part *part) {
    static const struct grammar_range plain[] = {
        {' ', '!'}, {'#', '['}, {']', '~'}, {0x80, 0xd7ff}, {0xe000, CODE_POINT_MAX}};
    static const char escaped[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
    const struct grammar_range *ranges = r->ranges + part->first;
    buf_add_str(t, "([");
    for (uint32_t i = 0; i < part->n; i++)
        for (size_t k = 0; k < ARRAY_LEN(plain); k++) {
            uint32_t low = MAX(ranges[i].low, plain[k].low);
            uint32_t high = MIN(ranges[i].high, plain[k].high);
            if (low > high)
                continue;
            gbnf_class_char(t, low);
            buf_add_str(t, "-");
            gbnf_class_char(t, high);
        }
    buf_add_str(t, "]");
    for (size_t k = 0; k < sizeof escaped - 1; k++)
        for (uint32_t i = 0; i < part->n; i++)
            if (ranges[i].low <= (uint8_t)escaped[k] && (uint8_t)escaped[k] <= ranges[i].high) {
                buf_add_str(t, " | ");
                gbnf_literal(t, (const char[]){'\\', letters[k]}, 2);
                break;
            }
    buf_add_str(t, ")");
}

static void write_part(struct buf *t, const struct regex *r, const struct part *part) {
    if (part->kind == PART_SET) {
        write_set(t, r, part);
    } else if (part->kind == PART_ANY) {
        buf_add_str(t, "char");
    } else {
        buf_add_str(t, "(\"\"");
        for (const struct part *p = part->child; p != NULL; p = p->sibling) {
            buf_add_str(t, part->kind == PART_SEQUENCE ? " " : p == part->child ? " " : " | ");
            write_part(t, r, p);
        }
        buf_add_str(t, ")");
    }
    if (part->max == MANY)
        buf_printf(t, "{%u,}", part->min);
    else if (part->min != 1 || part->max != 1)
        buf_printf(t, "{%u,%u}", part->min, part->max);
}

enum status schema_pattern(struct buf *t, const char *pattern, size_t len, uint32_t min_chars,
                           uint32_t max_chars, struct err *err) {
    struct regex r = {.at = pattern, .begin = pattern, .end = pattern + len, .err = err};
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
        st = narrow_all(&r, choice, min_chars, max_chars);
    if (st == ST_OK)
        write_part(t, &r, choice);
    mem_free(r.parts);
    mem_free(r.ranges);
    return st;
}
