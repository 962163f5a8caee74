/* http_send.c: Sends the response of a connection's request. Its head and small pieces go
 * through connection.wire; a large body goes straight from the request. Data stays in wire
 * until it is sent. */
#include "base/util.h"
#include "net/http_internal.h"

#include <time.h>

/* Of a body, copied to wire at a time. */
#define PIECE_BYTES ((size_t)16 << 10)
#define WIRE_KEPT_BYTES ((size_t)32 << 10)
/* How soon a client that has closed its side is looked at. */
#define PROBE_S 1.0

static const char *reason_of(int status) {
    static const struct {
        int status;
        const char *reason;
    } all[] = {{200, "OK"},
               {201, "Created"},
               {202, "Accepted"},
               {204, "No Content"},
               {304, "Not Modified"},
               {400, "Bad Request"},
               {401, "Unauthorized"},
               {403, "Forbidden"},
               {404, "Not Found"},
               {405, "Method Not Allowed"},
               {408, "Request Timeout"},
               {409, "Conflict"},
               {410, "Gone"},
               {413, "Content Too Large"},
               {414, "URI Too Long"},
               {415, "Unsupported Media Type"},
               {422, "Unprocessable Content"},
               {429, "Too Many Requests"},
               {431, "Request Header Fields Too Large"},
               {500, "Internal Server Error"},
               {501, "Not Implemented"},
               {502, "Bad Gateway"},
               {503, "Service Unavailable"},
               {504, "Gateway Timeout"},
               {505, "HTTP Version Not Supported"},
               {507, "Insufficient Storage"}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i].status == status)
            return all[i].reason;
    return "Unknown";
}

/* strftime() speaks the locale's language, HTTP does not. */
static void add_date(struct buf *t) {
    static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm) != NULL)
        buf_printf(t, "Date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n", days[tm.tm_wday],
                   tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min,
                   tm.tm_sec);
}

static void add_headers(struct buf *t, const struct http_request *r) {
    const char *origin = http_access_origin(r);
    const char *private = http_header(r, "Access-Control-Request-Private-Network");
    for (size_t i = 0; i < r->n_headers; i++)
        buf_printf(t, "%s: %s\r\n", r->headers[i].name, r->headers[i].value);
    if (origin != NULL)
        buf_printf(t,
                   "Access-Control-Allow-Origin: %s\r\n"
                   "Access-Control-Allow-Methods: GET, POST, DELETE, OPTIONS\r\n"
                   "Access-Control-Allow-Headers: *, Authorization\r\n",
                   origin);
    if (r->server->cfg.cors_local)
        buf_add_str(t, "Vary: Origin\r\n");
    if (origin != NULL && private != NULL && str_eq(private, "true"))
        buf_add_str(t, "Access-Control-Allow-Private-Network: true\r\n");
}

/* The body's length, or how its end is known; whether the connection stays. */
static void add_framing(struct http_connection *c) {
    const struct http_request *r = c->r;
    bool whole = r->phase == PHASE_REPLY, has_body = r->status != 204 && r->status != 304;
    c->bodyless = !has_body || str_eq(r->head.method, "HEAD");
    c->chunked = !whole && has_body && !r->head.is_1_0;
    c->last |= !whole && r->head.is_1_0; /* its end is that of the connection */
    c->last |= atomic_load_explicit(&c->server->draining, memory_order_relaxed);
    if (whole && has_body)
        buf_printf(&c->wire, "Content-Length: %zu\r\n", r->out_len - r->out_begin);
    else if (c->chunked)
        buf_add_str(&c->wire, "Transfer-Encoding: chunked\r\n");
    if (c->last)
        buf_add_str(&c->wire, "Connection: close\r\n");
    else if (r->head.is_1_0)
        buf_add_str(&c->wire, "Connection: keep-alive\r\n");
}

/* With r->lock held, once a response is ready. */
static void begin(struct http_connection *c) {
    struct http_request *r = c->r;
    buf_printf(&c->wire, "HTTP/1.1 %d %s\r\n", r->status, reason_of(r->status));
    add_date(&c->wire);
    add_headers(&c->wire, r);
    add_framing(c);
    buf_add_str(&c->wire, "\r\n");
    c->answering = true;
    size_t n = r->out_len - r->out_begin;
    if (r->phase == PHASE_REPLY && !c->bodyless && n <= PIECE_BYTES) { /* in one packet */
        buf_add(&c->wire, r->out + r->out_begin, n);
        r->out_begin = r->out_len;
    }
}

