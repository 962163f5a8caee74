/* What nodes do for deployments, without models: a node and its controller each, of which the
 * servers are scripts. test_up.sh has several machines and real servers.
 * labels: waits */
#include "base/clock.h"
#include "base/json.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/client.h"
#include "node/controller_internal.h"
#include "node/node.h"

#include <curl/curl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT_S 60.0
/* More than the buffers of a connection hold. */
#define READ_BYTES (12 << 20)

static char folder[64], model[128];
static struct identity id;
static struct model_files files;

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int begin(void **state) {
    (void)state;
    static const struct cluster_key key = {{1, 2, 3}};
    struct err err;
    snprintf(folder, sizeof folder, "/tmp/test_controller-XXXXXX");
    if (mkdtemp(folder) == NULL || sodium_init() < 0)
        return -1;
    snprintf(model, sizeof model, "%s/m.gguf", folder);
    write_text(model, "a model");
    assert_int_equal(truncate(model, READ_BYTES), 0);
    assert_int_equal(identity_make(&id, &key, &err), ST_OK);
    assert_int_equal(model_files_read(&files, model, &err), ST_OK);
    return 0;
}

static int end(void **state) {
    (void)state;
    char command[96];
    model_files_deinit(&files);
    identity_deinit(&id);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* ---- a machine --------------------------------------------------------------------------- */

struct machine {
    char state[128], program[128], address[64];
    struct node *node;
    struct controller *controller;
};

static enum status take_words(const char *const *words, size_t n, struct err *err) {
    (void)words;
    (void)n;
    (void)err;
    return ST_OK;
}

/* serve: what its servers do, a shell script; seeds: whom it asks, or NULL. */
static void machine_begin(struct machine *m, const char *name, const char *serve,
                          const char *seeds) {
    struct err err;
    const struct node_config cfg = {
        .id = &id, .host = "127.0.0.1", .name = name, .store = folder};
    char text[1200];
    snprintf(m->state, sizeof m->state, "%s/state-%s", folder, name);
    snprintf(m->program, sizeof m->program, "%s/serve-%s", folder, name);
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", serve);
    write_text(m->program, text);
    assert_int_equal(chmod(m->program, 0755), 0);
    assert_int_equal(node_open(&m->node, &cfg, &err), ST_OK);
    snprintf(m->address, sizeof m->address, "127.0.0.1:%d", node_port(m->node));
    const struct controller_config keep = {.id = &id,
                                           .seeds = seeds,
                                           .name = name,
                                           .port = node_port(m->node),
                                           .models = folder,
                                           .state = m->state,
                                           .program = m->program,
                                           .check_words = take_words};
    if (controller_open(&m->controller, &keep, &err) != ST_OK)
        fail_msg("%s", err.text);
    node_set_controller(m->node, m->controller);
}

static void machine_end(struct machine *m) {
    node_set_controller(m->node, NULL);
    controller_close(m->controller);
    node_close(m->node);
}

static int free_port(void) {
    struct net_address a;
    struct err err;
    char text[NET_TEXT_BYTES];
    int fd;
    assert_int_equal(net_resolve(&a, "127.0.0.1:0", true, &err), ST_OK);
    assert_int_equal(net_listen(&fd, &a, &err), ST_OK);
    assert_int_equal(net_local(fd, &a, &err), ST_OK);
    close(fd);
    net_text(&a, text);
    return atoi(strrchr(text, ':') + 1);
}

static json_t *deployment(const char *name) {
    return json_pack("{s:s, s:i, s:b, s:s, s:b, s:o, s:s, s:[], s:{}}", "name", name, "port",
                     free_port(), "tls", 0, "nodes", "auto", "copies", 1, "model",
                     model_files_json(&files), "hint", model, "args", "files");
}

/* Asks a node of a path; the answer, or NULL and a sentence. */
static json_t *ask(const struct machine *m, const char *path, const json_t *body,
                   struct err *err) {
    struct client *c;
    json_t *reply = NULL;
    assert_int_equal(client_open(&c, &id, m->address, err), ST_OK);
    if (client_json(c, path, body, &reply, err) != ST_OK)
        reply = NULL;
    client_close(c);
    return reply;
}

static void put_up(const struct machine *m, const char *name) {
    struct err err;
    json_t *one = deployment(name), *reply = ask(m, "/v1/deployments", one, &err);
    if (reply == NULL)
        fail_msg("%s", err.text);
    json_decref(reply);
    json_decref(one);
}

/* Until a node says that a deployment is in that state: what it says then. */
static json_t *wait_for_state(const struct machine *m, const char *name, const char *state) {
    size_t i;
    json_t *one;
    for (double end_s = clock_s() + LIMIT_S; clock_s() < end_s; poll(NULL, 0, 50)) {
        json_t *list = controller_deployments(m->controller);
        json_array_foreach(list, i, one) {
            if (str_eq(json_text(one, "name"), name) &&
                str_eq(json_text(one, "state"), state)) {
                json_incref(one);
                json_decref(list);
                return one;
            }
        }
        json_decref(list);
    }
    fail_msg("%s is not %s", name, state);
    return NULL;
}

/* ---- one machine ------------------------------------------------------------------------- */

/* The last thing that a server said is longer than what is kept of it, and is cut inside a
 * character; a byte of it is no UTF-8 at all. The others hear of the run all the same. */
static void test_any_words(void **state) {
    (void)state;
    struct machine m;
    machine_begin(&m, "ann",
                  "printf 'lockstep serve: \\351'; head -c 397 /dev/zero | tr '\\0' a\n"
                  "printf '\\303\\251 is cut\\n'; exit 1",
                  NULL);
    put_up(&m, "m");
    json_t *one = wait_for_state(&m, "m", "failed");
    assert_string_equal(json_text(one, "node"), "ann");
    assert_int_equal(strlen(json_text(one, "sentence")), 398);
    assert_int_equal(strspn(json_text(one, "sentence"), "?a"), 398);
    json_decref(one);
    machine_end(&m);
}

/* The model is changed after the node has checked it and before the server opens it: nobody hears
 * of that server. The next one, of the model that was put right, listens. */
static void test_changed_while_it_begins(void **state) {
    (void)state;
    struct machine m;
    char serve[1024];
    snprintf(
        serve, sizeof serve,
        "if [ ! -e '%s/once' ]; then\n"
        "  touch '%s/once'; cp -p '%s' '%s/right'; printf other | dd of='%s' conv=notrunc\n"
        "  (sleep 1; mv '%s/right' '%s') & echo '{\"port\": 1}' >&3; exec sleep 100\n"
        "fi\n"
        "echo '{\"port\": 2}' >&3; exec sleep 100",
        folder, folder, model, folder, model, folder, model);
    machine_begin(&m, "cat", serve, NULL);
    put_up(&m, "m");
    json_decref(wait_for_state(&m, "m", "listening"));
    pthread_mutex_lock(&m.controller->lock);
    assert_int_equal(report_of(&m.controller->self_report, "m")->port, 2);
    pthread_mutex_unlock(&m.controller->lock);
    machine_end(&m);
}

/* A reader of the model that does not read on. */
struct reader {
    char url[128];
    pthread_t thread;
    atomic_bool has_begun, goes_on;
};

static size_t read_nothing(char *bytes, size_t size, size_t n, void *user) {
    struct reader *r = user;
    (void)bytes;
    r->has_begun = true;
    while (!r->goes_on)
        poll(NULL, 0, 5);
    return size * n;
}

static void *reader_main(void *user) {
    struct reader *r = user;
    char token[IDENTITY_TOKEN_BYTES + 32];
    CURL *h = client_curl();
    snprintf(token, sizeof token, "Authorization: Bearer %s", id.token);
    struct curl_slist *headers = curl_slist_append(NULL, token);
    curl_easy_setopt(h, CURLOPT_URL, r->url);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, read_nothing);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, r);
    curl_easy_perform(h);
    curl_easy_cleanup(h);
    curl_slist_free_all(headers);
    return NULL;
}

