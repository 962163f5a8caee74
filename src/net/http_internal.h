/* http_internal.h: the HTTP server's internal interface.
 *
 *   http.c             opens and closes; the loop's thread: accepts, waits, checks timeouts
 *   http_connection.c  one connection: receives requests, runs them through their stages
 *   http_send.c        sends a request's response
 *   http_places.c      who may connect, and which connection ends when all are taken
 *   http_access.c      which requests are allowed: keys, Host and Origin
 *   http_request.c     requests as their owners see them (http.h)
 *   http_workers.c     the threads of the handler, if it has some
 *
 * The loop's thread owns connections, without a lock. A request has up to three holders: its
 * owner, until the owner ends it; its connection, until the response is sent or the client is
 * gone; and the call of the handler. The last one frees it. request.lock guards what they
 * share. A thread that changes something that the connection waits for sets dirty and wakes the
 * loop. */
#ifndef LOCKSTEP_NET_HTTP_INTERNAL_H
#define LOCKSTEP_NET_HTTP_INTERNAL_H

#include "base/buf.h"
#include "net/http.h"
#include "net/http_body.h"
#include "net/http_head.h"
#include "net/http_poll.h"
#include "net/http_tls.h"
#include "net/net.h"

#include <pthread.h>
#include <stdatomic.h>

#define HTTP_KEY_BYTES 32
#define HTTP_OUT_HEADERS_MAX 16
#define HTTP_TICK_MS 200

/* ---- a request --------------------------------------------------------------------------- */

enum http_phase {
    PHASE_BODY,    /* the body is arriving */
    PHASE_HANDLED, /* the handler has it */
    PHASE_REPLY,   /* one body is ready */
    PHASE_STREAM,
};

struct http_request {
    struct http_server *server;
    struct http_head head;
    unsigned char address[16]; /* the client's, [n_address] */
    size_t n_address;
    char *body;
    size_t body_len, body_cap;
    size_t large_bytes; /* that it has of the server's */
    bool too_large, crowded_out;
    bool trusted; /* it has shown a key, or the server asks for none: what it sends is kept */
    bool counted; /* among the server's requests that run */
    double begun_s, begun_unix_s;      /* clock, and Unix time: when its head had come */
    struct http_request *next_waiting; /* for a worker; http_workers.c */

    atomic_bool dirty; /* the loop is to look at it; seq_cst, before server.woken */

    pthread_mutex_t lock; /* guards all below */
    enum http_phase phase;
    bool handling;  /* the handler has not returned */
    bool ended;     /* its owner is done with it */
    bool broken;    /* and has not got to its end */
    bool completed; /* its connection is done with it */
    bool gone;      /* the client hung up, or is cut off */
    bool left;      /* before its owner was done with it */
    struct http_account account;
    void (*on_gone)(void *user);
    void *on_gone_user;
    void (*release)(void *user);
    void *release_user;
    const char *quiet_type, *filler; /* http_fill_quiet(); NULL: none is wanted */
    double written_s;                /* clock: when something was last written */
    int status;
    struct {
        char *name, *value;
    } headers[HTTP_OUT_HEADERS_MAX];
    size_t n_headers;
    char *out; /* the reply's body, or what the stream's client has not read */
    size_t out_begin, out_len, out_cap;
    size_t largest; /* piece of the stream */
};

/* Creates a request from a head, or from what could be parsed of it; takes the head over. Its
 * connection and its owner hold it. The connection has the owner's reference until the handler
 * is called. NULL: no memory. */
struct http_request *http_request_new(struct http_server *s, struct http_head *head);
/* The connection is done with it. */
void http_request_complete(struct http_request *r);
/* The client is gone: tells the owner, once. */
void http_request_tell_gone(struct http_request *r);
/* Calls the server's handler, on the thread that is to run it. Of a client that is gone by now the
 * request just ends. */
void http_request_handle(struct http_request *r);
/* An error of the server's own, in the dialect of the path. */
void http_request_fail(struct http_request *r, int status, const char *sentence);
/* Writes filler to the stream if it was quiet for quiet_ms. */
void http_request_fill_quiet(struct http_request *r, double now_s, int quiet_ms);

/* ---- a connection, on the loop's thread -------------------------------------------------- */

enum http_stage {
    STAGE_TLS,    /* the handshake */
    STAGE_HEAD,   /* a request's head is due, or under way */
    STAGE_BODY,   /* its body */
    STAGE_ANSWER, /* it is handled, and its response sent */
    STAGE_LINGER, /* nothing more is sent; what still comes is read, so that the answer arrives */
};

