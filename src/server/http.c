/* A request's life: libmicrohttpd's thread receives it and calls the handler; if the handler
 * keeps it, the connection is suspended until a reply or a piece of a stream is there. A
 * request has two holders, its owner (until it ends it) and the connection (until libmicrohttpd
 * says completed); the last one frees it.
 *
 * libmicrohttpd does not look at suspended connections, so a watcher thread polls them for
 * clients that hang up: what they asked for need not be computed. It also writes into streams
 * on which nothing came for long, and cuts off those from whom no request comes to its end.
 *
 * Locks: server.lock guards the lists of requests and connections; request.lock guards a request's
 * state. server.lock may be held when request.lock is taken, never the other way round. */
#include "server/http.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "fabric/net.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEY_HASH_BYTES 32
#define MAX_OUT_HEADERS 16
#define WATCH_MS 200
/* Of idle_s, for the head of a request to come. */
#define LATE_IDLES 2
/* A body up to here is kept whatever the others hold. */
#define SMALL_BODY_BYTES ((size_t)64 << 10)

enum phase {
    PHASE_BODY,    /* the body is arriving */
    PHASE_HANDLED, /* the handler has it */
    PHASE_REPLY,   /* one body is ready */
    PHASE_STREAM,
};

struct http_request {
    struct http_server *server;
    struct http_request *prev, *next; /* server.lock */
    struct MHD_Connection *connection;
    char *method, *path;
    char *body;
    size_t body_len, body_cap;
    size_t large_bytes; /* that it has of the server's */
    bool too_large, crowded_out;
    bool trusted; /* it has shown a key, or the server asks for none: what it sends is kept */

    pthread_mutex_t lock; /* guards all below */
    enum phase phase;
    bool suspended; /* the connection waits for us */
    bool queued;    /* a response was given to libmicrohttpd */
    bool ended;     /* its owner is done with it */
    bool broken;    /* and has not got to its end */
    bool completed; /* libmicrohttpd is done with it */
    bool gone;      /* the client hung up, or was cut off */
    bool watched;   /* the watcher is telling its owner: not to be freed meanwhile */
    void (*on_gone)(void *user);
    void *on_gone_user;
    void (*release)(void *user);
    void *release_user;
    const char *quiet_type, *filler; /* http_fill_quiet(); NULL: none is wanted */
    double written_s;                /* clock: when something was last written */
    int status;
    struct {
        char *name, *value;
    } headers[MAX_OUT_HEADERS];
    size_t n_headers;
    char *out; /* the reply's body, or what the stream's client has not read */
    size_t out_begin, out_len, out_cap;
    size_t largest; /* piece of the stream */
};

/* A connection, from which the next request is due. */
struct arrival {
    struct arrival *prev, *next;
    int fd;
    double due_s; /* clock: by when it is to have come; INFINITY: it is here */
};

struct http_server {
    struct http_config cfg;
    char *host, *cors_origin, *tls_cert,
        *tls_key;                          /* owned; the latter two are the files' texts */
    unsigned char (*keys)[KEY_HASH_BYTES]; /* hashes of the API keys */
    size_t n_keys;
    struct MHD_Daemon *daemon;
    int port;
    pthread_t watcher;
    bool watching;
    atomic_bool stop, draining; /* relaxed: looked at again soon */
    _Atomic size_t large_bytes; /* relaxed; of all bodies that are not small */
    pthread_mutex_t lock;
    struct http_request *requests; /* handled and not yet freed */
    struct arrival *arrivals;
    int n_requests;
};

void http_config_init(struct http_config *cfg) {
    *cfg = (struct http_config){
        .host = "127.0.0.1",
        .max_body_bytes = (size_t)32 << 20,
        .max_bodies_bytes = (size_t)256 << 20,
        .max_unread_bytes = (size_t)1 << 20,
        .max_connections = 512,
        .idle_s = 60,
        .quiet_ms = 10000,
    };
}

int http_port(const struct http_server *s) {
    return s->port;
}

int http_max_connections(const struct http_server *s) {
    return s->cfg.max_connections;
}

/* ---- requests ------------------------------------------------------------------------------ */

