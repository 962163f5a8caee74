/* http.h: an HTTP/1.1 server on sockets and GnuTLS. It knows nothing of language models.
 *
 * Handlers. A handler gets a request when its body is complete, and must not block. It replies
 * at once, or keeps the request and replies later from any thread. A reply is one body or a
 * stream of pieces. Exactly one of http_reply(), http_stream_end() and http_stream_break() ends
 * a request. The request is freed after that, but not before the handler has returned.
 *
 * Threads. Without cfg.lane the handler runs on the server's thread, and no connection makes
 * progress meanwhile. With it, four threads run handlers at once. Each lane has its own
 * threads, so that a quick request does not wait for a long one. A request whose client has
 * gone before its turn is never handled. http_drain() and http_close() wait for the requests
 * that are still queued. At most HTTP_LONG_WAITING long requests wait; the next one gets 503.
 *
 * Errors. Whatever the server refuses by itself, from a malformed request line to a chunk that
 * is too large, is reported through cfg.fail. Only a connection that breaks off gets no answer.
 *
 * Half-closed connections. A client may close its side after the request. It still gets its
 * whole answer. Only writing to such a client shows whether it still reads. So for such clients
 * alone, a slow reply is preceded by 100 Continue after a second and then every quiet_ms, and a
 * stream gets a filler at these times. A client that has closed both sides is gone after the
 * next one.
 *
 * Limits:
 *   - Bodies over max_body_bytes get 413.
 *   - Bodies over 64 KiB get 503 if they do not fit into max_bodies_bytes.
 *   - If a key is required and the client shows none, nothing of its body is kept.
 *   - http_head.h bounds heads.
 *   - A client that neither sends nor receives is disconnected after idle_s.
 *   - A first head must arrive within head_s, and a later one within head_s of its first byte.
 *   - A client that shows no required key has two idle_s for its whole request.
 *   - http_stream_write() returns ST_CANCELLED if a stream has more unread data than
 *     max_unread_bytes plus HTTP_BURST of its largest pieces, or if the client has gone.
 *
 * If max_connections are open, a new one replaces a connection that has sent nothing, from the
 * address with the most of these. Otherwise it replaces one that has had no request under way
 * for 5 s. */
#ifndef LOCKSTEP_NET_HTTP_H
#define LOCKSTEP_NET_HTTP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct http_server;
struct http_request;

/* On what is refused because the server ends: another one will answer. */
#define HTTP_ENDING_HEADER "Lockstep-Ending"

/* This many pieces of any size may follow each other at once. A client that has read all
 * earlier pieces has had no time for these. (/v1/responses ends with its longest text in four
 * events.) */
#define HTTP_BURST 4

/* For requests whose handler takes almost no time; a few milliseconds; longer. */
enum http_lane { HTTP_LANE_QUICK, HTTP_LANE_SHORT, HTTP_LANE_LONG, HTTP_N_LANES };
#define HTTP_LONG_WAITING 32

/* What the handler knows of a request, for who keeps a log: figures, and never the text. */
struct http_account {
    char name[96]; /* of what answered; "": nothing to say */
    size_t n_in, n_cached, n_out;
    double first_s; /* to the first of n_out; 0: not known */
};

/* A request that is over. */
struct http_record {
    const char *method, *path; /* "" if its head was not understood */
    char address[64];          /* the client's */
    int key;                   /* which of cfg.api_keys it has shown, from 1; 0: none of them */
    int status;                /* 0: there was no answer */
    bool left;                 /* the client went away before the end */
    double begun_unix_s, all_s;
    struct http_account account;
};

struct http_config {
    const char *host; /* address or name; "*": all addresses; default 127.0.0.1 */
    int port;         /* 0: any free one */
    const char *tls_cert_path, *tls_key_path; /* PEM files; both or none. TLS 1.2 and 1.3 */
    const char *tls_cert_pem, *tls_key_pem;   /* or their texts; copied */
    const char *const *api_keys; /* "Authorization: Bearer KEY" or "x-api-key: KEY"; copied */
    size_t n_api_keys;           /* 0: everybody may */
    bool (*needs_key)(const char *path); /* paths that ask for a key; NULL: all */
    /* 403 for clients that call this machine by a name that is not its own, and for requests
     * that other sites' pages send. */
    bool local_only;
    const char *cors_origin; /* "*" or an origin; NULL: no CORS headers */
    bool cors_local;         /* them also for pages of this machine and of applications on it */
    size_t max_body_bytes;   /* default 32 MiB */
    size_t max_bodies_bytes; /* of all that are not small together; default 256 MiB */
    size_t max_unread_bytes; /* default 1 MiB */
    /* default 512, at most half of the open files that are allowed; further ones wait in the
     * listen queue unless an older connection can be closed */
    int max_connections;
    int max_per_address; /* of them from one address; default 0: no such limit */
    int idle_s;          /* default 60 */
    int head_s;          /* for a request's head to come; default 20, at most two idle_s */
    int quiet_ms;        /* http_fill_quiet(); default 10 s */

