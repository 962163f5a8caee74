/* gateway.c: the port: which deployment a request is for, and a thread that passes it on. */
#include "gateway/gateway.h"

#include "api/dialects.h"
#include "api/ollama_store.h"
#include "base/mem.h"
#include "base/sentence.h"
#include "base/thread.h"
#include "base/util.h"
#include "gateway/gateway_internal.h"
#include "gateway/gateway_merge.h"
#include "net/json_peek.h"

#include <stdio.h>

/* Of connections, most of which wait for their next request, and of requests under way. */
#define CONNECTIONS_MAX 8192
#define REQUESTS_MAX 1024
#define MODELS "/v1/models"
#define RESPONSES "/v1/responses/"
#define ALLOW_ORIGIN "Access-Control-Allow-Origin"
#define PART_S 3.0 /* for a server to say its part of an answer of all */

/* ---- routes ------------------------------------------------------------------------------ */

/* Holds the next route after `held`, which may be NULL, and releases `held`; NULL: no more
 * routes. */
static struct gateway_route *next_route(struct gateway *f, struct gateway_route *held) {
    pthread_mutex_lock(&f->lock);
    struct gateway_route *next = held != NULL ? held->next : f->routes;
    while (next != NULL && next->removed)
        next = next->next;
    if (next != NULL)
        next->n_passing++;
    if (held != NULL)
        held->n_passing--;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return next;
}

static void let_go(struct gateway_route *held) {
    if (held == NULL)
        return;
    pthread_mutex_lock(&held->gateway->lock);
    held->n_passing--;
    pthread_cond_broadcast(&held->gateway->changed);
    pthread_mutex_unlock(&held->gateway->lock);
}

static bool is_only(struct gateway *f) {
    pthread_mutex_lock(&f->lock);
    bool only = f->routes != NULL && f->routes->next == NULL;
    pthread_mutex_unlock(&f->lock);
    return only;
}

/* Finds a route by its exact name, by the name with the suffix of Ollama's clients, or by its
 * file's name. Held; NULL: not found. */
static struct gateway_route *find_route(struct gateway *f, const char *name) {
    for (int how = 0; how < 3; how++)
        for (struct gateway_route *r = next_route(f, NULL); r != NULL; r = next_route(f, r))
            if (how == 0   ? str_eq(name, r->name)
                : how == 1 ? service_name_is(name, r->name)
                           : service_name_is(name, r->file))
                return r;
    return NULL;
}

/* A route by a further name of its deployment, which its server is told; likewise. */
static struct gateway_route *find_named(struct passing *p, const char *name) {
    char real[GATEWAY_NAME_BYTES];
    struct gateway *f = p->f;
    if (f->cfg.real_name == NULL || !f->cfg.real_name(f->cfg.user, name, real))
        return NULL;
    const char *path = http_path(p->r);
    bool in_path = str_starts(path, path_without_version(MODELS "/", path));
    passing_set_model(p, real, in_path ? MODELS "/" : NULL);
    return find_route(f, real);
}

/* ---- routing ----------------------------------------------------------------------------- */

/* The model that a request names: a copy; NULL: none. */
static char *name_in(const struct passing *p) {
    const char *path = http_path(p->r), *one = path_without_version(MODELS "/", path);
    if (p->asked_model != NULL)
        return mem_strdup(p->asked_model);
    if (str_starts(path, one))
        return mem_strdup(path + strlen(one));
    size_t n;
    const char *body = http_body(p->r, &n);
    char *name = json_peek_text(body, n, "model");
    return name == NULL && str_starts(path, "/api/") ? json_peek_text(body, n, "name") : name;
}

/* ---- what is asked of all ---------------------------------------------------------------- */

struct parts {
    struct gateway_part *list;
    size_t n;
};

static void parts_free(struct parts *parts) {
    for (size_t i = 0; i < parts->n; i++) {
        buf_free(&parts->list[i].text);
        json_decref(parts->list[i].names);
    }
    mem_free(parts->list);
}