/* With r->lock held: what the stream has, to wire. False: nothing just now. */
static bool take_piece(struct http_connection *c) {
    struct http_request *r = c->r;
    size_t n = MIN(r->out_len - r->out_begin, PIECE_BYTES);
    if (n == 0 && !r->ended)
        return false;
    if (n == 0) {
        c->finished = true;
        c->last |= r->broken;
        if (c->chunked && !c->bodyless && !r->broken)
            buf_add_str(&c->wire, "0\r\n\r\n");
        return c->wire.len > 0;
    }
    if (!c->bodyless) {
        if (c->chunked)
            buf_printf(&c->wire, "%zx\r\n", n);
        buf_add(&c->wire, r->out + r->out_begin, n);
        if (c->chunked)
            buf_add_str(&c->wire, "\r\n");
    }
    r->out_begin += n;
    return true;
}

/* The next bytes of the response, to wire. False: nothing just now, or the client is cut off. */
static bool fill_wire(struct http_connection *c) {
    struct http_request *r = c->r;
    bool begins = false, more = false;
    pthread_mutex_lock(&r->lock);
    bool over = r->gone && r->phase != PHASE_REPLY;
    if (!over && !c->answering && r->phase != PHASE_HANDLED) {
        begin(c);
        begins = true;
    }
    if (!over && c->answering && r->phase == PHASE_STREAM)
        more = take_piece(c);
    pthread_mutex_unlock(&r->lock);
    if (over || c->wire.failed) {
        http_connection_close(c);
        return false;
    }
    return begins || more;
}

/* Of a complete reply, which no longer changes. */
static bool send_body(struct http_connection *c) {
    struct http_request *r = c->r;
    size_t left = c->bodyless ? 0 : r->out_len - r->out_begin;
    c->finished = left == 0;
    if (left == 0)
        return false;
    ssize_t n = http_connection_send(c, r->out + r->out_begin, left);
    if (n > 0)
        r->out_begin += (size_t)n;
    return n > 0;
}

static bool is_whole(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    bool whole = r->phase == PHASE_REPLY;
    pthread_mutex_unlock(&r->lock);
    return whole;
}

bool http_send_wire(struct http_connection *c) {
    if (c->wire.len == 0)
        return false;
    ssize_t n = http_connection_send(c, c->wire.bytes + c->sent, c->wire.len - c->sent);
    if (n <= 0)
        return false;
    c->sent += (size_t)n;
    if (c->sent == c->wire.len) {
        buf_clear(&c->wire);
        c->sent = 0;
    }
    return true;
}

bool http_send_some(struct http_connection *c) {
    if (c->wire.len > 0)
        return http_send_wire(c);
    if (c->finished)
        return false;
    if (c->answering && is_whole(c->r))
        return send_body(c);
    return fill_wire(c);
}

/* A client that has closed both sides answers the next bytes with a reset. One that has closed
 * only its sending side skips them: they are an interim response (RFC 9110, 15.2), which only
 * HTTP/1.1 has. */
void http_send_probe(struct http_connection *c, double now_s) {
    if (c->r->head.is_1_0 || c->answering || c->wire.len > 0)
        return;
    if (c->probed_s == 0)
        c->probed_s = now_s - c->server->cfg.quiet_ms / 1000.0 + PROBE_S;
    if ((now_s - c->probed_s) * 1000 < c->server->cfg.quiet_ms)
        return;
    c->probed_s = now_s;
    buf_add_str(&c->wire, "HTTP/1.1 100 Continue\r\n\r\n");
}

void http_send_reset(struct http_connection *c) {
    if (c->wire.cap > WIRE_KEPT_BYTES)
        buf_free(&c->wire);
    buf_clear(&c->wire);
    c->sent = 0;
    c->answering = c->chunked = c->bodyless = c->finished = false;
    c->probed_s = 0;
}
