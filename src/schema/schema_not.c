/* schema_not.c: conditions as alternatives. The complement of a schema is composed of the
 * complements of its keywords, each for the type that it constrains. If no grammar can express
 * a keyword's complement, it is left out. So too little is allowed, never too much. */
#include "schema/schema_impl.h"

#include "base/util.h"

#define MAX_NEGATED_DEPTH 16
#define MAX_ONE_OF 64
#define MAX_STATES 500 /* of names that are compared */
#define MAX_OTHERS 8   /* alternatives that one is not to be */

/* --- alternatives that live as long as the builder --- */

static enum status new_list(struct schema_builder *b, json_t **out) {
    *out = json_array();
    return *out != NULL && json_array_append_new(b->kept, *out) == 0 ? ST_OK
                                                                     : schema_no_memory(b);
}

/* Takes `schema`; NULL: it could not be made. */
static enum status add(struct schema_builder *b, json_t *list, json_t *schema) {
    return json_array_append_new(list, schema) == 0 ? ST_OK : schema_no_memory(b);
}

/* --- what a schema does not allow --- */

static enum status negate(struct schema_builder *b, const json_t *schema, json_t *any,
                          unsigned depth);

static enum status negate_type(struct schema_builder *b, const json_t *types, json_t *any) {
    static const char *const all[] = {"object", "array", "string", "number", "boolean", "null"};
    json_t *others = json_array();
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const char *one = json_string_value(types);
        bool has = one != NULL && (str_eq(one, all[i]) ||
                                   (str_eq(one, "integer") && str_eq(all[i], "number")));
        size_t k;
        const json_t *v;
        json_array_foreach(types, k, v) {
            one = json_string_value(v);
            has = has || (one != NULL && (str_eq(one, all[i]) || (str_eq(one, "integer") &&
                                                                  str_eq(all[i], "number"))));
        }
        if (!has)
            json_array_append_new(others, json_string(all[i]));
    }
    if (json_array_size(others) == 0) {
        json_decref(others);
        return ST_OK;
    }
    return add(b, any, json_pack("{s:o}", "type", others));
}

static enum status negate_properties(struct schema_builder *b, const json_t *properties,
                                     json_t *any) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)properties, name, v) {
        if (json_is_true(v) || (json_is_object(v) && schema_count_restricting(v) == 0))
            continue;
        TRY(add(b, any,
                json_pack("{s:s, s:[s], s:{s:{s:O}}}", "type", "object", "required", name,
                          "properties", name, "not", v)));
    }
    return ST_OK;
}

static enum status negate_required(struct schema_builder *b, const json_t *names, json_t *any) {
    size_t i;
    const json_t *v;
    json_array_foreach(names, i, v) if (json_is_string(v)) TRY(add(
        b, any,
        json_pack("{s:s, s:{s:b}}", "type", "object", "properties", json_string_value(v), 0)));
    return ST_OK;
}

