/* schema_object.c: objects of a JSON Schema as GBNF: first the named properties, in the
 * schema's order. Then others, if the schema allows them, with different names. */
#include "schema/schema_impl.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"
#include "grammar/gbnf.h"
#include "schema/schema_pattern.h"

#include <stdlib.h>

#define MAX_PROPERTIES 5000 /* of one object */
#define MAX_PATTERNS 16     /* patternProperties of one */
#define MAX_REGIONS 64      /* sets of patterns that names may match at the same time */
#define MAX_NAME_STATES 2000

struct property {
    const char *name;
    const json_t *schema;
    bool required;
    bool never;    /* it must not be there, nor be taken for another one */
    unsigned pair; /* the rule of "name": value */
};

/* One of patternProperties. */
struct name_pattern {
    const char *text;
    const json_t *schema;
    uint32_t term;
};

struct object {
    struct property *properties;
    size_t n;
    uint32_t min, max;    /* properties */
    bool more;            /* others are allowed */
    bool open;            /* also such as match none of the patterns */
    const json_t *others; /* their schema, NULL: any value */
    const json_t *key;    /* that of all names, or NULL */
    struct name_pattern patterns[MAX_PATTERNS];
    size_t n_patterns;
    bool listed;    /* propertyNames lists all that there may be: `properties` has them */
    unsigned other; /* the rule of a pair of those */
    unsigned first; /* rules (i, n): see add_object_rules() */
    unsigned width;
};

static bool lists(const json_t *names, const char *name) {
    size_t i;
    const json_t *v;
    json_array_foreach(names, i, v) if (json_is_string(v) &&
                                        str_eq(json_string_value(v), name)) return true;
    return false;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct property *)a)->name, ((const struct property *)b)->name);
}

/* The rest of a key, from byte `at` on, that differs from all sorted names (which agree up to
 * there): anything after a character that none of them has there, or the key's end. */
static enum status add_other_key(struct schema_builder *b, const struct property *names,
                                 size_t n, size_t at, unsigned *rule) {
    struct buf t = {0}, others = {0};
    enum status st = schema_new_rule(b, rule);
    bool ends = false;
    buf_add_str(&others, "[^\"\\\\\\x00-\\x1f\\x7f");
    for (size_t i = 0; i < n && st == ST_OK;) {
        const char *name = names[i].name;
        if (name[at] == '\0') {
            ends = true;
            i++;
            continue;
        }
        int len = utf8_check((const uint8_t *)name + at, strlen(name + at));
        size_t step = len > 0 ? (size_t)len : 1, group = i;
        while (group < n && strncmp(names[group].name + at, name + at, step) == 0)
            group++;
        unsigned next = 0;
        st = add_other_key(b, names + i, group - i, at + step, &next);
        gbnf_literal(&t, name + at, step);
        buf_printf(&t, " r%u | ", next);
        gbnf_class_char(&others, utf8_decode((const uint8_t *)name + at, (int)step));
        i = group;
    }
    buf_add_str(&others, "]");
    if (st == ST_OK) {
        buf_add(&t, others.bytes, others.len);
        buf_add_str(&t, " plain* \"\\\"\"");
        buf_add_str(&t, ends ? "" : " | \"\\\"\"");
        t.failed = t.failed || others.failed;
        schema_put_rule(b, *rule, &t);
    }
    buf_free(&t);
    buf_free(&others);
    return st;
}

#define MAX_NAME 256 /* of a property, where others are allowed: the recursion's depth */

/* The key of a property that the schema does not name: one that it does not. */
static enum status add_unnamed_key(struct schema_builder *b, struct buf *t,
                                   const struct object *o) {
    unsigned key = 0;
    enum status st = ST_OK;
    struct property *sorted = mem_alloc(o->n * sizeof *sorted);
    if (sorted == NULL)
        return schema_no_memory(b);
    memcpy(sorted, o->properties, o->n * sizeof *sorted);
    qsort(sorted, o->n, sizeof *sorted, by_name);
    for (size_t i = 0; i < o->n && st == ST_OK; i++)
        if (strlen(sorted[i].name) > MAX_NAME)
            st = schema_unsupported(
                b, "a property's name is too long beside additionalProperties");
    if (st == ST_OK)
        st = add_other_key(b, sorted, o->n, 0, &key);
    mem_free(sorted);
    buf_printf(t, "\"\\\"\" r%u", key);
    return st;
}

