/* schema_values.c: enums, numbers, strings and arrays of a JSON Schema as GBNF. */
#include "tokenizer/schema_impl.h"

#include "base/util.h"
#include "tokenizer/gbnf.h"
#include "tokenizer/grammar_impl.h"
#include "tokenizer/schema_format.h"
#include "tokenizer/schema_number.h"
#include "tokenizer/schema_pattern.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_EXACT 1e15      /* of multiples, which are counted in doubles */
#define MAX_ENUMERATED 2000 /* integers that are written out one by one */
#define MAX_MULTIPLE 100    /* of multipleOf without bounds: 15 times as many rules */
#define MAX_UNIQUE 64       /* values of an enum in an array with uniqueItems */
#define MAX_STRING GRAMMAR_MAX_REPEAT

/* --- values written out --- */

/* With as many digits as numbers need: 0.1, not 0.10000000000000001. */
static char *written(const json_t *value) {
    char *s = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    json_t *read = s != NULL ? json_loads(s, JSON_DECODE_ANY, NULL) : NULL;
    if (!json_equal((json_t *)(uintptr_t)value, read)) {
        free(s);
        s = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    }
    json_decref(read);
    return s;
}

enum status schema_add_json(struct schema_builder *b, struct buf *t, const json_t *value) {
    char *s = written(value);
    if (s == NULL)
        return schema_no_memory(b);
    gbnf_literal(t, s, strlen(s));
    free(s);
    return ST_OK;
}

static bool is_whole(const json_t *v) {
    return json_is_integer(v) ||
           (json_is_real(v) && json_real_value(v) == floor(json_real_value(v)));
}

static bool has_type(const json_t *value, const char *type) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return str_eq(type, "object");
    case JSON_ARRAY:
        return str_eq(type, "array");
    case JSON_STRING:
        return str_eq(type, "string");
    case JSON_INTEGER:
    case JSON_REAL:
        return str_eq(type, "number") || (str_eq(type, "integer") && is_whole(value));
    case JSON_TRUE:
    case JSON_FALSE:
        return str_eq(type, "boolean");
    case JSON_NULL:
        return str_eq(type, "null");
    }
    return false;
}

static bool type_allows(const json_t *types, const json_t *value) {
    if (types == NULL)
        return true;
    if (json_is_string(types))
        return has_type(value, json_string_value(types));
    size_t i;
    const json_t *type;
    json_array_foreach(types, i,
                       type) if (json_is_string(type) &&
                                 has_type(value, json_string_value(type))) return true;
    return false;
}

static enum status get_bounds(struct schema_builder *b, const json_t *schema,
                              struct schema_bounds *bounds) {
    static const char *const keys[] = {"minimum", "exclusiveMinimum", "maximum",
                                       "exclusiveMaximum"};
    *bounds = (struct schema_bounds){{NULL, false}, {NULL, false}};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const json_t *v = json_object_get(schema, keys[i]);
        struct schema_bound *bound = i < 2 ? &bounds->min : &bounds->max;
        if (v == NULL)
            continue;
        if (json_is_boolean(v) && i % 2 == 1) { /* draft 4: says how minimum is meant */
            bound->strict |= json_is_true(v);
            continue;
        }
        if (!json_is_number(v))
            return err_set(b->err, ST_BAD_INPUT, "schema: %s must be a number", keys[i]);
        int order = bound->value != NULL ? schema_compare(v, bound->value) : 0;
        if (bound->value == NULL || (i < 2 ? order >= 0 : order <= 0))
            *bound = (struct schema_bound){v, i % 2 == 1};
    }
    return ST_OK;
}

/* --- enum, const --- */

