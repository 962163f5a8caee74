/* nodes.c: lockstep nodes: lists the machines of the cluster and the models that they serve. */
#include "cli/nodes.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "cluster/devices.h"

#include <stdio.h>

static bool json;
static const char *at;

static const struct cli_option options[] = {
    CLI_FLAG(0, "json", &json,
             "prints a JSON array, with what each node says of\n"
             "itself"),
    CLI_TEXT(0, "node", "ADDRESS", &at,
             "the node to ask (default: this machine's own; if none\n"
             "runs, all networks)"),
    CLI_END};

static const struct cli_command command = {
    "nodes", "lists the machines of this user's cluster",
    "Asks this machine's node (lockstep node) for the nodes with this user's cluster key\n"
    "(lockstep key). If no node runs here, it asks all networks. Each node then says what it\n"
    "is, and which models the nodes serve together (lockstep up).",
    options};

static void print_devices(const json_t *o) {
    const char *sentence = json_string_value(json_object_get(o, "devices_error"));
    char memory[32];
    size_t i;
    json_t *d;
    json_array_foreach(json_object_get(o, "devices"), i, d) {
        const char *error = json_text(d, "error");
        json_int_t bytes = json_integer_value(json_object_get(d, "memory_bytes"));
        printf("%-20s device %zu: %s, %s, %s, %s%s%s\n", "", i, json_text(d, "name"),
               json_text(d, "kind"), cli_bytes((uint64_t)bytes, memory), json_text(d, "driver"),
               *error != '\0' ? "; not usable: " : "", error);
    }
    if (sentence != NULL)
        printf("%-20s devices: %s\n", "", sentence);
}

static void print_node(const json_t *o) {
    const char *node = "?", *version = "?", *address = "-", *isa = "-", *sentence = NULL;
    json_int_t memory = 0, available = 0;
    int cores = 0, domains = 1;
    size_t n_workers = json_array_size(json_object_get(o, "workers"));
    char all[32], left[32], numa[32] = "";
    json_unpack((json_t *)(uintptr_t)o, "{s:s, s:s, s?s, s?s, s?s, s?I, s?I, s?i, s?i}", "name",
                &node, "version", &version, "address", &address, "isa", &isa, "error",
                &sentence, "memory_bytes", &memory, "memory_available_bytes", &available,
                "cores", &cores, "numa_domains", &domains);
    if (domains > 1)
        snprintf(numa, sizeof numa, " in %d NUMA domains", domains);
    if (sentence != NULL)
        printf("%-20s %s\n", node, sentence);
    else
        printf("%-20s %-24s %4d cores%s  %9s, %9s free  %-8s %zu worker%s  lockstep %s\n", node,
               address, cores, numa, cli_bytes((uint64_t)memory, all),
               cli_bytes((uint64_t)available, left), isa, n_workers, n_workers == 1 ? "" : "s",
               version);
    print_devices(o);
}

static void print_standbys(const json_t *all) {
    const char *node;
    json_t *one;
    json_object_foreach((json_t *)(uintptr_t)all, node, one) {
        const char *sentence = json_string_value(json_object_get(one, "sentence"));
        if (sentence != NULL && *sentence != '\0')
            printf("%-20s %s could not stand in: %s\n", "", node, sentence);
    }
}

static void print_deployment(const json_t *o) {
    const char *name, *state, *sentence;
    const char *node = json_string_value(json_object_get(o, "node")); /* null: not served */
    int port, tls;
    if (json_unpack((json_t *)(uintptr_t)o, "{s:s, s:s, s:s, s:i, s:b}", "name", &name, "state",
                    &state, "sentence", &sentence, "port", &port, "tls", &tls) != 0)
        return;
    printf("%-20s at %s://ANY-NODE:%-5d %s%s%s%s%s\n", name, tls ? "https" : "http", port,
           state, node != NULL ? " on " : "", node != NULL ? node : "",
           *sentence != '\0' ? ": " : "", sentence);
    const char *silent;
    json_t *why;
    json_object_foreach(json_object_get(o, "silent"), silent, why) {
        if (json_string_length(why) > 0 && (node == NULL || !str_eq(silent, node)))
            printf("%-20s not at %s: %s\n", "", silent, json_string_value(why));
    }
    print_standbys(json_object_get(o, "standby"));
}

/* All nodes know the same: the first that says anything is heard. */
static void print_deployments(const json_t *all) {
    size_t i, k;
    json_t *node, *one;
    json_array_foreach((json_t *)(uintptr_t)all, i, node) {
        const json_t *list = json_object_get(node, "deployments");
        if (list == NULL)
            continue;
        if (json_array_size(list) > 0)
            printf("\n");
        json_array_foreach((json_t *)(uintptr_t)list, k, one) {
            print_deployment(one);
        }
        return;
    }
}

static enum status list(struct err *err) {
    struct identity id;
    json_t *found;
    size_t n_strangers = 0;
    char stranger[NET_TEXT_BYTES];
    TRY(nodes_identity(&id, err));
    enum status st = nodes_find(&id, at, &found, stranger, &n_strangers, err);
    if (st != ST_OK) {
        identity_deinit(&id);
        return st;
    }
    json_t *all = nodes_ask_all(&id, found, "/v1/node");
    size_t n = json_array_size(all);
    for (size_t i = 0; i < n; i++)
        node_devices_mend(json_array_get(all, i));
    if (json) {
        cli_print_json(json_incref(all));
    } else {
        for (size_t i = 0; i < n; i++)
            print_node(json_array_get(all, i));
        print_deployments(all);
        if (n == 0)
            fprintf(stderr, "no node was heard: is lockstep node running, with the key that "
                            "lockstep key shows here?\n");
    }
    if (n_strangers > 0)
        fprintf(stderr,
                "%s has another cluster key or version of lockstep, or was not started again "
                "since the key was set\n",
                stranger);
    json_decref(all);
    json_decref(found);
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
