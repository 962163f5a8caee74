/* A port whose model is asleep: what is answered there, what wakes it, and for how long it is to
 * stay.
 * labels: waits */
#include "base/buf.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/client.h"
#include "gateway/gateway.h"
#include "net/http.h"
#include "net/net.h"

#include <curl/curl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define LIMIT_NS 60000000000ull
#define SLEPT 1795000000 /* 2026-11-18T11:06:40Z */

/* ---- a server that says its path --------------------------------------------------------- */

static atomic_int n_questions, n_props; /* the latter is asked last */

static void serve(void *user, struct http_request *r) {
    static const char models[] = "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"n\":7}]}",
                      running[] = "{\"models\":[{\"name\":\"m\",\"expires_at\":\"9999\"}]}",
                      answer[] = "{\"answer\":1}";
    const char *text = str_eq(http_path(r), "/v1/models") ? models
                       : str_eq(http_path(r), "/api/ps")  ? running
                                                          : answer;
    (void)user;
    n_questions += str_eq(http_path(r), "/api/generate");
    n_props += str_eq(http_path(r), "/props");
    http_reply(r, 200, "application/json", text, strlen(text));
}

static struct http_server *server_begin(char address[NET_TEXT_BYTES]) {
    struct http_config cfg;
    struct http_server *s;
    struct err err;
    http_config_init(&cfg);
    cfg.host = "127.0.0.1";
    cfg.handle = serve;
    assert_int_equal(http_open(&s, &cfg, &err), ST_OK);
    net_join(address, NET_TEXT_BYTES, "127.0.0.1", http_port(s));
    n_questions = n_props = 0;
    return s;
}

/* ---- a port of one or two models, of which m is asleep ------------------------------------- */

struct port {
    struct gateway *f;
    struct gateway_route *m, *other;
    atomic_int n_wakes;
};

static bool may_ask(void *user, const struct http_request *r, const char *deployment) {
    const char *key = http_shown_key(r);
    (void)user, (void)deployment;
    return key != NULL && str_eq(key, "good");
}

static void wake(void *user) {
    atomic_fetch_add(&((struct port *)user)->n_wakes, 1);
}

static void port_begin(struct port *p) {
    struct err err;
    *p = (struct port){.other = NULL};
    const struct gateway_config cfg = {.port = 0, .may_ask = may_ask, .wake = wake, .user = p};
    assert_int_equal(gateway_open(&p->f, &cfg, &err), ST_OK);
    p->m = gateway_add(p->f, "m", "file", 100);
    assert_non_null(p->m);
    gateway_keep(p->m, "good");
    gateway_to(p->m, NULL, NULL);
    gateway_sleep(p->m, SLEPT);
}

static void port_end(struct port *p) {
    gateway_remove(p->m);
    gateway_remove(p->other);
    gateway_close(p->f);
}

/* ---- a client ---------------------------------------------------------------------------- */

struct call {
    char url[128];
    const char *body, *key, *method, *header;
    long status;
    struct buf text, headers;
    pthread_t thread;
};

static size_t take(char *bytes, size_t size, size_t n, void *user) {
    return buf_add(user, bytes, size * n) ? n : 0;
}

static void *call_main(void *user) {
    struct call *c = user;
    char line[64];
    CURL *h = client_curl();
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    snprintf(line, sizeof line, "Authorization: Bearer %s", c->key);
    headers = curl_slist_append(headers, line);
    if (c->header != NULL)
        headers = curl_slist_append(headers, c->header);
    curl_easy_setopt(h, CURLOPT_URL, c->url);
    curl_easy_setopt(h, CURLOPT_TIMEOUT, 60L);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, &c->text);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, take);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, &c->headers);
    if (c->body != NULL)
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, c->body);
    if (c->method != NULL)
        curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, c->method);
    assert_int_equal(curl_easy_perform(h), CURLE_OK);
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &c->status);
    curl_easy_cleanup(h);
    curl_slist_free_all(headers);
    return NULL;
}

