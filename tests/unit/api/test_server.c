/* A server with a model, in this process: requests of all dialects at once, which handlers read on
 * several threads (for TSan), large ones beside them, and the memory that is left afterwards.
 * labels: waits */
#include "api/server.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"

#include "dial.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct server *server;

static int open_server(void **state) {
    struct server_config cfg;
    struct err err = {.text = ""};
    (void)state;
    server_config_init(&cfg);
    cfg.service.engine.model.model_path = SOURCE_DIR "/models/jargon-3m-f16.gguf";
    cfg.service.engine.model.n_threads = 1;
    cfg.service.engine.model.n_ctx = 256;
    enum status st = server_open(&server, &cfg, &err);
    if (st != ST_OK)
        print_message("%s\n", err.text);
    return st != ST_OK;
}

static int close_server(void **state) {
    (void)state;
    server_close(server, 60000);
    return 0;
}

/* ---- a client ---------------------------------------------------------------------------- */

static int dial(void) {
    return dial_port(server_port(server), 120);
}

static void put(int fd, const char *data, size_t len) {
    for (ssize_t n; len > 0; data += n, len -= (size_t)n)
        if ((n = send(fd, data, len, MSG_NOSIGNAL)) <= 0)
            return;
}

/* The status of the answer, all of which is read; 0: none came. got: its beginning. */
static int ask(const char *method, const char *path, const char *body, size_t len, char *got,
               size_t size) {
    char head[256], rest[4096];
    int fd = dial(), status = 0;
    ssize_t n;
    size_t have = 0;
    if (fd < 0)
        return 0;
    int k = snprintf(head, sizeof head,
                     "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     method, path, len);
    put(fd, head, (size_t)k);
    put(fd, body, len);
    while (have + 1 < size && (n = recv(fd, got + have, size - 1 - have, 0)) > 0)
        have += (size_t)n;
    got[have] = '\0';
    while (recv(fd, rest, sizeof rest, 0) > 0)
        continue;
    close(fd);
    sscanf(got, "HTTP/1.1 %d", &status);
    return status;
}

/* ---- all at once ------------------------------------------------------------------------- */

static const struct {
    const char *method, *path, *body;
    int status;
} requests[] = {
    {"POST", "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"What is a bit bucket?\"}],"
     "\"max_tokens\":3}",
     200},
    {"POST", "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":3,\"stream\":true,"
     "\"response_format\":{\"type\":\"json_object\"}}",
     200},
    {"POST", "/v1/completions", "{\"prompt\":[\"one\",\"two\"],\"max_tokens\":2}", 200},
    {"POST", "/v1/responses", "{\"input\":\"hi\",\"max_output_tokens\":2}", 200},
    {"POST", "/v1/messages",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":2}", 200},
    {"POST", "/v1/messages/count_tokens",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 200},
    {"POST", "/api/generate", "{\"prompt\":\"hi\",\"options\":{\"num_predict\":2}}", 200},
    {"POST", "/tokenize", "{\"content\":\"hello world\"}", 200},
    {"POST", "/v1/completions", "{\"prompt\":", 400},
    {"GET", "/health", "", 200},
    {"GET", "/metrics", "", 200},
    {"GET", "/v1/models", "", 200},
    {"GET", "/v1/responses/resp_none", "", 404},
    {"GET", "/nothing", "", 404},
};
static atomic_int n_wrong;

static void *ask_all(void *user) {
    size_t from = (size_t)(uintptr_t)user;
    char got[4096];
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        size_t k = (from + i) % ARRAY_LEN(requests);
        int status = ask(requests[k].method, requests[k].path, requests[k].body,
                         strlen(requests[k].body), got, sizeof got);
        if (status != requests[k].status) {
            print_message("%s: %d: %.300s\n", requests[k].path, status, got);
            atomic_fetch_add(&n_wrong, 1);
        }
    }
    return NULL;
}

static void requests_of_all_kinds_at_once(void **state) {
    (void)state;
    enum { N = 8 };
    pthread_t threads[N];
    for (size_t i = 0; i < N; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_all, (void *)(uintptr_t)(2 * i)),
                         0);
    for (size_t i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&n_wrong), 0);
}

/* ---- large ones -------------------------------------------------------------------------- */

/* {"prompt": [...]} of n bytes of such elements. */
static char *large_body(const char *element, size_t n_bytes, size_t *len) {
    size_t n = strlen(element);
    char *body = mem_alloc(n_bytes + 64), *at = body;
    assert_non_null(body);
    at += sprintf(at, "{\"prompt\":[");
    for (size_t i = 0; i < n_bytes / n; i++, at += n)
        memcpy(at, element, n);
    at[-1] = ']';
    *at++ = '}';
    *len = (size_t)(at - body);
    return body;
}

struct memory {
    size_t before, peak;
    atomic_bool stop;
};

static void *watch_memory(void *user) {
    struct memory *m = user;
    while (!atomic_load(&m->stop)) {
        m->peak = MAX(m->peak, mem_resident().anon_bytes);
        usleep(2000);
    }
    return NULL;
}

/* What takes 80 times its size as a tree is refused before it is one; what is allowed takes some
 * memory, and gives it back. */
static void memory_is_bounded_and_given_back(void **state) {
    (void)state;
    static const struct {
        const char *element;
        size_t n_bytes;
        const char *says;
    } cases[] = {
        {"{},", 15000000, "JSON values"},
        {"\"k\",", 30000000, "JSON values"},
        {"{},", 1500000, "prompt"}, /* 500,000: read, and then no prompt */
    };
    char got[4096];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t len;
        char *body = large_body(cases[i].element, cases[i].n_bytes, &len);
        struct memory m = {.before = mem_resident().anon_bytes};
        pthread_t watcher;
        assert_int_equal(pthread_create(&watcher, NULL, watch_memory, &m), 0);
        int status = ask("POST", "/v1/completions", body, len, got, sizeof got);
        atomic_store(&m.stop, true);
        pthread_join(watcher, NULL);
        mem_free(body);
        assert_int_equal(status, 400);
        assert_non_null(strstr(got, cases[i].says));
        size_t after = mem_resident().anon_bytes;
        for (int k = 0; k < 500 && after > m.before + (16u << 20); k++) {
            usleep(10000); /* until it is given back, after the answer */
            after = mem_resident().anon_bytes;
        }
        print_message("%zu bytes of %s: %.0f MiB more at most, %.0f afterwards\n", len,
                      cases[i].element, ((double)m.peak - (double)m.before) / (1 << 20),
                      ((double)after - (double)m.before) / (1 << 20));
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
        /* The body grows by doubling; a tree takes 240 bytes for each of 2^19 values. */
        if (m.before > 0) {
            assert_true(m.peak < m.before + 3 * len +
                                     (cases[i].n_bytes < 2000000 ? 240u << 19 : 0) +
                                     (16u << 20));
            assert_true(after <= m.before + (16u << 20));
        }
#endif
    }
    assert_int_equal(ask("GET", "/health", "", 0, got, sizeof got), 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_of_all_kinds_at_once),
        cmocka_unit_test(memory_is_bounded_and_given_back),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
