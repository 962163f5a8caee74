/* The HTTP layer against a client made of plain sockets: what it limits, whom it lets in, and that
 * nobody who is slow, rude or gone holds its memory or its threads. TLS is in test_serve.sh.
 * labels: waits */
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "net/http.h"

#include "dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a server ---------------------------------------------------------------------------- */

#define PIECE 16384

/* Endless streams, written as fast as they are taken until somebody says no. */
struct endless {
    struct http_request *r;
    pthread_t thread;
    bool paced; /* not as fast as it can */
    size_t n_written;
};
static struct endless endless[64];
static atomic_int n_endless, n_ended, n_gone;
/* A request that is kept until the test lets it go. */
static _Atomic(struct http_request *) held;

static void note_gone(void *user) {
    (void)user;
    atomic_fetch_add(&n_gone, 1);
}

static void *write_endlessly(void *arg) {
    static const char zeros[PIECE];
    struct endless *s = arg;
    while (http_stream_write(s->r, zeros, sizeof zeros) == ST_OK) {
        s->n_written += sizeof zeros;
        if (s->paced)
            usleep(1000);
    }
    http_stream_end(s->r);
    atomic_fetch_add(&n_ended, 1);
    return NULL;
}

/* Requests for /slow wait here, in their lane, until there are so many tickets. */
static atomic_int n_tickets, n_slow, n_handled;

static void wait_for_ticket(void) {
    int mine = atomic_fetch_add(&n_slow, 1) + 1;
    for (int i = 0; i < 60000 && atomic_load(&n_tickets) < mine; i++)
        usleep(1000);
}

static enum http_lane lane_by_path(void *user, const struct http_request *r) {
    (void)user;
    return str_eq(http_path(r), "/slow")    ? HTTP_LANE_LONG
           : str_eq(http_path(r), "/short") ? HTTP_LANE_SHORT
                                            : HTTP_LANE_QUICK;
}

static void handle(void *user, struct http_request *r) {
    char text[256];
    size_t len;
    (void)user;
    atomic_fetch_add(&n_handled, 1);
    if (str_eq(http_path(r), "/slow"))
        wait_for_ticket();
    const char *body = http_body(r, &len);
    if (str_eq(http_path(r), "/endless") || str_eq(http_path(r), "/paced")) {
        struct endless *s = &endless[atomic_fetch_add(&n_endless, 1)];
        *s = (struct endless){.r = r, .paced = str_eq(http_path(r), "/paced")};
        http_on_gone(r, note_gone, NULL);
        http_stream_begin(r, 200, "text/plain");
        pthread_create(&s->thread, NULL, write_endlessly, s);
    } else if (str_eq(http_path(r), "/hold")) {
        http_on_gone(r, note_gone, NULL);
        atomic_store(&held, r);
    } else {
        snprintf(text, sizeof text, "%s %s %zu %.20s", http_method(r), http_path(r), len, body);
        http_reply(r, 200, "text/plain", text, strlen(text));
    }
}

static void fail_plainly(void *user, struct http_request *r, int status, const char *sentence) {
    (void)user;
    http_reply(r, status, "text/plain", sentence, strlen(sentence));
}

static void fail_with_path(void *user, struct http_request *r, int status,
                           const char *sentence) {
    char text[128];
    (void)user;
    assert_true(strlen(sentence) > 10);
    int n = snprintf(text, sizeof text, "%d at '%s'", status, http_path(r));
    http_reply(r, status, "text/plain", text, (size_t)n);
}

static struct http_config config(void) {
    struct http_config cfg;
    http_config_init(&cfg);
    cfg.handle = handle;
    cfg.fail = fail_plainly;
    atomic_store(&n_endless, 0);
    atomic_store(&n_ended, 0);
    atomic_store(&n_gone, 0);
    atomic_store(&held, NULL);
    atomic_store(&n_tickets, 0);
    atomic_store(&n_slow, 0);
    atomic_store(&n_handled, 0);
    return cfg;
}

static struct http_server *serve(const struct http_config *cfg) {
    struct http_server *s = NULL;
    struct err err = {.text = ""};
    if (http_open(&s, cfg, &err) != ST_OK)
        fail_msg("%s", err.text);
    return s;
}

/* Waits for what another thread does; fails after a long time only. */
static void wait_for(atomic_int *n, int wanted) {
    for (int i = 0; i < 60000 && atomic_load(n) < wanted; i++)
        usleep(1000);
    assert_int_equal(atomic_load(n), wanted);
}

static struct http_request *wait_for_held(void) {
    for (int i = 0; i < 60000 && atomic_load(&held) == NULL; i++)
        usleep(1000);
    assert_non_null(atomic_load(&held));
    return atomic_load(&held);
}

/* ---- a client ---------------------------------------------------------------------------- */

static int dial(const struct http_server *s) {
    int fd = dial_port(http_port(s), 60);
    assert_true(fd >= 0);
    return fd;
}

