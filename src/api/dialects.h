/* dialects.h: each dialect's routes and its form of errors, for the server's router. */
#ifndef LOCKSTEP_API_DIALECTS_H
#define LOCKSTEP_API_DIALECTS_H

#include "net/http.h"
#include "server/reply.h"
#include "server/service.h"

struct route {
    const char *method; /* NULL ends a table */
    const char *path;   /* one that ends in '/' (and is longer) stands for all paths below it */
    void (*handle)(struct service *s, struct http_request *r);
};

extern const struct route openai_routes[], anthropic_routes[], ollama_routes[],
    llama_cpp_routes[], misc_routes[], cluster_routes[];

/* What a path has below a route that ends in '/'; "/v1" of the route may be absent. */
const char *path_below(const struct http_request *r, const char *route);
/* The route that such a path means, which may lack its "/v1". */
const char *path_without_version(const char *route, const char *path);
/* Is the path that place, which ends in no '/'? It may lack its "/v1", and a slash at its end
 * changes nothing. */
bool path_is(const char *place, const char *path);
/* Is it that place, or below it? Likewise. */
bool path_is_under(const char *place, const char *path);

/* A sentence may quote invalid UTF-8, or end in half a character. */
json_t *openai_error(int http_status, enum err_code code, const char *sentence,
                     const char *field);
json_t *ollama_error(int http_status, enum err_code code, const char *sentence,
                     const char *field);
json_t *anthropic_error(int http_status, enum err_code code, const char *sentence,
                        const char *field);
/* As that dialect does which has the path. */
json_t *dialect_error(const char *path, int http_status, enum err_code code,
                      const char *sentence, const char *field);

#endif