/* Is a text as long, and a number as large, as the schema wants? */
static enum status is_within(struct schema_builder *b, const json_t *schema,
                             const json_t *value, bool *within) {
    uint32_t min = 0, max = SCHEMA_NO_LIMIT;
    struct schema_bounds bounds;
    TRY(schema_get_count(b, schema, "minLength", &min));
    TRY(schema_get_count(b, schema, "maxLength", &max));
    TRY(get_bounds(b, schema, &bounds));
    *within = true;
    if (json_is_string(value)) {
        size_t n = 0;
        for (const char *s = json_string_value(value); *s != '\0'; s++)
            n += ((uint8_t)*s & 0xc0) != 0x80;
        *within = n >= min && (max == SCHEMA_NO_LIMIT || n <= max);
    } else if (json_is_number(value)) {
        const struct schema_bound *low = &bounds.min, *high = &bounds.max;
        *within =
            (low->value == NULL || schema_compare(value, low->value) >= (int)low->strict) &&
            (high->value == NULL || schema_compare(high->value, value) >= (int)high->strict);
    }
    return ST_OK;
}

/* Of an enum's or a constant's values those that the rest of the schema allows too. A format is
 * an annotation beside them: Google's schemas say "enum" there, OpenAPI's "int32". What else
 * there is is not looked at: refused. */
static enum status allowed_values(struct schema_builder *b, const json_t *schema,
                                  json_t **out) {
    const json_t *values = json_object_get(schema, "enum"), *value;
    const json_t *constant = json_object_get(schema, "const");
    static const char *const beside[] = {"type",
                                         "nullable",
                                         "enum",
                                         "const",
                                         "format",
                                         "minLength",
                                         "maxLength",
                                         "minimum",
                                         "maximum",
                                         "exclusiveMinimum",
                                         "exclusiveMaximum"};
    size_t n_beside = 0, i;
    for (i = 0; i < ARRAY_LEN(beside); i++)
        n_beside += json_object_get(schema, beside[i]) != NULL;
    if (schema_count_restricting(schema) > n_beside)
        return schema_unsupported(b, "enum and const together with such other keywords");
    if (values != NULL && !json_is_array(values))
        return schema_wrong(b, "enum must be an array");
    json_t *allowed = json_array(), *one = NULL;
    if (allowed == NULL || json_array_append_new(b->kept, allowed) != 0)
        return schema_no_memory(b);
    if (values == NULL) {
        one = json_pack("[O]", constant);
        if (one == NULL || json_array_append_new(b->kept, one) != 0)
            return schema_no_memory(b);
        values = one;
    }
    json_array_foreach(values, i, value) {
        bool within;
        TRY(is_within(b, schema, value, &within));
        if (within && type_allows(json_object_get(schema, "type"), value) &&
            (constant == NULL || json_equal(constant, value)) &&
            json_array_append(allowed, (json_t *)value) != 0)
            return schema_no_memory(b);
    }
    *out = allowed;
    return ST_OK;
}

enum status schema_listed_values(struct schema_builder *b, const json_t *schema, json_t **out) {
    json_t *whole = NULL;
    unsigned rule;
    *out = NULL;
    if (!json_is_object(schema))
        return ST_OK;
    TRY(schema_new(b, &whole));
    TRY(schema_merge(b, whole, schema, 0));
    if (json_object_get(whole, "enum") == NULL && json_object_get(whole, "const") == NULL)
        return ST_OK;
    TRY(schema_visit(b, whole, &rule)); /* refuses what is beside them and not understood */
    return allowed_values(b, whole, out);
}

enum status schema_add_values(struct schema_builder *b, struct buf *t, const json_t *schema) {
    json_t *values, *value;
    size_t i;
    TRY(allowed_values(b, schema, &values));
    buf_add_str(t, SCHEMA_NOTHING);
    json_array_foreach(values, i, value) {
        buf_add_str(t, " | ");
        TRY(schema_add_json(b, t, value));
    }
    return ST_OK;
}

/* --- numbers --- */

#define BEYOND "minimum and maximum are supported up to 20 digits"

/* Decimal numbers that m divides: one rule for each remainder of the digits so far and each
 * number of digits that may still come. */
