/* json_schema.h: grammars of JSON: any object, or what a JSON Schema allows.
 *
 * The grammar's texts are a subset of what the schema allows: JSON without white space in odd
 * places, properties in the order of the schema, numbers of at most 20 digits, and no
 * properties but those of the schema unless additionalProperties says so (as a schema of
 * "properties" is commonly meant). What cannot be enforced is refused (ST_UNSUPPORTED names the
 * keyword), not ignored, with one exception: oneOf is read as anyOf, so that alternatives that
 * overlap are not kept apart. Annotations (title, default, unknown formats ...) are ignored.
 *
 * Understood: boolean schemas, type (also lists), enum, const (beside them lengths and bounds;
 * a format is an annotation there), anyOf, oneOf, allOf (merged), $ref within the document,
 * nullable; properties, required, additionalProperties, minProperties, maxProperties,
 * propertyNames that are an enum, and where there are no properties other propertyNames or one
 * of patternProperties; items, prefixItems, additionalItems, minItems, maxItems, uniqueItems (of
 * enums: in the enum's order); minLength, maxLength, pattern (without look-around and back
 * references), the formats of schema_format.h, also without a type; minimum, maximum, exclusive
 * ones, multipleOf (integers). */
#ifndef LOCKSTEP_TOKENIZER_JSON_SCHEMA_H
#define LOCKSTEP_TOKENIZER_JSON_SCHEMA_H

#include "base/status.h"

#include <jansson.h>
#include <stddef.h>

struct json_schema_rule {
    const char *name; /* of the rule: not rN, nor one of the names below */
    const json_t *schema;
};

/* GBNF for grammar_open(): a rule for each schema, and `others`: rules (each with a line end)
 * that use them, `root` among them. Also defined are ws (the white space that is allowed
 * between), value, object, array, string, number, integer, boolean, pair, char, plain, code,
 * hex. So one grammar can hold several schemas: a choice of tool calls, say.
 * *gbnf is malloc'd (mem_free) and NUL-terminated. ST_BAD_INPUT for what is no schema,
 * ST_UNSUPPORTED for what cannot be enforced. */
enum status json_schema_rules_to_gbnf(const struct json_schema_rule *rules, size_t n,
                                      const char *others, char **gbnf, struct err *err);

/* The same for one schema, as root. */
enum status json_schema_to_gbnf(const json_t *schema, char **gbnf, struct err *err);

/* The same for any JSON object. Static. */
const char *json_object_gbnf(void);

#endif
