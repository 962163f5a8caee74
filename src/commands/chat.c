/* chat.c: lockstep chat: a conversation in the terminal, or with lines from a pipe. The model of
 * this process answers, or a running server. */
#include "base/mem.h"
#include "base/program.h"
#include "base/util.h"
#include "cli/ask_server.h"
#include "cli/model_names.h"
#include "cli/session.h"
#include "cli/style.h"
#include "view/line.h"
#include "view/servers_here.h"
#include "view/talkers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static const char *system_arg, *server_arg, *key_arg, *model_arg;
static bool local_arg;
static int n_predict = -1;

static const struct cli_option options[] = {
    CLI_COMMON(
        "system,predict,quiet,server,api-key,local,ranks,device,nodes,failover,ctx,temp,seed"),
    CLI_ARG_MAY("MODEL", &model_arg,
                CLI_MODEL_HELP ".\nDefault: what is up on this machine, if that is one model.\n"
                               "With --server: its name there (default: the first)"),
    CLI_TEXT(0, "system", "TEXT", &system_arg, "the system message"),
    CLI_INT('n', "predict", "N", &n_predict, -1, 1 << 24,
            "at most N tokens per answer (default -1: to the end of\n"
            "the context)"),
    CLI_FLAG('q', "quiet", &session_args.quiet, "prints nothing but the answers"),
    CLI_HEADING("a running server"),
    CLI_TEXT(0, "server", "URL[,URL..]", &server_arg,
             "asks this server (lockstep serve, or a node's port of\n"
             "lockstep up) and opens no model: host, host:port or a\n"
             "URL. Several are nodes of one cluster: if the first is\n"
             "lost, the next one goes on"),
    CLI_TEXT(0, "api-key", "KEY", &key_arg,
             "the server's key (or $LOCKSTEP_API_KEY, which other\n"
             "users of this machine do not see)"),
    CLI_FLAG(0, "local", &local_arg, "opens the model here, even if it is up on this machine"),
    CLI_INCLUDE(session_how_options),
    CLI_INCLUDE(sampling_options),
    CLI_END};

#define COMMANDS                                                                          \
    "  /help             this list\n"                                                     \
    "  /set NAME VALUE   a setting: temp, top-k, seed...; /set alone lists them\n"        \
    "  /system TEXT      begins again with this system message (without TEXT: none)\n"    \
    "  /reset            begins again\n"                                                  \
    "  /regen            answers the last message again, with the next seed\n"            \
    "  /save FILE        keeps the conversation and the settings in a file\n"             \
    "  /load FILE        goes on with what such a file has\n"                             \
    "  /quit, Ctrl-D     ends; Ctrl-C stops an answer, or drops the line\n"               \
    "  Alt-Enter begins another line of the message. So does a \\ at a line's end, and\n" \
    "  lines between \"\"\" and \"\"\" are one message. Pasted lines stay together.\n"

static const struct cli_command command = {
    "chat", "holds a conversation in the terminal",
    "If a node or a server on this machine has the model up, that one answers, unless an option\n"
    "says how to open it (--local does so and nothing else).\n\n"
    "In the conversation:\n\n" COMMANDS
    "\nArrow keys edit and find earlier lines (kept in ~/.lockstep_history). Without a terminal, "
    "each\n"
    "line of stdin is a message and the answers go to stdout, without thoughts.",
    options};

/* ---- an answer ------------------------------------------------------------------------------ */

struct chat_session {
    struct talk talk;
    struct line_reader *reader;
};

static void nothing(void *arg) {
    (void)arg;
}

static void cancel(void *ls) {
    lockstep_cancel(ls);
}

static struct lockstep *opened; /* NULL: a server answers */

static void say_speed(const struct chat_session *c, const struct talk_answer *a) {
    double rest = a->n_generated > 1 ? (double)a->n_generated - 1 : 0;
    if (session_args.quiet || !line_is_terminal(c->reader))
        return;
    if (a->told[0] != '\0')
        fprintf(stderr, "%s[%s]%s\n", style_text(STDERR_FILENO, STYLE_WARN), a->told,
                style_text(STDERR_FILENO, STYLE_NONE));
    fprintf(stderr, "%s[%zu + %zu tokens, first after %.2f s, then %.1f tokens/s%s]%s\n",
            style_text(STDERR_FILENO, STYLE_DIM), a->n_prompt, a->n_generated, a->first_s,
            session_rate(rest, a->rest_s), a->full ? "; the context is full: /reset" : "",
            style_text(STDERR_FILENO, STYLE_NONE));
}

