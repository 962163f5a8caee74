/* schema_pattern.h: a regular expression (the `pattern` of a JSON Schema) as a regular set.
 *
 * ECMA-262 by characters (as with its flag u). Anchors, word borders and look-ahead may be
 * anywhere but in a repetition. Look-behind must follow something that is not empty.
 * ST_UNSUPPORTED, naming the byte: back references, \p{...}, and assertions in other places. */
#ifndef LOCKSTEP_SCHEMA_SCHEMA_PATTERN_H
#define LOCKSTEP_SCHEMA_SCHEMA_PATTERN_H

#include "base/status.h"
#include "schema/regular.h"

#include <stddef.h>
#include <stdint.h>

/* *term: the strings in which the pattern matches somewhere. */
enum status schema_pattern(struct regular *r, uint32_t *term, const char *pattern, size_t len,
                           struct err *err);

#endif
