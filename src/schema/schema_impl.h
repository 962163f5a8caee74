/* schema_impl.h: shared by the parts of the schema compiler.
 *
 *   json_schema.c    visits schemas
 *   schema_merge.c   resolves $ref and merges schemas
 *   schema_not.c     makes alternatives of conditions
 *   schema_values.c  enums and numbers
 *   schema_string.c  strings; schema_text.c: regular sets of them
 *   schema_array.c   arrays
 *   schema_object.c  objects */
#ifndef LOCKSTEP_SCHEMA_SCHEMA_IMPL_H
#define LOCKSTEP_SCHEMA_SCHEMA_IMPL_H

#include "base/buf.h"
#include "base/status.h"
#include "schema/regular.h"
#include "schema/schema_number.h"
#include "schema/schema_pattern.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHEMA_MAX_DEPTH 64
#define SCHEMA_MAX_RULES 60000
#define SCHEMA_MAX_WORK 1000000 /* of merging */
#define SCHEMA_NOTHING "[]"     /* GBNF that matches no text */
#define SCHEMA_NO_LIMIT UINT32_MAX

/* A schema that has its rule: rN ::= ... */
struct schema_known {
    const json_t *schema;
    unsigned rule;
};

/* A set of characters that has its rule. */
struct schema_set {
    uint32_t term;
    unsigned rule;
};

/* Keywords of our own, all of them lists: further values of keywords from merged schemas, and
 * the opposite of a schema. */
#define SCHEMA_ALSO_PATTERN "$also:pattern"
#define SCHEMA_ALSO_FORMAT "$also:format"
#define SCHEMA_ALSO_MULTIPLE "$also:multipleOf"
#define SCHEMA_NOT_PATTERN "$not:pattern"
#define SCHEMA_NOT_VALUES "$not:enum"
#define SCHEMA_NOT_MULTIPLE "$not:multipleOf"

struct schema_builder {
    const json_t *root;
    struct regular regular;
    struct schema_set *sets;
    size_t n_sets, sets_cap;
    struct buf path;         /* where in the document the schema is that is being written */
    bool located;            /* the error names it */
    unsigned in_unevaluated; /* not and if cannot be told from properties there */
    struct buf out;          /* the rules that are finished */
    struct schema_known *known;
    size_t n_known, known_cap;
    json_t *kept; /* an array: the merged schemas */
    unsigned n_rules, depth;
    size_t work; /* elements touched by merging */
    struct err *err;
};

/* "schema: " + what: ST_UNSUPPORTED, ST_BAD_INPUT, ST_NO_MEMORY. */
enum status schema_unsupported(struct schema_builder *b, const char *what);
enum status schema_wrong(struct schema_builder *b, const char *what);
enum status schema_no_memory(struct schema_builder *b);

/* Returns the number of a rule. The caller must then write its text: schema_put_rule() or
 * straight to b->out. */
enum status schema_new_rule(struct schema_builder *b, unsigned *rule);
void schema_put_rule(struct schema_builder *b, unsigned rule, struct buf *expression);

/* The rule of a schema; the second appends its name to t. Errors say where the schema is: at
 * key, and name (NULL: none) in it, of the one that is being written. */
enum status schema_visit(struct schema_builder *b, const json_t *schema, unsigned *rule);
enum status schema_add(struct schema_builder *b, struct buf *t, const json_t *schema,
                       const char *key, const char *name);

/* A key whose value is a whole number, >= 0. *out keeps its value if the key is absent; 2^32-1
 * and more is SCHEMA_NO_LIMIT. */
enum status schema_get_count(struct schema_builder *b, const json_t *schema, const char *key,
                             uint32_t *out);
/* How many of its keywords restrict values. */
size_t schema_count_restricting(const json_t *schema);
bool schema_is_restricting(const char *key);
/* Null says nothing, but for a constant. */
bool schema_is_unset(const char *key, const json_t *value);

