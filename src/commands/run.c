/* run.c: lockstep run: one prompt, one answer, streamed to stdout. Statistics go to stderr. */
#include "base/buf.h"
#include "base/file.h"
#include "base/util.h"
#include "cli/session.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define PROMPT_MAX ((size_t)64 << 20) /* bytes, many times what the longest context holds */

static const char *prompt_arg, *file_arg, *system_arg;
static int n_predict = -1;
static bool raw, chat, ignore_end;

static const struct cli_option options[] = {
    CLI_COMMON(
        "prompt,file,predict,system,json,quiet,ranks,device,nodes,failover,ctx,temp,seed"),
    CLI_TEXT('p', "prompt", "TEXT", &prompt_arg,
             "the prompt; without one, and without -f, it is read from\n"
             "stdin"),
    CLI_TEXT('f', "file", "FILE", &file_arg, "reads the prompt from FILE"),
    CLI_INT('n', "predict", "N", &n_predict, -1, 1 << 24,
            "at most N new tokens (default -1: to the end of the\n"
            "context)"),
    CLI_FLAG(0, "raw", &raw, "continues the prompt as it is, without the chat template"),
    CLI_FLAG(0, "chat", &chat,
             "uses a chat template even if the file has none\n"
             "(ChatML)"),
    CLI_TEXT(0, "system", "TEXT", &system_arg, "the system message of the chat"),
    CLI_FLAG(0, "ignore-end", &ignore_end, "continues after an end token"),
    CLI_FLAG(0, "json", &session_args.json, "prints one JSON object instead of the text"),
    CLI_FLAG('q', "quiet", &session_args.quiet, "prints the answer only"),
    CLI_INCLUDE(session_options),
    CLI_ARG_MAY("PROMPT", &prompt_arg, "the prompt, as with -p"),
    CLI_INCLUDE(sampling_options),
    CLI_END};

static const struct cli_command command = {
    "run", "answers a prompt",
    "If the file has a chat template, the prompt is one user message of it. With --raw, or\n"
    "without a template, the text continues the prompt as it is.\n"
    "\n"
    "The text goes to stdout as it is made. Speeds and what each rank holds go to stderr. The\n"
    "same model, prompt and seed give the same text on any number of ranks.\n"
    "\n"
    "  lockstep run model.gguf \"What is a bit bucket?\" --split 3,2,1 --temp 0",
    options};

/* The answer as it comes: printed at once, or collected for --json. */
struct answer {
    struct buf text;
    size_t len; /* bytes that came */
    json_t *ids;
    bool output_failed;
};

static bool on_token(void *user, int32_t id, const char *text, size_t len) {
    struct answer *a = user;
    a->len += len;
    if (session_args.json) {
        json_array_append_new(a->ids, json_integer(id));
        return buf_add(&a->text, text, len) && cli_interrupted() == 0;
    }
    cli_print_text(text, len);
    a->output_failed = fflush(stdout) != 0;
    return !a->output_failed && cli_interrupted() == 0;
}

/* ---- the prompt -------------------------------------------------------------------------- */

/* CLI_GO_ON, or the exit status. */
static int read_all(struct buf *text, FILE *f, const char *name) {
    struct err err;
    enum status st = file_read_rest(text, f, name, PROMPT_MAX, &err);
    return st == ST_OK ? CLI_GO_ON : cli_fail(st, "%s", err.text);
}

/* The same. */
static int read_prompt(struct buf *text) {
    int status = CLI_GO_ON;
    if (prompt_arg != NULL && file_arg != NULL)
        return cli_fail(ST_BAD_INPUT, "-p and -f exclude each other");
    if (raw && (chat || system_arg != NULL))
        return cli_fail(ST_BAD_INPUT, "--raw and --%s exclude each other",
                        chat ? "chat" : "system");
    if (prompt_arg != NULL) {
        if (!buf_add_str(text, prompt_arg))
            status = cli_fail(ST_NO_MEMORY, "not enough memory for the prompt");
    } else if (file_arg != NULL && !str_eq(file_arg, "-")) {
        FILE *f = fopen(file_arg, "rb");
        if (f == NULL)
            return cli_fail(errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", file_arg,
                            strerror(errno));
        status = read_all(text, f, file_arg);
        fclose(f);
    } else {
        if (isatty(STDIN_FILENO))
            fprintf(stderr, "(the prompt; Ctrl-D ends it)\n");
        status = read_all(text, stdin, "stdin");
        while (status == CLI_GO_ON && text->len > 0 && text->bytes[text->len - 1] == '\n')
            text->bytes[--text->len] = '\0';
    }
    return status;
}

