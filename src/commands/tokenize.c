/* tokenize.c: lockstep tokenize: text to token ids and back, on stdin and stdout. */
#include "base/file.h"
#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/model_names.h"
#include "hf/hf_folder.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    const struct tokenizer *t;
    unsigned flags; /* TOKENIZE_* */
};

struct ids {
    int32_t *v;
    size_t n, cap;
};

static enum status ids_add(struct ids *ids, const struct tokenizer *t, long long id,
                           struct err *err) {
    if (id < 0 || id >= tokenizer_facts(t)->n_tokens)
        return err_set(err, ST_BAD_INPUT, "token %lld does not exist: the vocabulary has %d",
                       id, tokenizer_facts(t)->n_tokens);
    if (!mem_reserve(&ids->v, &ids->cap, ids->n + 1, sizeof *ids->v))
        return err_set(err, ST_NO_MEMORY, "no memory for %zu ids", ids->n + 1);
    ids->v[ids->n++] = (int32_t)id;
    return ST_OK;
}

/* Decodes ids; a BOS and an EOS that tokenizing would add again are left out, so that the
 * command undoes itself. */
static enum status decode(const struct job *job, const struct ids *ids, char **text,
                          size_t *len, struct err *err) {
    const struct tokenizer_facts *f = tokenizer_facts(job->t);
    size_t begin = 0, end = ids->n;
    if ((job->flags & TOKENIZE_BOS) != 0) {
        begin = f->add_bos && end > 0 && ids->v[0] == f->bos;
        end -= f->add_eos && end > begin && ids->v[end - 1] == f->eos;
    }
    return detokenize(job->t, ids->v + begin, end - begin, (job->flags & TOKENIZE_SPECIAL) != 0,
                      text, len, err);
}

/* --- plain --- */

static enum status encode_plain(const struct job *job, const char *text, size_t len,
                                struct err *err) {
    int32_t *ids;
    size_t n;
    TRY(tokenize(job->t, text, len, job->flags, &ids, &n, err));
    for (size_t i = 0; i < n; i++)
        printf(i == 0 ? "%d" : " %d", ids[i]);
    putchar('\n');
    mem_free(ids);
    return ST_OK;
}

/* Numbers between spaces, commas, line ends. */
static enum status parse_ids(const struct job *job, const char *text, size_t len,
                             struct ids *ids, struct err *err) {
    static const char separators[] = " ,\t\r\n";
    for (size_t i = 0; i < len;) {
        if (memchr(separators, text[i], sizeof separators - 1) != NULL) {
            i++;
            continue;
        }
        long long id = 0;
        size_t begin = i;
        while (i < len && text[i] >= '0' && text[i] <= '9' && id <= INT32_MAX)
            id = id * 10 + (text[i++] - '0');
        if (i == begin)
            return err_set(err, ST_BAD_INPUT, "byte %zu of the input is not a number", i);
        TRY(ids_add(ids, job->t, id, err));
    }
    return ST_OK;
}

static enum status decode_plain(const struct job *job, const char *text, size_t len,
                                struct err *err) {
    struct ids ids = {0};
    char *out;
    size_t n;
    enum status st = parse_ids(job, text, len, &ids, err);
    if (st == ST_OK)
        st = decode(job, &ids, &out, &n, err);
    if (st == ST_OK) {
        cli_print_text(out, n);
        mem_free(out);
    }
    mem_free(ids.v);
    return st;
}

static enum status run_plain(const struct job *job, bool decoding, struct err *err) {
    struct buf text = {0};
    enum status st = file_read_rest(&text, stdin, "standard input", SIZE_MAX, err);
    if (st == ST_OK)
        st = decoding ? decode_plain(job, text.bytes, text.len, err)
                      : encode_plain(job, text.bytes, text.len, err);
    buf_free(&text);
    return st;
}

/* --- JSON lines --- */