static void request_free(struct http_request *r) {
    struct http_server *s = r->server;
    pthread_mutex_lock(&s->lock);
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        s->requests = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    pthread_mutex_unlock(&s->lock);
    if (r->release != NULL)
        r->release(r->release_user);
    for (size_t i = 0; i < r->n_headers; i++) {
        mem_free(r->headers[i].name);
        mem_free(r->headers[i].value);
    }
    pthread_mutex_destroy(&r->lock);
    mem_free(r->method);
    mem_free(r->path);
    mem_free(r->body);
    atomic_fetch_sub_explicit(&s->large_bytes, r->large_bytes, memory_order_relaxed);
    mem_free(r->out);
    mem_free(r);
    /* Last of all: who waits for the requests to end may then take everything down. */
    pthread_mutex_lock(&s->lock);
    s->n_requests--;
    pthread_mutex_unlock(&s->lock);
}

/* A proxy's form, http://host/path, means the path (RFC 9112, 3.2.2). */
static const char *path_of(const char *target) {
    size_t scheme = str_starts(target, "http://")    ? strlen("http://")
                    : str_starts(target, "https://") ? strlen("https://")
                                                     : 0;
    if (scheme == 0)
        return target;
    const char *path = strchr(target + scheme, '/');
    return path != NULL ? path : "/";
}

static struct http_request *request_new(struct http_server *s, struct MHD_Connection *c,
                                        const char *method, const char *path) {
    struct http_request *r = mem_calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->server = s;
    r->connection = c;
    r->method = mem_strdup(method);
    r->path = mem_strdup(path_of(path));
    r->body = mem_calloc(1, 1);
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_lock(&s->lock);
    r->next = s->requests;
    if (s->requests != NULL)
        s->requests->prev = r;
    s->requests = r;
    s->n_requests++;
    pthread_mutex_unlock(&s->lock);
    if (r->method == NULL || r->path == NULL || r->body == NULL) {
        request_free(r);
        return NULL;
    }
    return r;
}

/* With r->lock held: lets libmicrohttpd look at the connection again. */
static void wake(struct http_request *r) {
    if (r->suspended) {
        r->suspended = false;
        MHD_resume_connection(r->connection);
    }
}

/* The client is gone: tells the owner, once, without holding the lock. */
static void tell_gone(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    void (*on_gone)(void *) = r->ended ? NULL : r->on_gone;
    void *user = r->on_gone_user;
    r->on_gone = NULL;
    r->gone = true;
    pthread_mutex_unlock(&r->lock);
    if (on_gone != NULL)
        on_gone(user);
}

/* With r->lock held; unlocks, and frees if both holders are done. */
static void unlock_or_free(struct http_request *r) {
    bool over = r->ended && r->completed && !r->watched;
    pthread_mutex_unlock(&r->lock);
    if (over)
        request_free(r);
}

const char *http_method(const struct http_request *r) {
    return r->method;
}

const char *http_path(const struct http_request *r) {
    return r->path;
}

