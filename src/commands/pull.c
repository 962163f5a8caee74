/* pull.c: lockstep pull: downloads a model from a hub to this machine. */
#include "hub/pull.h"
#include "base/clock.h"
#include "base/program.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/pull_nodes.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

static const char *name, *revision = "main", *nodes;
static bool json, list;
static int silence_s = 30, n_connections = 4;

static const struct cli_option options[] = {
    CLI_ARG("NAME", &name, "ORG/REPO, ORG/REPO:QUANT or ORG/REPO:FILE, with or without hf:"),
    CLI_FLAG(0, "list", &list,
             "lists what the repository has, with sizes, and downloads nothing"),
    CLI_TEXT(0, "revision", "REV", &revision, "a branch, a tag or a commit (default main)"),
    CLI_TEXT(0, "nodes", "LIST", &nodes,
             "these machines of the cluster get it from this one while it\n"
             "comes: names with commas between them, or all"),
    CLI_INT(0, "connections", "N", &n_connections, 1, 16,
            "how many connections a file of 64 MiB and more comes over\n(default 4)"),
    CLI_INT(0, "timeout", "S", &silence_s, 1, 3600,
            "seconds without a byte after which a connection is begun anew\n(default 30)"),
    CLI_FLAG(0, "json", &json,
             "lines of JSON on stdout: progress once a second, then the path"),
    CLI_END};

static const struct cli_command command = {
    "pull", "downloads a model from Hugging Face's hub",
    "QUANT is a word of a GGUF's name, such as Q8_0; without it, Q4_K_M is taken, or the only\n"
    "one. All parts of a split GGUF come. A repository without GGUF files comes as a folder of\n"
    "safetensors. The model lies in the folder that Python's huggingface_hub uses\n"
    "(~/.cache/huggingface/hub), and is found there by its name wherever a command takes a\n"
    "MODEL. An interrupted download continues. Every file is checked by its checksum.\n"
    "With --nodes it crosses the line to the hub once, for all machines.\n"
    "\n"
    "HF_ENDPOINT, HF_TOKEN, HF_HOME and SSL_CERT_FILE: see lockstep --help.\n"
    "\n"
    "  lockstep pull Qwen/Qwen3-0.6B-GGUF:Q8_0\n"
    "  lockstep pull Qwen/Qwen3-0.6B-GGUF:Q8_0 --nodes all\n"
    "  lockstep chat hf:Qwen/Qwen3-0.6B-GGUF:Q8_0",
    options};

/* ---- --list --------------------------------------------------------------------------------- */

static void print_one(void *user, const char *word, uint64_t bytes, size_t n_files) {
    char size[32];
    json_t *all = user;
    if (json)
        json_array_append_new(all, json_pack("{s:s?, s:I, s:I}", "name", word, "bytes",
                                             (json_int_t)bytes, "files", (json_int_t)n_files));
    else
        printf("%-40s %9s\n", word != NULL ? word : "(safetensors)", cli_bytes(bytes, size));
}

static enum status list_models(const struct hub_name *which,
                               const struct hub_settings *settings, struct err *err) {
    struct hub_files files;
    TRY(hub_list(which, settings, revision, &files, err));
    json_t *all = json ? json_array() : NULL;
    hub_files_each(&files, print_one, all);
    hub_files_deinit(&files);
    if (json)
        cli_print_json(all);
    return ST_OK;
}

/* ---- downloading ---------------------------------------------------------------------------- */

struct showing {
    struct cli_progress line;
    struct progress own; /* what hub_pull() gets */
    uint64_t last_ns;
};

#define LINE_NS 1000000000u

/* One line. */
static void print_event(json_t *event) {
    char *text = json_dumps(event, JSON_COMPACT);
    if (text != NULL)
        printf("%s\n", text);
    (void)cli_flush();
    free(text);
    json_decref(event);
}

static bool show(void *user, uint64_t done, uint64_t total) {
    struct showing *s = user;
    uint64_t now = clock_ns();
    if (json && total > 0 && now - s->last_ns >= LINE_NS) {
        s->last_ns = now;
        print_event(json_pack("{s:s, s:I, s:I}", "event", "progress", "bytes", (json_int_t)done,
                              "total", (json_int_t)total));
    }
    return s->line.progress.report(s->line.progress.arg, done, total);
}

