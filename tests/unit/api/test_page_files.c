/* The chat page and its files over HTTP: who gets them, how they are compressed and how long a
 * browser keeps them (RFC 9110: 8.4, 8.8.3, 12.5.3, 13.1.2). */
#include "api/page.h"
#include "base/util.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define HTML "Accept: text/html,*/*;q=0.8\r\n"

static struct http_server *server;
static char got[1 << 20]; /* the last answer */
static const char *body;
static size_t n_body;

static void handle(void *user, struct http_request *r) {
    (void)user;
    if (!page_answer(r))
        http_reply(r, 404, "text/plain", "no page", 7);
}

static int open_server(void **state) {
    struct http_config cfg;
    struct err err = {.text = ""};
    (void)state;
    http_config_init(&cfg);
    cfg.handle = handle;
    return http_open(&server, &cfg, &err) != ST_OK;
}

static int close_server(void **state) {
    (void)state;
    http_close(server);
    return 0;
}

/* The status; the answer is in got, and its body in body. */
static int ask(const char *method, const char *path, const char *headers) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_port(server))};
    const struct timeval patience = {.tv_sec = 60};
    char request[512];
    size_t have = 0;
    int fd = socket(AF_INET, SOCK_STREAM, 0), status = 0;
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    int n = snprintf(request, sizeof request,
                     "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", method,
                     path, headers);
    assert_int_equal(send(fd, request, (size_t)n, MSG_NOSIGNAL), n);
    for (ssize_t k; (k = recv(fd, got + have, sizeof got - 1 - have, 0)) > 0;)
        have += (size_t)k;
    close(fd);
    got[have] = '\0';
    sscanf(got, "HTTP/1.1 %d", &status);
    body = strstr(got, "\r\n\r\n");
    assert_non_null(body);
    body += 4;
    n_body = have - (size_t)(body - got);
    return status;
}

/* In the answer's head. */
static bool says(const char *line) {
    const char *at = strstr(got, line);
    return at != NULL && at < body;
}

static bool is_gzip(void) {
    return n_body > 2 && memcmp(body, "\x1f\x8b", 2) == 0 && says("Content-Encoding: gzip\r\n");
}

static bool is_text(const char *begin) {
    return strncmp(body, begin, strlen(begin)) == 0 && !says("Content-Encoding");
}

static void the_page_is_for_those_who_read_html(void **state) {
    (void)state;
    assert_int_equal(ask("GET", "/", ""), 404);
    assert_int_equal(ask("GET", "/", "Accept: application/json\r\n"), 404);
    assert_int_equal(ask("POST", "/", HTML "Content-Length: 0\r\n"), 404);
    assert_int_equal(ask("GET", "/page", HTML), 404);
    assert_int_equal(ask("GET", "/page/", HTML), 404);
    assert_int_equal(ask("GET", "/page/math.js", HTML), 404);
    assert_int_equal(ask("GET", "/", HTML), 200);
    assert_true(is_text("<!doctype html>"));
    assert_true(says("Content-Type: text/html; charset=utf-8\r\n"));
    assert_true(says("Cache-Control: no-cache\r\n"));
    assert_true(says("Content-Security-Policy: frame-ancestors 'none'\r\n"));
    assert_true(page_has("/") && !page_has("/page/") && !page_has("/v1/models"));
}

static void it_is_compressed_for_those_who_take_that(void **state) {
    static const char *const takes[] = {"gzip, deflate, br, zstd", "br;q=1.0, gzip;q=0.8",
                                        "GZIP", "gzip;q=0.001"};
    static const char *const refuses[] = {
        "", "br", "gzip;q=0", "identity, gzip;q=0.0, br;q=1", "xgzip", "gzipped"};
    char headers[200];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(takes); i++) {
        snprintf(headers, sizeof headers, HTML "Accept-Encoding: %s\r\n", takes[i]);
        assert_int_equal(ask("GET", "/", headers), 200);
        assert_true(is_gzip());
        assert_true(says("Vary: Accept, Accept-Encoding\r\n"));
    }
    for (size_t i = 0; i < ARRAY_LEN(refuses); i++) {
        snprintf(headers, sizeof headers, HTML "Accept-Encoding: %s\r\n", refuses[i]);
        assert_int_equal(ask("GET", "/", headers), 200);
        assert_true(is_text("<!doctype html>"));
    }
}

static void a_file_is_kept_for_good(void **state) {
    (void)state;
    assert_true(n_page_files >= 3);
    for (size_t i = 0; i < n_page_files; i++) {
        const struct page_file *f = &page_files[i];
        if (str_eq(f->path, "/"))
            continue;
        assert_int_equal(ask("GET", f->path, ""), 200);
        assert_true(is_gzip());
        assert_int_equal(n_body, f->n_zipped);
        assert_true(says("Cache-Control: public, max-age=31536000, immutable\r\n"));
        assert_true(says("Content-Type: text/javascript; charset=utf-8\r\n"));
        assert_true(says("X-Content-Type-Options: nosniff\r\n"));
        /* Its name has the beginning of its digest, and so has its tag. */
        char digest[13];
        snprintf(digest, sizeof digest, "%s", f->tag + 1);
        assert_non_null(strstr(f->path, digest));
        assert_int_equal(ask("HEAD", f->path, ""), 200);
        assert_int_equal(n_body, 0);
    }
}

static void what_a_browser_has_is_not_sent_again(void **state) {
    char headers[200];
    (void)state;
    for (size_t i = 0; i < n_page_files; i++) {
        snprintf(headers, sizeof headers, HTML "If-None-Match: \"x\", W/%s\r\n",
                 page_files[i].tag);
        assert_int_equal(ask("GET", page_files[i].path, headers), 304);
        assert_int_equal(n_body, 0);
        assert_true(says("ETag: "));
        assert_int_equal(ask("GET", page_files[i].path, HTML "If-None-Match: \"x\"\r\n"), 200);
        assert_true(n_body > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_is_for_those_who_read_html),
        cmocka_unit_test(it_is_compressed_for_those_who_take_that),
        cmocka_unit_test(a_file_is_kept_for_good),
        cmocka_unit_test(what_a_browser_has_is_not_sent_again),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