static enum status add_multiples(struct schema_builder *b, struct buf *t, unsigned m) {
    enum { MORE_DIGITS = 14 };
    unsigned first = b->n_rules, rule;
    for (unsigned i = 0; i < m * (MORE_DIGITS + 1); i++)
        TRY(schema_new_rule(b, &rule));
    for (unsigned left = 0; left <= MORE_DIGITS; left++)
        for (unsigned i = 0; i < m; i++) {
            buf_printf(&b->out, "r%u ::= %s", first + left * m + i,
                       i == 0 ? "\"\"" : SCHEMA_NOTHING);
            for (unsigned d = 0; d < 10 && left > 0; d++)
                buf_printf(&b->out, " | \"%u\" r%u", d,
                           first + (left - 1) * m + (10 * i + d) % m);
            buf_add_str(&b->out, "\n");
        }
    buf_add_str(t, "\"0\" | \"-\"? (" SCHEMA_NOTHING);
    for (unsigned d = 1; d < 10; d++)
        buf_printf(t, " | \"%u\" r%u", d, first + MORE_DIGITS * m + d % m);
    buf_add_str(t, ")");
    return ST_OK;
}

/* Multiples that are written out one by one. */
static enum status add_each_multiple(struct schema_builder *b, struct buf *t,
                                     struct schema_bounds bounds, int64_t step) {
    double low = json_number_value(bounds.min.value),
           high = json_number_value(bounds.max.value);
    if (low < -MAX_EXACT || high > MAX_EXACT || high - low > MAX_ENUMERATED * (double)step)
        return schema_unsupported(b, "multipleOf together with such bounds is not supported");
    buf_add_str(t, SCHEMA_NOTHING);
    for (int64_t k = (int64_t)low / step - 1; k <= (int64_t)high / step + 1; k++) {
        double x = (double)(k * step);
        if ((bounds.min.strict ? x > low : x >= low) &&
            (bounds.max.strict ? x < high : x <= high))
            buf_printf(t, " | \"%lld\"", (long long)(k * step));
    }
    return ST_OK;
}

enum status schema_add_integer(struct schema_builder *b, struct buf *t, const json_t *schema) {
    struct schema_bounds bounds;
    TRY(get_bounds(b, schema, &bounds));
    const json_t *multiple = json_object_get(schema, "multipleOf");
    double step = multiple == NULL ? 1 : json_number_value(multiple);
    if (multiple != NULL && !(step > 0))
        return schema_wrong(b, "multipleOf must be a number above 0");
    bool low = bounds.min.value != NULL, high = bounds.max.value != NULL;
    if (multiple == NULL && !low && !high) {
        buf_add_str(t, "integer");
        return ST_OK;
    }
    if (!schema_bounds_usable(bounds))
        return schema_unsupported(b, BEYOND);
    if (step == 1) {
        schema_integers(t, bounds);
        return ST_OK;
    }
    if (step != floor(step) || step > MAX_EXACT)
        return schema_unsupported(b, "multipleOf is supported for whole numbers only");
    if (low && high)
        return add_each_multiple(b, t, bounds, (int64_t)step);
    if (low || high || step > MAX_MULTIPLE)
        return schema_unsupported(b, "multipleOf together with such bounds is not supported");
    return add_multiples(b, t, (unsigned)step);
}

enum status schema_add_number(struct schema_builder *b, struct buf *t, const json_t *schema) {
    struct schema_bounds bounds;
    TRY(get_bounds(b, schema, &bounds));
    if (json_object_get(schema, "multipleOf") != NULL)
        return schema_add_integer(b, t, schema);
    if (bounds.min.value == NULL && bounds.max.value == NULL)
        buf_add_str(t, "number");
    else if (!schema_bounds_usable(bounds))
        return schema_unsupported(b, BEYOND);
    else
        schema_reals(t, bounds);
    return ST_OK;
}

