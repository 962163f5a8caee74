/* key.c: lockstep key: creates and shows the key of a cluster. */
#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cluster/identity.h"

#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

#define TYPED_MAX 4096

static bool set, new_one, curl, admin;

static const struct cli_option options[] = {
    CLI_FLAG(0, "set", &set, "reads another machine's key from standard input and keeps it"),
    CLI_FLAG(0, "new", &new_one,
             "makes a new key; nodes with the old one are then in another\n"
             "cluster"),
    CLI_FLAG(0, "curl", &curl,
             "prints what curl needs to ask a node: curl $(lockstep key --curl)\n"
             "https://rack:7342/v1/node"),
    CLI_FLAG(0, "admin", &admin,
             "prints the token with which a page or program may change\n"
             "what is up (docs/serve.md)"),
    CLI_END};

static const struct cli_command command = {
    "key", "shows, sets or makes the key of this user's cluster",
    "Machines whose nodes (lockstep node) have the same key are one cluster. The first one\n"
    "makes the key. Type or paste it on the others:\n"
    "\n"
    "  lockstep key           on the first: prints it\n"
    "  lockstep key --set     on the others: asks for it\n"
    "\n"
    "Whoever has the key may run models on these machines. It is kept in\n"
    "~/.config/lockstep/cluster.key (or $LOCKSTEP_CLUSTER_KEY), readable by its owner only. A\n"
    "running node keeps the key that it was started with.",
    options};

static enum status read_typed(struct cluster_key *out, struct err *err) {
    char text[TYPED_MAX];
    bool asks = isatty(STDIN_FILENO);
    if (asks)
        fprintf(stderr, "the cluster's key (lockstep key shows it on the first machine): ");
    if (fgets(text, sizeof text, stdin) == NULL)
        return err_set(err, ST_BAD_INPUT, "no key came on standard input");
    enum status st = cluster_key_parse(out, text, err);
    sodium_memzero(text, sizeof text);
    return st;
}

static enum status change(struct cluster_key *key, const char *path, struct err *err) {
    if (set)
        TRY(read_typed(key, err));
    else
        TRY(cluster_key_make(key, err));
    return cluster_key_write(key, path, err);
}

/* In words that a shell splits: no blank is in any of them. */
static enum status show_for_curl(const struct cluster_key *key, struct err *err) {
    struct identity id;
    TRY(identity_make(&id, key, err));
    printf("-k --pinnedpubkey %s --oauth2-bearer %s\n", id.pin, id.token);
    identity_deinit(&id);
    return ST_OK;
}

static enum status show_for_admin(const struct cluster_key *key, struct err *err) {
    struct identity id;
    TRY(identity_make(&id, key, err));
    printf("%s\n", id.admin);
    identity_deinit(&id);
    return ST_OK;
}

static enum status show(struct err *err) {
    struct cluster_key key;
    char path[PATH_MAX], text[CLUSTER_KEY_TEXT_BYTES];
    TRY(cluster_key_path(path, sizeof path, err));
    bool written = set || new_one;
    enum status st =
        written ? change(&key, path, err) : cluster_key_find(&key, path, &written, err);
    TRY(st);
    if (written)
        fprintf(stderr, "%s: written\n", path);
    if (curl)
        st = show_for_curl(&key, err);
    if (admin)
        st = show_for_admin(&key, err);
    cluster_key_text(&key, text);
    if (!set && !curl && !admin)
        printf("%s\n", text);
    sodium_memzero(&key, sizeof key);
    sodium_memzero(text, sizeof text);
    return st;
}

int cmd_key(int argc, char **argv) {
    struct err err;
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    if (set + new_one + curl + admin > 1)
        return cli_fail(ST_BAD_INPUT,
                        "either --set or --new or --curl or --admin, not two of them");
    enum status st = show(&err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}
