/* The port of a deployment: what passes through it, and answers that go on when the server that
 * gave them is lost. The servers are sockets that say what they are told to.
 * labels: waits */
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/client.h"
#include "gateway/gateway.h"
#include "net/http.h"
#include "net/net.h"
#include "server/reply.h"

#include <curl/curl.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT_NS 60000000000ull

/* ---- a server that answers each request with the same bytes, and closes ------------------ */

struct server {
    int listener;
    char address[NET_TEXT_BYTES];
    const char *words;
    atomic_bool hangs;          /* says no more after that, and waits for the client's end */
    _Atomic(const char *) rest; /* or until there is a rest to say */
    pthread_t thread;
    atomic_bool stop, left; /* left: the client of one that hangs has gone */
    atomic_int n_requests;
    char request[4096]; /* the last one */
};

static bool is_whole(const char *text) {
    const char *end = strstr(text, "\r\n\r\n"), *length = strcasestr(text, "Content-Length:");
    return end != NULL && (length == NULL ||
                           strlen(end + 4) >= (size_t)atoi(length + strlen("Content-Length:")));
}

static void answer(struct server *s, int fd) {
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char *text = s->request;
    text[0] = '\0';
    while (!is_whole(text) && n < sizeof s->request - 1 && poll(&p, 1, 10000) > 0) {
        ssize_t k = recv(fd, text + n, sizeof s->request - 1 - n, 0);
        if (k <= 0)
            break;
        text[n += (size_t)k] = '\0';
    }
    atomic_fetch_add(&s->n_requests, 1);
    send(fd, s->words, strlen(s->words), MSG_NOSIGNAL);
    for (char byte; s->hangs && !s->stop && s->rest == NULL;)
        if (poll(&p, 1, 50) > 0 && recv(fd, &byte, 1, 0) == 0) {
            s->left = true;
            break;
        }
    if (s->rest != NULL)
        send(fd, s->rest, strlen(s->rest), MSG_NOSIGNAL);
    close(fd);
}

static void *server_main(void *user) {
    struct server *s = user;
    struct pollfd p = {.fd = s->listener, .events = POLLIN};
    struct net_address from;
    while (!s->stop) {
        int fd = poll(&p, 1, 50) > 0 ? net_accept(s->listener, &from) : -1;
        if (fd >= 0)
            answer(s, fd);
    }
    return NULL;
}

static void server_begin_as(struct server *s, const char *words, bool hangs) {
    struct err err;
    struct net_address a;
    *s = (struct server){.words = words, .hangs = hangs};
    assert_int_equal(net_resolve(&a, "127.0.0.1:0", true, &err), ST_OK);
    assert_int_equal(net_listen(&s->listener, &a, &err), ST_OK);
    assert_int_equal(net_local(s->listener, &a, &err), ST_OK);
    net_text(&a, s->address);
    assert_int_equal(thread_start(&s->thread, server_main, s), 0);
}

static void server_begin(struct server *s, const char *words) {
    server_begin_as(s, words, false);
}

static void server_end(struct server *s) {
    s->stop = true;
    pthread_join(s->thread, NULL);
    close(s->listener);
}

/* ---- a client ---------------------------------------------------------------------------- */

struct client_call {
    char url[128];
    const char *body;   /* NULL: GET */
    const char *method; /* another one; NULL: none */
    long status;
    struct buf text, headers;
    CURLcode rc;
    size_t enough; /* hangs up after so many bytes; 0: never */
    pthread_t thread;
};

static size_t take(char *bytes, size_t size, size_t n, void *user) {
    struct client_call *c = user;
    buf_add(&c->text, bytes, size * n);
    return c->enough == 0 || c->text.len < c->enough ? n : 0;
}

static size_t take_header(char *bytes, size_t size, size_t n, void *user) {
    struct client_call *c = user;
    buf_add(&c->headers, bytes, size * n);
    return n;
}

static void *call_main(void *user) {
    struct client_call *c = user;
    CURL *h = client_curl();
    struct curl_slist *headers = curl_slist_append(NULL, "Authorization: Bearer abc");
    headers = curl_slist_append(headers, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Accept-Encoding: gzip");
    curl_easy_setopt(h, CURLOPT_URL, c->url);
    curl_easy_setopt(h, CURLOPT_TIMEOUT, 60L);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, c);
    if (c->body != NULL)
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, c->body);
    if (c->method != NULL)
        curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, c->method);
    if (c->method != NULL && str_eq(c->method, "HEAD"))
        curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
    c->rc = curl_easy_perform(h);
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &c->status);
    curl_easy_cleanup(h);
    curl_slist_free_all(headers);
    return NULL;
}

static void call_start(struct client_call *c, const struct gateway *f, const char *path) {
    snprintf(c->url, sizeof c->url, "http://127.0.0.1:%d%s", gateway_port(f), path);
    assert_int_equal(thread_start(&c->thread, call_main, c), 0);
}

static void call_begin_as(struct client_call *c, const struct gateway *f, const char *path,
                          const char *body, size_t enough) {
    *c = (struct client_call){.body = body, .enough = enough};
    call_start(c, f, path);
}

static void call_begin(struct client_call *c, const struct gateway *f, const char *path,
                       const char *body) {
    call_begin_as(c, f, path, body, 0);
}

static void call_begin_method(struct client_call *c, const struct gateway *f,
                              const char *method, const char *path) {
    *c = (struct client_call){.method = method};
    call_start(c, f, path);
}

static void call_end(struct client_call *c) {
    pthread_join(c->thread, NULL);
    if (c->text.bytes == NULL)
        buf_add_str(&c->text, "");
}

static void call_free(struct client_call *c) {
    buf_free(&c->text);
    buf_free(&c->headers);
}

static struct gateway_route *only; /* of a gateway that has one */

static struct gateway *open_empty_gateway(void) {
    struct gateway *f;
    struct err err;
    const struct gateway_config cfg = {.port = 0};
    assert_int_equal(gateway_open(&f, &cfg, &err), ST_OK);
    return f;
}

