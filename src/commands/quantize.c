/* quantize.c: `lockstep quantize`: converts a model file to another weight type. */
#include "base/machine.h"
#include "base/pool.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/model_names.h"
#include "cli/progress.h"
#include "convert/quantize_file.h"
#include "hf/hf_folder.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

struct names {
    char text[512];
    size_t n, column, columns; /* columns: of a line; 0: there is one line */
};

static void add_name(struct names *l, const char *name) {
    size_t len = strlen(name) + 2;
    bool wraps = l->columns > 0 && l->column + len > l->columns;
    if (l->n < sizeof l->text)
        l->n += (size_t)snprintf(l->text + l->n, sizeof l->text - l->n, "%s%s",
                                 l->n == 0 ? ""
                                 : wraps   ? ",\n"
                                           : ", ",
                                 name);
    l->column = wraps ? len : l->column + len;
}

/* "q8_0, q4_0, ...": what can be written. */
static struct names writable_types(size_t columns) {
    const struct quantize_mix *mix;
    struct names l = {.columns = columns};
    for (size_t i = 0; (mix = quantize_mix_at(i)) != NULL; i++)
        add_name(&l, mix->name);
    for (uint32_t type = 0; type < QT_N; type++) {
        const struct qtype_info *info = qtype_info(type);
        if (info && info->quantize)
            add_name(&l, info->name);
    }
    return l;
}

static void print_report(const char *in, const char *out, const struct quantize_report *r,
                         double seconds) {
    char a[32], b[32];
    double n = (double)r->n_values;
    FILE *to = cli_beside(out);
    fprintf(to, "%s: %s, %.2f bits per weight\n", in, cli_bytes(r->bytes_in, a),
            8 * (double)r->bytes_in / n);
    fprintf(to, "%s: %s, %.2f bits per weight; %zu tensors converted, %zu kept, %.1f s\n", out,
            cli_bytes(r->bytes_out, b), 8 * (double)r->bytes_out / n, r->n_converted, r->n_kept,
            seconds);
    if (r->n_weighted)
        fprintf(to, "%zu tensors weighted by importance\n", r->n_weighted);
    if (r->n_fallback)
        fprintf(to, "%zu tensors, whose rows are not whole blocks, became q8_0 or f16\n",
                r->n_fallback);
}

/* *out is NULL without an error: weights alone. */
static enum status open_tokenizer(struct tokenizer **out, const struct gguf *g,
                                  struct err *err) {
    struct gguf_str model;
    *out = NULL;
    if (gguf_str(g, "tokenizer.ggml.model", &model, NULL) != ST_OK)
        return ST_OK;
    return tokenizer_open(out, g, err);
}

/* Other programs know by this name alone how text is cut; a folder has patterns instead. */
static const char *pre_of(const struct tokenizer *t) {
    return t && tokenizer_facts(t)->pre[0] != '\0' ? tokenizer_facts(t)->pre : NULL;
}

