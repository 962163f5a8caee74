/* ask_node ADDRESS PATH [JSON]: asks a node as whoever has the cluster's key may: GET, or POST of a
 * body. Prints the answer; exit 1, and the node's sentence, if it says no. */
#include "cluster/client.h"
#include "cluster/key.h"

#include <limits.h>
#include <sodium.h>
#include <stdio.h>

static enum status ask(int argc, char **argv, json_t **answer, struct err *err) {
    char path[PATH_MAX];
    struct cluster_key key;
    struct identity id;
    struct client *c;
    json_t *body = argc > 3 ? json_loads(argv[3], 0, NULL) : NULL;
    if (argc > 3 && body == NULL)
        return err_set(err, ST_BAD_INPUT, "the body is not JSON");
    TRY(cluster_key_path(path, sizeof path, err));
    TRY(cluster_key_read(&key, path, err));
    TRY(identity_make(&id, &key, err));
    TRY(client_open(&c, &id, argv[1], err));
    enum status st = client_json(c, argv[2], body, answer, err);
    client_close(c);
    identity_deinit(&id);
    json_decref(body);
    return st;
}

int main(int argc, char **argv) {
    struct err err;
    json_t *answer;
    if (argc < 3 || sodium_init() < 0)
        return 2;
    if (ask(argc, argv, &answer, &err) != ST_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    json_dumpf(answer, stdout, JSON_COMPACT);
    json_decref(answer);
    return 0;
}