static struct gateway_route *add(struct gateway *f, const char *name, const char *file,
                                 int64_t since, const char *target) {
    struct gateway_route *r = gateway_add(f, name, file, since);
    assert_non_null(r);
    gateway_to(r, target, target);
    return r;
}

static struct gateway *open_gateway(const char *target) {
    struct gateway *f = open_empty_gateway();
    only = add(f, "only", "only.gguf", 0, target);
    return f;
}

static void close_gateway(struct gateway *f) {
    gateway_remove(only);
    gateway_close(f);
}

static void wait_for_requests(struct server *s, int n) {
    for (uint64_t end = clock_ns() + LIMIT_NS; s->n_requests < n;) {
        assert_true(clock_ns() < end);
        poll(NULL, 0, 5);
    }
}

#define STREAM "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
#define PLAIN(n) \
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " n "\r\n\r\n"
#define ONE "data: one\n\n"
#define TWO "data: two\n\n"
#define THREE "data: three\n\n"
/* Where a server dies, its chunk has not ended. */
#define CUT_STREAM \
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n"
#define CUT_LINES \
    "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n"
#define LINES \
    "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n"

/* ---- what passes ------------------------------------------------------------------------- */

static void test_passes_on(void **state) {
    (void)state;
    struct server s;
    struct client_call c;
    server_begin(&s, "HTTP/1.1 418 Teapot\r\nContent-Type: text/x-tea\r\nX-Tea: green\r\n"
                     "Content-Encoding: leaves\r\nCache-Control: max-age=5\r\n"
                     "Content-Length: 3\r\n\r\ntea");
    struct gateway *f = open_gateway(s.address);
    call_begin(&c, f, "/v1/a%20b/c?x=1%262&y", "{\"a\": 1}");
    call_end(&c);
    assert_int_equal(c.status, 418);
    assert_string_equal(c.text.bytes, "tea");
    assert_non_null(strstr(c.headers.bytes, "text/x-tea"));
    assert_non_null(strstr(c.headers.bytes, "X-Tea: green"));
    assert_non_null(strstr(c.headers.bytes, "Content-Encoding: leaves"));
    assert_non_null(strstr(c.headers.bytes, "Cache-Control: max-age=5"));
    assert_non_null(strstr(s.request, "Accept-Encoding: gzip\r\n"));
    assert_int_equal(strncmp(s.request, "POST /v1/a%20b/c?x=1%262&y= HTTP/1.1\r\n", 38), 0);
    assert_non_null(strstr(s.request, "Authorization: Bearer abc\r\n"));
    assert_non_null(strstr(s.request, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(s.request, REPLY_NAME_HEADER ": "));
    assert_non_null(strstr(s.request, "\r\n\r\n{\"a\": 1}"));
    call_free(&c);
    call_begin(&c, f, "/health", NULL);
    call_end(&c);
    assert_int_equal(strncmp(s.request, "GET /health HTTP/1.1\r\n", 22), 0);
    call_free(&c);
    close_gateway(f);
    server_end(&s);
}

static void test_streams(void **state) {
    (void)state;
    struct server s;
    struct client_call c;
    server_begin(&s, STREAM ": still at work\n\n" ONE ": still at work\n\n" TWO THREE);
    struct gateway *f = open_gateway(s.address);
    call_begin(&c, f, "/", "{}");
    call_end(&c);
    assert_int_equal(c.rc, CURLE_OK);
    assert_string_equal(c.text.bytes, ONE TWO THREE);
    call_free(&c);
    close_gateway(f);
    server_end(&s);
}

static void test_client_leaves(void **state) {
    (void)state;
    struct server s;
    struct client_call c;
    server_begin_as(&s, CUT_STREAM ONE, true);
    struct gateway *f = open_gateway(s.address);
    call_begin_as(&c, f, "/", "{}", 5);
    call_end(&c);
    for (uint64_t end = clock_ns() + LIMIT_NS; !s.left && clock_ns() < end;)
        poll(NULL, 0, 5);
    assert_true(s.left);
    call_free(&c);
    close_gateway(f);
    server_end(&s);
}

#ifdef HAS_WRAPPED_THREADS
/* Threads that others than the test start wait at the gate while it is closed. */
struct gate {
    pthread_t controller; /* who may pass */
    atomic_bool closed;
    atomic_int n_waiting;
};
static struct gate gate;

struct held {
    void *(*fn)(void *);
    void *arg;
};

static void *held_main(void *user) {
    struct held *h = user, held = *h;
    mem_free(h);
    gate.n_waiting++;
    while (gate.closed)
        poll(NULL, 0, 5);
    gate.n_waiting--;
    return held.fn(held.arg);
}

int __real_thread_start(pthread_t *out, void *(*fn)(void *), void *arg);
int __wrap_thread_start(pthread_t *out, void *(*fn)(void *), void *arg);
int __wrap_thread_start(pthread_t *out, void *(*fn)(void *), void *arg) {
    struct held *h;
    if (!gate.closed || pthread_equal(gate.controller, pthread_self()))
        return __real_thread_start(out, fn, arg);
    h = mem_alloc(sizeof *h);
    assert_non_null(h);
    *h = (struct held){fn, arg};
    return __real_thread_start(out, held_main, h);
}

static void gate_close(void) {
    gate.controller = pthread_self();
    gate.closed = true;
}

static void wait_for(atomic_int *n, int wanted) {
    for (uint64_t end = clock_ns() + LIMIT_NS; *n != wanted; poll(NULL, 0, 5))
        assert_true(clock_ns() < end);
}

static int n_open_files(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL)
        closedir(d);
    return n;
}

/* The client hangs up before the thread of its request has looked at it: by then the
 * connection, with the request's arguments, is gone. (AddressSanitizer sees who reads them.) */
