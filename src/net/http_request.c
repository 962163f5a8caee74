/* http_request.c: Requests as their owners see them, from any thread. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "net/http_internal.h"

#include <stdio.h>

/* ---- beginning and end ------------------------------------------------------------------- */

static void log_request(const struct http_request *r) {
    const struct http_config *cfg = &r->server->cfg;
    struct http_record record = {.method = r->head.method != NULL ? r->head.method : "",
                                 .path = r->head.path != NULL ? r->head.path : "",
                                 .key = http_key(r),
                                 .status = r->status,
                                 .left = r->left || r->broken,
                                 .begun_unix_s = r->begun_unix_s,
                                 .all_s = clock_s() - r->begun_s,
                                 .account = r->account};
    http_client_host(r, record.address, sizeof record.address);
    cfg->log(&record);
}

static void request_free(struct http_request *r) {
    struct http_server *s = r->server;
    bool counted = r->counted;
    if (s->cfg.log != NULL)
        log_request(r);
    if (r->release != NULL)
        r->release(r->release_user);
    for (size_t i = 0; i < r->n_headers; i++) {
        mem_free(r->headers[i].name);
        mem_free(r->headers[i].value);
    }
    pthread_mutex_destroy(&r->lock);
    http_head_deinit(&r->head);
    mem_free(r->body);
    atomic_fetch_sub_explicit(&s->large_bytes, r->large_bytes, memory_order_relaxed);
    mem_free(r->out);
    mem_free(r);
    /* Last of all: a thread that waits for the requests to end may then free everything. */
    if (counted)
        atomic_fetch_sub(&s->n_running, 1);
}

struct http_request *http_request_new(struct http_server *s, struct http_head *head) {
    struct http_request *r = mem_calloc(1, sizeof *r);
    if (r != NULL)
        r->body = mem_calloc(1, 1);
    if (r == NULL || r->body == NULL) {
        mem_free(r);
        http_head_deinit(head);
        return NULL;
    }
    r->server = s;
    r->head = *head;
    r->begun_s = clock_s();
    r->begun_unix_s = (double)clock_read_ns(CLOCK_REALTIME) * 1e-9;
    pthread_mutex_init(&r->lock, NULL);
    return r;
}

/* With r->lock held; unlocks, and frees if all holders are done. */
static void unlock_or_free(struct http_request *r) {
    bool over = r->ended && r->completed && !r->handling;
    pthread_mutex_unlock(&r->lock);
    if (over)
        request_free(r);
}

void http_request_complete(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    if (r->phase == PHASE_BODY) /* never came to a handler */
        r->ended = true;
    r->completed = r->gone = true;
    unlock_or_free(r);
}

void http_request_tell_gone(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    void (*on_gone)(void *) = r->ended ? NULL : r->on_gone;
    void *user = r->on_gone_user;
    r->on_gone = NULL;
    r->left = r->left || !r->ended;
    r->gone = true;
    pthread_mutex_unlock(&r->lock);
    if (on_gone != NULL)
        on_gone(user);
}

void http_request_handle(struct http_request *r) {
    const struct http_config *cfg = &r->server->cfg;
    pthread_mutex_lock(&r->lock);
    bool gone = r->gone;
    pthread_mutex_unlock(&r->lock);
    if (gone)
        http_reply(r, 503, "text/plain", "", 0); /* to no client */
    else
        cfg->handle(cfg->user, r);
    pthread_mutex_lock(&r->lock);
    r->handling = false;
    unlock_or_free(r);
}

void http_request_fail(struct http_request *r, int status, const char *sentence) {
    const struct http_config *cfg = &r->server->cfg;
    if (cfg->fail != NULL) {
        cfg->fail(cfg->user, r, status, sentence);
        return;
    }
    char text[256];
    int n = snprintf(text, sizeof text, "{\"error\": \"%s\"}\n", sentence);
    http_reply(r, status, "application/json", text, (size_t)n);
}

/* With r->lock held: lets the loop look, unlocks, and frees if all holders are done. Woken before
 * that, since afterwards the loop may free it, and its server may be closed. */
static void unlock_and_wake(struct http_request *r) {
    if (!r->completed) {
        atomic_store(&r->dirty, true);
        http_server_wake(r->server);
    }
    unlock_or_free(r);
}

void http_set_account(struct http_request *r, const struct http_account *a) {
    pthread_mutex_lock(&r->lock);
    r->account = *a;
    pthread_mutex_unlock(&r->lock);
}

/* ---- what it says ------------------------------------------------------------------------ */

const char *http_method(const struct http_request *r) {
    return r->head.method;
}

const char *http_path(const struct http_request *r) {
    return r->head.path;
}

const char *http_header(const struct http_request *r, const char *name) {
    return http_head_field(&r->head, name);
}

const char *http_query(const struct http_request *r, const char *name) {
    for (size_t i = 0; i < r->head.n_args; i++)
        if (str_eq(r->head.args[i].name, name))
            return r->head.args[i].value;
    return NULL;
}

void http_each_header(const struct http_request *r, http_each_fn fn, void *user) {
    for (size_t i = 0; i < r->head.n_fields; i++)
        fn(user, r->head.fields[i].name, r->head.fields[i].value);
}

void http_each_query(const struct http_request *r, http_each_fn fn, void *user) {
    for (size_t i = 0; i < r->head.n_args; i++)
        fn(user, r->head.args[i].name, r->head.args[i].value);
}

