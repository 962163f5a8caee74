/* json_schema.h: grammars of JSON: any object, or what a JSON Schema allows.
 *
 * The grammar's texts are a subset of what the schema allows:
 *   - JSON without white space in unusual places
 *   - properties in the order of the schema
 *   - numbers of at most 20 digits
 *   - no properties but those of the schema, unless additionalProperties allows them (as
 *     "properties" is commonly meant)
 *
 * What cannot be enforced is refused, not ignored: ST_UNSUPPORTED names the keyword and, as a
 * JSON pointer, the place. There are two exceptions. Overlapping alternatives of a oneOf are
 * separated if a grammar can express what the others do not allow (schema_not.c), and read as
 * anyOf otherwise. A format is an annotation beside an enum, and if schema_format.h does not
 * know it. Annotations (title, default ...) are ignored.
 *
 * docs/schemas.md says it for users, with a table by keyword. */
#ifndef LOCKSTEP_SCHEMA_JSON_SCHEMA_H
#define LOCKSTEP_SCHEMA_JSON_SCHEMA_H

#include "base/status.h"

#include <jansson.h>
#include <stddef.h>

struct json_schema_rule {
    const char *name; /* of the rule: not rN, nor one of the names below */
    const json_t *schema;
    const json_t *root; /* the document that its references are within; NULL: itself */
};

/* GBNF for grammar_open(): a rule for each schema, and `others`: rules (each with a line end)
 * that use them, `root` among them. It also defines ws (the white space that is allowed
 * between), value, object, array, string, number, integer, boolean, pair, char, plain, code and
 * hex. So one grammar can hold several schemas, for example a choice of tool calls. *gbnf is
 * malloc'd (mem_free) and NUL-terminated. ST_BAD_INPUT for an invalid schema, ST_UNSUPPORTED
 * for what cannot be enforced. */
enum status json_schema_rules_to_gbnf(const struct json_schema_rule *rules, size_t n,
                                      const char *others, char **gbnf, struct err *err);

/* The same for one schema, as root. */
enum status json_schema_to_gbnf(const json_t *schema, char **gbnf, struct err *err);

/* The same for any JSON object. Static. */
const char *json_object_gbnf(void);

#endif