static void test_client_leaves_at_once(void **state) {
    (void)state;
    static const char question[] = "GET /health?model=ann HTTP/1.1\r\nHost: x\r\n\r\n";
    struct gateway *f = open_empty_gateway();
    struct gateway_route *of[] = {add(f, "ann", "x.gguf", 200, NULL),
                                  add(f, "bob", "y.gguf", 100, NULL)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)gateway_port(f)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int n_before = n_open_files(), fd = net_socket(AF_INET, SOCK_STREAM, 0);
    gate_close();
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_true(send(fd, question, sizeof question - 1, MSG_NOSIGNAL) > 0);
    wait_for(&gate.n_waiting, 1);
    assert_int_equal(
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)),
        0);
    close(fd);
    for (uint64_t end = clock_ns() + LIMIT_NS; n_open_files() > n_before; poll(NULL, 0, 5))
        assert_true(clock_ns() < end);
    gate.closed = false;
    wait_for(&gate.n_waiting, 0);
    for (size_t i = 0; i < ARRAY_LEN(of); i++)
        gateway_remove(of[i]);
    gateway_close(f);
}
#else
static void test_client_leaves_at_once(void **state) {
    (void)state;
    print_message("skip: this linker does not hold threads\n");
    skip();
}
#endif

/* ---- servers that are lost --------------------------------------------------------------- */

/* A request of which the first server gives `cut`, and then the second one `words`. */
static void lose(const char *cut, const char *words, struct client_call *c,
                 char names[2][128]) {
    struct server a, b;
    server_begin(&a, cut);
    server_begin(&b, words);
    struct gateway *f = open_gateway(a.address);
    call_begin(c, f, "/v1/x", "{}");
    wait_for_requests(&a, 2); /* it is asked again, as long as it is the one */
    gateway_to(only, NULL, NULL);
    gateway_to(only, b.address, b.address);
    call_end(c);
    const char *of[] = {a.request, b.request};
    for (int i = 0; i < 2 && names != NULL; i++)
        snprintf(names[i], 128, "%.100s", strstr(of[i], REPLY_NAME_HEADER));
    close_gateway(f);
    server_end(&a);
    server_end(&b);
}

static void test_stream_goes_on(void **state) {
    (void)state;
    struct client_call c;
    char names[2][128];
    lose(CUT_STREAM ONE ": still at work\n\n" TWO "data: th", STREAM ONE TWO THREE, &c, names);
    assert_int_equal(c.rc, CURLE_OK);
    assert_string_equal(c.text.bytes, ONE TWO THREE);
    assert_string_equal(names[0], names[1]);
    call_free(&c);
    lose(CUT_LINES "{\"a\": 1}\n{\"a\": 2}\n{\"a", LINES "{\"a\": 1}\n{\"a\": 2}\n{\"a\": 3}\n",
         &c, NULL);
    assert_string_equal(c.text.bytes, "{\"a\": 1}\n{\"a\": 2}\n{\"a\": 3}\n");
    call_free(&c);
    /* Before anything has come. */
    lose(CUT_STREAM, STREAM ONE TWO, &c, NULL);
    assert_string_equal(c.text.bytes, ONE TWO);
    call_free(&c);
}

#define NEWS(next, sentence) \
    ": lockstep {\"lost\":\"rack\",\"next\":" next ",\"sentence\":\"" sentence "\"}\n\n"

/* Who waits in a stream of events learns why: once, and once more when a node begins. */
static void test_who_waits_is_told(void **state) {
    (void)state;
    struct server a, b;
    struct client_call c;
    server_begin(&a, CUT_STREAM ONE);
    server_begin(&b, STREAM ONE TWO);
    struct gateway *f = open_gateway(a.address);
    gateway_name(only, "rack", "");
    call_begin(&c, f, "/v1/x", "{}");
    wait_for_requests(&a, 3);
    gateway_name(only, "rack", "shelf");
    gateway_to(only, NULL, NULL);
    wait_for_requests(&a, 3);
    gateway_name(only, "shelf", "");
    gateway_to(only, b.address, b.address);
    call_end(&c);
    assert_string_equal(
        c.text.bytes,
        ONE NEWS("null", "rack is lost; another node takes over, and the answer goes on")
            NEWS("\"shelf\"", "rack is lost; shelf takes over, and the answer goes on") TWO);
    call_free(&c);
    close_gateway(f);
    server_end(&a);
    server_end(&b);
}

/* Somebody has moved the model: nothing is lost. A loss of the next server is one again. */
static void test_a_move_is_no_loss(void **state) {
    (void)state;
    struct server a, b, c;
    struct client_call call;
    server_begin(&a, CUT_STREAM ONE);
    server_begin(&b, CUT_STREAM ONE TWO);
    server_begin(&c, STREAM ONE TWO THREE);
    struct gateway *f = open_gateway(a.address);
    gateway_name(only, "rack", "");
    gateway_moves(only);
    gateway_to(only, a.address, a.address); /* as it was */
    call_begin(&call, f, "/v1/x", "{}");
    wait_for_requests(&a, 3);
    gateway_name(only, "shelf", "");
    gateway_to(only, b.address, b.address);
    wait_for_requests(&b, 3);
    gateway_name(only, "desk", "");
    gateway_to(only, c.address, c.address);
    call_end(&call);
    const char *news[] = {"the model moves from rack, and",
                          "the model moves from rack to shelf, and",
                          "shelf is lost; another node", "shelf is lost; desk takes over"};
    const char *at = call.text.bytes;
    for (size_t i = 0; i < ARRAY_LEN(news); i++) {
        at = strstr(at, news[i]);
        assert_non_null(at);
    }
    call_free(&call);
    close_gateway(f);
    server_end(&a);
    server_end(&b);
    server_end(&c);
}

