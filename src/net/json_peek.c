/* json_peek.c: Finds one value of a JSON object without parsing all of it. */
#include "net/json_peek.h"

#include "base/mem.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

/* A place in the text; at == end: nothing is left. */
struct place {
    const char *at, *end;
};

static void skip_blanks(struct place *p) {
    while (p->at < p->end && strchr(" \t\r\n", *p->at) != NULL && *p->at != '\0')
        p->at++;
}

static bool skip_sign(struct place *p, char sign) {
    skip_blanks(p);
    if (p->at == p->end || *p->at != sign)
        return false;
    p->at++;
    return true;
}

/* From its first quote to behind its last one. */
static bool skip_text(struct place *p) {
    if (!skip_sign(p, '"'))
        return false;
    for (; p->at < p->end && *p->at != '"'; p->at++)
        if (*p->at == '\\' && ++p->at == p->end)
            return false;
    return skip_sign(p, '"');
}

/* Whatever it is, up to the comma or bracket behind it. */
static bool skip_value(struct place *p) {
    size_t depth = 0;
    while (p->at < p->end) {
        char c = *p->at;
        if (c == '"') {
            if (!skip_text(p))
                return false;
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}' || c == ']'))
            return true;
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        p->at++;
    }
    return false;
}

static char *read_text(struct place *p) {
    skip_blanks(p);
    const char *from = p->at;
    if (!skip_text(p))
        return NULL;
    json_t *v = json_loadb(from, (size_t)(p->at - from), JSON_DECODE_ANY, NULL);
    char *copy = json_is_string(v) ? mem_strdup(json_string_value(v)) : NULL;
    json_decref(v);
    return copy;
}

/* To the value of this key; false: it is not there. */
static bool find(struct place *p, const char *key) {
    size_t n = strlen(key);
    if (!skip_sign(p, '{'))
        return false;
    do {
        skip_blanks(p);
        const char *name = p->at;
        if (!skip_text(p))
            return false;
        bool is_it = (size_t)(p->at - name) == n + 2 && memcmp(name + 1, key, n) == 0;
        if (!skip_sign(p, ':'))
            return false;
        if (is_it)
            return true;
    } while (skip_value(p) && skip_sign(p, ','));
    return false;
}

char *json_peek_text(const char *json, size_t len, const char *key) {
    struct place p = {json, json + len};
    return find(&p, key) ? read_text(&p) : NULL;
}

char *json_peek_json(const char *json, size_t len, const char *key) {
    struct place p = {json, json + len};
    if (!find(&p, key))
        return NULL;
    skip_blanks(&p);
    const char *from = p.at;
    return skip_value(&p) ? mem_strndup(from, (size_t)(p.at - from)) : NULL;
}
