/* models.c: lockstep models: lists the models of the cluster's machines. lockstep fetch: copies
 * one to this machine. */
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "cli/model_names.h"
#include "cli/nodes.h"
#include "cli/progress.h"
#include "cluster/catalog.h"
#include "cluster/client.h"
#include "cluster/model_files.h"
#include "cluster/store.h"
#include "hub/stores.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

static bool json;
static const char *name, *from, *store;

/* ---- lockstep models --------------------------------------------------------------------- */

static const struct cli_option models_options[] = {
    CLI_TEXT(0, "node", "ADDRESS", &from, "asks this node too, for networks without multicast"),
    CLI_FLAG(0, "json", &json, "a JSON array: of each model its size, and where it lies"),
    CLI_END};

static const struct cli_command models_command = {
    "models", "lists the models of the cluster",
    "Every node lists the models in its folder (lockstep node --models, default\n"
    "~/.local/share/lockstep/models). These are GGUF files and Hugging Face folders that you\n"
    "put there or lockstep copied. Where a command takes a MODEL, it also takes a name of this\n"
    "machine's models. lockstep up takes a name of any machine's. Its line says when a model\n"
    "was last read, which file systems note once a day.\n"
    "\n"
    "Models that other programs keep on this machine follow: hf: (Hugging Face's cache, and\n"
    "lockstep pull), lmstudio: and ollama:. They are used where they lie.\n"
    "\n"
    "  lockstep models\n"
    "  lockstep up qwen3-30b-a3b --api-key-file keys\n"
    "  lockstep fetch qwen3-30b-a3b               copies it here",
    models_options};

#define DAY_S (24 * 3600)

/* When it was last read on any machine, in words; "": not known. File systems note it once a day. */
static void used_in_words(const json_t *one, char *out, size_t size) {
    json_int_t last = 0;
    size_t i;
    json_t *place;
    json_array_foreach(json_object_get(one, "nodes"), i, place) {
        last = MAX(last, json_integer_value(json_object_get(place, "used")));
    }
    long long days = ((long long)time(NULL) - last) / DAY_S;
    out[0] = '\0';
    if (last > 0 && days < 1)
        snprintf(out, size, "today");
    else if (last > 0)
        snprintf(out, size, "%lld day%s ago", days, days == 1 ? "" : "s");
}

static void print_model(const json_t *one) {
    const char *its = "?", *node;
    json_int_t bytes = 0;
    size_t i;
    json_t *place;
    char size[32], quant[64], used[32];
    json_unpack((json_t *)(uintptr_t)one, "{s:s, s:I}", "name", &its, "bytes", &bytes);
    hub_quant_of(its, quant, sizeof quant);
    if (json_object_get(one, "quant") != NULL)
        snprintf(quant, sizeof quant, "%s", json_text(one, "quant"));
    used_in_words(one, used, sizeof used);
    printf("%-40s %9s  %-10s  %-12s  ", its, cli_bytes((uint64_t)bytes, size), quant, used);
    json_array_foreach(json_object_get(one, "nodes"), i, place) {
        node = json_string_value(json_object_get(place, "node"));
        printf("%s%s", i > 0 ? ", " : "", node != NULL ? node : "this machine");
        if (json_object_get(place, "store") != NULL)
            printf(" (%s)", json_text(place, "store"));
    }
    printf("\n");
}

/* Those of other programs on this machine, behind the cluster's. */
static void add_stores(json_t *all) {
    json_t *others = stores_list(), *sorted = catalog_sorted(others), *one;
    size_t i;
    json_array_foreach(sorted, i, one) {
        json_array_append_new(
            all, json_pack("{s:O, s:O, s:O, s:O, s:[{s:n, s:O, s:O, s:O}]}", "name",
                           json_object_get(one, "name"), "bytes", json_object_get(one, "bytes"),
                           "files", json_object_get(one, "files"), "quant",
                           json_object_get(one, "quant"), "nodes", "node", "path",
                           json_object_get(one, "path"), "store", json_object_get(one, "store"),
                           "used", json_object_get(one, "used")));
    }
    json_decref(sorted);
    json_decref(others);
}