/* --- other names, by the patterns that they match --- */

/* The strings that propertyNames allows. */
static enum status names_term(struct schema_builder *b, const json_t *key, uint32_t *term) {
    struct regular *r = &b->regular;
    uint32_t min = 0, max = SCHEMA_NO_LIMIT;
    json_t *whole;
    *term = r->all;
    if (key == NULL)
        return ST_OK;
    TRY(schema_new(b, &whole));
    TRY(schema_merge(b, whole, key, 0));
    TRY(schema_string_term(b, whole, term, &min, &max));
    if (min > 0 || max != SCHEMA_NO_LIMIT)
        *term = regular_and(r, *term, regular_repeat(r, r->any, min, max));
    return schema_regular_status(b);
}

static enum status is_empty(struct schema_builder *b, uint32_t term, bool *empty) {
    struct regular_automaton a = {0};
    enum status st = regular_automaton_init(&a, &b->regular, term, MAX_NAME_STATES);
    *empty = st == ST_OK && regular_automaton_is_empty(&a);
    regular_automaton_deinit(&a);
    if (st == ST_UNSUPPORTED && regular_status(&b->regular) == ST_OK)
        return schema_unsupported(b, "patternProperties or propertyNames are too large");
    return st == ST_OK ? ST_OK : schema_regular_status(b);
}

/* Names that match the patterns in the set and no others. */
struct region {
    uint32_t term;
    uint32_t set;
};

static enum status add_region(struct schema_builder *b, struct buf *t, const struct object *o,
                              struct region region) {
    json_t *all = json_array(), *whole;
    TRY(schema_new(b, &whole));
    for (size_t i = 0; i < o->n_patterns; i++)
        if ((region.set & 1u << i) != 0)
            json_array_append(all, (json_t *)o->patterns[i].schema);
    if (region.set == 0)
        json_array_append(all, (json_t *)(o->others != NULL ? o->others : json_true()));
    buf_add_str(t, " | \"\\\"\" ");
    enum status st = schema_add_text(b, t, region.term, 0, SCHEMA_NO_LIMIT);
    buf_add_str(t, " \"\\\":\" ws ");
    const json_t *value = json_array_size(all) == 1 ? json_array_get(all, 0) : whole;
    if (st == ST_OK && json_object_set(whole, "allOf", all) != 0)
        st = schema_no_memory(b);
    if (st == ST_OK)
        st = schema_add(b, t, value,
                        region.set != 0 ? "patternProperties" : "additionalProperties", NULL);
    json_decref(all);
    return st;
}

/* Splits each region in two, by one pattern after the other. */
static enum status split_regions(struct schema_builder *b, const struct object *o,
                                 struct region *regions, size_t *n) {
    struct regular *r = &b->regular;
    for (size_t i = 0; i < o->n_patterns; i++)
        for (size_t k = 0, had = *n; k < had; k++) {
            struct region with = {regular_and(r, regions[k].term, o->patterns[i].term),
                                  regions[k].set | 1u << i};
            bool empty;
            TRY(is_empty(b, with.term, &empty));
            if (empty)
                continue;
            if (*n == MAX_REGIONS)
                return schema_unsupported(b, "patternProperties overlap in too many ways");
            regions[(*n)++] = with;
            regions[k].term =
                regular_and(r, regions[k].term, regular_not(r, o->patterns[i].term));
        }
    return schema_regular_status(b);
}

