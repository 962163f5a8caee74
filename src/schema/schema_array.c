/* schema_array.c: arrays of a JSON Schema as GBNF: lists, tuples, distinct values of an enum,
 * and `contains`. */
#include "schema/schema_impl.h"

#include "base/util.h"
#include "grammar/grammar_impl.h"

#include <stdio.h>

#define MAX_UNIQUE 64   /* values of an enum in an array with uniqueItems */
#define ANY_ORDER 8     /* so many of them in any order; more in the enum's */
#define MAX_COUNTED 200 /* items, where some are counted by themselves */

struct items {
    const json_t *prefix; /* of a tuple, or NULL */
    const json_t *rest;   /* of all others, NULL: not said */
    uint32_t min, max;
};

static const char *comma(unsigned n) {
    return n > 0 ? "\",\" ws " : "";
}

/* --- uniqueItems --- */

/* A rule for each value. */
static enum status add_value_rules(struct schema_builder *b, const json_t *values,
                                   unsigned *first) {
    size_t i;
    const json_t *value;
    *first = b->n_rules;
    json_array_foreach(values, i, value) {
        unsigned rule;
        TRY(schema_new_rule(b, &rule));
        buf_printf(&b->out, "r%u ::= ", rule);
        TRY(schema_add_json(b, &b->out, value));
        buf_add_str(&b->out, "\n");
    }
    return ST_OK;
}

static const char *end_of(unsigned n, const struct items *items) {
    return n < items->min || n > items->max ? SCHEMA_NOTHING : n > 0 ? "ws" : "\"\"";
}

/* In any order: a rule for each set of those that have been written. */
static enum status add_any_order(struct schema_builder *b, struct buf *t, const json_t *values,
                                 const struct items *items) {
    unsigned n_values = (unsigned)json_array_size(values), value, rule;
    TRY(add_value_rules(b, values, &value));
    unsigned first = b->n_rules;
    for (unsigned set = 0; set < 1u << n_values; set++)
        TRY(schema_new_rule(b, &rule));
    for (unsigned set = 0; set < 1u << n_values; set++) {
        unsigned n = (unsigned)__builtin_popcount(set);
        buf_printf(&b->out, "r%u ::= %s", first + set, end_of(n, items));
        for (unsigned i = 0; i < n_values && n < items->max; i++)
            if ((set & 1u << i) == 0)
                buf_printf(&b->out, " | %sr%u r%u", comma(n), value + i,
                           first + (set | 1u << i));
        buf_add_str(&b->out, "\n");
    }
    buf_printf(t, "\"[\" ws r%u \"]\"", first);
    return ST_OK;
}

/* In the enum's order: rule (i, n) goes on from value i with n chosen. */
static enum status add_in_order(struct schema_builder *b, struct buf *t, const json_t *values,
                                const struct items *items) {
    unsigned n_values = (unsigned)json_array_size(values), value, rule;
    TRY(add_value_rules(b, values, &value));
    unsigned first = b->n_rules, width = n_values + 1;
    for (unsigned i = 0; i < width * width; i++)
        TRY(schema_new_rule(b, &rule));
    for (unsigned i = 0; i <= n_values; i++)
        for (unsigned n = 0; n <= n_values; n++) {
            buf_printf(&b->out, "r%u ::= ", first + i * width + n);
            if (n > i) /* never reached, but every rule needs a body */
                buf_add_str(&b->out, SCHEMA_NOTHING);
            else if (i == n_values)
                buf_add_str(&b->out, end_of(n, items));
            else
                buf_printf(&b->out, "r%u | %sr%u r%u", first + (i + 1) * width + n, comma(n),
                           value + i, first + (i + 1) * width + n + 1);
            buf_add_str(&b->out, "\n");
        }
    buf_printf(t, "\"[\" ws r%u \"]\"", first);
    return ST_OK;
}

/* All values of a type that has few: booleans, null, integers between two bounds. NULL: others. */
static enum status few_values(struct schema_builder *b, const json_t *items, json_t **out) {
    json_t *whole, *values = json_array();
    const char *type;
    *out = NULL;
    if (values == NULL || json_array_append_new(b->kept, values) != 0)
        return schema_no_memory(b);
    TRY(schema_new(b, &whole));
    TRY(schema_merge(b, whole, items != NULL ? items : json_true(), 0));
    type = json_string_value(json_object_get(whole, "type"));
    const json_t *min = json_object_get(whole, "minimum"),
                 *max = json_object_get(whole, "maximum");
    if (type != NULL && schema_count_restricting(whole) == 1 && str_eq(type, "boolean")) {
        json_array_append_new(values, json_true());
        json_array_append_new(values, json_false());
        *out = values;
    } else if (type != NULL && str_eq(type, "integer") &&
               schema_count_restricting(whole) == 3 && json_is_integer(min) &&
               json_is_integer(max) && json_integer_value(min) > -1000000 &&
               json_integer_value(max) < 1000000 &&
               json_integer_value(max) - json_integer_value(min) < MAX_UNIQUE) {
        for (json_int_t i = json_integer_value(min); i <= json_integer_value(max); i++)
            json_array_append_new(values, json_integer(i));
        *out = values;
    }
    return ST_OK;
}