static enum status encode_line(const struct job *job, const json_t *in, struct err *err) {
    if (!json_is_string(in))
        return err_set(err, ST_BAD_INPUT, "must be a JSON string");
    int32_t *ids;
    size_t n;
    TRY(tokenize(job->t, json_string_value(in), json_string_length(in), job->flags, &ids, &n,
                 err));
    putchar('[');
    for (size_t i = 0; i < n; i++)
        printf(i == 0 ? "%d" : ",%d", ids[i]);
    puts("]");
    mem_free(ids);
    return ST_OK;
}

static enum status decode_line(const struct job *job, const json_t *in, struct err *err) {
    struct ids ids = {0};
    char *text;
    size_t n, i;
    const json_t *id;
    enum status st = ST_OK;
    if (!json_is_array(in))
        return err_set(err, ST_BAD_INPUT, "must be a JSON array of ids");
    json_array_foreach(in, i, id) {
        if (st == ST_OK && !json_is_integer(id))
            st = err_set(err, ST_BAD_INPUT, "element %zu is not an integer", i);
        if (st == ST_OK)
            st = ids_add(&ids, job->t, json_integer_value(id), err);
    }
    if (st == ST_OK)
        st = decode(job, &ids, &text, &n, err);
    if (st == ST_OK) {
        json_t *out = json_stringn(text, n);
        json_dumpf(out, stdout, JSON_ENCODE_ANY);
        putchar('\n');
        json_decref(out);
        mem_free(text);
    }
    mem_free(ids.v);
    return st;
}

static enum status run_line(const struct job *job, bool decoding, const char *line, size_t len,
                            struct err *err) {
    json_error_t e;
    json_t *in = json_loadb(line, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (in == NULL)
        return err_set(err, ST_BAD_INPUT, "%s", e.text);
    enum status st = decoding ? decode_line(job, in, err) : encode_line(job, in, err);
    json_decref(in);
    return st;
}

static enum status run_lines(const struct job *job, bool decoding, struct err *err) {
    char *line = NULL;
    size_t cap = 0;
    enum status st = ST_OK;
    ssize_t len;
    for (size_t i = 1; st == ST_OK && (len = getline(&line, &cap, stdin)) >= 0; i++) {
        st = run_line(job, decoding, line, (size_t)len, err);
        if (st != ST_OK)
            err_prefix(err, st, "line %zu: ", i);
    }
    if (st == ST_OK && ferror(stdin))
        st = err_set(err, ST_IO, "standard input: %s", strerror(errno));
    free(line);
    return st;
}

int cmd_tokenize(int argc, char **argv) {
    const char *model;
    bool decoding = false, no_bos = false, no_special = false, jsonl = false;
    const struct cli_option table[] = {
        CLI_MODEL(&model, CLI_MODEL_HELP "; a file with a\nvocabulary only will do"),
        CLI_FLAG(0, "decode", &decoding, "reads ids and writes text"),
        CLI_FLAG(0, "no-bos", &no_bos,
                 "adds no BOS and EOS, even if the model wants them; with\n"
                 "--decode, shows them"),
        CLI_FLAG(0, "no-special", &no_special,
                 "reads control tokens in the text as text; with --decode,\n"
                 "leaves them out"),
        CLI_FLAG(0, "jsonl", &jsonl,
                 "reads a JSON string from each line, writes an array of ids\n"
                 "(with --decode the reverse)"),
        CLI_END};
    const struct cli_command cmd = {
        "tokenize", "converts text to token ids, and back",
        "Reads the text from standard input to its end, with the last line end. Writes the ids on\n"
        "one line.",
        table};
    int status = cli_parse(&cmd, argc, argv);
    if (status != CLI_GO_ON)
        return status;

    struct gguf *g;
    struct tokenizer *t;
    struct err err;
    enum status st = hf_open_any(&g, model, NULL, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    st = tokenizer_open(&t, g, &err);
    gguf_close(g);
    if (st != ST_OK)
        return cli_fail(st, "%s: %s", model, err.text);
    struct job job = {
        .t = t, .flags = (no_bos ? 0 : TOKENIZE_BOS) | (no_special ? 0 : TOKENIZE_SPECIAL)};
    st = jsonl ? run_lines(&job, decoding, &err) : run_plain(&job, decoding, &err);
    tokenizer_close(t);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}
