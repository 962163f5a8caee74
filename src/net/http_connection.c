/* http_connection.c: One connection: its requests, one after the other, through their stages.
 * Each step does one thing and returns whether more can be done at once. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "net/http_internal.h"
#include "net/http_workers.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <unistd.h>

/* Steps before the other connections have their turn: some 128 KiB of a body. */
#define STEPS_PER_TURN 16
#define IN_BYTES ((size_t)16 << 10)
/* In multiples of idle_s: how long a whole request may take from a client without a key. */
#define LATE_IDLES 2
#define LINGER_S 2.0
/* A body up to here is kept whatever the others hold. */
#define SMALL_BODY_BYTES ((size_t)64 << 10)
/* While a half-closed client waits on a stream: how soon its filler comes. */
#define HALF_QUIET_MS 1000

/* ---- the socket -------------------------------------------------------------------------- */

enum { RECEIVED_NOTHING = 0, RECEIVED_END = -1, RECEIVED_ERROR = -2 };

static ssize_t receive(struct http_connection *c, void *buf, size_t size) {
    if (c->tls != NULL) {
        ssize_t n = http_tls_recv(c->tls, buf, size);
        return n > 0                 ? n
               : n == 0              ? RECEIVED_END
               : n == HTTP_TLS_AGAIN ? RECEIVED_NOTHING
                                     : RECEIVED_ERROR;
    }
    ssize_t n;
    do
        n = recv(c->fd, buf, size, 0);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        return n;
    return n == 0                                    ? RECEIVED_END
           : errno == EAGAIN || errno == EWOULDBLOCK ? RECEIVED_NOTHING
                                                     : RECEIVED_ERROR;
}

ssize_t http_connection_send(struct http_connection *c, const void *data, size_t len) {
    ssize_t n;
    if (c->tls != NULL) {
        n = http_tls_send(c->tls, data, len);
        n = n == HTTP_TLS_AGAIN ? 0 : n;
    } else {
        do
            n = send(c->fd, data, len, MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        n = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : n;
    }
    c->blocked = n == 0;
    if (n > 0)
        c->active_s = clock_s();
    if (n < 0)
        http_connection_close(c);
    return n;
}

/* A machine that is switched off closes nothing: after a minute without an answer to TCP it is
 * gone. */
static void watch_machine(int fd) {
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
#ifdef TCP_KEEPIDLE
    int idle = 30, gap = 10, count = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &gap, sizeof gap);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
#endif
}

static void set_stage(struct http_connection *c, enum http_stage stage, double due_s) {
    c->stage = stage;
    c->stage_s = clock_s();
    c->due_s = due_s;
}

/* ---- opening and closing ----------------------------------------------------------------- */

static void link_last(struct http_server *s, struct http_connection *c) {
    c->prev = s->last;
    *(s->last != NULL ? &s->last->next : &s->first) = c;
    s->last = c;
    s->n_connections++;
}

static void unlink_one(struct http_server *s, struct http_connection *c) {
    *(c->prev != NULL ? &c->prev->next : &s->first) = c->next;
    *(c->next != NULL ? &c->next->prev : &s->last) = c->prev;
    s->n_connections--;
}

bool http_connection_open(struct http_server *s, int fd, const struct net_address *from) {
    struct http_connection *c = mem_calloc(1, sizeof *c);
    if (c == NULL) {
        close(fd);
        return false;
    }
    *c = (struct http_connection){
        .server = s, .fd = fd, .from = *from, .active_s = clock_s(), .wanted = HTTP_POLL_READ};
    watch_machine(fd);
    set_stage(c, s->tls != NULL ? STAGE_TLS : STAGE_HEAD, c->active_s + s->cfg.head_s);
    if (s->tls != NULL)
        c->tls = http_tls_session_open(s->tls, fd);
    link_last(s, c);
    if ((s->tls == NULL || c->tls != NULL) && http_places_take(c) &&
        http_poll_add(s->poll, fd, c->wanted, c))
        return true;
    http_connection_close(c);
    return false;
}