/* The values that items may have, each once. */
static enum status unique_values(struct schema_builder *b, const json_t *items, json_t **out) {
    json_t *values = NULL, *value, *known;
    size_t i, k;
    TRY(schema_listed_values(b, items, &values));
    if (values == NULL)
        TRY(few_values(b, items, &values));
    if (values == NULL)
        return schema_unsupported(b, "uniqueItems is supported for enums, booleans and few "
                                     "integers only");
    json_t *unique = json_array();
    if (unique == NULL || json_array_append_new(b->kept, unique) != 0)
        return schema_no_memory(b);
    json_array_foreach(values, i, value) {
        bool seen = false;
        json_array_foreach(unique, k, known) seen = seen || schema_equal(known, value);
        if (seen)
            continue;
        if (json_array_size(unique) == MAX_UNIQUE)
            return schema_unsupported(b, "uniqueItems of so large an enum");
        if (json_array_append(unique, value) != 0)
            return schema_no_memory(b);
    }
    *out = unique;
    return ST_OK;
}

static enum status add_unique(struct schema_builder *b, struct buf *t,
                              const struct items *items) {
    json_t *values = NULL;
    if (items->prefix != NULL)
        return schema_unsupported(b, "uniqueItems beside prefixItems");
    TRY(unique_values(b, items->rest, &values));
    return json_array_size(values) <= ANY_ORDER ? add_any_order(b, t, values, items)
                                                : add_in_order(b, t, values, items);
}

/* --- contains --- */

struct contains {
    unsigned match, other; /* rules of an item that counts, and of one that does not matter */
    uint32_t least, most;
    uint32_t n_items, n_found; /* how far counting goes */
    unsigned first;
};

static unsigned contains_rule(const struct contains *c, uint32_t n, uint32_t found) {
    return c->first + MIN(n, c->n_items) * (c->n_found + 1) + MIN(found, c->n_found);
}

static void add_contains_rule(struct schema_builder *b, const struct contains *c,
                              const struct items *items, uint32_t n, uint32_t found) {
    bool room = items->max == SCHEMA_NO_LIMIT || n < items->max;
    bool may_end = n >= MIN(items->min, c->n_items) && found >= c->least;
    buf_printf(&b->out, "r%u ::= %s", contains_rule(c, n, found),
               !may_end ? SCHEMA_NOTHING
               : n > 0  ? "ws"
                        : "\"\"");
    if (room && (c->most == SCHEMA_NO_LIMIT || found < c->most))
        buf_printf(&b->out, " | %sr%u r%u", comma(n), c->match,
                   contains_rule(c, n + 1, found + 1));
    if (room && c->other != c->match)
        buf_printf(&b->out, " | %sr%u r%u", comma(n), c->other, contains_rule(c, n + 1, found));
    buf_add_str(&b->out, "\n");
}

static enum status visit_both(struct schema_builder *b, const json_t *x, const json_t *y,
                              bool negated, unsigned *rule) {
    json_t *whole;
    TRY(schema_new(b, &whole));
    json_t *second = negated ? json_pack("{s:O}", "not", y) : json_incref((json_t *)y);
    json_t *parts = json_pack("[O,o]", x != NULL ? x : json_true(), second);
    if (parts == NULL || json_object_set_new(whole, "allOf", parts) != 0)
        return schema_no_memory(b);
    return schema_visit(b, whole, rule);
}

static enum status add_contains(struct schema_builder *b, struct buf *t, const json_t *schema,
                                const struct items *items) {
    const json_t *wanted = json_object_get(schema, "contains");
    struct contains c = {.least = 1, .most = SCHEMA_NO_LIMIT};
    unsigned rule;
    TRY(schema_get_count(b, schema, "minContains", &c.least));
    TRY(schema_get_count(b, schema, "maxContains", &c.most));
    if (items->prefix != NULL)
        return schema_unsupported(b, "contains beside prefixItems");
    if (c.least > MAX_COUNTED || (c.most != SCHEMA_NO_LIMIT && c.most > MAX_COUNTED) ||
        items->min > MAX_COUNTED || (items->max != SCHEMA_NO_LIMIT && items->max > MAX_COUNTED))
        return schema_unsupported(b, "contains beside so many items");
    c.n_found = c.most != SCHEMA_NO_LIMIT ? c.most : c.least;
    c.n_items = items->max != SCHEMA_NO_LIMIT ? items->max : MAX(items->min, 1u);
    TRY(visit_both(b, items->rest, wanted, false, &c.match));
    if (c.most != SCHEMA_NO_LIMIT)
        TRY(visit_both(b, items->rest, wanted, true, &c.other));
    else
        TRY(schema_visit(b, items->rest != NULL ? items->rest : json_true(), &c.other));
    c.first = b->n_rules;
    for (uint32_t i = 0; i < (c.n_items + 1) * (c.n_found + 1); i++)
        TRY(schema_new_rule(b, &rule));
    for (uint32_t n = 0; n <= c.n_items; n++)
        for (uint32_t found = 0; found <= c.n_found; found++)
            add_contains_rule(b, &c, items, n, found);
    buf_printf(t, "\"[\" ws r%u \"]\"", c.first);
    return ST_OK;
}

