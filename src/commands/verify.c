/* verify.c: lockstep verify: reads a model that was pulled again, and compares its checksums. */
#include "base/util.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "hub/stores.h"
#include "hub/upkeep.h"

#include <stdio.h>

static const char *name;

static const struct cli_option options[] = {
    CLI_ARG("NAME", &name, "ORG/REPO[:QUANT], with or without hf:"), CLI_END};

static const struct cli_command command = {
    "verify", "reads a model that was pulled, and compares its checksums",
    "The names of files in the cache of Hugging Face's hub are their checksums: nothing is asked\n"
    "over the network. A damaged model is removed with lockstep rm, and pulled again.\n"
    "\n"
    "  lockstep verify hf:Qwen/Qwen3-0.6B-GGUF:Q8_0",
    options};

static enum status verify(uint64_t *bytes, struct err *err) {
    struct hub_name hub;
    struct cli_progress line;
    if (!str_starts(name, HUB_PREFIX) && (stores_is_name(name) || strchr(name, '/') == NULL))
        return err_set(err, ST_UNSUPPORTED,
                       "%s: only the checksums of models of Hugging Face's hub are known (hf:)",
                       name);
    TRY(hub_name_parse(&hub, name, err));
    cli_progress_begin(&line, hub.repo);
    enum status st = hub_verify(&hub, &line.progress, bytes, err);
    cli_progress_end(&line);
    return st;
}

int cmd_verify(int argc, char **argv) {
    struct err err;
    uint64_t bytes = 0;
    char size[32];
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    enum status st = verify(&bytes, &err);
    if (st == ST_CANCELLED)
        return 130;
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    printf("%s: %s, all as the hub lists it\n", name, cli_bytes(bytes, size));
    return 0;
}
