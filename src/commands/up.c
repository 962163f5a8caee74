/* up.c: lockstep up and lockstep down: a model that the nodes of a cluster serve together,
 * whichever of them are up. */
#include "base/duration.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "base/words.h"
#include "cli/ask_node.h"
#include "cli/device_list.h"
#include "cli/model_names.h"
#include "cli/nodes.h"
#include "cli/session.h"
#include "cluster/deployments.h"
#include "cluster/model_files.h"
#include "commands/serve.h"
#include "server/service.h"

#include <limits.h>
#include <stdio.h>

#define PEM_MAX ((size_t)1 << 20)
#define EVERYWHERE "0.0.0.0"

static const char *node = ASK_NODE_DEFAULT, *name, *host, *idle;
static int64_t idle_ms = DURATION_NEVER;
static bool json;

#define ASK_OPTIONS                                                                         \
    CLI_TEXT(0, "node", "ADDRESS", &node, "the node to ask (default: this machine's own)"), \
        CLI_FLAG(0, "json", &json, "what became of it, as JSON")

static const struct cli_option up_options[] = {
    CLI_COMMON(
        "node,port,alias,idle,api-key-file,insecure,log-requests,kv-memory,nodes,device,ctx"),
    ASK_OPTIONS,
    CLI_INT(0, "port", "P", &serve_args.port, 0, 65535, "of every node (default 8080)"),
    CLI_TEXT(0, "idle", "TIME", &idle,
             "unloads the model when nobody has asked it for so long, and\n"
             "loads it for the next question: 30s, 30m, 2h (default never)"),
    CLI_WITHOUT("host,port,ranks,hosts,join,rank,secret-file,rdma-matrix"),
    CLI_TEXT(0, "host", "ADDRESS", &host, "refused, with the reason"),
    CLI_INCLUDE(serve_options),
    CLI_END};

static const struct cli_command up_command = {
    "up", "lets the nodes of the cluster serve a model together",
    "Takes the options of lockstep serve. One node that has the model serves it, with a rank on\n"
    "each of the others (--nodes auto) and --failover. Every node answers at the port. If the\n"
    "serving node dies, another one starts serving. After a power cut the model comes back by\n"
    "itself.\n"
    "\n"
    "With --idle 30m a model that nobody has asked for half an hour gives its memory back on all\n"
    "machines. The next question at any node loads it again, and waits for that.\n"
    "\n"
    "Needs lockstep node on this machine, and --api-key-file, or --insecure if everybody in the\n"
    "network may use the model.\n"
    "\n"
    "  lockstep up model.gguf --api-key-file keys\n"
    "  lockstep nodes                             which models are up, and where\n"
    "  lockstep down model\n"
    "\n"
    "docs/nodes.md says more.",
    up_options};

static const struct cli_option down_options[] = {
    CLI_ARG("NAME", &name, "as lockstep nodes lists it"), ASK_OPTIONS, CLI_END};

static const struct cli_command down_command = {
    "down", "ends what lockstep up has put up",
    "All nodes stop serving the model. Nodes that are off learn of it when they are back.\n"
    "Requests that are being answered have ten seconds to finish.",
    down_options};

static enum status take_down(struct ask_node *a, const char *which, struct err *err) {
    json_t *answer, *body = json_pack("{s:s}", "name", which);
    enum status st = ask_node_json(a, "/v1/deployments/remove", body, &answer, err);
    json_decref(body);
    if (st == ST_OK)
        json_decref(answer);
    return st;
}

/* --device NODE=..: each is a node that is there. */
static enum status check_devices(struct ask_node *a, struct err *err) {
    char stranger[NET_TEXT_BYTES];
    size_t n_strangers, i, len;
    const char *absent = NULL, *text = session_args.devices;
    json_t *found, *one;
    if (!device_list_has_nodes(text))
        return ST_OK;
    TRY(nodes_find(&a->id, node, &found, stranger, &n_strangers, err));
    struct device_host *hosts = mem_calloc(MAX(json_array_size(found), 1u), sizeof *hosts);
    enum status st =
        hosts != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory for names of nodes");
    json_array_foreach(found, i, one) {
        if (hosts != NULL)
            hosts[i] = (struct device_host){json_text(one, "name"), 1};
    }
    if (st == ST_OK)
        st = device_list_check(text, hosts, json_array_size(found), &absent, &len, err);
    if (st == ST_OK && absent != NULL)
        st = err_set(err, ST_BAD_INPUT, "--device %s: no node called %.*s is there", text,
                     (int)len, absent);
    mem_free(hosts);
    json_decref(found);
    return st;
}