int cmd_models(int argc, char **argv) {
    struct err err;
    json_t *all, *one;
    size_t i;
    int status = cli_parse(&models_command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    enum status st = models_everywhere(&all, from, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    add_stores(all);
    if (json)
        return cli_print_json(all);
    json_array_foreach(all, i, one) {
        print_model(one);
    }
    if (json_array_size(all) == 0)
        fprintf(stderr,
                "no models: lockstep pull downloads one; or put GGUF files or folders into "
                "~/.local/share/lockstep/models (or lockstep node's --models)\n");
    json_decref(all);
    status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

/* ---- lockstep fetch ---------------------------------------------------------------------- */

static const struct cli_option fetch_options[] = {
    CLI_ARG("NAME", &name, "as lockstep models lists it"),
    CLI_TEXT(0, "from", "NODE", &from,
             "the node to copy from, by name or address (default: any)"),
    CLI_TEXT(0, "models", "DIR", &store,
             "where to put it (default ~/.local/share/lockstep/models)"),
    CLI_END};

static const struct cli_command fetch_command = {
    "fetch", "copies a model from another machine of the cluster to this one",
    "Checks every file by its digest. Continues an interrupted copy. Prints the path of the\n"
    "copy on stdout.\n"
    "\n"
    "  lockstep fetch qwen3-0.6b && lockstep chat qwen3-0.6b",
    fetch_options};

struct fetching {
    const struct identity *id;
    const struct models_holder *holder;
    struct cli_progress progress;
    char path[PATH_MAX];
    uint64_t total;
};

static bool show(void *user, uint64_t bytes) {
    struct fetching *f = user;
    return f->progress.progress.report(f->progress.progress.arg, bytes, f->total);
}

static enum status fetch_offered(void *user, const json_t *offer, struct err *err) {
    struct fetching *f = user;
    const struct store_progress progress = {show, f};
    char host[NET_TEXT_BYTES], at[NET_TEXT_BYTES + 16];
    struct model_files files;
    int port = (int)json_integer_value(json_object_get(offer, "port"));
    if (!nodes_host_of(f->holder->address, host, sizeof host))
        return err_set(err, ST_IO, "%s: the address is too long", f->holder->address);
    net_join(at, sizeof at, host, port);
    TRY(model_files_from_json(&files, json_object_get(offer, "model"), err));
    f->total = files.bytes;
    enum status st = ST_OK;
    if (!store_find(store, &files, NULL, f->path, sizeof f->path)) {
        cli_progress_begin(&f->progress, f->holder->node);
        st = store_fetch(store, f->id, at, &files, &progress, f->path, sizeof f->path, err);
        cli_progress_end(&f->progress);
    }
    model_files_deinit(&files);
    return st;
}

static enum status fetch(char path[PATH_MAX], struct err *err) {
    static char own[PATH_MAX];
    struct identity id;
    struct models_holder holder;
    if (store == NULL) {
        TRY(store_path(own, sizeof own, err));
        store = own;
    }
    TRY(nodes_identity(&id, err));
    enum status st = models_holder(&holder, name, from, from, err);
    struct fetching f = {.id = &id, .holder = &holder};
    if (st == ST_OK)
        st = models_offer(&id, &holder, name, fetch_offered, &f, err);
    identity_deinit(&id);
    snprintf(path, PATH_MAX, "%s", f.path);
    return st;
}

int cmd_fetch(int argc, char **argv) {
    struct err err;
    char path[PATH_MAX];
    int status = cli_parse(&fetch_command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    enum status st = fetch(path, &err);
    if (st == ST_CANCELLED)
        return 130;
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    printf("%s\n", path);
    status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}
