/* form_params.c: Reads the form that an answer is to have, by any name that clients have for it. */
#include "server/form_params.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/util.h"
#include "grammar/gbnf.h"
#include "schema/regex.h"

#include <string.h>

/* OpenAI's. */
static void read_format(struct params *p, const char *field, const json_t *format,
                        struct service_request *r) {
    const char *type = json_string_value(json_object_get(format, "type"));
    const json_t *wrapped = json_object_get(format, "json_schema");
    const json_t *schema = json_object_get(wrapped != NULL ? wrapped : format, "schema");
    if (type != NULL && str_eq(type, "json_object")) {
        r->form = schema != NULL ? FORM_SCHEMA : FORM_JSON;
        r->schema = schema;
    } else if (type != NULL && str_eq(type, "json_schema")) {
        r->form = FORM_SCHEMA;
        r->schema = schema;
        if (schema == NULL)
            params_fail(p, field, "%s of type json_schema: the schema is missing", field);
    } else if (type == NULL || !str_eq(type, "text")) {
        params_fail(p, field, "%s.type must be \"text\", \"json_object\" or \"json_schema\"",
                    field);
    }
}

/* Which field has said the form, and what was made of it. */
struct form {
    struct params *p;
    struct service_request *r;
    const char *field; /* NULL: none yet */
};

/* The field's value, if it is the first that says a form; otherwise a defect. NULL: nothing. */
static const json_t *form_take(struct form *f, const json_t *from, const char *key,
                               const char *field) {
    const json_t *v = json_object_get(from, key);
    bool empty = json_is_string(v) && json_string_length(v) == 0; /* off, to some programs */
    if (f->p->st != ST_OK || v == NULL || json_is_null(v) || empty)
        return NULL;
    if (f->field != NULL) {
        params_fail(f->p, field, "%s and %s: an answer has one form", f->field, field);
        return NULL;
    }
    f->field = field;
    return v;
}

/* text is taken over (mem_free); the body keeps a copy. */
static void set_gbnf(struct form *f, char *text) {
    json_t *kept = text != NULL ? json_string(text) : NULL;
    mem_free(text);
    if (kept == NULL || json_object_set(f->p->body, "grammar made", kept) != 0)
        params_fail(f->p, f->field, "no memory for %s", f->field);
    f->r->form = FORM_GBNF;
    f->r->gbnf = json_string_value(kept);
    json_decref(kept);
}

static void as_grammar(struct form *f, const json_t *v) {
    if (!json_is_string(v)) {
        params_fail(f->p, f->field, "%s must be a string, not %s", f->field, json_kind(v));
        return;
    }
    f->r->form = FORM_GBNF;
    f->r->gbnf = json_string_value(v);
}

/* A schema, or its text. */
static void as_schema(struct form *f, const json_t *v) {
    json_t *parsed = json_is_string(v) ? json_loads(json_string_value(v), JSON_DECODE_ANY, NULL)
                                       : json_incref((json_t *)v);
    f->r->form = FORM_SCHEMA;
    f->r->schema = parsed;
    if (json_is_object(parsed) || json_is_boolean(parsed))
        json_object_set(f->p->body, "schema taken", parsed);
    else
        params_fail(f->p, f->field, "%s must be a JSON schema", f->field);
    json_decref(parsed);
}

static void as_regex(struct form *f, const json_t *v) {
    struct err why;
    char *gbnf = NULL;
    if (!json_is_string(v))
        params_fail(f->p, f->field, "%s must be a string, not %s", f->field, json_kind(v));
    else if (strlen(json_string_value(v)) != json_string_length(v))
        params_fail(f->p, f->field, "%s: a NUL cannot be in a regular expression", f->field);
    else if (regex_to_gbnf(json_string_value(v), &gbnf, &why) != ST_OK)
        params_fail(f->p, f->field, "%s: %s", f->field, why.text);
    else
        set_gbnf(f, gbnf);
}

static void as_choice(struct form *f, const json_t *v) {
    struct buf t = {0};
    const json_t *one;
    size_t i;
    buf_add_str(&t, "root ::= ");
    json_array_foreach((json_t *)v, i, one) {
        if (!json_is_string(one))
            params_fail(f->p, f->field, "%s[%zu] must be a string, not %s", f->field, i,
                        json_kind(one));
        buf_add_str(&t, i > 0 ? " | " : "");
        if (json_is_string(one))
            gbnf_literal(&t, json_string_value(one), json_string_length(one));
    }
    if (json_array_size(v) == 0)
        params_fail(f->p, f->field, "%s must be an array of at least one string", f->field);
    else
        set_gbnf(f, t.failed ? NULL : mem_strdup(t.bytes));
    buf_free(&t);
}

static void as_any_object(struct form *f, const json_t *v) {
    if (json_is_true(v))
        f->r->form = FORM_JSON;
    else if (json_is_false(v))
        f->field = NULL;
    else
        params_fail(f->p, f->field, "%s must be true or false", f->field);
}

/* vLLM's, and what of it is not to be had. */
static void read_structured(struct form *f) {
    static const struct {
        const char *key, *field;
        void (*read)(struct form *f, const json_t *v);
    } keys[] = {{"json", "structured_outputs.json", as_schema},
                {"regex", "structured_outputs.regex", as_regex},
                {"choice", "structured_outputs.choice", as_choice},
                {"grammar", "structured_outputs.grammar", as_grammar},
                {"json_object", "structured_outputs.json_object", as_any_object}};
    static const char *const absent[] = {"structural_tag", "whitespace_pattern"};
    const json_t *all = NULL, *v;
    param_object(f->p, "structured_outputs", &all);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if ((v = form_take(f, all, keys[i].key, keys[i].field)) != NULL)
            keys[i].read(f, v);
    for (size_t i = 0; i < ARRAY_LEN(absent); i++) {
        v = json_object_get(all, absent[i]);
        if (v != NULL && !json_is_null(v))
            params_fail(f->p, "structured_outputs", "structured_outputs.%s is not supported",
                        absent[i]);
    }
}

void param_form(struct params *p, const char *field, const json_t *format,
                struct service_request *r) {
    static const struct {
        const char *field;
        void (*read)(struct form *f, const json_t *v);
    } fields[] = {{"grammar", as_grammar},
                  {"json_schema", as_schema},
                  {"guided_json", as_schema},
                  {"guided_regex", as_regex},
                  {"guided_choice", as_choice},
                  {"guided_grammar", as_grammar},
                  {"guided_json_object", as_any_object}};
    struct form f = {.p = p, .r = r};
    const json_t *v;
    if (format != NULL && !json_is_null(format))
        read_format(p, field, format, r);
    if (r->form != FORM_TEXT)
        f.field = field;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if ((v = form_take(&f, p->body, fields[i].field, fields[i].field)) != NULL)
            fields[i].read(&f, v);
    read_structured(&f);
    v = json_object_get(p->body, "guided_whitespace_pattern");
    if (v != NULL && !json_is_null(v))
        params_fail(p, "guided_whitespace_pattern",
                    "guided_whitespace_pattern is not supported");
}