static uint32_t named_term(struct schema_builder *b, const struct object *o) {
    uint32_t named = b->regular.nothing;
    for (size_t i = 0; i < o->n; i++)
        named = regular_or(
            &b->regular, named,
            regular_text(&b->regular, o->properties[i].name, strlen(o->properties[i].name)));
    return named;
}

/* A pair whose name the schema does not list, in each region separately. */
static enum status add_regions(struct schema_builder *b, struct buf *t, const struct object *o,
                               bool others) {
    struct region regions[MAX_REGIONS];
    uint32_t term = 0;
    size_t n = 1;
    TRY(names_term(b, o->key, &term));
    regions[0] = (struct region){
        regular_and(&b->regular, term, regular_not(&b->regular, named_term(b, o))), 0};
    TRY(split_regions(b, o, regions, &n));
    buf_add_str(t, SCHEMA_NOTHING);
    for (size_t i = others ? 0 : 1; i < n; i++)
        TRY(add_region(b, t, o, regions[i]));
    return ST_OK;
}

/* The pair of a property that the schema does not name. */
static enum status add_other_pair(struct schema_builder *b, struct object *o) {
    struct buf t = {0};
    enum status st;
    TRY(schema_new_rule(b, &o->other));
    if (o->key != NULL || o->n_patterns > 0) {
        st = add_regions(b, &t, o, o->open);
    } else {
        if (o->n > 0) {
            st = add_unnamed_key(b, &t, o);
        } else {
            st = ST_OK;
            buf_add_str(&t, "string");
        }
        buf_add_str(&t, " \":\" ws ");
        if (st == ST_OK)
            st = schema_add(b, &t, o->others != NULL ? o->others : json_true(),
                            "additionalProperties", NULL);
    }
    if (st == ST_OK)
        schema_put_rule(b, o->other, &t);
    buf_free(&t);
    return st;
}

static enum status add_pair(struct schema_builder *b, struct property *p) {
    struct buf t = {0};
    TRY(schema_new_rule(b, &p->pair));
    json_t *name = json_string(p->name);
    enum status st = name == NULL ? schema_no_memory(b) : schema_add_json(b, &t, name);
    json_decref(name);
    buf_add_str(&t, " \":\" ws ");
    if (st == ST_OK)
        st = schema_add(b, &t, p->schema, "properties", p->name);
    if (st == ST_OK)
        schema_put_rule(b, p->pair, &t);
    buf_free(&t);
    return st;
}

static unsigned object_rule(const struct object *o, size_t i, uint32_t n) {
    return o->first + (unsigned)i * o->width + MIN(n, o->width - 1);
}

/* Rule (i, n): what may follow before property i, with n properties written (counted up to
 * where it still matters). */
static void add_object_rule(struct schema_builder *b, const struct object *o, size_t i,
                            uint32_t n) {
    const char *comma = n > 0 ? "\",\" ws " : "";
    bool all = i == o->n, room = n < o->max && (all || !o->properties[i].never);
    buf_printf(&b->out, "r%u ::= ", object_rule(o, i, n));
    if (room && (!all || o->more))
        buf_printf(&b->out, "%sr%u r%u | ", comma, all ? o->other : o->properties[i].pair,
                   object_rule(o, all ? i : i + 1, n + 1));
    if (all)
        buf_add_str(&b->out, n < o->min ? SCHEMA_NOTHING : n > 0 ? "ws" : "\"\"");
    else if (o->properties[i].required)
        buf_add_str(&b->out, SCHEMA_NOTHING);
    else
        buf_printf(&b->out, "r%u", object_rule(o, i + 1, n));
    buf_add_str(&b->out, "\n");
}

