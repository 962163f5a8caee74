/* json.h: JSON functions that the library jansson lacks. */
#ifndef LOCKSTEP_BASE_JSON_H
#define LOCKSTEP_BASE_JSON_H

#include <jansson.h>

/* The string under a key of an object; "" if it is missing, or if o is NULL or not an object. */
static inline const char *json_text(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text != NULL ? text : "";
}

/* json_loadb(), which refuses a whole text for an integer beyond 64 bits: here such a one is a
 * real. JSON has no bound, and people write 2^64 - 1 and 1e30 in digits. why: NULL, or what
 * json_loadb() said, of use where the result is NULL. */
json_t *json_read(const char *text, size_t len, size_t flags, json_error_t *why);

/* Counts the values of a JSON text (an array of two numbers: three), in one pass and without
 * memory. A parsed tree takes up to 240 bytes per value. So code that reads text from strangers
 * calls this first. For invalid JSON the result is some number; a parser does not find more
 * values than that. */
size_t json_count(const char *text, size_t len);
/* What one request may have: as many bytes as 64 prompts of 8192 token ids. */
#define JSON_REQUEST_VALUES_MAX ((size_t)1 << 19)

/* What a reference (#, #/a/b, #/a/0) means within a document; NULL if nothing is there. */
const json_t *json_follow(const json_t *root, const char *ref);

#endif
