/* serve.c: lockstep serve: serves a model over HTTP until SIGINT or SIGTERM. */
#include "commands/serve.h"
#include "api/server.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/program.h"
#include "base/utf8.h"
#include "base/util.h"
#include "cli/nodes.h"
#include "cli/ready.h"
#include "cli/session.h"
#include "cluster/model_files.h"
#include "net/net.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS 500
#define FINISH_MS 600000 /* for what runs when the server is told to end */
/* Beside the requests that are taken: those that are told to come again, /health, clients that
 * keep theirs open. */
#define SPARE_CONNECTIONS 192

static const char *host = "127.0.0.1";
static int n_parallel = 64, n_queue = 256;
static uint64_t kv_memory;
static bool no_speculation, restart, until_eof, until_lost;

struct serve_args serve_args = {.port = 8080};

const struct cli_option serve_options[] = {
    CLI_TEXT(0, "alias", "NAME", &serve_args.alias,
             "the model's name in the APIs (default: the file's)"),
    CLI_HEADING("network"),
    CLI_INT(0, "port", "P", &serve_args.port, 0, 65535,
            "port to listen on; 0: any free one (default 8080)"),
    CLI_TEXT(0, "api-key", "KEY", &serve_args.api_key,
             "requires this key. Other users see it in the list of\n"
             "processes, so --api-key-file is better"),
    CLI_TEXT(0, "api-key-file", "F", &serve_args.api_key_file,
             "requires one of these keys, one a line"),
    CLI_TEXT(0, "tls-cert", "F", &serve_args.tls_cert,
             "HTTPS: the file of the certificate (PEM)"),
    CLI_TEXT(0, "tls-key", "F", &serve_args.tls_key, "HTTPS: the file of its key (PEM)"),
    CLI_TEXT(0, "cors", "ORIGIN", &serve_args.cors,
             "allows web pages of this origin (\"*\": of any)"),
    CLI_FLAG(0, "insecure", &serve_args.insecure,
             "allows everybody: a public address without a key, and\n"
             "any name of this machine"),
    CLI_HEADING("requests"),
    CLI_SIZE(0, "kv-memory", "SIZE", &kv_memory,
             "memory of the KV cache, all ranks together (default:\n"
             "eight contexts, or the memory that is left)"),
    CLI_INT(0, "parallel-requests", "N", &n_parallel, 1, 4096,
            "requests that are computed together (default 64)"),
    CLI_INT(0, "queue", "N", &n_queue, 1, 1 << 20,
            "requests that may wait; further ones get 503 and may\n"
            "try again (default 256)"),
    CLI_FLAG(0, "no-speculation", &no_speculation,
             "drafts no tokens ahead. Never changes the text"),
    CLI_FLAG(0, "restart", &restart,
             "if a rank is lost, answers end in an error and the\n"
             "model is opened again"),
    CLI_SWITCH("log-requests", "text|json", "text", &serve_args.log_requests,
               "a line on stderr for each request: who, path, model,\n"
               "tokens in and out, times, status; never the text"),
    CLI_INCLUDE(session_options),
    CLI_END};

static const struct cli_option options[] = {
    CLI_COMMON(
        "alias,host,port,api-key-file,tls-cert,tls-key,insecure,log-requests,kv-memory,quiet,ranks,device,nodes,failover,ctx"),
    CLI_TEXT(0, "host", "ADDRESS", &host, "address or name to listen on (default 127.0.0.1)"),
    CLI_FLAG(0, "until-eof", &until_eof,
             "ends when standard input ends, as after Ctrl-C, for\n"
             "programs that start it and may die"),
    CLI_FLAG(0, "until-lost", &until_lost,
             "ends at once, in the middle of answers, when ranks are\n"
             "lost and nothing continues, for programs that start it\n"
             "again"),
    CLI_INCLUDE(ready_options),
    CLI_FLAG('q', "quiet", &session_args.quiet, "prints nothing but the address"),
    CLI_INCLUDE(serve_options),
    CLI_END};