static enum status add_object_rules(struct schema_builder *b, struct buf *t, struct object *o) {
    /* How far counting matters: to `min` or 1; to `max` if it can be met. */
    bool limited = o->max != SCHEMA_NO_LIMIT && (o->more || o->max < o->n);
    uint32_t count = limited ? o->max : MAX(o->min, 1u);
    if (count > SCHEMA_MAX_RULES)
        return schema_unsupported(b, "minProperties or maxProperties is too large");
    if (!limited)
        o->max = SCHEMA_NO_LIMIT;
    o->width = count + 1;
    unsigned rule;
    o->first = b->n_rules;
    for (size_t i = 0; i < (o->n + 1) * o->width; i++)
        TRY(schema_new_rule(b, &rule));
    for (size_t i = 0; i <= o->n; i++)
        for (uint32_t n = 0; n <= count; n++)
            add_object_rule(b, o, i, n);
    buf_printf(t, "\"{\" ws r%u \"}\"", o->first);
    return ST_OK;
}

/* The properties that the schema names, those only named as required last. */
static enum status collect_properties(struct schema_builder *b, const json_t *schema,
                                      struct object *o) {
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required"), *value;
    const json_t *others = json_object_get(schema, "additionalProperties");
    const char *name;
    size_t i;
    if (properties != NULL && !json_is_object(properties))
        return schema_wrong(b, "properties must be an object");
    if (json_is_boolean(required)) /* draft 3 */
        required = NULL;
    if (required != NULL && !json_is_array(required))
        return schema_wrong(b, "required must be an array");
    if (json_object_size(properties) + json_array_size(required) > MAX_PROPERTIES)
        return schema_unsupported(b, "too many properties");
    o->properties = mem_calloc(json_object_size(properties) + json_array_size(required) + 1,
                               sizeof *o->properties);
    if (o->properties == NULL)
        return schema_no_memory(b);
    json_object_foreach((json_t *)properties, name, value) {
        o->properties[o->n++] =
            (struct property){name, value, lists(required, name), json_is_false(value), 0};
    }
    json_array_foreach(required, i, value) {
        name = json_string_value(value);
        if (name == NULL)
            return schema_wrong(b, "required must hold strings");
        bool seen = false;
        for (size_t k = 0; k < o->n && !seen; k++)
            seen = str_eq(o->properties[k].name, name);
        if (!seen)
            o->properties[o->n++] = (struct property){
                name, others != NULL ? others : json_true(), true, json_is_false(others), 0};
    }
    return ST_OK;
}

/* Where propertyNames is an enum its names are properties like others: zod's records of an enum
 * require them all. */
static enum status collect_listed(struct schema_builder *b, const json_t *schema,
                                  struct object *o) {
    const json_t *others = json_object_get(schema, "additionalProperties"), *value;
    bool more =
        others != NULL ? !json_is_false(others) : json_object_get(schema, "properties") == NULL;
    size_t i, n_kept = 0, n_named = o->n;
    json_t *names = NULL;
    TRY(schema_listed_values(b, json_object_get(schema, "propertyNames"), &names));
    o->listed = names != NULL;
    if (!o->listed)
        return ST_OK;
    if (o->n + json_array_size(names) > MAX_PROPERTIES)
        return schema_unsupported(b, "too many properties");
    struct property *all =
        mem_realloc(o->properties, (o->n + json_array_size(names) + 1) * sizeof *o->properties);
    if (all == NULL)
        return schema_no_memory(b);
    o->properties = all;
    for (i = 0; i < n_named; i++) {
        bool listed = lists(names, all[i].name);
        if (!listed && !all[i].required)
            continue;
        all[n_kept] = all[i];
        all[n_kept++].never |= !listed;
    }
    o->n = n_kept;
    json_array_foreach(names, i, value) {
        const char *name = json_string_value(value);
        bool known = name == NULL || !more;
        known = known || json_object_get(json_object_get(schema, "properties"), name) != NULL;
        for (size_t k = 0; k < o->n && !known; k++)
            known = str_eq(all[k].name, name);
        if (!known)
            all[o->n++] = (struct property){name, others != NULL ? others : json_true(), false,
                                            json_is_false(others), 0};
    }
    return ST_OK;
}

