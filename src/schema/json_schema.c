/* json_schema.c: JSON Schema to GBNF. Every schema becomes a rule, identified by its address,
 * so $ref and recursion are references to rules. Schemas that combine several (allOf, $ref with
 * siblings, anyOf with siblings) are merged into temporary ones first.
 *
 * Bounded: nesting by SCHEMA_MAX_DEPTH, rules by SCHEMA_MAX_RULES, text by GRAMMAR_MAX_BYTES. */
#include "schema/json_schema.h"

#include "base/mem.h"
#include "base/util.h"
#include "grammar/grammar.h"
#include "grammar/grammar_impl.h"
#include "schema/schema_format.h"
#include "schema/schema_impl.h"
#include "schema/schema_number.h"

#include <math.h>
#include <stdio.h>

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
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
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
    "not",
    "if",
    "$ref",
    "nullable",
    SCHEMA_ALSO_PATTERN,
    SCHEMA_ALSO_FORMAT,
    SCHEMA_ALSO_MULTIPLE,
    SCHEMA_NOT_PATTERN,
    SCHEMA_NOT_VALUES,
    SCHEMA_NOT_MULTIPLE,
};

/* What restricts values and is not. */
static const char *const not_understood[] = {
    "$dynamicRef", "$recursiveRef", "disallow", "extends", "divisibleBy",
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

/* A name as it is written in a JSON pointer. */
static void add_pointer(struct buf *path, const char *name) {
    buf_add_str(path, "/");
    for (; *name != '\0'; name++)
        if (*name == '~' || *name == '/')
            buf_add_str(path, *name == '~' ? "~0" : "~1");
        else
            buf_add(path, name, 1);
}

/* Says once where the innermost schema is that an error is about. */
static enum status locate(struct schema_builder *b, enum status st) {
    struct err inner;
    if (b->located || (st != ST_UNSUPPORTED && st != ST_BAD_INPUT) || b->path.failed ||
        b->path.len == 0 || b->err == NULL)
        return st;
    inner = *b->err;
    b->located = true;
    return err_set(b->err, st, "%.300s (at #%.150s)", inner.text, b->path.bytes);
}

/* Adds "rN" for a schema. */
enum status schema_add(struct schema_builder *b, struct buf *t, const json_t *schema,
                       const char *key, const char *name) {
    unsigned rule = 0;
    size_t len = b->path.len;
    add_pointer(&b->path, key);
    if (name != NULL)
        add_pointer(&b->path, name);
    enum status st = schema_visit(b, schema, &rule);
    if (st != ST_OK)
        st = locate(b, st);
    b->path.len = b->path.failed ? b->path.len : len;
    TRY(st);
    buf_printf(t, "r%u", rule);
    return ST_OK;
}

/* The same at another place of the document. */
static enum status add_ref(struct schema_builder *b, struct buf *t, const json_t *ref) {
    const json_t *target;
    unsigned rule = 0;
    struct buf path = b->path;
    TRY(schema_get_ref(b, ref, &target));
    b->path = (struct buf){0};
    buf_add_str(&b->path, json_string_value(ref) + 1);
    enum status st = schema_visit(b, target, &rule);
    if (st != ST_OK)
        st = locate(b, st);
    buf_free(&b->path);
    b->path = path;
    TRY(st);
    buf_printf(t, "r%u", rule);
    return ST_OK;
}

/* A key whose value is a number without fraction, >= 0. *out keeps its value if the key is
 * absent. Values beyond 2^32-2 count as no limit. */
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

/* Whether the forbidden values include one that the writer of its type cannot leave out. Then
 * the type as a whole is left out. */
static bool is_left_out(const json_t *schema, const char *type) {
    const json_t *values = json_object_get(schema, SCHEMA_NOT_VALUES), *v;
    bool composed = str_eq(type, "object") || str_eq(type, "array") || str_eq(type, "null");
    size_t i;
    json_array_foreach(
        values, i, v) if (composed &&
                          schema_type_allows(
                              json_object_get(schema, "type"),
                              v)) if ((json_is_object(v) && str_eq(type, "object")) ||
                                      (json_is_array(v) && str_eq(type, "array")) ||
                                      (json_is_null(v) && str_eq(type, "null"))) return true;
    return false;
}

static void add_booleans(struct buf *t, const json_t *schema) {
    const json_t *values = json_object_get(schema, SCHEMA_NOT_VALUES), *v;
    bool no_true = false, no_false = false;
    size_t i;
    json_array_foreach(values, i, v) {
        no_true = no_true || json_is_true(v);
        no_false = no_false || json_is_false(v);
    }
    buf_add_str(t, !no_true && !no_false ? "boolean"
                   : no_true && no_false ? SCHEMA_NOTHING
                   : no_true             ? "\"false\""
                                         : "\"true\"");
}

static enum status add_type(struct schema_builder *b, struct buf *t, const json_t *schema,
                            const char *type) {
    if (is_left_out(schema, type)) {
        buf_add_str(t, SCHEMA_NOTHING);
        return ST_OK;
    }
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
        if (str_eq(type, "null"))
            buf_add_str(t, "\"null\"");
        else
            add_booleans(t, schema);
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
        {"contains", "array"},
        {"items", "array"},
        {"prefixItems", "array"},
        {"minItems", "array"},
        {"maxItems", "array"},
        {"uniqueItems", "array"},
        {"minLength", "string"},
        {"maxLength", "string"},
        {"pattern", "string"},
        {SCHEMA_ALSO_PATTERN, "string"},
        {SCHEMA_NOT_PATTERN, "string"},
        {"minimum", "number"},
        {"maximum", "number"},
        {"exclusiveMinimum", "number"},
        {"exclusiveMaximum", "number"},
        {"multipleOf", "number"},
        {SCHEMA_NOT_MULTIPLE, "number"},
    };
    const char *format = json_string_value(json_object_get(schema, "format"));
    for (size_t i = 0; i < ARRAY_LEN(implied); i++)
        if (json_object_get(schema, implied[i].key) != NULL)
            return implied[i].type;
    return format != NULL && schema_format(format) != NULL ? "string" : NULL;
}