/* What p->route said, or that it did not; without memory there is one part less. */
static void keep_part(struct parts *parts, struct passing *p, bool answered) {
    struct gateway_part *list = mem_realloc(parts->list, (parts->n + 1) * sizeof *list), *part;
    if (list == NULL)
        return;
    parts->list = list;
    part = &list[parts->n++];
    *part = (struct gateway_part){.status = 0};
    snprintf(part->name, sizeof part->name, "%s", p->route->name);
    if (p->f->cfg.names_of != NULL)
        part->names = p->f->cfg.names_of(p->f->cfg.user, part->name);
    if (!answered)
        return;
    part->status = p->status;
    part->text = p->text;
    p->text = (struct buf){0};
}

/* GET path of each; what comes with the first answer that lets web pages in, or else the last
 * one, is kept. One that hangs is as one that is not there. */
static void ask_all(struct passing *p, struct parts *parts) {
    struct curl_slist *kept = NULL;
    *parts = (struct parts){.list = NULL};
    p->method = "GET";
    p->limit_s = PART_S;
    while ((p->route = next_route(p->f, p->route)) != NULL) {
        keep_part(parts, p, passing_ask(p, false));
        if (kept == NULL && passing_reply_header(p, ALLOW_ORIGIN) != NULL) {
            kept = p->reply_headers;
            p->reply_headers = NULL;
        }
    }
    if (kept != NULL) {
        curl_slist_free_all(p->reply_headers);
        p->reply_headers = kept;
    }
}

static void give_merged(struct passing *p, enum gateway_merge how) {
    struct parts parts;
    struct buf text = {0};
    ask_all(p, &parts);
    int status = parts.n > 0 ? gateway_merge(how, parts.list, parts.n, &text) : 503;
    if (text.bytes != NULL && !text.failed)
        passing_give(p, status,
                     how == MERGE_METRICS && status == 200 ? "text/plain; version=0.0.4"
                                                           : "application/json",
                     &text);
    else
        passing_end(p, false);
    buf_free(&text);
    parts_free(&parts);
}

/* Only the servers know which of them has it. So it asks one after the other, until the answer
 * is more than "unknown here" or "not allowed for this client". */
static bool seek(struct passing *p, bool (*is_hers)(const struct passing *p), bool *answered) {
    bool all = true, any = false;
    p->head_s = PART_S; /* a stream takes as long as it takes */
    while ((p->route = next_route(p->f, p->route)) != NULL) {
        *answered = passing_ask(p, false);
        if (*answered && is_hers(p))
            return true;
        any = true;
        all &= *answered;
    }
    *answered = any && all;
    return false;
}

static void give_hers(struct passing *p, bool answered) {
    struct gateway_route *held = p->route; /* p is gone with its request */
    passing_end(p, answered);
    let_go(held);
}

static bool has_response(const struct passing *p) {
    return p->status != 404 && p->status != 401 && p->status != 403;
}

static bool lacks_response(const struct passing *p) {
    return p->status == 404;
}

static void ask_for_response(struct passing *p) {
    bool answered = false;
    /* An answer that it does not exist says more than one that a key is needed. */
    if (!seek(p, has_response, &answered) && answered)
        seek(p, lacks_response, &answered);
    give_hers(p, answered);
}

/* For a CORS preflight request of a web page, which does not name the model. */
static bool lets_in(const struct passing *p) {
    return passing_reply_header(p, ALLOW_ORIGIN) != NULL;
}

static void ask_for_entry(struct passing *p) {
    bool answered = false;
    seek(p, lets_in, &answered);
    give_hers(p, answered);
}

/* The names that this client may know, "a, b"; NULL: none, and it has been told why. */
static char *names_for(struct passing *p) {
    struct parts parts;
    struct buf text = {0};
    size_t i;
    json_t *one;
    mem_free(p->path);
    p->path = mem_strdup(MODELS);
    if (p->path == NULL) {
        passing_end(p, false);
        return NULL;
    }
    ask_all(p, &parts);
    int status = parts.n > 0 ? gateway_merge(MERGE_LISTS, parts.list, parts.n, &text) : 503;
    parts_free(&parts);
    if (status != 200) {
        if (text.bytes != NULL && !text.failed)
            passing_give(p, status, "application/json", &text);
        else
            passing_end(p, false);
        buf_free(&text);
        return NULL;
    }
    json_t *list = json_loadb(text.bytes, text.len, 0, NULL);
    buf_clear(&text);
    buf_cstr(&text); /* not NULL, though there be none */
    json_array_foreach(json_object_get(list, "data"), i, one) {
        const char *name = json_string_value(json_object_get(one, "id"));
        if (name == NULL)
            continue;
        buf_add(&text, ", ", i > 0 ? 2 : 0);
        buf_add_str(&text, name);
    }
    json_decref(list);
    return text.bytes;
}

