/* cmd_nodes.c: lockstep nodes: which machines of the cluster are there. */
#include "base/mem.h"
#include "base/util.h"
#include "cli/nodes.h"
#include "cluster/client.h"
#include "server/node.h"

#include <stdio.h>

static bool json;

static const struct cli_option options[] = {
    CLI_FLAG(0, "json", &json, "a JSON array: of each node what it says of itself"), CLI_END};

static const struct cli_command command = {
    "nodes", "lists the machines of this user's cluster",
    "Asks all networks of this machine which nodes (lockstep node) with this user's cluster key "
    "(lockstep\nkey) are there, and each of them what it is. Takes a second.",
    options};

/* What the node says, and where it was heard; with "error" if it does not answer. */
static json_t *ask(const struct identity *id, const struct discovered *d) {
    json_t *o = node_seen_json(d), *facts = NULL;
    struct err err = {"it has no address that can be used"};
    struct client *c;
    for (int i = 0; i < d->n_addresses && facts == NULL; i++) {
        char address[NET_TEXT_BYTES];
        net_text(&d->addresses[i], address);
        if (client_open(&c, id, address, &err) != ST_OK)
            continue;
        if (client_json(c, "/v1/node", NULL, &facts, &err) == ST_OK)
            json_object_set_new(o, "address", json_string(address));
        client_close(c);
    }
    if (facts != NULL)
        json_object_update(o, facts);
    else
        json_object_set_new(o, "error", json_string(err.text));
    json_decref(facts);
    return o;
}

static void print_node(const json_t *o) {
    const char *node, *version, *address = "-", *isa = "-", *sentence = NULL;
    json_int_t memory = 0, available = 0;
    int cores = 0;
    size_t n_workers = json_array_size(json_object_get(o, "workers"));
    char all[32], left[32];
    json_unpack((json_t *)(uintptr_t)o, "{s:s, s:s, s?s, s?s, s?s, s?I, s?I, s?i}", "name",
                &node, "version", &version, "address", &address, "isa", &isa, "error",
                &sentence, "memory_bytes", &memory, "memory_available_bytes", &available,
                "cores", &cores);
    if (sentence != NULL)
        printf("%-20s %s\n", node, sentence);
    else
        printf("%-20s %-24s %4d cores  %9s, %9s free  %-8s %zu worker%s  lockstep %s\n", node,
               address, cores, cli_bytes((uint64_t)memory, all),
               cli_bytes((uint64_t)available, left), isa, n_workers, n_workers == 1 ? "" : "s",
               version);
}

static enum status list(struct err *err) {
    struct identity id;
    struct discovered *found;
    size_t n, n_strangers;
    char stranger[NET_TEXT_BYTES];
    TRY(nodes_identity(&id, err));
    enum status st = nodes_discover(&id, &found, &n, stranger, &n_strangers, err);
    if (st != ST_OK) {
        identity_deinit(&id);
        return st;
    }
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(all, ask(&id, &found[i]));
    if (json) {
        cli_print_json(json_incref(all));
    } else {
        for (size_t i = 0; i < n; i++)
            print_node(json_array_get(all, i));
        if (n == 0)
            fprintf(stderr, "no node was heard: is lockstep node running, with the key that "
                            "lockstep key shows here?\n");
    }
    if (n_strangers > 0)
        fprintf(stderr, "%s has another cluster key or version of lockstep\n", stranger);
    json_decref(all);
    mem_free(found);
    identity_deinit(&id);
    return ST_OK;
}

int cmd_nodes(int argc, char **argv) {
    struct err err;
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    enum status st = list(&err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}
