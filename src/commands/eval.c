/* eval.c: lockstep eval: feeds given tokens and writes the logits of every position. Tests
 * compare bits, and other engines, with it. */
#include "base/file.h"
#include "base/mem.h"
#include "base/util.h"
#include "cli/session.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "rows are written as they lie in memory");

static const char *ids_arg, *logits_arg;
static int n_greedy;

static const struct cli_option options[] = {
    CLI_COMMON("ids,greedy,logits,json,quiet,ranks,device,nodes,ctx"),
    CLI_TEXT(0, "ids", "1,2,3", &ids_arg,
             "the tokens to feed; @FILE reads them from FILE (with\n"
             "commas or white space between)"),
    CLI_INT(0, "greedy", "N", &n_greedy, 0, 1 << 24,
            "then makes N tokens, each the most likely one after\n"
            "the last; their ids go to stdout"),
    CLI_TEXT(0, "logits", "FILE", &logits_arg,
             "file for the logits of every position that was fed"),
    CLI_FLAG(0, "json", &session_args.json, "one JSON object on stdout"),
    CLI_FLAG('q', "quiet", &session_args.quiet, "says nothing on stderr"),
    CLI_INCLUDE(session_options),
    CLI_END};

static const struct cli_command command = {
    "eval", "writes the logits of given tokens, to compare bits",
    "The file has f32, little-endian, [n_pos, n_vocab]: row i has the logits after token i.\n"
    "With --greedy N, the first N-1 of the new tokens are fed too and have rows. So 48 ids and\n"
    "--greedy 32 give 79 rows. The file is written as FILE.part and renamed when it is\n"
    "complete. Two runs on any number of ranks give identical files: compare them with cmp.\n"
    "\n"
    "  lockstep eval model.gguf --ids 1,2,3 --greedy 8 --logits one.f32\n"
    "  lockstep eval model.gguf --ids 1,2,3 --greedy 8 --split 3,2,1 --logits three.f32\n"
    "  cmp one.f32 three.f32",
    options};

/* ---- ids --------------------------------------------------------------------------------- */

struct ids {
    int32_t *id;
    size_t n, cap;
};

static bool ids_push(struct ids *ids, int32_t id) {
    if (!mem_reserve(&ids->id, &ids->cap, ids->n + 1, sizeof *ids->id))
        return false;
    ids->id[ids->n++] = id;
    return true;
}

/* One id from stream: 1, 0 at the end, -1 if something else stands there. */
static int next_id(FILE *f, int32_t *id) {
    char word[16];
    size_t n = 0;
    int c;
    while ((c = getc(f)) == ',' || isspace(c))
        ;
    for (; c != EOF && c != ',' && !isspace(c); c = getc(f)) {
        if (n + 1 >= sizeof word)
            return -1;
        word[n++] = (char)c;
    }
    word[n] = '\0';
    return n == 0 ? 0 : cli_parse_int(word, 0, INT32_MAX, id) ? 1 : -1;
}

static int read_ids(struct ids *ids) {
    if (ids_arg == NULL || *ids_arg == '\0')
        return cli_fail(ST_BAD_INPUT, "--ids is missing; see lockstep eval --help");
    bool from_file = ids_arg[0] == '@';
    FILE *f =
        from_file ? fopen(ids_arg + 1, "rb") : fmemopen((void *)ids_arg, strlen(ids_arg), "rb");
    if (f == NULL)
        return cli_fail(errno == ENOENT ? ST_NOT_FOUND : ST_IO, "--ids %s: %s", ids_arg,
                        strerror(errno));
    int32_t id = 0;
    int got;
    while ((got = next_id(f, &id)) > 0 && ids_push(ids, id))
        ;
    int error = ferror(f) ? errno : 0;
    fclose(f);
    if (error != 0)
        return cli_fail(ST_IO, "--ids %s: %s", ids_arg, strerror(error));
    if (got < 0)
        return cli_fail(ST_BAD_INPUT, "--ids: number %zu is not a valid token id", ids->n + 1);
    if (got > 0)
        return cli_fail(ST_NO_MEMORY, "--ids: not enough memory for %zu ids", ids->n);
    if (ids->n == 0)
        return cli_fail(ST_BAD_INPUT, "--ids %s: no ids there", ids_arg);
    return CLI_GO_ON;
}

/* ---- the file of logits ------------------------------------------------------------------ */

/* All of it is zero where none is wanted. */
static int logits_open(struct file_new *out) {
    struct err err;
    enum status st = logits_arg != NULL ? file_new_open(out, logits_arg, &err) : ST_OK;
    return st == ST_OK ? CLI_GO_ON : cli_fail(st, "%s", err.text);
}

static int logits_finish(struct file_new *out) {
    struct err err;
    enum status st = out->f != NULL ? file_new_finish(out, false, &err) : ST_OK;
    return st == ST_OK ? CLI_GO_ON : cli_fail(st, "%s", err.text);
}