static void call_begin(struct call *c, const struct port *p, const char *path,
                       const char *body) {
    *c = (struct call){.body = body, .key = "good"};
    snprintf(c->url, sizeof c->url, "http://127.0.0.1:%d%s", gateway_port(p->f), path);
}

static void call_free(struct call *c) {
    buf_free(&c->text);
    buf_free(&c->headers);
}

/* Without one that waits. part: of the answer; NULL: whatever it is. */
static void expect_of(struct call *c, long status, const char *part) {
    call_main(c);
    if (c->status != status || (part != NULL && strstr(buf_cstr(&c->text), part) == NULL))
        print_message("%s: %ld %s\n", c->url, c->status, buf_cstr(&c->text));
    assert_int_equal(c->status, status);
    assert_true(part == NULL || strstr(buf_cstr(&c->text), part) != NULL);
    call_free(c);
}

static void expect(const struct port *p, const char *path, const char *body, long status,
                   const char *part) {
    struct call c;
    call_begin(&c, p, path, body);
    expect_of(&c, status, part);
}

static void expect_key(const struct port *p, const char *path, const char *body,
                       const char *key, long status) {
    struct call c;
    call_begin(&c, p, path, body);
    c.key = key;
    expect_of(&c, status, NULL);
}

/* ---- tests ------------------------------------------------------------------------------- */

/* Nothing was kept: its name, at least. */
static void lists_name_what_sleeps(void **state) {
    (void)state;
    struct port p;
    struct call c;
    port_begin(&p);
    expect(&p, "/v1/models", NULL, 200, "{\"object\":\"list\",\"data\":[{\"id\":\"m\"");
    expect(&p, "/models/", NULL, 200, "\"id\":\"m\"");
    expect(&p, "/v1/models/m", NULL, 200, "{\"id\":\"m\"");
    expect(&p, "/v1/models/n", NULL, 404, NULL);
    expect(&p, "/api/v0/models", NULL, 200, "\"state\":\"not-loaded\"");
    expect(&p, "/api/tags", NULL, 200, "\"name\":\"m:latest\"");
    expect(&p, "/api/ps", NULL, 200, "{\"models\":[]}");
    expect(&p, "/health", NULL, 200, "m is asleep since 2026-11-18T11:06:40Z");
    expect(&p, "/metrics", NULL, 200, "\nlockstep_asleep 1\n");
    expect(&p, "/", NULL, 200, "the next question loads it");
    expect(&p, "/slots", NULL, 503, NULL);
    expect(&p, "/v1/responses/resp_1", NULL, 404, "asleep");
    call_begin(&c, &p, "/v1/models", NULL);
    c.header = "anthropic-version: 2023-06-01";
    expect_of(&c, 200, "\"first_id\":\"m\"");
    assert_int_equal(p.n_wakes, 0);
    port_end(&p);
}

/* A request may be gone as soon as its answer is: many, since only some are gone in time. */
static void browsers_get_the_page(void **state) {
    (void)state;
    struct port p;
    struct call c;
    port_begin(&p);
    for (int i = 0; i < 200; i++) {
        call_begin(&c, &p, "/", NULL);
        c.header = "Accept: text/html";
        expect_of(&c, 200, "<!doctype html");
    }
    assert_int_equal(p.n_wakes, 0);
    port_end(&p);
}

