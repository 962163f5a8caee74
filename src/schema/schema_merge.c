/* schema_merge.c: resolves $ref, and merges several schemas that must all hold into one.
 * Keywords that refer to each other (properties and additionalProperties, prefixItems and
 * items) are merged together. Conditions (not, if, dependentRequired, oneOf ...) become
 * alternatives first: schema_not.c. */
#include "schema/schema_impl.h"

#include "base/json.h"
#include "base/util.h"

#define MAX_ALTERNATIVES 256

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
    return b->work <= SCHEMA_MAX_WORK ? ST_OK
                                      : schema_unsupported(b, "it takes too long to merge");
}

static enum status set_new(struct schema_builder *b, json_t *o, const char *key, json_t *v) {
    return json_object_set_new(o, key, v) == 0 ? ST_OK : schema_no_memory(b);
}

/* Both must hold: schemas of one property, of items ... NULL: anything. A new reference. */
static json_t *both(const json_t *x, const json_t *y) {
    if (x == NULL || json_is_true(x) || json_is_false(y) || (y != NULL && json_equal(x, y)))
        return json_incref((json_t *)(y != NULL ? y : x != NULL ? x : json_true()));
    if (y == NULL || json_is_true(y) || json_is_false(x))
        return json_incref((json_t *)x);
    return json_pack("{s:[O,O]}", "allOf", x, y);
}

/* --- properties, patternProperties, additionalProperties --- */

enum status schema_matches_a_pattern(struct schema_builder *b, const json_t *patterns,
                                     const char *name, bool *matches) {
    const char *pattern;
    json_t *v;
    *matches = false;
    json_object_foreach((json_t *)patterns, pattern, v) {
        uint32_t term = 0;
        TRY(schema_pattern(&b->regular, &term, pattern, strlen(pattern), b->err));
        *matches = *matches || regular_matches(&b->regular, term, name, strlen(name));
    }
    return schema_regular_status(b);
}

/* What `schema` says of a property that it may not name: NULL for nothing. */
static enum status said_of(struct schema_builder *b, const json_t *schema, const char *name,
                           const json_t **out) {
    bool matches;
    *out = json_object_get(json_object_get(schema, "properties"), name);
    if (*out != NULL)
        return ST_OK;
    TRY(schema_matches_a_pattern(b, json_object_get(schema, "patternProperties"), name,
                                 &matches));
    *out = matches ? NULL : json_object_get(schema, "additionalProperties");
    return ST_OK;
}

static enum status merge_properties(struct schema_builder *b, json_t *into,
                                    const json_t *schema, json_t *all) {
    const json_t *sides[] = {into, schema};
    for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
        const char *name;
        json_t *v;
        json_object_foreach(json_object_get(sides[i], "properties"), name, v) {
            const json_t *other;
            if (json_object_get(all, name) != NULL)
                continue;
            TRY(said_of(b, sides[1 - i], name, &other));
            TRY(set_new(b, all, name, i == 0 ? both(v, other) : both(other, v)));
        }
    }
    return ST_OK;
}

/* Names that match a pattern of one side are what additionalProperties of the other speaks of. */
static enum status merge_patterns(struct schema_builder *b, const json_t *into,
                                  const json_t *schema, json_t *all) {
    const json_t *sides[] = {into, schema};
    for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
        const json_t *patterns = json_object_get(sides[i], "patternProperties");
        const json_t *others = json_object_get(sides[1 - i], "additionalProperties");
        const json_t *other_patterns = json_object_get(sides[1 - i], "patternProperties");
        bool open = others == NULL || json_is_true(others);
        const char *pattern, *name;
        json_t *v, *w;
        json_object_foreach((json_t *)patterns, pattern, v) {
            const json_t *other = json_object_get(other_patterns, pattern);
            if (!open && other == NULL && json_object_size(other_patterns) > 0)
                return schema_unsupported(
                    b, "patternProperties beside others with additionalProperties");
            json_object_foreach(json_object_get(sides[1 - i], "properties"), name, w) {
                bool matches;
                json_t *only = json_pack("{s:O}", pattern, v);
                enum status st = schema_matches_a_pattern(b, only, name, &matches);
                json_decref(only);
                if (st == ST_OK && matches && !open)
                    st = schema_unsupported(
                        b, "patternProperties that match properties of another schema with "
                           "additionalProperties");
                TRY(st);
            }
            if (json_object_get(all, pattern) == NULL)
                TRY(set_new(b, all, pattern, both(v, other != NULL ? other : others)));
        }
    }
    return ST_OK;
}

