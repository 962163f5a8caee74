/* reply.c: Turns the events of a request's generations into one HTTP reply, whole or streamed. */
#include "server/reply.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define JSON_FORM (JSON_COMPACT | JSON_REAL_PRECISION(9))
#define EXACT_DIGITS 15

/* One prompt of the request. */
struct reply_part {
    struct reply *r;
    struct generation *g; /* r->lock */
    int first_choice;
};

/* ---- text -------------------------------------------------------------------------------- */

json_t *bytes_json(const char *bytes, size_t len) {
    json_t *v = json_stringn(len > 0 ? bytes : "", len);
    struct buf text = {0};
    bool wrong = false; /* what came last is replaced already */
    for (size_t i = 0; v == NULL && i < len;) {
        int n = utf8_check((const uint8_t *)bytes + i, len - i);
        if (n > 0)
            buf_add(&text, bytes + i, (size_t)n);
        else if (!wrong)
            buf_add_str(&text, UTF8_REPLACEMENT);
        wrong = n <= 0;
        i += (size_t)MAX(n, 1);
    }
    if (v == NULL && !text.failed)
        v = json_stringn(buf_cstr(&text), text.len);
    buf_free(&text);
    return v;
}

void reply_make_name(char out[REPLY_NAME_TEXT], unsigned long long client) {
    unsigned char random[REPLY_NAME_BYTES];
    char hex[2 * sizeof random + 1];
    randombytes_buf(random, sizeof random);
    snprintf(out, REPLY_NAME_TEXT, "%s-%lld-%llx",
             sodium_bin2hex(hex, sizeof hex, random, sizeof random), (long long)time(NULL),
             client);
}

bool buf_add_json(struct buf *t, json_t *v) {
    char *text = v != NULL ? json_dumps(v, JSON_FORM) : NULL;
    if (text == NULL)
        t->failed = true;
    else
        buf_add_str(t, text);
    free(text);
    json_decref(v);
    return !t->failed;
}

json_t *buf_json(const struct buf *t) {
    return t->failed ? NULL : bytes_json(t->bytes, t->len);
}

json_t *time_json(int64_t unix_s) {
    char text[40];
    struct tm tm;
    time_t t = (time_t)unix_s;
    gmtime_r(&t, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_string(text);
}

json_t *reply_arguments(const struct reply_call *call) {
    const struct buf *text = &call->arguments;
    json_t *v = text->len > 0 ? json_read(text->bytes, text->len, 0, NULL) : NULL;
    return v != NULL ? v : json_object();
}

/* ---- whole replies ----------------------------------------------------------------------- */

int http_status_of(enum status st) {
    switch (st) {
    case ST_BAD_INPUT:
    case ST_UNSUPPORTED:
        return 400;
    case ST_NOT_FOUND:
        return 404;
    case ST_AGAIN:
    case ST_PEER_LOST:
    case ST_TIMEOUT:
    case ST_REFUSED:
    case ST_CANCELLED:
        return 503;
    default:
        return 500;
    }
}

static void reply_as(struct http_request *http, int http_status, json_t *v, size_t form) {
    char *text = v != NULL ? json_dumps(v, form) : NULL;
    json_decref(v);
    if (text == NULL)
        http_reply(http, 500, "application/json", "{\"error\":\"no memory\"}", 21);
    else
        http_reply(http, http_status, "application/json", text, strlen(text));
    free(text);
}

void reply_json(struct http_request *http, int http_status, json_t *v) {
    reply_as(http, http_status, v, JSON_FORM);
}

void reply_json_exactly(struct http_request *http, int http_status, json_t *v) {
    reply_as(http, http_status, v, JSON_COMPACT | JSON_REAL_PRECISION(EXACT_DIGITS));
}

static void send_error(struct http_request *http, const struct dialect *d, int http_status,
                       const struct err *why, const char *field) {
    if (http_status == 503)
        http_set_header(http, "Retry-After", "2");
    reply_json(http, http_status, d->error(http_status, why->code, why->text, field));
}

void reply_error(struct http_request *http, const struct dialect *d, enum status st,
                 const struct err *why, const char *field) {
    send_error(http, d, http_status_of(st), why, field);
}

/* ---- pieces of streams ------------------------------------------------------------------- */

static void cancel_all(struct reply *r) {
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->n_parts; i++)
        if (r->parts[i].g != NULL)
            generation_cancel(r->parts[i].g);
    pthread_mutex_unlock(&r->lock);
}

