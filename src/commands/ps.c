/* ps.c: lockstep ps: which models run on this machine and in its cluster, and how fast. */
#include "base/clock.h"
#include "base/duration.h"
#include "base/json.h"
#include "base/program.h"
#include "base/util.h"
#include "cli/ask_server.h"
#include "cli/cli.h"
#include "view/cluster_source.h"
#include "view/cluster_view.h"

#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define HERE "127.0.0.1"
#define COMPLETE_S 2.0 /* so long figures are waited for */
#define AGAIN_MS 200

static const char *node_arg, *server_arg, *key_arg;
static bool json_arg;

static const struct cli_option options[] = {
    CLI_TEXT(0, "node", "ADDRESS", &node_arg,
             "asks this node alone (default: this machine's own, and\n"
             "the server at port 8080)"),
    CLI_TEXT(0, "server", "URL", &server_arg,
             "asks this server alone: lockstep serve, or the port of\n"
             "lockstep up"),
    CLI_TEXT(0, "api-key", "KEY", &key_arg, "the server's key (or $LOCKSTEP_API_KEY)"),
    CLI_FLAG(0, "json", &json_arg, "prints a JSON array"), CLI_END};

static const struct cli_command command = {
    "ps", "lists the models that run",
    "SIZE is the memory of all ranks together (while a model starts: its files), WHERE the machines\n"
    "that compute, the serving one first. UNTIL says what ends it: lockstep down for what lockstep\n"
    "up has put up, or the end of its server; with up --idle, so long without a question. One that is\n"
    "asleep waits for the next question. lockstep top shows more, each second.",
    options};

/* ---- gathering --------------------------------------------------------------------------- */

static json_t *number_or_null(double v) {
    return v < 0                        ? json_null()
           : v == (double)(json_int_t)v ? json_integer((json_int_t)v)
                                        : json_real(v);
}

/* A server need not know at which port it was asked: its address says so. */
static double port_of(const json_t *d, const char *server) {
    char url[SERVER_URL_BYTES];
    struct err ignored;
    int port;
    if (view_number(d, "port") > 0 || server == NULL ||
        ask_server_url(url, server, strlen(server), &ignored) != ST_OK)
        return view_number(d, "port");
    return cli_parse_int(strrchr(url, ':') + 1, 1, 65535, &port) ? port : -1;
}

/* What ends it: a time without questions, or somebody; or what begins it again. */
static void say_until(const json_t *d, const char *server, char *out, size_t size) {
    double left = view_number(d, "unloads") - (double)time(NULL);
    char text[32];
    if (str_eq(json_text(d, "state"), "asleep")) {
        snprintf(out, size, "the next question");
    } else if (view_number(d, "unloads") > 0) {
        duration_print((int64_t)(MAX(left, 0) * 1e3), text, sizeof text);
        snprintf(out, size, "%s without a question", text);
    } else {
        snprintf(out, size, "%s", server != NULL ? "its server ends" : "lockstep down");
    }
}

/* server: who answers serves it itself, at that address; NULL: it does not. */
static json_t *describe(const json_t *cluster, const json_t *d, const char *server) {
    const char *name = json_text(d, "name");
    double bytes = view_deployment_bytes(cluster, name), since = view_number(d, "since");
    const json_t *requests = json_object_get(d, "requests");
    char nodes[256], until[64];
    say_until(d, server, until, sizeof until);
    view_deployment_nodes(cluster, d, nodes, sizeof nodes);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s, s:o, s:o, s:s, s:o, s:o, s:o, s:o}",
                     "model", name, "file", json_text(d, "model"), "state",
                     json_text(d, "state"), "bytes", number_or_null(bytes), "model_bytes",
                     number_or_null(view_number(d, "model_bytes")), "where", nodes, "port",
                     number_or_null(port_of(d, server)), "since", number_or_null(since),
                     "until", until, "tokens_per_second",
                     number_or_null(view_number(d, "tokens_per_second")), "prompt_per_second",
                     number_or_null(view_number(d, "prompt_per_second")), "running",
                     number_or_null(view_number(requests, "running")), "waiting",
                     number_or_null(view_number(requests, "waiting")));
}

/* What is at a port that the list has already is the same once more. */
static bool has_port(const json_t *list, json_int_t port) {
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        if ((json_int_t)view_number(one, "port") == port)
            return true;
    }
    return false;
}

/* Does one listen whose server has not told its figures yet? A node that was not asked lately hears
 * them within a second. */
static bool is_incomplete(const json_t *cluster) {
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(cluster, "deployments"), i, one) {
        if (str_eq(json_text(one, "state"), "listening") &&
            view_deployment_bytes(cluster, json_text(one, "name")) < 0)
            return true;
    }
    return false;
}

static enum status ask(json_t **cluster, struct cluster_source *s, struct err *err) {
    double until_s = clock_s() + COMPLETE_S;
    for (;;) {
        TRY(cluster_source_get(s, cluster, err));
        if (!is_incomplete(*cluster) || clock_s() > until_s)
            return ST_OK;
        json_decref(*cluster);
        poll(NULL, 0, AGAIN_MS);
    }
}

