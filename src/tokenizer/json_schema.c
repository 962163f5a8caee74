/* json_schema.c: JSON Schema to GBNF. Every schema becomes a rule of its own, known by its
 * address, so that $ref and recursion are references to rules. Schemas that say several things
 * at once (allOf, $ref with siblings, anyOf with siblings) are merged into temporary ones first.
 *
 * Bounded: nesting by SCHEMA_MAX_DEPTH, rules by SCHEMA_MAX_RULES, text by GRAMMAR_MAX_BYTES. */
#include "tokenizer/json_schema.h"

#include "base/mem.h"
#include "base/util.h"
#include "tokenizer/grammar.h"
#include "tokenizer/grammar_impl.h"
#include "tokenizer/schema_impl.h"
#include "tokenizer/schema_number.h"

#include <math.h>

/* What every grammar of JSON has. */
#define BASE_RULES                                                                \
    "ws ::= (\" \" | \"\\n\" [ \\t]{0,20})?\n"                                    \
    "hex ::= [0-9a-fA-F]\n"                                                       \
    "plain ::= [^\"\\\\\\x00-\\x1f\\x7f]\n"                                       \
    "char ::= plain | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" code)\n"                   \
    "code ::= [1-9a-cA-CeEfF] hex{3} | [dD] [0-7] hex{2}"                         \
    " | \"0\" ([1-9a-fA-F] hex{2} | \"0\" ([1-9a-fA-F] hex | \"0\" [1-9a-fA-F]))" \
    " | [dD] [89abAB] hex{2} \"\\\\u\" [dD] [c-fC-F] hex{2}\n"                    \
    "string ::= \"\\\"\" char* \"\\\"\"\n"                                        \
    "integer ::= \"0\" | \"-\"? [1-9] " SCHEMA_MORE_DIGITS "\n"                   \
    "number ::= \"-\"? (\"0\" | [1-9] " SCHEMA_MORE_DIGITS ") " SCHEMA_FRACTION   \
    " " SCHEMA_EXPONENT "\n"                                                      \
    "boolean ::= \"true\" | \"false\"\n"                                          \
    "value ::= object | array | string | number | boolean | \"null\"\n"           \
    "pair ::= string \":\" ws value\n"                                            \
    "object ::= \"{\" ws (pair (\",\" ws pair)* ws)? \"}\"\n"                     \
    "array ::= \"[\" ws (value (\",\" ws value)* ws)? \"]\"\n"

/* --- keywords --- */

/* What restricts values (and is understood). */
static const char *const restricting[] = {
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "nullable",
};

static const char *const not_understood[] = {
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "contains",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
    "disallow",
    "extends",
    "divisibleBy",
    "unevaluatedProperties",
};

bool schema_is_restricting(const char *key) {
    for (size_t i = 0; i < ARRAY_LEN(restricting); i++)
        if (str_eq(restricting[i], key))
            return true;
    return false;
}

bool schema_is_unset(const char *key, const json_t *value) {
    return json_is_null(value) && !str_eq(key, "const");
}

size_t schema_count_restricting(const json_t *schema) {
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(restricting); i++)
        n += json_object_get(schema, restricting[i]) != NULL;
    return n;
}

/* --- errors, rules --- */

enum status schema_unsupported(struct schema_builder *b, const char *what) {
    return err_set(b->err, ST_UNSUPPORTED, "schema: %s", what);
}

enum status schema_wrong(struct schema_builder *b, const char *what) {
    return err_set(b->err, ST_BAD_INPUT, "schema: %s", what);
}

enum status schema_no_memory(struct schema_builder *b) {
    return err_set(b->err, ST_NO_MEMORY, "no memory for a schema's grammar");
}

enum status schema_new_rule(struct schema_builder *b, unsigned *rule) {
    if (b->n_rules == SCHEMA_MAX_RULES || b->out.len > GRAMMAR_MAX_BYTES)
        return schema_unsupported(b, "it is too large");
    *rule = b->n_rules++;
    return ST_OK;
}

/* Ends a rule: its expression goes to the output. */
void schema_put_rule(struct schema_builder *b, unsigned rule, struct buf *expression) {
    buf_printf(&b->out, "r%u ::= ", rule);
    buf_add(&b->out, expression->bytes, expression->len);
    buf_add_str(&b->out, "\n");
    b->out.failed = b->out.failed || expression->failed;
}

/* Adds "rN" for a schema. */
enum status schema_add(struct schema_builder *b, struct buf *t, const json_t *schema) {
    unsigned rule = 0;
    TRY(schema_visit(b, schema, &rule));
    buf_printf(t, "r%u", rule);
    return ST_OK;
}

/* A key whose value is a number without fraction, >= 0. *out keeps its value if it is absent;
 * values beyond 2^32-2 count as no limit. */