/* Lines have no comments, and an answer of which nothing has come has no place for them. */
static void test_who_has_no_events_is_not_told(void **state) {
    (void)state;
    struct server a, b;
    struct client_call c;
    server_begin(&a, CUT_LINES "{\"a\": 1}\n");
    server_begin(&b, LINES "{\"a\": 1}\n{\"a\": 2}\n");
    struct gateway *f = open_gateway(a.address);
    gateway_name(only, "rack", "shelf");
    call_begin(&c, f, "/v1/x", "{}");
    wait_for_requests(&a, 2);
    gateway_to(only, b.address, b.address);
    call_end(&c);
    assert_string_equal(c.text.bytes, "{\"a\": 1}\n{\"a\": 2}\n");
    call_free(&c);
    close_gateway(f);
    server_end(&a);
    server_end(&b);
}

/* What is asked of the cluster goes to no server. */
static void answer_cluster(void *user, struct http_request *r, int port) {
    *(int *)user = port;
    http_reply(r, 200, "text/plain", http_path(r), strlen(http_path(r)));
}

static void test_cluster_is_answered_here(void **state) {
    (void)state;
    struct err err;
    struct gateway *f;
    struct client_call c;
    int port = 0;
    const struct gateway_config cfg = {.cluster = answer_cluster, .user = &port};
    assert_int_equal(gateway_open(&f, &cfg, &err), ST_OK);
    static const char *const paths[] = {"/v1/cluster", "/cluster", "/v1/cluster/move"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        call_begin(&c, f, paths[i], "{}");
        call_end(&c);
        assert_string_equal(c.text.bytes, paths[i]);
        call_free(&c);
    }
    assert_int_equal(port, gateway_port(f));
    call_begin(&c, f, "/v1/clusters", "{}");
    call_end(&c);
    assert_string_not_equal(c.text.bytes, "/v1/clusters");
    call_free(&c);
    gateway_close(f);
}

/* The same server is reached at another address now: what it answers already goes on there. */
static void test_address_changes(void **state) {
    (void)state;
    struct server a, b;
    struct client_call c;
    server_begin_as(&a, STREAM ONE, true);
    server_begin(&b, STREAM ONE THREE);
    struct gateway *f = open_gateway(a.address);
    call_begin(&c, f, "/v1/x", "{}");
    wait_for_requests(&a, 1);
    gateway_to(only, b.address, a.address);
    poll(NULL, 0, 1500); /* longer than it takes to notice another server */
    assert_false(a.left);
    a.rest = TWO;
    call_end(&c);
    assert_int_equal(c.rc, CURLE_OK);
    assert_string_equal(c.text.bytes, ONE TWO);
    assert_int_equal(b.n_requests, 0);
    call_free(&c);
    call_begin(&c, f, "/v1/x", "{}"); /* a new one is asked there */
    call_end(&c);
    assert_string_equal(c.text.bytes, ONE THREE);
    call_free(&c);
    close_gateway(f);
    server_end(&a);
    server_end(&b);
}

#define CHOICE(i, text) "data: {\"choices\":[{\"index\":" i ",\"text\":\"" text "\"}]}\n\n"

/* Choices may take turns in another order, but each is what it was. */
static void test_choices(void **state) {
    (void)state;
    struct client_call c;
    lose(CUT_STREAM ONE CHOICE("0", "a") CHOICE("0", "b") CHOICE("1", "x"),
         STREAM ONE CHOICE("1", "x") CHOICE("0", "a") CHOICE("1", "y") CHOICE("0", "b")
             CHOICE("0", "c") TWO,
         &c, NULL);
    assert_int_equal(c.rc, CURLE_OK);
    assert_string_equal(c.text.bytes, ONE CHOICE("0", "a") CHOICE("0", "b") CHOICE("1", "x")
                                          CHOICE("1", "y") CHOICE("0", "c") TWO);
    call_free(&c);
    lose(CUT_STREAM CHOICE("0", "a") CHOICE("1", "x"),
         STREAM CHOICE("0", "a") CHOICE("1", "y") CHOICE("0", "b"), &c, NULL);
    assert_int_not_equal(c.rc, CURLE_OK);
    assert_string_equal(c.text.bytes, CHOICE("0", "a") CHOICE("1", "x"));
    call_free(&c);
}

/* Another answer is not mixed with the first one; nor is what is none. */
static void test_other_answer(void **state) {
    (void)state;
    struct client_call c;
    lose(CUT_STREAM ONE TWO, STREAM ONE THREE TWO, &c, NULL);
    assert_string_equal(c.text.bytes, ONE TWO);
    assert_int_not_equal(c.rc, CURLE_OK);
    call_free(&c);
    lose(CUT_STREAM ONE TWO, PLAIN("2") "{}", &c, NULL);
    assert_string_equal(c.text.bytes, ONE TWO);
    assert_int_not_equal(c.rc, CURLE_OK);
    call_free(&c);
}

static void test_whole_goes_on(void **state) {
    (void)state;
    struct client_call c;
    lose(PLAIN("100") "{\"half", PLAIN("13") "{\"whole\": 1}\n", &c, NULL);
    assert_int_equal(c.status, 200);
    assert_string_equal(c.text.bytes, "{\"whole\": 1}\n");
    call_free(&c);
}

#define ENDING                                                                              \
    "HTTP/1.1 503 Ending\r\nContent-Type: text/plain\r\nRetry-After: 2\r\nContent-Length: " \
    "6\r\n" HTTP_ENDING_HEADER ": 1\r\n\r\nending"
#define BUSY "HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nbusy"

