/* chat.c: lockstep chat: a conversation in the terminal, or with lines from a pipe. For every
 * answer the whole conversation goes through the chat template. The library computes only what
 * its cache does not hold yet. */
#include "base/buf.h"
#include "base/mem.h"
#include "base/program.h"
#include "base/util.h"
#include "cli/line.h"
#include "cli/session.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static const char *system_arg;
static int n_predict = -1;

static const struct cli_option options[] = {
    CLI_TEXT(0, "system", "TEXT", &system_arg, "the system message"),
    CLI_INT('n', "predict", "N", &n_predict, -1, 1 << 24,
            "at most N tokens per answer (default -1: to the end of\n"
            "the context)"),
    CLI_FLAG('q', "quiet", &session_args.quiet, "prints nothing but the answers"),
    CLI_INCLUDE(session_options),
    CLI_INCLUDE(sampling_options),
    CLI_END};

static const char commands_help[] =
    "  /help           this\n"
    "  /reset          forgets the conversation\n"
    "  /system TEXT    forgets it and sets the system message (without TEXT: none)\n"
    "  /quit, Ctrl-D   ends\n"
    "  Ctrl-C          stops an answer, or drops the line\n"
    "  A line that ends in \\ goes on with the next one; so do lines between \"\"\" and "
    "\"\"\",\n  and pasted ones.\n";

static const struct cli_command command = {
    "chat", "holds a conversation in the terminal",
    "In the conversation:\n\n"
    "  /help           the list of commands\n"
    "  /reset          forgets the conversation\n"
    "  /system TEXT    forgets it and sets the system message\n"
    "  /quit, Ctrl-D   ends; Ctrl-C stops an answer, or drops the line\n\n"
    "Arrow keys edit and find earlier lines (kept in ~/.lockstep_history). Without a terminal, "
    "each\n"
    "line of stdin is a message and the answers go to stdout.",
    options};

/* ---- the conversation -------------------------------------------------------------------- */

struct chat_session {
    struct lockstep *ls;
    struct line_reader *reader;
    struct lockstep_message *messages; /* their texts are owned */
    size_t n_messages, cap;
    struct buf answer;
    bool output_failed;
};

static bool chat_add(struct chat_session *c, const char *role, const char *content) {
    if (!mem_reserve(&c->messages, &c->cap, c->n_messages + 1, sizeof *c->messages))
        return false;
    char *copy = mem_strdup(content);
    if (copy == NULL)
        return false;
    c->messages[c->n_messages++] = (struct lockstep_message){role, copy};
    return true;
}

static void chat_drop_last(struct chat_session *c) {
    mem_free((char *)c->messages[--c->n_messages].content);
}

static bool chat_reset(struct chat_session *c, const char *system) {
    while (c->n_messages > 0)
        chat_drop_last(c);
    lockstep_reset(c->ls);
    return system == NULL || *system == '\0' || chat_add(c, "system", system);
}

/* ---- an answer ------------------------------------------------------------------------------ */

static bool on_token(void *user, int32_t id, const char *text, size_t len) {
    struct chat_session *c = user;
    (void)id;
    cli_print_text(text, len);
    c->output_failed = fflush(stdout) != 0;
    /* The library forgets a signal that came before it began. */
    return !c->output_failed && buf_add(&c->answer, text, len) && cli_interrupted() == 0;
}

static void cancel(void *ls) {
    lockstep_cancel(ls);
}

static enum lockstep_status generate(struct chat_session *c, struct lockstep_result *result,
                                     struct lockstep_error *err) {
    struct lockstep_request req;
    char *prompt;
    int32_t *ids;
    size_t len;
    lockstep_request_init(&req);
    enum lockstep_status st =
        lockstep_chat_prompt(c->ls, c->messages, c->n_messages, &prompt, &len, err);
    if (st != LOCKSTEP_OK)
        return st;
    /* The template writes the beginning-of-text token itself if the model needs one. */
    st = session_tokenize(c->ls, prompt, len, false, &ids, &req.n_ids, err);
    lockstep_free(prompt);
    if (st != LOCKSTEP_OK)
        return st;
    req.ids = ids;
    req.n_predict = n_predict;
    req.sampling = &sampling_args;
    req.on_token = on_token;
    req.user = c;
    if (cli_interrupted())
        *result = (struct lockstep_result){.stop = "cancelled"};
    else
        st = lockstep_generate(c->ls, &req, result, err);
    lockstep_free(ids);
    return st;
}

/* Whether people want what is less important to look so (no-color.org). */
static bool may_dim(void) {
    return env_get("NO_COLOR") == NULL && cli_has_escapes(STDERR_FILENO);
}