enum status schema_get_count(struct schema_builder *b, const json_t *schema, const char *key,
                             uint32_t *out) {
    const json_t *v = json_object_get(schema, key);
    if (v == NULL)
        return ST_OK;
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= 0) || x != floor(x))
        return err_set(b->err, ST_BAD_INPUT, "schema: %s must be a whole number, 0 or more",
                       key);
    *out = x >= SCHEMA_NO_LIMIT ? SCHEMA_NO_LIMIT : (uint32_t)x;
    return ST_OK;
}

/* --- one schema --- */

static enum status add_type(struct schema_builder *b, struct buf *t, const json_t *schema,
                            const char *type) {
    if (str_eq(type, "object"))
        return schema_add_object(b, t, schema);
    if (str_eq(type, "array"))
        return schema_add_array(b, t, schema);
    if (str_eq(type, "string"))
        return schema_add_string(b, t, schema);
    if (str_eq(type, "number"))
        return schema_add_number(b, t, schema);
    if (str_eq(type, "integer"))
        return schema_add_integer(b, t, schema);
    if (str_eq(type, "boolean") || str_eq(type, "null")) {
        buf_add_str(t, str_eq(type, "null") ? "\"null\"" : "boolean");
        return ST_OK;
    }
    return err_set(b->err, ST_BAD_INPUT, "schema: there is no type \"%.40s\"", type);
}

static enum status add_types(struct schema_builder *b, struct buf *t, const json_t *schema,
                             const json_t *types) {
    size_t i;
    const json_t *type;
    if (json_is_string(types))
        return add_type(b, t, schema, json_string_value(types));
    if (!json_is_array(types))
        return schema_wrong(b, "type must be a string or an array");
    buf_add_str(t, SCHEMA_NOTHING);
    json_array_foreach(types, i, type) {
        if (!json_is_string(type))
            return schema_wrong(b, "type must hold strings");
        buf_add_str(t, " | (");
        TRY(add_type(b, t, schema, json_string_value(type)));
        buf_add_str(t, ")");
    }
    return ST_OK;
}

/* The type that a schema without one speaks of; NULL if of none. */
static const char *implied_type(const json_t *schema) {
    static const struct {
        const char *key, *type;
    } implied[] = {
        {"properties", "object"},
        {"required", "object"},
        {"additionalProperties", "object"},
        {"minProperties", "object"},
        {"patternProperties", "object"},
        {"propertyNames", "object"},
        {"maxProperties", "object"},
        {"items", "array"},
        {"prefixItems", "array"},
        {"minItems", "array"},
        {"maxItems", "array"},
        {"uniqueItems", "array"},
        {"minLength", "string"},
        {"maxLength", "string"},
        {"pattern", "string"},
        {"format", "string"},
        {"minimum", "number"},
        {"maximum", "number"},
        {"exclusiveMinimum", "number"},
        {"exclusiveMaximum", "number"},
        {"multipleOf", "integer"},
    };
    for (size_t i = 0; i < ARRAY_LEN(implied); i++)
        if (json_object_get(schema, implied[i].key) != NULL)
            return implied[i].type;
    return NULL;
}

/* Each alternative, together with what stands beside anyOf. */
static enum status add_any_of(struct schema_builder *b, struct buf *t, const json_t *schema,
                              const char *key) {
    const json_t *alternatives = json_object_get(schema, key), *part;
    bool beside = schema_count_restricting(schema) > 1;
    size_t i;
    if (!json_is_array(alternatives) || json_array_size(alternatives) == 0)
        return err_set(b->err, ST_BAD_INPUT, "schema: %s must be an array, not empty", key);
    json_array_foreach(alternatives, i, part) {
        buf_add_str(t, i > 0 ? " | " : "");
        if (beside && json_is_object(part)) {
            json_t *whole = NULL, *base = NULL;
            TRY(schema_new(b, &whole));
            TRY(schema_new(b, &base));
            if (json_object_update(base, (json_t *)schema) != 0)
                return schema_no_memory(b);
            json_object_del(base, key);
            TRY(schema_merge(b, whole, base, 0));
            TRY(schema_merge(b, whole, part, 0));
            part = whole;
        } else if (beside && json_is_true(part)) {
            return schema_unsupported(b, "an alternative of true beside other keywords");
        }
        TRY(schema_add(b, t, part));
    }
    return ST_OK;
}

/* The same without keywords that are null, as programs write what is not set. */
static enum status without_unset(struct schema_builder *b, const json_t **schema) {
    const char *key;
    const json_t *v;
    json_t *set = NULL;
    json_object_foreach((json_t *)*schema, key, v) {
        if (!schema_is_unset(key, v))
            continue;
        if (set == NULL) {
            TRY(schema_new(b, &set));
            if (json_object_update(set, (json_t *)*schema) != 0)
                return schema_no_memory(b);
        }
        json_object_del(set, key);
    }
    *schema = set != NULL ? set : *schema;
    return ST_OK;
}

