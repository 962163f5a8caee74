/* remote.c: lockstep remote ADDRESS: represents a worker that the node there runs. Rank 0
 * starts it, not people. lockstep remote --ask ADDRESS: its exit status says whether that node
 * is up.
 *
 * It behaves as that worker would (ranks/launch.h): the job on standard input, "ready" or
 * "error: ..." on standard output, and its exit status. If it is killed, or its socket is
 * closed, the worker ends. */
#include "base/mem.h"
#include "base/util.h"
#include "cli/nodes.h"
#include "cluster/client.h"
#include "cluster/model_files.h"
#include "ranks/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct remote {
    const char *address;
    int status; /* the worker's; -1: it has not ended */
};

static void say(const char *format, const char *a, const char *b) {
    printf(format, a, b);
    fflush(stdout);
}

static bool hear(void *user, char *line) {
    struct remote *r = user;
    if (str_starts(line, "exit ")) {
        r->status = atoi(line + strlen("exit "));
    } else if (str_starts(line, "signal ")) {
        int number = atoi(line + strlen("signal "));
        say("error: its worker on %s was killed by a signal (%s)\n", r->address,
            strsignal(number));
        r->status = 1;
    } else {
        say("%s%s\n", line, "");
    }
    return true;
}

static bool is_wanted(void *user) {
    return launch_worker_parent(user, 0) == PARENT_THERE;
}

static enum status read_job(struct launch_wire *wire, json_t **out, struct err *err) {
    char *text;
    size_t n;
    json_error_t why;
    *out = NULL;
    if (launch_worker_job(wire, &text, &n, err) == ST_OK) {
        *out = json_loadb(text, n, 0, &why);
        mem_free(text);
    }
    return *out != NULL ? ST_OK
                        : err_set(err, ST_BAD_INPUT,
                                  "lockstep remote is started by lockstep itself, with a job");
}

static enum status make_request(struct launch_wire *wire, json_t **out, struct err *err) {
    json_t *job;
    struct model_files files;
    TRY(read_job(wire, &job, err));
    const char *path = json_string_value(json_object_get(job, "model"));
    enum status st = path != NULL ? model_files_read(&files, path, err)
                                  : err_set(err, ST_BAD_INPUT, "the job names no model");
    if (st == ST_OK) {
        *out = json_pack("{s:o, s:s, s:O}", "model", model_files_json(&files), "hint", path,
                         "job", job);
        model_files_deinit(&files);
    }
    json_decref(job);
    return st;
}

static enum status run(struct remote *r, struct err *err) {
    const struct client_stream to = {hear, r};
    struct launch_wire wire = {.in = STDIN_FILENO, .out = STDOUT_FILENO};
    struct identity id;
    struct client *c;
    json_t *request;
    TRY(nodes_identity(&id, err));
    enum status st = make_request(&wire, &request, err);
    if (st == ST_OK) {
        st = client_open(&c, &id, r->address, err);
        if (st == ST_OK) {
            client_ask_whether(c, is_wanted, &wire);
            st = client_lines(c, "/v1/workers", request, &to, err);
            client_close(c);
        }
        json_decref(request);
    }
    identity_deinit(&id);
    return st;
}

static enum status ask(const char *address, struct err *err) {
    struct identity id;
    json_t *facts = NULL;
    TRY(nodes_identity(&id, err));
    enum status st = client_get(&id, address, "/v1/node", &facts, err);
    identity_deinit(&id);
    TRY(st);
    const char *version = json_string_value(json_object_get(facts, "version"));
    bool same = version != NULL && str_eq(version, LOCKSTEP_VERSION);
    json_decref(facts);
    return same ? ST_OK
                : err_set(err, ST_REFUSED, "the node at %s runs another version of lockstep",
                          address);
}

int cmd_remote(int argc, char **argv) {
    struct remote r = {.status = -1};
    struct err err;
    if (argc == 3 && str_eq(argv[1], "--ask")) {
        enum status answer = ask(argv[2], &err);
        return answer == ST_OK ? 0 : cli_fail(answer, "%s", err.text);
    }
    if (argc != 2)
        return cli_fail(ST_BAD_INPUT, "it is started by lockstep itself, with an address");
    r.address = argv[1];
    /* The terminal's Ctrl-C goes to every process; what it means is rank 0's decision. */
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN); /* a node that closes, a parent that is gone: noticed and told */
    enum status st = run(&r, &err);
    if (st == ST_CANCELLED)
        return status_exit_code(ST_PEER_LOST);
    if (st == ST_OK && r.status >= 0)
        return r.status;
    if (st == ST_OK)
        st = err_set(&err, ST_PEER_LOST, "the node at %s ended", r.address);
    say("error: %s%s\n", err.text, "");
    return status_exit_code(st);
}