static void say_done(const struct hub_name *which, const struct hub_pulled *got,
                     double seconds) {
    char size[32], came[32];
    if (json) {
        print_event(json_pack("{s:s, s:s, s:I, s:I}", "event", "done", "path", got->path,
                              "bytes", (json_int_t)got->bytes, "downloaded",
                              (json_int_t)got->came));
        return;
    }
    printf("%s\n", got->path);
    fprintf(stderr, "%s: %s, of which %s came now, in %.1f s\n  lockstep %s hf:%s%s%s\n",
            which->repo, cli_bytes(got->bytes, size), cli_bytes(got->came, came), seconds,
            nodes != NULL ? "up" : "chat", which->repo, *which->want != '\0' ? ":" : "",
            which->want);
}

/* ---- on other machines, too ----------------------------------------------------------------- */

static void say_node(void *user, const char *node, const char *path, const char *sentence) {
    (void)user;
    if (json)
        print_event(json_pack("{s:s, s:s, s:s?, s:s?}", "event", "node", "node", node, "path",
                              path, "error", sentence));
    else if (path != NULL)
        fprintf(stderr, "%s: %s\n", node, path);
    else
        fprintf(stderr, "%s: %s\n", node, sentence);
}

#define LOOK_MS 100

/* Shows how far the others are until they have all ended. False: Ctrl-C. */
static bool watch_nodes(struct pull_nodes *p, uint64_t bytes) {
    struct showing s = {.last_ns = 0};
    bool goes_on = true;
    cli_progress_begin(&s.line, "the other machines");
    while (goes_on && pull_nodes_running(p) > 0) {
        goes_on = show(&s, pull_nodes_bytes(p), bytes * (uint64_t)pull_nodes_n(p));
        poll(NULL, 0, LOOK_MS);
    }
    cli_progress_end(&s.line);
    return goes_on;
}

/* st: how it ended on this machine. */
static enum status end_nodes(struct pull_nodes *p, enum status st, uint64_t bytes,
                             struct err *err) {
    int n = pull_nodes_n(p);
    bool stopped = st != ST_OK || !watch_nodes(p, bytes);
    int n_here = pull_nodes_end(p, stopped, say_node, NULL);
    if (st == ST_OK && stopped)
        return err_set(err, ST_CANCELLED, "given up");
    if (st == ST_OK && n_here < n)
        return err_set(err, ST_IO, "%d of %d other machines do not have the model", n - n_here,
                       n);
    return st;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static enum status pull_here(const struct hub_name *which, const struct hub_settings *settings,
                             struct hub_files *files, struct hub_pulled *got, struct err *err) {
    struct showing s = {.last_ns = 0};
    s.own = (struct progress){show, &s};
    cli_progress_begin(&s.line, which->repo);
    enum status st = hub_pull_listed(which, settings, revision, files, &s.own, got, err);
    double seconds = cli_progress_end(&s.line);
    if (st == ST_OK)
        say_done(which, got, seconds);
    return st;
}

static enum status pull(const struct hub_name *which, const struct hub_settings *settings,
                        struct err *err) {
    struct hub_pulled got = {.bytes = 0};
    struct pull_nodes *others = NULL;
    struct hub_files files;
    enum status st = ST_OK;
    TRY(hub_list(which, settings, revision, &files, err));
    if (nodes != NULL)
        st = pull_nodes_begin(&others, nodes, which, revision, &files, err);
    if (st == ST_OK)
        st = pull_here(which, settings, &files, &got, err);
    if (others != NULL)
        st = end_nodes(others, st, got.bytes, err);
    hub_files_deinit(&files);
    return st;
}

int cmd_pull(int argc, char **argv) {
    struct err err;
    struct hub_name which;
    char token[4096];
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    enum status st = hub_name_parse(&which, name, &err);
    const struct hub_settings settings = {.endpoint = hub_endpoint(),
                                          .token =
                                              hub_token(token, sizeof token) ? token : NULL,
                                          .certificates = env_get("SSL_CERT_FILE"),
                                          .silence_s = silence_s,
                                          .n_connections = n_connections};
    if (st == ST_OK)
        st = list ? list_models(&which, &settings, &err) : pull(&which, &settings, &err);
    if (st == ST_CANCELLED)
        return 130;
    return st == ST_OK ? 0 : cli_fail(st, "%s", err.text);
}
