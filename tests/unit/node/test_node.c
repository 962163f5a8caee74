/* A node and those who ask it: what it refuses, what it must not wait for, and what it ends.
 * test_nodes.sh has several machines and real workers. */
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/client.h"
#include "cluster/store.h"
#include "net/http.h"
#include "node/model_share.h"
#include "node/node.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define DEVICE                                                            \
    "{\"name\": \"a card\", \"driver\": \"v1\", \"kind\": \"discrete\", " \
    "\"memory_bytes\": 4096, \"unified\": false, \"crossing_us\": 20.5, \"error\": null}"

static char folder[64], model[128], worker[128], listed[160];
static struct identity id;
static struct model_files files;
static struct node *node;
static char address[64];

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void begin_node(void) {
    struct err err;
    const struct node_config cfg = {
        .id = &id, .host = "127.0.0.1", .name = "ann", .store = folder, .worker_path = worker};
    assert_int_equal(node_open(&node, &cfg, &err), ST_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", node_port(node));
}

/* A worker that says that it is ready, and then waits for its end. */
static int begin(void **state) {
    (void)state;
    static const struct cluster_key key = {{1, 2, 3}};
    struct err err;
    snprintf(folder, sizeof folder, "/tmp/test_node-XXXXXX");
    if (mkdtemp(folder) == NULL || sodium_init() < 0)
        return -1;
    snprintf(model, sizeof model, "%s/m.gguf", folder);
    snprintf(worker, sizeof worker, "%s/worker", folder);
    write_text(model, "a model");
    write_text(
        worker,
        "#!/bin/sh\n[ \"$1\" = devices ] && exec cat \"$0.devices\"\nhead -c 2 <&3 >/dev/null\necho ready >&3\nexec sleep 100 3>&-\n");
    chmod(worker, 0755);
    snprintf(listed, sizeof listed, "%s.devices", worker);
    write_text(listed, "[" DEVICE "]");
    assert_int_equal(identity_make(&id, &key, &err), ST_OK);
    assert_int_equal(model_files_read(&files, model, &err), ST_OK);
    begin_node();
    return 0;
}

static int end(void **state) {
    (void)state;
    char command[96];
    node_close(node);
    model_files_deinit(&files);
    identity_deinit(&id);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* Of a model that is not here, with what else the text says: {"key": value, ...}. */
static json_t *question(const char *more) {
    struct model_files other = {.name = (char *)(uintptr_t) "n.gguf", .n = 1, .bytes = 5};
    struct model_file file = {.name = other.name, .bytes = 5, .head = 3};
    other.list = &file;
    json_t *o = json_pack("{s:o}", "model", model_files_json(&other));
    json_t *add = json_loads(more, 0, NULL);
    assert_non_null(add);
    json_object_update(o, add);
    json_decref(add);
    return o;
}

static json_t *question_here(const char *job) {
    return json_pack("{s:o, s:s, s:o}", "model", model_files_json(&files), "hint", model, "job",
                     json_loads(job, 0, NULL));
}

static enum status ask(const char *path, json_t *body, struct err *err) {
    struct client *c;
    json_t *reply = NULL;
    assert_int_equal(client_open(&c, &id, address, err), ST_OK);
    enum status st = client_json(c, path, body, &reply, err);
    client_close(c);
    json_decref(reply);
    json_decref(body);
    return st;
}

/* What the node says of its devices, once it says something. */
static json_t *devices_of_node(void) {
    struct err err;
    for (int i = 0; i < 600; i++) {
        json_t *facts;
        assert_int_equal(client_get(&id, address, "/v1/node", &facts, &err), ST_OK);
        assert_non_null(json_object_get(facts, "devices"));
        if (!json_is_null(json_object_get(facts, "devices")) ||
            json_object_get(facts, "devices_error") != NULL)
            return facts;
        json_decref(facts);
        poll(NULL, 0, 100);
    }
    fail_msg("%s", "the node never says which devices it has");
    return NULL;
}

static void test_its_devices(void **state) {
    (void)state;
    json_t *facts = devices_of_node(), *one = json_loads(DEVICE, 0, NULL);
    assert_true(json_equal(json_array_get(json_object_get(facts, "devices"), 0), one));
    assert_null(json_object_get(facts, "devices_error"));
    json_decref(one);
    json_decref(facts);
    node_close(node);
    write_text(listed, "no JSON");
    begin_node();
    facts = devices_of_node();
    assert_true(json_is_null(json_object_get(facts, "devices")));
    assert_string_equal(json_text(facts, "devices_error"),
                        "what it says of its devices is not a list");
    json_decref(facts);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *path, *more;
        enum status st;
        const char *sentence;
    } asked[] = {
        {"/v1/models/find", "{}", ST_NOT_FOUND, "is not here"},
        {"/v1/models/find", "{\"hint\": 7}", ST_NOT_FOUND, "is not here"},
        {"/v1/models/find", "{\"model\": 7}", ST_BAD_INPUT, "a model is"},
        {"/v1/models/find", "{\"model\": null}", ST_BAD_INPUT, "a model is"},
        {"/v1/models/fetch", "{}", ST_BAD_INPUT, "where to fetch"},
        {"/v1/models/fetch", "{\"from\": 7}", ST_BAD_INPUT, "where to fetch"},
        {"/v1/models/link", "{}", ST_BAD_INPUT, "where the model is"},
        {"/v1/models/link", "{\"from\": \"/\"}", ST_BAD_INPUT, "not a valid address"},
        {"/v1/models/link", "{\"from\": \"127.0.0.1:1\"}", ST_IO, "no answer"},
        {"/v1/workers", "{}", ST_BAD_INPUT, "has no job"},
        {"/v1/workers", "{\"job\": []}", ST_BAD_INPUT, "has no job"},
        {"/v1/workers", "{\"job\": {}}", ST_NOT_FOUND, "n.gguf is not here"},
        {"/v1/nothing", "{}", ST_NOT_FOUND, "nothing at this path"},
        {"/v1/node", "{}", ST_IO, "does not support that method"},
    };
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
        assert_int_equal(ask(asked[i].path, question(asked[i].more), &err), asked[i].st);
        assert_non_null(strstr(err.text, asked[i].sentence));
    }
    /* A pipe is no model, and nobody waits for who would write into it. */
    char pipe_path[96], more[128];
    struct model_files empty = {.name = (char *)(uintptr_t) "p", .n = 1};
    struct model_file file = {.name = empty.name};
    empty.list = &file;
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    snprintf(more, sizeof more, "{\"hint\": \"%s\"}", pipe_path);
    json_t *o = question(more);
    json_object_set_new(o, "model", model_files_json(&empty));
    assert_int_equal(ask("/v1/models/find", o, &err), ST_NOT_FOUND);
}