static enum status check_object(struct schema_builder *b, const json_t *schema,
                                const char *key) {
    const json_t *v = json_object_get(schema, key);
    if (v != NULL && !json_is_object(v))
        return err_set(b->err, ST_BAD_INPUT, "schema: %s must be an object", key);
    return spend(b, json_object_size(v));
}

static enum status merge_object(struct schema_builder *b, json_t *into, const json_t *schema) {
    const json_t *mine = json_object_get(into, "additionalProperties");
    const json_t *theirs = json_object_get(schema, "additionalProperties");
    const json_t *sides[] = {into, schema};
    for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
        TRY(check_object(b, sides[i], "properties"));
        TRY(check_object(b, sides[i], "patternProperties"));
    }
    json_t *properties = json_object(), *patterns = json_object();
    enum status st = properties == NULL || patterns == NULL ? schema_no_memory(b) : ST_OK;
    if (st == ST_OK)
        st = merge_properties(b, into, schema, properties);
    if (st == ST_OK)
        st = merge_patterns(b, into, schema, patterns);
    if (st == ST_OK && (mine != NULL || theirs != NULL))
        st = set_new(b, into, "additionalProperties", both(mine, theirs));
    if (st == ST_OK && (json_object_get(into, "properties") != NULL ||
                        json_object_get(schema, "properties") != NULL))
        st = json_object_set(into, "properties", properties) == 0 ? ST_OK : schema_no_memory(b);
    if (st == ST_OK && json_object_size(patterns) > 0)
        st = json_object_set(into, "patternProperties", patterns) == 0 ? ST_OK
                                                                       : schema_no_memory(b);
    json_decref(properties);
    json_decref(patterns);
    return st;
}

/* --- items --- */

/* A schema's tuple, and what is said of items behind it; NULL: nothing. */
static void read_items(const json_t *schema, const json_t **prefix, const json_t **rest) {
    const json_t *items = json_object_get(schema, "items");
    *prefix = json_object_get(schema, "prefixItems");
    *rest = items;
    if (json_is_array(items)) { /* before draft 2020-12 */
        *prefix = items;
        *rest = json_object_get(schema, "additionalItems");
    }
}

static enum status merge_items(struct schema_builder *b, json_t *into, const json_t *schema) {
    const json_t *mine, *my_rest, *theirs, *their_rest;
    read_items(into, &mine, &my_rest);
    read_items(schema, &theirs, &their_rest);
    if (theirs == NULL && their_rest == NULL)
        return ST_OK;
    size_t n = MAX(json_array_size(mine), json_array_size(theirs));
    TRY(spend(b, n));
    json_t *prefix = json_array(), *rest = both(my_rest, their_rest);
    for (size_t i = 0; i < n; i++) {
        const json_t *x = i < json_array_size(mine) ? json_array_get(mine, i) : my_rest;
        const json_t *y = i < json_array_size(theirs) ? json_array_get(theirs, i) : their_rest;
        json_array_append_new(prefix, both(x, y));
    }
    enum status st =
        my_rest != NULL || their_rest != NULL
            ? (json_object_set(into, "items", rest) == 0 ? ST_OK : schema_no_memory(b))
            : ST_OK;
    if (my_rest == NULL && their_rest == NULL)
        json_object_del(into, "items");
    if (st == ST_OK && n > 0)
        st = json_object_set(into, "prefixItems", prefix) == 0 ? ST_OK : schema_no_memory(b);
    json_object_del(into, "additionalItems");
    json_decref(prefix);
    json_decref(rest);
    return st;
}

/* --- other keywords --- */

static enum status merge_list(struct schema_builder *b, json_t *into, const char *key,
                              const json_t *more) {
    json_t *mine = json_object_get(into, key);
    TRY(spend(b, json_array_size(mine) + json_array_size(more)));
    json_t *all = json_array();
    if (json_is_array(mine))
        json_array_extend(all, mine);
    if (json_is_array(more))
        json_array_extend(all, (json_t *)more);
    return set_new(b, into, key, all);
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
    return set_new(b, into, "type", common);
}

