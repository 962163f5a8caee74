/* grammar.c: lockstep grammar: checks whether a text matches a grammar or a JSON schema. It
 * needs no model: texts are matched byte by byte. */
#include "grammar/grammar.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"
#include "schema/json_schema.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)64 << 20)
#define MAX_LINE_BYTES ((size_t)64 << 20)

/* --- grammars --- */

static enum status open_gbnf(struct grammar **g, const char *gbnf, size_t len,
                             struct err *err) {
    return grammar_open(g, gbnf, len, &token_trie_empty, err);
}

static enum status open_schema(struct grammar **g, const json_t *schema, struct err *err) {
    char *gbnf = NULL;
    TRY(json_schema_to_gbnf(schema, &gbnf, err));
    enum status st = open_gbnf(g, gbnf, strlen(gbnf), err);
    mem_free(gbnf);
    return st;
}

static enum status open_schema_text(struct grammar **g, const char *text, size_t len,
                                    struct err *err) {
    json_error_t e;
    json_t *schema = json_read(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (schema == NULL)
        return err_set(err, ST_BAD_INPUT, "line %d: %s", e.line, e.text);
    enum status st = open_schema(g, schema, err);
    json_decref(schema);
    return st;
}

/* A name that ends in neither .json nor .gbnf: no grammar begins with a brace. */
static bool is_schema(const char *path, const char *text) {
    if (str_ends(path, ".json") || str_ends(path, ".gbnf"))
        return str_ends(path, ".json");
    return text[strspn(text, " \t\r\n")] == '{';
}

static enum status open_file(struct grammar **g, const char *path, struct err *err) {
    char *text;
    size_t len;
    TRY(file_read_text(&text, &len, path, MAX_FILE_BYTES, err));
    enum status st = is_schema(path, text) ? open_schema_text(g, text, len, err)
                                           : open_gbnf(g, text, len, err);
    mem_free(text);
    return st == ST_OK ? ST_OK : err_prefix(err, st, "%s: ", path);
}

/* --- texts --- */

/* How many bytes of a text the grammar takes, and whether a whole text may end there. */
struct match {
    size_t n_taken;
    bool may_end;
};

static enum status match_text(struct grammar *g, const char *text, size_t len,
                              struct match *out, struct err *err) {
    struct grammar_matcher *m;
    size_t n = 0;
    TRY(grammar_matcher_open(&m, g, err));
    while (n < len && grammar_matcher_accept_bytes(m, text + n, 1))
        n++;
    *out = (struct match){n, grammar_matcher_may_end(m)};
    grammar_matcher_close(m);
    return ST_OK;
}

static bool is_whole(struct match m, size_t len) {
    return m.n_taken == len && m.may_end;
}

/* --- one text --- */

/* Exit status 0 or 1. */
static int say(struct match m, const char *text, size_t len) {
    if (is_whole(m, len))
        return puts("accepted") < 0;
    if (m.n_taken == len)
        printf("not accepted: the text ends too early, at byte %zu\n", len);
    else if (text[m.n_taken] > ' ' && text[m.n_taken] < 0x7f)
        printf("not accepted: byte %zu, '%c'\n", m.n_taken, text[m.n_taken]);
    else
        printf("not accepted: byte %zu, 0x%02x\n", m.n_taken, (uint8_t)text[m.n_taken]);
    return 1;
}

/* An additional line end at the end of standard input belongs to the file, not to the text. */
static size_t without_line_end(const struct buf *text, struct match m) {
    bool more = m.n_taken + 1 == text->len && m.may_end && text->bytes[m.n_taken] == '\n';
    return text->len - more;
}

static enum status run_text(struct grammar *g, const char *given, int *exit_status,
                            struct err *err) {
    struct buf text = {0};
    struct match m;
    enum status st = ST_OK;
    if (given != NULL)
        buf_add_str(&text, given);
    else
        st = file_read_rest(&text, stdin, "standard input", SIZE_MAX, err);
    if (st == ST_OK && text.failed)
        st = err_set(err, ST_NO_MEMORY, "no memory for the text");
    if (st == ST_OK)
        st = match_text(g, text.bytes, text.len, &m, err);
    if (st == ST_OK)
        *exit_status =
            say(m, text.bytes, given != NULL ? text.len : without_line_end(&text, m));
    buf_free(&text);
    return st;
}

static int run_one(const char *path, const char *text) {
    struct err err;
    struct grammar *g;
    int exit_status = 0;
    enum status st = open_file(&g, path, &err);
    if (st == ST_OK) {
        st = run_text(g, text, &exit_status, &err);
        grammar_close(g);
    }
    return st == ST_OK ? exit_status : cli_fail(st, "%s", err.text);
}

/* --- JSON lines --- */

static enum status open_line(struct grammar **g, const json_t *line, struct err *err) {
    const json_t *schema = json_object_get(line, "schema");
    const json_t *gbnf = json_object_get(line, "grammar");
    if (!json_is_object(line) || (schema == NULL) == (gbnf == NULL))
        return err_set(err, ST_BAD_INPUT, "expected an object with a schema or a grammar");
    if (schema != NULL)
        return open_schema(g, schema, err);
    if (!json_is_string(gbnf))
        return err_set(err, ST_BAD_INPUT, "grammar must be a string");
    return open_gbnf(g, json_string_value(gbnf), json_string_length(gbnf), err);
}

static enum status match_texts(struct grammar *g, const json_t *texts, json_t *accepted,
                               struct err *err) {
    const json_t *text;
    size_t i;
    if (texts != NULL && !json_is_array(texts))
        return err_set(err, ST_BAD_INPUT, "texts must be an array");
    json_array_foreach(texts, i, text) {
        struct match m;
        size_t len = json_string_length(text);
        if (!json_is_string(text))
            return err_set(err, ST_BAD_INPUT, "texts must hold strings");
        TRY(match_text(g, json_string_value(text), len, &m, err));
        if (json_array_append_new(accepted, json_boolean(is_whole(m, len))) != 0)
            return err_set(err, ST_NO_MEMORY, "no memory for the answer");
    }
    return ST_OK;
}

static enum status match_line(const char *line, size_t len, json_t *accepted, struct err *err) {
    json_error_t e;
    struct grammar *g;
    if (len > MAX_LINE_BYTES)
        return err_set(err, ST_BAD_INPUT, "a line of more than %zu bytes", MAX_LINE_BYTES);
    json_t *in = json_read(line, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (in == NULL)
        return err_set(err, ST_BAD_INPUT, "not JSON: %s", e.text);
    enum status st = open_line(&g, in, err);
    if (st == ST_OK) {
        st = match_texts(g, json_object_get(in, "texts"), accepted, err);
        grammar_close(g);
    }
    json_decref(in);
    return st;
}

static void answer_line(const char *line, size_t len) {
    struct err err = {.text = ""};
    json_t *accepted = json_array();
    enum status st = match_line(line, len, accepted, &err);
    if (st != ST_OK)
        json_array_clear(accepted);
    json_t *error = st == ST_OK ? json_null() : cli_json_text(err.text, strlen(err.text));
    json_t *answer = json_pack("{s:s, s:o, s:o}", "status", st == ST_OK ? "ok" : "refused",
                               "error", error, "accepted", accepted);
    json_dumpf(answer, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(answer);
}

/* The next line without its end; of one that is too long MAX_LINE_BYTES + 1 bytes. False: none is
 * left. */
static bool read_line(struct buf *line) {
    int c;
    buf_clear(line);
    while ((c = getc_unlocked(stdin)) != EOF && c != '\n')
        if (line->len <= MAX_LINE_BYTES)
            buf_add(line, &(char){(char)c}, 1);
    return c != EOF || line->len > 0;
}

static int run_lines(void) {
    struct buf line = {0};
    while (read_line(&line) && !line.failed && !ferror(stdout))
        answer_line(buf_cstr(&line), line.len);
    bool failed = line.failed;
    buf_free(&line);
    if (failed)
        return cli_fail(ST_NO_MEMORY, "no memory for a line");
    return ferror(stdin) ? cli_fail(ST_IO, "standard input: %s", strerror(errno)) : 0;
}

int cmd_grammar(int argc, char **argv) {
    const char *path = NULL, *text = NULL;
    bool jsonl = false;
    const struct cli_option table[] = {
        CLI_ARG_MAY("FILE", &path,
                    "a GBNF grammar (.gbnf) or a JSON schema (.json). With\n"
                    "another name: a schema if it begins with a brace. Not with\n"
                    "--jsonl"),
        CLI_TEXT(0, "text", "T", &text, "the text (default: standard input)"),
        CLI_FLAG(0, "jsonl", &jsonl,
                 "each line of standard input {\"schema\": .., \"texts\": [..]}, or with\n"
                 "\"grammar\"; for each a line {\"status\": \"ok\" or \"refused\",\n"
                 "\"error\": .., \"accepted\": [true, ..]}"),
        CLI_END};
    const struct cli_command cmd = {
        "grammar", "checks a text against a grammar or a JSON schema",
        "Says whether an answer that is held to the grammar or schema (docs/schemas.md) could be\n"
        "this text. If not, it says at which byte (from 0) the text leaves the form. A line end at\n"
        "the end of standard input may be more than the form allows.\n"
        "\n"
        "Exit status: 0 accepted; 1 not accepted; 2 a grammar or a schema that cannot be used. With\n"
        "--jsonl it is always 0.",
        table};
    int status = cli_parse(&cmd, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    if (jsonl ? path != NULL || text != NULL : path == NULL)
        return cli_fail(ST_BAD_INPUT, "expected FILE [--text T], or --jsonl alone");
    return jsonl ? run_lines() : run_one(path, text);
}
