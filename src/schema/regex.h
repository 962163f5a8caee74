/* regex.h: grammars of texts that a regular expression matches as a whole. */
#ifndef LOCKSTEP_SCHEMA_REGEX_H
#define LOCKSTEP_SCHEMA_REGEX_H

#include "base/status.h"

/* GBNF for grammar_open(), malloc'd (mem_free). The expression is read as schema_pattern.h says,
 * and matches the whole text. ST_BAD_INPUT, ST_UNSUPPORTED, ST_NO_MEMORY. */
enum status regex_to_gbnf(const char *regex, char **gbnf, struct err *err);

#endif