static void say_unknown(struct passing *p, const char *name) {
    char sentence[1024], *names = names_for(p);
    if (names == NULL)
        return;
    sentence_print(sentence, sizeof sentence,
                   "the model \"%.100s\" does not exist here; these do: %s", name, names);
    struct buf text = {0};
    buf_add_json(&text,
                 dialect_error(http_path(p->r), 404, ERR_MODEL_UNKNOWN, sentence, "model"));
    passing_give(p, 404, "application/json", &text);
    buf_free(&text);
    mem_free(names);
}

/* ---- a request's thread ------------------------------------------------------------------ */

/* False: nothing more is to be said than that. */
static bool say_why_unknown(struct passing *p, const char *name) {
    const struct gateway_config *cfg = &p->f->cfg;
    char sentence[1024];
    struct buf text = {0};
    if (cfg->why_unknown == NULL ||
        !cfg->why_unknown(cfg->user, p->r, name, sentence, sizeof sentence))
        return false;
    buf_add_json(&text,
                 dialect_error(http_path(p->r), 404, ERR_MODEL_UNKNOWN, sentence, "model"));
    passing_give(p, 404, "application/json", &text);
    buf_free(&text);
    return true;
}

/* Of a single model its server looks at names, in its own words, but at none in a query. */
static bool refuse_unknown(struct passing *p, const char *name) {
    bool of_server = is_only(p->f) && p->asked_model == NULL;
    if (say_why_unknown(p, name))
        return true;
    if (!of_server)
        say_unknown(p, name);
    return !of_server;
}

static void ask_one(struct passing *p) {
    char *name = name_in(p);
    bool named = name != NULL && *name != '\0';
    if (named)
        p->route = find_route(p->f, name);
    if (p->route == NULL && named)
        p->route = find_named(p, name);
    p->is_unknown = p->route == NULL && named && !service_means_any(name);
    if (p->is_unknown && refuse_unknown(p, name)) {
        mem_free(name);
        return;
    }
    if (p->route == NULL)
        p->route = next_route(p->f, NULL);
    mem_free(name);
    struct gateway_route *held = p->route; /* p is gone with its request */
    if (held != NULL)
        question_begin(p);
    bool asks = p->question;
    passing_end(p, held != NULL && (question_unloads(p) || passing_ask(p, true)));
    if (asks)
        question_end(held);
    let_go(held);
}

/* ---- what the node answers --------------------------------------------------------------- */

static bool is_of_cluster(const struct passing *p) {
    return p->f->cfg.cluster != NULL && path_is_under("/v1/cluster", http_path(p->r)) &&
           !str_eq(p->method, "OPTIONS");
}

static bool is_of_response(const struct passing *p) {
    const char *path = http_path(p->r);
    return str_starts(path, path_without_version(RESPONSES, path));
}

static bool is_of_disk(const struct passing *p) {
    return p->f->cfg.models != NULL && ollama_store_has(http_path(p->r)) &&
           !str_eq(p->method, "OPTIONS");
}

static bool goes_on(void *user) {
    const struct passing *p = user;
    return !atomic_load_explicit(&p->gone, memory_order_relaxed) &&
           !atomic_load_explicit(&p->f->ending, memory_order_relaxed);
}

static void ask_disk(struct passing *p) {
    const struct gateway_client client = {
        .request = p->r, .port = gateway_port(p->f), .goes_on = goes_on, .waiter = p};
    p->f->cfg.models(p->f->cfg.user, &client);
}

/* Whether the only model has further names. */
static bool has_names(struct gateway *f) {
    struct gateway_route *only = next_route(f, NULL);
    json_t *names = only != NULL && f->cfg.names_of != NULL
                        ? f->cfg.names_of(f->cfg.user, only->name)
                        : NULL;
    let_go(only);
    bool has = json_array_size(names) > 0;
    json_decref(names);
    return has;
}

