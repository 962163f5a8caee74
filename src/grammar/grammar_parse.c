/* grammar_parse.c: GBNF to a tree. A recursive-descent parser with bounded nesting. Errors name
 * the line. */
#include "grammar/grammar_impl.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"
#include "grammar/grammar.h"

#include <stdlib.h>

/* Rules by name: their number + 1, 0 if the slot is empty. */
#define INDEX_SIZE (2 * GRAMMAR_MAX_RULES)

struct parser {
    struct grammar_tree *tree;
    uint32_t *index; /* [INDEX_SIZE] */
    const struct tokenizer *t;
    const char *at, *end;
    uint32_t line;
    uint32_t nesting;
    struct err *err;
};

/* A few items that are being put together, on the way to tree->children. */
struct list {
    uint32_t *v;
    size_t n, cap;
};

/* --- building --- */

static enum status no_memory(struct parser *p) {
    return err_set(p->err, ST_NO_MEMORY, "no memory for the grammar");
}

static enum status wrong(struct parser *p, const char *what) {
    return err_set(p->err, ST_BAD_INPUT, "grammar, line %u: %s", p->line, what);
}

static enum status add_item(struct parser *p, struct grammar_item item, uint32_t *out) {
    struct grammar_tree *t = p->tree;
    if (!mem_reserve(&t->items, &t->items_cap, t->n_items + 1, sizeof *t->items))
        return no_memory(p);
    t->items[t->n_items] = item;
    *out = (uint32_t)t->n_items++;
    return ST_OK;
}

static enum status add_range(struct parser *p, uint32_t low, uint32_t high) {
    struct grammar_tree *t = p->tree;
    if (!mem_reserve(&t->ranges, &t->ranges_cap, t->n_ranges + 1, sizeof *t->ranges))
        return no_memory(p);
    t->ranges[t->n_ranges++] = (struct grammar_range){low, high};
    return ST_OK;
}

static enum status list_add(struct parser *p, struct list *list, uint32_t item) {
    if (!mem_reserve(&list->v, &list->cap, list->n + 1, sizeof *list->v))
        return no_memory(p);
    list->v[list->n++] = item;
    return ST_OK;
}

/* A sequence or choice of the list's items; of one item, that item. Frees the list. */
static enum status finish_list(struct parser *p, enum item_kind kind, struct list *list,
                               enum status st, uint32_t *out) {
    struct grammar_tree *t = p->tree;
    uint32_t first = (uint32_t)t->n_children;
    for (size_t i = 0; i < list->n && list->n != 1 && st == ST_OK; i++) {
        if (!mem_reserve(&t->children, &t->children_cap, t->n_children + 1,
                         sizeof *t->children))
            st = no_memory(p);
        else
            t->children[t->n_children++] = list->v[i];
    }
    if (st == ST_OK && list->n == 1)
        *out = list->v[0];
    else if (st == ST_OK)
        st = add_item(p, (struct grammar_item){kind, first, (uint32_t)list->n, 0, 0}, out);
    mem_free(list->v);
    return st;
}

/* --- reading --- */

static bool at_end(const struct parser *p) {
    return p->at == p->end;
}

static bool take(struct parser *p, char c) {
    if (at_end(p) || *p->at != c)
        return false;
    p->at++;
    return true;
}

static void skip_space(struct parser *p, bool lines_too) {
    while (!at_end(p)) {
        if (*p->at == '#') {
            while (!at_end(p) && *p->at != '\n' && *p->at != '\r')
                p->at++;
        } else if (*p->at == ' ' || *p->at == '\t') {
            p->at++;
        } else if (lines_too && (*p->at == '\n' || *p->at == '\r')) {
            p->line += *p->at++ == '\n';
        } else {
            return;
        }
    }
}

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '_';
}

/* Where the rule's number is in the index, or belongs. */
static uint32_t *find_rule(struct parser *p, const char *name, uint32_t len) {
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    for (hash ^= hash >> 15;; hash++) {
        uint32_t *slot = &p->index[hash % INDEX_SIZE];
        if (*slot == 0)
            return slot;
        const struct grammar_rule *rule = &p->tree->rules[*slot - 1];
        if (rule->name_len == len && memcmp(rule->name, name, len) == 0)
            return slot;
    }
}