const char *http_header(const struct http_request *r, const char *name) {
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

const char *http_query(const struct http_request *r, const char *name) {
    return MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
}

struct each {
    http_each_fn fn;
    void *user;
};

static enum MHD_Result tell_each(void *cls, enum MHD_ValueKind kind, const char *name,
                                 const char *value) {
    const struct each *e = cls;
    (void)kind;
    e->fn(e->user, name, value != NULL ? value : "");
    return MHD_YES;
}

void http_each_header(const struct http_request *r, http_each_fn fn, void *user) {
    struct each e = {fn, user};
    MHD_get_connection_values(r->connection, MHD_HEADER_KIND, tell_each, &e);
}

void http_each_query(const struct http_request *r, http_each_fn fn, void *user) {
    struct each e = {fn, user};
    MHD_get_connection_values(r->connection, MHD_GET_ARGUMENT_KIND, tell_each, &e);
}

const char *http_body(const struct http_request *r, size_t *len) {
    if (len != NULL)
        *len = r->body_len;
    return r->body;
}

/* The key that the client shows, NULL if none. */
static const char *shown_key(const struct http_request *r) {
    const char *bearer = http_header(r, "Authorization");
    if (bearer != NULL && strncasecmp(bearer, "Bearer ", 7) == 0)
        return bearer + 7;
    return http_header(r, "x-api-key");
}

unsigned long long http_client(const struct http_request *r) {
    unsigned char hash[16];
    unsigned long long id;
    const char *key = shown_key(r);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const void *text = key;
    size_t len = key != NULL ? strlen(key) : 0;
    if (key == NULL && info != NULL && info->client_addr->sa_family == AF_INET6) {
        text = &((const struct sockaddr_in6 *)(const void *)info->client_addr)->sin6_addr;
        len = sizeof(struct in6_addr);
    } else if (key == NULL && info != NULL) {
        text = &((const struct sockaddr_in *)(const void *)info->client_addr)->sin_addr;
        len = sizeof(struct in_addr);
    }
    crypto_generichash(hash, sizeof hash, text, len, NULL, 0);
    memcpy(&id, hash, sizeof id);
    return id;
}

/* With r->lock held. */
static void add_header(struct http_request *r, const char *name, const char *value) {
    if (r->n_headers == MAX_OUT_HEADERS)
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

void http_on_gone(struct http_request *r, void (*on_gone)(void *user), void *user) {
    pthread_mutex_lock(&r->lock);
    bool late = r->gone;
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

/* With r->lock held. False when there is no memory. */
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
    http_set_header(r, "Content-Type", content_type);
    pthread_mutex_lock(&r->lock);
    r->status = status;
    if (!out_append(r, body, len))
        r->status = 500;
    r->phase = PHASE_REPLY;
    r->ended = true;
    wake(r);
    unlock_or_free(r);
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
    wake(r);
    pthread_mutex_unlock(&r->lock);
}

void http_fill_quiet(struct http_request *r, const char *content_type, const char *filler) {
    pthread_mutex_lock(&r->lock);
    r->quiet_type = content_type;
    r->filler = filler;
    r->written_s = clock_s();
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
    wake(r);
    enum status st = r->gone ? ST_CANCELLED : ST_OK;
    pthread_mutex_unlock(&r->lock);
    return st;
}

void http_stream_end(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    r->ended = true;
    wake(r);
    unlock_or_free(r);
}

void http_stream_break(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    r->broken = true;
    pthread_mutex_unlock(&r->lock);
    http_stream_end(r);
}

/* ---- responses, on libmicrohttpd's thread -------------------------------------------------- */

static void add_headers(const struct http_request *r, struct MHD_Response *response) {
    for (size_t i = 0; i < r->n_headers; i++)
        MHD_add_response_header(response, r->headers[i].name, r->headers[i].value);
    const char *origin = r->server->cors_origin;
    if (origin == NULL)
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Access-Control-Allow-Methods",
                            "GET, POST, DELETE, OPTIONS");
    MHD_add_response_header(response, "Access-Control-Allow-Headers", "*, Authorization");
}

static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max) {
    struct http_request *r = cls;
    (void)pos;
    pthread_mutex_lock(&r->lock);
    size_t n = MIN(max, r->out_len - r->out_begin);
    ssize_t result = (ssize_t)n;
    if (r->gone) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (n != 0) {
        memcpy(buf, r->out + r->out_begin, n);
        r->out_begin += n;
    } else if (r->ended) {
        result =
            r->broken ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        r->suspended = true;
        MHD_suspend_connection(r->connection);
        result = 0;
    }
    pthread_mutex_unlock(&r->lock);
    return result;
}

/* Gives libmicrohttpd what is ready, or waits for it. Without r->lock where libmicrohttpd takes
 * the response's own lock: it holds that when it calls read_stream(). What is read here has its
 * last value, and the thread is the only one that frees. */
