/* cluster_source.c: Hears what the cluster does, from a node or from a server. */
#include "view/cluster_source.h"

#include "base/mem.h"
#include "cli/ask_server.h"
#include "cli/nodes.h"
#include "cluster/client.h"

#include <stdio.h>
#include <string.h>

#define PATH "/v1/cluster"
#define SERVER_S 5.0

struct cluster_source {
    struct identity id;
    bool has_id;
    struct client *client; /* NULL: a server is asked */
    struct ask_server *ask;
    char name[SERVER_URL_BYTES]; /* of whom is asked */
};

static enum status open_client(struct cluster_source *s,
                               const struct cluster_source_config *cfg, struct err *err) {
    TRY(nodes_identity(&s->id, err));
    s->has_id = true;
    snprintf(s->name, sizeof s->name, "the node at %s", cfg->node);
    TRY(client_open(&s->client, &s->id, cfg->node, err));
    client_ask_whether(s->client, cfg->go_on, cfg->user);
    return ST_OK;
}

static enum status open_server(struct cluster_source *s,
                               const struct cluster_source_config *cfg, struct err *err) {
    struct ask_server_config server = {cfg->key, cfg->go_on, cfg->user};
    TRY(ask_server_url(s->name, cfg->server, strlen(cfg->server), err));
    return ask_server_open(&s->ask, &server, err);
}

enum status cluster_source_open(struct cluster_source **out,
                                const struct cluster_source_config *cfg, struct err *err) {
    struct cluster_source *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ST_NO_MEMORY, "not enough memory to ask a cluster");
    enum status st = cfg->node != NULL ? open_client(s, cfg, err) : open_server(s, cfg, err);
    if (st == ST_OK)
        *out = s;
    else
        cluster_source_close(s);
    return st;
}

void cluster_source_close(struct cluster_source *s) {
    if (s == NULL)
        return;
    client_close(s->client);
    ask_server_close(s->ask);
    if (s->has_id)
        identity_deinit(&s->id);
    mem_free(s);
}

enum status cluster_source_get(struct cluster_source *s, json_t **out, struct err *err) {
    enum status st = s->client != NULL
                         ? client_json(s->client, PATH, NULL, out, err)
                         : ask_server_json(s->ask, s->name, PATH, SERVER_S, out, err);
    if (st == ST_NOT_FOUND && s->client != NULL)
        return err_set(err, ST_UNSUPPORTED, "%s is of another version: it has no " PATH,
                       s->name);
    TRY(st);
    if (json_is_object(*out))
        return ST_OK;
    json_decref(*out);
    return err_set(err, ST_IO, "%s does not say what the cluster does", s->name);
}
