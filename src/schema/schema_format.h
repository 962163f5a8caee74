/* schema_format.h: what the formats of JSON Schema look like. */
#ifndef LOCKSTEP_SCHEMA_SCHEMA_FORMAT_H
#define LOCKSTEP_SCHEMA_SCHEMA_FORMAT_H

/* A regular expression for strings of the format, anchored; NULL for formats that are not enforced.
 * What it matches is valid; some valid strings are left out (quoted local parts of email addresses,
 * leap seconds, hosts with two hyphens in a row). */
const char *schema_format(const char *format);

#endif