/* False when the server has closed meanwhile. */
static bool put(int fd, const void *data, size_t len) {
    const char *p = data;
    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static void say(int fd, const char *text) {
    put(fd, text, strlen(text));
}

struct answer {
    int status; /* 0: the connection was closed without one */
    char head[8192], body[4096];
};

/* Heads and bodies (by their Content-Length) are small here. */
static struct answer listen_to(int fd) {
    static struct answer a;
    size_t n = 0, length = 0;
    memset(&a, 0, sizeof a);
    while (strstr(a.head, "\r\n\r\n") == NULL && n + 1 < sizeof a.head) {
        if (recv(fd, a.head + n, 1, 0) != 1)
            return a;
        n++;
    }
    sscanf(a.head, "HTTP/1.1 %d", &a.status);
    const char *field = strcasestr(a.head, "\r\nContent-Length:");
    if (field != NULL)
        length = strtoul(field + 17, NULL, 10);
    for (n = 0; n < length && n + 1 < sizeof a.body; n++)
        if (recv(fd, a.body + n, 1, 0) != 1)
            break;
    return a;
}

static struct answer ask(int fd, const char *request) {
    say(fd, request);
    return listen_to(fd);
}

static struct answer ask_once(const struct http_server *s, const char *request) {
    int fd = dial(s);
    struct answer a = ask(fd, request);
    close(fd);
    return a;
}

/* Whether the server closes within its patience. */
static bool is_closed(int fd) {
    char byte;
    ssize_t n;
    do {
        n = recv(fd, &byte, 1, 0);
    } while (n == 1 || (n < 0 && errno == EINTR));
    return n == 0 || errno == ECONNRESET;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"
#define POST(path, header) \
    "POST " path " HTTP/1.1\r\nHost: x\r\n" header "Content-Length: 5\r\n\r\nhello"

static void still_serves(const struct http_server *s) {
    assert_int_equal(ask_once(s, GET("/still")).status, 200);
}

/* ---- what it does ------------------------------------------------------------------------ */

static void a_connection_serves_many_requests(void **state) {
    (void)state;
    struct http_config cfg = config();
    struct http_server *s = serve(&cfg);
    int fd = dial(s);
    for (int i = 0; i < 3; i++) {
        struct answer a =
            ask(fd, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
        assert_int_equal(a.status, 200);
        assert_string_equal(a.body, "POST /a 5 hello");
        a = ask(fd, GET("/b"));
        assert_string_equal(a.body, "GET /b 0 ");
        a = ask(fd, GET("http://x/b")); /* as to a proxy */
        assert_string_equal(a.body, "GET /b 0 ");
        a = ask(fd, GET("http://x"));
        assert_string_equal(a.body, "GET / 0 ");
    }
    close(fd);
    http_close(s);
}

static void too_large_a_body_is_told(void **state) {
    (void)state;
    struct http_config cfg = config();
    cfg.max_body_bytes = 1000;
    struct http_server *s = serve(&cfg);
    static char block[100000];
    memset(block, 'x', sizeof block);
    int fd = dial(s);
    say(fd, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
    put(fd, block, sizeof block);
    assert_int_equal(listen_to(fd).status, 413);
    /* Without a length, in pieces. */
    say(fd, "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 11; i++) {
        say(fd, "64\r\n");
        put(fd, block, 100);
        say(fd, "\r\n");
    }
    struct answer a = ask(fd, "0\r\n\r\n");
    assert_int_equal(a.status, 413);
    assert_non_null(strstr(a.body, "too large"));
    /* The largest that fits. */
    say(fd, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
    put(fd, block, 1000);
    assert_int_equal(listen_to(fd).status, 200);
    close(fd);
    http_close(s);
}

static struct answer post(int fd, const char *path, size_t n_bytes) {
    static char block[200000];
    char head[128];
    memset(block, 'x', sizeof block);
    snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
             path, n_bytes);
    say(fd, head);
    put(fd, block, n_bytes);
    return str_eq(path, "/hold") ? (struct answer){0} : listen_to(fd);
}

/* While one large body is held, small ones come in, and another large one is told to come back. */
static void large_bodies_share_room(void **state) {
    (void)state;
    struct http_config cfg = config();
    cfg.max_bodies_bytes = 300000;
    struct http_server *s = serve(&cfg);
    int holder = dial(s), fd = dial(s);
    assert_int_equal(post(fd, "/a", 200000).status, 200);
    post(holder, "/hold", 200000);
    struct http_request *r = wait_for_held();
    struct answer a = post(fd, "/a", 200000);
    assert_int_equal(a.status, 503);
    assert_non_null(strstr(a.body, "as many large requests as it may"));
    assert_int_equal(post(fd, "/a", 60000).status, 200);
    http_reply(r, 200, "text/plain", "", 0);
    assert_int_equal(listen_to(holder).status, 200);
    int status = 503;
    for (int i = 0; i < 10000 && status == 503; i++) /* until it is forgotten */
        status = post(fd, "/a", 200000).status;
    assert_int_equal(status, 200);
    close(holder);
    close(fd);
    http_close(s);
}

/* Nobody knows where its body ends: the client, who waits for an answer, does not close. */
static void an_unknown_transfer_coding_is_refused(void **state) {
    (void)state;
    static const char *const codings[] = {"gzip", "gzip, chunked", "identity", ""};
    struct http_config cfg = config();
    struct http_server *s = serve(&cfg);
    for (size_t i = 0; i < ARRAY_LEN(codings); i++) {
        char text[128];
        snprintf(text, sizeof text,
                 "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: %s\r\n\r\nhello",
                 codings[i]);
        int fd = dial(s);
        struct answer a = ask(fd, text);
        assert_int_equal(a.status, 501);
        assert_non_null(strstr(a.body, "chunked"));
        close(fd);
    }
    int fd = dial(s);
    struct answer a = ask(fd, "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                              "Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    assert_string_equal(a.body, "POST /a 5 hello");
    close(fd);
    http_close(s);
}

static void headers_are_bounded(void **state) {
    (void)state;
    struct http_config cfg = config();
    struct http_server *s = serve(&cfg);
    static char block[1 << 20];
    memset(block, 'x', sizeof block);
    int fd = dial(s);
    say(fd, "GET /a HTTP/1.1\r\nHost: x\r\nX-Long: ");
    put(fd, block, sizeof block);
    say(fd, "\r\n\r\n");
    int status = listen_to(fd).status;
    assert_true(status == 0 || status == 431 || status == 400 || status == 413);
    close(fd);
    still_serves(s);
    fd = dial(s);
    say(fd, "GET /");
    put(fd, block, sizeof block);
    say(fd, " HTTP/1.1\r\nHost: x\r\n\r\n");
    status = listen_to(fd).status;
    assert_true(status == 0 || status == 414 || status == 400 || status == 431);
    close(fd);
    still_serves(s);
    http_close(s);
}

static void nonsense_is_no_request(void **state) {
    (void)state;
    static const char *const words[] = {
        "\x16\x03\x01\x02\x01\x01\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\r\n\r\n\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    };
    struct http_config cfg = config();
    cfg.idle_s = 1;
    struct http_server *s = serve(&cfg);
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        struct answer a = ask_once(s, words[i]);
        assert_true(a.status == 0 || (a.status >= 400 && a.status < 600));
        still_serves(s);
    }
    http_close(s);
}

/* Whatever is refused is told by cfg.fail, in the dialect of the path. */
static void faults_are_told_by_the_handler(void **state) {
    (void)state;
    static char long_line[40000];
    static const struct {
        const char *words;
        int status;
        const char *path;
    } cases[] = {
        {"GET /p HTTP/7.0\r\nHost: x\r\n\r\n", 505, "/p"},
        {"GET /p HTTP/1.1\r\nHost: x\r\nbad\r\n\r\n", 400, "/p"},
        {"GET /p HTTP/1.1\r\n\r\n", 400, "/p"},
        {"GET /p HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400, "/p"},
        {"GET\r\n\r\n", 400, ""},
        {"GET /p HTTP/1.1\r\nHost: x\r\nX: ", 431, "/p"}, /* and so on */
        {"GET /p?", 414, "/p"},                           /* and so on */
        {"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, "/p"},
        {"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 413,
         "/p"},
        {"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, "/p"},
        {"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
         "ffffffffffffffff\r\n",
         413, "/p"},
        {"POST /p HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "
         "999999999\r\n\r\n",
         413, "/p"},
    };
    struct http_config cfg = config();
    cfg.fail = fail_with_path;
    struct http_server *s = serve(&cfg);
    memset(long_line, 'x', sizeof long_line - 1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char wanted[64];
        int fd = dial(s);
        say(fd, cases[i].words);
        if (strstr(cases[i].words, "\r\n\r\n") == NULL)
            say(fd, long_line);
        struct answer a = listen_to(fd);
        snprintf(wanted, sizeof wanted, "%d at '%s'", cases[i].status, cases[i].path);
        assert_int_equal(a.status, cases[i].status);
        assert_string_equal(a.body, wanted);
        assert_true(is_closed(fd));
        close(fd);
    }
    still_serves(s);
    http_close(s);
}

/* A body whose end a proxy might see elsewhere (RFC 9112, 6.3), or that nobody here can read. */
static void bodies_in_disguise_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *words;
        int status;
    } cases[] = {
        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 40\r\n\r\n{}",
         400},
        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
         400},
        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b",
         415},
    };
    struct http_config cfg = config();
    struct http_server *s = serve(&cfg);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(ask_once(s, cases[i].words).status, cases[i].status);
        still_serves(s);
    }
    assert_int_equal(
        ask_once(
            s,
            "POST /a HTTP/1.1\r\nHost: x\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}")
            .status,
        200);
    http_close(s);
}

/* Who sends half a request, or nothing, is cut off. */
static void slow_senders_are_cut_off(void **state) {
    (void)state;
    struct http_config cfg = config();
    cfg.idle_s = 1;
    struct http_server *s = serve(&cfg);
    int silent = dial(s), header = dial(s), body = dial(s);
    say(header, "GET / HTTP/1.1\r\nHost:");
    say(body, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf");
    still_serves(s);
    assert_true(is_closed(silent));
    assert_true(is_closed(header));
    assert_true(is_closed(body));
    close(silent);
    close(header);
    close(body);
    http_close(s);
}

/* Nor does a byte now and then keep a place: neither in a head, nor in the body of one who has
 * no key. */
static void who_trickles_is_cut_off(void **state) {
    (void)state;
    const char *const keys[] = {"secret"};
    struct http_config cfg = config();
    cfg.idle_s = 1;
    cfg.api_keys = keys;
    cfg.n_api_keys = 1;
    struct http_server *s = serve(&cfg);
    int head = dial(s), body = dial(s), good = dial(s);
    say(head, "GET / HTTP/1.1\r\nX: ");
    say(body, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
    say(good,
        "POST / HTTP/1.1\r\nHost: x\r\nx-api-key: secret\r\nContent-Length: 1000\r\n\r\n");
    bool in_head = true, in_body = true;
    int n = 0;
    for (; n < 600 && (in_head || in_body); n++) {
        in_head = in_head && put(head, "x", 1);
        in_body = in_body && put(body, "x", 1);
        assert_true(put(good, "x", 1));
        usleep(50000);
    }
    assert_false(in_head || in_body);
    for (; n < 1000; n++)
        assert_true(put(good, "x", 1));
    assert_int_equal(listen_to(good).status, 200);
    close(head);
    close(body);
    close(good);
    http_close(s);
}

/* Sixty clients ask for an endless stream and read none of it: each writer hears it when its
 * bound is full, what they all hold stays within the bounds, and others are served meanwhile. */
static void slow_readers_hold_nothing(void **state) {
    (void)state;
    enum { N = 60, UNREAD = 1 << 17 };
    struct http_config cfg = config();
    cfg.max_unread_bytes = UNREAD;
    struct http_server *s = serve(&cfg);
    int fds[N];
    size_t before = mem_resident().anon_bytes;
    for (int i = 0; i < N; i++) {
        const int small = 4096;
        fds[i] = dial(s);
        setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        say(fds[i], GET("/endless"));
    }
    still_serves(s);
    wait_for(&n_ended, N);
    for (int i = 0; i < N; i++) {
        pthread_join(endless[i].thread, NULL);
        /* What the kernel buffers comes on top: up to 4 MB to send by default. */
        assert_true(endless[i].n_written >= UNREAD);
        assert_true(endless[i].n_written < UNREAD + (16u << 20));
    }
    size_t after = mem_resident().anon_bytes;
    print_message("%.1f MiB more\n", ((double)after - (double)before) / (1 << 20));
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    /* (The one keeps what was freed, the other's shadow of it counts.) Buffers double as they
     * grow; 64 KiB for everything else of a connection and its thread. */
    if (before > 0)
        assert_true(after < before + N * (2 * UNREAD + 65536));
#endif
    /* The streams' owners are done, and so is the server, though nobody has closed. */
    assert_true(http_drain(s, 60000));
    for (int i = 0; i < N; i++)
        close(fds[i]);
    http_close(s);
}

/* The bytes of a chunked stream without its chunks' heads, by what they are: nothing else here
 * is a 'z'. */
static size_t count_until_closed(int fd) {
    static char some[1 << 16];
    size_t count = 0;
    ssize_t n;
    while ((n = recv(fd, some, sizeof some, 0)) > 0)
        for (ssize_t i = 0; i < n; i++)
            count += some[i] == 'z';
    return count;
}

/* Pieces beyond max_unread_bytes, a burst at the beginning and one at the end, with small ones
 * between them, to a client that reads none of it before all of it is written. The one that
 * reads nothing at all is cut off all the same, at a bound. */
static void large_pieces_are_no_slowness(void **state) {
    (void)state;
    enum { LARGE = 1 << 20, UNREAD = 1 << 16, KERNEL = 16 << 20 };
    static const char head[] = "GET /hold HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    struct http_config cfg = config();
    cfg.max_unread_bytes = UNREAD;
    struct http_server *s = serve(&cfg);
    char *large = mem_alloc(LARGE);
    memset(large, 'z', LARGE);
    for (int reads = 0; reads < 2; reads++) {
        const int small = 4096;
        atomic_store(&held, NULL);
        int fd = dial(s);
        if (!reads)
            setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        say(fd, head);
        struct http_request *r = wait_for_held();
        http_stream_begin(r, 200, "text/plain");
        size_t written = 0;
        for (int i = 0; i < HTTP_BURST; i++, written += LARGE)
            assert_int_equal(http_stream_write(r, large, LARGE), ST_OK);
        for (int i = 0; i < 100; i++, written += 10)
            assert_int_equal(http_stream_write(r, large, 10), ST_OK);
        if (!reads) {
            while (http_stream_write(r, large, LARGE) == ST_OK)
                written += LARGE;
            assert_true(written <= UNREAD + (HTTP_BURST + 1) * (size_t)LARGE + KERNEL);
        }
        http_stream_end(r);
        if (reads)
            assert_int_equal(count_until_closed(fd), written);
        close(fd);
    }
    mem_free(large);
    assert_true(http_drain(s, 60000));
    http_close(s);
}

static void who_hangs_up_is_noticed(void **state) {
    (void)state;
    struct http_config cfg = config();
    struct http_server *s = serve(&cfg);
    int fd = dial(s);
    say(fd, GET("/hold")); /* nothing was sent yet, so no write can fail */
    struct http_request *r = wait_for_held();
    close(fd);
    wait_for(&n_gone, 1);
    http_reply(r, 200, "text/plain", "late", 4);
    fd = dial(s);
    char some[1000];
    say(fd, GET("/paced"));
    assert_true(recv(fd, some, sizeof some, 0) > 0);
    close(fd);
    wait_for(&n_ended, 1);
    pthread_join(endless[0].thread, NULL);
    assert_true(http_drain(s, 60000));
    http_close(s);
}

/* Adds to got, a string, what comes until it has wanted. */
static void receive_until(int fd, char *got, size_t size, const char *wanted) {
    size_t n = strlen(got);
    while (strstr(got, wanted) == NULL) {
        assert_true(n + 1 < size);
        ssize_t k = recv(fd, got + n, size - 1 - n, 0);
        assert_true(k > 0);
        got[n += (size_t)k] = '\0';
    }
}

/* Until the server must have looked, several times: nothing happens that could be waited for. */
static void let_it_look(void) {
    usleep(700000);
}

/* A client that sends no more still reads: a reply, and a stream, also when they come late. */
static void who_closes_half_gets_all(void **state) {
    (void)state;
    static const char *const heads[] = {"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n",
                                        "GET /hold HTTP/1.0\r\n\r\n"};
    struct http_config cfg = config();
    struct http_server *s = serve(&cfg);
    for (int i = 0; i < 20; i++) { /* at once */
        int fd = dial(s);
        say(fd, POST("/a", ""));
        shutdown(fd, SHUT_WR);
        assert_string_equal(listen_to(fd).body, "POST /a 5 hello");
        assert_true(is_closed(fd));
        close(fd);
    }
    for (size_t i = 0; i < 2 * ARRAY_LEN(heads); i++) {
        bool streams = i % 2 != 0;
        atomic_store(&held, NULL);
        int fd = dial(s);
        say(fd, heads[i / 2]);
        shutdown(fd, SHUT_WR);
        struct http_request *r = wait_for_held();
        let_it_look();
        assert_int_equal(atomic_load(&n_gone), 0);
        if (streams) {
            http_stream_begin(r, 200, "text/plain");
            assert_int_equal(http_stream_write(r, "one", 3), ST_OK);
            let_it_look();
            assert_int_equal(http_stream_write(r, "two", 3), ST_OK);
            http_stream_end(r);
        } else {
            http_reply(r, 200, "text/plain", "onetwo", 6);
        }
        char got[4096] = "";
        receive_until(fd, got, sizeof got, "two");
        assert_non_null(strstr(got, "HTTP/1.1 200 "));
        assert_non_null(strstr(got, "one"));
        assert_true(is_closed(fd));
        close(fd);
        assert_int_equal(atomic_load(&n_gone), 0);
    }
    assert_true(http_drain(s, 60000));
    http_close(s);
}

/* And one that closes half, and then the rest, is gone: though its socket says nothing more of
 * it, what is written to it does. */
static void who_closes_half_and_then_all_is_noticed(void **state) {
    (void)state;
    for (int streams = 0; streams < 2; streams++) {
        struct http_config cfg = config();
        cfg.quiet_ms = 2000;
        struct http_server *s = serve(&cfg);
        int fd = dial(s);
        say(fd, GET("/hold"));
        shutdown(fd, SHUT_WR);
        struct http_request *r = wait_for_held();
        if (streams) {
            http_fill_quiet(r, "text/event-stream", ": quiet\n\n");
            http_stream_begin(r, 200, "text/event-stream");
        }
        let_it_look();
        close(fd);
        wait_for(&n_gone, 1);
        http_stream_end(r);
        assert_true(http_drain(s, 60000));
        http_close(s);
    }
}

/* Who takes a place and says nothing loses it to whoever comes; who waits for an answer stays. */
static void silent_ones_keep_nobody_out(void **state) {
    (void)state;
    enum { SILENT = 100, PLACES = 32 };
    struct http_config cfg = config();
    cfg.max_connections = PLACES;
    cfg.idle_s = 3600;
    cfg.head_s = 3600;
    struct http_server *s = serve(&cfg);
    int fds[SILENT], waits = dial(s), used = dial(s);
    say(waits, GET("/hold"));
    struct http_request *r = wait_for_held();
    assert_int_equal(ask(used, GET("/in")).status, 200);
    for (int i = 0; i < SILENT; i++)
        fds[i] = dial(s);
    double begun_s = clock_s();
    for (int i = 0; i < 10; i++)
        still_serves(s);
    assert_true(clock_s() - begun_s < 10);
    assert_int_equal(ask(used, GET("/in")).status, 200); /* it has been used lately */
    http_reply(r, 200, "text/plain", "done", 4);
    assert_string_equal(listen_to(waits).body, "done");
    for (int i = 0; i < SILENT; i++)
        close(fds[i]);
    close(waits);
    close(used);
    http_close(s);
}

/* The time to the first head, and to each later one, has a limit of its own. */
static void heads_come_in_time(void **state) {
    (void)state;
    struct http_config cfg = config();
    cfg.idle_s = 3600;
    cfg.head_s = 1;
    struct http_server *s = serve(&cfg);
    int silent = dial(s), half = dial(s), later = dial(s), idle = dial(s);
    say(half, "GET / HTTP/1.1\r\nHost:");
    assert_int_equal(ask(later, GET("/in")).status, 200);
    say(later, "GET /");
    assert_int_equal(ask(idle, GET("/in")).status, 200);
    assert_true(is_closed(silent) && is_closed(half) && is_closed(later));
    let_it_look();
    assert_int_equal(ask(idle, GET("/in")).status, 200); /* has sent all it began */
    close(silent);
    close(half);
    close(later);
    close(idle);
    http_close(s);
}

static void more_connections_than_allowed_wait_outside(void **state) {
    (void)state;
    struct http_config cfg = config();
    cfg.max_connections = 4;
    struct http_server *s = serve(&cfg);
    int fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = dial(s);
        assert_int_equal(ask(fds[i], GET("/in")).status, 200);
    }
    int fifth =
        dial(s); /* the system accepts it, the server does not look at it, or closes it */
    say(fifth, GET("/out"));
    for (int i = 0; i < 4; i++)
        assert_int_equal(ask(fds[i], GET("/in")).status, 200);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    int status = listen_to(fifth).status;
    assert_true(status == 200 || status == 0);
    close(fifth);
    still_serves(s);
    http_close(s);
}

/* The status; 0: the server has closed. */
static int try_once(const struct http_server *s) {
    static const char request[] = GET("/in");
    int fd = dial(s);
    say(fd, request);
    int status = listen_to(fd).status;
    close(fd);
    return status;
}

/* The files that a program may have open at first (1024, on a Mac 256) are no limit for it. */
static void connections_are_more_than_files_at_first(void **state) {
    (void)state;
    enum { N = 100, FEW = 64 };
    struct http_config cfg = config();
    struct rlimit before, few;
    int fds[N];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < 4 * N)
        skip(); /* nor is more to be had */
    few = (struct rlimit){.rlim_cur = FEW, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct http_server *s = serve(&cfg);
    for (int i = 0; i < N; i++) {
        fds[i] = dial(s);
        assert_int_equal(ask(fds[i], GET("/in")).status, 200);
    }
    for (int i = 0; i < N; i++)
        close(fds[i]);
    http_close(s);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* Who takes all that one address may have keeps nobody else out. */
static void one_address_does_not_get_everything(void **state) {
    (void)state;
    struct http_config cfg = config();
    cfg.max_connections = 4;
    cfg.max_per_address = 2;
    struct http_server *s = serve(&cfg);
    int fds[2];
    for (int i = 0; i < 2; i++) {
        fds[i] = dial(s);
        assert_int_equal(ask(fds[i], GET("/in")).status, 200);
    }
    for (int i = 0; i < 10; i++) {
        assert_int_equal(try_once(s), 0);
    }
    struct sockaddr_in there = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)http_port(s)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
                       from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    int other = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(other, (struct sockaddr *)&from, sizeof from) == 0) { /* Linux has all of 127/8 */
        assert_int_equal(connect(other, (struct sockaddr *)&there, sizeof there), 0);
        assert_int_equal(ask(other, GET("/in")).status, 200);
    }
    close(other);
    for (int i = 0; i < 2; i++)
        close(fds[i]);
    while (try_once(s) != 200) /* until the server has noticed */
        continue;
    http_close(s);
}

/* While a long request is read, others are answered; of long ones so many wait, in their order. */
static void long_requests_hold_up_no_others(void **state) {
    (void)state;
    struct http_config cfg = config();
    cfg.lane = lane_by_path;
    struct http_server *s = serve(&cfg);
    int slow[HTTP_LONG_WAITING + 2];
    for (int i = 0; i < HTTP_LONG_WAITING + 2;
         i++) { /* the last one when the others are there */
        slow[i] = dial(s);
        say(slow[i], GET("/slow"));
        while (http_n_running(s) <= i && i <= HTTP_LONG_WAITING)
            usleep(1000);
        if (i == 0)
            wait_for(&n_slow, 1);
    }
    struct answer a = listen_to(slow[HTTP_LONG_WAITING + 1]);
    assert_int_equal(a.status, 503);
    assert_non_null(strcasestr(a.head, "\r\nRetry-After: "));
    assert_int_equal(ask_once(s, GET("/quick")).status, 200);
    assert_int_equal(ask_once(s, GET("/short")).status, 200);
    atomic_store(&n_tickets, HTTP_LONG_WAITING + 1);
    for (int i = 0; i <= HTTP_LONG_WAITING; i++)
        assert_int_equal(listen_to(slow[i]).status, 200);
    for (size_t i = 0; i < ARRAY_LEN(slow); i++)
        close(slow[i]);
    http_close(s);
}

/* A client that leaves while its request waits, or is being handled: the one is never handled, the
 * other one ends. */
static void who_leaves_before_its_turn_is_forgotten(void **state) {
    (void)state;
    struct http_config cfg = config();
    cfg.lane = lane_by_path;
    struct http_server *s = serve(&cfg);
    int handled = dial(s), waits = dial(s);
    const struct linger at_once = {.l_onoff = 1}; /* a reset: gone for certain */
    say(handled, GET("/slow"));
    wait_for(&n_slow, 1);
    say(waits, GET("/slow"));
    setsockopt(handled, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    setsockopt(waits, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    while (http_n_running(s) < 2)
        usleep(1000);
    close(handled);
    close(waits);
    let_it_look();
    assert_int_equal(ask_once(s, GET("/quick")).status, 200);
    atomic_store(&n_tickets, 1);
    assert_true(http_drain(s, 60000));
    assert_int_equal(atomic_load(&n_handled), 2); /* the first one, and the quick one */
    http_close(s);
}

/* The end waits for those whose turn is still to come, and so does a cut. */
static void the_end_waits_for_their_turn(void **state) {
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        struct http_config cfg = config();
        cfg.lane = lane_by_path;
        struct http_server *s = serve(&cfg);
        int first = dial(s), second = dial(s);
        say(first, GET("/slow"));
        wait_for(&n_slow, 1);
        say(second, GET("/slow"));
        while (http_n_running(s) < 2)
            usleep(1000);
        assert_false(http_drain(s, 1));
        atomic_store(&n_tickets, 2);
        if (!cut) {
            assert_true(http_drain(s, 60000));
            assert_int_equal(listen_to(first).status, 200);
            assert_int_equal(listen_to(second).status, 200);
        }
        http_close(s);
        close(first);
        close(second);
    }
}

static bool all_but_open(const char *path) {
    return !str_eq(path, "/open");
}

static void keys_let_in(void **state) {
    (void)state;
    static const char *const keys[] = {"first", "second"};
    struct http_config cfg = config();
    cfg.api_keys = keys;
    cfg.n_api_keys = 2;
    cfg.needs_key = all_but_open;
    struct http_server *s = serve(&cfg);
    static const struct {
        const char *request;
        int status;
    } cases[] = {
        {GET("/open"), 200},
        {GET("/a"), 401},
        {"GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer second\r\n\r\n", 200},
        {"GET /a HTTP/1.1\r\nHost: x\r\nauthorization: bearer first\r\n\r\n", 200},
        {"GET /a HTTP/1.1\r\nHost: x\r\nX-API-Key: first\r\n\r\n", 200},
        {"GET /a HTTP/1.1\r\nHost: x\r\nX-API-Key:  first \t\r\n\r\n", 200},
        {"GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer  first \r\n\r\n", 200},
        {"GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer firs\r\n\r\n", 401},
        {"GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer firstt\r\n\r\n", 401},
        {"GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \r\n\r\n", 401},
        {"GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: Basic first\r\n\r\n", 401},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(ask_once(s, cases[i].request).status, cases[i].status);
    http_close(s);
}

/* Nor on a path that is open: whoever shows no key cannot make the server keep anything. */
static void bodies_without_a_key_are_not_kept(void **state) {
    (void)state;
    static const char *const keys[] = {"key"};
    struct http_config cfg = config();
    cfg.api_keys = keys;
    cfg.n_api_keys = 1;
    cfg.needs_key = all_but_open;
    struct http_server *s = serve(&cfg);
    struct answer a = ask_once(s, POST("/open", "X-API-Key: key\r\n"));
    assert_string_equal(a.body, "POST /open 5 hello");
    a = ask_once(s, POST("/open", ""));
    assert_string_equal(a.body, "POST /open 0 ");
    assert_int_equal(ask_once(s, POST("/a", "")).status, 401);
    http_close(s);
}

static void pages_of_other_origins_come_in_if_asked_for(void **state) {
    (void)state;
    static const char preflight[] =
        "OPTIONS /a HTTP/1.1\r\nHost: x\r\nOrigin: http://page\r\n"
        "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: "
        "authorization\r\n\r\n";
    static const char *const keys[] = {"key"};
    struct http_config cfg = config();
    cfg.cors_origin = "http://page";
    cfg.api_keys = keys; /* which a preflight does not carry */
    cfg.n_api_keys = 1;
    struct http_server *s = serve(&cfg);
    struct answer a = ask_once(s, preflight);
    assert_int_equal(a.status, 204);
    assert_non_null(strcasestr(a.head, "Access-Control-Allow-Origin: http://page\r\n"));
    assert_non_null(strcasestr(a.head, "Access-Control-Allow-Headers: *, Authorization\r\n"));
    a = ask_once(s, GET("/a"));
    assert_int_equal(a.status, 401); /* a page may read why */
    assert_non_null(strcasestr(a.head, "Access-Control-Allow-Origin: http://page\r\n"));
    http_close(s);
    cfg = config();
    s = serve(&cfg);
    a = ask_once(s, GET("/a"));
    assert_null(strcasestr(a.head, "Access-Control"));
    http_close(s);
}

static void pages_of_this_machine_may_read_answers(void **state) {
    (void)state;
    static const char *const here[] = {"http://localhost:3000",  "https://127.0.0.1",
                                       "http://[::1]:8",         "app://obsidian.md",
                                       "tauri://localhost",      "vscode-webview://1abc",
                                       "http://tauri.localhost", "vscode-file://vscode-app"};
    static const char *const others[] = {"http://evil.example",
                                         "http://localhost.evil.example",
                                         "http://127.0.0.1.evil.example",
                                         "http://evil.example#localhost",
                                         "http://localhost@evil.example",
                                         "http://localhost:1@evil.example",
                                         "null",
                                         "file://",
                                         "app://a, http://evil.example",
                                         "applied://a",
                                         "http://192.168.1.7",
                                         ""};
    struct http_config cfg = config();
    cfg.cors_local = cfg.local_only = true;
    struct http_server *s = serve(&cfg);
    char text[512], wanted[256];
    for (size_t i = 0; i < ARRAY_LEN(here); i++) {
        snprintf(text, sizeof text,
                 "OPTIONS /a HTTP/1.1\r\nHost: localhost\r\nOrigin: %s\r\n"
                 "Access-Control-Request-Private-Network: true\r\n\r\n",
                 here[i]);
        struct answer a = ask_once(s, text);
        assert_int_equal(a.status, 204);
        snprintf(wanted, sizeof wanted, "Access-Control-Allow-Origin: %s\r\n", here[i]);
        assert_non_null(strcasestr(a.head, wanted));
        assert_non_null(strcasestr(a.head, "Access-Control-Allow-Private-Network: true\r\n"));
        assert_non_null(strcasestr(a.head, "Vary: Origin\r\n"));
    }
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        for (int k = 0; k < 2; k++) {
            snprintf(text, sizeof text,
                     "%s /a HTTP/1.1\r\nHost: localhost\r\nOrigin: %s\r\n"
                     "Access-Control-Request-Private-Network: true\r\n\r\n",
                     k == 0 ? "GET" : "OPTIONS", others[i]);
            assert_null(strcasestr(ask_once(s, text).head, "Access-Control"));
        }
    /* A page of this machine does not let one in that makes its name lead here. */
    assert_int_equal(ask_once(s, "OPTIONS /a HTTP/1.1\r\nHost: evil.example\r\n"
                                 "Origin: http://localhost\r\n\r\n")
                         .status,
                     403);
    http_close(s);
    cfg.cors_origin = "http://page";
    s = serve(&cfg);
    assert_non_null(strcasestr(ask_once(s, GET("/a")).head,
                               "Access-Control-Allow-Origin: http://page\r\n"));
    struct answer a = ask_once(s, "GET /a HTTP/1.1\r\nHost: localhost\r\nOrigin: "
                                  "http://localhost:9\r\n\r\n");
    assert_non_null(strcasestr(a.head, "Access-Control-Allow-Origin: http://localhost:9\r\n"));
    http_close(s);
}

static void the_end_waits_for_what_runs(void **state) {
    (void)state;
    struct http_config cfg = config();
    struct http_server *s = serve(&cfg);
    int fd = dial(s);
    say(fd, GET("/hold"));
    struct http_request *r = wait_for_held();
    assert_false(http_drain(s, 1));
    struct answer a = ask_once(s, GET("/new"));
    assert_int_equal(a.status, 503);
    assert_non_null(strstr(a.body, "shutting down"));
    http_reply(r, 200, "text/plain", "done", 4);
    assert_string_equal(listen_to(fd).body, "done");
    assert_true(http_drain(s, 60000));
    close(fd);
    http_close(s);
}

/* Half a request is none that runs: who sends the rest of it slowly, or never, does not hold up
 * the end. */
static void the_end_does_not_wait_for_half_requests(void **state) {
    (void)state;
    struct http_config cfg = config();
    cfg.idle_s = 3600;
    struct http_server *s = serve(&cfg);
    int half = dial(s), fd = dial(s);
    /* That it has looked at the first half is known by its word that the rest may come. */
    say(half,
        "POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n");
    char got[4096] = "";
    receive_until(half, got, sizeof got, "100 Continue\r\n\r\n");
    say(half, "half");
    say(fd, GET("/hold"));
    struct http_request *r = wait_for_held();
    assert_false(http_drain(s, 1)); /* for this one it does */
    http_reply(r, 200, "text/plain", "done", 4);
    assert_string_equal(listen_to(fd).body, "done");
    assert_true(http_drain(s, 60000));
    say(half, "rest");
    assert_int_equal(listen_to(half).status, 503);
    close(half);
    close(fd);
    http_close(s);
}

/* A stream on which nothing comes for a while is filled, before its owner begins it too. */
static void what_is_quiet_for_long_is_filled(void **state) {
    (void)state;
    struct http_config cfg = config();
    cfg.quiet_ms = 1;
    struct http_server *s = serve(&cfg);
    int fd = dial(s);
    say(fd, GET("/hold"));
    struct http_request *r = wait_for_held();
    http_fill_quiet(r, "text/event-stream", ": quiet\n\n");
    char got[4096] = "";
    receive_until(fd, got, sizeof got, ": quiet\n\n"); /* although its owner has said nothing */
    assert_true(http_quiet_end(r));
    http_stream_begin(r, 500, "text/plain"); /* too late, and no harm */
    assert_int_equal(http_stream_write(r, "data: x\n\n", 9), ST_OK);
    http_stream_end(r);
    receive_until(fd, got, sizeof got, "data: x\n\n");
    assert_non_null(strcasestr(got, "HTTP/1.1 200"));
    assert_non_null(strcasestr(got, "Content-Type: text/event-stream\r\n"));
    assert_null(strcasestr(got, "text/plain"));
    close(fd);
    /* Whose owner replies in time, or wants no more of it, is left alone. */
    atomic_store(&held, NULL);
    fd = dial(s);
    say(fd, GET("/hold"));
    r = wait_for_held();
    assert_false(http_quiet_end(r));
    http_reply(r, 200, "text/plain", "done", 4);
    assert_string_equal(listen_to(fd).body, "done");
    close(fd);
    http_close(s);
}

/* What is kept by nobody is cut: the server does not wait for it. */
static void closing_cuts_what_is_left(void **state) {
    (void)state;
    struct http_config cfg = config();
    struct http_server *s = serve(&cfg);
    int idle = dial(s), half = dial(s);
    say(half, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf");
    still_serves(s);
    http_close(s);
    assert_true(is_closed(idle) && is_closed(half));
    close(idle);
    close(half);
}

/* In a process of its own, since no limit can be raised again. */
static bool says_that_files_lack(void) {
    struct http_config cfg = config();
    struct http_server *s;
    struct err err = {.text = ""};
    int status, next = dup(0);
    close(next);
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {.rlim_cur = (rlim_t)next, .rlim_max = (rlim_t)next};
        bool told = setrlimit(RLIMIT_NOFILE, &none) == 0 &&
                    http_open(&s, &cfg, &err) == ST_IO &&
                    strstr(err.text, strerror(EMFILE)) != NULL;
        if (!told)
            fprintf(stderr, "%s\n", err.text);
        _exit(!told);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void what_cannot_be_served_says_why(void **state) {
    (void)state;
    struct http_server *s = NULL, *first;
    struct err err;
    struct http_config cfg = config();
    first = serve(&cfg);
    cfg.port = http_port(first);
    assert_int_equal(http_open(&s, &cfg, &err), ST_IO);
    assert_non_null(strstr(err.text, "port"));
    http_close(first);
    cfg = config();
    cfg.tls_cert_path = "/dev/null";
    assert_int_equal(http_open(&s, &cfg, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "key"));
    cfg.tls_key_path = "/does/not/exist";
    assert_int_equal(http_open(&s, &cfg, &err), ST_NOT_FOUND);
    assert_non_null(strstr(err.text, "/does/not/exist"));
    cfg.tls_key_path = "/dev/null";
    assert_int_equal(http_open(&s, &cfg, &err), ST_IO);
    assert_non_null(strstr(err.text, "PEM"));
    cfg = config();
    cfg.host = "no.such.host.invalid";
    assert_int_not_equal(http_open(&s, &cfg, &err), ST_OK);
    assert_null(s);
    assert_true(says_that_files_lack());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_serves_many_requests),
        cmocka_unit_test(too_large_a_body_is_told),
        cmocka_unit_test(large_bodies_share_room),
        cmocka_unit_test(an_unknown_transfer_coding_is_refused),
        cmocka_unit_test(headers_are_bounded),
        cmocka_unit_test(nonsense_is_no_request),
        cmocka_unit_test(faults_are_told_by_the_handler),
        cmocka_unit_test(bodies_in_disguise_are_refused),
        cmocka_unit_test(slow_senders_are_cut_off),
        cmocka_unit_test(who_trickles_is_cut_off),
        cmocka_unit_test(slow_readers_hold_nothing),
        cmocka_unit_test(large_pieces_are_no_slowness),
        cmocka_unit_test(who_hangs_up_is_noticed),
        cmocka_unit_test(who_closes_half_gets_all),
        cmocka_unit_test(who_closes_half_and_then_all_is_noticed),
        cmocka_unit_test(silent_ones_keep_nobody_out),
        cmocka_unit_test(heads_come_in_time),
        cmocka_unit_test(more_connections_than_allowed_wait_outside),
        cmocka_unit_test(connections_are_more_than_files_at_first),
        cmocka_unit_test(one_address_does_not_get_everything),
        cmocka_unit_test(long_requests_hold_up_no_others),
        cmocka_unit_test(who_leaves_before_its_turn_is_forgotten),
        cmocka_unit_test(the_end_waits_for_their_turn),
        cmocka_unit_test(keys_let_in),
        cmocka_unit_test(bodies_without_a_key_are_not_kept),
        cmocka_unit_test(pages_of_other_origins_come_in_if_asked_for),
        cmocka_unit_test(pages_of_this_machine_may_read_answers),
        cmocka_unit_test(the_end_waits_for_what_runs),
        cmocka_unit_test(the_end_does_not_wait_for_half_requests),
        cmocka_unit_test(what_is_quiet_for_long_is_filled),
        cmocka_unit_test(closing_cuts_what_is_left),
        cmocka_unit_test(what_cannot_be_served_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