static enum lockstep_status encode(struct lockstep *ls, const char *text, size_t len,
                                   int32_t **ids, size_t *n_ids, struct lockstep_error *err) {
    bool as_chat = chat || (lockstep_model_info(ls)->has_chat_template && !raw);
    if (!as_chat && system_arg != NULL) {
        snprintf(err->text, sizeof err->text,
                 "--system: the model has no chat template (--chat takes ChatML)");
        return LOCKSTEP_BAD_INPUT;
    }
    if (as_chat && memchr(text, '\0', len) != NULL) {
        snprintf(err->text, sizeof err->text, "the prompt has a NUL byte: it is not text");
        return LOCKSTEP_BAD_INPUT;
    }
    if (!as_chat)
        return session_tokenize(ls, text, len, true, ids, n_ids, err);
    const struct lockstep_message messages[] = {{"system", system_arg}, {"user", text}};
    size_t first = system_arg == NULL;
    char *prompt;
    size_t prompt_len;
    enum lockstep_status st =
        lockstep_chat_prompt(ls, messages + first, 2 - first, &prompt, &prompt_len, err);
    if (st != LOCKSTEP_OK)
        return st;
    /* The template writes the beginning-of-text token itself if the model needs one. */
    st = session_tokenize(ls, prompt, prompt_len, false, ids, n_ids, err);
    lockstep_free(prompt);
    return st;
}

/* ---- the answer -------------------------------------------------------------------------- */

static void say_speed(const struct lockstep_result *r) {
    if (session_args.quiet)
        return;
    fflush(stdout);
    if (n_predict == 0) {
        fprintf(stderr, "\nprompt: %zu tokens, no answer was asked for\n", r->n_prompt);
        return;
    }
    fprintf(stderr, "\nprompt: %zu tokens, first token after %.3f s (%.1f tokens/s)\n",
            r->n_prompt, r->prompt_s,
            session_rate((double)(r->n_prompt - r->n_cached), r->prompt_s));
    fprintf(stderr, "answer: %zu tokens, %.1f tokens/s, ended by: %s\n", r->n_generated,
            session_rate(session_generated(r), r->generate_s), r->stop);
}

static int print_json(struct lockstep *ls, struct answer *a, const struct lockstep_result *r) {
    json_t *o = session_json(ls);
    json_t *mine =
        json_pack("{s:s%, s:O, s:s, s:I, s:I, s:f, s:f, s:f, s:I}", "text", buf_cstr(&a->text),
                  a->text.len, "ids", a->ids, "stop", r->stop, "prompt_tokens",
                  (json_int_t)r->n_prompt, "generated_tokens", (json_int_t)r->n_generated,
                  "time_to_first_token_s", r->prompt_s, "prompt_tokens_per_s",
                  n_predict != 0 ? session_rate((double)r->n_prompt, r->prompt_s) : 0,
                  "gen_tokens_per_s", session_rate(session_generated(r), r->generate_s), "seed",
                  (json_int_t)sampling_args.seed);
    json_object_update(o, mine);
    json_decref(mine);
    return cli_print_json(o);
}

static int answer(struct lockstep *ls, const char *text, size_t len) {
    struct lockstep_request req;
    struct lockstep_result result;
    struct lockstep_error err;
    struct answer a = {.ids = json_array()};
    int32_t *ids = NULL;
    lockstep_request_init(&req);
    enum lockstep_status st = encode(ls, text, len, &ids, &req.n_ids, &err);
    req.ids = ids;
    req.n_predict = n_predict;
    req.ignore_end = ignore_end;
    req.sampling = &sampling_args;
    req.on_token = on_token;
    req.user = &a;
    /* The library forgets a signal that came before it began. */
    if (cli_interrupted())
        result = (struct lockstep_result){.n_prompt = req.n_ids, .stop = "cancelled"};
    else if (st == LOCKSTEP_OK)
        st = lockstep_generate(ls, &req, &result, &err);
    int status = 0;
    if (!session_args.json && a.len > 0)
        putchar('\n');
    if (st != LOCKSTEP_OK)
        status = session_fail(st, &err);
    else if (a.output_failed)
        status = cli_flush();
    else if (session_args.json)
        status = print_json(ls, &a, &result);
    if (status == 0)
        say_speed(&result);
    if (status == 0 && cli_interrupted())
        status = 130;
    lockstep_free(ids);
    json_decref(a.ids);
    buf_free(&a.text);
    return status;
}

int cmd_run(int argc, char **argv) {
    sampling_defaults();
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    struct buf text = {0};
    struct lockstep *ls = NULL;
    status = read_prompt(&text);
    if (status == CLI_GO_ON)
        status = session_open(&ls, 0);
    if (status == CLI_GO_ON)
        status = session_say(ls);
    if (status == CLI_GO_ON)
        status = answer(ls, text.bytes, text.len);
    if (ls != NULL)
        session_close(ls);
    buf_free(&text);
    return status;
}
