/* reply.h: turns the events of one request's generations into one HTTP reply, whole or
 * streamed, in any dialect. A reply lives as long as its HTTP request. A reply that is alone has
 * none: it lives until its end, and its dialect tells whom it wants to.
 *
 * Threads: reply_open() and reply_submit() are for the handler, of which several run at once.
 * Everything after that happens on the engine's thread, which calls the dialect's functions. A
 * client that disconnects cancels the generations. They still end, and the reply with them. */
#ifndef LOCKSTEP_SERVER_REPLY_H
#define LOCKSTEP_SERVER_REPLY_H

#include "base/buf.h"
#include "net/http.h"
#include "server/params.h"
#include "server/service.h"

#include <jansson.h>
#include <pthread.h>

/* The header that names a request, "HEX-UNIXTIME-CLIENT". Its ids, its time and, if it has
 * none, its seed follow from the name. So the same request gives the same bytes of an answer
 * (gateway/gateway.h). Figures of the machine (cached tokens, times) are only in the last event of
 * a stream, or in the last before the end mark. CLIENT, in hex, is for fair scheduling, since
 * all requests from a gateway come from one address. */
#define REPLY_NAME_HEADER "Lockstep-Request"
#define REPLY_NAME_BYTES 12
#define REPLY_NAME_TEXT 80
/* A new name, of now. */
void reply_make_name(char out[REPLY_NAME_TEXT], unsigned long long client);
/* Of a request that names its model by a name that only a gateway knows: the model's own. */
#define REPLY_MODEL_HEADER PARAMS_MODEL_HEADER

/* JSON in one line; v is taken over, and NULL is as no memory. */
bool buf_add_json(struct buf *t, json_t *v);
/* A JSON string of it, "" if it is empty; invalid UTF-8 becomes U+FFFD. NULL: it failed. */
json_t *buf_json(const struct buf *t);
json_t *time_json(int64_t unix_s); /* "2024-11-20T09:08:07Z" */
/* Invalid UTF-8 becomes U+FFFD, one for each run of invalid bytes. */
json_t *bytes_json(const char *bytes, size_t len);

struct reply_call {
    char *name, *id;
    struct buf arguments;
    bool cut; /* the model was stopped within it */
};

/* The arguments of the call, a new reference; an empty object if they are not JSON (for example
 * cut off). */
json_t *reply_arguments(const struct reply_call *call);

struct reply_choice {
    struct buf content, reasoning;
    struct reply_call *calls;
    size_t n_calls;
    size_t n_reasoning; /* tokens up to the last of the reasoning */
    json_t *logprobs;   /* the dialect's */
    /* The same, of what has become content, where that is told at the end. */
    json_t *content_logprobs;
    size_t n_chars; /* of the text up to the last token that was in logprobs */
    json_t *vector; /* of an embedding, an array */
    enum service_finish finish;
    struct engine_done done; /* stop_string: a copy, owned */
    bool ended;
};

struct reply;

struct dialect {
    const char *stream_type; /* "text/event-stream", "application/x-ndjson" */
    const char *id_header;   /* which header names the request; NULL: x-request-id */
    /* Each event, streamed or not (choice counts through all prompts); NULL: none matters. */
    void (*event)(struct reply *r, int choice, const struct service_event *ev);
    /* Streams: before the first event; at the end, or when it failed. */
    void (*begin)(struct reply *r);
    void (*end)(struct reply *r);
    void (*stream_error)(struct reply *r, enum status st, const struct err *why);
    /* Not streamed: the body, a new reference. */
    json_t *(*whole)(struct reply *r);
    /* What the state owns; NULL: nothing. The state itself is the reply's. */
    void (*state_deinit)(void *state);
    /* An error's body, a new reference. field: of the request, may be "". */
    json_t *(*error)(int http_status, enum err_code code, const char *sentence,
                     const char *field);
};

struct reply {
    struct service *service;
    struct http_request *http; /* NULL: it is alone */
    const struct dialect *dialect;
    bool stream;
    char id[2 * REPLY_NAME_BYTES + 1]; /* random hex, or the request's name */
    bool named;
    uint64_t client; /* for fair scheduling */
    int64_t created;
    double begun_s;      /* clock */
    void *state;         /* the dialect's, mem_free'd with the reply; NULL if it needs none */
    int n_parts, n_each; /* prompts, and choices of each */
    struct reply_choice *choices; /* [n_parts * n_each] */
    struct reply_part *parts;     /* reply.c's */

    pthread_mutex_t lock; /* guards: */
    int n_left;           /* parts that have not ended, and its maker, if it is alone */
    enum status failed;
    struct err why;

    bool stream_begun; /* the engine's thread */
};

/* NULL if there is no memory (a 500 was sent). state_size: of r->state, zeroed. */
struct reply *reply_open(struct service *s, struct http_request *http, const struct dialect *d,
                         int n_parts, int n_each, bool stream, size_t state_size);
/* One request per part; on_event and user are set here. Replies, now or later. */
void reply_submit(struct reply *r, struct service_request *requests);

/* The same without a client: http only names it. Of the dialect's functions, begin() is called
 * when the engine begins with it, and end() or stream_error() is the last. */
struct reply *reply_open_alone(struct service *s, struct http_request *http,
                               const struct dialect *d, bool stream, size_t state_size);
/* One prompt; seldom, the error that the dialect was told, too. The reply may be gone. */
enum status reply_submit_alone(struct reply *r, struct service_request *request,
                               struct err *err);
/* One that is alone, and not submitted. */
void reply_drop(struct reply *r);
/* Any thread, while it is there: it ends soon, as failed with ST_CANCELLED. */
void reply_cancel(struct reply *r);

/* The sum over all prompts; generated over all choices. */
struct reply_usage {
    size_t n_prompt, n_cached, n_generated, n_reasoning;
};
struct reply_usage reply_usage(const struct reply *r);

/* The time to write down, Unix: of a named request, that of its name. */
int64_t reply_now(const struct reply *r);

/* An event of a stream; event: NULL for none, v is taken over. */
void buf_add_sse(struct buf *t, const char *event, json_t *v);

/* For the dialect's stream functions. v is taken over. */
void reply_sse(struct reply *r, const char *event, json_t *v); /* event: NULL for none */
void reply_ndjson(struct reply *r, json_t *v);
void reply_raw(struct reply *r, const char *text);

/* Replies of any kind. v is taken over. */
void reply_json(struct http_request *http, int http_status, json_t *v);
/* With enough digits for times. */
void reply_json_exactly(struct http_request *http, int http_status, json_t *v);
void reply_error(struct http_request *http, const struct dialect *d, enum status st,
                 const struct err *why, const char *field);
int http_status_of(enum status st);

#endif