/* What an answer's end means. CLI_GO_ON, or the exit status where nothing more can come of it. */
static int conclude(struct chat_session *c, enum status st, const struct talk_answer *a,
                    struct err *err) {
    bool terminal = line_is_terminal(c->reader);
    int signal_number = cli_take_interrupt();
    if (a->text.len + a->thoughts.len > 0 || (signal_number != 0 && terminal))
        putchar('\n');
    int status = cli_flush();
    if (status != CLI_GO_ON)
        return status;
    if (signal_number == SIGTERM || (signal_number == SIGINT && !terminal))
        return 130;
    if (st != ST_OK) {
        /* A message that does not fit, or that the template refuses, is forgotten; /reset
         * helps. A server may be back for the next one. */
        bool goes_on = st == ST_BAD_INPUT || c->talk.talker->is_server;
        status = cli_fail(st, "%s", err->text);
        talk_drop_last(&c->talk);
        return goes_on && terminal ? CLI_GO_ON : status;
    }
    say_speed(c, a);
    st = talk_add_answer(&c->talk, a, err);
    return st == ST_OK ? CLI_GO_ON : cli_fail(st, "%s", err->text);
}

/* To the last message. */
static int answer(struct chat_session *c) {
    bool terminal = line_is_terminal(c->reader);
    struct talk_answer a = {.n_prompt = 0};
    struct writer w;
    struct err err;
    if (!terminal)
        cli_on_interrupt(opened != NULL ? cancel : nothing, opened);
    writer_begin(&w);
    enum status st = c->talk.talker->answer(c->talk.talker, &c->talk, &w, &a, &err);
    writer_end(&w);
    if (!terminal)
        cli_on_interrupt(NULL, NULL);
    int status = conclude(c, st, &a, &err);
    buf_free(&a.text);
    buf_free(&a.thoughts);
    return status;
}

static int answer_to(struct chat_session *c, const char *message, size_t n) {
    struct err err;
    enum status st = talk_add(&c->talk, "user", message, n, &err);
    if (st == ST_OK)
        return answer(c);
    int status = cli_fail(st, "%s", err.text);
    return line_is_terminal(c->reader) ? CLI_GO_ON : status;
}

/* ---- commands ---------------------------------------------------------------------------- */

static int regenerate(struct chat_session *c) {
    if (!talk_reopen(&c->talk)) {
        fprintf(stderr, "there is no answer yet\n");
        return CLI_GO_ON;
    }
    sampling_args.seed++;
    if (sampling_args.temperature <= 0)
        fprintf(stderr, "with temp 0 the answer is the same: /set temp 0.8\n");
    return answer(c);
}

static enum status set(struct chat_session *c, const char *words, struct err *err) {
    char name[64], value[64];
    int end = 0;
    if (*words == '\0') {
        talk_print_settings(&c->talk);
        return ST_OK;
    }
    if (sscanf(words, "%63s %63s %n", name, value, &end) != 2 || words[end] != '\0')
        return err_set(err, ST_BAD_INPUT, "expected /set NAME VALUE, such as /set temp 0.5");
    return talk_set(&c->talk, name, value, err);
}

/* What follows a command's name; NULL: it is another command. */
static const char *argument(const char *line, const char *name) {
    size_t n = strlen(name);
    if (!str_starts(line, name) || (line[n] != '\0' && line[n] != ' '))
        return NULL;
    return line + n + strspn(line + n, " ");
}

static enum status keep(struct chat_session *c, const char *path, bool load, struct err *err) {
    if (*path == '\0')
        return err_set(err, ST_BAD_INPUT, "expected the name of a file");
    TRY(load ? talk_load(&c->talk, path, err) : talk_save(&c->talk, path, err));
    if (!session_args.quiet)
        fprintf(stderr, "%zu messages %s %s\n", json_array_size(c->talk.messages),
                load ? "from" : "in", path);
    return ST_OK;
}

