/* params.c: Reads fields of a request's JSON, with type and range. */
#include "server/params.h"

#include "base/hex.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"

#include <stdarg.h>
#include <stdio.h>

const char *json_kind(const json_t *v) {
    if (v == NULL)
        return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

/* The four digits of \uXXXX at p; -1: not four digits. */
static int unit_at(const char *p, const char *end) {
    int unit = 0;
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

/* Replaces escapes that are not text here by U+FFFD, in place: \u0000, and halves of surrogate
 * pairs. Programs that cut a text in the middle of a character send the latter. */
static void mend_escapes(char *text, size_t len) {
    char *end = text + len;
    for (char *p = text; (p = memchr(p, '\\', (size_t)(end - p))) != NULL;) {
        int unit = unit_at(p, end);
        bool high = unit >= 0xd800 && unit < 0xdc00, low = unit >= 0xdc00 && unit < 0xe000;
        int next = high ? unit_at(p + 6, end) : -1;
        if (high && next >= 0xdc00 && next < 0xe000) {
            p += 12;
            continue;
        }
        if (unit == 0 || high || low)
            memcpy(p + 2, "fffd", 4);
        p += unit >= 0 ? 6 : MIN(2, end - p);
    }
}

static json_t *parse(const char *text, size_t len, json_error_t *e) {
    json_t *v = json_read(text, len, JSON_DECODE_ANY, e);
    char *mended = v == NULL ? mem_alloc(len) : NULL;
    if (mended == NULL)
        return v;
    memcpy(mended, text, len);
    mend_escapes(mended, len);
    v = json_read(mended, len, JSON_DECODE_ANY, NULL);
    mem_free(mended);
    return v;
}

static bool read_text(struct params *p, const char *text, size_t len) {
    json_error_t e;
    if (len == 0)
        return params_fail(p, "", "the request has no body: expected a JSON object");
    if (json_count(text, len) > JSON_REQUEST_VALUES_MAX)
        return params_fail(p, "", "the body has more than %zu JSON values",
                           JSON_REQUEST_VALUES_MAX);
    p->body = parse(text, len, &e);
    if (p->body == NULL)
        return params_fail(p, "", "the body is not valid JSON: line %d, column %d: %s", e.line,
                           e.column, e.text);
    if (!json_is_object(p->body))
        return params_fail(p, "", "the body must be a JSON object, not %s", json_kind(p->body));
    return true;
}

bool params_init(struct params *p, struct http_request *http) {
    size_t len;
    const char *text = http_body(http, &len);
    *p = (struct params){.st = ST_OK, .model = http_header(http, PARAMS_MODEL_HEADER)};
    bool read = read_text(p, text, len);
    http_forget_body(http);
    return read;
}

void params_deinit(struct params *p) {
    json_decref(p->body);
}

static void fail(struct params *p, enum status st, enum err_code code, const char *field,
                 const char *fmt, va_list ap) {
    if (p->st != ST_OK)
        return;
    p->st = st;
    err_vset(&p->err, code, fmt, ap);
    snprintf(p->field, sizeof p->field, "%s", field);
}

bool params_fail(struct params *p, const char *field, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fail(p, ST_BAD_INPUT, ERR_NONE, field, fmt, ap);
    va_end(ap);
    return false;
}

bool params_fail_code(struct params *p, enum status st, enum err_code code, const char *field,
                      const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fail(p, st, code, field, fmt, ap);
    va_end(ap);
    return false;
}

/* NULL if there is nothing to read. */
static const json_t *get(const struct params *p, const char *field) {
    const json_t *v = json_object_get(p->body, field);
    return p->st != ST_OK || v == NULL || json_is_null(v) ? NULL : v;
}

void param_int(struct params *p, const char *field, int min, int max, int *out) {
    const json_t *v = get(p, field);
    if (v == NULL)
        return;
    double x = json_number_value(v);
    if (!json_is_number(v))
        params_fail(p, field, "%s must be a whole number, not %s", field, json_kind(v));
    else if (x < min || x > max || x != (double)(int)x)
        params_fail(p, field, "%s must be a whole number from %d to %d, not %g", field, min,
                    max, x);
    else
        *out = (int)x;
}

void param_float(struct params *p, const char *field, double min, double max, float *out) {
    const json_t *v = get(p, field);
    if (v == NULL)
        return;
    double x = json_number_value(v);
    if (!json_is_number(v))
        params_fail(p, field, "%s must be a number, not %s", field, json_kind(v));
    else if (!(x >= min && x <= max))
        params_fail(p, field, "%s must be from %g to %g, not %g", field, min, max, x);
    else
        *out = (float)x;
}

void param_bool(struct params *p, const char *field, bool *out) {
    const json_t *v = get(p, field);
    if (v == NULL)
        return;
    if (!json_is_boolean(v))
        params_fail(p, field, "%s must be true or false, not %s", field, json_kind(v));
    else
        *out = json_is_true(v);
}

void param_text(struct params *p, const char *field, const char **out) {
    const json_t *v = get(p, field);
    if (v == NULL)
        return;
    if (!json_is_string(v))
        params_fail(p, field, "%s must be a string, not %s", field, json_kind(v));
    else
        *out = json_string_value(v);
}

void param_object(struct params *p, const char *field, const json_t **out) {
    const json_t *v = get(p, field);
    if (v == NULL)
        return;
    if (!json_is_object(v))
        params_fail(p, field, "%s must be an object, not %s", field, json_kind(v));
    else
        *out = v;
}

void param_array(struct params *p, const char *field, const json_t **out) {
    const json_t *v = get(p, field);
    if (v == NULL)
        return;
    if (!json_is_array(v))
        params_fail(p, field, "%s must be an array, not %s", field, json_kind(v));
    else
        *out = v;
}

void param_texts(struct params *p, const char *field, size_t max, const char **out,
                 size_t *n_out) {
    const json_t *v = get(p, field);
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    *n_out = 0;
    if (v == NULL)
        return;
    if (n > max) {
        params_fail(p, field, "%s must have at most %zu strings, not %zu", field, max, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(item)) {
            params_fail(p, field, "%s must be a string or an array of strings", field);
            return;
        }
        out[i] = json_string_value(item);
    }
    *n_out = n;
}