/* The opposite of a bound or a length: the same keyword's partner. */
static enum status negate_limit(struct schema_builder *b, const json_t *schema, const char *key,
                                const json_t *v, json_t *any) {
    static const struct {
        const char *key, *opposite, *type;
        int step;
    } limits[] = {
        {"minimum", "exclusiveMaximum", "number", 0},
        {"maximum", "exclusiveMinimum", "number", 0},
        {"exclusiveMinimum", "maximum", "number", 0},
        {"exclusiveMaximum", "minimum", "number", 0},
        {"minLength", "maxLength", "string", -1},
        {"maxLength", "minLength", "string", 1},
        {"minItems", "maxItems", "array", -1},
        {"maxItems", "minItems", "array", 1},
        {"minProperties", "maxProperties", "object", -1},
        {"maxProperties", "minProperties", "object", 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        if (!str_eq(limits[i].key, key) || !json_is_number(v))
            continue;
        const char *opposite = limits[i].opposite;
        if (i < 2 && json_is_true(json_object_get(schema, limits[i + 2].key)))
            opposite = i == 0 ? "maximum" : "minimum"; /* draft 4 */
        if (limits[i].step == 0)
            return add(b, any, json_pack("{s:s, s:O}", "type", limits[i].type, opposite, v));
        json_int_t n = (json_int_t)json_number_value(v) + limits[i].step;
        if (n < 0)
            return ST_OK;
        return add(b, any, json_pack("{s:s, s:I}", "type", limits[i].type, opposite, n));
    }
    return ST_OK;
}

static enum status negate_items(struct schema_builder *b, const json_t *schema, json_t *any) {
    const json_t *prefix = json_object_get(schema, "prefixItems"), *v;
    const json_t *items = json_object_get(schema, "items");
    size_t i;
    if (json_is_array(items))
        prefix = items;
    if (prefix == NULL && items != NULL)
        return add(b, any,
                   json_pack("{s:s, s:{s:O}}", "type", "array", "contains", "not", items));
    json_array_foreach(prefix, i, v) {
        json_t *tuple = json_array();
        for (size_t k = 0; k < i; k++)
            json_array_append_new(tuple, json_true());
        json_array_append_new(tuple, json_pack("{s:O}", "not", v));
        TRY(add(b, any,
                json_pack("{s:s, s:i, s:o, s:b}", "type", "array", "minItems", (int)i + 1,
                          "prefixItems", tuple, "items", 1)));
    }
    return ST_OK;
}

/* None of them: each one's opposite at the same time. */
static json_t *none_of(const json_t *parts) {
    json_t *all = json_array(), *v;
    size_t i;
    json_array_foreach(parts, i, v) json_array_append_new(all, json_pack("{s:O}", "not", v));
    return json_pack("{s:o}", "allOf", all);
}

static enum status negate_one_of(struct schema_builder *b, const json_t *parts, json_t *any) {
    size_t n = json_array_size(parts);
    TRY(add(b, any, none_of(parts)));
    for (size_t i = 0; i < n && n <= 8; i++)
        for (size_t k = i + 1; k < n; k++)
            TRY(add(b, any,
                    json_pack("{s:[O,O]}", "allOf", json_array_get(parts, i),
                              json_array_get(parts, k))));
    return ST_OK;
}

static enum status negate_dependencies(struct schema_builder *b, const json_t *dependencies,
                                       json_t *any) {
    const char *name;
    json_t *v, *w;
    size_t i;
    json_object_foreach((json_t *)dependencies, name, v) {
        if (!json_is_array(v)) {
            TRY(add(b, any,
                    json_pack("{s:[{s:s, s:[s]}, {s:O}]}", "allOf", "type", "object",
                              "required", name, "not", v)));
            continue;
        }
        json_array_foreach(v, i, w) if (json_is_string(w))
            TRY(add(b, any,
                    json_pack("{s:s, s:[s], s:{s:b}}", "type", "object", "required", name,
                              "properties", json_string_value(w), 0)));
    }
    return ST_OK;
}

static enum status negate_if(struct schema_builder *b, const json_t *schema, json_t *any) {
    const json_t *cond = json_object_get(schema, "if"), *then = json_object_get(schema, "then"),
                 *other = json_object_get(schema, "else");
    if (then != NULL)
        TRY(add(b, any, json_pack("{s:[O,{s:O}]}", "allOf", cond, "not", then)));
    if (other != NULL)
        TRY(add(b, any, json_pack("{s:[{s:O},{s:O}]}", "allOf", "not", cond, "not", other)));
    return ST_OK;
}

static enum status negate_ref(struct schema_builder *b, const json_t *ref, json_t *any,
                              unsigned depth) {
    const json_t *target;
    TRY(schema_get_ref(b, ref, &target));
    return negate(b, target, any, depth + 1);
}

/* Appends what the keyword does not allow. */
static enum status negate_key(struct schema_builder *b, const json_t *schema, const char *key,
                              const json_t *v, json_t *any, unsigned depth) {
    size_t i;
    const json_t *part;
    if (str_eq(key, "type"))
        return negate_type(b, v, any);
    if (str_eq(key, "enum"))
        return add(b, any, json_pack("{s:O}", SCHEMA_NOT_VALUES, v));
    if (str_eq(key, "const"))
        return add(b, any, json_pack("{s:[O]}", SCHEMA_NOT_VALUES, v));
    if (str_eq(key, "properties"))
        return negate_properties(b, v, any);
    if (str_eq(key, "required"))
        return negate_required(b, v, any);
    if (str_eq(key, "pattern"))
        return add(b, any, json_pack("{s:s, s:[O]}", "type", "string", SCHEMA_NOT_PATTERN, v));
    if (str_eq(key, "multipleOf"))
        return add(b, any, json_pack("{s:s, s:[O]}", "type", "number", SCHEMA_NOT_MULTIPLE, v));
    if (str_eq(key, "items"))
        return negate_items(b, schema, any);
    if (str_eq(key, "prefixItems") && json_object_get(schema, "items") == NULL)
        return negate_items(b, schema, any);
    if (str_eq(key, "contains") && json_object_get(schema, "minContains") == NULL)
        return add(b, any, json_pack("{s:s, s:{s:O}}", "type", "array", "items", "not", v));
    if (str_eq(key, "anyOf"))
        return add(b, any, none_of(v));
    if (str_eq(key, "oneOf"))
        return negate_one_of(b, v, any);
    if (str_eq(key, "not"))
        return add(b, any, json_incref((json_t *)v));
    if (str_eq(key, "if"))
        return negate_if(b, schema, any);
    if (str_eq(key, "dependentRequired") || str_eq(key, "dependentSchemas") ||
        str_eq(key, "dependencies"))
        return negate_dependencies(b, v, any);
    if (str_eq(key, "$ref"))
        return negate_ref(b, v, any, depth);
    if (str_eq(key, "allOf")) {
        json_array_foreach(v, i, part) TRY(negate(b, part, any, depth + 1));
        return ST_OK;
    }
    return negate_limit(b, schema, key, v, any);
}

static enum status negate(struct schema_builder *b, const json_t *schema, json_t *any,
                          unsigned depth) {
    const char *key;
    json_t *v;
    if (json_is_false(schema))
        return add(b, any, json_true());
    if (!json_is_object(schema) || depth > MAX_NEGATED_DEPTH)
        return ST_OK;
    if (json_is_true(json_object_get(schema, "nullable"))) {
        json_t *rest = json_copy((json_t *)schema);
        json_object_del(rest, "nullable");
        return add(b, any,
                   json_pack("{s:[{s:[n]},{s:o}]}", "allOf", SCHEMA_NOT_VALUES, "not", rest));
    }
    json_object_foreach((json_t *)schema, key, v) if (!schema_is_unset(key, v))
        TRY(negate_key(b, schema, key, v, any, depth));
    return ST_OK;
}

/* Does it speak of anything at all? What is not understood counts. */
static bool allows_all(struct schema_builder *b, const json_t *schema) {
    const json_t *target;
    if (!json_is_object(schema))
        return json_is_true(schema);
    size_t n = schema_count_restricting(schema);
    return n == 0 || (n == 1 && json_object_get(schema, "$ref") != NULL &&
                      schema_get_ref(b, json_object_get(schema, "$ref"), &target) == ST_OK &&
                      target != schema && json_is_true(target));
}

static enum status merge_not(struct schema_builder *b, json_t *into, const json_t *schema,
                             unsigned depth) {
    json_t *any;
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return schema_wrong(b, "a schema must be an object or a boolean");
    if (allows_all(b, schema))
        return schema_merge_never(b, into);
    if (b->in_unevaluated > 0)
        return schema_unsupported(b, "\"not\" or \"if\" beside unevaluatedProperties or "
                                     "unevaluatedItems");
    TRY(new_list(b, &any));
    TRY(negate(b, schema, any, 0));
    if (json_array_size(any) == 0)
        return schema_unsupported(b, "\"not\" (or what it comes from: if, oneOf) of such a "
                                     "schema");
    return schema_merge_any(b, into, any, depth);
}

/* --- conditions --- */

/* Either without `name`, or with what it then asks for. */
static enum status merge_dependency(struct schema_builder *b, json_t *into, const char *name,
                                    const json_t *v, unsigned depth) {
    json_t *any, *then;
    TRY(new_list(b, &any));
    TRY(add(b, any, json_pack("{s:{s:b}}", "properties", name, 0)));
    if (json_is_array(v))
        then = json_pack("{s:[s], s:[{s:O}]}", "required", name, "allOf", "required", v);
    else if (json_is_string(v)) /* draft 3 */
        then = json_pack("{s:[s,O]}", "required", name, v);
    else
        then = json_pack("{s:[s], s:[O]}", "required", name, "allOf", v);
    TRY(add(b, any, then));
    return schema_merge_any(b, into, any, depth);
}

static enum status merge_if(struct schema_builder *b, json_t *into, const json_t *schema,
                            unsigned depth) {
    const json_t *cond = json_object_get(schema, "if"), *then = json_object_get(schema, "then"),
                 *other = json_object_get(schema, "else");
    json_t *any;
    if (then == NULL && other == NULL && b->in_unevaluated == 0)
        return ST_OK;
    TRY(new_list(b, &any));
    TRY(add(b, any,
            then != NULL ? json_pack("{s:[O,O]}", "allOf", cond, then)
                         : json_incref((json_t *)cond)));
    TRY(add(b, any,
            other != NULL ? json_pack("{s:[{s:O},O]}", "allOf", "not", cond, other)
                          : json_pack("{s:O}", "not", cond)));
    return schema_merge_any(b, into, any, depth);
}

enum status schema_merge_conditions(struct schema_builder *b, json_t *into,
                                    const json_t *schema, unsigned depth) {
    static const char *const keys[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const json_t *v = json_object_get(schema, keys[i]);
        const char *name;
        json_t *then;
        if (schema_says(schema, keys[i]) && !json_is_object(v))
            return err_set(b->err, ST_BAD_INPUT, "schema: %s must be an object", keys[i]);
        json_object_foreach((json_t *)v, name, then)
            TRY(merge_dependency(b, into, name, then, depth));
    }
    if (schema_says(schema, "if"))
        TRY(merge_if(b, into, schema, depth));
    if (schema_says(schema, "not"))
        return merge_not(b, into, json_object_get(schema, "not"), depth);
    return ST_OK;
}

enum status schema_merge_nullable(struct schema_builder *b, json_t *into, const json_t *schema,
                                  unsigned depth) {
    json_t *any, *rest = json_copy((json_t *)schema);
    json_object_del(rest, "nullable");
    TRY(new_list(b, &any));
    TRY(add(b, any, json_pack("{s:n}", "const")));
    TRY(add(b, any, rest));
    return schema_merge_any(b, into, any, depth);
}

/* --- oneOf --- */

static bool types_meet(const char *x, const char *y) {
    return str_eq(x, y) || (str_eq(x, "integer") && str_eq(y, "number")) ||
           (str_eq(x, "number") && str_eq(y, "integer"));
}

static bool types_disjoint(const json_t *x, const json_t *y) {
    size_t n = json_is_array(x) ? json_array_size(x) : 1,
           m = json_is_array(y) ? json_array_size(y) : 1;
    if (x == NULL || y == NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++) {
            const char *s = json_string_value(json_is_array(x) ? json_array_get(x, i) : x);
            const char *t = json_string_value(json_is_array(y) ? json_array_get(y, k) : y);
            if (s == NULL || t == NULL || types_meet(s, t))
                return false;
        }
    return true;
}

static bool among(const json_t *value, const json_t *schema) {
    const json_t *values = json_object_get(schema, "enum"), *v;
    const json_t *constant = json_object_get(schema, "const");
    size_t i;
    if (constant != NULL && !schema_equal(constant, value))
        return false;
    if (values == NULL)
        return true;
    json_array_foreach(values, i, v) if (schema_equal(v, value)) return true;
    return false;
}

/* x lists its values, and y has none of them. */
static bool values_disjoint(const json_t *x, const json_t *y) {
    const json_t *values = json_object_get(x, "enum"), *v;
    const json_t *constant = json_object_get(x, "const");
    size_t i;
    if (constant == NULL && !json_is_array(values))
        return false;
    if (json_object_get(y, "const") == NULL && json_object_get(y, "enum") == NULL &&
        json_object_get(y, "type") == NULL)
        return false;
    if (constant != NULL)
        return !among(constant, y) || !schema_type_allows(json_object_get(y, "type"), constant);
    json_array_foreach(values, i,
                       v) if (among(v, y) &&
                              schema_type_allows(json_object_get(y, "type"), v)) return false;
    return true;
}

static bool disjoint(struct schema_builder *b, const json_t *x, const json_t *y,
                     unsigned depth);

static const json_t *follow(struct schema_builder *b, const json_t *schema) {
    const json_t *target = schema;
    for (int i = 0; i < 8 && json_object_get(target, "$ref") != NULL; i++)
        if (schema_count_restricting(target) > 1 ||
            schema_get_ref(b, json_object_get(target, "$ref"), &target) != ST_OK)
            break;
    return target;
}

/* An object of x has a property that none of y has. */
static bool objects_disjoint(struct schema_builder *b, const json_t *x, const json_t *y,
                             unsigned depth) {
    const json_t *required = json_object_get(x, "required"), *v;
    const json_t *p = json_object_get(x, "properties"), *q = json_object_get(y, "properties");
    const json_t *patterns = json_object_get(y, "patternProperties");
    bool closed = json_is_false(json_object_get(y, "additionalProperties"));
    size_t i;
    json_array_foreach(required, i, v) {
        const char *name = json_string_value(v);
        const json_t *mine = name != NULL ? json_object_get(p, name) : NULL;
        const json_t *theirs = name != NULL ? json_object_get(q, name) : NULL;
        if (name == NULL)
            continue;
        bool matches = true;
        if (theirs == NULL && closed &&
            schema_matches_a_pattern(b, patterns, name, &matches) == ST_OK && !matches)
            return true;
        if (json_is_false(theirs))
            return true;
        if (mine != NULL && theirs != NULL && disjoint(b, mine, theirs, depth + 1))
            return true;
    }
    return false;
}

/* The names that objects of a schema may have, if it says so: additionalProperties is false. */
static bool read_names(struct schema_builder *b, const json_t *schema, uint32_t *term) {
    struct regular *r = &b->regular;
    const char *name;
    json_t *v;
    *term = r->nothing;
    if (!json_is_false(json_object_get(schema, "additionalProperties")))
        return false;
    json_object_foreach(json_object_get(schema, "properties"), name, v) *term =
        regular_or(r, *term, regular_text(r, name, strlen(name)));
    json_object_foreach(json_object_get(schema, "patternProperties"), name, v) {
        uint32_t matches = 0;
        if (schema_pattern(r, &matches, name, strlen(name), b->err) != ST_OK)
            return false;
        *term = regular_or(r, *term, matches);
    }
    return true;
}

static bool is_never_empty(const json_t *schema) {
    return json_number_value(json_object_get(schema, "minProperties")) >= 1 ||
           json_array_size(json_object_get(schema, "required")) > 0;
}

/* They have no name in common, and only one of them may be without any. */
static bool names_disjoint(struct schema_builder *b, const json_t *x, const json_t *y) {
    struct regular_automaton a = {0};
    uint32_t p, q;
    if ((!is_never_empty(x) && !is_never_empty(y)) || !read_names(b, x, &p) ||
        !read_names(b, y, &q))
        return false;
    enum status st =
        regular_automaton_init(&a, &b->regular, regular_and(&b->regular, p, q), MAX_STATES);
    bool apart = st == ST_OK && regular_automaton_is_empty(&a);
    regular_automaton_deinit(&a);
    return apart;
}

/* One of x's parts is disjoint from y; each of its alternatives is. */
static bool parts_disjoint(struct schema_builder *b, const json_t *x, const json_t *y,
                           unsigned depth) {
    static const char *const any[] = {"anyOf", "oneOf"};
    const json_t *part;
    size_t i;
    json_array_foreach(json_object_get(x, "allOf"), i,
                       part) if (disjoint(b, part, y, depth + 1)) return true;
    for (size_t k = 0; k < ARRAY_LEN(any); k++) {
        const json_t *parts = json_object_get(x, any[k]);
        bool all = json_array_size(parts) > 0;
        json_array_foreach(parts, i, part) all = all && disjoint(b, part, y, depth + 1);
        if (all)
            return true;
    }
    return false;
}

/* Its type is object, or it has none and speaks of properties. */
static bool is_of_objects(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type");
    if (type == NULL)
        return json_object_get(schema, "properties") != NULL ||
               json_object_get(schema, "required") != NULL ||
               json_object_get(schema, "patternProperties") != NULL;
    return json_is_string(type) && str_eq(json_string_value(type), "object");
}

/* True: no value is of both; where neither has a type, no object. */
static bool disjoint(struct schema_builder *b, const json_t *x, const json_t *y,
                     unsigned depth) {
    if (depth > 6 || ++b->work > SCHEMA_MAX_WORK)
        return false;
    x = follow(b, x);
    y = follow(b, y);
    if (json_is_false(x) || json_is_false(y))
        return true;
    if (!json_is_object(x) || !json_is_object(y) ||
        json_is_true(json_object_get(x, "nullable")) ||
        json_is_true(json_object_get(y, "nullable")))
        return false;
    bool objects = is_of_objects(x) && is_of_objects(y);
    return types_disjoint(json_object_get(x, "type"), json_object_get(y, "type")) ||
           values_disjoint(x, y) || values_disjoint(y, x) ||
           (objects && (objects_disjoint(b, x, y, depth) || objects_disjoint(b, y, x, depth) ||
                        names_disjoint(b, x, y))) ||
           parts_disjoint(b, x, y, depth) || parts_disjoint(b, y, x, depth);
}

bool schema_disjoint(struct schema_builder *b, const json_t *x, const json_t *y) {
    return disjoint(b, x, y, 0);
}

/* Does it come to something, merged? Sentences about why not are of no use. */
static enum status can_merge(struct schema_builder *b, const json_t *schema, unsigned depth,
                             bool *can) {
    json_t *whole;
    TRY(schema_new(b, &whole));
    enum status st = schema_merge(b, whole, schema, depth + 1);
    *can = st == ST_OK;
    return st == ST_UNSUPPORTED ? ST_OK : st;
}

/* Each alternative without what others allow as well. If that cannot be expressed, the
 * alternative stays as it is, and too much is allowed (oneOf is read as anyOf). */
enum status schema_one_of(struct schema_builder *b, const json_t *parts, const json_t **out,
                          unsigned depth) {
    size_t n = json_array_size(parts);
    json_t *any;
    *out = parts;
    if (n == 1 || n > MAX_ONE_OF || depth > 8)
        return ST_OK;
    TRY(new_list(b, &any));
    for (size_t i = 0; i < n; i++) {
        json_t *mine = json_array_get(parts, i), *all = json_pack("[O]", mine);
        bool objects = is_of_objects(follow(b, mine)), apart = false;
        size_t n_others = 0;
        for (size_t k = 0; k < n; k++) {
            json_t *other = json_array_get(parts, k);
            if (k != i && !disjoint(b, mine, other, 0))
                n_others += json_array_append_new(all, json_pack("{s:O}", "not", other)) == 0;
            else if (k != i)
                apart = true;
        }
        if (apart && objects) /* told apart as objects */
            json_array_append_new(all, json_pack("{s:s}", "type", "object"));
        bool alone = json_array_size(all) == 1 || n_others > MAX_OTHERS, can = false;
        json_t *exact = json_pack("{s:o}", "allOf", all);
        enum status st = alone ? ST_OK : can_merge(b, exact, depth, &can);
        if (st == ST_OK)
            st = add(b, any, json_incref(can ? exact : mine));
        json_decref(exact);
        TRY(st);
    }
    *out = any;
    return ST_OK;
}
