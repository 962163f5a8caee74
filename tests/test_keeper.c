/* What nodes do for deployments, without models: a node and its keeper each, of which the servers
 * are scripts. test_up.sh has several machines and real servers. */
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "cluster/client.h"
#include "server/keeper_internal.h"
#include "server/node.h"

#include <poll.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT_S 60.0

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
    snprintf(folder, sizeof folder, "/tmp/test_keeper-XXXXXX");
    if (mkdtemp(folder) == NULL || sodium_init() < 0)
        return -1;
    snprintf(model, sizeof model, "%s/m.gguf", folder);
    write_text(model, "a model");
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
    struct keeper *keeper;
};

/* serve: what its servers do, a shell script; seeds: whom it asks, or NULL. */
static void machine_begin(struct machine *m, const char *name, const char *serve,
                          const char *seeds) {
    struct err err;
    const struct node_config cfg = {
        .id = &id, .host = "127.0.0.1", .name = name, .store = folder};
    char text[1024];
    snprintf(m->state, sizeof m->state, "%s/state-%s", folder, name);
    snprintf(m->program, sizeof m->program, "%s/serve-%s", folder, name);
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", serve);
    write_text(m->program, text);
    assert_int_equal(chmod(m->program, 0755), 0);
    assert_int_equal(node_open(&m->node, &cfg, &err), ST_OK);
    snprintf(m->address, sizeof m->address, "127.0.0.1:%d", node_port(m->node));
    const struct keeper_config keep = {.id = &id,
                                       .seeds = seeds,
                                       .name = name,
                                       .port = node_port(m->node),
                                       .models = folder,
                                       .state = m->state,
                                       .program = m->program};
    if (keeper_open(&m->keeper, &keep, &err) != ST_OK)
        fail_msg("%s", err.text);
    node_set_keeper(m->node, m->keeper);
}

static void machine_end(struct machine *m) {
    node_set_keeper(m->node, NULL);
    keeper_close(m->keeper);
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
        json_t *list = keeper_deployments(m->keeper);
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_words)};
    return cmocka_run_group_tests(tests, begin, end);
}