/* --- lists and tuples --- */

/* `min` to `max` items of a rule behind what has been written: the first of all items has no
 * comma before it. Opens nothing, closes nothing. */
static void add_items(struct buf *t, const char *item, bool after_others, uint32_t min,
                      uint32_t max) {
    if (max == 0)
        return;
    char limit[16] = "";
    if (after_others) {
        if (max != SCHEMA_NO_LIMIT)
            snprintf(limit, sizeof limit, "%u", max);
        buf_printf(t, " (\",\" ws %s){%u,%s}", item, min, limit);
        return;
    }
    if (max != SCHEMA_NO_LIMIT)
        snprintf(limit, sizeof limit, "%u", max - 1);
    buf_printf(t, " (%s (\",\" ws %s){%u,%s} ws)%s", item, item, min > 0 ? min - 1 : 0, limit,
               min == 0 ? "?" : "");
}

/* The name of the rule of a list's items. */
static enum status name_item(struct schema_builder *b, const json_t *schema, char name[24]) {
    struct buf t = {0};
    enum status st = ST_OK;
    snprintf(name, 24, "value");
    if (schema != NULL && !json_is_true(schema)) {
        st = schema_add(b, &t, schema, "items", NULL);
        snprintf(name, 24, "%s", buf_cstr(&t));
    }
    buf_free(&t);
    return st;
}

/* What follows the n items of a tuple. */
static enum status add_behind_tuple(struct schema_builder *b, struct buf *t,
                                    const struct items *items, uint32_t n) {
    uint32_t more_min = items->min > n ? items->min - n : 0,
             more_max = items->max == SCHEMA_NO_LIMIT ? SCHEMA_NO_LIMIT : items->max - n;
    char item[24];
    if (json_is_false(items->rest))
        more_max = 0;
    else if (items->rest == NULL) /* anything may follow: no more than must */
        more_max = more_min;
    if (more_max < more_min)
        buf_add_str(t, " " SCHEMA_NOTHING);
    TRY(name_item(b, items->rest, item));
    add_items(t, item, n > 0, more_min, more_max);
    return ST_OK;
}

static enum status add_tuple(struct schema_builder *b, struct buf *t,
                             const struct items *items) {
    uint32_t n = (uint32_t)MIN(json_array_size(items->prefix), (size_t)items->max);
    buf_add_str(t, "\"[\" ws");
    for (uint32_t i = 0; i < n; i++) {
        char at[16];
        snprintf(at, sizeof at, "%u", i);
        buf_add_str(t, i > 0 ? " \",\" ws " : " ");
        TRY(schema_add(b, t, json_array_get(items->prefix, i), "prefixItems", at));
    }
    TRY(add_behind_tuple(b, t, items, n));
    buf_add_str(t, n > 0 ? " ws \"]\"" : " \"]\"");
    return ST_OK;
}

static enum status read_items(struct schema_builder *b, const json_t *schema,
                              struct items *items) {
    const json_t *rest = json_object_get(schema, "items");
    const json_t *prefix = json_object_get(schema, "prefixItems");
    *items = (struct items){.prefix = prefix, .rest = rest, .max = SCHEMA_NO_LIMIT};
    if (json_is_array(rest)) { /* before draft 2020-12 */
        items->prefix = rest;
        items->rest = json_object_get(schema, "additionalItems");
    }
    if (items->prefix != NULL && !json_is_array(items->prefix))
        return schema_wrong(b, "prefixItems must be an array");
    TRY(schema_get_count(b, schema, "minItems", &items->min));
    TRY(schema_get_count(b, schema, "maxItems", &items->max));
    if (items->min > GRAMMAR_MAX_REPEAT)
        return schema_unsupported(b, "minItems is too large");
    if (items->max != SCHEMA_NO_LIMIT)
        items->max = MIN(items->max, (uint32_t)GRAMMAR_MAX_REPEAT);
    return ST_OK;
}

enum status schema_add_array(struct schema_builder *b, struct buf *t, const json_t *schema) {
    struct items items;
    char item[24];
    TRY(read_items(b, schema, &items));
    if (items.max < items.min) {
        buf_add_str(t, SCHEMA_NOTHING);
        return ST_OK;
    }
    bool unique = json_is_true(json_object_get(schema, "uniqueItems")) && items.max > 1;
    if (unique && json_object_get(schema, "contains") != NULL)
        return schema_unsupported(b, "uniqueItems beside contains");
    if (unique)
        return add_unique(b, t, &items);
    if (json_object_get(schema, "contains") != NULL)
        return add_contains(b, t, schema, &items);
    if (items.prefix != NULL)
        return add_tuple(b, t, &items);
    TRY(name_item(b, items.rest, item));
    buf_add_str(t, "\"[\" ws");
    add_items(t, item, false, items.min, items.max);
    buf_add_str(t, " \"]\"");
    return ST_OK;
}