/* One line that begins with '/'. CLI_GO_ON, or the exit status. */
static int obey(struct chat_session *c, const char *line) {
    const char *rest;
    struct err err;
    enum status st = ST_OK;
    if (str_eq(line, "/quit") || str_eq(line, "/exit") || str_eq(line, "/bye"))
        return 0;
    if (str_eq(line, "/regen"))
        return regenerate(c);
    if (str_eq(line, "/help") || str_eq(line, "/?"))
        fputs(COMMANDS, stderr);
    else if (str_eq(line, "/reset"))
        st = talk_reset(&c->talk, system_arg, &err);
    else if ((rest = argument(line, "/system")) != NULL)
        st = talk_reset(&c->talk, rest, &err);
    else if ((rest = argument(line, "/set")) != NULL)
        st = set(c, rest, &err);
    else if ((rest = argument(line, "/save")) != NULL)
        st = keep(c, rest, false, &err);
    else if ((rest = argument(line, "/load")) != NULL)
        st = keep(c, rest, true, &err);
    else
        fprintf(stderr, "unknown command %s; /help lists them\n", line);
    if (st == ST_OK)
        return CLI_GO_ON;
    int status = cli_fail(st, "%s", err.text);
    return line_is_terminal(c->reader) ? CLI_GO_ON : status;
}

/* ---- the loop ---------------------------------------------------------------------------- */

/* At a terminal Ctrl-C applies to the line or the answer. Elsewhere nothing would wake a thread
 * that waits for a line. So a signal ends the program there; in the middle of an answer, in an
 * orderly way. */
