/* json.h: what jansson lacks. */
#ifndef LOCKSTEP_BASE_JSON_H
#define LOCKSTEP_BASE_JSON_H

#include <jansson.h>

/* The text under a key of an object; "" where there is none (also where o is no object, or NULL). */
static inline const char *json_text(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text != NULL ? text : "";
}

#endif