/* The number of the rule with the name at the parser's place, which may be defined later. */
static enum status parse_name(struct parser *p, uint32_t *out) {
    struct grammar_tree *t = p->tree;
    const char *name = p->at;
    while (!at_end(p) && is_name_char(*p->at))
        p->at++;
    uint32_t len = (uint32_t)(p->at - name);
    if (len == 0)
        return wrong(p, "a rule's name is expected");
    uint32_t *slot = find_rule(p, name, len);
    if (*slot == 0) {
        if (t->n_rules == GRAMMAR_MAX_RULES)
            return wrong(p, "too many rules");
        if (!mem_reserve(&t->rules, &t->rules_cap, t->n_rules + 1, sizeof *t->rules))
            return no_memory(p);
        t->rules[t->n_rules++] = (struct grammar_rule){name, len, UINT32_MAX, p->line};
        *slot = (uint32_t)t->n_rules;
    }
    *out = *slot - 1;
    return ST_OK;
}

static enum status parse_hex(struct parser *p, int n_digits, uint32_t *out) {
    uint32_t c = 0;
    for (int i = 0; i < n_digits; i++) {
        char d = at_end(p) ? '\0' : *p->at;
        if (d >= '0' && d <= '9')
            c = c << 4 | (uint32_t)(d - '0');
        else if ((d >= 'a' && d <= 'f') || (d >= 'A' && d <= 'F'))
            c = c << 4 | (uint32_t)((d | 0x20) - 'a' + 10);
        else
            return wrong(p, "an escape has too few hexadecimal digits");
        p->at++;
    }
    *out = c;
    return ST_OK;
}

static enum status parse_escape(struct parser *p, uint32_t *out) {
    if (at_end(p))
        return wrong(p, "the grammar ends in an escape");
    char c = *p->at++;
    switch (c) {
    case 'n':
        *out = '\n';
        return ST_OK;
    case 'r':
        *out = '\r';
        return ST_OK;
    case 't':
        *out = '\t';
        return ST_OK;
    case 'x':
        return parse_hex(p, 2, out);
    case 'u':
        return parse_hex(p, 4, out);
    case 'U':
        return parse_hex(p, 8, out);
    default:
        break;
    }
    if (strchr("\\\"[]^-.'", c) == NULL || c == '\0')
        return wrong(p, "unknown escape");
    *out = (uint8_t)c;
    return ST_OK;
}

/* One character of a literal or class that begins in line `begin`. The end of a line is a
 * character too, as in llama.cpp: programs whose own strings turn \n into it send it so. */
static enum status parse_char(struct parser *p, uint32_t begin, uint32_t *out) {
    if (at_end(p)) {
        p->line = begin;
        return wrong(p, "a literal or class does not end");
    }
    uint32_t c = 0;
    p->line += *p->at == '\n';
    if (take(p, '\\')) {
        TRY(parse_escape(p, &c));
    } else {
        int len = utf8_check((const uint8_t *)p->at, (size_t)(p->end - p->at));
        if (len <= 0)
            return wrong(p, "not valid UTF-8");
        c = utf8_decode((const uint8_t *)p->at, len);
        p->at += len;
    }
    if (c > CODE_POINT_MAX || (c >= 0xd800 && c <= 0xdfff))
        return wrong(p, "no such character");
    *out = c;
    return ST_OK;
}

static enum status add_byte(struct parser *p, uint8_t byte) {
    struct grammar_tree *t = p->tree;
    if (!mem_reserve(&t->bytes, &t->bytes_cap, t->n_bytes + 1, 1))
        return no_memory(p);
    t->bytes[t->n_bytes++] = byte;
    return ST_OK;
}

/* Of the bytes from `first` on. */
static enum status finish_literal(struct parser *p, uint32_t first, uint32_t *out) {
    uint32_t len = (uint32_t)p->tree->n_bytes - first;
    return add_item(p, (struct grammar_item){ITEM_LITERAL, first, len, 0, 0}, out);
}