static enum status check_keywords(struct schema_builder *b, const json_t *schema) {
    for (size_t i = 0; i < ARRAY_LEN(not_understood); i++)
        if (json_object_get(schema, not_understood[i]) != NULL)
            return err_set(b->err, ST_UNSUPPORTED,
                           "schema: the keyword \"%s\" is not supported", not_understood[i]);
    return ST_OK;
}

static enum status add_body(struct schema_builder *b, struct buf *t, const json_t *schema) {
    if (json_is_true(schema) || json_is_false(schema)) {
        buf_add_str(t, json_is_true(schema) ? "value" : SCHEMA_NOTHING);
        return ST_OK;
    }
    if (!json_is_object(schema))
        return schema_wrong(b, "a schema must be an object or a boolean");
    TRY(without_unset(b, &schema));
    const json_t *ref = json_object_get(schema, "$ref"), *target;
    TRY(check_keywords(b, schema));
    if (ref != NULL && schema_count_restricting(schema) == 1) {
        TRY(schema_get_ref(b, ref, &target));
        return schema_add(b, t, target);
    }
    if (ref != NULL || json_object_get(schema, "allOf") != NULL) {
        json_t *merged = NULL;
        TRY(schema_new(b, &merged));
        TRY(schema_merge(b, merged, schema, 0));
        return schema_add(b, t, merged);
    }
    if (json_is_true(json_object_get(schema, "nullable")))
        buf_add_str(t, "\"null\" | ");
    if (json_object_get(schema, "const") != NULL || json_object_get(schema, "enum") != NULL)
        return schema_add_values(b, t, schema);
    if (json_object_get(schema, "anyOf") != NULL)
        return add_any_of(b, t, schema, "anyOf");
    if (json_object_get(schema, "oneOf") != NULL)
        return add_any_of(b, t, schema, "oneOf");
    if (json_object_get(schema, "type") != NULL)
        return add_types(b, t, schema, json_object_get(schema, "type"));
    const char *type = implied_type(schema);
    if (type != NULL)
        return add_type(b, t, schema, type);
    buf_add_str(t, "value");
    return ST_OK;
}

enum status schema_visit(struct schema_builder *b, const json_t *schema, unsigned *rule) {
    for (size_t i = 0; i < b->n_known; i++)
        if (b->known[i].schema == schema) {
            *rule = b->known[i].rule;
            return ST_OK;
        }
    if (b->depth == SCHEMA_MAX_DEPTH)
        return schema_unsupported(b, "it is nested too deeply");
    TRY(schema_new_rule(b, rule));
    if (json_is_object(schema)) {
        if (!mem_reserve(&b->known, &b->known_cap, b->n_known + 1, sizeof *b->known))
            return schema_no_memory(b);
        b->known[b->n_known++] = (struct schema_known){schema, *rule};
    }
    struct buf t = {0};
    b->depth++;
    enum status st = add_body(b, &t, schema);
    b->depth--;
    if (st == ST_OK)
        schema_put_rule(b, *rule, &t);
    buf_free(&t);
    return st;
}

static enum status add_rules(struct schema_builder *b, const struct json_schema_rule *rules,
                             size_t n) {
    for (size_t i = 0; i < n; i++) {
        unsigned rule = 0;
        b->root = rules[i].schema;
        TRY(schema_visit(b, rules[i].schema, &rule));
        buf_printf(&b->out, "%s ::= r%u\n", rules[i].name, rule);
    }
    if (b->out.failed)
        return schema_no_memory(b);
    return b->out.len <= GRAMMAR_MAX_BYTES ? ST_OK : schema_unsupported(b, "it is too large");
}

enum status json_schema_rules_to_gbnf(const struct json_schema_rule *rules, size_t n,
                                      const char *others, char **gbnf, struct err *err) {
    struct schema_builder b = {.kept = json_array(), .err = err};
    buf_add_str(&b.out, BASE_RULES);
    buf_add_str(&b.out, others);
    enum status st = b.kept == NULL ? schema_no_memory(&b) : add_rules(&b, rules, n);
    mem_free(b.known);
    json_decref(b.kept);
    if (st != ST_OK) {
        buf_free(&b.out);
        return st;
    }
    *gbnf = b.out.bytes;
    return ST_OK;
}

enum status json_schema_to_gbnf(const json_t *schema, char **gbnf, struct err *err) {
    const struct json_schema_rule rule = {"root", schema};
    return json_schema_rules_to_gbnf(&rule, 1, "", gbnf, err);
}

const char *json_object_gbnf(void) {
    return "root ::= object\n" BASE_RULES;
}