static int share_of(const struct machine *m, const char *name) {
    pthread_mutex_lock(&m->controller->lock);
    const struct able_report *able = report_able(&m->controller->self_report, name);
    int port = able != NULL ? able->share_port : 0;
    pthread_mutex_unlock(&m->controller->lock);
    return port;
}

static void reader_begin(struct reader *r, const struct machine *m, const char *name) {
    int port;
    *r = (struct reader){.has_begun = false};
    for (double end_s = clock_s() + LIMIT_S; (port = share_of(m, name)) == 0; poll(NULL, 0, 20))
        assert_true(clock_s() < end_s);
    snprintf(r->url, sizeof r->url, "https://127.0.0.1:%d/v1/files/0?at=0&n=%d", port,
             READ_BYTES);
    assert_int_equal(thread_start(&r->thread, reader_main, r), 0);
    for (double end_s = clock_s() + LIMIT_S; !r->has_begun; poll(NULL, 0, 20))
        assert_true(clock_s() < end_s);
}

static void reader_end(struct reader *r) {
    r->goes_on = true;
    pthread_join(r->thread, NULL);
}

/* To close a share takes seconds where somebody still reads it: the node answers meanwhile. */
static void test_answers_while_a_share_closes(void **state) {
    (void)state;
    struct machine m;
    struct reader r;
    struct err err;
    machine_begin(&m, "bob", "exec sleep 100", NULL);
    put_up(&m, "m");
    reader_begin(&r, &m, "m");
    json_t *body = json_pack("{s:s}", "name", "m"), *reply;
    double longest_s = 0;
    for (double end_s = clock_s() + 4; clock_s() < end_s; poll(NULL, 0, 20)) {
        double begin_s = clock_s();
        reply =
            ask(&m, body != NULL ? "/v1/deployments/remove" : "/v1/deployments", body, &err);
        if (reply == NULL)
            fail_msg("%s", err.text);
        json_decref(reply);
        json_decref(body);
        body = NULL;
        longest_s = MAX(longest_s, clock_s() - begin_s);
    }
    if (longest_s > 2)
        fail_msg("an answer took %.1f s", longest_s);
    reader_end(&r);
    machine_end(&m);
}