struct http_address; /* http_places.c */

struct http_connection {
    struct http_server *server;
    struct http_connection *prev, *next; /* by age, the oldest one first; dead ones: next */
    struct http_address *address;
    struct net_address from;
    int fd; /* -1: closed */
    struct http_tls_session *tls;
    enum http_stage stage;
    unsigned wanted;  /* of http_poll */
    bool spoke;       /* a byte of a request has come */
    bool half_closed; /* the client sends no more */
    bool tls_writes;  /* the handshake waits to write */
    bool again;       /* it has more to do than its turn allowed */
    bool blocked;     /* the socket's send buffer is full */
    bool last;        /* it closes after this response */
    double stage_s;   /* clock: when the stage began */
    double active_s;  /* clock: when something last came or went */
    double due_s;     /* clock: by when the request is to have come; INFINITY: no such time */

    char *in; /* received and not yet read: [in_begin, in_end) */
    size_t in_begin, in_end, in_cap, seen;
    struct http_body body;
    struct http_request *r;

    /* http_send.c */
    struct buf wire; /* the response's head, pieces of its body */
    size_t sent;     /* of wire */
    bool answering;  /* the response's head is in wire */
    bool chunked, bodyless, finished;
    double probed_s; /* clock: when a half-closed client was last written to */
};

/* Takes the socket over. False (and it is closed): no memory. */
bool http_connection_open(struct http_server *s, int fd, const struct net_address *from);
/* Tells the request's owner that the client has gone. Freed later: connection.fd is -1. */
void http_connection_close(struct http_connection *c);
/* Goes on as far as it can. */
void http_connection_run(struct http_connection *c, unsigned events);
/* Checks timeouts: disconnects late clients, fills quiet streams. */
void http_connection_tick(struct http_connection *c, double now_s);
/* send(): > 0; 0: not now; -1: the connection was broken, and is closed. */
ssize_t http_connection_send(struct http_connection *c, const void *data, size_t len);

/* http_send.c: goes on with the response. False: not now, or all is done (connection.finished), or
 * the connection was closed. */
bool http_send_some(struct http_connection *c);
/* The same of what is in wire, alone. */
bool http_send_wire(struct http_connection *c);
/* Before a response has begun: a word that means nothing, so that a client that is gone, and not
 * only half of it, is noticed. */
void http_send_probe(struct http_connection *c, double now_s);
void http_send_reset(struct http_connection *c);

/* ---- http_places.c ----------------------------------------------------------------------- */

/* Counts the connection for its address. False: no memory, or its address has all that one may
 * have. */
bool http_places_take(struct http_connection *c);
void http_places_leave(struct http_connection *c);
/* Its first byte has come. */
void http_places_spoke(struct http_connection *c);
/* Whether one more connection can be accepted, if necessary after closing another
 * (http_places_clear()). */
bool http_places_left(struct http_server *s);
/* Closes one, so that another one may come. */
void http_places_clear(struct http_server *s);

/* ---- http_access.c ----------------------------------------------------------------------- */

/* The origin whose pages may read what is answered; NULL: none. */
const char *http_access_origin(const struct http_request *r);

/* ---- the server -------------------------------------------------------------------------- */

#define HTTP_ADDRESS_BUCKETS 256

struct http_server {
    struct http_config cfg;
    char *host, *cors_origin;              /* owned */
    unsigned char (*keys)[HTTP_KEY_BYTES]; /* hashes of the API keys */
    size_t n_keys;
    struct http_tls *tls;         /* NULL: plain */
    struct http_workers *workers; /* NULL: the handler is called on the loop's thread */
    int port;
    atomic_bool stop, draining; /* relaxed: looked at again soon */
    _Atomic size_t large_bytes; /* relaxed; of all bodies that are not small */
    _Atomic int n_running;      /* requests handed to the handler and not yet freed */

    pthread_t thread;
    bool running;
    int wake[2];       /* a pipe; what it says is that some request is dirty */
    atomic_bool woken; /* something is in it; seq_cst */

    /* The loop's: */
    int listener; /* -1: none */
    bool listens; /* it is waited for */
    bool again;   /* a connection has more to do than its turn allowed */
    struct http_poll *poll;
    struct http_connection *first, *last, *dead;
    int n_connections;
    struct http_address *addresses[HTTP_ADDRESS_BUCKETS];
};

/* Lets the loop look at dirty requests; from any thread. */
void http_server_wake(struct http_server *s);

#endif
