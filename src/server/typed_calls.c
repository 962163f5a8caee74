/* typed_calls.c: Writes the arguments of a call as a grammar, one by one.
 *
 * In such a call a string stands as it is, without quotes: what its schema asks of it (a pattern, a
 * length) cannot be said. Neither can what a schema asks of several arguments at once. Then the
 * arguments are written as one object in a block, which the format has as well. */
#include "server/typed_calls.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "grammar/gbnf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rules ------------------------------------------------------------------------------- */

const char *call_rules_add(struct call_rules *r, const char *name, const json_t *schema,
                           const json_t *root) {
    char own[32];
    snprintf(own, sizeof own, "arguments-%zu", r->n);
    char *copy = mem_strdup(name != NULL ? name : own);
    if (copy == NULL || !mem_reserve(&r->rules, &r->cap, r->n + 1, sizeof *r->rules)) {
        mem_free(copy);
        r->failed = true;
        return "";
    }
    r->rules[r->n++] = (struct json_schema_rule){.name = copy, .schema = schema, .root = root};
    return copy;
}

void call_rules_cut(struct call_rules *r, size_t n) {
    while (r->n > n)
        mem_free((char *)r->rules[--r->n].name);
}

void call_rules_deinit(struct call_rules *r) {
    call_rules_cut(r, 0);
    mem_free(r->rules);
    json_decref(r->kept);
}

/* ---- what a schema says ------------------------------------------------------------------ */

static bool is_annotation(const char *key) {
    static const char *const keys[] = {"title",      "description", "default",   "examples",
                                       "deprecated", "readOnly",    "writeOnly", "$comment",
                                       "$schema",    "$id",         "$defs",     "definitions"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (str_eq(keys[i], key))
            return true;
    return false;
}

/* Nothing but these two, and annotations. */
static bool says_only(const json_t *schema, const char *a, const char *b) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)schema, key, v) {
        if (!is_annotation(key) && !str_eq(key, a) && !str_eq(key, b))
            return false;
    }
    return true;
}

static const char *type_of(const json_t *v) {
    return json_is_string(v)    ? "string"
           : json_is_number(v)  ? "number"
           : json_is_boolean(v) ? "boolean"
           : json_is_null(v)    ? "null"
           : json_is_object(v)  ? "object"
                                : "array";
}

/* ---- one argument ------------------------------------------------------------------------ */

void typed_attribute(struct buf *t, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (text[i] == '&' || text[i] == '"')
            buf_add_str(t, text[i] == '&' ? "&amp;" : "&quot;");
        else
            buf_add(t, text + i, 1);
}

struct argument {
    struct call_rules *rules;
    struct buf *t;
    const char *name;
    const json_t *root; /* the schema of all arguments */
    size_t n;           /* alternatives so far */
};

/* An alternative: a value of this type, by an expression. */
static void put_value(struct argument *a, const char *type, const char *expression) {
    struct buf tag = {0};
    buf_add_str(&tag, "argument key=\"");
    typed_attribute(&tag, a->name, strlen(a->name));
    buf_printf(&tag, "\" type=\"%s\"", type);
    buf_add_str(a->t, a->n++ > 0 ? " | <|open|> " : "<|open|> ");
    gbnf_literal(a->t, tag.bytes, tag.len);
    buf_printf(a->t, " <|sep|> %s " K3_CLOSE("argument"), expression);
    a->t->failed = a->t->failed || tag.failed;
    buf_free(&tag);
}

static bool put_listed(struct argument *a, const json_t *v) {
    struct buf expression = {0};
    bool text = json_is_string(v);
    char *json = text ? NULL : json_dumps(v, JSON_ENCODE_ANY);
    const char *s = text ? json_string_value(v) : json;
    size_t len = text ? json_string_length(v) : json != NULL ? strlen(json) : 0;
    bool fits = s != NULL && memchr(s, '\0', len) == NULL && strstr(s, "<|c") == NULL;
    if (fits)
        gbnf_literal(&expression, s, len);
    if (fits && !expression.failed)
        put_value(a, type_of(v), expression.bytes);
    a->rules->failed = a->rules->failed || expression.failed;
    buf_free(&expression);
    free(json);
    return fits;
}

static bool put_typed(struct argument *a, const json_t *schema, const char *type) {
    if (type == NULL)
        return false;
    if (str_eq(type, "string")) {
        put_value(a, type, "verbatim");
        return says_only(schema, "type", "type");
    }
    put_value(a, str_eq(type, "integer") ? "number" : type,
              call_rules_add(a->rules, NULL, schema, a->root));
    return json_object_get(schema, "nullable") == NULL &&
           json_object_get(schema, "enum") == NULL && json_object_get(schema, "const") == NULL;
}