static enum MHD_Result respond(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    bool was_queued = r->queued, over = r->gone && r->phase != PHASE_REPLY,
         whole = r->phase == PHASE_REPLY, waits = r->phase == PHASE_HANDLED;
    if (!was_queued && !over && waits) {
        r->suspended = true;
        MHD_suspend_connection(r->connection);
    }
    r->queued |= !over && !waits;
    pthread_mutex_unlock(&r->lock);
    if (was_queued || (!over && waits))
        return MHD_YES;
    if (over)
        return MHD_NO;
    struct MHD_Response *response =
        whole ? MHD_create_response_from_buffer(r->out_len - r->out_begin,
                                                r->out + r->out_begin, MHD_RESPMEM_MUST_COPY)
              : MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, r, NULL);
    if (response == NULL)
        return MHD_NO;
    add_headers(r, response);
    enum MHD_Result result = MHD_queue_response(r->connection, (unsigned)r->status, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- connections, on libmicrohttpd's thread ---------------------------------------------- */

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode what) {
    struct http_server *s = cls;
    struct arrival *a = *context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    bool begins = what == MHD_CONNECTION_NOTIFY_STARTED && info != NULL;
    if (begins && (*context = a = mem_calloc(1, sizeof *a)) != NULL) {
        a->fd = info->connect_fd;
        a->due_s = clock_s() + LATE_IDLES * s->cfg.idle_s;
        pthread_mutex_lock(&s->lock);
        a->next = s->arrivals;
        if (a->next != NULL)
            a->next->prev = a;
        s->arrivals = a;
        pthread_mutex_unlock(&s->lock);
    } else if (!begins && a != NULL) { /* before its descriptor is closed */
        pthread_mutex_lock(&s->lock);
        if (a->next != NULL)
            a->next->prev = a->prev;
        *(a->prev != NULL ? &a->prev->next : &s->arrivals) = a->next;
        pthread_mutex_unlock(&s->lock);
        mem_free(a);
        *context = NULL;
    }
}

/* By when the connection's next request is due. */
static void set_due(struct http_server *s, struct MHD_Connection *c, double due_s) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct arrival *a = info != NULL ? info->socket_context : NULL;
    pthread_mutex_lock(&s->lock);
    if (a != NULL)
        a->due_s = due_s;
    pthread_mutex_unlock(&s->lock);
}

/* ---- receiving ----------------------------------------------------------------------------- */

static void fail(struct http_request *r, int status, const char *sentence) {
    const struct http_config *cfg = &r->server->cfg;
    if (cfg->fail != NULL) {
        cfg->fail(cfg->user, r, status, sentence);
        return;
    }
    char text[256];
    int n = snprintf(text, sizeof text, "{\"error\": \"%s\"}\n", sentence);
    http_reply(r, status, "application/json", text, (size_t)n);
}

static bool key_is_good(const struct http_request *r) {
    const struct http_server *s = r->server;
    const char *key = shown_key(r);
    unsigned char hash[KEY_HASH_BYTES];
    bool good = false;
    if (key == NULL)
        return false;
    crypto_generichash(hash, sizeof hash, (const unsigned char *)key, strlen(key), NULL, 0);
    for (size_t i = 0; i < s->n_keys; i++) /* all of them: the time tells nothing */
        good |= sodium_memcmp(hash, s->keys[i], sizeof hash) == 0;
    return good;
}

#define HOST_BYTES 256

/* The name or address of NAME:PORT, ADDRESS:PORT or [ADDRESS]:PORT, in small letters; "" if it
 * is too long to be one. */
static void host_of(const char *host_and_port, char out[HOST_BYTES]) {
    size_t n =
        *host_and_port == '[' ? strcspn(host_and_port, "]") + 1 : strcspn(host_and_port, ":");
    n = n < HOST_BYTES ? strnlen(host_and_port, n) : 0;
    for (size_t i = 0; i < n; i++)
        out[i] = (char)tolower((unsigned char)host_and_port[i]);
    out[n] = '\0';
}

/* A page in a browser can have its own name lead to this machine's address (DNS rebinding), and
 * then it reads what a server for this machine alone says. Its name is in the Host header; a
 * name that others cannot own, or an address, is not. */
static bool names_this_machine(const char *host) {
    static const char *const tails[] = {".localhost", ".local", ".internal"};
    char own[HOST_BYTES] = "";
    struct in_addr address;
    for (size_t i = 0; i < ARRAY_LEN(tails); i++)
        if (str_ends(host, tails[i]))
            return true;
    (void)gethostname(own, sizeof own - 1);
    return *host == '[' || str_eq(host, "localhost") || strcasecmp(host, own) == 0 ||
           inet_pton(AF_INET, host, &address) == 1;
}

static bool is_loopback(const char *host) {
    struct in_addr address;
    return str_eq(host, "localhost") || str_ends(host, ".localhost") || str_eq(host, "[::1]") ||
           (inet_pton(AF_INET, host, &address) == 1 && str_starts(host, "127."));
}

/* A page in a browser may send requests anywhere, though it cannot read the answers: what it
 * asks of the model would be computed. Its address is in the Origin header, "null" if it has
 * none; programs and extensions of browsers say none, or have schemes of their own. host: of
 * the request. */
