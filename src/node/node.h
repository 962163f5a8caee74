/* node.h: one machine of a cluster behind HTTPS. It describes the machine, and starts workers
 * for holders of the cluster's key. It is small and never touches weights. controller.h handles
 * deployments.
 *
 *     GET  /v1/node           this machine, its devices (devices.h), and the workers that run here
 *     GET  /v1/nodes          {"nodes": [{"name", "version", "machine", "addresses": [{"address",
 *                             "interface"}], "age_s"}]: all other nodes that it knows,
 *                             "self": this one, "strangers": addresses of nodes with another key}
 *     GET  /v1/models         {"models": its folder of models (cluster/catalog.h)}
 *     POST /v1/models/offer   {"name"} -> a line {"model": files, "path": .., "port": of a share
 *                             (model_share.h)}, or 404; the share exists until the client
 *                             disconnects
 *     POST /v1/models/find    {"model": files, "hint": path} -> {"path": ..}, or 404
 *                             (cluster/model_files.h)
 *     POST /v1/models/fetch   {"model": files, "from": "host:port"} -> lines {"bytes": n}, at last
 *                             {"path": ..} or {"error": .., "status": as HTTP has it};
 *                             507: the disk is full
 *     POST /v1/models/link    {"model": files, "from": "host:port"} -> {"path": ..}: only the
 *                             heads are copied (store_link())
 *     GET  /v1/cluster        the whole cluster as this node sees it (overview.h)
 *     POST /v1/cluster/plan   what placements of a model would give (controller_plan.c)
 *     POST /v1/cluster/move   who serves a model, or computes it (controller_change.c)
 *     POST /v1/cluster/speed  how fast this machine is, for who plans (controller_speed.c)
 *     POST /v1/models/pull    {"name": "ORG/REPO:QUANT", "revision", "port": of the sender's relay
 *                             (hub_relay.h)} -> lines as of fetch; the model lies in the hub's
 *                             cache (hub/cache.h)
 *     POST /v1/workers        {"model": files, "hint": path, "job": ..} -> a line for each message
 *                             of the worker (ranks/launch.h), at last "exit N" or "signal N";
 *                             if the client disconnects, the worker ends
 *
 * Errors are {"error": sentence}. Every request needs the token of cluster/identity.h. */
#ifndef LOCKSTEP_NODE_NODE_H
#define LOCKSTEP_NODE_NODE_H

#include "cluster/discovery.h"
#include "cluster/identity.h"

#include <jansson.h>

struct controller;
struct node;

struct node_config {
    const struct identity *id;
    const char *host;        /* NULL: all addresses */
    int port;                /* 0: any free one */
    const char *name;        /* of this machine */
    const char *store;       /* cluster/store.h */
    const char *worker_path; /* as launch_open's */
};

/* Everything is copied but id, which stays the caller's until node_close(). ST_IO: the port is
 * taken... */
enum status node_open(struct node **out, const struct node_config *cfg, struct err *err);
int node_port(const struct node *n);
/* The discovery whose strangers /v1/nodes lists; NULL: none. It stays the caller's, who sets
 * NULL before closing it. */
void node_set_discovery(struct node *n, struct discovery *d);
/* The controller whose paths it answers, too; NULL: none. The same. */
void node_set_controller(struct node *n, struct controller *k);
/* What a controller is to tell of the machine (its tell): its devices, and the copies that others
 * have asked for. node: a struct node. */
void node_tell(void *node, json_t *facts);
/* How many workers run here. */
int node_n_workers(struct node *n);
/* Ends the workers. NULL is fine. */
void node_close(struct node *n);

/* What discovery tells of one node, its addresses best first, as /v1/nodes lists it. */
json_t *node_seen_json(const struct discovered *seen);

#endif
