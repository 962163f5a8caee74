/* The head and the framing of a body, without sockets. What is right and wrong is from RFC 9110
 * and 9112; each case is read once with a guard page behind its last byte. */
#include "base/mem.h"
#include "base/util.h"
#include "net/http_body.h"
#include "net/http_head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* A copy that ends where nothing may be read. */
struct guarded {
    char *pages, *bytes;
    size_t size;
};

static struct guarded guard(const char *text, size_t len) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = round_up(len + 1, page) + page;
    char *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + size - page, page, PROT_NONE), 0);
    char *bytes = pages + size - page - len;
    memcpy(bytes, text, len);
    return (struct guarded){pages, bytes, size};
}

static int status_of(const char *text, size_t len) {
    struct guarded g = guard(text, len);
    struct http_head h;
    struct http_body b;
    struct http_fault fault = http_head_parse(&h, g.bytes, len);
    if (fault.status == 0)
        fault = http_body_begin(&b, &h);
    assert_int_equal(fault.status != 0, fault.sentence != NULL);
    assert_non_null(h.method);
    assert_non_null(h.path);
    http_head_deinit(&h);
    munmap(g.pages, g.size);
    return fault.status;
}

/* ---- heads ------------------------------------------------------------------------------- */

static void heads_are_right_or_wrong(void **state) {
    (void)state;
#define H "Host: x\r\n"
#define END "\r\n"
    static const struct {
        const char *head;
        int status;
    } cases[] = {
        {"GET / HTTP/1.1\r\n" H END, 0},
        {"GET / HTTP/1.0\r\n" END, 0},
        {"GET / HTTP/1.2\r\n" H END, 0},
        {"GET / HTTP/1.1\n"
         "Host: x\n\n",
         0},
        {"M-SEARCH * HTTP/1.1\r\n" H END, 0},
        {"GET / HTTP/1.1\r\n" H "X:\r\nY: \t \r\n" END, 0},
        /* the request line */
        {"GET /\r\n" H END, 400},
        {"GET\r\n" H END, 400},
        {"GET  / HTTP/1.1\r\n" H END, 400},
        {"GET / HTTP/1.1 \r\n" H END, 400},
        {"GET / x HTTP/1.1\r\n" H END, 400},
        {" GET / HTTP/1.1\r\n" H END, 400},
        {"G(T / HTTP/1.1\r\n" H END, 400},
        {"GET / http/1.1\r\n" H END, 400},
        {"GET / HTTP/1.10\r\n" H END, 400},
        {"GET / HTTP/2.0\r\n" H END, 505},
        {"GET / HTTP/0.9\r\n" H END, 505},
        {"GET /\x01 HTTP/1.1\r\n" H END, 400},
        {"GET /%00 HTTP/1.1\r\n" H END, 400},
        {"GET /?a=%00 HTTP/1.1\r\n" H END, 400},
        {"\x16\x03\x01\x02\r\n\r\n", 400},
        /* the fields */
        {"GET / HTTP/1.1\r\n" H "no colon\r\n" END, 400},
        {"GET / HTTP/1.1\r\n" H "X : y\r\n" END, 400},
        {"GET / HTTP/1.1\r\n" H ": y\r\n" END, 400},
        {"GET / HTTP/1.1\r\n" H "X: a\r\n b\r\n" END, 400}, /* a folded line */
        {"GET / HTTP/1.1\r\n" H "X: a\rb\r\n" END, 400},
        {"GET / HTTP/1.1\r\n" H "X: a\x7f\r\n" END, 400},
        {"GET / HTTP/1.1\r\n" END, 400},
        {"GET / HTTP/1.1\r\n" H H END, 400},
        {"GET / HTTP/1.0\r\n" H H END, 400},
        /* a body */
        {"POST / HTTP/1.1\r\n" H "Content-Length: 0\r\n" END, 0},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 18446744073709551615\r\n" END, 0},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 18446744073709551616\r\n" END, 413},
        {"POST / HTTP/1.1\r\n" H "Content-Length: -1\r\n" END, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: +1\r\n" END, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1x\r\n" END, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length:\r\n" END, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1, 1\r\n" END, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 1\r\n" END, 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n" END,
         400},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: CHUNKED\r\n" END, 0},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n" END, 501},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n" END, 501},
        {"POST / HTTP/1.1\r\n" H "Content-Encoding: gzip\r\n" END, 415},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t n = strlen(cases[i].head);
        if (status_of(cases[i].head, n) != cases[i].status)
            fail_msg("%s: %d, not %d", cases[i].head, status_of(cases[i].head, n),
                     cases[i].status);
        for (size_t k = 0; k < n; k++) /* cut anywhere */
            (void)status_of(cases[i].head, k);
    }
    assert_int_equal(status_of("GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", 35), 400);
}

