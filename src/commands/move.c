/* move.c: lockstep move: another node serves a model that is up, or other nodes compute it. */
#include "base/json.h"
#include "base/util.h"
#include "cli/ask_node.h"
#include "cli/cli.h"

#include <stdio.h>

static const char *node = ASK_NODE_DEFAULT, *name, *to, *nodes, *parallel;
static bool json;

static const struct cli_option options[] = {
    CLI_ARG("NAME", &name, "as lockstep ps lists it"),
    CLI_TEXT(0, "to", "NODE", &to, "the node that is to serve it"),
    CLI_TEXT(0, "nodes", "LIST", &nodes,
             "the nodes that are to compute it: names with commas, or\n"
             "auto for whatever is fastest"),
    CLI_TEXT(0, "parallel", "HOW", &parallel,
             "how these nodes share it, as the list has it (tensor2,\n"
             "pipeline2, ...), or auto (default: auto)"),
    CLI_TEXT(0, "node", "ADDRESS", &node, "the node to ask (default: this machine's own)"),
    CLI_FLAG(0, "json", &json, "what became of it, or the list, as JSON"),
    CLI_END};

static const struct cli_command command = {
    "move", "says which nodes compute a model that is up, and how",
    "With the NAME alone it lists what was measured: which nodes could compute the model, how,\n"
    "and how fast that would be. With --nodes, or --to, its server begins again there. Answers\n"
    "under way go on with the same words. Other nodes stay ready to take over.\n"
    "\n"
    "  lockstep move model                                   what could be chosen\n"
    "  lockstep move model --nodes rack,shelf --parallel tensor2\n"
    "  lockstep move model --to shelf                        it serves; who computes stays\n"
    "  lockstep move model --nodes auto                      the fastest again",
    options};

/* ---- the list ---------------------------------------------------------------------------- */

static void print_rate(const json_t *rate) {
    char text[32] = "-";
    if (json_is_number(rate))
        snprintf(text, sizeof text, "%.1f", json_number_value(rate));
    printf("  %9s", text);
}

static void print_candidate(const json_t *c) {
    const json_t *names = json_object_get(c, "nodes");
    const char *why = json_text(c, "sentence");
    size_t i;
    json_t *one;
    printf("%c %-20s", json_is_true(json_object_get(c, "chosen")) ? '*' : ' ',
           json_text(c, "layout"));
    print_rate(json_object_get(c, "tokens_per_second"));
    print_rate(json_object_get(c, "prompt_per_second"));
    printf("  ");
    json_array_foreach((json_t *)(uintptr_t)names, i, one) {
        printf("%s%s", i > 0 ? "," : "", json_string_value(one));
    }
    printf("%s%s\n", *why != '\0' ? "  " : "", why);
}

/* answer: taken over. */
static int print_list(json_t *answer) {
    const json_t *list = json_object_get(answer, "candidates");
    size_t i;
    json_t *one;
    if (json)
        return cli_print_json(answer);
    if (json_array_size(list) > 0)
        printf("  %-20s  %9s  %9s  %s\n", "PARALLEL", "TOKENS/S", "PROMPT/S", "NODES");
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        print_candidate(one);
    }
    fprintf(stderr, "%s\n", json_text(answer, "sentence"));
    json_decref(answer);
    int status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

/* ---- the change -------------------------------------------------------------------------- */

/* of: taken over. */
static int print_moved(json_t *of) {
    if (json)
        return cli_print_json(of);
    printf("%s serves %s", json_text(of, "node"), name);
    if (nodes != NULL && !str_eq(nodes, "auto"))
        printf(", and %s compute it%s%s", nodes, parallel != NULL ? " as " : "",
               parallel != NULL ? parallel : "");
    printf("\n");
    json_decref(of);
    int status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

static enum status change(struct ask_node *a, json_t **out, struct err *err) {
    json_t *asked, *wish = json_pack("{s:s, s:s*, s:s*, s:s*}", "name", name, "node", to,
                                     "nodes", nodes, "parallel", parallel);
    enum status st = ask_node_json(a, "/v1/cluster/move", wish, &asked, err);
    json_decref(wish);
    TRY(st);
    st = ask_node_wait(a, name, json_text(asked, "id"), out, err);
    json_decref(asked);
    return st;
}

static enum status list(struct ask_node *a, json_t **out, struct err *err) {
    json_t *wish = json_pack("{s:s}", "name", name);
    enum status st = ask_node_json(a, "/v1/cluster/plan", wish, out, err);
    json_decref(wish);
    return st;
}

int cmd_move(int argc, char **argv) {
    struct ask_node a;
    struct err err;
    json_t *answer;
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    bool changes = to != NULL || nodes != NULL;
    if (parallel != NULL && nodes == NULL)
        return cli_fail(ST_BAD_INPUT, "--parallel needs --nodes: which ones are to share it?");
    enum status st = ask_node_open(&a, node, &err);
    if (st == ST_OK) {
        st = changes ? change(&a, &answer, &err) : list(&a, &answer, &err);
        ask_node_close(&a);
    }
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    return changes ? print_moved(answer) : print_list(answer);
}
