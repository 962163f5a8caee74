/* ask_node.h: asks a node of the cluster, with its key, what is up, and waits for what changes.
 *
 *   ST_TIMEOUT    no answer, with a sentence that says how a node is started
 *   ST_NOT_FOUND  there is no key yet; no such deployment
 *   ST_BAD_INPUT  the node does not accept the request
 *   ST_REFUSED    another key, or not now (with a sentence)
 *   ST_IO         everything else */
#ifndef LOCKSTEP_CLI_ASK_NODE_H
#define LOCKSTEP_CLI_ASK_NODE_H

#include "base/status.h"
#include "cluster/client.h"
#include "cluster/identity.h"

#include <jansson.h>

#define ASK_NODE_DEFAULT "127.0.0.1" /* this machine's own */

struct ask_node {
    const char *address; /* borrowed */
    struct identity id;
    struct client *client;
};

enum status ask_node_open(struct ask_node *a, const char *address, struct err *err);
void ask_node_close(struct ask_node *a);

/* POST of body, or GET if it is NULL: the answer, a new reference. */
enum status ask_node_json(struct ask_node *a, const char *path, const json_t *body,
                          json_t **out, struct err *err);
/* The deployment of that name in a list as GET /v1/deployments gives it: a new reference; NULL:
 * none. */
json_t *ask_node_find(const json_t *deployments, const char *name);
/* The same, asked for now. */
enum status ask_node_deployment(struct ask_node *a, const char *name, json_t **out,
                                struct err *err);
/* Until the deployment `name`, whose request has that id, listens (*out: as it is then), or has
 * failed; its states go to stderr. ST_CANCELLED: taken down meanwhile. */
enum status ask_node_wait(struct ask_node *a, const char *name, const char *id, json_t **out,
                          struct err *err);

#endif