/* --- strings --- */

enum status schema_add_string(struct schema_builder *b, struct buf *t, const json_t *schema) {
    uint32_t min = 0, max = SCHEMA_NO_LIMIT;
    TRY(schema_get_count(b, schema, "minLength", &min));
    TRY(schema_get_count(b, schema, "maxLength", &max));
    const json_t *pattern = json_object_get(schema, "pattern");
    const char *format = json_string_value(json_object_get(schema, "format"));
    const char *regex = json_string_value(pattern);
    if (pattern != NULL && regex == NULL)
        return schema_wrong(b, "pattern must be a string");
    const char *of_format = format != NULL ? schema_format(format) : NULL;
    if (regex == NULL)
        regex = of_format;
    if (min > MAX_STRING)
        return schema_unsupported(b, "minLength is too large");
    if (max != SCHEMA_NO_LIMIT || min > 0)
        max = max == SCHEMA_NO_LIMIT ? SCHEMA_NO_LIMIT : MIN(max, (uint32_t)MAX_STRING);
    buf_add_str(t, "\"\\\"\" ");
    if (regex != NULL) {
        enum status st = schema_pattern(t, regex, strlen(regex), min, max, b->err);
        /* Libraries write both for one thing, the pattern with what grammars cannot say. */
        if (st == ST_UNSUPPORTED && of_format != NULL)
            st = schema_pattern(t, of_format, strlen(of_format), min, max, b->err);
        if (st != ST_OK)
            return st;
    } else if (max == SCHEMA_NO_LIMIT) {
        buf_printf(t, "char{%u,}", min);
    } else if (max < min) {
        buf_add_str(t, SCHEMA_NOTHING);
    } else {
        buf_printf(t, "char{%u,%u}", min, max);
    }
    buf_add_str(t, " \"\\\"\"");
    return ST_OK;
}

/* --- arrays --- */

/* Subsets of an enum in its order: rule (i, n) goes on from value i with n chosen. */
static enum status add_unique(struct schema_builder *b, struct buf *t, const json_t *values,
                              uint32_t min, uint32_t max) {
    unsigned n_values = (unsigned)json_array_size(values), value = b->n_rules, rule = 0;
    for (unsigned i = 0; i < n_values; i++) {
        TRY(schema_new_rule(b, &rule));
        buf_printf(&b->out, "r%u ::= ", rule);
        TRY(schema_add_json(b, &b->out, json_array_get(values, i)));
        buf_add_str(&b->out, "\n");
    }
    unsigned first = b->n_rules, width = n_values + 1;
    for (unsigned i = 0; i < width * width; i++)
        TRY(schema_new_rule(b, &rule));
    for (unsigned i = 0; i <= n_values; i++)
        for (unsigned n = 0; n <= i; n++) {
            buf_printf(&b->out, "r%u ::= ", first + i * width + n);
            if (i == n_values) {
                buf_add_str(&b->out, n < min || n > max ? SCHEMA_NOTHING
                                     : n > 0            ? "ws"
                                                        : "\"\"");
            } else {
                buf_printf(&b->out, "r%u | %sr%u r%u", first + (i + 1) * width + n,
                           n > 0 ? "\",\" ws " : "", value + i,
                           first + (i + 1) * width + n + 1);
            }
            buf_add_str(&b->out, "\n");
        }
    for (unsigned i = 0; i <= n_values; i++) /* never reached, but every rule needs a body */
        for (unsigned n = i + 1; n <= n_values; n++)
            buf_printf(&b->out, "r%u ::= " SCHEMA_NOTHING "\n", first + i * width + n);
    buf_printf(t, "\"[\" ws r%u \"]\"", first);
    return ST_OK;
}

