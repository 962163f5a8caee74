/* schema_string.c: strings of a JSON Schema: pattern, format, forbidden values, and lengths. */
#include "schema/schema_impl.h"

#include "base/util.h"
#include "grammar/grammar_impl.h"
#include "schema/schema_format.h"

#include <string.h>

#define MAX_STRING GRAMMAR_MAX_REPEAT /* characters, where a length is given */
#define MAX_COMPARED 10000            /* states of a pattern with a format */

/* term and a pattern, or not the pattern. */
static enum status and_pattern(struct schema_builder *b, const json_t *pattern, bool negated,
                               uint32_t *term) {
    struct regular *r = &b->regular;
    const char *s = json_string_value(pattern);
    uint32_t matches = 0;
    if (s == NULL)
        return schema_wrong(b, "pattern must be a string");
    TRY(schema_pattern(r, &matches, s, json_string_length(pattern), b->err));
    *term = regular_and(r, *term, negated ? regular_not(r, matches) : matches);
    return ST_OK;
}

static enum status and_patterns(struct schema_builder *b, const json_t *schema, const char *key,
                                bool negated, uint32_t *term) {
    size_t i;
    const json_t *v;
    json_array_foreach(json_object_get(schema, key), i, v)
        TRY(and_pattern(b, v, negated, term));
    return ST_OK;
}

/* Formats that are not known are annotations. */
static enum status and_format(struct schema_builder *b, const json_t *format, uint32_t *term) {
    const char *name = json_string_value(format);
    const char *pattern = name != NULL ? schema_format(name) : NULL;
    uint32_t matches = 0;
    if (pattern == NULL)
        return ST_OK;
    TRY(schema_pattern(&b->regular, &matches, pattern, strlen(pattern), b->err));
    *term = regular_and(&b->regular, *term, matches);
    return ST_OK;
}

static enum status and_formats(struct schema_builder *b, const json_t *schema, uint32_t *term) {
    size_t i;
    const json_t *v;
    TRY(and_format(b, json_object_get(schema, "format"), term));
    json_array_foreach(json_object_get(schema, SCHEMA_ALSO_FORMAT), i, v)
        TRY(and_format(b, v, term));
    return ST_OK;
}

static bool has_known_format(const json_t *schema) {
    const char *name = json_string_value(json_object_get(schema, "format"));
    return name != NULL && schema_format(name) != NULL;
}

static uint32_t any_text(struct regular *r, const json_t *values) {
    uint32_t sum = r->nothing;
    size_t i;
    const json_t *v;
    json_array_foreach(values, i, v) if (json_is_string(v)) sum =
        regular_or(r, sum, regular_text(r, json_string_value(v), json_string_length(v)));
    return sum;
}

static enum status patterns_term(struct schema_builder *b, const json_t *schema,
                                 uint32_t *term) {
    struct regular *r = &b->regular;
    const json_t *pattern = json_object_get(schema, "pattern");
    const json_t *excluded = json_object_get(schema, SCHEMA_NOT_VALUES);
    *term = r->all;
    if (pattern != NULL)
        TRY(and_pattern(b, pattern, false, term));
    TRY(and_patterns(b, schema, SCHEMA_ALSO_PATTERN, false, term));
    TRY(and_patterns(b, schema, SCHEMA_NOT_PATTERN, true, term));
    *term = regular_and(r, *term, regular_not(r, any_text(r, excluded)));
    return ST_OK;
}

static bool allows_strings(const json_t *types) {
    size_t i;
    const json_t *v;
    if (!json_is_array(types))
        return types == NULL ||
               (json_is_string(types) && str_eq(json_string_value(types), "string"));
    json_array_foreach(types, i, v) if (json_is_string(v) &&
                                        str_eq(json_string_value(v), "string")) return true;
    return false;
}