static void write_piece(struct reply *r, const char *text, size_t len) {
    if (http_stream_write(r->http, text, len) != ST_OK)
        cancel_all(r);
}

void reply_raw(struct reply *r, const char *text) {
    write_piece(r, text, strlen(text));
}

static void write_buf(struct reply *r, struct buf *t) {
    if (!t->failed)
        write_piece(r, t->bytes, t->len);
    buf_free(t);
}

void buf_add_sse(struct buf *t, const char *event, json_t *v) {
    if (event != NULL)
        buf_printf(t, "event: %s\n", event);
    buf_add_str(t, "data: ");
    buf_add_json(t, v);
    buf_add_str(t, "\n\n");
}

void reply_sse(struct reply *r, const char *event, json_t *v) {
    struct buf t = {0};
    buf_add_sse(&t, event, v);
    write_buf(r, &t);
}

void reply_ndjson(struct reply *r, json_t *v) {
    struct buf t = {0};
    buf_add_json(&t, v);
    buf_add_str(&t, "\n");
    write_buf(r, &t);
}

/* ---- what the generations say, on the engine's thread ------------------------------------ */

static void keep_call(struct reply_choice *c, const struct service_event *ev) {
    struct reply_call *grown = mem_realloc(c->calls, (c->n_calls + 1) * sizeof *grown);
    if (grown == NULL)
        return;
    c->calls = grown;
    grown[c->n_calls++] =
        (struct reply_call){.name = mem_strndup(ev->text, ev->len), .id = mem_strdup(ev->id)};
}

static json_t *unit_vector(const float *v, size_t n) {
    double square = 0;
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++)
        square += (double)v[i] * (double)v[i];
    double scale = square > 0 ? 1 / __builtin_sqrt(square) : 0;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, json_real((double)v[i] * scale));
    return out;
}

static void keep(struct reply_choice *c, const struct service_event *ev) {
    if (ev->token != NULL) { /* figures for who reports before the end */
        c->done.n_prompt = ev->token->n_prompt;
        c->done.n_cached = ev->token->n_cached;
        c->done.n_generated = ev->token->n_generated;
    }
    switch (ev->kind) {
    case EVENT_CONTENT:
        buf_add(&c->content, ev->text, ev->len);
        break;
    case EVENT_REASONING:
        buf_add(&c->reasoning, ev->text, ev->len);
        if (ev->token != NULL)
            c->n_reasoning = ev->token->n_generated;
        break;
    case EVENT_CALL_BEGIN:
        keep_call(c, ev);
        break;
    case EVENT_ARGUMENTS:
        if (c->n_calls > 0)
            buf_add(&c->calls[c->n_calls - 1].arguments, ev->text, ev->len);
        break;
    case EVENT_CALL_END:
        if (c->n_calls > 0)
            c->calls[c->n_calls - 1].cut = ev->cut;
        break;
    case EVENT_EMBEDDING:
        c->vector = unit_vector(ev->vector, ev->n_embd);
        break;
    case EVENT_DONE:
        c->finish = ev->finish;
        c->done = *ev->done;
        c->done.stop_string =
            ev->done->stop_string != NULL ? mem_strdup(ev->done->stop_string) : NULL;
        c->ended = true;
        break;
    default:
        break;
    }
}

static void fail(struct reply *r, enum status st, const struct err *why) {
    pthread_mutex_lock(&r->lock);
    if (r->failed == ST_OK) {
        r->failed = st;
        r->why = *why;
    }
    pthread_mutex_unlock(&r->lock);
    cancel_all(r);
}

