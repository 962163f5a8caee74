/* http.h: an HTTP/1.1 server, on sockets and GnuTLS. Knows nothing of language models.
 *
 * A handler gets each request once its body is complete, and must not block: it replies at once,
 * or keeps the request and replies later from any thread; a reply is one body, or a stream of
 * pieces. Exactly one of http_reply(), http_stream_end() and http_stream_break() ends a request,
 * after which it is gone (but not before the handler has returned).
 *
 * Without cfg.lane the handler is called on the server's thread, where no connection goes on
 * meanwhile. With it, on threads of its own, four of them, several requests at once: each lane has
 * its own, so that a quick request waits for no long one. Whose client has gone before its turn is
 * never handled; http_drain() and http_close() wait for those whose turn is still to come. Of long
 * ones HTTP_LONG_WAITING wait; the next one gets 503.
 *
 * Whatever the server refuses by itself, from a request line that is none to a chunk that is too
 * large, is told through cfg.fail. Only what breaks off gets no answer.
 *
 * A client may close its side after the request (a half-closed connection): it gets all of its
 * answer. Whether it reads is seen by what is written to it. So for such a client, and no other,
 * a reply that takes its time is preceded by 100 Continue after a second and then every quiet_ms,
 * and a stream with a filler by that. Whoever has closed both ways is gone after the next of these.
 *
 * Limits: bodies over max_body_bytes get 413, and those over 64 KiB for which others leave no
 * room in max_bodies_bytes 503; of a client that shows no key where one is asked for nothing is
 * kept; heads are bounded by http_head.h. A client that neither sends nor reads is cut off after
 * idle_s, and so is one whose first head has not come after head_s, or a later one so long after
 * its first byte; one that shows no key where one is asked for has two idle_s for all of its
 * request. What a stream's client has not read yet is bounded: where it is more than
 * max_unread_bytes and HTTP_BURST of the stream's largest piece, http_stream_write() says
 * ST_CANCELLED, as it does when the client has gone.
 *
 * When max_connections are there, a new one takes the place of one that has sent nothing, of the
 * address with the most of these; or else of one that has had no request under way for 5 s. */
#ifndef LOCKSTEP_NET_HTTP_H
#define LOCKSTEP_NET_HTTP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct http_server;
struct http_request;

/* On what is refused because the server ends: another one will answer. */
#define HTTP_ENDING_HEADER "Lockstep-Ending"

/* So many pieces may follow each other at once, of whatever size: a client that has read all
 * before them has had no time for them. (/v1/responses ends with its longest text in four
 * events.) */
#define HTTP_BURST 4

/* For requests whose handler takes no time to speak of; a few milliseconds; longer. */
enum http_lane { HTTP_LANE_QUICK, HTTP_LANE_SHORT, HTTP_LANE_LONG, HTTP_N_LANES };
#define HTTP_LONG_WAITING 32

struct http_config {
    const char *host; /* address or name; "*": all addresses; default 127.0.0.1 */
    int port;         /* 0: any free one */
    const char *tls_cert_path, *tls_key_path; /* PEM files; both or none. TLS 1.2 and 1.3 */
    const char *tls_cert_pem, *tls_key_pem;   /* or their texts; copied */
    const char *const *api_keys; /* "Authorization: Bearer KEY" or "x-api-key: KEY"; copied */
    size_t n_api_keys;           /* 0: everybody may */
    bool (*needs_key)(const char *path); /* paths that ask for a key; NULL: all */
    /* 403 for who does not call this machine by a name of its own, and for what pages of others
     * send. */
    bool local_only;
    const char *cors_origin; /* "*" or an origin; NULL: no CORS headers */
    size_t max_body_bytes;   /* default 32 MiB */
    size_t max_bodies_bytes; /* of all that are not small together; default 256 MiB */
    size_t max_unread_bytes; /* default 1 MiB */
    /* default 512, at most half of the open files that are allowed; further ones wait unheard
     * where nobody has to go for them */
    int max_connections;
    int max_per_address; /* of them from one address; default 0: no such limit */
    int idle_s;          /* default 60 */
    int head_s;          /* for a request's head to come; default 20, at most two idle_s */
    int quiet_ms;        /* http_fill_quiet(); default 10 s */

    void (*handle)(void *user, struct http_request *r);
    /* On whose threads it is called; on the server's thread, so quickly. NULL: on that one. */
    enum http_lane (*lane)(void *user, const struct http_request *r);
    /* Writes an error of the server itself (401, 404, 413...) in the dialect of the path: the
     * body, by http_reply_text(). NULL: {"error": "..."}. */
    void (*fail)(void *user, struct http_request *r, int status, const char *sentence);
    void *user;
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
/* All of them; value: "" where there is none. */
typedef void (*http_each_fn)(void *user, const char *name, const char *value);
void http_each_header(const struct http_request *r, http_each_fn fn, void *user);
void http_each_query(const struct http_request *r, http_each_fn fn, void *user);
/* The client's address without the port, or its API key's hash: whose turn it is. */
unsigned long long http_client(const struct http_request *r);
/* The client's numeric address without a port. */
void http_client_host(const struct http_request *r, char *out, size_t size);
/* NUL-terminated, too. */
const char *http_body(const struct http_request *r, size_t *len);
/* For a handler that has read the body and needs it no more: "" from here on. */
void http_forget_body(struct http_request *r);
/* Whether the client has shown a key, or none is asked for: of use where cfg.needs_key says no. */
bool http_is_trusted(const struct http_request *r);

/* Before the reply. Both copied. */
void http_set_header(struct http_request *r, const char *name, const char *value);
/* The whole answer; body is copied. */
void http_reply(struct http_request *r, int status, const char *content_type, const void *body,
                size_t len);

/* A stream: begin, pieces from any one thread at a time, end. on_gone (may be NULL) is called
 * at most once, on the server's thread, when the client has gone before the end; the request
 * stays valid until http_stream_end(), which is still due. It works for a request kept for
 * http_reply(), too. */
void http_on_gone(struct http_request *r, void (*on_gone)(void *user), void *user);
/* release is called once, from any thread, when the request is ended and its connection is done
 * with it: nothing calls on_gone any more, and what its owner kept for it may be freed. */
void http_set_release(struct http_request *r, void (*release)(void *user), void *user);
/* For a request that will be a stream: whenever nothing was written for cfg.quiet_ms, the
 * server writes filler (a literal), and first begins the stream (200) if its owner has not.
 * Proxies and clients give up a connection on which nothing comes, and a long prompt takes
 * minutes. Until http_quiet_end() or the end. */
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
