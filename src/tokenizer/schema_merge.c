/* schema_merge.c: $ref, and several schemas that must all hold as one. */
#include "tokenizer/schema_impl.h"

#include "base/json.h"
#include "base/util.h"

#define MAX_WORK 1000000

enum status schema_get_ref(struct schema_builder *b, const json_t *ref, const json_t **out) {
    const char *s = json_string_value(ref);
    *out = s != NULL ? json_follow(b->root, s) : NULL;
    if (*out == NULL)
        return err_set(b->err, ST_BAD_INPUT,
                       "schema: $ref \"%.100s\" leads nowhere in the document",
                       s != NULL ? s : "(not a string)");
    return ST_OK;
}

/* Merging may be asked for again and again by a small schema: it ends somewhere. */
static enum status spend(struct schema_builder *b, size_t n) {
    b->work += n;
    return b->work <= MAX_WORK ? ST_OK : schema_unsupported(b, "it takes too long to merge");
}

/* Both must hold: schemas of one property, of items ... */
static json_t *both(const json_t *a, const json_t *b) {
    return json_pack("{s:[O,O]}", "allOf", a, b);
}

static enum status merge_properties(struct schema_builder *b, json_t *into,
                                    const json_t *properties) {
    json_t *mine = json_object_get(into, "properties");
    const char *name;
    json_t *value;
    if (!json_is_object(properties) || (mine != NULL && !json_is_object(mine)))
        return schema_wrong(b, "properties must be an object");
    TRY(spend(b, json_object_size(mine) + json_object_size(properties)));
    /* A copy: what is merged belongs to others. */
    json_t *all = mine != NULL ? json_copy(mine) : json_object();
    json_object_foreach((json_t *)properties, name, value) {
        const json_t *had = json_object_get(all, name);
        if (had == NULL)
            json_object_set(all, name, value);
        else if (!json_equal(had, value))
            json_object_set_new(all, name, both(had, value));
    }
    return json_object_set_new(into, "properties", all) == 0 ? ST_OK : schema_no_memory(b);
}

static enum status merge_required(struct schema_builder *b, json_t *into,
                                  const json_t *required) {
    json_t *mine = json_object_get(into, "required");
    TRY(spend(b, json_array_size(mine) + json_array_size(required)));
    json_t *all = json_array();
    if (json_is_array(mine))
        json_array_extend(all, mine);
    if (json_is_array(required))
        json_array_extend(all, (json_t *)required);
    return json_object_set_new(into, "required", all) == 0 ? ST_OK : schema_no_memory(b);
}

/* Types as a list: those in both. */
static enum status merge_types(struct schema_builder *b, json_t *into, const json_t *types) {
    json_t *mine = json_object_get(into, "type");
    TRY(spend(b, json_array_size(mine) * json_array_size(types)));
    json_t *one = json_is_array(mine) ? json_incref(mine) : json_pack("[O]", mine);
    json_t *two = json_is_array(types) ? json_incref((json_t *)types) : json_pack("[O]", types);
    json_t *common = json_array(), *v, *w;
    size_t i, k;
    json_array_foreach(one, i, v) json_array_foreach(two, k, w) {
        const char *x = json_string_value(v), *y = json_string_value(w);
        if (x == NULL || y == NULL)
            continue;
        if (str_eq(x, y) || (str_eq(x, "integer") && str_eq(y, "number")))
            json_array_append(common, v);
        else if (str_eq(x, "number") && str_eq(y, "integer"))
            json_array_append(common, w);
    }
    json_decref(one);
    json_decref(two);
    return json_object_set_new(into, "type", common) == 0 ? ST_OK : schema_no_memory(b);
}

static enum status merge_enum(struct schema_builder *b, json_t *into, const json_t *values) {
    json_t *mine = json_object_get(into, "enum"), *v, *w;
    size_t i, k;
    TRY(spend(b, json_array_size(mine) * json_array_size(values)));
    json_t *common = json_array();
    json_array_foreach(mine, i, v) json_array_foreach(values, k, w) if (json_equal(v, w)) {
        json_array_append(common, v);
        break;
    }
    return json_object_set_new(into, "enum", common) == 0 ? ST_OK : schema_no_memory(b);
}

