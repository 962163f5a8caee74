/* rm.c: lockstep rm: removes a model that was pulled, fetched or put into this machine's folder. */
#include "cli/cli.h"
#include "cluster/removal.h"

#include <stdio.h>

static const char *name, *store;

static const struct cli_option options[] = {
    CLI_ARG("NAME", &name, "as lockstep models lists it"),
    CLI_TEXT(0, "models", "DIR", &store,
             "where it lies (default ~/.local/share/lockstep/models)"),
    CLI_END};

static const struct cli_command command = {
    "rm", "removes a model from this machine",
    "A name that begins with hf: is a model in the cache of Hugging Face's hub: a file there is\n"
    "removed when no other model uses it, and what is left of an interrupted download with it.\n"
    "Other names are those of the folder of models. Models of LM Studio and Ollama are theirs\n"
    "to remove.\n"
    "\n"
    "  lockstep rm hf:Qwen/Qwen3-0.6B-GGUF:Q8_0",
    options};

int cmd_rm(int argc, char **argv) {
    struct err err;
    uint64_t bytes = 0;
    char size[32];
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    enum status st = model_remove(store, name, &bytes, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    fprintf(stderr, "%s is removed: %s\n", name, cli_bytes(bytes, size));
    return 0;
}