static void what_is_no_question_does_not_wake(void **state) {
    (void)state;
    struct port p;
    struct call c;
    struct gateway_use use;
    port_begin(&p);
    expect_key(&p, "/api/chat", "{\"model\": \"m\"}", "bad", 401);
    expect_key(&p, "/v1/models", NULL, "bad", 401);
    expect_key(&p, "/health", NULL, "bad", 200);
    expect(&p, "/api/chat", "{\"model\": \"other\"}", 404, "does not exist");
    expect(&p, "/api/show", "{\"model\": \"m\"}", 404, NULL); /* of which nothing was kept */
    expect(&p, "/x", "{}", 404, "nothing at this path");
    call_begin(&c, &p, "/v1/chat/completions", NULL);
    c.method = "OPTIONS";
    c.header = "Origin: http://localhost:3000";
    call_main(&c);
    assert_int_equal(c.status, 204);
    assert_non_null(
        strstr(c.headers.bytes, "Access-Control-Allow-Origin: http://localhost:3000"));
    call_free(&c);
    call_begin(&c, &p, "/v1/chat/completions", NULL);
    c.method = "OPTIONS";
    c.header = "Origin: http://elsewhere.example";
    call_main(&c);
    assert_null(strstr(c.headers.bytes, "Allow-Origin"));
    call_free(&c);
    gateway_look_at_use(p.m, &use);
    assert_int_equal(p.n_wakes, 0);
    assert_int_equal(use.n_now, 0);
    assert_int_equal(use.n_asked, 0);
    port_end(&p);
}

static void wait_until(const struct port *p, int n_wakes) {
    for (uint64_t end = clock_ns() + LIMIT_NS; p->n_wakes < n_wakes; poll(NULL, 0, 5))
        assert_true(clock_ns() < end);
}

/* It waits until somebody serves, and its use is seen all the time. */
static void a_question_wakes(void **state) {
    (void)state;
    struct port p;
    struct call c;
    struct gateway_use use;
    char address[NET_TEXT_BYTES];
    struct http_server *s = server_begin(address);
    port_begin(&p);
    call_begin(&c, &p, "/api/generate",
               "{\"model\": \"m\", \"prompt\": \"A\", \"keep_alive\": \"5m\"}");
    assert_int_equal(thread_start(&c.thread, call_main, &c), 0);
    wait_until(&p, 1);
    gateway_look_at_use(p.m, &use);
    assert_int_equal(use.n_now, 1);
    assert_int_equal(use.n_keeps, 0); /* no server has it yet */
    gateway_sleep(p.m, 0);
    gateway_name(p.m, "", "ann");
    poll(NULL, 0, 400);
    assert_int_equal(n_questions, 0);
    gateway_to(p.m, address, "ann 1");
    pthread_join(c.thread, NULL);
    assert_int_equal(c.status, 200);
    assert_string_equal(c.text.bytes, "{\"answer\":1}");
    call_free(&c);
    gateway_look_at_use(p.m, &use);
    for (uint64_t end = clock_ns() + LIMIT_NS; use.n_now > 0 && clock_ns() < end;
         poll(NULL, 0, 5))
        gateway_look_at_use(p.m, &use);
    assert_int_equal(use.n_now, 0);
    assert_int_equal(use.n_asked, 1);
    assert_int_equal(use.n_keeps, 1);
    assert_int_equal(use.keep_ms, 300000);
    port_end(&p);
    http_close(s);
}

static void what_a_server_said_is_kept(void **state) {
    (void)state;
    struct port p;
    char address[NET_TEXT_BYTES];
    struct http_server *s = server_begin(address);
    static const char said[] = "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"n\":7}]}";
    port_begin(&p);
    gateway_sleep(p.m, 0);
    gateway_to(p.m, address, "ann 1");
    gateway_expire(p.m, SLEPT);
    expect(&p, "/api/ps", NULL, 200, "\"expires_at\":\"2026-11-18T11:06:40Z\"");
    gateway_expire(p.m, 0);
    expect(&p, "/api/ps", NULL, 200, "\"expires_at\":\"9999\"");
    for (uint64_t end = clock_ns() + LIMIT_NS; n_props == 0;
         poll(NULL, 0, 5)) /* a thread asks */
        assert_true(clock_ns() < end);
    gateway_to(p.m, NULL, NULL);
    gateway_sleep(p.m, SLEPT);
    expect(&p, "/v1/models", NULL, 200, said);
    expect(&p, "/v1/models/m", NULL, 200, "{\"id\":\"m\",\"n\":7}");
    expect(&p, "/api/show", "{\"model\": \"m\"}", 200, "{\"answer\":1}");
    expect(&p, "/api/version", NULL, 200, "{\"answer\":1}");
    /* Beside one that is there. */
    p.other = gateway_add(p.f, "other", "other.gguf", 200);
    gateway_to(p.other, address, "bob 1");
    expect(&p, "/v1/models", NULL, 200,
           "\"data\":[{\"id\":\"m\",\"n\":7},{\"id\":\"m\",\"n\":7}]");
    expect(&p, "/health", NULL, 200,
           "{\"status\":\"ok\",\"models\":{\"m\":{\"status\":\"ok\",\"asleep\":true");
    assert_int_equal(p.n_wakes, 0);
    port_end(&p);
    http_close(s);
}