static void note_failure(struct reply *r, const struct service_event *ev) {
    struct err why;
    enum status st = ST_OK;
    if (ev->finish == FINISH_ERROR)
        st = err_set(&why, ev->done->st, "%s",
                     ev->done->error != NULL ? ev->done->error : "the request failed");
    else if (ev->finish == FINISH_CANCELLED)
        st = err_set(&why, ST_CANCELLED,
                     "the request was cancelled: the server is shutting down");
    if (st != ST_OK)
        fail(r, st, &why);
}

static void begin_stream(struct reply *r) {
    if (r->stream_begun)
        return;
    r->stream_begun = true;
    if (r->http != NULL)
        http_stream_begin(r->http, 200, r->dialect->stream_type);
    if (r->dialect->begin != NULL)
        r->dialect->begin(r);
}

static void account(struct reply *r) {
    struct http_account a = {.n_in = 0};
    struct reply_usage u = reply_usage(r);
    snprintf(a.name, sizeof a.name, "%s", service_facts(r->service)->name);
    a.n_in = u.n_prompt;
    a.n_cached = u.n_cached;
    a.n_out = u.n_generated;
    a.first_s = r->choices[0].done.queued_s + r->choices[0].done.prompt_s;
    http_set_account(r->http, &a);
}

static void reply_free(void *user);

static void finish_alone(struct reply *r) {
    pthread_mutex_lock(&r->lock); /* it may be cancelled just now */
    enum status failed = r->failed;
    pthread_mutex_unlock(&r->lock);
    if (failed != ST_OK)
        r->dialect->stream_error(r, failed, &r->why);
    else
        r->dialect->end(r);
    reply_free(r);
}

/* All parts have ended. The last touch of the reply: it may be gone afterwards. */
static void finish(struct reply *r) {
    const struct dialect *d = r->dialect;
    if (r->http == NULL) {
        finish_alone(r);
        return;
    }
    account(r);
    bool begun = http_quiet_end(r->http);
    if (r->failed != ST_OK && !begun) {
        reply_error(r->http, d, r->failed, &r->why, "");
        return;
    }
    if (!r->stream) {
        reply_json(r->http, 200, d->whole(r));
        return;
    }
    begin_stream(r);
    if (r->failed != ST_OK)
        d->stream_error(r, r->failed, &r->why);
    else
        d->end(r);
    http_stream_end(r->http);
}

static void parts_ended(struct reply *r, int n) {
    pthread_mutex_lock(&r->lock);
    r->n_left -= n;
    bool all = r->n_left == 0;
    pthread_mutex_unlock(&r->lock);
    if (all)
        finish(r);
}

/* A comment of a stream that has begun, as the gateway has them (gateway_wait.c), which passes this
 * one on. Of several parts the first tells it. */
static void tell_lost(struct reply *r, const struct reply_part *part,
                      const struct service_event *ev) {
    if (r->http == NULL || !r->stream || !r->stream_begun || part != r->parts ||
        !str_eq(r->dialect->stream_type, "text/event-stream"))
        return;
    struct buf t = {0};
    json_t *host = ev->len > 0 ? json_stringn(ev->text, ev->len) : NULL;
    json_t *said =
        json_pack("{s:o?, s:n, s:o}", "lost", json_incref(host), "next", "sentence",
                  json_sprintf("%s is lost; the model is loaded again, and the answer goes on",
                               host != NULL ? json_string_value(host) : "a rank"));
    json_decref(host);
    buf_add_str(&t, ": lockstep ");
    buf_add_json(&t, said);
    buf_add_str(&t, "\n\n");
    write_buf(r, &t);
}

static void on_event(void *user, const struct service_event *ev) {
    struct reply_part *part = user;
    struct reply *r = part->r;
    if (ev->kind == EVENT_LOST) {
        tell_lost(r, part, ev);
        return;
    }
    if (ev->kind == EVENT_BEGUN) {
        if (r->http == NULL) /* who waits for it has no stream before there is something */
            begin_stream(r);
        return;
    }
    int choice = part->first_choice + ev->choice;
    keep(&r->choices[choice], ev);
    if (ev->kind == EVENT_DONE)
        note_failure(r, ev);
    bool failed = ev->kind == EVENT_DONE &&
                  (ev->finish == FINISH_ERROR || ev->finish == FINISH_CANCELLED);
    if ((r->stream || r->http == NULL) && !failed)
        begin_stream(r);
    if (r->dialect->event != NULL && !failed)
        r->dialect->event(r, choice, ev);
    if (ev->kind == EVENT_DONE && ev->last)
        parts_ended(r, 1);
}