static bool is_of_own_page(const struct http_request *r, const char *host) {
    const char *origin = http_header(r, "Origin"), *allowed = r->server->cors_origin;
    char from[HOST_BYTES];
    if (origin == NULL ||
        (allowed != NULL && (str_eq(allowed, "*") || str_eq(allowed, origin))))
        return true;
    if (!str_starts(origin, "http://") && !str_starts(origin, "https://"))
        return !str_eq(origin, "null");
    host_of(strstr(origin, "://") + strlen("://"), from);
    return is_loopback(from) || (*from != '\0' && str_eq(from, host));
}

/* Of a server for this machine alone: NULL, or why it has nothing to say. */
static const char *why_not_local(const struct http_request *r) {
    const char *header = http_header(r, "Host");
    char host[HOST_BYTES] = "localhost"; /* HTTP/1.0 has none */
    if (header != NULL)
        host_of(header, host);
    if (!names_this_machine(host))
        return "the Host header names another machine: with an API key, or --insecure, every "
               "name may be used";
    if (!is_of_own_page(r, host))
        return "the Origin header names a page of another machine: --cors ORIGIN lets it in";
    return NULL;
}

/* The body is complete: one of the server's own answers, or the handler. */
static void dispatch(struct http_request *r) {
    struct http_server *s = r->server;
    set_due(s, r->connection, INFINITY);
    const char *why = s->cfg.local_only ? why_not_local(r) : NULL;
    if (why != NULL)
        fail(r, 403, why);
    else if (s->cors_origin != NULL && str_eq(r->method, "OPTIONS"))
        http_reply(r, 204, "text/plain", "", 0);
    else if (!r->trusted && (s->cfg.needs_key == NULL || s->cfg.needs_key(r->path)))
        fail(r, 401, "an API key is needed: Authorization: Bearer KEY");
    else if (r->too_large)
        fail(r, 413, "the request's body is too large");
    else if (r->crowded_out) {
        http_set_header(r, "Retry-After", "2");
        fail(r, 503, "the server holds as many large requests as it may");
    } else if (atomic_load_explicit(&s->draining, memory_order_relaxed)) {
        http_set_header(r, HTTP_ENDING_HEADER, "1");
        fail(r, 503, "the server is shutting down");
    } else
        s->cfg.handle(s->cfg.user, r);
}

/* Takes the server's room for a body of so many bytes. False: others have it. */
static bool has_room(struct http_request *r, size_t bytes) {
    struct http_server *s = r->server;
    size_t more = bytes > SMALL_BODY_BYTES ? bytes - r->large_bytes : 0;
    size_t before = atomic_fetch_add_explicit(&s->large_bytes, more, memory_order_relaxed);
    if (before + more > s->cfg.max_bodies_bytes && more > 0) {
        atomic_fetch_sub_explicit(&s->large_bytes, more, memory_order_relaxed);
        return false;
    }
    r->large_bytes += more;
    return true;
}

static void receive(struct http_request *r, const char *data, size_t len) {
    r->too_large |= len > r->server->cfg.max_body_bytes - r->body_len;
    if (r->too_large || r->crowded_out || !r->trusted)
        return; /* read on and forget, so that the client can read the answer */
    if (r->body_len + len + 1 > r->body_cap) {
        size_t cap = MAX(r->body_len + len + 1, r->body_cap * 2);
        if (!has_room(r, cap)) {
            r->crowded_out = true;
            return;
        }
        char *p = mem_realloc(r->body, cap);
        if (p == NULL) {
            r->too_large = true;
            return;
        }
        r->body = p;
        r->body_cap = cap;
    }
    memcpy(r->body + r->body_len, data, len);
    r->body_len += len;
    r->body[r->body_len] = '\0';
}

/* libmicrohttpd knows the end of a body by its length or its chunks, and of any other only when
 * the client closes its side, which it may do after the answer. */
static bool body_has_no_end(struct MHD_Connection *c) {
    const char *coding =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING);
    return coding != NULL && strcasecmp(coding, "chunked") != 0;
}

/* Where its body ends is said in two ways, which what stands between might read in the other
 * one. */