/* The key is there, and not null. */
bool schema_says(const json_t *schema, const char *key);
/* ST_UNSUPPORTED for a keyword that restricts values and is not understood. */
enum status schema_check_keywords(struct schema_builder *b, const json_t *schema);

/* --- schema_merge.c --- */

/* An empty schema that lives as long as the builder. */
enum status schema_new(struct schema_builder *b, json_t **out);
/* What `ref` (a $ref's value) refers to. */
enum status schema_get_ref(struct schema_builder *b, const json_t *ref, const json_t **out);
/* Changes `into` so that it allows what both allow. `into` is a new schema, depth is 0. */
enum status schema_merge(struct schema_builder *b, json_t *into, const json_t *schema,
                         unsigned depth);
/* Of two keys in a schema, a comes first: so do the properties that it brings. */
bool schema_stands_before(const json_t *schema, const char *a, const char *b);
/* patterns: patternProperties, or NULL. */
enum status schema_matches_a_pattern(struct schema_builder *b, const json_t *patterns,
                                     const char *name, bool *matches);
enum status schema_merge_never(struct schema_builder *b, json_t *into);
/* into, and one of the schemas of `any`, which lives as long as the builder. */
enum status schema_merge_any(struct schema_builder *b, json_t *into, const json_t *any,
                             unsigned depth);

/* --- schema_not.c --- */

/* into, and what not, if, dependentRequired, dependentSchemas and dependencies of the schema
 * say. */
enum status schema_merge_conditions(struct schema_builder *b, json_t *into,
                                    const json_t *schema, unsigned depth);
/* A schema whose nullable is true: null, or the rest. */
enum status schema_merge_nullable(struct schema_builder *b, json_t *into, const json_t *schema,
                                  unsigned depth);
/* Alternatives of which exactly one holds, for oneOf. */
enum status schema_one_of(struct schema_builder *b, const json_t *parts, const json_t **out,
                          unsigned depth);
/* True: no value is of both, as far as that is easily seen. */
bool schema_disjoint(struct schema_builder *b, const json_t *x, const json_t *y);

/* --- the rest append an expression for one kind of value --- */

/* schema_values.c */
enum status schema_add_json(struct schema_builder *b, struct buf *t, const json_t *value);
/* Equal as JSON Schema sees it: numbers by their values. */
bool schema_equal(const json_t *a, const json_t *b);
/* types: a string, a list, or NULL for any. */
bool schema_type_allows(const json_t *types, const json_t *value);
/* The values of an enum or a constant, also behind a $ref, as an array that lives as long as
 * the builder; NULL if there are none. */
enum status schema_listed_values(struct schema_builder *b, const json_t *schema, json_t **out);
/* enum, const */
enum status schema_add_values(struct schema_builder *b, struct buf *t, const json_t *schema);
enum status schema_add_integer(struct schema_builder *b, struct buf *t, const json_t *schema);
enum status schema_add_number(struct schema_builder *b, struct buf *t, const json_t *schema);

/* schema_string.c */
enum status schema_add_string(struct schema_builder *b, struct buf *t, const json_t *schema);
/* The strings that a schema, which is merged, allows; *term without its minLength and maxLength. */
enum status schema_string_term(struct schema_builder *b, const json_t *schema, uint32_t *term,
                               uint32_t *min, uint32_t *max);

/* schema_text.c */
/* The characters inside a JSON string that is one of the term's and has min to max of them; also
 * a number. */
enum status schema_add_text(struct schema_builder *b, struct buf *t, uint32_t term,
                            uint32_t min, uint32_t max);
/* That of b->regular, with its sentence. */
enum status schema_regular_status(struct schema_builder *b);

/* schema_array.c, schema_object.c */
enum status schema_add_array(struct schema_builder *b, struct buf *t, const json_t *schema);
enum status schema_add_object(struct schema_builder *b, struct buf *t, const json_t *schema);

#endif