/* ---- opening, submitting, freeing -------------------------------------------------------- */

static void choice_deinit(struct reply_choice *c) {
    buf_free(&c->content);
    buf_free(&c->reasoning);
    for (size_t i = 0; i < c->n_calls; i++) {
        mem_free(c->calls[i].name);
        mem_free(c->calls[i].id);
        buf_free(&c->calls[i].arguments);
    }
    mem_free(c->calls);
    mem_free((void *)(uintptr_t)c->done.stop_string);
    json_decref(c->logprobs);
    json_decref(c->content_logprobs);
    json_decref(c->vector);
}

static void reply_free(void *user) {
    struct reply *r = user;
    for (int i = 0; r->choices != NULL && i < r->n_parts * r->n_each; i++)
        choice_deinit(&r->choices[i]);
    for (int i = 0; r->parts != NULL && i < r->n_parts; i++)
        generation_release(r->parts[i].g);
    if (r->state != NULL && r->dialect->state_deinit != NULL)
        r->dialect->state_deinit(r->state);
    pthread_mutex_destroy(&r->lock);
    mem_free(r->choices);
    mem_free(r->parts);
    mem_free(r->state);
    mem_free(r);
}

static void on_gone(void *user) {
    cancel_all(user);
}

static bool reply_alloc(struct reply *r, size_t state_size) {
    r->choices = mem_calloc((size_t)r->n_parts * (size_t)r->n_each, sizeof *r->choices);
    r->parts = mem_calloc((size_t)r->n_parts, sizeof *r->parts);
    r->state = state_size > 0 ? mem_calloc(1, state_size) : NULL;
    if (r->choices == NULL || r->parts == NULL || (state_size > 0 && r->state == NULL))
        return false;
    for (int i = 0; i < r->n_parts; i++)
        r->parts[i] = (struct reply_part){.r = r, .first_choice = i * r->n_each};
    return true;
}

/* The end of the year 9999: time_json() writes four digits. */
#define UNIX_TIME_MAX 253402300799

/* As the request says, or by chance. */
static void name_reply(struct reply *r, const struct http_request *http) {
    unsigned char bytes[REPLY_NAME_BYTES];
    const char *name = http_header(http, REPLY_NAME_HEADER), *rest;
    long long created;
    unsigned long long client;
    int end = 0;
    size_t n;
    r->named = name != NULL &&
               sodium_hex2bin(bytes, sizeof bytes, name, strlen(name), NULL, &n, &rest) == 0 &&
               n == sizeof bytes &&
               sscanf(rest, "-%12lld-%16llx%n", &created, &client, &end) == 2 &&
               rest[end] == '\0' && created >= 0 && created <= UNIX_TIME_MAX;
    if (!r->named)
        randombytes_buf(bytes, sizeof bytes);
    r->created = r->named ? created : (int64_t)time(NULL);
    r->client = r->named ? client : http_client(http);
    sodium_bin2hex(r->id, sizeof r->id, bytes, sizeof bytes);
}

int64_t reply_now(const struct reply *r) {
    return r->named ? r->created : (int64_t)time(NULL);
}

/* http: NULL for one that is alone. */
static struct reply *reply_new(struct service *s, struct http_request *http,
                               const struct dialect *d, int n_parts, int n_each, bool stream,
                               size_t state_size) {
    struct reply *r = mem_calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    *r = (struct reply){.service = s,
                        .http = http,
                        .dialect = d,
                        .stream = stream,
                        .begun_s = clock_s(),
                        .n_parts = n_parts,
                        .n_each = n_each,
                        .n_left = n_parts + (http == NULL)};
    pthread_mutex_init(&r->lock, NULL);
    if (reply_alloc(r, state_size))
        return r;
    reply_free(r);
    return NULL;
}

