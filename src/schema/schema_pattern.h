/* schema_pattern.h: a regular expression (the `pattern` of a JSON Schema) as a regular set.
 *
 * ECMA-262 by characters (as with its flag u), with anchors, word borders and look-ahead anywhere
 * but in a repetition, and look-behind over what is not empty. ST_UNSUPPORTED, naming the byte:
 * back references, \p{...}, and those in other places. */
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