static enum status merge_enum(struct schema_builder *b, json_t *into, const json_t *values) {
    json_t *mine = json_object_get(into, "enum"), *v, *w;
    size_t i, k;
    if (mine == NULL)
        return json_object_set(into, "enum", (json_t *)values) == 0 ? ST_OK
                                                                    : schema_no_memory(b);
    TRY(spend(b, json_array_size(mine) * json_array_size(values)));
    json_t *common = json_array();
    json_array_foreach(mine, i, v) json_array_foreach(values, k, w) if (schema_equal(v, w)) {
        json_array_append(common, v);
        break;
    }
    return set_new(b, into, "enum", common);
}

enum status schema_merge_never(struct schema_builder *b, json_t *into) {
    return set_new(b, into, "enum", json_array());
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

/* Keywords that may occur several times: where the second and further values go. */
static const char *also(const char *key) {
    return str_eq(key, "pattern")      ? SCHEMA_ALSO_PATTERN
           : str_eq(key, "format")     ? SCHEMA_ALSO_FORMAT
           : str_eq(key, "multipleOf") ? SCHEMA_ALSO_MULTIPLE
                                       : NULL;
}

static bool is_list(const char *key) {
    static const char *const lists[] = {
        "required",        SCHEMA_ALSO_PATTERN,  SCHEMA_NOT_PATTERN, SCHEMA_ALSO_FORMAT,
        SCHEMA_NOT_VALUES, SCHEMA_ALSO_MULTIPLE, SCHEMA_NOT_MULTIPLE};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        if (str_eq(lists[i], key))
            return true;
    return false;
}

static enum status merge_key(struct schema_builder *b, json_t *into, const char *key,
                             const json_t *v) {
    json_t *mine = json_object_get(into, key);
    bool lower;
    if (is_list(key))
        return merge_list(b, into, key, v);
    if (mine == NULL)
        return json_object_set(into, key, (json_t *)v) == 0 ? ST_OK : schema_no_memory(b);
    if (json_equal(mine, v))
        return ST_OK;
    if (str_eq(key, "type"))
        return merge_types(b, into, v);
    if (str_eq(key, "enum"))
        return merge_enum(b, into, v);
    if (str_eq(key, "const"))
        return schema_equal(mine, v) ? ST_OK : schema_merge_never(b, into);
    if (str_eq(key, "uniqueItems") || str_eq(key, "nullable")) {
        bool wanted = str_eq(key, "uniqueItems");
        return json_is_true(v) == wanted ? set_new(b, into, key, json_boolean(wanted)) : ST_OK;
    }
    if (str_eq(key, "propertyNames"))
        return set_new(b, into, key, both(mine, v));
    if (json_is_number(mine) && json_is_number(v) && is_limit(key, &lower)) {
        int order = schema_compare(v, mine);
        if ((lower ? order > 0 : order < 0) && json_object_set(into, key, (json_t *)v) != 0)
            return schema_no_memory(b);
        return ST_OK;
    }
    if (also(key) != NULL) {
        json_t *one = json_pack("[O]", v);
        enum status st = merge_list(b, into, also(key), one);
        json_decref(one);
        return st;
    }
    if (schema_is_restricting(key))
        return err_set(b->err, ST_UNSUPPORTED,
                       "schema: \"%s\" cannot be merged with another \"%s\"", key, key);
    return ST_OK; /* an annotation */
}

/* Draft 4: exclusiveMinimum says how minimum is meant. */
static const char *key_meant(const json_t *schema, const char *key) {
    if (str_eq(key, "minimum") && json_is_true(json_object_get(schema, "exclusiveMinimum")))
        return "exclusiveMinimum";
    if (str_eq(key, "maximum") && json_is_true(json_object_get(schema, "exclusiveMaximum")))
        return "exclusiveMaximum";
    bool flag = str_eq(key, "exclusiveMinimum") || str_eq(key, "exclusiveMaximum");
    return flag && json_is_boolean(json_object_get(schema, key)) ? NULL : key;
}

static bool is_merged_elsewhere(const char *key) {
    static const char *const keys[] = {
        "properties", "patternProperties", "additionalProperties",  "prefixItems",
        "items",      "additionalItems",   "unevaluatedProperties", "unevaluatedItems",
        "$defs",      "definitions"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (str_eq(keys[i], key))
            return true;
    return false;
}

/* Keywords that speak of the same value as the schema that they are in. */
static bool is_in_place(const char *key) {
    static const char *const keys[] = {"allOf",
                                       "$ref",
                                       "anyOf",
                                       "oneOf",
                                       "not",
                                       "if",
                                       "then",
                                       "else",
                                       "dependentRequired",
                                       "dependentSchemas",
                                       "dependencies"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (str_eq(keys[i], key))
            return true;
    return false;
}

static enum status merge_own(struct schema_builder *b, json_t *into, const json_t *schema) {
    const char *key;
    json_t *v;
    TRY(merge_object(b, into, schema));
    TRY(merge_items(b, into, schema));
    json_object_foreach((json_t *)schema, key, v) {
        const char *meant = key_meant(schema, key);
        if (meant == NULL || schema_is_unset(key, v) || is_merged_elsewhere(key) ||
            is_in_place(key))
            continue;
        TRY(merge_key(b, into, meant, v));
    }
    return ST_OK;
}

/* --- alternatives --- */

/* One of the schemas of `any` must hold as well. Two such lists become one, of pairs. */
enum status schema_merge_any(struct schema_builder *b, json_t *into, const json_t *any,
                             unsigned depth) {
    json_t *mine = json_object_get(into, "anyOf"), *v, *w;
    size_t i, k, n = json_array_size(any), n_mine = json_array_size(mine);
    if (n == 0)
        return schema_merge_never(b, into);
    if (n == 1)
        return schema_merge(b, into, json_array_get(any, 0), depth + 1);
    if (mine == NULL)
        return json_object_set(into, "anyOf", (json_t *)any) == 0 ? ST_OK : schema_no_memory(b);
    TRY(spend(b, n * n_mine));
    if (n * n_mine > 4 * MAX_ALTERNATIVES)
        return schema_unsupported(b, "too many alternatives (anyOf, oneOf, not, if, "
                                     "dependentRequired) that must hold together");
    json_t *pairs = json_array();
    json_array_foreach(mine, i, v) json_array_foreach(any, k, w) if (!schema_disjoint(b, v, w))
        json_array_append_new(pairs, both(v, w));
    if (json_array_size(pairs) == 0)
        json_array_append_new(pairs, json_false());
    return set_new(b, into, "anyOf", pairs);
}

static enum status merge_all_of(struct schema_builder *b, json_t *into, const json_t *schema,
                                unsigned depth) {
    const json_t *parts = json_object_get(schema, "allOf"), *part;
    const json_t *ref = json_object_get(schema, "$ref");
    size_t i;
    if (parts != NULL && !json_is_null(parts) && !json_is_array(parts))
        return schema_wrong(b, "allOf must be an array");
    json_array_foreach(parts, i, part) TRY(schema_merge(b, into, part, depth + 1));
    if (ref == NULL || json_is_null(ref))
        return ST_OK;
    TRY(schema_get_ref(b, ref, &part));
    return schema_merge(b, into, part, depth + 1);
}

static enum status merge_alternatives(struct schema_builder *b, json_t *into,
                                      const json_t *schema, unsigned depth) {
    static const char *const keys[] = {"anyOf", "oneOf"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const json_t *any = json_object_get(schema, keys[i]);
        if (any == NULL || json_is_null(any))
            continue;
        if (!json_is_array(any) || json_array_size(any) == 0)
            return err_set(b->err, ST_BAD_INPUT, "schema: %s must be an array, not empty",
                           keys[i]);
        if (i == 1)
            TRY(schema_one_of(b, any, &any, depth));
        TRY(schema_merge_any(b, into, any, depth));
    }
    return schema_merge_conditions(b, into, schema, depth);
}

bool schema_stands_before(const json_t *schema, const char *a, const char *b) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)schema, key,
                        v) if (str_eq(key, a) || str_eq(key, b)) return str_eq(key, a);
    return false;
}

