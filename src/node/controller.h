/* controller.h: what a node does for the deployments of its cluster (cluster/deployments.h). It
 * exchanges the list with the other nodes, serves the deployments that are its own (replica.h),
 * and answers at the port of each (gateway.h).
 *
 *     GET  /v1/deployments         {"deployments": [{"name", "id", "model", "port", "tls",
 *                                  "nodes", "state", "node", "sentence", "silent", "standby",
 *                                  "idle_s", "unloads", "absent"}], "present": [names of nodes]}
 *     POST /v1/deployments         a deployment; 400 and a sentence if it cannot be taken
 *     POST /v1/deployments/remove  {"name"}
 *     POST /v1/deployments/sync    among nodes: what one knows and does, for the same of the other
 *     GET  /v1/cluster             the whole cluster, as at a deployment's port
 *     GET  /v1/cluster/self        among nodes: what one tells of itself (overview.h)
 *
 *   state    "listening", "starting", "stopping", "failed", "waiting", "asleep"
 *   id       identifies the request that put it up
 *   silent   the nodes that do not answer at the port, and why ("": not yet)
 *   standby  by node, {"reason", "sentence"}: "": it could serve it; otherwise "missing",
 *            "copying", "damaged", "different", "disk", "memory", "failed"
 *   idle_s   for how long it may go unasked before it is unloaded, in seconds; null: for ever
 *   unloads  when that would happen, Unix time
 *   absent   the words of "nodes" that match no node present
 *
 * A child, `lockstep serve`, serves a deployment. It ends with the node and listens on a port
 * of its own. If the serving node is not heard for ten seconds, the next one that has the model
 * begins. When the first one comes back, it sees that and does not serve. A node that joins
 * later gets its part when the server starts again, which happens for that purpose while the
 * server is idle. Two parts of a cluster that cannot see each other both serve, until they can.
 *
 * A thread of its own does all that. controller_handle_*() run on the HTTP server's thread and
 * never wait for it. */
#ifndef LOCKSTEP_NODE_CONTROLLER_H
#define LOCKSTEP_NODE_CONTROLLER_H

#include "cluster/discovery.h"
#include "cluster/identity.h"
#include "net/http.h"

#include <jansson.h>
#include <stdbool.h>

struct controller;

struct controller_config {
    const struct identity *id;   /* borrowed until controller_close() */
    struct discovery *discovery; /* until controller_leave(); NULL: only seeds */
    const char *seeds;           /* addresses of other nodes, "a,b:7400"; NULL: none */
    const uint8_t *node;         /* [BEACON_ID_BYTES], as in its beacons; NULL: a random one */
    const char *name;            /* of this node */
    const char *host;            /* where it answers; NULL: at all addresses */
    int port;
    const char *models;  /* cluster/store.h */
    const char *state;   /* folder for what is kept across starts */
    const char *program; /* as launch_open's worker_path */
    /* Whether a deployment's "args" are options of lockstep serve that another user may set.
     * ST_BAD_INPUT. */
    enum status (*check_words)(const char *const *words, size_t n, struct err *err);
    /* Adds to what is told of this machine; from any thread, until controller_close(). NULL:
     * nothing. */
    void (*tell)(void *user, json_t *facts);
    void *tell_user;
};

/* Texts are copied. ST_BAD_INPUT: an address, or what is on the disk is damaged; ST_NO_MEMORY. */
enum status controller_open(struct controller **out, const struct controller_config *cfg,
                            struct err *err);
/* Stops working for the cluster, and tells the others, so that they need not wait for a
 * timeout. Its server, and requests at its ports, have ten seconds to finish; new requests are
 * refused. Its discovery may be closed then. */
void controller_leave(struct controller *k);
/* The same, unless it has been done, and waits for that. NULL is fine. */
void controller_close(struct controller *k);

/* Its paths, in the order above. */
void controller_handle_list(struct controller *k, struct http_request *r);
void controller_handle_put(struct controller *k, struct http_request *r);
void controller_handle_remove(struct controller *k, struct http_request *r);
void controller_handle_sync(struct controller *k, struct http_request *r);
void controller_handle_cluster(struct controller *k, struct http_request *r);
void controller_handle_self(struct controller *k, struct http_request *r);
/* What nodes ask each other for who plans (controller_plan.c). They answer later. */
void controller_handle_speed(struct controller *k, struct http_request *r);
void controller_handle_plan(struct controller *k, struct http_request *r);
void controller_handle_move(struct controller *k, struct http_request *r); /* likewise */
/* The deployments as GET gives them; a new reference. */
json_t *controller_deployments(struct controller *k);
/* All other nodes that it knows of, however it has heard of them, as GET /v1/nodes gives them
 * (node.h), and this one; new references. */
json_t *controller_nodes(struct controller *k, json_t **self);

#endif