enum status schema_string_term(struct schema_builder *b, const json_t *schema, uint32_t *term,
                               uint32_t *min, uint32_t *max) {
    struct regular *r = &b->regular;
    const json_t *values = json_object_get(schema, "enum"), *constant, *any, *part;
    size_t i;
    TRY(schema_get_count(b, schema, "minLength", min));
    TRY(schema_get_count(b, schema, "maxLength", max));
    TRY(patterns_term(b, schema, term));
    TRY(and_formats(b, schema, term));
    if (!allows_strings(json_object_get(schema, "type")))
        *term = r->nothing;
    if (values != NULL)
        *term = regular_and(r, *term, any_text(r, values));
    constant = json_object_get(schema, "const");
    if (constant != NULL) {
        const char *s = json_string_value(constant);
        *term = regular_and(r, *term,
                            s != NULL ? regular_text(r, s, json_string_length(constant))
                                      : r->nothing);
    }
    any = json_object_get(schema, "anyOf");
    if (any == NULL)
        return schema_regular_status(b);
    uint32_t sum = r->nothing;
    json_array_foreach(any, i, part) {
        uint32_t one = 0, least = 0, most = SCHEMA_NO_LIMIT;
        json_t *whole;
        TRY(schema_new(b, &whole));
        TRY(schema_merge(b, whole, part, 1));
        TRY(schema_string_term(b, whole, &one, &least, &most));
        if (least > 0 || most != SCHEMA_NO_LIMIT)
            one = regular_and(r, one, regular_repeat(r, r->any, least, most));
        sum = regular_or(r, sum, one);
    }
    *term = regular_and(r, *term, sum);
    return schema_regular_status(b);
}

/* What is written as a format is less than what is valid: a pattern may want just the rest. */
static bool is_contradiction(struct schema_builder *b, uint32_t term) {
    struct regular_automaton a = {0};
    enum status st = regular_automaton_init(&a, &b->regular, term, MAX_COMPARED);
    bool empty = st == ST_OK && regular_automaton_is_empty(&a);
    regular_automaton_deinit(&a);
    return empty;
}

/* A pattern beside a format (libraries write both for one thing). Both are enforced if their
 * common automaton is small enough, otherwise the pattern alone. If no grammar can express the
 * pattern, the format alone is enforced. */
static enum status add_pattern_and_format(struct schema_builder *b, struct buf *t,
                                          const json_t *schema, uint32_t min, uint32_t max) {
    uint32_t term = 0, whole = 0;
    size_t len = t->len;
    enum status st = patterns_term(b, schema, &term);
    whole = st == ST_OK ? term : b->regular.all;
    if (st != ST_OK && (st != ST_UNSUPPORTED || !has_known_format(schema)))
        return st;
    bool only_format = st != ST_OK;
    TRY(and_formats(b, schema, &whole));
    TRY(schema_regular_status(b));
    if (!only_format && whole != term && is_contradiction(b, whole))
        whole = term;
    st = schema_add_text(b, t, whole, min, max);
    if (st != ST_UNSUPPORTED || whole == term || only_format ||
        regular_status(&b->regular) != ST_OK)
        return st;
    t->len = len;
    return schema_add_text(b, t, term, min, max);
}

enum status schema_add_string(struct schema_builder *b, struct buf *t, const json_t *schema) {
    uint32_t min = 0, max = SCHEMA_NO_LIMIT;
    TRY(schema_get_count(b, schema, "minLength", &min));
    TRY(schema_get_count(b, schema, "maxLength", &max));
    if (min > MAX_STRING)
        return schema_unsupported(b, "minLength is too large");
    if (max != SCHEMA_NO_LIMIT)
        max = MIN(max, (uint32_t)MAX_STRING);
    if (max < min) {
        buf_add_str(t, SCHEMA_NOTHING);
        return ST_OK;
    }
    buf_add_str(t, "\"\\\"\" ");
    TRY(add_pattern_and_format(b, t, schema, min, max));
    buf_add_str(t, " \"\\\"\"");
    return ST_OK;
}