/* ---- what is asked for ------------------------------------------------------------------- */

/* Else a list that a variable or a blank has broken would do with fewer machines. */
static enum status check_nodes(const char *list, struct err *err) {
    size_t n;
    for (const char *at, *rest = list; (at = words_next(&rest, &n)) != NULL;) {
        if (n == 0)
            return err_set(err, ST_BAD_INPUT, "--nodes %s: a name is empty", list);
        if (str_starts(at, "auto@"))
            return err_set(err, ST_BAD_INPUT,
                           "--nodes %s: with up it is auto, names or addresses; --node names "
                           "the node to ask",
                           list);
        if (strcspn(at, " \t\n") < n)
            return err_set(err, ST_BAD_INPUT, "--nodes %s: no name has a blank", list);
    }
    return ST_OK;
}

/* 0 is never, too: a server that ends after each answer is asked for with keep_alive. */
static enum status check_idle(struct err *err) {
    if (idle == NULL)
        return ST_OK;
    if (!duration_parse(idle, &idle_ms))
        return err_set(
            err, ST_BAD_INPUT,
            "--idle %s: a time is 30s, 30m, 2h or 1h30m; 0 or never: the model stays", idle);
    if (idle_ms == 0)
        idle_ms = DURATION_NEVER;
    return ST_OK;
}