static const struct cli_command command = {
    "serve", "serves the APIs of OpenAI, Anthropic and Ollama over HTTP",
    "OpenAI's API is below /v1 (chat/completions, completions, responses, embeddings, models),\n"
    "Anthropic's is /v1/messages, Ollama's is below /api. /health and /metrics show the\n"
    "server's state. A browser gets a page to chat in.\n"
    "\n"
    "Ctrl-C or SIGTERM ends the server after the running requests. The second one ends it at\n"
    "once. docs/serve.md says more.",
    options};

/* ---- what others may say ----------------------------------------------------------------- */

/* A holder of the cluster's key may send these to a node (lockstep up). They include no option
 * that reads a file or names a machine: --hosts @FILE would reveal that file. */
static const char options_of_deployments[] =
    "alias,port,cors,insecure,log-requests,kv-memory,parallel-requests,queue,no-speculation,restart,split,"
    "parallel,experts,device,threads,link,emulate-link,silence,failover,weights,ctx,chunk,kv";

enum status serve_check_words(const char *const *words, size_t n, struct err *err) {
    return cli_check_words(serve_options, options_of_deployments, words, n, err);
}

/* ---- keys -------------------------------------------------------------------------------- */

static char *trim(char *line) {
    line += strspn(line, " \t\r");
    size_t n = strlen(line);
    while (n > 0 && strchr(" \t\r", line[n - 1]) != NULL)
        line[--n] = '\0';
    return line;
}

#define KEY_FILE_MAX ((size_t)1 << 18)

static enum status read_key_file(struct serve_keys *keys, struct err *err) {
    enum status st =
        file_read_text(&keys->text, NULL, serve_args.api_key_file, KEY_FILE_MAX, err);
    if (st == ST_NOT_FOUND)
        return err_set(err, st,
                       "%s: No such file or directory (--api-key-file: a file with a key that "
                       "you choose on each line)",
                       serve_args.api_key_file);
    TRY(st);
    char *rest = keys->text, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        line = trim(line);
        if (*line == '\0' || *line == '#')
            continue;
        if (keys->n == SERVE_KEYS_MAX)
            return err_set(err, ST_BAD_INPUT, "%s: more than %d keys", serve_args.api_key_file,
                           SERVE_KEYS_MAX);
        keys->list[keys->n++] = line;
    }
    return keys->n > 0
               ? ST_OK
               : err_set(err, ST_BAD_INPUT, "%s: no key in it", serve_args.api_key_file);
}

static bool is_local(const char *address) {
    return str_starts(address, "127.") || str_eq(address, "::1") ||
           str_eq(address, "localhost");
}

static void warn_of_readers(const char *path) {
    struct stat st;
    if (path != NULL && stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 077) != 0)
        fprintf(stderr, "warning: %s: other users of this machine can read it (chmod 600)\n",
                path);
}

/* Not of a node's child, which has its keys from lockstep up: that has warned. */
static void warn_of_listeners(const struct serve_keys *keys, const char *address) {
    if (session_args.quiet || until_eof)
        return;
    warn_of_readers(serve_args.api_key_file);
    warn_of_readers(serve_args.tls_key);
    if (keys->n > 0 && serve_args.tls_cert == NULL && !is_local(address))
        fprintf(
            stderr,
            "warning: keys and answers cross the network in the clear, where others can read "
            "them: --tls-cert and --tls-key encrypt them\n");
}

static enum status collect_keys(struct serve_keys *keys, struct err *err) {
    if (serve_args.api_key_file != NULL)
        TRY(read_key_file(keys, err));
    if (serve_args.api_key != NULL && *serve_args.api_key == '\0')
        return err_set(err, ST_BAD_INPUT, "--api-key: an empty key keeps nobody out");
    if (serve_args.api_key != NULL && keys->n == SERVE_KEYS_MAX)
        return err_set(err, ST_BAD_INPUT, "--api-key: more than %d keys", SERVE_KEYS_MAX);
    if (serve_args.api_key != NULL)
        keys->list[keys->n++] = serve_args.api_key;
    return ST_OK;
}