static enum MHD_Result count_lengths(void *cls, enum MHD_ValueKind kind, const char *name,
                                     const char *value) {
    int *n = cls;
    (void)kind, (void)value;
    *n += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0 ||
          strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
    return MHD_YES;
}

static bool body_has_two_ends(struct MHD_Connection *c) {
    int n = 0;
    MHD_get_connection_values(c, MHD_HEADER_KIND, count_lengths, &n);
    return n > 1;
}

static bool body_is_packed(struct MHD_Connection *c) {
    const char *coding =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_ENCODING);
    return coding != NULL && *coding != '\0' && strcasecmp(coding, "identity") != 0;
}

static enum MHD_Result refuse(struct http_request *r, int status, const char *sentence) {
    pthread_mutex_lock(&r->lock);
    r->phase = PHASE_HANDLED;
    pthread_mutex_unlock(&r->lock);
    fail(r, status, sentence);
    return respond(r);
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *c, const char *url,
                                 const char *method, const char *version, const char *data,
                                 size_t *data_len, void **con_cls) {
    (void)version;
    struct http_request *r = *con_cls;
    if (r == NULL) {
        *con_cls = r = request_new(cls, c, method, url);
        if (r != NULL)
            r->trusted = r->server->n_keys == 0 || key_is_good(r);
        if (r != NULL && r->trusted) /* its body may take its time */
            set_due(cls, c, INFINITY);
        if (r != NULL && body_has_no_end(c))
            return refuse(r, 501, "the only transfer coding of a body is chunked");
        if (r != NULL && body_has_two_ends(c))
            return refuse(r, 400, "the length of the request's body is said more than once");
        if (r != NULL && body_is_packed(c))
            return refuse(r, 415, "a request's body comes as it is, without Content-Encoding");
        return r != NULL ? MHD_YES : MHD_NO;
    }
    if (*data_len != 0) {
        receive(r, data, *data_len);
        *data_len = 0;
        return MHD_YES;
    }
    pthread_mutex_lock(&r->lock);
    bool whole = r->phase == PHASE_BODY;
    if (whole)
        r->phase = PHASE_HANDLED;
    pthread_mutex_unlock(&r->lock);
    if (whole)
        dispatch(r);
    return respond(r);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **con_cls,
                         enum MHD_RequestTerminationCode why) {
    struct http_server *s = cls;
    (void)why;
    struct http_request *r = *con_cls;
    if (r == NULL)
        return;
    *con_cls = NULL;
    set_due(s, c, clock_s() + LATE_IDLES * s->cfg.idle_s);
    tell_gone(r);
    pthread_mutex_lock(&r->lock);
    if (r->phase == PHASE_BODY) /* never came to a handler */
        r->ended = true;
    r->completed = true;
    unlock_or_free(r);
}

/* ---- clients that hang up ------------------------------------------------------------------ */

static bool has_hung_up(struct http_request *r) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info == NULL)
        return false;
    struct pollfd p = {.fd = info->connect_fd, .events = NET_POLL_GONE};
    return poll(&p, 1, 0) == 1 && (p.revents & (NET_POLL_GONE | POLLHUP | POLLERR)) != 0;
}

