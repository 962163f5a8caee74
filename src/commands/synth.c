/* synth.c: `lockstep synth`: makes a model of random weights with a true shape. */
#include "convert/synth.h"
#include "base/machine.h"
#include "base/pool.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "format/gguf.h"

#include <stdio.h>
#include <sys/stat.h>

static int list_shapes(void) {
    for (size_t i = 0; synth_shape_name(i); i++)
        printf("%-26s %7.2f billion parameters\n", synth_shape_name(i),
               (double)synth_shape_params(i) * 1e-9);
    return 0;
}

static int write_model(const char *path, struct synth_options *opts) {
    struct cli_progress progress;
    struct err err;
    cli_progress_begin(&progress, "writing");
    opts->progress = &progress.progress;
    enum status st = synth_write(path, opts, &err);
    double seconds = cli_progress_end(&progress);
    if (st == ST_NOT_FOUND)
        return cli_fail(st, "%s; --list shows them", err.text);
    if (st == ST_CANCELLED)
        return 130;
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    struct gguf *g;
    struct stat file;
    const struct gguf_options any = {.header_only = true};
    if ((stat(path, &file) == 0 && !S_ISREG(file.st_mode)) || cli_beside(path) != stdout)
        /* /dev/null, a pipe, /dev/stdout: nothing to look at */
        return 0;
    st = gguf_open(&g, path, &any, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    char size[32];
    printf("%s: %s, %s, %zu tensors, %s in %.1f s\n", path, opts->shape,
           qtype_info(opts->type)->name, gguf_n_tensors(g), cli_bytes(gguf_file_bytes(g), size),
           seconds);
    gguf_close(g);
    return 0;
}

int cmd_synth(int argc, char **argv) {
    const char *path = NULL, *shape = NULL, *type = "q8_0";
    uint64_t seed = 0;
    int n_layers = 0, n_threads = machine_n_cores();
    bool list = false, header_only = false;
    const struct cli_option options[] = {
        CLI_ARG_MAY("OUT", &path, "the file to write"),
        CLI_TEXT(0, "shape", "NAME", &shape,
                 "the model that gives the shape, such as llama-3.2-1b"),
        CLI_TEXT(0, "type", "TYPE", &type, "weight type of the matrices (default q8_0)"),
        CLI_U64(0, "seed", "N", &seed, "the weights are a function of this seed (default 0)"),
        CLI_INT(0, "layers", "N", &n_layers, 1, 10000,
                "number of layers, instead of the model's"),
        CLI_FLAG(0, "header-only", &header_only,
                 "writes keys and tensor descriptions, but no weights"),
        CLI_INT('t', "threads", "T", &n_threads, 1, POOL_MAX_THREADS,
                "threads (default: all cores)"),
        CLI_FLAG(0, "list", &list, "lists the shapes"),
        CLI_END};
    const struct cli_command cmd = {
        "synth", "writes a model with a true shape and random weights",
        "For benchmarks and plans without a download. The vocabulary has the true size and made-up\n"
        "words. The text that such a model writes is noise.",
        options};
    int status = cli_parse(&cmd, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    if (list)
        return list_shapes();
    if (!path || !shape)
        return cli_fail(ST_BAD_INPUT, "%s is missing; see lockstep synth --help",
                        path ? "--shape" : "OUT");
    struct synth_options opts = {.shape = shape,
                                 .seed = seed,
                                 .n_layers = (uint32_t)n_layers,
                                 .header_only = header_only,
                                 .n_threads = MAX(n_threads, 1)};
    if (!qtype_from_name(type, &opts.type))
        return cli_fail(ST_BAD_INPUT, "no weight type is called '%s'", type);
    return write_model(path, &opts);
}