/* The values that items may have, each once; they must be an enum's or a constant. */
static enum status unique_values(struct schema_builder *b, const json_t *items, json_t **out) {
    json_t *values = NULL, *value, *known;
    size_t i, k;
    TRY(schema_listed_values(b, items, &values));
    if (values == NULL)
        return schema_unsupported(b, "uniqueItems is supported for enums only");
    json_t *unique = json_array();
    if (unique == NULL || json_array_append_new(b->kept, unique) != 0)
        return schema_no_memory(b);
    json_array_foreach(values, i, value) {
        bool seen = false;
        json_array_foreach(unique, k, known) seen = seen || json_equal(known, value);
        if (seen)
            continue;
        if (json_array_size(unique) == MAX_UNIQUE)
            return schema_unsupported(b, "uniqueItems of so large an enum is not supported");
        if (json_array_append(unique, value) != 0)
            return schema_no_memory(b);
    }
    *out = unique;
    return ST_OK;
}

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

static enum status add_tuple(struct schema_builder *b, struct buf *t, const json_t *prefix,
                             const json_t *rest, uint32_t min, uint32_t max) {
    uint32_t n = (uint32_t)MIN(json_array_size(prefix), (size_t)max);
    uint32_t more_min = min > n ? min - n : 0,
             more_max = max == SCHEMA_NO_LIMIT ? SCHEMA_NO_LIMIT : max - n;
    char item[24] = "value";
    buf_add_str(t, "\"[\" ws");
    for (uint32_t i = 0; i < n; i++) {
        buf_add_str(t, i > 0 ? " \",\" ws " : " ");
        TRY(schema_add(b, t, json_array_get(prefix, i)));
    }
    if (json_is_false(rest))
        more_max = 0;
    else if (rest == NULL) /* anything may follow: no more than must */
        more_max = more_min;
    if (more_max < more_min)
        buf_add_str(t, " " SCHEMA_NOTHING);
    if (json_is_object(rest)) {
        unsigned rule = 0;
        TRY(schema_visit(b, rest, &rule));
        snprintf(item, sizeof item, "r%u", rule);
    }
    add_items(t, item, n > 0, more_min, more_max);
    buf_add_str(t, n > 0 ? " ws \"]\"" : " \"]\"");
    return ST_OK;
}

enum status schema_add_array(struct schema_builder *b, struct buf *t, const json_t *schema) {
    uint32_t min = 0, max = SCHEMA_NO_LIMIT;
    TRY(schema_get_count(b, schema, "minItems", &min));
    TRY(schema_get_count(b, schema, "maxItems", &max));
    const json_t *items = json_object_get(schema, "items");
    const json_t *prefix = json_object_get(schema, "prefixItems");
    if (min > GRAMMAR_MAX_REPEAT)
        return schema_unsupported(b, "minItems is too large");
    if (max != SCHEMA_NO_LIMIT)
        max = MIN(max, (uint32_t)GRAMMAR_MAX_REPEAT);
    if (max < min) {
        buf_add_str(t, SCHEMA_NOTHING);
        return ST_OK;
    }
    if (json_is_true(json_object_get(schema, "uniqueItems")) && max > 1) {
        json_t *values = NULL;
        if (prefix != NULL)
            return schema_unsupported(b, "uniqueItems is supported for enums only");
        TRY(unique_values(b, items, &values));
        return add_unique(b, t, values, min, max);
    }
    if (json_is_array(items)) /* before draft 2020-12 */
        return add_tuple(b, t, items, json_object_get(schema, "additionalItems"), min, max);
    if (prefix != NULL) {
        if (!json_is_array(prefix))
            return schema_wrong(b, "prefixItems must be an array");
        return add_tuple(b, t, prefix, items, min, max);
    }
    char item[24] = "value";
    if (items != NULL) {
        unsigned rule = 0;
        TRY(schema_visit(b, items, &rule));
        snprintf(item, sizeof item, "r%u", rule);
    }
    buf_add_str(t, "\"[\" ws");
    add_items(t, item, false, min, max);
    buf_add_str(t, " \"]\"");
    return ST_OK;
}
