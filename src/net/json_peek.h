/* json_peek.h: reads one value of a JSON object without parsing all of it. The server must
 * know which model a request is for before it knows whether the client has access, and bodies
 * are large. */
#ifndef LOCKSTEP_NET_JSON_PEEK_H
#define LOCKSTEP_NET_JSON_PEEK_H

#include <stddef.h>

/* The value of this key of the outermost object: the first key of that name, written without
 * escapes. Returns a copy (free with mem_free()). NULL: it is missing, it is not a string, or
 * the JSON before it is invalid. Takes time proportional to len, and memory for the value. */
char *json_peek_text(const char *json, size_t len, const char *key);
/* Likewise of a value of any kind: its JSON, as it is written there. */
char *json_peek_json(const char *json, size_t len, const char *key);

#endif