/* One request that waits and whose client has gone, marked as such; NULL if there is none. */
static struct http_request *find_gone(struct http_server *s) {
    struct http_request *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (struct http_request *r = s->requests; r != NULL && found == NULL; r = r->next) {
        pthread_mutex_lock(&r->lock);
        if (r->suspended && !r->ended && !r->gone && has_hung_up(r)) {
            r->gone = r->watched = true;
            found = r;
        }
        pthread_mutex_unlock(&r->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

/* With r->lock held. */
static void fill_quiet(struct http_request *r, double now_s) {
    if (r->filler == NULL || !r->suspended || r->ended || r->gone ||
        (now_s - r->written_s) * 1000 < r->server->cfg.quiet_ms)
        return;
    stream_begin(r, 200, r->quiet_type);
    out_append(r, r->filler, strlen(r->filler)); /* without memory: next time */
    r->written_s = now_s;
    wake(r);
}

static void fill_all_quiet(struct http_server *s) {
    double now_s = clock_s();
    pthread_mutex_lock(&s->lock);
    for (struct http_request *r = s->requests; r != NULL; r = r->next) {
        pthread_mutex_lock(&r->lock);
        fill_quiet(r, now_s);
        pthread_mutex_unlock(&r->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

/* Who sends a byte now and then is never idle. */
static void cut_late(struct http_server *s) {
    double now_s = clock_s();
    pthread_mutex_lock(&s->lock);
    for (struct arrival *a = s->arrivals; a != NULL; a = a->next)
        if (now_s > a->due_s) {
            shutdown(a->fd, SHUT_RDWR);
            a->due_s = INFINITY;
        }
    pthread_mutex_unlock(&s->lock);
}

static void *watch(void *cls) {
    struct http_server *s = cls;
    while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
        struct http_request *r;
        while ((r = find_gone(s)) != NULL) {
            tell_gone(r);
            pthread_mutex_lock(&r->lock);
            r->watched = false;
            wake(r);
            unlock_or_free(r);
        }
        fill_all_quiet(s);
        cut_late(s);
        usleep(WATCH_MS * 1000);
    }
    return NULL;
}

/* ---- opening and closing ------------------------------------------------------------------- */

#define PEM_MAX ((size_t)1 << 20)
#define FILES_WANTED ((rlim_t)1 << 16)

/* A connection is an open file, of which a program may have few (1024, on a Mac 256) until it
 * asks for more; a Mac gives no more than 10240. */
static rlim_t files_allowed(void) {
    struct rlimit now, more;
    if (getrlimit(RLIMIT_NOFILE, &now) != 0)
        return RLIM_INFINITY;
    for (rlim_t n = FILES_WANTED; n > now.rlim_cur; n /= 2) {
        more = (struct rlimit){.rlim_cur = MIN(n, now.rlim_max), .rlim_max = now.rlim_max};
        if (more.rlim_cur > now.rlim_cur && setrlimit(RLIMIT_NOFILE, &more) == 0)
            return more.rlim_cur;
    }
    return now.rlim_cur;
}

/* Half of the files are for all else: clients that only stay must not keep a lost rank from
 * being replaced. */
static int connection_limit(const struct http_config *cfg) {
    return (int)MIN((rlim_t)cfg->max_connections, MAX(files_allowed() / 2, 1));
}

static enum status listen_on(struct http_server *s, const char *host, int *fd_out,
                             struct err *err) {
    char port[16];
    snprintf(port, sizeof port, "%d", s->cfg.port);
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc != 0)
        return err_set(err, ST_BAD_INPUT, "%s: %s", host, gai_strerror(rc));
    int fd = -1, why = 0;
    for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        int yes = 1, no = 0;
        fd = net_socket(a->ai_family, SOCK_STREAM, 0);
        if (fd < 0) {
            why = why != 0 ? why : errno; /* that a port is taken says more */
            continue;
        }
        net_setup(fd);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (a->ai_family == AF_INET6 &&
            str_eq(s->host, "*")) /* whatever the system's default is */
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
        if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 128) != 0) {
            why = errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        return err_set(err, ST_IO, "cannot listen on %s port %d: %s", host, s->cfg.port,
                       strerror(why));
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    getsockname(fd, (struct sockaddr *)&at, &len);
    s->port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                             : ((struct sockaddr_in *)&at)->sin_port);
    *fd_out = fd;
    return ST_OK;
}

static enum status begin_listening(struct http_server *s, int *fd, struct err *err) {
    if (!str_eq(s->host, "*"))
        return listen_on(s, s->host, fd, err);
    if (listen_on(s, "::", fd, err) == ST_OK)
        return ST_OK;
    return listen_on(s, "0.0.0.0", fd, err); /* a system without IPv6 */
}

static enum status hash_keys(struct http_server *s, struct err *err) {
    s->keys = mem_calloc(s->cfg.n_api_keys, sizeof *s->keys);
    if (s->keys == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for API keys");
    s->n_keys = s->cfg.n_api_keys;
    for (size_t i = 0; i < s->n_keys; i++)
        crypto_generichash(s->keys[i], KEY_HASH_BYTES,
                           (const unsigned char *)s->cfg.api_keys[i],
                           strlen(s->cfg.api_keys[i]), NULL, 0);
    return ST_OK;
}

static enum status start_daemon(struct http_server *s, int fd, struct err *err) {
    struct MHD_OptionItem tls[] = {{MHD_OPTION_END, 0, NULL},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, s->tls_key},
                                   {MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    if (s->tls_cert != NULL) {
        tls[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, s->tls_cert};
        flags |= MHD_USE_TLS;
    }
    s->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_access, s, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, s, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)s->cfg.idle_s,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->cfg.max_connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)s->cfg.max_per_address, MHD_OPTION_ARRAY,
        tls, MHD_OPTION_END);
    if (s->daemon != NULL)
        return ST_OK;
    close(fd);
    return err_set(err, ST_IO, "the HTTP server does not start%s",
                   s->tls_cert != NULL ? ": are certificate and key good PEM files that belong "
                                         "together?"
                                       : "");
}

static enum status open_parts(struct http_server *s, struct err *err) {
    const struct http_config *cfg = &s->cfg;
    int fd = -1;
    if ((cfg->tls_cert_path == NULL) != (cfg->tls_key_path == NULL))
        return err_set(err, ST_BAD_INPUT, "TLS needs both a certificate and a key");
    if (cfg->tls_cert_path != NULL) {
        TRY(file_read_text(&s->tls_cert, NULL, cfg->tls_cert_path, PEM_MAX, err));
        TRY(file_read_text(&s->tls_key, NULL, cfg->tls_key_path, PEM_MAX, err));
    } else if (cfg->tls_cert_pem != NULL) {
        s->tls_cert = mem_strdup(cfg->tls_cert_pem);
        s->tls_key = mem_strdup(cfg->tls_key_pem);
        if (s->tls_cert == NULL || s->tls_key == NULL)
            return err_set(err, ST_NO_MEMORY, "no memory for an HTTP server");
    }
    s->host = mem_strdup(cfg->host);
    s->cors_origin = cfg->cors_origin != NULL ? mem_strdup(cfg->cors_origin) : NULL;
    if (s->host == NULL || (cfg->cors_origin != NULL && s->cors_origin == NULL))
        return err_set(err, ST_NO_MEMORY, "no memory for an HTTP server");
    TRY(hash_keys(s, err));
    TRY(begin_listening(s, &fd, err));
    TRY(start_daemon(s, fd, err));
    if (thread_start(&s->watcher, watch, s) != 0)
        return err_set(err, ST_NO_MEMORY, "no thread for an HTTP server");
    s->watching = true;
    return ST_OK;
}

enum status http_open(struct http_server **out, const struct http_config *cfg,
                      struct err *err) {
    if (sodium_init() < 0)
        return err_set(err, ST_IO, "libsodium does not start");
    struct http_server *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for an HTTP server");
    s->cfg = *cfg;
    s->cfg.max_connections = connection_limit(cfg);
    pthread_mutex_init(&s->lock, NULL);
    enum status st = open_parts(s, err);
    if (st != ST_OK) {
        http_close(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

/* One whose body is still to come is nobody's yet, and will be refused; its client may take any
 * time. */
static int n_running(struct http_server *s) {
    pthread_mutex_lock(&s->lock);
    int n = s->n_requests;
    for (struct http_request *r = s->requests; r != NULL; r = r->next) {
        pthread_mutex_lock(&r->lock);
        n -= r->phase == PHASE_BODY;
        pthread_mutex_unlock(&r->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

bool http_drain(struct http_server *s, int wait_ms) {
    atomic_store_explicit(&s->draining, true, memory_order_relaxed);
    for (int ms = 0; ms < wait_ms && n_running(s) != 0; ms += 10)
        usleep(10000);
    return n_running(s) == 0;
}

void http_close(struct http_server *s) {
    if (s == NULL)
        return;
    atomic_store_explicit(&s->stop, true, memory_order_relaxed);
    if (s->watching)
        pthread_join(s->watcher, NULL);
    /* libmicrohttpd cannot stop while connections are suspended. */
    pthread_mutex_lock(&s->lock);
    for (struct http_request *r = s->requests; r != NULL; r = r->next) {
        pthread_mutex_lock(&r->lock);
        r->gone = true;
        wake(r);
        pthread_mutex_unlock(&r->lock);
    }
    pthread_mutex_unlock(&s->lock);
    if (s->daemon != NULL)
        MHD_stop_daemon(s->daemon);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->host);
    mem_free(s->cors_origin);
    mem_free(s->tls_cert);
    mem_free(s->tls_key);
    mem_free(s->keys);
    mem_free(s);
}
