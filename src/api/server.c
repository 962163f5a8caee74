/* server.c: the routes of all dialects, and requests that no dialect handles. */
#include "api/server.h"

#include "api/dialects.h"
#include "api/page.h"
#include "api/server_models.h"
#include "base/mem.h"
#include "base/util.h"

#include <stdatomic.h>
#include <stdio.h>

#define CUT_MS 3000 /* for what was cut to end */

struct server {
    _Atomic(struct service *)
        service; /* NULL: not open yet; release, and acquire in handle() */
    struct http_server *http;
    struct server_models models;
};

void server_config_init(struct server_config *cfg) {
    *cfg = (struct server_config){.service = {.name = NULL}};
    engine_config_init(&cfg->service.engine);
    http_config_init(&cfg->http);
}

static const struct route *const tables[] = {openai_routes, anthropic_routes,
                                             ollama_routes, llama_cpp_routes,
                                             misc_routes,   cluster_routes};

json_t *dialect_error(const char *path, int status, enum err_code code, const char *sentence,
                      const char *field) {
    if (str_starts(path, path_without_version("/v1/messages", path)))
        return anthropic_error(status, code, sentence, field);
    if (str_starts(path, "/api/") && !str_starts(path, "/api/v0/"))
        return ollama_error(status, code, sentence, field);
    return openai_error(status, code, sentence, field);
}

static void fail(void *user, struct http_request *r, int status, const char *sentence) {
    (void)user;
    if (status == 401)
        http_set_header(r, "WWW-Authenticate", "Bearer");
    if (status == 503)
        http_set_header(r, "Retry-After", "2");
    reply_json(r, status, dialect_error(http_path(r), status, ERR_NONE, sentence, ""));
}

/* While the model is not open yet. */
static void say_loading(struct server *s, struct http_request *r) {
    if (!str_eq(http_path(r), "/health")) {
        fail(s, r, 503, "the model is loading");
        return;
    }
    http_set_header(r, "Retry-After", "2");
    reply_json(r, 503,
               json_pack("{s:s, s:s}", "status", "loading", "why", "the model is loading"));
}

static bool is_at(const struct route *route, const char *path) {
    const char *at = path_without_version(route->path, path);
    size_t n = strlen(at);
    if (n > 1 && at[n - 1] == '/')
        return str_starts(path, at) && path[n] != '\0';
    return path_is(route->path, path);
}

static bool method_is(const char *method, const struct route *route) {
    return str_eq(method, route->method) ||
           (str_eq(method, "HEAD") && str_eq(route->method, "GET"));
}

static void add_method(char *list, size_t size, const char *method) {
    size_t n = strlen(list);
    bool get = str_eq(method, "GET");
    snprintf(list + n, size - n, "%s%s%s", n != 0 ? ", " : "", method, get ? ", HEAD" : "");
}

static void handle(void *user, struct http_request *r) {
    struct server *s = user;
    struct service *service = atomic_load_explicit(&s->service, memory_order_acquire);
    char methods[64] = ""; /* of this path */
    if (page_answer(r))
        return;
    if (service == NULL) {
        say_loading(s, r);
        return;
    }
    if (server_models_answer(&s->models, service, r))
        return;
    for (size_t t = 0; t < ARRAY_LEN(tables); t++)
        for (const struct route *route = tables[t]; route->method != NULL; route++) {
            if (!is_at(route, http_path(r)))
                continue;
            if (method_is(http_method(r), route)) {
                route->handle(service, r);
                return;
            }
            add_method(methods, sizeof methods, route->method);
        }
    if (methods[0] == '\0') {
        fail(s, r, 404, "there is nothing at this path");
        return;
    }
    http_set_header(r, "Allow", methods);
    fail(s, r, 405, "this path does not support that method");
}

#define LONG_BODY_BYTES ((size_t)64 << 10)

/* The size of a request's body tells how long it takes to read. A request without one has an
 * answer that is ready, except for a stored conversation. */
static enum http_lane lane(void *user, const struct http_request *r) {
    size_t n;
    (void)user, (void)http_body(r, &n);
    if (n > LONG_BODY_BYTES)
        return HTTP_LANE_LONG;
    return n == 0 && strstr(http_path(r), "/responses/") == NULL ? HTTP_LANE_QUICK
                                                                 : HTTP_LANE_SHORT;
}

/* A program that monitors the server needs no key. */
static bool needs_key(const char *path) {
    return !str_eq(path, "/health") && !page_has(path);
}

enum status server_open(struct server **out, const struct server_config *cfg, struct err *err) {
    struct server *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a server");
    server_models_init(&s->models);
    struct http_config http = cfg->http;
    http.handle = handle;
    http.lane = lane;
    http.fail = fail;
    http.needs_key = needs_key;
    http.user = s;
    /* HTTP first: whether the port is free and the certificate good is known at once, a model
     * may take minutes. */
    struct service *service = NULL;
    enum status st = http_open(&s->http, &http, err);
    if (st == ST_OK)
        st = service_open(&service, &cfg->service, err);
    if (st != ST_OK) {
        http_close(s->http);
        server_models_deinit(&s->models);
        mem_free(s);
        return st;
    }
    atomic_store_explicit(&s->service, service, memory_order_release);
    *out = s;
    return ST_OK;
}

int server_port(const struct server *s) {
    return http_port(s->http);
}

int server_max_connections(const struct server *s) {
    return http_max_connections(s->http);
}

struct service *server_service(struct server *s) {
    return s->service;
}

void server_close(struct server *s, int wait_ms) {
    if (s == NULL)
        return;
    server_models_end(&s->models);
    http_drain(s->http, wait_ms);
    service_stop(s->service);
    http_drain(s->http, CUT_MS);
    http_close(s->http);
    service_close(s->service);
    server_models_deinit(&s->models);
    mem_free(s);
}
