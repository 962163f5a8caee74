/* cli.h: what every subcommand uses: the option tables, errors, numbers, JSON, Ctrl-C.
 *
 * One file per subcommand, src/commands/NAME.c, with one entry point, cmd_NAME(argc, argv).
 * argv[0] is the subcommand's name. It returns the process's exit status:
 *
 *     0    done
 *     1    the system said no (memory, disk, a closed pipe), or a bug
 *     2    wrong usage, or a file that lockstep cannot use
 *     3    a rank was lost, or did not answer in time
 *     130  Ctrl-C
 *
 * A failure is one sentence on stderr: "lockstep run: model.gguf: no such file". Results go to
 * stdout, everything else to stderr. */
#ifndef LOCKSTEP_CLI_CLI_H
#define LOCKSTEP_CLI_CLI_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int cmd_run(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_template(int argc, char **argv);
int cmd_grammar(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_synth(int argc, char **argv);
int cmd_fabric(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_worker(int argc, char **argv);
int cmd_node(int argc, char **argv);
int cmd_nodes(int argc, char **argv);
int cmd_models(int argc, char **argv);
int cmd_fetch(int argc, char **argv);
int cmd_pull(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_up(int argc, char **argv);
int cmd_down(int argc, char **argv);
int cmd_move(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_key(int argc, char **argv);
int cmd_remote(int argc, char **argv);

/* ---- options -----------------------------------------------------------------------------
 *
 *     const char *model;
 *     bool decode = false;
 *     int n = 128;
 *     const struct cli_option table[] = {
 *         CLI_ARG("MODEL", &model, "GGUF file"),
 *         CLI_FLAG(0, "decode", &decode, "ids in, text out"),
 *         CLI_INT('n', "predict", "N", &n, 1, 1 << 20, "tokens to write (default 128)"),
 *         CLI_END};
 *     const struct cli_command cmd = {"tokenize", "text to token ids and back", NULL, table};
 *     int status = cli_parse(&cmd, argc, argv);
 *     if (status != CLI_GO_ON)
 *         return status;
 *
 * The table is the help text too (--help, and --help all; --help-man writes a man page,
 * --help-completion=SHELL what a shell completes by). Values may be written --ctx 512, --ctx=512,
 * -n 5 and -n5; "--" ends the options. Each `out` keeps its value (the default) unless the option
 * is given; a later one wins. Text stays argv's own memory, but what a find() gives. */
enum cli_kind {
    CLI_KIND_END,
    CLI_KIND_HEADING, /* name: a title in the help text */
    CLI_KIND_INCLUDE, /* out: const struct cli_option *, another table */
    CLI_KIND_WITHOUT, /* name: options that the help leaves out */
    CLI_KIND_COMMON,  /* name: options that --help shows; --help all shows the others, too */
    CLI_KIND_ARG,     /* out: const char **; a positional argument that must be there */
    CLI_KIND_ARG_MAY, /* the same, may be absent */
    CLI_KIND_FLAG,    /* out: bool *, becomes true */
    /* out: const char **, one of choices behind a '='; .usual without one */
    CLI_KIND_SWITCH,
    CLI_KIND_INT,   /* out: int *, from min to max */
    CLI_KIND_U64,   /* out: uint64_t * */
    CLI_KIND_FLOAT, /* out: float *, from min to max */
    /* out: uint64_t *, bytes: 512, 64K, 1.5M, 2G, 1T or KiB.. (powers of 1024), KB.. (of 1000) */
    CLI_KIND_SIZE,
    CLI_KIND_LIST,   /* out: struct cli_list *, "3,1,0.5": positive numbers */
    CLI_KIND_CHOICE, /* out: const char **, one of choices ("a|b|c") */
    CLI_KIND_TEXT    /* out: const char ** */
};

#define CLI_LIST_MAX 64

struct cli_list {
    size_t n;
    double value[CLI_LIST_MAX];
};

struct cli_option {
    enum cli_kind kind;
    char letter;       /* 'n' for -n; 0: none */
    const char *name;  /* "ctx" for --ctx; NULL: only the letter */
    const char *value; /* what the help calls the value: "N" */
    void *out;
    double min, max;     /* of INT, REAL, FLOAT */
    const char *choices; /* of CHOICE, SWITCH; of ARG: words for completion, or NULL */
    const char *usual;   /* of SWITCH: what it is without a value, one of choices */
    /* Of ARG: what the word means may be another (*word is argv's, and replaced); NULL: itself. */
    enum status (*find)(const char **word, struct err *err);
    const char *help; /* one sentence; '\n' begins a new line */
};

#define CLI_END \
    { .kind = CLI_KIND_END }
#define CLI_HEADING(title) \
    { .kind = CLI_KIND_HEADING, .name = (title) }
/* "a,b": options further on that the command says no to, so that its help leaves them out. */
#define CLI_WITHOUT(names) \
    { .kind = CLI_KIND_WITHOUT, .name = (names) }
/* "a,b": what people need most, so that --help has room for it. Without it, it shows all. */
#define CLI_COMMON(names) \
    { .kind = CLI_KIND_COMMON, .name = (names) }
#define CLI_INCLUDE(table) \
    { .kind = CLI_KIND_INCLUDE, .out = (void *)(table) }
#define CLI_ARG(n, o, h) \
    { .kind = CLI_KIND_ARG, .name = (n), .out = (void *)(o), .help = (h) }
#define CLI_ARG_FOUND(n, o, f, h) \
    { .kind = CLI_KIND_ARG, .name = (n), .out = (void *)(o), .find = (f), .help = (h) }
#define CLI_ARG_MAY(n, o, h) \
    { .kind = CLI_KIND_ARG_MAY, .name = (n), .out = (void *)(o), .help = (h) }
#define CLI_FLAG(l, n, o, h) \
    { .kind = CLI_KIND_FLAG, .letter = (l), .name = (n), .out = (o), .help = (h) }
#define CLI_RANGED(k, l, n, v, o, lo, hi, h)                                       \
    {                                                                              \
        .kind = (k), .letter = (l), .name = (n), .value = (v), .out = (void *)(o), \
        .min = (lo), .max = (hi), .help = (h)                                      \
    }
#define CLI_INT(l, n, v, o, lo, hi, h) CLI_RANGED(CLI_KIND_INT, l, n, v, o, lo, hi, h)
#define CLI_FLOAT(l, n, v, o, lo, hi, h) CLI_RANGED(CLI_KIND_FLOAT, l, n, v, o, lo, hi, h)
#define CLI_U64(l, n, v, o, h) CLI_RANGED(CLI_KIND_U64, l, n, v, o, 0, 0, h)
#define CLI_SIZE(l, n, v, o, h) CLI_RANGED(CLI_KIND_SIZE, l, n, v, o, 0, 0, h)
#define CLI_LIST(l, n, v, o, h) CLI_RANGED(CLI_KIND_LIST, l, n, v, o, 0, 0, h)
#define CLI_TEXT(l, n, v, o, h) CLI_RANGED(CLI_KIND_TEXT, l, n, v, o, 0, 0, h)
#define CLI_CHOICE(l, n, c, o, h)                                                \
    {                                                                            \
        .kind = CLI_KIND_CHOICE, .letter = (l), .name = (n), .out = (void *)(o), \
        .choices = (c), .help = (h)                                              \
    }

#define CLI_SWITCH(n, c, u, o, h)                                                 \
    {                                                                             \
        .kind = CLI_KIND_SWITCH, .name = (n), .out = (void *)(o), .choices = (c), \
        .usual = (u), .help = (h)                                                 \
    }

struct cli_command {
    const char *name;
    const char *summary;              /* one line, for the list of commands */
    const char *details;              /* paragraphs below the options, or NULL */
    const struct cli_option *options; /* to CLI_END */
};

/* Calls fn for each option that the help of a command with this table shows. */
void cli_each_option(const struct cli_option *table,
                     void (*fn)(const struct cli_option *o, void *arg), void *arg);

/* ---- shell completion ---------------------------------------------------------------------
 * Writes a script for shell (bash, zsh or fish) to stdout: its beginning, a part for each
 * command, its end. --help-completion=SHELL writes the whole script, or after a command only
 * that command's part. False: the shell is unknown, and nothing was written. */
struct cli_summary {
    const char *name, *summary;
};
bool cli_completion_begin(const char *shell);
void cli_completion_command(const char *shell, const struct cli_command *cmd);
void cli_completion_end(const char *shell, const struct cli_summary *commands, size_t n);
#define CLI_COMPLETION "--help-completion="

#define CLI_GO_ON (-1)

/* What the exit statuses of all commands mean. */
#define CLI_EXIT_STATUSES \
    "0 done; 1 the system said no; 2 wrong usage or an unusable file; 3 a rank was lost or silent; 130 interrupted"

/* How many letters differ; a is n letters long. */
int cli_edit_distance(const char *a, size_t n, const char *b);

/* CLI_GO_ON, or the exit status to return: 0 after --help, 2 after an error (said). */
int cli_parse(const struct cli_command *cmd, int argc, char **argv);

/* Whether another user's words are options of the table that are listed in `allowed` ("a,b"),
 * with valid values. Nothing is written. No arguments, no help. ST_BAD_INPUT. */
enum status cli_check_words(const struct cli_option *table, const char *allowed,
                            const char *const *words, size_t n, struct err *err);

/* Sets one option's `out` from a text; shown: how sentences call it. ST_BAD_INPUT, and `out` is
 * unchanged. */
enum status cli_set_option(const struct cli_option *o, const char *shown, const char *value,
                           struct err *err);

/* ---- numbers ------------------------------------------------------------------------------
 * The whole string must be the number. false leaves *out alone. */
bool cli_parse_int(const char *s, double min, double max, int *out);
bool cli_parse_size(const char *s, uint64_t *out);
bool cli_parse_time(const char *s, double *out); /* "300us", "0.3ms", "1s": seconds, > 0 */
bool cli_parse_rate(const char *s,
                    double *out); /* "819G", "40MB": a second, powers of 1000, > 0 */

/* "1.23 GB", in units of 1000; returns buf. */
const char *cli_bytes(uint64_t size_bytes, char buf[32]);

/* ---- what is said ------------------------------------------------------------------------- */

/* Which subcommand runs; name is borrowed for good. */
void cli_set_command(const char *name);

/* "lockstep NAME: " + the sentence on stderr; NAME is that subcommand. Returns
 * status_exit_code(st). */
__attribute__((format(printf, 2, 3))) int cli_fail(enum status st, const char *fmt, ...);

/* Where to report on a file that was written: stdout, or stderr where that is the file
 * (/dev/stdout). */
FILE *cli_beside(const char *path);

/* Flushes stdout; CLI_GO_ON, or 1 when it could not be written (said, unless it is a pipe that
 * its reader closed). */
int cli_flush(void);

/* fd is a terminal that escape sequences are for: TERM is neither unset nor "dumb". */
bool cli_has_escapes(int fd);

/* Writes a piece of a model's text to stdout: whole characters. On a terminal, control
 * characters other than '\n' and '\t' become "^[" and "\u009b": a model's text must not control
 * the terminal. */
void cli_print_text(const char *text, size_t n);

/* Writes one JSON value and a newline to stdout and drops the reference. The exit status. */
int cli_print_json(json_t *value);
/* A string; invalid UTF-8 bytes become "\xNN". */
json_t *cli_json_text(const char *s, size_t n);

/* ---- Ctrl-C ------------------------------------------------------------------------------- */

/* From here on the first SIGINT or SIGTERM calls fn(arg), which must be safe in a signal
 * handler. The second ends the process. fn NULL: restores the default. */
void cli_on_interrupt(void (*fn)(void *arg), void *arg);
/* From here on every SIGINT calls that fn, and none ends the process. */
void cli_outlive_interrupts(void);
/* The signal that came since the last cli_on_interrupt() with a function; 0: none. */
int cli_interrupted(void);
/* The same, and what comes from here on is the first again. */
int cli_take_interrupt(void);

#endif
