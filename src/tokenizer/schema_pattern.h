/* schema_pattern.h: a regular expression (the `pattern` of a JSON Schema) as GBNF for the
 * characters inside a JSON string.
 *
 * ECMA-262 without look-around, back references, word borders and \p{...}: ST_UNSUPPORTED.
 * The grammar of the surroundings has a rule `char`: any one character of a JSON string. */
#ifndef LOCKSTEP_TOKENIZER_SCHEMA_PATTERN_H
#define LOCKSTEP_TOKENIZER_SCHEMA_PATTERN_H

#include "base/buf.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Appends an expression for the strings that match and have min_chars to max_chars characters
 * (UINT32_MAX: no limit). Where both matter, repetitions are narrowed so that every string has a
 * right length; ST_UNSUPPORTED if that is not possible. */
enum status schema_pattern(struct buf *t, const char *pattern, size_t len, uint32_t min_chars,
                           uint32_t max_chars, struct err *err);

#endif