void http_connection_close(struct http_connection *c) {
    struct http_server *s = c->server;
    struct http_request *r = c->r;
    if (c->fd < 0)
        return;
    http_poll_remove(s->poll, c->fd);
    if (c->tls != NULL)
        http_tls_session_close(c->tls, false);
    close(c->fd);
    c->fd = -1;
    c->tls = NULL;
    c->r = NULL;
    http_places_leave(c);
    unlink_one(s, c);
    c->next = s->dead;
    s->dead = c;
    mem_free(c->in);
    buf_free(&c->wire);
    if (r == NULL)
        return;
    http_request_tell_gone(r);
    http_request_complete(r);
}

/* All is said: closed so that the client can still read it, though he may be sending. */
static void linger(struct http_connection *c) {
    if (c->tls != NULL) {
        http_tls_session_close(c->tls, true);
        c->tls = NULL;
    }
    shutdown(c->fd, SHUT_WR);
    set_stage(c, STAGE_LINGER, clock_s() + LINGER_S);
}

/* ---- receiving --------------------------------------------------------------------------- */

static bool make_room(struct http_connection *c) {
    size_t cap = c->in_end == c->in_cap && c->in_begin == 0 ? HTTP_HEAD_MAX + 1 : IN_BYTES;
    if (c->in_begin > 0) {
        memmove(c->in, c->in + c->in_begin, c->in_end - c->in_begin);
        c->in_end -= c->in_begin;
        c->in_begin = 0;
    }
    if (c->in_cap >= cap)
        return true;
    char *p = mem_realloc(c->in, cap);
    if (p == NULL)
        return false;
    c->in = p;
    c->in_cap = cap;
    return true;
}

static void note_first_byte(struct http_connection *c) {
    if (!c->spoke)
        http_places_spoke(c);
    if (c->stage == STAGE_HEAD && isinf(c->due_s)) /* it is the first one of a later request */
        c->due_s = c->active_s + c->server->cfg.head_s;
}

/* False: nothing has come; the connection may be closed. */
static bool fill(struct http_connection *c) {
    if (!make_room(c)) {
        http_connection_close(c);
        return false;
    }
    ssize_t n = receive(c, c->in + c->in_end, c->in_cap - c->in_end);
    if (n > 0) {
        c->in_end += (size_t)n;
        c->active_s = clock_s();
        note_first_byte(c);
        return true;
    }
    if (n != RECEIVED_NOTHING) /* an incomplete request does not count */
        http_connection_close(c);
    return false;
}

/* Reserves space in max_bodies_bytes for this body. False: other bodies use it. */
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