/* Of one model its server has the answer, but for the list of its names. */
static enum gateway_merge merge_of(struct passing *p, bool of_all) {
    enum gateway_merge how = p->asked_model == NULL && passing_only_asks(p)
                                 ? gateway_merge_of(http_path(p->r))
                                 : MERGE_NONE;
    return of_all || (how == MERGE_LISTS && has_names(p->f)) ? how : MERGE_NONE;
}

static void *passing_main(void *user) {
    struct passing *p = user;
    struct gateway *f = p->f;
    bool of_all = p->asked_model == NULL && !is_only(f);
    enum gateway_merge how = merge_of(p, of_all);
    if (is_of_cluster(p))
        f->cfg.cluster(f->cfg.user, p->r, gateway_port(f));
    else if (is_of_disk(p))
        ask_disk(p);
    else if (how != MERGE_NONE)
        give_merged(p, how);
    else if (of_all && is_of_response(p))
        ask_for_response(p);
    else if (of_all && str_eq(http_method(p->r), "OPTIONS"))
        ask_for_entry(p);
    else
        ask_one(p);
    pthread_mutex_lock(&f->lock);
    f->n_threads--;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* What the port refuses by itself. */
static void fail(void *user, struct http_request *r, int status, const char *sentence) {
    (void)user;
    reply_json(r, status, dialect_error(http_path(r), status, ERR_NONE, sentence, ""));
}

static void handle(void *user, struct http_request *r) {
    struct gateway *f = user;
    pthread_t thread;
    if (http_path(r)[0] != '/') {
        fail(f, r, 400, "there is nothing at this path");
        return;
    }
    struct passing *p = passing_open(f, r);
    if (p == NULL) {
        fail(f, r, 503, "no memory for a request");
        return;
    }
    http_set_release(r, passing_free, p);
    http_on_gone(r, passing_gone, p);
    pthread_mutex_lock(&f->lock);
    bool closing = f->closing; /* the closing thread may have waited for all threads already */
    bool full = f->n_threads >= REQUESTS_MAX;
    f->n_threads += !closing && !full;
    pthread_mutex_unlock(&f->lock);
    if (closing) {
        passing_end(p, false);
        return;
    }
    if (full) {
        http_set_header(r, "Retry-After", "2");
        fail(f, r, 503, "this node already has as many requests under way as it may");
        return;
    }
    if (thread_start(&thread, passing_main, p) == 0) {
        pthread_detach(thread);
        return;
    }
    pthread_mutex_lock(&f->lock);
    f->n_threads--;
    pthread_mutex_unlock(&f->lock);
    passing_end(p, false);
}

/* ---- opening and closing ----------------------------------------------------------------- */

static void gateway_free(struct gateway *f) {
    http_close(f->http);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    mem_free(f);
}

enum status gateway_open(struct gateway **out, const struct gateway_config *cfg,
                         struct err *err) {
    struct http_config http;
    struct gateway *f = mem_calloc(1, sizeof *f);
    if (f == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a port");
    pthread_mutex_init(&f->lock, NULL);
    thread_cond_init(&f->changed);
    f->scheme = "http://";
    f->cfg = *cfg;
    f->cfg.tls_cert_pem = f->cfg.tls_key_pem = NULL;
    http_config_init(&http);
    http.host = "*";
    http.port = cfg->port;
    http.max_connections = CONNECTIONS_MAX;
    http.tls_cert_pem = cfg->tls_cert_pem;
    http.tls_key_pem = cfg->tls_key_pem;
    http.handle = handle;
    http.fail = fail;
    http.user = f;
    enum status st = ST_OK;
    if (cfg->tls_cert_pem != NULL) {
        f->scheme = "https://";
        st = identity_pin(f->pin, cfg->tls_cert_pem, err);
    }
    if (st == ST_OK)
        st = http_open(&f->http, &http, err);
    if (st != ST_OK) {
        gateway_free(f);
        return st;
    }
    *out = f;
    return ST_OK;
}

int gateway_port(const struct gateway *f) {
    return http_port(f->http);
}

void gateway_drain(struct gateway *f, int wait_ms) {
    atomic_store_explicit(&f->ending, true, memory_order_relaxed);
    (void)http_drain(f->http, wait_ms);
}

void gateway_close(struct gateway *f) {
    if (f == NULL)
        return;
    atomic_store_explicit(&f->ending, true, memory_order_relaxed);
    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_cond_broadcast(&f->changed);
    while (f->n_threads > 0)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    gateway_free(f);
}

/* ---- routes come and go ------------------------------------------------------------------ */

static void route_free(struct gateway_route *r) {
    kept_free(r);
    mem_free(r->key);
    mem_free(r->name);
    mem_free(r->file);
    mem_free(r);
}

static bool is_before(const struct gateway_route *a, const struct gateway_route *b) {
    return a->since != b->since ? a->since < b->since : strcmp(a->name, b->name) < 0;
}

struct gateway_route *gateway_add(struct gateway *f, const char *name, const char *file,
                                  int64_t since) {
    struct gateway_route *r = mem_calloc(1, sizeof *r), **at = &f->routes;
    if (r == NULL)
        return NULL;
    *r = (struct gateway_route){
        .gateway = f, .name = mem_strdup(name), .file = mem_strdup(file), .since = since};
    if (r->name == NULL || r->file == NULL) {
        route_free(r);
        return NULL;
    }
    pthread_mutex_lock(&f->lock);
    while (*at != NULL && is_before(*at, r))
        at = &(*at)->next;
    r->next = *at;
    *at = r;
    pthread_mutex_unlock(&f->lock);
    return r;
}

void gateway_to(struct gateway_route *r, const char *address, const char *server) {
    struct gateway *f = r->gateway;
    if (address == NULL)
        address = server = "";
    pthread_mutex_lock(&f->lock);
    r->moves &= *address == '\0' || str_eq(r->target, address);
    snprintf(r->target, sizeof r->target, "%s", address);
    r->woken &= *address == '\0';
    if (!str_eq(r->server, server)) {
        snprintf(r->server, sizeof r->server, "%s", server);
        if (*address != '\0')
            kept_refresh(r);
        r->n_targets++;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
}

void gateway_name(struct gateway_route *r, const char *server, const char *coming) {
    pthread_mutex_lock(&r->gateway->lock);
    snprintf(r->name_of_server, sizeof r->name_of_server, "%s", server);
    snprintf(r->coming, sizeof r->coming, "%s", coming);
    pthread_mutex_unlock(&r->gateway->lock);
}

void gateway_moves(struct gateway_route *r) {
    pthread_mutex_lock(&r->gateway->lock);
    r->moves = true;
    pthread_mutex_unlock(&r->gateway->lock);
}

void gateway_keep(struct gateway_route *r, const char *key) {
    r->keeps = true;
    r->key = key != NULL ? mem_strdup(key) : NULL;
}

void gateway_sleep(struct gateway_route *r, int64_t since) {
    pthread_mutex_lock(&r->gateway->lock);
    r->woken |= r->slept != 0 && since == 0 && r->target[0] == '\0';
    if ((r->slept == 0) != (since == 0))
        pthread_cond_broadcast(&r->gateway->changed);
    r->slept = since;
    pthread_mutex_unlock(&r->gateway->lock);
}

void gateway_expire(struct gateway_route *r, int64_t when) {
    pthread_mutex_lock(&r->gateway->lock);
    r->expires = when;
    pthread_mutex_unlock(&r->gateway->lock);
}

void gateway_look_at_use(struct gateway_route *r, struct gateway_use *out) {
    pthread_mutex_lock(&r->gateway->lock);
    *out = r->use;
    pthread_mutex_unlock(&r->gateway->lock);
}

int gateway_n_passing(struct gateway_route *r) {
    pthread_mutex_lock(&r->gateway->lock);
    int n = r->n_passing;
    pthread_mutex_unlock(&r->gateway->lock);
    return n;
}

void gateway_remove(struct gateway_route *r) {
    if (r == NULL)
        return;
    struct gateway *f = r->gateway;
    struct gateway_route **at = &f->routes;
    pthread_mutex_lock(&f->lock);
    r->removed = true;
    pthread_cond_broadcast(&f->changed);
    while (r->n_passing > 0 || r->keeping)
        pthread_cond_wait(&f->changed, &f->lock);
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    pthread_mutex_unlock(&f->lock);
    route_free(r);
}