/* ---- lines ------------------------------------------------------------------------------- */

struct lines {
    char all[4096];
    atomic_int n;
    int enough; /* lines; 0: all */
};

static bool hear(void *user, char *line) {
    struct lines *l = user;
    size_t n = strlen(l->all);
    snprintf(l->all + n, sizeof l->all - n, "%s\n", line);
    return atomic_fetch_add(&l->n, 1) + 1 != l->enough;
}

static enum status listen_to(const char *path, json_t *body, struct lines *l, struct err *err) {
    struct client *c;
    const struct client_stream to = {hear, l};
    assert_int_equal(client_open(&c, &id, address, err), ST_OK);
    enum status st = client_lines(c, path, body, &to, err);
    client_close(c);
    json_decref(body);
    return st;
}

static void wait_until_idle(void) {
    while (node_n_workers(node) != 0)
        poll(NULL, 0, 10);
}

/* Fetching from where nothing useful is: a sentence on the stream, and nothing left in the
 * store. */
static void test_sources(void **state) {
    (void)state;
    char more[128];
    struct err err;
    static const char *const from[] = {"127.0.0.1:1", "no such host", "itself"};
    for (size_t i = 0; i < ARRAY_LEN(from); i++) {
        struct lines l = {.n = 0};
        snprintf(more, sizeof more, "{\"from\": \"%s\"}",
                 str_eq(from[i], "itself") ? address : from[i]);
        assert_int_equal(listen_to("/v1/models/fetch", question(more), &l, &err), ST_OK);
        assert_non_null(strstr(l.all, "{\"error\":\""));
    }
    snprintf(more, sizeof more, "ls -A %s | grep -q n.gguf", folder);
    assert_int_not_equal(system(more), 0);
}

static void *run_worker(void *user) {
    struct lines *l = user;
    struct err err;
    listen_to("/v1/workers", question_here("{\"rank\": 3}"), l, &err);
    return NULL;
}