const char *http_body(const struct http_request *r, size_t *len) {
    if (len != NULL)
        *len = r->body_len;
    return r->body != NULL ? r->body : "";
}

void http_forget_body(struct http_request *r) {
    mem_free(r->body);
    r->body = NULL;
    r->body_len = r->body_cap = 0;
    atomic_fetch_sub_explicit(&r->server->large_bytes, r->large_bytes, memory_order_relaxed);
    r->large_bytes = 0;
}

bool http_is_trusted(const struct http_request *r) {
    return r->trusted;
}

/* ---- its owner --------------------------------------------------------------------------- */

void http_on_gone(struct http_request *r, void (*on_gone)(void *user), void *user) {
    pthread_mutex_lock(&r->lock);
    bool late = r->gone && !r->ended;
    r->on_gone = late ? NULL : on_gone;
    r->on_gone_user = user;
    pthread_mutex_unlock(&r->lock);
    if (late && on_gone != NULL)
        on_gone(user);
}

void http_set_release(struct http_request *r, void (*release)(void *user), void *user) {
    pthread_mutex_lock(&r->lock);
    r->release = release;
    r->release_user = user;
    pthread_mutex_unlock(&r->lock);
}

/* With r->lock held. */
static void add_header(struct http_request *r, const char *name, const char *value) {
    if (r->n_headers == HTTP_OUT_HEADERS_MAX || strpbrk(value, "\r\n") != NULL)
        return;
    char *n = mem_strdup(name), *v = mem_strdup(value);
    if (n != NULL && v != NULL) {
        r->headers[r->n_headers].name = n;
        r->headers[r->n_headers++].value = v;
    } else {
        mem_free(n);
        mem_free(v);
    }
}

void http_set_header(struct http_request *r, const char *name, const char *value) {
    pthread_mutex_lock(&r->lock);
    add_header(r, name, value);
    pthread_mutex_unlock(&r->lock);
}

/* With r->lock held. False: no memory. */
static bool out_append(struct http_request *r, const void *data, size_t len) {
    if (r->out_begin != 0 && r->out_begin == r->out_len)
        r->out_begin = r->out_len = 0;
    if (r->out_len + len > r->out_cap) {
        size_t unread = r->out_len - r->out_begin;
        size_t cap = MAX(unread + len, r->out_cap * 2);
        char *p = mem_alloc(cap);
        if (p == NULL)
            return false;
        if (unread != 0)
            memcpy(p, r->out + r->out_begin, unread);
        mem_free(r->out);
        r->out = p;
        r->out_cap = cap;
        r->out_begin = 0;
        r->out_len = unread;
    }
    if (len != 0)
        memcpy(r->out + r->out_len, data, len);
    r->out_len += len;
    return true;
}

void http_reply(struct http_request *r, int status, const char *content_type, const void *body,
                size_t len) {
    pthread_mutex_lock(&r->lock);
    add_header(r, "Content-Type", content_type);
    r->status = status;
    if (!out_append(r, body, len))
        r->status = 500;
    r->phase = PHASE_REPLY;
    r->ended = true;
    unlock_and_wake(r);
}

/* With r->lock held. */
static void stream_begin(struct http_request *r, int status, const char *content_type) {
    if (r->phase == PHASE_STREAM)
        return;
    add_header(r, "Content-Type", content_type);
    add_header(r, "Cache-Control", "no-cache");
    add_header(r, "X-Accel-Buffering", "no");
    r->status = status;
    r->phase = PHASE_STREAM;
}

void http_stream_begin(struct http_request *r, int status, const char *content_type) {
    pthread_mutex_lock(&r->lock);
    stream_begin(r, status, content_type);
    unlock_and_wake(r);
}

void http_fill_quiet(struct http_request *r, const char *content_type, const char *filler) {
    pthread_mutex_lock(&r->lock);
    r->quiet_type = content_type;
    r->filler = filler;
    r->written_s = clock_s();
    pthread_mutex_unlock(&r->lock);
}

void http_request_fill_quiet(struct http_request *r, double now_s, int quiet_ms) {
    pthread_mutex_lock(&r->lock);
    if (r->filler != NULL && !r->ended && !r->gone &&
        (now_s - r->written_s) * 1000 >= quiet_ms) {
        stream_begin(r, 200, r->quiet_type);
        out_append(r, r->filler, strlen(r->filler)); /* without memory: next time */
        r->written_s = now_s;
    }
    pthread_mutex_unlock(&r->lock);
}

bool http_quiet_end(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    r->filler = NULL;
    bool begun = r->phase == PHASE_STREAM;
    pthread_mutex_unlock(&r->lock);
    return begun;
}

enum status http_stream_write(struct http_request *r, const void *data, size_t len) {
    pthread_mutex_lock(&r->lock);
    size_t unread = r->out_len - r->out_begin;
    r->largest = MAX(r->largest, len);
    if (!r->gone && (unread > r->server->cfg.max_unread_bytes + HTTP_BURST * r->largest ||
                     !out_append(r, data, len)))
        r->gone = true; /* reads too slowly: cut off */
    r->written_s = clock_s();
    enum status st = r->gone ? ST_CANCELLED : ST_OK;
    unlock_and_wake(r);
    return st;
}

void http_stream_end(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    r->ended = true;
    unlock_and_wake(r);
}

void http_stream_break(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    r->broken = r->ended = true;
    unlock_and_wake(r);
}
