/* json_peek.h: one text of a JSON object, found without reading the object: for whom a request is
 * has to be known before it is known whether its client may ask anything, and bodies are large. */
#ifndef LOCKSTEP_NET_JSON_PEEK_H
#define LOCKSTEP_NET_JSON_PEEK_H

#include <stddef.h>

/* The value of this key of the outermost object (the first of that name, written without
 * escapes): a copy, freed with mem_free(); NULL: it is no text, or not there, or the JSON is
 * broken before it. Takes time in proportion to len, and memory for the value. */
char *json_peek_text(const char *json, size_t len, const char *key);

#endif