/* --- unevaluatedProperties, unevaluatedItems --- */

/* Beside alternatives, in each of them. */
static enum status merge_each_unevaluated(struct schema_builder *b, json_t *into, json_t *whole,
                                          const json_t *schema, unsigned depth) {
    const char *keys[] = {"unevaluatedProperties", "unevaluatedItems"};
    json_t *any = json_incref(json_object_get(whole, "anyOf")), *part, *each = json_array();
    size_t i;
    json_object_del(whole, "anyOf");
    json_array_foreach(any, i, part) {
        json_t *one = json_pack("{s:[O,O]}", "allOf", whole, part);
        for (size_t k = 0; k < ARRAY_LEN(keys); k++)
            if (json_object_get(schema, keys[k]) != NULL)
                json_object_set(one, keys[k], json_object_get(schema, keys[k]));
        json_array_append_new(each, one);
    }
    json_decref(any);
    enum status st = json_array_append(b->kept, each) == 0 ? ST_OK : schema_no_memory(b);
    json_decref(each);
    return st == ST_OK ? schema_merge_any(b, into, each, depth) : st;
}

/* Merges the schema's other keywords first. What they leave open is what additionalProperties
 * and items would constrain. */
static enum status merge_unevaluated(struct schema_builder *b, json_t *into,
                                     const json_t *schema, unsigned depth) {
    json_t *rest, *whole;
    TRY(schema_new(b, &rest));
    TRY(schema_new(b, &whole));
    const json_t *properties = json_object_get(schema, "unevaluatedProperties");
    const json_t *items = json_object_get(schema, "unevaluatedItems");
    if (json_object_update(rest, (json_t *)schema) != 0)
        return schema_no_memory(b);
    json_object_del(rest, "unevaluatedProperties");
    json_object_del(rest, "unevaluatedItems");
    b->in_unevaluated++;
    enum status st = schema_merge(b, whole, rest, depth + 1);
    b->in_unevaluated--;
    TRY(st);
    if (json_object_get(whole, "anyOf") != NULL)
        return merge_each_unevaluated(b, into, whole, schema, depth);
    if (items != NULL && json_object_get(whole, "contains") != NULL)
        return schema_unsupported(b, "unevaluatedItems beside contains");
    if (properties != NULL && json_object_get(whole, "additionalProperties") == NULL &&
        json_object_set(whole, "additionalProperties", (json_t *)properties) != 0)
        return schema_no_memory(b);
    if (items != NULL && json_object_get(whole, "items") == NULL &&
        json_object_set(whole, "items", (json_t *)items) != 0)
        return schema_no_memory(b);
    return schema_merge(b, into, whole, depth + 1);
}