static int begin(struct chat_session *c) {
    bool terminal = line_is_terminal(c->reader);
    struct err err;
    enum status st = talk_reset(&c->talk, system_arg, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    if (terminal) {
        cli_on_interrupt(opened != NULL ? cancel : nothing, opened);
        cli_outlive_interrupts();
    } else {
        cli_on_interrupt(NULL, NULL);
    }
    if (!terminal && cli_interrupted())
        return 130;
    if (terminal && !session_args.quiet)
        fprintf(stderr, "/help lists the commands; Alt-Enter or \"\"\" for several lines; "
                        "Ctrl-D ends.\n");
    return CLI_GO_ON;
}

static int converse(struct chat_session *c) {
    const char *line;
    size_t len;
    int status = begin(c);
    while (status == CLI_GO_ON) {
        enum line_result got = line_read(c->reader, "> ", &line, &len);
        if (got == LINE_FAILED)
            return cli_fail(ST_IO, "cannot read the message: %s", strerror(errno));
        if (got == LINE_END || got == LINE_TERMINATED)
            return got == LINE_END ? 0 : 130;
        if (got == LINE_OK && strlen(line) != len)
            return cli_fail(ST_BAD_INPUT, "the message has a NUL byte: it is not text");
        if (got == LINE_INTERRUPTED || line[strspn(line, " \t\n")] == '\0')
            continue;
        status = line[0] == '/' ? obey(c, line) : answer_to(c, line, len);
    }
    return status;
}

static int chat(struct talker *talker) {
    struct chat_session c = {.reader = NULL};
    struct err err;
    char history[4096] = "";
    const char *home = getenv("HOME");
    if (home != NULL)
        snprintf(history, sizeof history, "%s/.lockstep_history", home);
    enum status st = talk_begin(&c.talk, talker, &sampling_args, &n_predict, &err);
    if (st == ST_OK)
        st = line_open(&c.reader, home != NULL ? history : NULL, &err);
    int status = st == ST_OK ? converse(&c) : cli_fail(st, "%s", err.text);
    line_close(c.reader);
    talk_end(&c.talk);
    return status;
}

/* ---- who answers ------------------------------------------------------------------------- */

/* found: it was not asked for. */
static int chat_with_server(const char *urls, const char *model, bool found) {
    struct talker *talker;
    struct err err;
    cli_on_interrupt(nothing, NULL);
    enum status st = talk_server_open(&talker, urls, model, key_arg, &err);
    if (st != ST_OK)
        return cli_interrupted() ? 130 : cli_fail(st, "%s", err.text);
    if (!session_args.quiet)
        fprintf(stderr, "%s%s answers at %s%s\n", talker->model,
                found ? " is up on this machine and" : "", talk_server_url(talker),
                found && model_arg != NULL ? " (--local opens it here)" : "");
    int status = chat(talker);
    talk_server_close(talker);
    cli_on_interrupt(NULL, NULL);
    return status;
}

static int chat_here(void) {
    struct talker *talker;
    struct err err;
    int status = session_open(&opened, 0);
    if (status == CLI_GO_ON)
        status = session_say(opened);
    if (status == CLI_GO_ON) {
        enum status st = talk_local_open(&talker, opened, session_args.model, &err);
        status = st == ST_OK ? chat(talker) : cli_fail(st, "%s", err.text);
        if (st == ST_OK)
            talk_local_close(talker);
    }
    if (opened != NULL)
        session_close(opened);
    return status;
}

static bool is_alone(const struct server_here *list, size_t n, size_t i) {
    for (size_t k = 0; k < n; k++)
        if (k != i && str_eq(list[k].model, list[i].model))
            return false;
    return true;
}

/* The command line for each. Its name alone finds one that answers. */
static int say_which(const struct server_here *list, size_t n) {
    int status =
        n > 1 ? cli_fail(ST_BAD_INPUT, "%zu models are up on this machine: say which one", n)
              : cli_fail(ST_BAD_INPUT,
                         "%s is up on this machine with TLS: say the name in its certificate",
                         list->model);
    for (size_t i = 0; i < n; i++) {
        const struct server_here *one = &list[i];
        bool ready = server_here_answers(one->state);
        fprintf(stderr, "    lockstep chat ");
        if (one->tls)
            fprintf(stderr, "--server https://NAME%s ", strrchr(one->url, ':'));
        else if (!ready || !is_alone(list, n, i))
            fprintf(stderr, "--server %s ", one->url);
        fprintf(stderr, ready ? "%s\n" : "%s    (%s)\n", one->model, one->state);
    }
    return status;
}

static int say_none(void) {
    return cli_fail(ST_NOT_FOUND,
                    "no model is up on this machine: lockstep chat MODEL opens one "
                    "here (a file, or a name that lockstep models lists), lockstep "
                    "up MODEL puts one up, and --server HOST:PORT asks another "
                    "machine's server");
}

/* Without MODEL: what is up on this machine, if that is one model. */
static int chat_with_what_is_up(void) {
    struct server_here *list;
    struct err err;
    size_t n;
    if (local_arg || session_says_how())
        return cli_fail(ST_BAD_INPUT, "MODEL is missing; see lockstep chat --help");
    enum status st = servers_here(&list, &n, key_arg, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    int status = n == 0                 ? say_none()
                 : n == 1 && !list->tls ? chat_with_server(list->url, list->model, true)
                                        : say_which(list, n);
    mem_free(list);
    return status;
}

static int chat_with_model(void) {
    struct server_here found;
    struct err err;
    session_args.word = model_arg;
    if (!local_arg && !session_says_how() && servers_here_find(&found, model_arg, key_arg))
        return chat_with_server(found.url, found.model, true);
    session_args.model = model_arg;
    enum status st = models_here(&session_args.model, &err);
    return st == ST_OK ? chat_here() : cli_fail(st, "%s", err.text);
}

static int chat_somewhere(void) {
    if (server_arg == NULL)
        return model_arg != NULL ? chat_with_model() : chat_with_what_is_up();
    if (local_arg || session_says_how())
        return cli_fail(ST_BAD_INPUT, "--server opens no model: not with options that say "
                                      "how to open one");
    return chat_with_server(server_arg, model_arg, false);
}

int cmd_chat(int argc, char **argv) {
    sampling_defaults();
    style_use_utf8();
    int status = cli_parse(&command, argc, argv);
    if (key_arg == NULL)
        key_arg = env_get("LOCKSTEP_API_KEY");
    return status == CLI_GO_ON ? chat_somewhere() : status;
}
