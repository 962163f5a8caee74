/* params.h: reads a request's JSON: each field's type and range is checked, with a sentence
 * that names the field. The first error is kept. If a field is absent or null, *out does not
 * change. */
#ifndef LOCKSTEP_SERVER_PARAMS_H
#define LOCKSTEP_SERVER_PARAMS_H

#include "base/status.h"
#include "net/http.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The header in which a gateway says which model it has found by a name of its own. */
#define PARAMS_MODEL_HEADER "Lockstep-Model"

struct params {
    json_t *body;      /* an object, owned */
    const char *model; /* what that header says; NULL: there is none. The request's */
    enum status st;    /* ST_OK until the first defect */
    struct err err;    /* its sentence */
    char field[64];    /* and its field, "" if it is the whole */
};

/* Parses the request's body, which the request forgets. False: p->st and p->err say why.
 * params_deinit() is due either way. */
bool params_init(struct params *p, struct http_request *http);
void params_deinit(struct params *p);

/* A defect that the dialect found. Returns false. */
__attribute__((format(printf, 3, 4))) bool params_fail(struct params *p, const char *field,
                                                       const char *fmt, ...);
/* The same, of another kind than ST_BAD_INPUT, and with a code. */
__attribute__((format(printf, 5, 6))) bool params_fail_code(struct params *p, enum status st,
                                                            enum err_code code,
                                                            const char *field, const char *fmt,
                                                            ...);

void param_int(struct params *p, const char *field, int min, int max, int *out);
void param_float(struct params *p, const char *field, double min, double max, float *out);
void param_bool(struct params *p, const char *field, bool *out);
void param_text(struct params *p, const char *field, const char **out); /* borrowed */
void param_object(struct params *p, const char *field, const json_t **out);
void param_array(struct params *p, const char *field, const json_t **out);
/* A string, or an array of strings: at most max of them. *n_out 0 if absent. */
void param_texts(struct params *p, const char *field, size_t max, const char **out,
                 size_t *n_out);

/* "a string", "an object"...: for sentences. */
const char *json_kind(const json_t *v);

#endif