/* ---- feeding ----------------------------------------------------------------------------- */

struct eval {
    struct lockstep *ls;
    struct file_new out;
    size_t n_vocab, n_rows;
    int32_t best;    /* the likeliest token after the last position */
    int write_errno; /* 0: nothing failed */
};

/* The first of the largest. */
static int32_t argmax(const float *row, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (row[i] > row[best])
            best = i;
    return (int32_t)best;
}

static bool on_rows(void *user, size_t first_pos, size_t n, const float *logits) {
    struct eval *e = user;
    (void)first_pos;
    if (e->out.f != NULL && fwrite(logits, sizeof *logits * e->n_vocab, n, e->out.f) != n) {
        e->write_errno = errno;
        return false;
    }
    e->n_rows += n;
    e->best = argmax(logits + (n - 1) * e->n_vocab, e->n_vocab);
    return cli_interrupted() == 0; /* the library forgets what came between two calls */
}

static int feed(struct eval *e, const int32_t *ids, size_t n) {
    struct lockstep_error err;
    enum lockstep_status st = lockstep_eval(e->ls, ids, n, on_rows, e, &err);
    if (e->write_errno != 0) {
        struct err why;
        return cli_fail(file_new_failed(&e->out, e->write_errno, &why), "%s", why.text);
    }
    if (st == LOCKSTEP_CANCELLED && cli_interrupted())
        return 130;
    return st == LOCKSTEP_OK ? CLI_GO_ON : session_fail(st, &err);
}

/* Feeds ids, then continues greedily; the new ids go to greedy. */
static int feed_all(struct eval *e, const struct ids *ids, struct ids *greedy) {
    int status = feed(e, ids->id, ids->n);
    for (int i = 0; i < n_greedy && status == CLI_GO_ON; i++) {
        int32_t id = e->best;
        if (!ids_push(greedy, id))
            return cli_fail(ST_NO_MEMORY, "not enough memory for %d ids", n_greedy);
        if (i + 1 < n_greedy)
            status = feed(e, &id, 1);
    }
    return status;
}

/* ---- results ----------------------------------------------------------------------------- */

static int print_json(const struct eval *e, const struct ids *greedy) {
    json_t *o = session_json(e->ls), *ids = json_array();
    for (size_t i = 0; i < greedy->n; i++)
        json_array_append_new(ids, json_integer(greedy->id[i]));
    json_object_set_new(o, "greedy", ids);
    json_object_set_new(o, "positions", json_integer((json_int_t)e->n_rows));
    if (logits_arg != NULL)
        json_object_set_new(o, "logits", cli_json_text(logits_arg, strlen(logits_arg)));
    return cli_print_json(o);
}

static int print_ids(const struct ids *greedy) {
    for (size_t i = 0; i < greedy->n; i++)
        printf("%s%d", i > 0 ? "," : "", greedy->id[i]);
    if (greedy->n > 0)
        putchar('\n');
    int status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

/* The last token of --greedy is not fed. */
static int check_room(const struct lockstep *ls, const struct ids *ids) {
    size_t n = ids->n + (size_t)MAX(n_greedy - 1, 0);
    int n_ctx = lockstep_model_info(ls)->n_ctx;
    return n <= (size_t)n_ctx ? CLI_GO_ON
                              : cli_fail(ST_BAD_INPUT,
                                         "%zu ids and --greedy %d do not fit the context of %d "
                                         "(--ctx)",
                                         ids->n, n_greedy, n_ctx);
}

static int evaluate(struct lockstep *ls, const struct ids *ids) {
    struct eval e = {.ls = ls, .n_vocab = (size_t)lockstep_model_info(ls)->n_vocab};
    struct ids greedy = {0};
    int status = check_room(ls, ids);
    if (status == CLI_GO_ON)
        status = logits_open(&e.out);
    if (status == CLI_GO_ON)
        status = feed_all(&e, ids, &greedy);
    if (status == CLI_GO_ON)
        status = logits_finish(&e.out);
    file_new_drop(&e.out);
    if (status == CLI_GO_ON)
        status = session_args.json ? print_json(&e, &greedy) : print_ids(&greedy);
    mem_free(greedy.id);
    return status;
}

int cmd_eval(int argc, char **argv) {
    struct ids ids = {0};
    struct lockstep *ls = NULL;
    int status = cli_parse(&command, argc, argv);
    if (status == CLI_GO_ON)
        status = read_ids(&ids);
    session_args.output = logits_arg;
    if (status == CLI_GO_ON)
        status = session_open(&ls, 0);
    if (status == CLI_GO_ON)
        status = session_say(ls);
    if (status == CLI_GO_ON)
        status = evaluate(ls, &ids);
    if (ls != NULL)
        session_close(ls);
    mem_free(ids.id);
    return status;
}