static enum status check(struct err *err) {
    const struct session_args *a = &session_args;
    const struct {
        bool given;
        const char *option, *why;
    } list[] = {
        {host != NULL, "host", "every node answers at all of its addresses"},
        {a->hosts != NULL, "hosts", "the nodes are its machines"},
        {a->join != NULL, "join", "the nodes are its machines"},
        {a->rank >= 0, "rank", "the nodes are its machines"},
        {a->secret_file != NULL, "secret-file", "the nodes are its machines"},
        {a->n_ranks != 0, "ranks", "there is one on each node (--nodes names some)"},
        {a->rdma_matrix != NULL, "rdma-matrix", "another node may serve it, with other cables"},
        {serve_args.port == 0, "port 0", "all nodes listen on it: it has to be known"},
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if (list[i].given)
            return err_set(err, ST_BAD_INPUT, "not with --%s: %s", list[i].option, list[i].why);
    TRY(check_idle(err));
    return check_nodes(a->nodes, err);
}

/* Is it one of the options that each node has to say in its own way, --option or
 * --option=VALUE? */
static bool is_apart(const char *word) {
    static const char *const apart[] = {"--nodes",    "--api-key", "--api-key-file",
                                        "--tls-cert", "--tls-key", "--node",
                                        "--idle"};
    size_t n = strcspn(word, "=");
    for (size_t i = 0; i < ARRAY_LEN(apart); i++)
        if (strlen(apart[i]) == n && memcmp(word, apart[i], n) == 0)
            return true;
    return false;
}

/* The words that lockstep serve gets as they are. Of an option that is given twice the last one
 * counts: none of them may be left here. */
static json_t *words_of(int argc, char **argv) {
    json_t *words = json_array();
    for (int i = 1; i < argc; i++) {
        if (str_eq(argv[i], "--json") || str_eq(argv[i], "--") || argv[i] == session_args.word)
            continue;
        if (!is_apart(argv[i]))
            json_array_append_new(words, json_string(argv[i]));
        else if (strchr(argv[i], '=') == NULL)
            i++; /* its value */
    }
    return words;
}

static enum status add_pem(json_t *files, const char *option, const char *path,
                           struct err *err) {
    char *text;
    if (path == NULL)
        return ST_OK;
    TRY(file_read_text(&text, NULL, path, PEM_MAX, err));
    int rc = json_object_set_new(files, option, json_string(text));
    mem_free(text);
    return rc == 0 ? ST_OK : err_set(err, ST_BAD_INPUT, "%s is not valid UTF-8 text", path);
}

static enum status add_keys(json_t *files, const struct serve_keys *keys, struct err *err) {
    json_t *all = json_string("");
    for (size_t i = 0; i < keys->n; i++) {
        json_t *more = json_sprintf("%s%s\n", json_string_value(all), keys->list[i]);
        json_decref(all);
        all = more;
    }
    int rc = keys->n == 0 || json_object_set(files, "api-key-file", all) == 0 ? 0 : -1;
    json_decref(all);
    return rc == 0 ? ST_OK : err_set(err, ST_BAD_INPUT, "a key is not valid UTF-8 text");
}

static enum status gather(json_t *files, struct err *err) {
    struct serve_keys keys;
    TRY(serve_check(&keys, EVERYWHERE, err));
    enum status st = add_keys(files, &keys, err);
    serve_keys_deinit(&keys);
    if (st == ST_OK)
        st = add_pem(files, "tls-cert", serve_args.tls_cert, err);
    if (st == ST_OK)
        st = add_pem(files, "tls-key", serve_args.tls_key, err);
    return st;
}

/* Which model it is: of this machine, or of another one by its name. */
struct which {
    json_t *files;       /* model_files_json(); owned */
    char hint[PATH_MAX]; /* where it is, there */
};

static enum status hear_which(void *user, const json_t *offer, struct err *err) {
    struct which *w = user;
    const char *path = json_string_value(json_object_get(offer, "path"));
    w->files = json_incref(json_object_get(offer, "model"));
    snprintf(w->hint, sizeof w->hint, "%s", path != NULL ? path : "");
    return w->files != NULL ? ST_OK : err_set(err, ST_IO, "the node's offer has no model");
}

static enum status find_elsewhere(struct which *w, struct err *err) {
    struct models_holder holder;
    struct identity id;
    TRY(nodes_identity(&id, err));
    enum status st = models_holder(&holder, session_args.model, NULL, node, err);
    if (st == ST_NOT_FOUND)
        err_set(
            err, st,
            "%s: no such file, and no node has a model of that name (lockstep models lists them)",
            session_args.model);
    if (st == ST_OK)
        st = models_offer(&id, &holder, session_args.model, hear_which, w, err);
    identity_deinit(&id);
    return st;
}

static enum status find_which(struct which *w, struct err *err) {
    const char *path = session_args.model;
    struct model_files model;
    if (models_here(&path, err) != ST_OK)
        return find_elsewhere(w, err);
    TRY(file_absolute(w->hint, sizeof w->hint, path, err));
    TRY(model_files_read(&model, w->hint, err));
    w->files = model_files_json(&model);
    model_files_deinit(&model);
    return w->files != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory for a model");
}

/* Before any node is asked. */
static enum status check_words(const json_t *words, struct err *err) {
    const char *list[DEPLOYMENT_ARGS_MAX];
    size_t n = json_array_size(words);
    if (n > DEPLOYMENT_ARGS_MAX)
        return err_set(err, ST_BAD_INPUT, "a deployment has more than %d words",
                       DEPLOYMENT_ARGS_MAX);
    for (size_t i = 0; i < n; i++) {
        list[i] = json_string_value(json_array_get(words, i));
        if (list[i] == NULL)
            return err_set(err, ST_BAD_INPUT, "word %zu of a deployment is not a string", i);
    }
    return serve_check_words(list, n, err);
}

static enum status describe(json_t **out, const char *as, int argc, char **argv,
                            struct err *err) {
    struct which which;
    TRY(find_which(&which, err));
    json_t *files = json_object(), *words = words_of(argc, argv);
    enum status st = check_words(words, err);
    if (st == ST_OK)
        st = gather(files, err);
    if (st == ST_OK && serve_args.alias == NULL &&
        (json_array_append_new(words, json_string("--alias")) != 0 ||
         json_array_append_new(words, json_string(as)) != 0))
        st = err_set(err, ST_BAD_INPUT, "%s is not valid UTF-8 text: give an --alias", as);
    if (st == ST_OK) {
        *out =
            json_pack("{s:s, s:i, s:b, s:s, s:b, s:O, s:s, s:O, s:O}", "name", as, "port",
                      serve_args.port, "tls", serve_args.tls_cert != NULL, "nodes",
                      session_args.nodes != NULL ? session_args.nodes : "auto", "copies",
                      session_args.weights == NULL || !str_eq(session_args.weights, "stream"),
                      "model", which.files, "hint", which.hint, "args", words, "files", files);
        if (*out == NULL)
            st = err_set(err, ST_BAD_INPUT, "%s is not valid UTF-8 text", which.hint);
        else if (idle_ms > 0)
            json_object_set_new(*out, "idle", json_integer((idle_ms + 999) / 1000));
    }
    json_decref(files);
    json_decref(words);
    json_decref(which.files);
    return st;
}

/* ---- waiting ----------------------------------------------------------------------------- */

static int say_up(const char *as, json_t *one) {
    const char *who;
    json_t *why;
    json_object_foreach(json_object_get(one, "silent"), who, why) {
        fprintf(stderr, "warning: %s does not answer at port %d%s%s\n", who, serve_args.port,
                json_string_length(why) > 0 ? ": " : " yet", json_string_value(why));
    }
    if (json)
        return cli_print_json(one);
    bool asleep = str_eq(json_text(one, "state"), "asleep");
    printf(
        "%s listens on %s://127.0.0.1:%d, and at this port of every other node%s; %s %s it\n",
        as, serve_args.tls_cert != NULL ? "https" : "http", serve_args.port,
        json_object_size(json_object_get(one, "silent")) > 0 ? " but those" : "",
        json_text(one, "node"), asleep ? "loads" : "serves");
    json_decref(one);
    int status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

/* --nodes may name machines that are off now; or the user has mistyped. */
static void warn_of_absent(const json_t *one) {
    size_t i;
    json_t *word;
    json_array_foreach(json_object_get(one, "absent"), i, word) {
        fprintf(stderr, "warning: no node called %s is there now\n", json_string_value(word));
    }
}

static enum status up(const char *as, const json_t *deployment, json_t **out, struct err *err) {
    struct ask_node a;
    json_t *before, *answer;
    TRY(ask_node_open(&a, node, err));
    enum status st = check_devices(&a, err);
    if (st == ST_OK)
        st = ask_node_deployment(&a, as, &before, err);
    bool is_new = st == ST_OK && before == NULL;
    if (st == ST_OK) {
        json_decref(before);
        st = ask_node_json(&a, "/v1/deployments", deployment, &answer, err);
    }
    if (st == ST_OK) {
        json_t *asked = ask_node_find(answer, as);
        warn_of_absent(asked);
        st = ask_node_wait(&a, as, json_text(asked, "id"), out, err);
        json_decref(asked);
        json_decref(answer);
        if ((st == ST_IO || st == ST_NOT_FOUND) && is_new)
            take_down(&a, as, NULL);
    }
    ask_node_close(&a);
    return st;
}

int cmd_up(int argc, char **argv) {
    struct err err;
    json_t *deployment = NULL, *one = NULL;
    session_args.anywhere = true;
    int status = cli_parse(&up_command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    char *as = serve_args.alias != NULL ? mem_strdup(serve_args.alias)
                                        : model_name_of(session_args.model);
    enum status st = as != NULL ? check(&err) : err_set(&err, ST_NO_MEMORY, "no memory");
    if (st == ST_OK && !deployment_name_is_good(as))
        st = err_set(
            &err, ST_BAD_INPUT,
            "%s is not a valid name for a deployment; --alias gives one: " DEPLOYMENT_NAME_RULE,
            as);
    if (st == ST_OK)
        st = describe(&deployment, as, argc, argv, &err);
    if (st == ST_OK)
        st = up(as, deployment, &one, &err);
    json_decref(deployment);
    status = st == ST_OK ? say_up(as, one) : cli_fail(st, "%s", err.text);
    mem_free(as);
    return status;
}

int cmd_down(int argc, char **argv) {
    struct ask_node a;
    struct err err;
    int status = cli_parse(&down_command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    enum status st = ask_node_open(&a, node, &err);
    if (st == ST_OK) {
        st = take_down(&a, name, &err);
        ask_node_close(&a);
    }
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    return json ? cli_print_json(json_pack("{s:s}", "down", name)) : 0;
}
