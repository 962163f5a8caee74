/* schema_values.c: enums, constants and numbers of a JSON Schema as GBNF. */
#include "schema/schema_impl.h"

#include "base/mem.h"
#include "base/util.h"
#include "grammar/gbnf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_EXACT 1e15      /* of multiples, which are counted in doubles */
#define MAX_ENUMERATED 2000 /* integers that are written out one by one */
#define FEW_CHOICES 64      /* values that are written one after the other */

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

bool schema_equal(const json_t *a, const json_t *b) {
    const char *key;
    json_t *v;
    size_t i;
    if (json_is_number(a) && json_is_number(b))
        return schema_compare(a, b) == 0;
    if (json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b)) {
        json_array_foreach(a, i, v) if (!schema_equal(v, json_array_get(b, i))) return false;
        return true;
    }
    if (json_is_object(a) && json_is_object(b) && json_object_size(a) == json_object_size(b)) {
        json_object_foreach((json_t *)a, key, v) {
            const json_t *w = json_object_get(b, key);
            if (w == NULL || !schema_equal(v, w))
                return false;
        }
        return true;
    }
    return json_equal(a, b);
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

bool schema_type_allows(const json_t *types, const json_t *value) {
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

static enum status is_allowed(struct schema_builder *b, const json_t *schema,
                              const json_t *value, unsigned depth, bool *allowed);

static bool is_among(const json_t *values, const json_t *value) {
    size_t i;
    const json_t *v;
    json_array_foreach(values, i, v) if (schema_equal(v, value)) return true;
    return false;
}

static enum status string_is_allowed(struct schema_builder *b, const json_t *schema,
                                     const json_t *value, bool *allowed) {
    uint32_t term = 0, min = 0, max = SCHEMA_NO_LIMIT, n = 0;
    const char *s = json_string_value(value);
    for (const char *c = s; *c != '\0'; c++)
        n += ((uint8_t)*c & 0xc0) != 0x80;
    TRY(schema_string_term(b, schema, &term, &min, &max));
    *allowed = n >= min && (max == SCHEMA_NO_LIMIT || n <= max) &&
               (term == b->regular.all || regular_matches(&b->regular, term, s, strlen(s)));
    return schema_regular_status(b);
}

static bool is_multiple(const json_t *value, const json_t *step) {
    double quotient = json_number_value(value) / json_number_value(step);
    return quotient == floor(quotient);
}

static enum status number_is_allowed(struct schema_builder *b, const json_t *schema,
                                     const json_t *value, bool *allowed) {
    const json_t *multiple = json_object_get(schema, "multipleOf"), *step;
    struct schema_bounds bounds;
    size_t i;
    TRY(get_bounds(b, schema, &bounds));
    const struct schema_bound *low = &bounds.min, *high = &bounds.max;
    *allowed =
        (low->value == NULL || schema_compare(value, low->value) >= (int)low->strict) &&
        (high->value == NULL || schema_compare(high->value, value) >= (int)high->strict) &&
        (multiple == NULL || is_multiple(value, multiple));
    json_array_foreach(json_object_get(schema, SCHEMA_ALSO_MULTIPLE), i, step) *allowed =
        *allowed && is_multiple(value, step);
    json_array_foreach(json_object_get(schema, SCHEMA_NOT_MULTIPLE), i, step) *allowed =
        *allowed && !is_multiple(value, step);
    return ST_OK;
}

static enum status array_is_allowed(struct schema_builder *b, const json_t *schema,
                                    const json_t *value, unsigned depth, bool *allowed) {
    const json_t *prefix = json_object_get(schema, "prefixItems"), *v;
    const json_t *items = json_object_get(schema, "items");
    uint32_t min = 0, max = SCHEMA_NO_LIMIT;
    size_t i;
    TRY(schema_get_count(b, schema, "minItems", &min));
    TRY(schema_get_count(b, schema, "maxItems", &max));
    if (json_object_get(schema, "contains") != NULL ||
        json_is_true(json_object_get(schema, "uniqueItems")))
        return schema_unsupported(b, "enum or const of arrays beside contains or uniqueItems");
    *allowed = json_array_size(value) >= min && json_array_size(value) <= max;
    json_array_foreach(value, i, v) {
        const json_t *of = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (*allowed && of != NULL)
            TRY(is_allowed(b, of, v, depth + 1, allowed));
    }
    return ST_OK;
}

static enum status object_is_allowed(struct schema_builder *b, const json_t *schema,
                                     const json_t *value, unsigned depth, bool *allowed) {
    const json_t *required = json_object_get(schema, "required");
    const json_t *others = json_object_get(schema, "additionalProperties");
    uint32_t min = 0, max = SCHEMA_NO_LIMIT;
    const char *name;
    json_t *v;
    size_t i;
    TRY(schema_get_count(b, schema, "minProperties", &min));
    TRY(schema_get_count(b, schema, "maxProperties", &max));
    if (json_object_get(schema, "patternProperties") != NULL ||
        json_object_get(schema, "propertyNames") != NULL)
        return schema_unsupported(
            b, "enum or const of objects beside patternProperties or propertyNames");
    *allowed = json_object_size(value) >= min && json_object_size(value) <= max;
    json_array_foreach(required, i, v) *allowed =
        *allowed && json_is_string(v) && json_object_get(value, json_string_value(v)) != NULL;
    json_object_foreach((json_t *)value, name, v) {
        const json_t *of = json_object_get(json_object_get(schema, "properties"), name);
        of = of != NULL ? of : others;
        if (*allowed && of != NULL)
            TRY(is_allowed(b, of, v, depth + 1, allowed));
    }
    return ST_OK;
}

/* Of a merged schema, but for its enum and constant. */
static enum status is_allowed_beside(struct schema_builder *b, const json_t *schema,
                                     const json_t *value, unsigned depth, bool *allowed) {
    const json_t *any = json_object_get(schema, "anyOf"), *part;
    size_t i;
    *allowed = schema_type_allows(json_object_get(schema, "type"), value) &&
               !is_among(json_object_get(schema, SCHEMA_NOT_VALUES), value);
    if (*allowed && json_is_string(value))
        TRY(string_is_allowed(b, schema, value, allowed));
    else if (*allowed && json_is_number(value))
        TRY(number_is_allowed(b, schema, value, allowed));
    else if (*allowed && json_is_array(value))
        TRY(array_is_allowed(b, schema, value, depth, allowed));
    else if (*allowed && json_is_object(value))
        TRY(object_is_allowed(b, schema, value, depth, allowed));
    bool one = any == NULL;
    json_array_foreach(any, i, part) if (*allowed && !one)
        TRY(is_allowed(b, part, value, depth + 1, &one));
    *allowed = *allowed && one;
    return ST_OK;
}

/* Is the value valid? What is not known is refused. */
static enum status is_allowed(struct schema_builder *b, const json_t *schema,
                              const json_t *value, unsigned depth, bool *allowed) {
    json_t *whole = NULL;
    if (depth > SCHEMA_MAX_DEPTH)
        return schema_unsupported(b, "it is nested too deeply");
    TRY(schema_new(b, &whole));
    TRY(schema_merge(b, whole, schema, 1));
    const json_t *values = json_object_get(whole, "enum");
    const json_t *constant = json_object_get(whole, "const");
    *allowed = false;
    if ((values != NULL && !is_among(values, value)) ||
        (constant != NULL && !schema_equal(constant, value)))
        return ST_OK;
    json_object_del(whole, "enum");
    json_object_del(whole, "const");
    return is_allowed_beside(b, whole, value, depth, allowed);
}

/* The values of an enum or a constant that the rest of the schema allows too. A format is an
 * annotation beside them: Google's schemas say "enum" there, OpenAPI's "int32". */
static enum status allowed_values(struct schema_builder *b, const json_t *schema,
                                  json_t **out) {
    const json_t *values = json_object_get(schema, "enum");
    const json_t *constant = json_object_get(schema, "const"), *value;
    json_t *allowed, *one = NULL, *rest;
    size_t i;
    if (values != NULL && !json_is_array(values))
        return schema_wrong(b, "enum must be an array");
    allowed = json_array();
    if (allowed == NULL || json_array_append_new(b->kept, allowed) != 0)
        return schema_no_memory(b);
    if (values == NULL) {
        one = json_pack("[O]", constant);
        if (one == NULL || json_array_append_new(b->kept, one) != 0)
            return schema_no_memory(b);
        values = one;
    }
    TRY(schema_new(b, &rest));
    if (json_object_update(rest, (json_t *)schema) != 0)
        return schema_no_memory(b);
    json_object_del(rest, "enum");
    json_object_del(rest, "const");
    json_object_del(rest, "format");
    json_object_del(rest, SCHEMA_ALSO_FORMAT);
    json_array_foreach(values, i, value) {
        bool within = false;
        if (constant == NULL || schema_equal(constant, value))
            TRY(is_allowed_beside(b, rest, value, 0, &within));
        if (within && json_array_append(allowed, (json_t *)value) != 0)
            return schema_no_memory(b);
    }
    *out = allowed;
    return ST_OK;
}

enum status schema_listed_values(struct schema_builder *b, const json_t *schema, json_t **out) {
    json_t *whole = NULL;
    *out = NULL;
    if (!json_is_object(schema))
        return ST_OK;
    TRY(schema_new(b, &whole));
    TRY(schema_merge(b, whole, schema, 0));
    if (json_object_get(whole, "enum") == NULL && json_object_get(whole, "const") == NULL)
        return ST_OK;
    return allowed_values(b, whole, out);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* One of many texts, which agree in `at` bytes. Their common beginning is written once, so each
 * beginning has one reading. */
static enum status add_choice(struct schema_builder *b, struct buf *t, char *const *texts,
                              size_t n, size_t at) {
    size_t same = at;
    while (texts[0][same] != '\0' && texts[0][same] == texts[n - 1][same])
        same++;
    while (same > at && ((uint8_t)texts[0][same] & 0xc0) == 0x80) /* whole characters */
        same--;
    gbnf_literal(t, texts[0] + at, same - at);
    if (n == 1)
        return ST_OK;
    buf_add_str(t, " (" SCHEMA_NOTHING);
    for (size_t i = 0, end; i < n; i = end) {
        unsigned rule;
        struct buf body = {0};
        size_t len = 1;
        while (((uint8_t)texts[i][same + len] & 0xc0) == 0x80)
            len++;
        for (end = i + 1; end < n && strncmp(texts[end] + same, texts[i] + same, len) == 0;)
            end++;
        buf_add_str(t, " | ");
        if (texts[i][same] == '\0' || end == i + 1) {
            gbnf_literal(t, texts[i] + same, strlen(texts[i] + same));
            end = texts[i][same] == '\0' ? i + 1 : end;
            continue;
        }
        TRY(schema_new_rule(b, &rule));
        enum status st = add_choice(b, &body, texts + i, end - i, same);
        schema_put_rule(b, rule, &body);
        buf_free(&body);
        TRY(st);
        buf_printf(t, "r%u", rule);
    }
    buf_add_str(t, ")");
    return ST_OK;
}

static enum status add_many_values(struct schema_builder *b, struct buf *t,
                                   const json_t *values) {
    size_t n = 0, i;
    json_t *value;
    enum status st = ST_OK;
    char **texts = mem_calloc(json_array_size(values), sizeof *texts);
    if (texts == NULL)
        return schema_no_memory(b);
    json_array_foreach(values, i, value) {
        texts[n] = written(value);
        if (texts[n] == NULL) {
            st = schema_no_memory(b);
            break;
        }
        n++;
    }
    qsort(texts, n, sizeof *texts, by_text);
    size_t unique = 0;
    for (i = 0; i < n; i++) {
        if (unique > 0 && str_eq(texts[unique - 1], texts[i]))
            free(texts[i]);
        else
            texts[unique++] = texts[i];
    }
    if (st == ST_OK)
        st = add_choice(b, t, texts, unique, 0);
    for (i = 0; i < unique; i++)
        free(texts[i]);
    mem_free(texts);
    return st;
}

enum status schema_add_values(struct schema_builder *b, struct buf *t, const json_t *schema) {
    json_t *values, *value;
    size_t i;
    TRY(allowed_values(b, schema, &values));
    if (json_array_size(values) > FEW_CHOICES)
        return add_many_values(b, t, values);
    buf_add_str(t, SCHEMA_NOTHING);
    json_array_foreach(values, i, value) {
        buf_add_str(t, " | ");
        TRY(schema_add_json(b, t, value));
    }
    return ST_OK;
}

/* --- numbers --- */

#define BEYOND "minimum and maximum are supported up to 20 digits"

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

/* GBNF of digits, points and signs as a regular expression: without quotes and spaces. */
static void to_regex(struct buf *regex, const char *gbnf) {
    bool quoted = false;
    buf_add_str(regex, "^(");
    for (const char *c = gbnf; *c != '\0'; c++) {
        if (*c == '"') {
            quoted = !quoted;
            if (quoted && c[1] == '"')
                buf_add_str(regex, "(?:)");
        } else if (quoted && strchr(".+", *c) != NULL) {
            buf_printf(regex, "\\%c", *c);
        } else if (quoted || *c != ' ') {
            buf_add(regex, c, 1);
        }
    }
    buf_add_str(regex, ")$");
}

static enum status gbnf_term(struct schema_builder *b, const char *gbnf, uint32_t *term) {
    struct buf regex = {0};
    to_regex(&regex, gbnf);
    enum status st = regex.failed
                         ? schema_no_memory(b)
                         : schema_pattern(&b->regular, term, regex.bytes, regex.len, b->err);
    buf_free(&regex);
    return st;
}

static enum status add_multiple(struct schema_builder *b, const json_t *step, bool negated,
                                uint32_t *term) {
    struct regular *r = &b->regular;
    uint32_t m, places;
    if (!json_is_number(step) || !(json_number_value(step) > 0))
        return schema_wrong(b, "multipleOf must be a number above 0");
    if (!schema_number_steps(step, &m, &places))
        return schema_unsupported(b, "a multipleOf of so many digits");
    uint32_t multiples = regular_multiple(r, m, places);
    *term = regular_and(r, *term, negated ? regular_not(r, multiples) : multiples);
    return ST_OK;
}

/* Not one of these values, however they are written without an exponent. */
static enum status exclude_numbers(struct schema_builder *b, const json_t *values,
                                   uint32_t *term) {
    size_t i;
    const json_t *v;
    struct regular *r = &b->regular;
    json_array_foreach(values, i, v) {
        struct buf t = {0};
        uint32_t equal = 0;
        if (!json_is_number(v))
            continue;
        schema_reals(&t, (struct schema_bounds){{v, false}, {v, false}});
        enum status st = t.failed ? schema_no_memory(b) : gbnf_term(b, t.bytes, &equal);
        buf_free(&t);
        TRY(st);
        *term = regular_and(r, *term, regular_not(r, equal));
    }
    return ST_OK;
}

/* Digits without end where a number of them that is counted would make too many states. */
#define COUNTED_STEPS 150

static void add_shape(struct buf *t, struct schema_bounds bounds, bool whole, bool counted) {
    bool bounded = bounds.min.value != NULL || bounds.max.value != NULL;
    if (bounded && whole)
        schema_integers(t, bounds);
    else if (bounded)
        schema_reals(t, bounds);
    else
        buf_printf(t, "%s[1-9] [0-9]%s%s", whole ? "\"0\" | \"-\"? " : "\"-\"? (\"0\" | ",
                   counted ? "{0,19}" : "*", whole ? "" : ") (\".\" [0-9]{1,20})?");
}

/* A number with more to it than bounds: multipleOf, or what it must not be. */
static enum status add_regular_number(struct schema_builder *b, struct buf *t,
                                      const json_t *schema, struct schema_bounds bounds,
                                      bool whole) {
    const json_t *step = json_object_get(schema, "multipleOf"), *v;
    struct regular *r = &b->regular;
    static const struct grammar_range no_exponent[] = {{'-', '.'}, {'0', '9'}};
    uint32_t term = 0;
    struct buf shape = {0};
    size_t i;
    whole = whole ||
            (json_is_number(step) && json_number_value(step) == floor(json_number_value(step)));
    add_shape(&shape, bounds, whole, step == NULL || json_number_value(step) <= COUNTED_STEPS);
    enum status st = shape.failed ? schema_no_memory(b) : gbnf_term(b, shape.bytes, &term);
    buf_free(&shape);
    TRY(st);
    term = regular_and(r, term,
                       regular_repeat(r, regular_set(r, no_exponent, 2), 0, REGULAR_MANY));
    if (step != NULL)
        TRY(add_multiple(b, step, false, &term));
    json_array_foreach(json_object_get(schema, SCHEMA_ALSO_MULTIPLE), i, v)
        TRY(add_multiple(b, v, false, &term));
    json_array_foreach(json_object_get(schema, SCHEMA_NOT_MULTIPLE), i, v)
        TRY(add_multiple(b, v, true, &term));
    TRY(exclude_numbers(b, json_object_get(schema, SCHEMA_NOT_VALUES), &term));
    TRY(schema_regular_status(b));
    st = schema_add_text(b, t, term, 0, SCHEMA_NO_LIMIT);
    return st == ST_UNSUPPORTED
               ? schema_unsupported(b, "multipleOf, or not, of so large numbers")
               : st;
}

static enum status add_any_number(struct schema_builder *b, struct buf *t, const json_t *schema,
                                  bool whole) {
    const json_t *step = json_object_get(schema, "multipleOf");
    struct schema_bounds bounds;
    TRY(get_bounds(b, schema, &bounds));
    bool low = bounds.min.value != NULL, high = bounds.max.value != NULL;
    bool only_step = json_object_get(schema, SCHEMA_ALSO_MULTIPLE) == NULL &&
                     json_object_get(schema, SCHEMA_NOT_MULTIPLE) == NULL &&
                     json_object_get(schema, SCHEMA_NOT_VALUES) == NULL;
    if (!schema_bounds_usable(bounds))
        return schema_unsupported(b, BEYOND);
    if (step != NULL && (!json_is_number(step) || !(json_number_value(step) > 0)))
        return schema_wrong(b, "multipleOf must be a number above 0");
    if (step == NULL && only_step) {
        if (!low && !high)
            buf_add_str(t, whole ? "integer" : "number");
        else
            (whole ? schema_integers : schema_reals)(t, bounds);
        return ST_OK;
    }
    double x = json_number_value(step);
    if (only_step && low && high && x == floor(x) && x <= MAX_EXACT &&
        json_number_value(bounds.max.value) - json_number_value(bounds.min.value) <=
            MAX_ENUMERATED * x)
        return add_each_multiple(b, t, bounds, (int64_t)x);
    return add_regular_number(b, t, schema, bounds, whole);
}

enum status schema_add_integer(struct schema_builder *b, struct buf *t, const json_t *schema) {
    return add_any_number(b, t, schema, true);
}

enum status schema_add_number(struct schema_builder *b, struct buf *t, const json_t *schema) {
    return add_any_number(b, t, schema, false);
}
