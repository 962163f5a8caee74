/* quantize.c: `lockstep quantize`: converts a model file to another weight type. */
#include "base/machine.h"
#include "base/pool.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/model_names.h"
#include "cli/progress.h"
#include "format/quantize_file.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>

/* "q8_0, q4_0, ...": what can be written. */
static void writable_types(char *buf, size_t size) {
    size_t n = 0;
    for (uint32_t type = 0; type < QT_N; type++) {
        const struct qtype_info *info = qtype_info(type);
        if (info && info->quantize && n < size)
            n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? ", " : "", info->name);
    }
}

static void print_report(const char *in, const char *out, enum qtype type,
                         const struct quantize_report *r, double seconds) {
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
        fprintf(to, "%zu tensors, whose rows are not whole %s blocks, became q8_0 or f16\n",
                r->n_fallback, qtype_info(type)->name);
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

static int convert(const char *in, const char *out, enum qtype type, int n_threads,
                   const struct imatrix *imatrix) {
    struct gguf *g;
    struct err err, text_err;
    struct quantize_report report;
    struct cli_progress progress;
    struct tokenizer *t;
    enum status st = gguf_open(&g, in, NULL, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    /* A model whose tokenizer lockstep cannot use is converted anyway. */
    enum status text_st = open_tokenizer(&t, g, &text_err);
    cli_progress_begin(&progress, "converting");
    const struct quantize_options opts = {.type = type,
                                          .n_threads = n_threads,
                                          .imatrix = imatrix,
                                          .progress = &progress.progress,
                                          .pre = pre_of(t)};
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
    print_report(in, out, type, &report, seconds);
    if (imatrix != NULL && report.n_weighted == 0)
        fprintf(stderr,
                "warning: the importance matrix names none of the tensors converted; it "
                "was made for another model\n");
    return 0;
}

int cmd_quantize(int argc, char **argv) {
    const char *in = NULL, *out = NULL, *type_name = NULL, *imatrix_path = NULL;
    int n_threads = machine_n_cores();
    char types[256];
    writable_types(types, sizeof types);
    const struct cli_option options[] = {
        CLI_ARG_FOUND("IN", &in, models_here, CLI_MODEL_HELP),
        CLI_ARG("OUT", &out, "the file to write"),
        CLI_ARG("TYPE", &type_name, types),
        CLI_TEXT(0, "imatrix", "FILE", &imatrix_path,
                 "an importance matrix of llama.cpp (GGUF or .dat):\n"
                 "errors count more in columns that matter more"),
        CLI_INT('t', "threads", "T", &n_threads, 1, POOL_MAX_THREADS,
                "threads (default: all cores)"),
        CLI_END};
    const struct cli_command cmd = {
        "quantize", "converts a model file to another weight type",
        "Converts matrices; norms, biases and routers keep their type. Rows that are not whole\n"
        "blocks of the type become q8_0 or f16. Use an F32, F16 or BF16 file if you can: what a\n"
        "smaller type has lost does not come back.",
        options};
    int status = cli_parse(&cmd, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    enum qtype type;
    if (!qtype_from_name(type_name, &type) || !qtype_info(type)->quantize)
        return cli_fail(ST_BAD_INPUT, "cannot write type '%s'; there are %s", type_name, types);
    struct imatrix *imatrix = NULL;
    struct err err;
    if (imatrix_path) {
        enum status st = imatrix_open(&imatrix, imatrix_path, &err);
        if (st != ST_OK)
            return cli_fail(st, "%s", err.text);
    }
    status = convert(in, out, type, MAX(n_threads, 1), imatrix);
    imatrix_close(imatrix);
    return status;
}