/* Each alternative, merged with the siblings of anyOf. */
static enum status add_any_of(struct schema_builder *b, struct buf *t, const json_t *schema) {
    const json_t *alternatives = json_object_get(schema, "anyOf"), *part;
    bool beside = schema_count_restricting(schema) > 1;
    bool first = schema_stands_before(schema, "anyOf", "properties");
    json_t *base = NULL;
    size_t i;
    TRY(schema_new(b, &base));
    if (json_object_update(base, (json_t *)schema) != 0)
        return schema_no_memory(b);
    json_object_del(base, "anyOf");
    json_object_del(base, "nullable");
    json_array_foreach(alternatives, i, part) {
        char at[24];
        buf_add_str(t, i > 0 ? " | " : "");
        if (beside && !json_is_false(part)) {
            json_t *whole = NULL;
            TRY(schema_new(b, &whole));
            TRY(schema_merge(b, whole, first ? part : base, 1));
            TRY(schema_merge(b, whole, first ? base : part, 1));
            part = whole;
        }
        snprintf(at, sizeof at, "%zu", i);
        TRY(schema_add(b, t, part, "anyOf", at));
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

bool schema_says(const json_t *schema, const char *key) {
    const json_t *v = json_object_get(schema, key);
    return v != NULL && !json_is_null(v);
}

enum status schema_check_keywords(struct schema_builder *b, const json_t *schema) {
    for (size_t i = 0; i < ARRAY_LEN(not_understood); i++)
        if (schema_says(schema, not_understood[i]))
            return err_set(b->err, ST_UNSUPPORTED,
                           "schema: the keyword \"%s\" is not supported", not_understood[i]);
    return ST_OK;
}

/* What becomes part of the schema that it is in, or alternatives of it, by merging. */
static bool must_merge(const json_t *schema) {
    static const char *const keys[] = {"$ref",
                                       "allOf",
                                       "oneOf",
                                       "not",
                                       "if",
                                       "dependentRequired",
                                       "dependentSchemas",
                                       "dependencies",
                                       "unevaluatedProperties",
                                       "unevaluatedItems"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (json_object_get(schema, keys[i]) != NULL)
            return true;
    return false;
}

/* Any value but some. */
static enum status add_all_types(struct schema_builder *b, struct buf *t,
                                 const json_t *schema) {
    json_t *types =
        json_pack("[s,s,s,s,s,s]", "object", "array", "string", "number", "boolean", "null");
    enum status st = types == NULL ? schema_no_memory(b) : add_types(b, t, schema, types);
    json_decref(types);
    return st;
}

static enum status add_merged(struct schema_builder *b, struct buf *t, const json_t *schema) {
    if (json_is_true(json_object_get(schema, "nullable")))
        buf_add_str(t, "\"null\" | ");
    if (json_object_get(schema, "const") != NULL || json_object_get(schema, "enum") != NULL)
        return schema_add_values(b, t, schema);
    if (json_object_get(schema, "anyOf") != NULL)
        return add_any_of(b, t, schema);
    if (json_object_get(schema, "type") != NULL)
        return add_types(b, t, schema, json_object_get(schema, "type"));
    const char *type = implied_type(schema);
    if (type != NULL)
        return add_type(b, t, schema, type);
    if (json_object_get(schema, SCHEMA_NOT_VALUES) != NULL)
        return add_all_types(b, t, schema);
    buf_add_str(t, "value");
    return ST_OK;
}

static enum status add_body(struct schema_builder *b, struct buf *t, const json_t *schema) {
    json_t *merged = NULL;
    if (json_is_true(schema) || json_is_false(schema)) {
        buf_add_str(t, json_is_true(schema) ? "value" : SCHEMA_NOTHING);
        return ST_OK;
    }
    if (!json_is_object(schema))
        return schema_wrong(b, "a schema must be an object or a boolean");
    TRY(without_unset(b, &schema));
    TRY(schema_check_keywords(b, schema));
    if (json_object_get(schema, "$ref") != NULL && schema_count_restricting(schema) == 1)
        return add_ref(b, t, json_object_get(schema, "$ref"));
    const json_t *any = json_object_get(schema, "anyOf");
    if (any != NULL && (!json_is_array(any) || json_array_size(any) == 0))
        return schema_wrong(b, "anyOf must be an array, not empty");
    if (!must_merge(schema))
        return add_merged(b, t, schema);
    TRY(schema_new(b, &merged));
    TRY(schema_merge(b, merged, schema, 0));
    return add_merged(b, t, merged);
}

/* A schema that is known: itself, or of merged ones one that says the same. */
static const struct schema_known *find_known(const struct schema_builder *b,
                                             const json_t *schema) {
    bool merged = json_object_size(schema) == 1 && json_object_get(schema, "allOf") != NULL;
    for (size_t i = 0; i < b->n_known; i++) {
        const json_t *known = b->known[i].schema;
        if (known == schema ||
            (merged && json_object_size(known) == 1 &&
             json_object_get(known, "allOf") != NULL && json_equal(known, schema)))
            return &b->known[i];
    }
    return NULL;
}

enum status schema_visit(struct schema_builder *b, const json_t *schema, unsigned *rule) {
    const struct schema_known *known = find_known(b, schema);
    if (known != NULL) {
        *rule = known->rule;
        return ST_OK;
    }
    if (b->depth == SCHEMA_MAX_DEPTH)
        return schema_unsupported(b, "it is nested too deeply");
    TRY(schema_new_rule(b, rule));
    if (json_is_object(schema)) {
        /* Kept, so that no other one gets its address. */
        if (!mem_reserve(&b->known, &b->known_cap, b->n_known + 1, sizeof *b->known) ||
            json_array_append(b->kept, (json_t *)schema) != 0)
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
        b->root = rules[i].root != NULL ? rules[i].root : rules[i].schema;
        enum status st = schema_visit(b, rules[i].schema, &rule);
        if (st != ST_OK)
            return locate(b, st);
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
    regular_init(&b.regular);
    enum status st = b.kept == NULL ? schema_no_memory(&b) : schema_regular_status(&b);
    if (st == ST_OK)
        st = add_rules(&b, rules, n);
    regular_deinit(&b.regular);
    buf_free(&b.path);
    mem_free(b.sets);
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
    const struct json_schema_rule rule = {.name = "root", .schema = schema};
    return json_schema_rules_to_gbnf(&rule, 1, "", gbnf, err);
}

const char *json_object_gbnf(void) {
    return "root ::= object\n" BASE_RULES;
}