/* patternProperties; a property that the schema names must be as they say as well. */
static enum status read_patterns(struct schema_builder *b, const json_t *schema,
                                 struct object *o) {
    const json_t *patterns = json_object_get(schema, "patternProperties");
    const char *text;
    json_t *value;
    if (patterns != NULL && !json_is_object(patterns))
        return schema_wrong(b, "patternProperties must be an object");
    if (json_object_size(patterns) > MAX_PATTERNS)
        return schema_unsupported(b, "so many patternProperties");
    json_object_foreach((json_t *)patterns, text, value) {
        struct name_pattern *p = &o->patterns[o->n_patterns++];
        *p = (struct name_pattern){text, value, 0};
        TRY(schema_pattern(&b->regular, &p->term, text, strlen(text), b->err));
    }
    return schema_regular_status(b);
}

/* A name that was only required is what additionalProperties speaks of, unless a pattern does. */
static enum status apply_patterns(struct schema_builder *b, const json_t *schema,
                                  const struct object *o, struct property *p) {
    bool named = json_object_get(json_object_get(schema, "properties"), p->name) != NULL;
    bool first = !named;
    for (size_t i = 0; i < o->n_patterns; i++) {
        json_t *whole;
        if (!regular_matches(&b->regular, o->patterns[i].term, p->name, strlen(p->name)))
            continue;
        TRY(schema_new(b, &whole));
        json_t *all = first ? json_pack("[O]", o->patterns[i].schema)
                            : json_pack("[O,O]", p->schema, o->patterns[i].schema);
        if (json_object_set_new(whole, "allOf", all) != 0)
            return schema_no_memory(b);
        p->schema = first ? o->patterns[i].schema : whole;
        p->never = (p->never && !first) || json_is_false(o->patterns[i].schema);
        first = false;
    }
    return schema_regular_status(b);
}

/* What the names that the schema names are held to: patternProperties and propertyNames. */
static enum status apply_names(struct schema_builder *b, const json_t *schema,
                               struct object *o) {
    uint32_t term = 0;
    if (o->listed || (o->key == NULL && o->n_patterns == 0))
        return ST_OK;
    TRY(names_term(b, o->key, &term));
    for (size_t i = 0; i < o->n; i++) {
        struct property *p = &o->properties[i];
        TRY(apply_patterns(b, schema, o, p));
        p->never |= !regular_matches(&b->regular, term, p->name, strlen(p->name));
    }
    return schema_regular_status(b);
}

/* What is said of properties that have no schema of their own. */
static void read_others(const json_t *schema, struct object *o) {
    const json_t *others = json_object_get(schema, "additionalProperties");
    bool named = json_object_get(schema, "properties") != NULL || o->n_patterns > 0;
    o->others = json_is_true(others) ? NULL : others;
    o->open = others == NULL ? !named : !json_is_false(others);
    /* More must follow than the schema names: whatever the others may be. */
    o->open = o->open || (others == NULL && o->n_patterns == 0 && o->min > o->n);
    o->open = o->open && !o->listed;
    o->more = o->open || (o->n_patterns > 0 && !o->listed);
}

static enum status add_object_of(struct schema_builder *b, struct buf *t, const json_t *schema,
                                 struct object *o) {
    TRY(schema_get_count(b, schema, "minProperties", &o->min));
    TRY(schema_get_count(b, schema, "maxProperties", &o->max));
    o->key = json_object_get(schema, "propertyNames");
    TRY(collect_properties(b, schema, o));
    TRY(collect_listed(b, schema, o));
    TRY(read_patterns(b, schema, o));
    TRY(apply_names(b, schema, o));
    for (size_t i = 0; i < o->n; i++)
        if (!o->properties[i].never)
            TRY(add_pair(b, &o->properties[i]));
    read_others(schema, o);
    if (o->more)
        TRY(add_other_pair(b, o));
    return add_object_rules(b, t, o);
}

enum status schema_add_object(struct schema_builder *b, struct buf *t, const json_t *schema) {
    struct object o = {.max = SCHEMA_NO_LIMIT};
    enum status st = add_object_of(b, t, schema, &o);
    mem_free(o.properties);
    return st;
}
