/* schema_format.h: the formats of JSON Schema as regular expressions. */
#ifndef LOCKSTEP_SCHEMA_SCHEMA_FORMAT_H
#define LOCKSTEP_SCHEMA_SCHEMA_FORMAT_H

/* A regular expression for strings of the format, anchored; NULL for formats that are not
 * enforced. All strings that it matches are valid. It excludes some valid strings (quoted local
 * parts of email addresses, leap seconds, hosts with two hyphens in a row). */
const char *schema_format(const char *format);

#endif
