/* rm.c: lockstep rm: removes a model that was pulled, fetched or put into this machine's folder. */
#include "base/json.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cluster/catalog.h"
#include "cluster/model_files.h"
#include "cluster/store.h"
#include "hub/stores.h"
#include "hub/upkeep.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

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

static enum status remove_files(const struct model_files *m, const char *path,
                                struct err *err) {
    char file[PATH_MAX];
    for (size_t i = 0; i < m->n; i++)
        if (!model_files_place(m, i, path, file, sizeof file) || unlink(file) != 0)
            return err_set(err, ST_IO, "%s: %s", m->list[i].name, strerror(errno));
    if (m->folder && rmdir(path) != 0)
        return err_set(err, ST_IO, "%s: %s", path, strerror(errno));
    return ST_OK;
}

static enum status remove_stored(uint64_t *bytes, struct err *err) {
    char own[PATH_MAX], path[PATH_MAX];
    struct model_files m;
    if (store == NULL)
        TRY(store_path(own, sizeof own, err));
    json_t *all = catalog_read(store != NULL ? store : own);
    const char *found = catalog_find(all, name);
    snprintf(path, sizeof path, "%s", found != NULL ? found : "");
    json_decref(all);
    if (*path == '\0')
        return err_set(err, ST_NOT_FOUND,
                       "%s has no model called %s (lockstep models lists them)",
                       store != NULL ? store : own, name);
    TRY(model_files_read(&m, path, err));
    *bytes = m.bytes;
    enum status st = remove_files(&m, path, err);
    model_files_deinit(&m);
    return st;
}

static enum status remove_model(uint64_t *bytes, struct err *err) {
    struct hub_name hub;
    if (!stores_is_name(name) && strchr(name, '/') == NULL)
        return remove_stored(bytes, err);
    if (stores_is_name(name) && !str_starts(name, HUB_PREFIX))
        return err_set(err, ST_UNSUPPORTED,
                       "%s belongs to another program, which has a way to remove it", name);
    TRY(hub_name_parse(&hub, name, err));
    return hub_remove(&hub, bytes, err);
}

int cmd_rm(int argc, char **argv) {
    struct err err;
    uint64_t bytes = 0;
    char size[32];
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    enum status st = remove_model(&bytes, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    fprintf(stderr, "%s is removed: %s\n", name, cli_bytes(bytes, size));
    return 0;
}