/* As http says; r may be NULL, which is told. */
static struct reply *introduce(struct reply *r, struct http_request *http,
                               const struct dialect *d) {
    struct err why;
    char id[48];
    if (r == NULL) {
        enum status st = err_set(&why, ST_NO_MEMORY, "no memory for a reply");
        reply_error(http, d, st, &why, "");
        return NULL;
    }
    name_reply(r, http);
    snprintf(id, sizeof id, "req_%s", r->id);
    http_set_header(http, d->id_header != NULL ? d->id_header : "x-request-id", id);
    return r;
}

struct reply *reply_open(struct service *s, struct http_request *http, const struct dialect *d,
                         int n_parts, int n_each, bool stream, size_t state_size) {
    struct reply *r =
        introduce(reply_new(s, http, d, n_parts, n_each, stream, state_size), http, d);
    if (r != NULL)
        http_set_release(http, reply_free, r);
    return r;
}

struct reply *reply_open_alone(struct service *s, struct http_request *http,
                               const struct dialect *d, bool stream, size_t state_size) {
    return introduce(reply_new(s, NULL, d, 1, 1, stream, state_size), http, d);
}

void reply_drop(struct reply *r) {
    reply_free(r);
}

void reply_cancel(struct reply *r) {
    struct err why;
    enum status st = err_set(&why, ST_CANCELLED, "the request was cancelled");
    fail(r, st, &why);
}

static void keep_generation(struct reply *r, int part, struct generation *g) {
    pthread_mutex_lock(&r->lock);
    r->parts[part].g = g;
    bool failed = r->failed != ST_OK;
    pthread_mutex_unlock(&r->lock);
    if (failed)
        generation_cancel(g);
}

/* Each prompt gets a seed of its own. */
static void choose_seed(const struct reply *r, int part, struct service_request *request) {
    uint8_t bytes[crypto_generichash_BYTES_MIN];
    crypto_generichash_state h;
    if (!request->seed_by_chance)
        return;
    crypto_generichash_init(&h, NULL, 0, sizeof bytes);
    crypto_generichash_update(&h, (const uint8_t *)r->id, sizeof r->id);
    crypto_generichash_update(&h, (const uint8_t *)&part, sizeof part);
    crypto_generichash_final(&h, bytes, sizeof bytes);
    memcpy(&request->sampling.base.seed, bytes, sizeof request->sampling.base.seed);
}

static enum status submit_part(struct reply *r, int i, struct service_request *request,
                               struct err *err) {
    struct generation *g;
    request->client = r->client;
    request->follows = i > 0;
    request->on_event = on_event;
    request->user = &r->parts[i];
    choose_seed(r, i, request);
    enum status st = service_generate(r->service, request, &g, err);
    if (st == ST_OK)
        keep_generation(r, i, g);
    else
        fail(r, st, err);
    return st;
}

void reply_submit(struct reply *r, struct service_request *requests) {
    struct err err;
    if (r->stream && str_eq(r->dialect->stream_type, "text/event-stream"))
        http_fill_quiet(r->http, r->dialect->stream_type, ": still at work\n\n");
    for (int i = 0; i < r->n_parts; i++)
        if (submit_part(r, i, &requests[i], &err) != ST_OK) {
            parts_ended(r, r->n_parts - i);
            break;
        }
    /* The request lives at least until the handler returns. */
    http_on_gone(r->http, on_gone, r);
}

enum status reply_submit_alone(struct reply *r, struct service_request *request,
                               struct err *err) {
    enum status st = submit_part(r, 0, request, err);
    parts_ended(r, st == ST_OK ? 1 : 2);
    return st;
}

struct reply_usage reply_usage(const struct reply *r) {
    struct reply_usage u = {0};
    for (int i = 0; i < r->n_parts * r->n_each; i++) {
        const struct engine_done *d = &r->choices[i].done;
        u.n_generated += d->n_generated;
        u.n_reasoning += r->choices[i].n_reasoning;
        if (i % r->n_each == 0) {
            u.n_prompt += d->n_prompt;
            u.n_cached += d->n_cached;
        }
    }
    return u;
}