/* The stricter of two numbers. */
static bool is_limit(const char *key, bool *lower) {
    static const char *const lowers[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                         "minProperties"};
    static const char *const uppers[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                         "maxProperties"};
    for (size_t i = 0; i < ARRAY_LEN(lowers); i++) {
        *lower = str_eq(lowers[i], key);
        if (*lower || str_eq(uppers[i], key))
            return true;
    }
    return false;
}

static enum status merge_key(struct schema_builder *b, json_t *into, const char *key,
                             const json_t *v) {
    json_t *mine = json_object_get(into, key);
    bool lower;
    if (str_eq(key, "properties"))
        return merge_properties(b, into, v);
    if (str_eq(key, "required"))
        return merge_required(b, into, v);
    if (mine == NULL)
        return json_object_set(into, key, (json_t *)v) == 0 ? ST_OK : schema_no_memory(b);
    if (json_equal(mine, v))
        return ST_OK;
    if (str_eq(key, "type"))
        return merge_types(b, into, v);
    if (str_eq(key, "enum"))
        return merge_enum(b, into, v);
    if (str_eq(key, "items") && json_is_object(mine) && json_is_object(v))
        return json_object_set_new(into, key, both(mine, v)) == 0 ? ST_OK : schema_no_memory(b);
    if (json_is_number(mine) && json_is_number(v) && is_limit(key, &lower)) {
        bool stricter = lower ? json_number_value(v) > json_number_value(mine)
                              : json_number_value(v) < json_number_value(mine);
        if (stricter && json_object_set(into, key, (json_t *)v) != 0)
            return schema_no_memory(b);
        return ST_OK;
    }
    if (schema_is_restricting(key))
        return err_set(b->err, ST_UNSUPPORTED,
                       "schema: \"%s\" cannot be merged with another \"%s\"", key, key);
    return ST_OK; /* an annotation */
}

/* additionalProperties: false on one side forbids what only the other side names. */
static bool closes_the_other(const json_t *a, const json_t *b) {
    const json_t *others = json_object_get(a, "additionalProperties");
    const char *name;
    const json_t *v;
    if (others == NULL || json_is_true(others))
        return false;
    json_object_foreach(json_object_get(b, "properties"), name,
                        v) if (json_object_get(json_object_get(a, "properties"), name) ==
                               NULL) return true;
    return false;
}

enum status schema_merge(struct schema_builder *b, json_t *into, const json_t *schema,
                         unsigned depth) {
    const char *key;
    const json_t *v;
    if (depth > SCHEMA_MAX_DEPTH)
        return schema_unsupported(b, "allOf and $ref are nested too deeply");
    TRY(spend(b, json_object_size(schema) + 1));
    if (json_is_true(schema))
        return ST_OK;
    if (!json_is_object(schema))
        return schema_unsupported(b, "allOf of something that is no object");
    if (closes_the_other(into, schema) || closes_the_other(schema, into))
        return schema_unsupported(b, "additionalProperties within allOf is not supported");
    json_object_foreach((json_t *)schema, key, v) {
        size_t i;
        const json_t *part;
        if (schema_is_unset(key, v))
            continue;
        if (str_eq(key, "allOf")) {
            json_array_foreach(v, i, part) TRY(schema_merge(b, into, part, depth + 1));
        } else if (str_eq(key, "$ref")) {
            TRY(schema_get_ref(b, v, &part));
            TRY(schema_merge(b, into, part, depth + 1));
        } else if (!str_eq(key, "$defs") && !str_eq(key, "definitions")) {
            TRY(merge_key(b, into, key, v));
        }
    }
    return ST_OK;
}

/* An empty schema that lives as long as the builder. */
enum status schema_new(struct schema_builder *b, json_t **out) {
    *out = json_object();
    if (*out == NULL || json_array_append_new(b->kept, *out) != 0)
        return schema_no_memory(b);
    return ST_OK;
}