/* Who hangs up ends the worker; so does a signal, which the stream tells; so does the node. */
static void test_ends_of_a_worker(void **state) {
    (void)state;
    struct lines l = {.enough = 1}, all = {.enough = 0};
    struct err err;
    pthread_t thread;
    assert_int_equal(listen_to("/v1/workers", question_here("{}"), &l, &err), ST_CANCELLED);
    assert_string_equal(l.all, "ready\n");
    wait_until_idle();

    for (int by_node = 0; by_node < 2; by_node++) {
        struct client *c;
        json_t *o;
        memset(&all, 0, sizeof all);
        assert_int_equal(thread_start(&thread, run_worker, &all), 0);
        while (atomic_load(&all.n) == 0)
            poll(NULL, 0, 10);
        assert_int_equal(client_open(&c, &id, address, &err), ST_OK);
        assert_int_equal(client_json(c, "/v1/node", NULL, &o, &err), ST_OK);
        client_close(c);
        json_t *w = json_array_get(json_object_get(o, "workers"), 0);
        assert_int_equal(json_integer_value(json_object_get(w, "rank")), 3);
        /* It hears SIGTERM: the thread that started it has all signals blocked. */
        if (by_node)
            node_close(node);
        else
            assert_int_equal(
                kill((pid_t)json_integer_value(json_object_get(w, "pid")), SIGTERM), 0);
        json_decref(o);
        pthread_join(thread, NULL);
        assert_string_equal(
            all.all, by_node ? "ready\nerror: the node ann was told to end, and ended its "
                               "worker\nsignal 9\n"
                             : "ready\nsignal 15\n");
    }
    begin_node();
}

/* ---- a source that never answers --------------------------------------------------------- */

#define N_HELD 100

static struct {
    pthread_mutex_t lock;
    struct http_request *list[N_HELD];
    size_t n;
} held = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void hold(void *user, struct http_request *r) {
    (void)user;
    pthread_mutex_lock(&held.lock);
    held.list[held.n++] = r;
    pthread_mutex_unlock(&held.lock);
}

static void wait_for_held(size_t n) {
    for (size_t now = 0; now < n; poll(NULL, 0, 10)) {
        pthread_mutex_lock(&held.lock);
        now = held.n;
        pthread_mutex_unlock(&held.lock);
    }
}

static char silent[64]; /* the address */
static atomic_int n_refused;

/* A question with a number in it, so that no two wait for each other's copies. */
static void *fetch_in_vain(void *user) {
    char more[128], name[32];
    struct lines l = {.n = 0};
    struct err err;
    snprintf(more, sizeof more, "{\"from\": \"%s\"}", silent);
    json_t *o = question(more), *m = json_object_get(o, "model");
    snprintf(name, sizeof name, "%d.gguf", *(int *)user);
    json_object_set_new(m, "name", json_string(name));
    json_object_set_new(json_array_get(json_object_get(m, "files"), 0), "name",
                        json_string(name));
    enum status st = listen_to("/v1/models/fetch", o, &l, &err);
    if (st == ST_IO && strstr(err.text, "too much to do") != NULL)
        atomic_fetch_add(&n_refused, 1);
    return NULL;
}

/* As many as a node takes (TASKS_MAX), and some more; then it ends, at once, with all of them
 * under way. */
static void test_many_that_wait(void **state) {
    (void)state;
    enum { N = 70, N_TASKS = 64 };
    struct http_config cfg;
    struct http_server *s;
    struct err err;
    pthread_t threads[N];
    int who[N];
    http_config_init(&cfg);
    cfg.tls_cert_pem = id.cert_pem;
    cfg.tls_key_pem = id.key_pem;
    cfg.handle = hold;
    assert_int_equal(http_open(&s, &cfg, &err), ST_OK);
    snprintf(silent, sizeof silent, "127.0.0.1:%d", http_port(s));
    for (int i = 0; i < N; i++) {
        who[i] = i;
        assert_int_equal(thread_start(&threads[i], fetch_in_vain, &who[i]), 0);
    }
    wait_for_held(N_TASKS);
    while (atomic_load(&n_refused) < N - N_TASKS)
        poll(NULL, 0, 10);
    double begin_s = clock_s();
    node_close(node);
    assert_true(clock_s() - begin_s < CLIENT_REPLY_MS * 1e-3 / 2);
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(n_refused, N - N_TASKS);
    for (size_t i = 0; i < held.n; i++)
        http_reply(held.list[i], 404, "text/plain", "", 0);
    http_close(s);
    begin_node();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_its_devices),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sources),        cmocka_unit_test(test_ends_of_a_worker),
        cmocka_unit_test(test_many_that_wait),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