    void (*handle)(void *user, struct http_request *r);
    /* Which lane's threads call it; runs on the server's thread, so it must be quick. NULL: the
     * server's thread calls the handler. */
    enum http_lane (*lane)(void *user, const struct http_request *r);
    /* Writes an error of the server itself (401, 404, 413...) in the dialect of the path: the
     * body, by http_reply_text(). NULL: {"error": "..."}. */
    void (*fail)(void *user, struct http_request *r, int status, const char *sentence);
    void *user;
    /* Called once for each request, from any thread. NULL: nothing is kept. */
    void (*log)(const struct http_record *record);
};
void http_config_init(struct http_config *cfg);

/* Listens and serves on a thread of its own. Lets the process have as many open files as the
 * system allows (2^16 at most). ST_IO with the reason (port taken, bad certificate). */
enum status http_open(struct http_server **out, const struct http_config *cfg, struct err *err);
/* Refuses new requests with 503 and waits until the running ones have ended, at most wait_ms.
 * True if all ended. A request that has not come whole is a new one. */
bool http_drain(struct http_server *s, int wait_ms);
/* Cuts what still runs. Every request kept by a handler must have been ended first
 * (http_drain), or its owner must be told by its on_gone. NULL is fine. */
void http_close(struct http_server *s);
int http_port(const struct http_server *s);
int http_max_connections(const struct http_server *s);
/* Requests that were handed to the handler, or wait for it, and have not been ended and sent. */
int http_n_running(const struct http_server *s);

/* ---- a request: valid until it is ended --------------------------------------------------- */

const char *http_method(const struct http_request *r);
const char *http_path(const struct http_request *r);
/* NULL if absent; names in any case. They are the request's, also when the client has gone. */
const char *http_header(const struct http_request *r, const char *name);
const char *http_query(const struct http_request *r, const char *name);
/* All of them; value: "" if it has none. */
typedef void (*http_each_fn)(void *user, const char *name, const char *value);
void http_each_header(const struct http_request *r, http_each_fn fn, void *user);
void http_each_query(const struct http_request *r, http_each_fn fn, void *user);
/* A number for the client's address without the port, or for its API key: for fair scheduling.
 */
unsigned long long http_client(const struct http_request *r);
/* The client's numeric address without a port. */
void http_client_host(const struct http_request *r, char *out, size_t size);
/* Does the client speak HTTP/1.0? Of those in use mostly proxies do. */
bool http_is_1_0(const struct http_request *r);
/* NUL-terminated, too. */
const char *http_body(const struct http_request *r, size_t *len);
/* For a handler that has read the body and needs it no more: "" from here on. */
void http_forget_body(struct http_request *r);
/* Whether the client has shown a key, or none is asked for: of use where cfg.needs_key says no. */
bool http_is_trusted(const struct http_request *r);
/* Which of cfg.api_keys it has shown, from 1; 0: none of them. */
int http_key(const struct http_request *r);
/* The key that it shows, whatever that is worth; NULL: none. */
const char *http_shown_key(const struct http_request *r);
/* Why cfg.local_only would refuse it: a sentence; NULL: it would not. */
const char *http_why_not_local(const struct http_request *r);
/* Is this origin a page of a server on the browser's own machine, or of an application there,
 * which the web cannot claim to be? */
bool http_is_local_origin(const char *origin);

/* Before the end of the reply. Copied. */
void http_set_account(struct http_request *r, const struct http_account *a);

/* Before the reply. Both copied. */
void http_set_header(struct http_request *r, const char *name, const char *value);
/* The whole answer; body is copied. */
void http_reply(struct http_request *r, int status, const char *content_type, const void *body,
                size_t len);

/* A stream: begin, pieces from any one thread at a time, end. on_gone (may be NULL) is called
 * at most once, on the server's thread, if the client goes away before the end. The request
 * stays valid until http_stream_end(), which must still be called. It works for a request kept
 * for http_reply(), too. */
void http_on_gone(struct http_request *r, void (*on_gone)(void *user), void *user);
/* release is called once, from any thread, when the request has ended and its connection no
 * longer uses it. From then on nothing calls on_gone, and the owner may free what it kept for
 * it. */
void http_set_release(struct http_request *r, void (*release)(void *user), void *user);
/* For a request that will be a stream: if nothing was written for cfg.quiet_ms, the server
 * writes filler (a literal). It first begins the stream (200) if the owner has not. Proxies and
 * clients give up a silent connection, and a long prompt takes minutes. Ends with
 * http_quiet_end() or the end of the request. */
void http_fill_quiet(struct http_request *r, const char *content_type, const char *filler);
/* Fills no more. True: the stream has begun, and whatever comes must be a piece of it. */
bool http_quiet_end(struct http_request *r);
/* Nothing, if it has begun. */
void http_stream_begin(struct http_request *r, int status, const char *content_type);
enum status http_stream_write(struct http_request *r, const void *data, size_t len);
void http_stream_end(struct http_request *r);
/* Instead: after what was written the connection breaks, so that the client knows that more was
 * to come. */
void http_stream_break(struct http_request *r);

#endif