enum status schema_merge(struct schema_builder *b, json_t *into, const json_t *schema,
                         unsigned depth) {
    if (depth > SCHEMA_MAX_DEPTH)
        return schema_unsupported(b, "allOf and $ref are nested too deeply");
    TRY(spend(b, json_object_size(schema) + 1));
    if (json_is_true(schema))
        return ST_OK;
    if (json_is_false(schema))
        return schema_merge_never(b, into);
    if (!json_is_object(schema))
        return schema_wrong(b, "a schema must be an object or a boolean");
    TRY(schema_check_keywords(b, schema));
    if (schema_says(schema, "unevaluatedProperties") || schema_says(schema, "unevaluatedItems"))
        return merge_unevaluated(b, into, schema, depth);
    if (json_is_true(json_object_get(schema, "nullable")) && depth > 0)
        return schema_merge_nullable(b, into, schema, depth);
    bool all_first = schema_stands_before(schema, "allOf", "properties") ||
                     schema_stands_before(schema, "$ref", "properties");
    if (all_first)
        TRY(merge_all_of(b, into, schema, depth));
    TRY(merge_own(b, into, schema));
    if (!all_first)
        TRY(merge_all_of(b, into, schema, depth));
    return merge_alternatives(b, into, schema, depth);
}

/* An empty schema that lives as long as the builder. */
enum status schema_new(struct schema_builder *b, json_t **out) {
    *out = json_object();
    if (*out == NULL || json_array_append_new(b->kept, *out) != 0)
        return schema_no_memory(b);
    return ST_OK;
}