static enum status gather(json_t *list, const struct cluster_source_config *cfg,
                          struct err *err) {
    struct cluster_source *s;
    size_t i;
    json_t *cluster, *one;
    TRY(cluster_source_open(&s, cfg, err));
    enum status st = ask(&cluster, s, err);
    cluster_source_close(s);
    TRY(st);
    size_t before = json_array_size(list);
    json_array_foreach(json_object_get(cluster, "deployments"), i, one) {
        bool known =
            before > 0 && has_port(list, json_integer_value(json_object_get(one, "port")));
        bool is_server = json_object_get(one, "standby") == NULL;
        if (!known)
            json_array_append_new(list, describe(cluster, one, is_server ? cfg->server : NULL));
    }
    json_decref(cluster);
    return ST_OK;
}

/* This machine's node and its server; it is no error if one of them, or both, are not there.
 * *refused: the server's models are not in the list, and it is said why. */
static enum status gather_here(json_t *list, const char *key, bool *refused, struct err *err) {
    struct cluster_source_config node = {.node = HERE}, server = {.server = HERE, .key = key};
    enum status st = gather(list, &node, err);
    if (st != ST_OK && st != ST_TIMEOUT && st != ST_NOT_FOUND)
        return st;
    st = gather(list, &server, err);
    if (st == ST_REFUSED)
        fprintf(stderr, "%s\n", err->text);
    *refused = st == ST_REFUSED;
    return ST_OK;
}

/* ---- printing ---------------------------------------------------------------------------- */

static void print_rate(struct canvas *c, const json_t *one) {
    char text[32] = "-";
    if (view_number(one, "tokens_per_second") >= 0)
        snprintf(text, sizeof text, "%.1f", view_number(one, "tokens_per_second"));
    canvas_cell(c, STYLE_BOLD, -8, text);
}

static void print_list(const json_t *list) {
    struct canvas c = {.columns = 0};
    size_t i;
    json_t *one;
    int name = 5, where = 5;
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        const char *n = json_text(one, "model"), *w = json_text(one, "where");
        name = MIN(MAX(name, (int)style_text_width(n, strlen(n))), 48);
        where = MIN(MAX(where, (int)style_text_width(w, strlen(w))), 48);
    }
    canvas_begin(&c, 0, style_on(STDOUT_FILENO));
    canvas_cell(&c, STYLE_DIM, name, "MODEL");
    canvas_cell(&c, STYLE_DIM, -9, "SIZE");
    canvas_cell(&c, STYLE_DIM, 10, "STATE");
    canvas_cell(&c, STYLE_DIM, where, "WHERE");
    canvas_cell(&c, STYLE_DIM, -5, "PORT");
    canvas_cell(&c, STYLE_DIM, -8, "TOKENS/S");
    canvas_cell(&c, STYLE_DIM, 0, "");
    canvas_cell(&c, STYLE_DIM, 5, "UNTIL");
    canvas_end_line(&c);
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        char bytes[32], port[16];
        bool good = str_eq(json_text(one, "state"), "listening");
        snprintf(port, sizeof port, "-");
        if (view_number(one, "port") > 0)
            snprintf(port, sizeof port, "%.0f", view_number(one, "port"));
        canvas_cell(&c, STYLE_BOLD, name, json_text(one, "model"));
        double size = view_number(one, "bytes");
        size = size >= 0 ? size : view_number(one, "model_bytes");
        canvas_cell(&c, STYLE_NONE, -9, view_bytes(size, bytes));
        canvas_cell(&c, good ? STYLE_GOOD : STYLE_WARN, 10, json_text(one, "state"));
        canvas_cell(&c, STYLE_NONE, where, json_text(one, "where"));
        canvas_cell(&c, STYLE_NONE, -5, port);
        print_rate(&c, one);
        canvas_cell(&c, STYLE_DIM, 0, "");
        canvas_put(&c, STYLE_NONE, "%s", json_text(one, "until"));
        canvas_end_line(&c);
    }
    fputs(buf_cstr(&c.text), stdout);
    canvas_free(&c);
}

int cmd_ps(int argc, char **argv) {
    struct err err;
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    if (node_arg != NULL && server_arg != NULL)
        return cli_fail(ST_BAD_INPUT, "either --node or --server, not both");
    const char *key = key_arg != NULL ? key_arg : env_get("LOCKSTEP_API_KEY");
    struct cluster_source_config cfg = {.node = node_arg, .server = server_arg, .key = key};
    json_t *list = json_array();
    bool refused = false;
    enum status st = node_arg == NULL && server_arg == NULL
                         ? gather_here(list, key, &refused, &err)
                         : gather(list, &cfg, &err);
    if (st != ST_OK) {
        json_decref(list);
        return cli_fail(st, "%s", err.text);
    }
    if (json_arg)
        return cli_print_json(list);
    if (json_array_size(list) > 0)
        print_list(list);
    else if (!refused)
        fprintf(stderr, "no model runs here (lockstep serve, lockstep up)\n");
    json_decref(list);
    status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}