/* One that ends refuses; where there is no other, that is the answer. */
static void test_refused(void **state) {
    (void)state;
    struct server a, b;
    struct client_call c;
    server_begin(&a, ENDING);
    server_begin(&b, PLAIN("2") "{}");
    struct gateway *f = open_gateway(a.address);
    call_begin(&c, f, "/", "{}");
    wait_for_requests(&a, 1);
    poll(NULL, 0, 3000); /* longer than who only asks is let wait */
    gateway_to(only, b.address, b.address);
    call_end(&c);
    assert_int_equal(c.status, 200);
    call_free(&c);
    gateway_to(only, a.address, a.address);
    call_begin(&c, f, "/", NULL);
    call_end(&c);
    assert_int_equal(c.status, 503);
    assert_string_equal(c.text.bytes, "ending");
    call_free(&c);
    server_end(&a);
    server_begin(&a, BUSY); /* too much to do: that is an answer */
    gateway_to(only, a.address, a.address);
    call_begin(&c, f, "/", "{}");
    call_end(&c);
    assert_int_equal(c.status, 503);
    assert_string_equal(c.text.bytes, "busy");
    call_free(&c);
    close_gateway(f);
    server_end(&a);
    server_end(&b);
}

/* A node that is told to end: what is under way is finished, what is new refused, at once. */
static void test_drained(void **state) {
    (void)state;
    struct server s;
    struct client_call c, late;
    server_begin(&s, PLAIN("2") "{}");
    struct gateway *f = open_gateway(NULL);
    call_begin(&c, f, "/", "{}"); /* waits for somebody who serves */
    for (uint64_t end = clock_ns() + LIMIT_NS; gateway_n_passing(only) == 0; poll(NULL, 0, 5))
        assert_true(clock_ns() < end);
    gateway_drain(f, 0);
    call_begin(&late, f, "/", "{}");
    call_end(&late);
    assert_int_equal(late.status, 503);
    assert_non_null(strstr(late.headers.bytes, HTTP_ENDING_HEADER ":"));
    call_free(&late);
    gateway_to(only, s.address, s.address);
    gateway_drain(f, 60000);
    assert_int_equal(s.n_requests, 1);
    call_end(&c);
    assert_int_equal(c.status, 200);
    call_free(&c);
    close_gateway(f);
    server_end(&s);
}

/* Nobody yet; nobody any more; and a gateway that is closed meanwhile. */
static void test_nobody(void **state) {
    (void)state;
    struct server s;
    struct client_call c, waiting;
    server_begin(&s, PLAIN("2") "{}");
    struct gateway *f = open_gateway(NULL);
    call_begin(&c, f, "/", "{}");
    poll(NULL, 0, 100);
    gateway_to(only, s.address, s.address);
    call_end(&c);
    assert_int_equal(c.status, 200);
    assert_int_equal(s.n_requests, 1);
    call_free(&c);
    gateway_to(only, NULL, NULL);
    call_begin(&c, f, "/health", NULL);
    call_end(&c);
    assert_int_equal(c.status, 503);
    assert_non_null(strstr(c.headers.bytes, "Retry-After: "));
    call_free(&c);
    call_begin(&waiting, f, "/", "{}");
    poll(NULL, 0, 100);
    close_gateway(f);
    call_end(&waiting);
    assert_true(waiting.status == 503 || waiting.rc != CURLE_OK);
    call_free(&waiting);
    server_end(&s);
}

/* ---- several deployments at one port ----------------------------------------------------- */

#define BODY(status, type, text) \
    "HTTP/1.1 " status "\r\nContent-Type: " type "\r\nConnection: close\r\n\r\n" text
#define JSON(text) BODY("200 OK", "application/json", text)

struct pair {
    struct server a, b;
    struct gateway *f;
    struct gateway_route *of_a, *of_b;
};

/* "ann", put up last, and "bob", put up first: whoever is asked for neither gets bob. */
static void pair_begin(struct pair *p, const char *a, const char *b) {
    server_begin(&p->a, a);
    server_begin(&p->b, b);
    p->f = open_empty_gateway();
    p->of_a = add(p->f, "ann", "x.gguf", 200, p->a.address);
    p->of_b = add(p->f, "bob", "y.gguf", 100, p->b.address);
}

static void pair_end(struct pair *p) {
    gateway_remove(p->of_a);
    gateway_remove(p->of_b);
    gateway_close(p->f);
    server_end(&p->a);
    server_end(&p->b);
}

static void expect(struct pair *p, const char *path, const char *body, long status,
                   const char *text) {
    struct client_call c;
    call_begin(&c, p->f, path, body);
    call_end(&c);
    assert_int_equal(c.rc, CURLE_OK);
    assert_string_equal(c.text.bytes, text);
    assert_int_equal(c.status, status);
    call_free(&c);
}