static enum status parse_literal(struct parser *p, uint32_t *out) {
    uint32_t first = (uint32_t)p->tree->n_bytes, line = p->line;
    while (!take(p, '"')) {
        uint32_t c;
        uint8_t utf8[4];
        TRY(parse_char(p, line, &c));
        int len = utf8_encode(c, utf8);
        for (int i = 0; i < len; i++)
            TRY(add_byte(p, utf8[i]));
    }
    return finish_literal(p, first, out);
}

/* The byte that stands for a token. */
static enum status name_token(struct parser *p, int32_t id, uint8_t *byte) {
    struct grammar_tree *t = p->tree;
    size_t i = 0;
    while (i < t->n_tokens && t->tokens[i] != id)
        i++;
    if (i == GRAMMAR_MAX_TOKENS)
        return wrong(p, "it names too many tokens");
    t->tokens[i] = id;
    t->n_tokens = MAX(t->n_tokens, i + 1);
    *byte = (uint8_t)(GRAMMAR_TOKEN_BYTE + i);
    return ST_OK;
}

/* <NAME>: the token with this text, brackets and all; its characters if there is none. */
static enum status parse_token(struct parser *p, uint32_t *out) {
    const char *name = p->at - 1, *end = p->at;
    uint32_t first = (uint32_t)p->tree->n_bytes;
    uint8_t byte = 0;
    while (end < p->end && *end != '>' && *end != '\n')
        end++;
    if (end == p->end || *end != '>')
        return wrong(p, "the name of a token does not end");
    size_t len = (size_t)(++end - name);
    int32_t id = p->t != NULL ? tokenizer_find(p->t, name, len) : TOKEN_NONE;
    if (id != TOKEN_NONE && tokenizer_is_end(p->t, id))
        return wrong(p, "a token that ends the turn cannot be part of the text");
    if (id != TOKEN_NONE) {
        TRY(name_token(p, id, &byte));
        TRY(add_byte(p, byte));
    }
    for (p->at = id != TOKEN_NONE ? end : name; p->at < end;) {
        int n = utf8_check((const uint8_t *)p->at, (size_t)(end - p->at));
        if (n <= 0)
            return wrong(p, "not valid UTF-8");
        for (; n > 0; n--)
            TRY(add_byte(p, (uint8_t)*p->at++));
    }
    return finish_literal(p, first, out);
}