/* One turn. CLI_GO_ON, or the exit status where nothing more can come of it. */
static int answer(struct chat_session *c, const char *message) {
    bool terminal = line_is_terminal(c->reader);
    struct lockstep_result result;
    struct lockstep_error err;
    if (!chat_add(c, "user", message))
        return cli_fail(ST_NO_MEMORY, "not enough memory for the conversation");
    buf_clear(&c->answer);
    if (!terminal)
        cli_on_interrupt(cancel, c->ls);
    enum lockstep_status st = generate(c, &result, &err);
    if (!terminal)
        cli_on_interrupt(NULL, NULL);
    int signal_number = cli_take_interrupt();
    if (c->answer.len > 0 || (signal_number != 0 && terminal))
        putchar('\n');
    int status = cli_flush();
    if (status != CLI_GO_ON)
        return status;
    if (signal_number == SIGTERM || (signal_number == SIGINT && !terminal))
        return 130;
    if (st != LOCKSTEP_OK) {
        /* A message that does not fit, or that the template refuses, is forgotten; /reset
         * helps. */
        status = session_fail(st, &err);
        chat_drop_last(c);
        return st == LOCKSTEP_BAD_INPUT && terminal ? CLI_GO_ON : status;
    }
    bool dims = may_dim();
    if (!session_args.quiet && terminal)
        fprintf(stderr, "%s[%zu + %zu tokens, first after %.2f s, then %.1f tokens/s%s]%s\n",
                dims ? "\033[2m" : "", result.n_prompt, result.n_generated, result.prompt_s,
                session_rate(session_generated(&result), result.generate_s),
                str_eq(result.stop, "context") ? "; the context is full: /reset" : "",
                dims ? "\033[0m" : "");
    if (!chat_add(c, "assistant", buf_cstr(&c->answer)))
        return cli_fail(ST_NO_MEMORY, "not enough memory for the conversation");
    return CLI_GO_ON;
}

/* ---- the loop ---------------------------------------------------------------------------- */

/* One line that begins with '/'. CLI_GO_ON, or the exit status. */
static int obey(struct chat_session *c, const char *line) {
    if (str_eq(line, "/quit") || str_eq(line, "/exit") || str_eq(line, "/bye"))
        return 0;
    if (str_eq(line, "/help") || str_eq(line, "/?")) {
        fputs(commands_help, stderr);
        return CLI_GO_ON;
    }
    bool ok = true;
    if (str_eq(line, "/reset"))
        ok = chat_reset(c, system_arg);
    else if (str_eq(line, "/system") || str_starts(line, "/system "))
        ok = chat_reset(c, line + strlen("/system") + (line[strlen("/system")] == ' '));
    else
        fprintf(stderr, "unknown command %s; /help lists them\n", line);
    return ok ? CLI_GO_ON : cli_fail(ST_NO_MEMORY, "not enough memory for the conversation");
}

static int converse(struct chat_session *c) {
    const char *line;
    size_t len;
    if (!chat_reset(c, system_arg))
        return cli_fail(ST_NO_MEMORY, "not enough memory for the conversation");
    /* At a terminal Ctrl-C applies to the line or the answer. Elsewhere nothing would wake a
     * thread that waits for a line. So a signal ends the program there; in the middle of an
     * answer, in an orderly way. */
    bool terminal = line_is_terminal(c->reader);
    if (terminal)
        cli_outlive_interrupts();
    else
        cli_on_interrupt(NULL, NULL);
    if (!terminal && cli_interrupted())
        return 130;
    if (terminal && !session_args.quiet)
        fprintf(stderr, "/help lists the commands; Ctrl-D ends.\n");
    for (;;) {
        enum line_result got = line_read(c->reader, "> ", &line, &len);
        if (got == LINE_FAILED)
            return cli_fail(ST_IO, "cannot read the message: %s", strerror(errno));
        if (got == LINE_END || got == LINE_TERMINATED)
            return got == LINE_END ? 0 : 130;
        if (got == LINE_OK && strlen(line) != len)
            return cli_fail(ST_BAD_INPUT, "the message has a NUL byte: it is not text");
        if (got == LINE_INTERRUPTED || line[strspn(line, " \t\n")] == '\0')
            continue;
        int status = line[0] == '/' ? obey(c, line) : answer(c, line);
        if (status != CLI_GO_ON)
            return status;
    }
}

static int chat(struct lockstep *ls) {
    struct chat_session c = {.ls = ls};
    struct err err;
    char history[4096] = "";
    const char *home = getenv("HOME");
    if (home != NULL)
        snprintf(history, sizeof history, "%s/.lockstep_history", home);
    enum status st = line_open(&c.reader, home != NULL ? history : NULL, &err);
    int status = st == ST_OK ? converse(&c) : cli_fail(st, "%s", err.text);
    line_close(c.reader);
    while (c.n_messages > 0)
        chat_drop_last(&c);
    mem_free(c.messages);
    buf_free(&c.answer);
    return status;
}

/* The editor counts characters, not bytes, and drops what its locale does not know. */
static void use_utf8(void) {
    static const char *const names[] = {"", "C.UTF-8", "UTF-8", "en_US.UTF-8"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (setlocale(LC_CTYPE, names[i]) != NULL && str_eq(nl_langinfo(CODESET), "UTF-8"))
            return;
}

int cmd_chat(int argc, char **argv) {
    struct lockstep *ls = NULL;
    sampling_defaults();
    use_utf8();
    int status = cli_parse(&command, argc, argv);
    if (status == CLI_GO_ON)
        status = session_open(&ls, 0);
    if (status == CLI_GO_ON)
        status = session_say(ls);
    if (status == CLI_GO_ON)
        status = chat(ls);
    if (ls != NULL)
        session_close(ls);
    return status;
}