static void test_by_model(void **state) {
    (void)state;
    struct pair p;
    pair_begin(&p, PLAIN("3") "ann", PLAIN("3") "bob");
    static const struct {
        const char *path, *body, *who;
    } cases[] = {
        {"/v1/chat/completions", "{\"model\": \"ann\"}", "ann"},
        {"/v1/chat/completions", "{\"model\": \"bob\"}", "bob"},
        {"/api/chat", "{\"model\": \"ann:latest\"}", "ann"},
        {"/api/show", "{\"name\": \"ann\"}", "ann"},
        {"/v1/messages", "{\"model\": \"x.gguf\"}", "ann"},
        {"/v1/completions", "{\"model\": \"\\u0061nn\"}", "ann"},
        {"/v1/completions", "{\"model\": \"default\"}", "bob"},
        {"/v1/completions", "{\"model\": \"\"}", "bob"},
        {"/v1/completions", "{\"prompt\": \"ann\"}", "bob"},
        {"/v1/completions", "{\"model\": 5}", "bob"},
        {"/v1/completions",
         "{\"a\": {\"model\": \"bob\"}, \"b\": [\"}\\\"\", {}], \"model\" : \"ann\", ", "ann"},
        {"/v1/completions", "{\"a\": \"\\\", \\\"model\\\": \", \"b\": \"model\"}", "bob"},
        {"/v1/completions", "{\"name\": \"ann\"}", "bob"},
        {"/v1/completions", "{\"model\": \"ann", "bob"},
        {"/v1/completions", "{\"model\": \"ann\\", "bob"},
        {"/v1/completions", "no JSON", "bob"},
        {"/v1/models/ann", NULL, "ann"},
        {"/v1/models/y.gguf", NULL, "bob"},
        {"/health?model=ann", NULL, "ann"},
        {"/metrics?model=bob", NULL, "bob"},
        {"/tokenize?model=ann", "{\"content\": \"a\"}", "ann"},
        {"/api/version", NULL, "bob"},
        {"/", NULL, "bob"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect(&p, cases[i].path, cases[i].body, 200, cases[i].who);
    pair_end(&p);
}

/* A name that none of them has: those that the client may use are told, in the words of the
 * dialect. */
/* A name that is there as it is comes before what stands for it. */
static void test_names_that_stand_for_others(void **state) {
    (void)state;
    struct pair p;
    pair_begin(&p, PLAIN("3") "ann", PLAIN("3") "bob");
    struct gateway_route *any = add(p.f, "default", "z.gguf", 300, p.a.address),
                         *latest = add(p.f, "bob:latest", "z.gguf", 300, p.a.address);
    expect(&p, "/v1/completions", "{\"model\": \"default\"}", 200, "ann");
    expect(&p, "/v1/completions", "{\"model\": \"bob:latest\"}", 200, "ann");
    expect(&p, "/v1/completions", "{\"model\": \"bob\"}", 200, "bob");
    expect(&p, "/v1/completions", "{\"model\": \"lockstep\"}", 200, "bob");
    gateway_remove(any);
    gateway_remove(latest);
    pair_end(&p);
}

/* A server that hangs is left out of what is asked of all. */
static void test_one_hangs(void **state) {
    (void)state;
    struct server hung;
    struct pair p;
    server_begin_as(&hung, "HTTP/1.1 200 OK\r\n", true);
    pair_begin(&p, JSON("{\"data\":[{\"id\":\"ann\"}]}"), JSON("{\"data\":[]}"));
    gateway_to(p.of_b, hung.address, hung.address);
    expect(&p, "/v1/models", NULL, 200, "{\"data\":[{\"id\":\"ann\"}]}");
    pair_end(&p);
    server_end(&hung);
}

/* What lets web pages in is found, whoever says it. */
static void test_pages_of_others(void **state) {
    (void)state;
    static const char allows[] = "HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: *\r\n"
                                 "Content-Length: 0\r\n\r\n";
    struct pair p;
    struct client_call c;
    pair_begin(&p, allows, BODY("401 No", "application/json", "{}"));
    call_begin_method(&c, p.f, "OPTIONS", "/v1/chat/completions");
    call_end(&c);
    assert_int_equal(c.status, 204);
    assert_non_null(strcasestr(c.headers.bytes, "Access-Control-Allow-Origin: *"));
    call_free(&c);
    pair_end(&p);
    pair_begin(
        &p,
        "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"data\":[]}",
        JSON("{\"data\":[]}"));
    for (int i = 0; i < 2; i++) {
        call_begin(&c, p.f, i == 0 ? "/v1/models" : "/v1/chat/completions",
                   i == 0 ? NULL : "{\"model\": \"cat\"}");
        call_end(&c);
        assert_int_equal(c.status, i == 0 ? 200 : 404);
        assert_non_null(strcasestr(c.headers.bytes, "Access-Control-Allow-Origin: *"));
        call_free(&c);
    }
    pair_end(&p);
}

static void test_head(void **state) {
    (void)state;
    struct pair p;
    struct client_call c;
    pair_begin(&p, PLAIN("3") "ann", PLAIN("3") "bob");
    call_begin_method(&c, p.f, "HEAD", "/api/version");
    call_end(&c);
    assert_int_equal(c.status, 200);
    assert_non_null(strcasestr(c.headers.bytes, "Content-Length: 3"));
    assert_string_equal(c.text.bytes, "");
    call_free(&c);
    pair_end(&p);
}

static void test_unknown_model(void **state) {
    (void)state;
    struct pair p;
    pair_begin(&p, JSON("{\"object\": \"list\", \"data\": [{\"id\": \"ann\"}]}"),
               JSON("{\"object\": \"list\", \"data\": [{\"id\": \"bob\"}]}"));
    struct client_call c;
    call_begin(&c, p.f, "/v1/chat/completions", "{\"model\": \"cat\"}");
    call_end(&c);
    assert_int_equal(c.status, 404);
    assert_non_null(strstr(c.text.bytes, "cat\\\" does not exist here; these do: bob, ann"));
    assert_non_null(strstr(c.text.bytes, "\"error\""));
    call_free(&c);
    expect(&p, "/api/show", "{\"model\": \"cat\"}", 404,
           "{\"error\":\"the model \\\"cat\\\" does not exist here; these do: bob, ann\"}");
    pair_end(&p);
    pair_begin(&p, BODY("401 No", "application/json", "{\"no\": 1}"),
               BODY("401 No", "application/json", "{\"no\": 2}"));
    expect(&p, "/v1/chat/completions", "{\"model\": \"cat\"}", 401, "{\"no\": 2}");
    pair_end(&p);
}

/* What is asked of all: lists, as each dialect has them; a key may be good for one of them
 * only. */
static void test_lists(void **state) {
    (void)state;
    struct pair p;
    pair_begin(&p,
               JSON("{\"data\":[{\"id\":\"ann\"}],\"first_id\":\"ann\",\"last_id\":\"ann\"}"),
               JSON("{\"data\":[{\"id\":\"bob\"}],\"first_id\":\"bob\",\"last_id\":\"bob\"}"));
    expect(
        &p, "/v1/models", NULL, 200,
        "{\"data\":[{\"id\":\"bob\"},{\"id\":\"ann\"}],\"first_id\":\"bob\",\"last_id\":\"ann\"}");
    gateway_to(p.of_b, NULL, NULL);
    expect(&p, "/models/", NULL, 200,
           "{\"data\":[{\"id\":\"ann\"}],\"first_id\":\"ann\",\"last_id\":\"ann\"}");
    pair_end(&p);
    pair_begin(&p, JSON("{\"models\":[{\"name\":\"ann:latest\"}]}"),
               BODY("401 No", "application/json", "{\"no\": 1}"));
    expect(&p, "/api/tags", NULL, 200, "{\"models\":[{\"name\":\"ann:latest\"}]}");
    pair_end(&p);
}

static void test_health_of_all(void **state) {
    (void)state;
    struct pair p;
    pair_begin(&p, JSON("{\"status\":\"ok\",\"running\":1}"),
               JSON("{\"status\":\"ok\",\"running\":2}"));
    expect(&p, "/health", NULL, 200,
           "{\"status\":\"ok\",\"models\":{\"bob\":{\"status\":\"ok\",\"running\":2},"
           "\"ann\":{\"status\":\"ok\",\"running\":1}}}");
    gateway_to(p.of_a, NULL, NULL);
    expect(&p, "/health", NULL, 200,
           "{\"status\":\"unhealthy\",\"why\":\"ann: no node serves it just now\",\"models\":{"
           "\"bob\":{\"status\":\"ok\",\"running\":2},"
           "\"ann\":{\"status\":\"unhealthy\",\"why\":\"no node serves it just now\"}}}");
    gateway_to(p.of_b, NULL, NULL);
    struct client_call c;
    call_begin(&c, p.f, "/health", NULL);
    call_end(&c);
    assert_int_equal(c.status, 503);
    call_free(&c);
    pair_end(&p);
}

#define METRIC(name, samples) \
    "# HELP lockstep_" name " What it is.\n# TYPE lockstep_" name " gauge\n" samples

static void test_metrics_of_all(void **state) {
    (void)state;
    struct pair p;
    pair_begin(&p,
               BODY("200 OK", "text/plain",
                    METRIC("ranks", "lockstep_ranks 2\n")
                        METRIC("work", "lockstep_work{rank=\"0\"} 1\n")
                            METRIC("more", "lockstep_more 3\n")),
               BODY("200 OK", "text/plain",
                    METRIC("ranks", "lockstep_ranks 1\n") METRIC("more", "lockstep_more 4\n")));
    expect(
        &p, "/metrics", NULL, 200,
        METRIC("ranks", "lockstep_ranks{model=\"bob\"} 1\nlockstep_ranks{model=\"ann\"} 2\n")
            METRIC("more", "lockstep_more{model=\"bob\"} 4\nlockstep_more{model=\"ann\"} 3\n")
                METRIC("work", "lockstep_work{model=\"ann\",rank=\"0\"} 1\n"));
    pair_end(&p);
}

/* A response is with the server that made it. */
static void test_whose_response(void **state) {
    (void)state;
    struct pair p;
    pair_begin(&p, JSON("{\"id\":\"resp_1\"}"),
               BODY("404 None", "application/json", "{\"error\":1}"));
    expect(&p, "/v1/responses/resp_1", NULL, 200, "{\"id\":\"resp_1\"}");
    gateway_to(p.of_a, p.b.address, p.b.address);
    expect(&p, "/v1/responses/resp_1", NULL, 404, "{\"error\":1}");
    gateway_to(p.of_a, NULL, NULL); /* it may be hers */
    struct client_call c;
    call_begin(&c, p.f, "/v1/responses/resp_1", NULL);
    call_end(&c);
    assert_int_equal(c.status, 503);
    call_free(&c);
    pair_end(&p);
}

/* So it is with what is done to it, and by its path without a version. */
static void test_whose_response_is_cancelled(void **state) {
    (void)state;
    struct pair p;
    struct client_call c;
    pair_begin(&p, JSON("{\"id\":\"resp_1\"}"),
               BODY("404 None", "application/json", "{\"error\":1}"));
    expect(&p, "/v1/responses/resp_1/cancel", "{}", 200, "{\"id\":\"resp_1\"}");
    assert_int_equal(strncmp(p.a.request, "POST /v1/responses/resp_1/cancel ", 33), 0);
    expect(&p, "/responses/resp_1/cancel", "{}", 200, "{\"id\":\"resp_1\"}");
    call_begin_method(&c, p.f, "DELETE", "/responses/resp_1");
    call_end(&c);
    assert_int_equal(c.status, 200);
    assert_int_equal(strncmp(p.a.request, "DELETE /responses/resp_1 ", 25), 0);
    call_free(&c);
    pair_end(&p);
}

/* Its stream may be silent for longer than a server may be that only says what it has. */
static void test_whose_stream(void **state) {
    (void)state;
    struct pair p;
    struct client_call c;
    pair_begin(&p, STREAM, BODY("404 None", "application/json", "{\"error\":1}"));
    p.a.hangs = true;
    call_begin(&c, p.f, "/v1/responses/resp_1?stream=true&starting_after=7", NULL);
    wait_for_requests(&p.a, 1);
    poll(NULL, 0, 5000);
    assert_false(p.a.left);
    p.a.rest = ONE TWO;
    call_end(&c);
    assert_int_equal(c.status, 200);
    assert_string_equal(c.text.bytes, ONE TWO);
    call_free(&c);
    pair_end(&p);
}

/* Another one's key says nothing of hers. */
static void test_whose_response_by_key(void **state) {
    (void)state;
    struct pair p;
    pair_begin(&p, JSON("{\"id\":\"resp_1\"}"), BODY("401 No", "application/json", "{}"));
    expect(&p, "/v1/responses/resp_1", NULL, 200, "{\"id\":\"resp_1\"}");
    pair_end(&p);
    for (int i = 0; i < 2; i++) { /* whoever comes last */
        static const char no[] = BODY("401 No", "application/json", "{\"no\":1}"),
                          none[] = BODY("404 None", "application/json", "{\"none\":1}");
        pair_begin(&p, i == 0 ? no : none, i == 0 ? none : no);
        expect(&p, "/v1/responses/resp_1", NULL, 404, "{\"none\":1}");
        pair_end(&p);
    }
}

/* One that is taken down ends what waits for it, and nothing of the others'. */
static void test_one_goes(void **state) {
    (void)state;
    struct pair p;
    struct client_call waiting;
    pair_begin(&p, PLAIN("3") "ann", PLAIN("3") "bob");
    gateway_to(p.of_a, NULL, NULL);
    call_begin(&waiting, p.f, "/v1/completions", "{\"model\": \"ann\"}");
    for (uint64_t end = clock_ns() + LIMIT_NS; gateway_n_passing(p.of_a) == 0;) {
        assert_true(clock_ns() < end);
        poll(NULL, 0, 5);
    }
    gateway_remove(p.of_a);
    call_end(&waiting);
    assert_int_equal(waiting.status, 503);
    call_free(&waiting);
    /* Alone, it says itself what it thinks of that name. */
    expect(&p, "/v1/completions", "{\"model\": \"ann\"}", 200, "bob");
    gateway_remove(p.of_b);
    p.of_a = p.of_b = NULL;
    struct client_call c;
    call_begin(&c, p.f, "/v1/completions", "{}");
    call_end(&c);
    assert_int_equal(c.status, 503);
    call_free(&c);
    pair_end(&p);
}

/* A server looks at no names in queries, and one that stands alone must not answer for one that
 * was taken down. */
static void test_name_in_query_of_one(void **state) {
    (void)state;
    struct server s;
    server_begin(&s, JSON("{\"data\":[{\"id\":\"bob\"}]}"));
    struct pair p = {.f = open_empty_gateway()};
    p.of_b = add(p.f, "bob", "y.gguf", 100, s.address);
    expect(&p, "/health?model=bob", NULL, 200, "{\"data\":[{\"id\":\"bob\"}]}");
    expect(&p, "/health?model=default", NULL, 200, "{\"data\":[{\"id\":\"bob\"}]}");
    struct client_call c;
    call_begin(&c, p.f, "/health?model=ann", NULL);
    call_end(&c);
    assert_int_equal(c.status, 404);
    assert_non_null(strstr(c.text.bytes, "ann\\\" does not exist here; these do: bob"));
    call_free(&c);
    gateway_remove(p.of_b);
    gateway_close(p.f);
    server_end(&s);
}

static void test_port_taken(void **state) {
    (void)state;
    struct err err;
    struct gateway *f = open_gateway(NULL), *g;
    const struct gateway_config cfg = {.port = gateway_port(f)},
                                bad = {.tls_cert_pem = "no", .tls_key_pem = "no"};
    assert_int_equal(gateway_open(&g, &cfg, &err), ST_IO);
    assert_non_null(strstr(err.text, "cannot listen"));
    assert_int_equal(gateway_open(&g, &bad, &err), ST_BAD_INPUT);
    close_gateway(f);
    gateway_close(NULL);
}

struct visitor {
    pthread_t thread;
    int port;
    atomic_bool stop;
};

/* One request after the other, whatever becomes of it. */
static void *visit(void *user) {
    static const char question[] = "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";
    struct visitor *v = user;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)v->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char bytes[4096];
    while (!v->stop) {
        int fd = net_socket(AF_INET, SOCK_STREAM, 0);
        bool good = connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
        while (good && !v->stop)
            good = send(fd, question, sizeof question - 1, MSG_NOSIGNAL) > 0 &&
                   recv(fd, bytes, sizeof bytes, 0) > 0;
        close(fd);
    }
    return NULL;
}

/* A model is taken down while clients go on asking: no request begins that nobody waits for. */
static void test_closes_amid_requests(void **state) {
    (void)state;
    enum { ROUNDS = 20, N = 8 };
    for (int round = 0; round < ROUNDS; round++) {
        struct gateway *f = open_gateway(NULL);
        struct visitor list[N];
        for (int i = 0; i < N; i++) {
            list[i] = (struct visitor){.port = gateway_port(f)};
            assert_int_equal(thread_start(&list[i].thread, visit, &list[i]), 0);
        }
        poll(NULL, 0, 20);
        close_gateway(f);
        for (int i = 0; i < N; i++)
            list[i].stop = true;
        for (int i = 0; i < N; i++)
            pthread_join(list[i].thread, NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_model),
                                       cmocka_unit_test(test_unknown_model),
                                       cmocka_unit_test(test_names_that_stand_for_others),
                                       cmocka_unit_test(test_one_hangs),
                                       cmocka_unit_test(test_pages_of_others),
                                       cmocka_unit_test(test_head),
                                       cmocka_unit_test(test_lists),
                                       cmocka_unit_test(test_health_of_all),
                                       cmocka_unit_test(test_metrics_of_all),
                                       cmocka_unit_test(test_whose_response),
                                       cmocka_unit_test(test_whose_response_is_cancelled),
                                       cmocka_unit_test(test_whose_stream),
                                       cmocka_unit_test(test_whose_response_by_key),
                                       cmocka_unit_test(test_one_goes),
                                       cmocka_unit_test(test_name_in_query_of_one),
                                       cmocka_unit_test(test_passes_on),
                                       cmocka_unit_test(test_streams),
                                       cmocka_unit_test(test_client_leaves),
                                       cmocka_unit_test(test_client_leaves_at_once),
                                       cmocka_unit_test(test_stream_goes_on),
                                       cmocka_unit_test(test_who_waits_is_told),
                                       cmocka_unit_test(test_a_move_is_no_loss),
                                       cmocka_unit_test(test_who_has_no_events_is_not_told),
                                       cmocka_unit_test(test_cluster_is_answered_here),
                                       cmocka_unit_test(test_address_changes),
                                       cmocka_unit_test(test_choices),
                                       cmocka_unit_test(test_other_answer),
                                       cmocka_unit_test(test_whole_goes_on),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_drained),
                                       cmocka_unit_test(test_nobody),
                                       cmocka_unit_test(test_port_taken),
                                       cmocka_unit_test(test_closes_amid_requests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