static enum status check_names(const char *address, struct err *err) {
    if (*address == '\0')
        return err_set(err, ST_BAD_INPUT, "--host is empty: 0.0.0.0 is every address");
    if (serve_args.alias != NULL && *serve_args.alias == '\0')
        return err_set(err, ST_BAD_INPUT, "--alias is empty: the model needs a name");
    char *name = serve_args.alias != NULL ? mem_strdup(serve_args.alias)
                                          : model_name_of(session_args.model);
    bool is_text =
        name == NULL || utf8_valid_prefix((const uint8_t *)name, strlen(name)) == strlen(name);
    mem_free(name);
    if (!is_text)
        return err_set(err, ST_BAD_INPUT,
                       "the model's name is not UTF-8: give it another with --alias");
    if (serve_args.cors != NULL && !str_eq(serve_args.cors, "*") &&
        !str_eq(serve_args.cors, "null") && strstr(serve_args.cors, "://") == NULL)
        return err_set(err, ST_BAD_INPUT,
                       "--cors %s: expected an origin, as http://localhost:3000, or \"*\"",
                       serve_args.cors);
    return ST_OK;
}

enum status serve_check(struct serve_keys *keys, const char *address, struct err *err) {
    *keys = (struct serve_keys){.n = 0};
    TRY(check_names(address, err));
    enum status st = collect_keys(keys, err);
    if (st == ST_OK && keys->n == 0 && !serve_args.insecure && !is_local(address))
        st = err_set(err, ST_BAD_INPUT,
                     "%s is a public address: give --api-key-file, or --insecure if everybody "
                     "may",
                     address);
    if (st == ST_OK)
        warn_of_listeners(keys, address);
    else
        serve_keys_deinit(keys);
    return st;
}

void serve_keys_deinit(struct serve_keys *keys) {
    mem_free(keys->text);
    keys->text = NULL;
}

/* ---- serving ----------------------------------------------------------------------------- */

static int interrupted[2]; /* a pipe: the signal handler writes, serve() reads */

static void interrupt(void *arg) {
    (void)arg;
    ssize_t n = write(interrupted[1], "", 1);
    (void)n;
}

static enum status check_model_files(struct server *s, struct err *err) {
    struct engine_stats stats;
    service_stats(server_service(s), &stats);
    return stats.hopeless ? err_set(err, ST_BAD_INPUT, "%s", stats.why) : ST_OK;
}

/* For a signal, or (--until-eof) the end of the standard input; what comes there is nothing to
 * us. ST_BAD_INPUT: the model's files are not what they were. */
static enum status wait_for_end(struct server *s, struct err *err) {
    struct pollfd fds[] = {{.fd = interrupted[0], .events = POLLIN},
                           {.fd = until_eof ? STDIN_FILENO : -1, .events = POLLIN}};
    char bytes[256];
    for (;;) {
        int n = poll(fds, ARRAY_LEN(fds), LOOK_MS);
        if (n < 0 && errno != EINTR)
            return ST_OK;
        if (n > 0 && (fds[0].revents != 0 ||
                      (fds[1].revents != 0 && read(STDIN_FILENO, bytes, sizeof bytes) <= 0)))
            return ST_OK;
        TRY(check_model_files(s, err));
    }
}

/* On the engine's thread. A gateway that passed a request on asks the next server. The
 * connection of a direct client breaks. */
static void end_at_once(const char *why) {
    fprintf(stderr, "lockstep serve: %s\n", why);
    _exit(status_exit_code(ST_PEER_LOST));
}

static int fill(struct server_config *cfg, const struct serve_keys *keys) {
    server_config_init(cfg);
    struct engine_config *e = &cfg->service.engine;
    e->model = session_lockstep_options(0);
    int status = session_place(&e->model);
    e->kv_memory_bytes = (size_t)kv_memory;
    e->n_running_max = n_parallel;
    e->n_queue_max = n_queue;
    e->no_speculation = no_speculation;
    cfg->service.name = serve_args.alias;
    cfg->service.restart = restart;
    e->on_lost = until_lost ? end_at_once : NULL;
    cfg->http.host = host;
    cfg->http.port = serve_args.port;
    cfg->http.max_connections = n_parallel + n_queue + SPARE_CONNECTIONS;
    cfg->http.tls_cert_path = serve_args.tls_cert;
    cfg->http.tls_key_path = serve_args.tls_key;
    cfg->http.local_only = keys->n == 0 && !serve_args.insecure;
    cfg->http.cors_origin = serve_args.cors;
    cfg->http.cors_local = true;
    cfg->http.api_keys = keys->list;
    cfg->http.n_api_keys = keys->n;
    if (serve_args.log_requests != NULL)
        cfg->http.log =
            str_eq(serve_args.log_requests, "json") ? serve_log_json : serve_log_text;
    return status;
}