static int by_low(const void *a, const void *b) {
    const struct grammar_range *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

/* Sorts and joins the ranges from `first` on; the complement of them if negated. */
static enum status settle_ranges(struct parser *p, size_t first, bool negated) {
    struct grammar_tree *t = p->tree;
    size_t n = t->n_ranges - first;
    if (n > 1)
        qsort(t->ranges + first, n, sizeof *t->ranges, by_low);
    size_t joined = first;
    for (size_t i = first; i < first + n; i++) {
        struct grammar_range r = t->ranges[i];
        if (joined > first && r.low <= t->ranges[joined - 1].high + 1)
            t->ranges[joined - 1].high = MAX(t->ranges[joined - 1].high, r.high);
        else
            t->ranges[joined++] = r;
    }
    t->n_ranges = joined;
    if (!negated)
        return ST_OK;
    uint32_t low = 0;
    size_t end = joined;
    for (size_t i = first; i < end; i++) {
        struct grammar_range r = t->ranges[i];
        if (r.low > low)
            TRY(add_range(p, low, r.low - 1));
        low = r.high + 1;
    }
    if (low <= CODE_POINT_MAX)
        TRY(add_range(p, low, CODE_POINT_MAX));
    memmove(t->ranges + first, t->ranges + end, (t->n_ranges - end) * sizeof *t->ranges);
    t->n_ranges -= end - first;
    return ST_OK;
}

static enum status parse_class(struct parser *p, uint32_t *out) {
    struct grammar_tree *t = p->tree;
    size_t first = t->n_ranges;
    uint32_t line = p->line;
    bool negated = take(p, '^');
    while (!take(p, ']')) {
        uint32_t low, high;
        TRY(parse_char(p, line, &low));
        high = low;
        if (p->end - p->at >= 2 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            TRY(parse_char(p, line, &high));
            if (high < low)
                return wrong(p, "a range in a class runs backwards");
        }
        TRY(add_range(p, low, high));
    }
    TRY(settle_ranges(p, first, negated));
    return add_item(p,
                    (struct grammar_item){ITEM_CLASS, (uint32_t)first,
                                          (uint32_t)(t->n_ranges - first), 0, 0},
                    out);
}

static enum status parse_any(struct parser *p, uint32_t *out) {
    size_t first = p->tree->n_ranges;
    TRY(add_range(p, 0, CODE_POINT_MAX));
    return add_item(p, (struct grammar_item){ITEM_CLASS, (uint32_t)first, 1, 0, 0}, out);
}

/* --- repetition --- */

static enum status parse_count(struct parser *p, uint32_t *out) {
    uint32_t n = 0;
    const char *begin = p->at;
    while (!at_end(p) && *p->at >= '0' && *p->at <= '9' && n <= GRAMMAR_MAX_REPEAT)
        n = n * 10 + (uint32_t)(*p->at++ - '0');
    if (p->at == begin)
        return wrong(p, "a number is expected in { }");
    if (n > GRAMMAR_MAX_REPEAT)
        return wrong(p, "a repetition is too large");
    *out = n;
    return ST_OK;
}

/* After {: m} m,} m,n} ,n} */
static enum status parse_counts(struct parser *p, uint32_t *min, uint32_t *max) {
    *min = 0;
    skip_space(p, false);
    if (at_end(p) || *p->at != ',')
        TRY(parse_count(p, min));
    *max = *min;
    skip_space(p, false);
    if (take(p, ',')) {
        skip_space(p, false);
        *max = GRAMMAR_NO_LIMIT;
        if (at_end(p) || *p->at != '}')
            TRY(parse_count(p, max));
    }
    skip_space(p, false);
    if (!take(p, '}'))
        return wrong(p, "} is expected");
    if (*max < *min)
        return wrong(p, "a repetition ends before it begins");
    return ST_OK;
}

static enum status add_repeat(struct parser *p, uint32_t min, uint32_t max, uint32_t *item) {
    struct grammar_tree *t = p->tree;
    if (!mem_reserve(&t->children, &t->children_cap, t->n_children + 1, sizeof *t->children))
        return no_memory(p);
    t->children[t->n_children] = *item;
    return add_item(
        p, (struct grammar_item){ITEM_REPEAT, (uint32_t)t->n_children++, 1, min, max}, item);
}

/* Any number of * + ? {m,n} behind an item. Each is a level of nesting in the tree. */
static enum status parse_repeats(struct parser *p, uint32_t *item) {
    for (uint32_t n = 0;; n++) {
        uint32_t min = 0, max = GRAMMAR_NO_LIMIT;
        if (take(p, '+'))
            min = 1;
        else if (take(p, '?'))
            max = 1;
        else if (take(p, '{'))
            TRY(parse_counts(p, &min, &max));
        else if (!take(p, '*'))
            return ST_OK;
        if (n == GRAMMAR_MAX_NESTING)
            return wrong(p, "too many repetitions of one item");
        TRY(add_repeat(p, min, max, item));
        skip_space(p, p->nesting > 0);
    }
}

/* --- rules --- */

static enum status parse_choice(struct parser *p, uint32_t *out);

static enum status parse_group(struct parser *p, uint32_t *out) {
    if (p->nesting == GRAMMAR_MAX_NESTING)
        return wrong(p, "parentheses are nested too deeply");
    p->nesting++;
    skip_space(p, true);
    TRY(parse_choice(p, out));
    p->nesting--;
    if (!take(p, ')'))
        return wrong(p, ") is expected");
    return ST_OK;
}

/* *found is false if no item begins here. */
static enum status parse_item(struct parser *p, uint32_t *out, bool *found) {
    *found = true;
    if (take(p, '"'))
        return parse_literal(p, out);
    if (take(p, '<'))
        return parse_token(p, out);
    if (take(p, '['))
        return parse_class(p, out);
    if (take(p, '.'))
        return parse_any(p, out);
    if (take(p, '('))
        return parse_group(p, out);
    if (!at_end(p) && is_name_char(*p->at)) {
        uint32_t rule;
        TRY(parse_name(p, &rule));
        return add_item(p, (struct grammar_item){ITEM_RULE, rule, 0, 0, 0}, out);
    }
    *found = false;
    return ST_OK;
}

static enum status parse_sequence(struct parser *p, uint32_t *out) {
    struct list list = {0};
    enum status st = ST_OK;
    for (bool found = true; st == ST_OK;) {
        uint32_t item;
        st = parse_item(p, &item, &found);
        if (st != ST_OK || !found)
            break;
        skip_space(p, p->nesting > 0);
        st = parse_repeats(p, &item);
        if (st == ST_OK)
            st = list_add(p, &list, item);
    }
    return finish_list(p, ITEM_SEQUENCE, &list, st, out);
}

/* A | may also begin the line after a sequence. */
static bool take_bar(struct parser *p) {
    struct parser before = *p;
    skip_space(p, true);
    if (take(p, '|'))
        return true;
    *p = before;
    return false;
}

static enum status parse_choice(struct parser *p, uint32_t *out) {
    struct list list = {0};
    enum status st;
    do {
        uint32_t item;
        skip_space(p, list.n > 0 || p->nesting > 0);
        st = parse_sequence(p, &item);
        if (st == ST_OK)
            st = list_add(p, &list, item);
    } while (st == ST_OK && take_bar(p));
    return finish_list(p, ITEM_CHOICE, &list, st, out);
}

static enum status parse_rule(struct parser *p) {
    uint32_t rule, item;
    TRY(parse_name(p, &rule));
    skip_space(p, false);
    if (p->end - p->at < 3 || memcmp(p->at, "::=", 3) != 0)
        return wrong(p, "::= is expected after a rule's name");
    p->at += 3;
    if (p->tree->rules[rule].item != UINT32_MAX)
        return err_set(p->err, ST_BAD_INPUT, "grammar, line %u: rule %.*s is defined twice",
                       p->line, (int)MIN(p->tree->rules[rule].name_len, 64u),
                       p->tree->rules[rule].name);
    skip_space(p, true);
    TRY(parse_choice(p, &item));
    p->tree->rules[rule].item = item;
    if (!at_end(p) && *p->at != '\n' && *p->at != '\r')
        return wrong(p, "something that belongs to no rule");
    return ST_OK;
}

static enum status parse_rules(struct parser *p) {
    struct grammar_tree *t = p->tree;
    for (skip_space(p, true); !at_end(p); skip_space(p, true))
        TRY(parse_rule(p));
    for (size_t i = 0; i < t->n_rules; i++) {
        const struct grammar_rule *rule = &t->rules[i];
        if (rule->item == UINT32_MAX)
            return err_set(p->err, ST_BAD_INPUT, "grammar, line %u: rule %.*s is not defined",
                           rule->line, (int)MIN(rule->name_len, 64u), rule->name);
    }
    uint32_t root = *find_rule(p, "root", 4);
    if (root == 0)
        return err_set(p->err, ST_BAD_INPUT, "the grammar has no rule \"root\"");
    t->root = root - 1;
    return ST_OK;
}

enum status grammar_parse(struct grammar_tree *tree, const char *text, size_t len,
                          const struct tokenizer *t, struct err *err) {
    struct parser p = {
        .tree = tree, .t = t, .at = text, .end = text + len, .line = 1, .err = err};
    if (len > GRAMMAR_MAX_BYTES)
        return err_set(err, ST_BAD_INPUT, "a grammar of %zu bytes is too long (at most %d)",
                       len, GRAMMAR_MAX_BYTES);
    p.index = mem_calloc(INDEX_SIZE, sizeof *p.index);
    if (p.index == NULL)
        return no_memory(&p);
    enum status st = parse_rules(&p);
    mem_free(p.index);
    return st;
}

void grammar_tree_deinit(struct grammar_tree *tree) {
    mem_free(tree->items);
    mem_free(tree->ranges);
    mem_free(tree->rules);
    mem_free(tree->children);
    mem_free(tree->bytes);
    *tree = (struct grammar_tree){0};
}