static int convert(const char *in, const char *out, struct quantize_options opts) {
    struct gguf *g;
    struct err err, text_err;
    struct quantize_report report;
    struct cli_progress progress;
    struct tokenizer *t;
    enum status st = hf_open_any(&g, in, NULL, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    /* A model whose tokenizer lockstep cannot use is converted anyway. */
    enum status text_st = open_tokenizer(&t, g, &text_err);
    cli_progress_begin(&progress, "converting");
    opts.progress = &progress.progress;
    opts.pre = pre_of(t);
    st = quantize_file(g, out, &opts, &report, &err);
    double seconds = cli_progress_end(&progress);
    if (st == ST_OK && text_st != ST_OK)
        fprintf(stderr,
                "warning: the new file holds a tokenizer that lockstep cannot use: %s\n",
                text_err.text);
    tokenizer_close(t);
    gguf_close(g);
    if (st == ST_CANCELLED)
        return 130;
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    print_report(in, out, &report, seconds);
    if (opts.imatrix != NULL && report.n_weighted == 0)
        fprintf(stderr,
                "warning: the importance matrix names none of the tensors converted; it "
                "was made for another model\n");
    return 0;
}

/* One that can be written. */
static bool read_type(const char *name, enum qtype *type) {
    return qtype_from_name(name, type) && qtype_info(*type)->quantize != NULL;
}

#define MAX_CHOICES 64

/* "PATTERN=TYPE,PATTERN=TYPE": *n of them. The patterns stay in text, which is cut up. False: *bad
 * is what cannot be read. */
static bool read_choices(char *text, struct quantize_choice choices[MAX_CHOICES], size_t *n,
                         const char **bad) {
    char *rest = text;
    *n = 0;
    for (char *one; rest != NULL && (one = strsep(&rest, ",")) != NULL; ++*n) {
        char *equals = strchr(one, '=');
        *bad = one;
        if (equals == NULL || equals == one || *n == MAX_CHOICES ||
            !read_type(equals + 1, &choices[*n].type))
            return false;
        *equals = '\0';
        choices[*n].pattern = one;
    }
    return true;
}

/* TYPE is a mix or a type. */
static bool read_wish(const char *name, struct quantize_options *opts) {
    opts->mix = quantize_mix_find(name);
    if (opts->mix != NULL)
        opts->type = opts->mix->type;
    return opts->mix != NULL || read_type(name, &opts->type);
}

int cmd_quantize(int argc, char **argv) {
    const char *in = NULL, *out = NULL, *type_name = NULL, *imatrix_path = NULL;
    const char *choices_text = NULL, *bad = NULL;
    int n_threads = machine_n_cores();
    const struct names types = writable_types(56);
    const struct cli_option options[] = {
        CLI_ARG_FOUND("IN", &in, models_here, CLI_MODEL_HELP),
        CLI_ARG("OUT", &out, "the file to write"),
        CLI_ARG("TYPE", &type_name, types.text),
        CLI_TEXT(0, "imatrix", "FILE", &imatrix_path,
                 "an importance matrix of llama.cpp (GGUF or .dat):\n"
                 "errors count more in columns that matter more"),
        CLI_TEXT(0, "tensor-type", "PATTERN=TYPE,...", &choices_text,
                 "the type of the matrices whose names have PATTERN in them,\n"
                 "where * stands for anything; the last that fits counts"),
        CLI_INT('t', "threads", "T", &n_threads, 1, POOL_MAX_THREADS,
                "threads (default: all cores)"),
        CLI_END};
    const struct cli_command cmd = {
        "quantize", "converts a model file to another weight type",
        "Converts matrices; norms, biases and routers keep their type. Rows that are not whole\n"
        "blocks of the type become q8_0 or f16. A TYPE in capital letters, such as Q4_K_M, is a\n"
        "mix: matrices that lose most by it get more bits. Use an F32, F16 or BF16 file if you\n"
        "can: what a smaller type has lost does not come back.",
        options};
    int status = cli_parse(&cmd, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    struct quantize_options opts = {.n_threads = MAX(n_threads, 1)};
    struct quantize_choice choices[MAX_CHOICES];
    char text[4096];
    if (!read_wish(type_name, &opts))
        return cli_fail(ST_BAD_INPUT, "cannot write type '%s'; there are %s", type_name,
                        writable_types(0).text);
    if (choices_text != NULL && strlen(choices_text) >= sizeof text)
        return cli_fail(ST_BAD_INPUT, "--tensor-type is longer than %zu bytes",
                        sizeof text - 1);
    snprintf(text, sizeof text, "%s", choices_text != NULL ? choices_text : "");
    if (choices_text != NULL && !read_choices(text, choices, &opts.n_choices, &bad))
        return cli_fail(
            ST_BAD_INPUT,
            "--tensor-type: expected PATTERN=TYPE, with a type that can be written, "
            "not '%s'",
            bad);
    opts.choices = choices;
    struct imatrix *imatrix = NULL;
    struct err err;
    if (imatrix_path) {
        enum status st = imatrix_open(&imatrix, imatrix_path, &err);
        if (st != ST_OK)
            return cli_fail(st, "%s", err.text);
    }
    opts.imatrix = imatrix;
    status = convert(in, out, opts);
    imatrix_close(imatrix);
    return status;
}