static void say_model(const struct service_facts *f) {
    if (session_args.quiet)
        return;
    if (f->placement[0] != '\0')
        fprintf(stderr, "placement: %s\n", f->placement);
    fprintf(stderr, "%s: %s, %s, %.3g M parameters, context %d, %d rank%s, tool calls: %s\n",
            f->name, f->architecture, f->type, (double)f->n_params * 1e-6, f->n_ctx, f->n_ranks,
            f->n_ranks == 1 ? "" : "s", f->chat_format);
}

static void say_limit(const struct server *s, int wanted) {
    if (server_max_connections(s) < wanted && !session_args.quiet)
        fprintf(
            stderr,
            "only %d connections at once instead of %d, since open files are limited (ulimit -Hn): "
            "others wait outside the queue\n",
            server_max_connections(s), wanted);
}

static int say_address(struct server *s) {
    char address[512], url[sizeof address + 8];
    bool tls = serve_args.tls_cert != NULL;
    const struct service_facts *f = service_facts(server_service(s));
    struct err err;
    net_join(address, sizeof address, host, server_port(s));
    snprintf(url, sizeof url, "%s://%s", tls ? "https" : "http", address);
    printf("lockstep listens on %s\n", url);
    int status = cli_flush();
    if (status != CLI_GO_ON)
        return status;
    enum status st =
        ready_say(json_pack("{s:i, s:s, s:s, s:b, s:s, s:i, s:i}", "port", server_port(s),
                            "address", host, "url", url, "tls", tls, "model", f->name, "ranks",
                            f->n_ranks, "pid", (int)getpid()),
                  &err);
    return st == ST_OK ? CLI_GO_ON : cli_fail(st, "%s", err.text);
}

static int serve(const struct serve_keys *keys) {
    struct server_config cfg;
    struct server *s;
    struct err err;
    int status = fill(&cfg, keys);
    if (status != CLI_GO_ON)
        return status;
    session_progress_begin(&cfg.service.engine.model);
    enum status st = server_open(&s, &cfg, &err);
    if (st == ST_AGAIN) {
        session_progress_end();
        st = nodes_place_again(&cfg.service.engine.model, &err);
        if (st == ST_OK)
            st = server_open(&s, &cfg, &err);
    }
    session_progress_end();
    if (st != ST_OK) {
        nodes_end();
        return cli_fail(st, "%s", err.text);
    }
    cli_on_interrupt(interrupt, NULL);
    say_model(service_facts(server_service(s)));
    say_limit(s, cfg.http.max_connections);
    status = say_address(s);
    if (status == CLI_GO_ON) {
        st = wait_for_end(s, &err);
        ready_say_stopping();
        if (st == ST_OK && !session_args.quiet)
            fprintf(stderr, "finishing the running requests; a second signal ends at once\n");
        status = st == ST_OK ? 0 : cli_fail(st, "%s", err.text);
    }
    server_close(s, FINISH_MS);
    nodes_end();
    cli_on_interrupt(NULL, NULL);
    return status;
}

int cmd_serve(int argc, char **argv) {
    struct serve_keys keys;
    struct err err;
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    program_confine();
    enum status st = ready_begin(&err);
    if (st == ST_OK)
        st = serve_check(&keys, host, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    status = pipe(interrupted) == 0
                 ? serve(&keys)
                 : cli_fail(ST_IO, "cannot make a pipe: %s", strerror(errno));
    serve_keys_deinit(&keys);
    return status;
}