/* Of several types: a schema for each. */
static bool put_one_of_types(struct argument *a, const json_t *schema, const json_t *type) {
    json_t *one = json_pack("{s:O}", "type", type);
    if (a->rules->kept == NULL)
        a->rules->kept = json_array();
    if (json_array_append_new(a->rules->kept, one) != 0) {
        a->rules->failed = true;
        return false;
    }
    return says_only(schema, "type", "type") && put_typed(a, one, json_string_value(type));
}

static void put_anything(struct argument *a) {
    static const char *const types[] = {"number", "boolean", "object", "array"};
    put_value(a, "string", "verbatim");
    put_value(a, "null", "\"null\"");
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        put_value(a, types[i], types[i]);
}

static bool put_enum(struct argument *a, const json_t *list, const char *type) {
    const json_t *one;
    size_t i;
    json_array_foreach((json_t *)list, i, one) {
        if ((type != NULL && !str_eq(type, type_of(one))) || !put_listed(a, one))
            return false;
    }
    return true;
}

static bool put_types(struct argument *a, const json_t *schema, const json_t *types) {
    const json_t *one;
    size_t i;
    json_array_foreach((json_t *)types, i, one) {
        if (!put_one_of_types(a, schema, one))
            return false;
    }
    return true;
}

/* The alternatives for a value. False: they do not say all that the schema does. left: how many
 * more schemas are looked at, as references may lead in circles. */
static bool put_values(struct argument *a, const json_t *schema, int *left) {
    const json_t *type = json_object_get(schema, "type"), *one;
    const json_t *any = json_object_get(schema, "anyOf"),
                 *list = json_object_get(schema, "enum");
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    const char *name = json_string_value(type);
    size_t i;
    if (--*left < 0 || !json_is_object(schema))
        return false;
    if (ref != NULL)
        return says_only(schema, "$ref", "$ref") &&
               put_values(a, json_follow(a->root, ref), left);
    json_array_foreach((json_t *)any, i, one) {
        if (!put_values(a, one, left))
            return false;
    }
    if (any != NULL)
        return says_only(schema, "anyOf", "anyOf");
    if (list != NULL)
        return says_only(schema, "enum", "type") && (type == NULL || name != NULL) &&
               put_enum(a, list, name);
    if (json_is_array(type))
        return put_types(a, schema, type);
    if (type != NULL)
        return put_typed(a, schema, name);
    put_anything(a);
    return says_only(schema, "type", "type");
}

/* ---- all of them ------------------------------------------------------------------------- */

static bool is_required(const json_t *schema, const char *name) {
    const json_t *required = json_object_get(schema, "required"), *one;
    size_t i;
    json_array_foreach((json_t *)required, i, one) {
        if (json_is_string(one) && str_eq(json_string_value(one), name))
            return true;
    }
    return false;
}

/* Whether it says which arguments there are, and no more. */
static bool lists_arguments(const json_t *schema) {
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required"), *v;
    const json_t *more = json_object_get(schema, "additionalProperties");
    const char *type = json_string_value(json_object_get(schema, "type")), *key;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)schema, key, value) {
        if (!is_annotation(key) && !str_eq(key, "type") && !str_eq(key, "properties") &&
            !str_eq(key, "required") && !str_eq(key, "additionalProperties"))
            return false;
    }
    json_array_foreach((json_t *)required, i, v) {
        if (!json_is_string(v) || json_object_get(properties, json_string_value(v)) == NULL)
            return false;
    }
    return type != NULL && str_eq(type, "object") && json_is_object(properties) &&
           (more == NULL || json_is_false(more)) &&
           (required == NULL || json_is_array(required));
}

static bool one_by_one(struct buf *t, struct call_rules *r, const json_t *schema) {
    const char *name;
    json_t *property;
    if (!lists_arguments(schema))
        return false;
    json_object_foreach(json_object_get(schema, "properties"), name, property) {
        struct argument a = {.rules = r, .t = t, .name = name, .root = schema};
        int left = 100;
        buf_add_str(t, "(");
        if (!put_values(&a, property, &left) || a.n == 0)
            return false;
        buf_add_str(t, is_required(schema, name) ? ") " : ")? ");
    }
    return true;
}

void typed_arguments(struct buf *t, struct call_rules *r, const json_t *schema, bool anything) {
    size_t len = t->len, n = r->n;
    if (!anything && one_by_one(t, r, schema)) {
        buf_add_str(t, "\"\"");
        return;
    }
    t->len = len; /* what was begun */
    call_rules_cut(r, n);
    buf_printf(t, "(" K3_OPEN("json type=\\\"object\\\"") " %s " K3_CLOSE("json") ")%s",
               call_rules_add(r, NULL, schema, NULL), anything ? "?" : "");
}