/* ---- several ----------------------------------------------------------------------------- */

/* Of all others, which have an address. */
static bool knows(const struct machine *m, const char *one, const char *other) {
    size_t i;
    json_t *node, *self, *list = controller_nodes(m->controller, &self);
    int n = 0;
    json_array_foreach(list, i, node) {
        const char *name = json_text(node, "name");
        n += (str_eq(name, one) || str_eq(name, other)) &&
             json_array_size(json_object_get(node, "addresses")) > 0;
    }
    bool good = n == 2 && json_array_size(list) == 2;
    json_decref(self);
    json_decref(list);
    return good;
}

/* All three are reached by each other, whoever was named: a rank can be had on each. */
static bool are_reached(const struct machine *m) {
    pthread_mutex_lock(&m->controller->lock);
    bool good = m->controller->n_others == 2;
    for (size_t i = 0; i < m->controller->n_others; i++)
        good &= m->controller->others[i].host[0] != '\0';
    pthread_mutex_unlock(&m->controller->lock);
    return good;
}

/* Two name a third one as their seed, which names nobody. */
static void test_one_list(void **state) {
    (void)state;
    struct machine ann, bob, cat, *const all[] = {&ann, &bob, &cat};
    machine_begin(&ann, "a", "exit 1", NULL);
    machine_begin(&bob, "b", "exit 1", ann.address);
    machine_begin(&cat, "c", "exit 1", ann.address);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        for (double end_s = clock_s() + LIMIT_S;
             !are_reached(all[i]) || !knows(all[i], i == 0 ? "b" : "a", i == 2 ? "b" : "c");
             poll(NULL, 0, 20))
            assert_true(clock_s() < end_s);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        machine_end(all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_words), cmocka_unit_test(test_changed_while_it_begins),
        cmocka_unit_test(test_one_list), cmocka_unit_test(test_answers_while_a_share_closes)};
    return cmocka_run_group_tests(tests, begin, end);
}