/* Ollama's clients end a model so, and no server is asked. */
static void a_question_without_words_unloads(void **state) {
    (void)state;
    struct port p;
    struct gateway_use use;
    char address[NET_TEXT_BYTES];
    struct http_server *s = server_begin(address);
    port_begin(&p);
    expect(&p, "/api/generate", "{\"model\": \"m\", \"keep_alive\": 0}", 200,
           "\"done\":true,\"done_reason\":\"unload\",\"response\":\"\"");
    gateway_sleep(p.m, 0);
    gateway_to(p.m, address, "ann 1");
    expect(&p, "/api/chat",
           "{\"model\": \"m:latest\", \"messages\": [ ], \"keep_alive\": \"0s\"}", 200,
           "\"done_reason\":\"unload\",\"message\":{\"role\":\"assistant\"");
    gateway_look_at_use(p.m, &use);
    assert_int_equal(use.n_keeps, 2);
    assert_int_equal(use.keep_ms, 0);
    assert_int_equal(n_questions, 0);
    /* With words, or a time, it is a question. */
    expect(&p, "/api/generate", "{\"keep_alive\": 0, \"prompt\": \"A\"}", 200,
           "{\"answer\":1}");
    expect(&p, "/api/generate", "{\"keep_alive\": -1}", 200, "{\"answer\":1}");
    gateway_look_at_use(p.m, &use);
    assert_int_equal(use.n_keeps, 4);
    assert_int_equal(use.keep_ms, DURATION_NEVER);
    /* The server says what is wrong with others. */
    expect(&p, "/api/generate", "{\"keep_alive\": [0]}", 200, "{\"answer\":1}");
    expect(&p, "/api/generate", "{\"keep_alive\": \"soon\"}", 200, "{\"answer\":1}");
    expect(&p, "/v1/completions", "{\"keep_alive\": 0}", 200, "{\"answer\":1}");
    gateway_look_at_use(p.m, &use);
    assert_int_equal(use.n_keeps, 4);
    assert_int_equal(n_questions, 4);
    port_end(&p);
    http_close(s);
}

/* One that waits is told at once when the port closes. */
static void it_closes_amid_one_that_waits(void **state) {
    (void)state;
    struct port p;
    struct call c;
    port_begin(&p);
    call_begin(&c, &p, "/v1/completions", "{\"prompt\": \"A\"}");
    assert_int_equal(thread_start(&c.thread, call_main, &c), 0);
    wait_until(&p, 1);
    uint64_t begun = clock_ns();
    gateway_remove(p.m);
    p.m = NULL;
    pthread_join(c.thread, NULL);
    assert_int_equal(c.status, 503);
    assert_true(clock_ns() - begun < LIMIT_NS / 2);
    call_free(&c);
    port_end(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists_name_what_sleeps),
                                       cmocka_unit_test(browsers_get_the_page),
                                       cmocka_unit_test(what_is_no_question_does_not_wake),
                                       cmocka_unit_test(a_question_wakes),
                                       cmocka_unit_test(what_a_server_said_is_kept),
                                       cmocka_unit_test(a_question_without_words_unloads),
                                       cmocka_unit_test(it_closes_amid_one_that_waits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