static void keep_body(struct http_request *r, const char *data, size_t len) {
    r->too_large |= len > r->server->cfg.max_body_bytes - r->body_len;
    if (r->too_large || r->crowded_out || !r->trusted)
        return; /* read on and forget, so that the client can read the answer */
    if (r->body_len + len + 1 > r->body_cap) {
        size_t needed = r->body_len + len + 1, cap = MAX(needed, r->body_cap * 2);
        if (needed <= SMALL_BODY_BYTES)
            cap = MIN(cap, SMALL_BODY_BYTES);
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

/* ---- requests ---------------------------------------------------------------------------- */

/* From here on the request is its owner's, and runs. */
static void hand_over(struct http_connection *c) {
    struct http_request *r = c->r;
    pthread_mutex_lock(&r->lock);
    r->phase = PHASE_HANDLED;
    pthread_mutex_unlock(&r->lock);
    r->counted = true;
    atomic_fetch_add(&c->server->n_running, 1);
    set_stage(c, STAGE_ANSWER, INFINITY);
}

static void fail(struct http_connection *c, int status, const char *sentence) {
    hand_over(c);
    http_request_fail(c->r, status, sentence);
}

/* What follows on it cannot be told from its body any more, so the connection ends. */
static void refuse(struct http_connection *c, struct http_fault fault) {
    c->last = true;
    c->in_begin = c->in_end;
    fail(c, fault.status, fault.sentence);
}

/* Here, or by a worker. */
static void handle(struct http_request *r) {
    struct http_server *s = r->server;
    if (s->workers == NULL) {
        http_request_handle(r);
    } else if (!http_workers_give(s->workers, s->cfg.lane(s->cfg.user, r), r)) {
        r->handling = false;
        http_set_header(r, "Retry-After", "2");
        http_request_fail(r, 503, "as many long requests as may wait to be read do so");
    }
}

/* The body is complete: one of the server's own answers, or the handler. */
static void dispatch(struct http_connection *c) {
    struct http_request *r = c->r;
    struct http_server *s = r->server;
    const char *why = s->cfg.local_only ? http_why_not_local(r) : NULL;
    if (why != NULL) {
        fail(c, 403, why);
    } else if (str_eq(r->head.method, "OPTIONS") && http_access_origin(r) != NULL) {
        hand_over(c);
        http_reply(r, 204, "text/plain", "", 0);
    } else if (!r->trusted && (s->cfg.needs_key == NULL || s->cfg.needs_key(r->head.path))) {
        fail(c, 401, "an API key is needed: Authorization: Bearer KEY");
    } else if (r->too_large) {
        fail(c, 413, "the request's body is too large");
    } else if (r->crowded_out) {
        http_set_header(r, "Retry-After", "2");
        fail(c, 503, "the server already holds as many large requests as it may");
    } else if (atomic_load_explicit(&s->draining, memory_order_relaxed)) {
        http_set_header(r, HTTP_ENDING_HEADER, "1");
        fail(c, 503, "the server is shutting down");
    } else {
        hand_over(c);
        r->handling = true;
        handle(r);
    }
}

static void note_address(struct http_request *r, const struct net_address *from) {
    if (from->sa.ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const void *)&from->sa;
        const size_t mapped = sizeof a->sin6_addr - sizeof(struct in_addr);
        if (IN6_IS_ADDR_V4MAPPED(&a->sin6_addr)) /* IPv4 at a socket for both */
            memcpy(r->address, (const uint8_t *)&a->sin6_addr + mapped,
                   r->n_address = sizeof(struct in_addr));
        else
            memcpy(r->address, &a->sin6_addr, r->n_address = sizeof a->sin6_addr);
    } else {
        const struct sockaddr_in *a = (const void *)&from->sa;
        memcpy(r->address, &a->sin_addr, r->n_address = sizeof a->sin_addr);
    }
}

/* It waits for a word before it sends the body. */
static void answer_expectation(struct http_connection *c) {
    const struct http_head *h = &c->r->head;
    if (h->is_1_0 || c->body.at == BODY_OVER || !http_head_lists(h, "Expect", "100-continue"))
        return;
    if (c->body.at == BODY_DATA && c->body.left > c->server->cfg.max_body_bytes) {
        refuse(c, (struct http_fault){413, "the request's body is too large"});
        return;
    }
    if (c->in_begin == c->in_end)
        buf_add_str(&c->wire, "HTTP/1.1 100 Continue\r\n\r\n");
}

/* A request begins with the n bytes of its head, or with what makes it none. */
static void begin_request(struct http_connection *c, size_t n, struct http_fault fault) {
    struct http_server *s = c->server;
    struct http_head head;
    struct http_fault in_head = http_head_parse(&head, c->in + c->in_begin, n);
    if (fault.status == 0)
        fault = in_head;
    if (fault.status == 0)
        fault = http_body_begin(&c->body, &head);
    c->in_begin += n;
    c->seen = 0;
    c->last = head.is_1_0 ? !http_head_lists(&head, "Connection", "keep-alive")
                          : http_head_lists(&head, "Connection", "close");
    c->r = http_request_new(s, &head);
    if (c->r == NULL) {
        http_connection_close(c);
        return;
    }
    note_address(c->r, &c->from);
    c->r->trusted = s->n_keys == 0 || http_key(c->r) != 0;
    if (fault.status != 0) {
        refuse(c, fault);
        return;
    }
    /* The body of an authorized client may take its time. */
    set_stage(c, STAGE_BODY, c->r->trusted ? INFINITY : clock_s() + LATE_IDLES * s->cfg.idle_s);
    answer_expectation(c);
}

/* ---- stages ------------------------------------------------------------------------------ */

static bool shake_hands(struct http_connection *c) {
    ssize_t rc = http_tls_handshake(c->tls, &c->tls_writes);
    if (rc == HTTP_TLS_AGAIN)
        return false;
    if (rc != 1) {
        http_connection_close(c);
        return false;
    }
    set_stage(c, STAGE_HEAD, c->due_s);
    return true;
}

static bool read_head(struct http_connection *c) {
    while (c->seen == 0 && c->in_begin < c->in_end &&
           (c->in[c->in_begin] == '\r' || c->in[c->in_begin] == '\n'))
        c->in_begin++; /* RFC 9112, 2.2 */
    size_t len = c->in_end - c->in_begin;
    if (len == 0)
        return fill(c);
    const char *head = c->in + c->in_begin;
    size_t n = http_head_end(head, len, &c->seen);
    struct http_fault fault = http_head_limits(head, n != 0 ? n : len);
    if (n == 0 && fault.status == 0)
        return fill(c);
    begin_request(c, n != 0 ? n : len, fault);
    return true;
}

static bool read_body(struct http_connection *c) {
    const char *at = c->in + c->in_begin, *end = c->in + c->in_end, *data;
    struct http_fault fault = {0};
    for (size_t n; (n = http_body_next(&c->body, &at, end, &data, &fault)) > 0;)
        keep_body(c->r, data, n);
    c->in_begin = (size_t)(at - c->in);
    if (fault.status != 0)
        refuse(c, fault);
    else if (c->body.at == BODY_OVER)
        dispatch(c);
    else /* what it waits for to send it, first */
        return http_send_wire(c) || (c->fd >= 0 && fill(c));
    return true;
}

static bool finish_request(struct http_connection *c) {
    bool broken = c->r->broken; /* its owner has ended it */
    http_request_complete(c->r);
    c->r = NULL;
    http_send_reset(c);
    if (broken)
        http_connection_close(c);
    else if (c->last)
        linger(c);
    else
        set_stage(c, STAGE_HEAD, INFINITY);
    return !broken;
}

static bool discard(struct http_connection *c) {
    char some[4096];
    ssize_t n = receive(c, some, sizeof some);
    if (n < 0)
        http_connection_close(c);
    return n > 0;
}

static bool step(struct http_connection *c) {
    switch (c->stage) {
    case STAGE_TLS:
        return shake_hands(c);
    case STAGE_HEAD:
        return read_head(c);
    case STAGE_BODY:
        return read_body(c);
    case STAGE_ANSWER:
        return http_send_some(c) ||
               (c->fd >= 0 && c->finished && c->wire.len == 0 && finish_request(c));
    default:
        return discard(c);
    }
}

static unsigned wanted(const struct http_connection *c) {
    unsigned writes = c->blocked && c->stage != STAGE_LINGER ? HTTP_POLL_WRITE : 0u;
    switch (c->stage) {
    case STAGE_TLS:
        return c->tls_writes ? HTTP_POLL_WRITE : HTTP_POLL_READ;
    case STAGE_ANSWER:
        return writes | (c->half_closed ? 0u : HTTP_POLL_HALF);
    default:
        return writes | HTTP_POLL_READ;
    }
}

void http_connection_run(struct http_connection *c, unsigned events) {
    if ((events & HTTP_POLL_GONE) != 0) {
        http_connection_close(c);
        return;
    }
    c->half_closed |= (events & HTTP_POLL_HALF) != 0;
    c->again = false;
    for (int i = 0; c->fd >= 0 && step(c) && !c->again; i++)
        c->again = i == STEPS_PER_TURN;
    if (c->fd < 0)
        return;
    c->server->again |= c->again;
    unsigned now = wanted(c);
    if (now != c->wanted)
        http_poll_change(c->server->poll, c->fd, c->wanted = now, c);
}

/* For a client that waits for an answer: only a write shows that it is still there. */
static void look_at_waiting(struct http_connection *c, double now_s) {
    bool probes = c->half_closed && !c->answering && !c->r->head.is_1_0;
    int quiet_ms = c->server->cfg.quiet_ms;
    if (probes)
        http_send_probe(c, now_s);
    else if (c->half_closed)
        quiet_ms = MIN(quiet_ms, HALF_QUIET_MS);
    http_request_fill_quiet(c->r, now_s, quiet_ms);
    http_connection_run(c, 0);
}

void http_connection_tick(struct http_connection *c, double now_s) {
    bool waits = c->stage == STAGE_ANSWER && !c->blocked;
    if (now_s > c->due_s || (!waits && now_s - c->active_s > c->server->cfg.idle_s))
        http_connection_close(c);
    else if (waits)
        look_at_waiting(c, now_s);
}