static void what_a_head_says(void **state) {
    (void)state;
    static const char text[] = "POST http://h:1/a%20b/%zz?x=1+2&y&z=%41%3d&&x=3 HTTP/1.1\r\n"
                               "HOST:  h \r\nx-api-key: \tkey \r\nConnection: te , Close\r\n"
                               "X: first\r\nx: second\r\n\r\n";
    struct http_head h;
    assert_int_equal(http_head_parse(&h, text, sizeof text - 1).status, 0);
    assert_string_equal(h.method, "POST");
    assert_string_equal(h.path, "/a b/%zz");
    assert_false(h.is_1_0);
    assert_int_equal(h.n_args, 4);
    static const char *const args[][2] = {{"x", "1 2"}, {"y", ""}, {"z", "A="}, {"x", "3"}};
    for (size_t i = 0; i < h.n_args; i++) {
        assert_string_equal(h.args[i].name, args[i][0]);
        assert_string_equal(h.args[i].value, args[i][1]);
    }
    assert_string_equal(http_head_field(&h, "Host"), "h");
    assert_string_equal(http_head_field(&h, "X-API-Key"), "key");
    assert_string_equal(http_head_field(&h, "X"), "first");
    assert_null(http_head_field(&h, "X-API"));
    assert_int_equal(http_head_count(&h, "X"), 2);
    assert_true(http_head_lists(&h, "connection", "close"));
    assert_true(http_head_lists(&h, "connection", "TE"));
    assert_false(http_head_lists(&h, "connection", "clos"));
    http_head_deinit(&h);
    static const char *const targets[][2] = {{"http://h", "/"},
                                             {"http://h?a=/b", "/"},
                                             {"HTTPS://h/x?y", "/x"},
                                             {"*", "*"},
                                             {"//h/x", "//h/x"}};
    for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
        char line[128];
        int n = snprintf(line, sizeof line, "GET %s HTTP/1.0\r\n\r\n", targets[i][0]);
        assert_int_equal(http_head_parse(&h, line, (size_t)n).status, 0);
        assert_string_equal(h.path, targets[i][1]);
        http_head_deinit(&h);
    }
}

/* So that an error can be said in the dialect of the path. */
static void the_path_of_a_bad_head_is_known(void **state) {
    (void)state;
    static const char *const heads[] = {
        "POST /v1/messages HTTP/7.0\r\n\r\n", "POST /v1/messages HTTP/1.1\r\nbad\r\n\r\n",
        "POST /v1/messages\r\n\r\n", "POST /v1/messages?xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"};
    struct http_head h;
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        assert_int_not_equal(http_head_parse(&h, heads[i], strlen(heads[i])).status, 0);
        assert_string_equal(h.path, "/v1/messages");
        http_head_deinit(&h);
    }
}

static void the_end_of_a_head_is_found_wherever_it_is_cut(void **state) {
    (void)state;
    static const char *const heads[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\nbody\r\n\r\n",
                                        "GET / HTTP/1.1\nHost: x\n\nbody",
                                        "GET / HTTP/1.1\nHost: x\n\r\nbody"};
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        size_t len = strlen(heads[i]);
        size_t want = (size_t)(strstr(heads[i], "body") - heads[i]);
        for (size_t cut = 0; cut <= len; cut++) {
            size_t seen = 0, n = http_head_end(heads[i], cut, &seen);
            assert_int_equal(n, cut >= want ? want : 0);
            if (n == 0)
                assert_int_equal(http_head_end(heads[i], len, &seen), want);
        }
        size_t seen = 0, n = 0; /* byte by byte */
        for (size_t k = 0; k <= len && n == 0; k++)
            n = http_head_end(heads[i], k, &seen);
        assert_int_equal(n, want);
    }
}

