/* schema_impl.h: what the parts of the schema compiler share. json_schema.c visits schemas,
 * schema_merge.c resolves $ref and puts several schemas together, schema_values.c writes
 * enums, numbers, strings and arrays, schema_object.c objects. */
#ifndef LOCKSTEP_TOKENIZER_SCHEMA_IMPL_H
#define LOCKSTEP_TOKENIZER_SCHEMA_IMPL_H

#include "base/buf.h"
#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHEMA_MAX_DEPTH 64
#define SCHEMA_MAX_RULES 20000
#define SCHEMA_NOTHING "[]" /* GBNF that matches no text */
#define SCHEMA_NO_LIMIT UINT32_MAX

/* A schema that has its rule: rN ::= ... */
struct schema_known {
    const json_t *schema;
    unsigned rule;
};

struct schema_builder {
    const json_t *root;
    struct buf out; /* the rules that are finished */
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

/* The number of a rule, whose text must follow: schema_put_rule() or straight to b->out. */
enum status schema_new_rule(struct schema_builder *b, unsigned *rule);
void schema_put_rule(struct schema_builder *b, unsigned rule, struct buf *expression);

/* The rule of a schema; the second appends its name to t. */
enum status schema_visit(struct schema_builder *b, const json_t *schema, unsigned *rule);
enum status schema_add(struct schema_builder *b, struct buf *t, const json_t *schema);

/* A key whose value is a whole number, >= 0. *out keeps its value if the key is absent; 2^32-1
 * and more is SCHEMA_NO_LIMIT. */
enum status schema_get_count(struct schema_builder *b, const json_t *schema, const char *key,
                             uint32_t *out);
/* How many of its keywords restrict values. */
size_t schema_count_restricting(const json_t *schema);
bool schema_is_restricting(const char *key);
/* Null says nothing, but for a constant. */
bool schema_is_unset(const char *key, const json_t *value);

/* --- schema_merge.c --- */

/* An empty schema that lives as long as the builder. */
enum status schema_new(struct schema_builder *b, json_t **out);
/* What `ref` (a $ref's value) refers to. */
enum status schema_get_ref(struct schema_builder *b, const json_t *ref, const json_t **out);
/* Changes `into` so that it allows what both allow. `into` is a new schema, depth is 0. */
enum status schema_merge(struct schema_builder *b, json_t *into, const json_t *schema,
                         unsigned depth);

/* --- schema_values.c, schema_object.c: append an expression for one kind of value --- */

enum status schema_add_json(struct schema_builder *b, struct buf *t, const json_t *value);
/* The values of an enum or a constant, also one that is referred to, as an array that lives as
 * long as the builder; NULL where there is none. */
enum status schema_listed_values(struct schema_builder *b, const json_t *schema, json_t **out);
/* enum, const */
enum status schema_add_values(struct schema_builder *b, struct buf *t, const json_t *schema);
enum status schema_add_integer(struct schema_builder *b, struct buf *t, const json_t *schema);
enum status schema_add_number(struct schema_builder *b, struct buf *t, const json_t *schema);
enum status schema_add_string(struct schema_builder *b, struct buf *t, const json_t *schema);
enum status schema_add_array(struct schema_builder *b, struct buf *t, const json_t *schema);
enum status schema_add_object(struct schema_builder *b, struct buf *t, const json_t *schema);

#endif