static void heads_have_limits(void **state) {
    (void)state;
    static char text[HTTP_HEAD_MAX + 2];
    memset(text, 'x', sizeof text);
    assert_int_equal(http_head_limits(text, HTTP_LINE_MAX).status, 0);
    assert_int_equal(http_head_limits(text, HTTP_LINE_MAX + 1).status, 414);
    text[HTTP_LINE_MAX - 1] = '\n';
    assert_int_equal(http_head_limits(text, HTTP_HEAD_MAX).status, 0);
    assert_int_equal(http_head_limits(text, HTTP_HEAD_MAX + 1).status, 431);
    for (int more = 0; more < 2; more++) { /* with Host 100, and one too many */
        size_t n = (size_t)sprintf(text, "GET / HTTP/1.1\r\nHost: x\r\n");
        for (int i = 1; i < HTTP_FIELDS_MAX + more; i++)
            n += (size_t)sprintf(text + n, "X: %d\r\n", i);
        n += (size_t)sprintf(text + n, "\r\n");
        assert_int_equal(status_of(text, n), more ? 431 : 0);
        n = (size_t)sprintf(text, "GET /?");
        for (int i = 0; i < HTTP_ARGS_MAX + more; i++)
            n += (size_t)sprintf(text + n, "&a=%d", i);
        n += (size_t)sprintf(text + n, " HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_int_equal(status_of(text, n), more ? 414 : 0);
    }
}

/* ---- bodies ------------------------------------------------------------------------------ */

/* Reads a body in pieces of so many bytes. Returns the fault's status; -1: it is not over. */
static int read_body(const char *framing, const char *bytes, size_t piece, char *out,
                     size_t *rest) {
    char head[256];
    struct http_head h;
    struct http_body b;
    struct http_fault fault;
    const char *data, *at = bytes, *end = bytes + strlen(bytes);
    int n = snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", framing);
    size_t len = 0;
    assert_int_equal(http_head_parse(&h, head, (size_t)n).status, 0);
    fault = http_body_begin(&b, &h);
    assert_int_equal(fault.status, 0);
    while (at < end && b.at != BODY_OVER && fault.status == 0) {
        const char *stop = at + MIN(piece, (size_t)(end - at));
        for (size_t k; (k = http_body_next(&b, &at, stop, &data, &fault)) > 0; len += k)
            memcpy(out + len, data, k);
    }
    out[len] = '\0';
    *rest = (size_t)(end - at);
    http_head_deinit(&h);
    return fault.status != 0 ? fault.status : b.at == BODY_OVER ? 0 : -1;
}

static void bodies_end_where_they_say(void **state) {
    (void)state;
    static const char chunked[] = "Transfer-Encoding: chunked";
    static const struct {
        const char *framing, *bytes;
        int status;
        const char *body;
        size_t rest;
    } cases[] = {
        {"Content-Length: 5", "helloGET", 0, "hello", 3},
        {"Content-Length: 5", "hell", -1, "hell", 0},
        {chunked, "5\r\nhello\r\n0\r\n\r\nGET", 0, "hello", 3},
        {chunked, "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", 0, "hello", 0},
        {chunked, "5\nhello\n0\n\n", 0, "hello", 0},
        {chunked, "00a;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\nMore: y\r\n\r\n!", 0,
         "0123456789", 1},
        {chunked, "A \r\n0123456789\r\n0\r\n\r\n", 0, "0123456789", 0},
        {chunked, "5\r\nhello\r\n0\r\n", -1, "hello", 0},
        {chunked, "5\r\nhelloX", 400, "hello", 0},
        {chunked, "5\r\nhello\rX", 400, "hello", 0},
        {chunked, "\r\n", 400, "", 1},
        {chunked, "xyz\r\n", 400, "", 4},
        {chunked, "-1\r\n", 400, "", 3},
        {chunked, "5x\r\n", 400, "", 2},
        {chunked, "ffffffffffffffff\r\n", 413, "", 2},
        {chunked, "FFFFFFFFFFFFFFF\r\nx", -1, "x", 0},
    };
    char body[256];
    size_t rest;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t piece = 1; piece <= strlen(cases[i].bytes); piece++) {
            int status = read_body(cases[i].framing, cases[i].bytes, piece, body, &rest);
            if (status != cases[i].status || strcmp(body, cases[i].body) != 0)
                fail_msg("%s in pieces of %zu: %d, %s", cases[i].bytes, piece, status, body);
            if (status == 0)
                assert_int_equal(rest, cases[i].rest);
        }
    static char endless[20000] = "5;";
    memset(endless + 2, 'x', sizeof endless - 3);
    assert_int_equal(read_body(chunked, endless, 100, body, &rest), 400);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_right_or_wrong),
        cmocka_unit_test(what_a_head_says),
        cmocka_unit_test(the_path_of_a_bad_head_is_known),
        cmocka_unit_test(the_end_of_a_head_is_found_wherever_it_is_cut),
        cmocka_unit_test(heads_have_limits),
        cmocka_unit_test(bodies_end_where_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
