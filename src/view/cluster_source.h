/* cluster_source.h: where commands hear what the cluster does (GET /v1/cluster): a node, or a
 * server (lockstep serve, or the port of deployments). docs/nodes.md has the fields. */
#ifndef LOCKSTEP_VIEW_CLUSTER_SOURCE_H
#define LOCKSTEP_VIEW_CLUSTER_SOURCE_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>

struct cluster_source; /* of one thread at a time */

struct cluster_source_config {
    const char *node;          /* its address; NULL: no node is asked */
    const char *server;        /* a URL, asked if node is NULL */
    const char *key;           /* the server's; NULL: none */
    bool (*go_on)(void *user); /* asked several times a second; false: enough. May be NULL */
    void *user;
};

/* Does not connect yet. ST_NOT_FOUND: there is no cluster's key here. ST_BAD_INPUT: no address. */
enum status cluster_source_open(struct cluster_source **out,
                                const struct cluster_source_config *cfg, struct err *err);
void cluster_source_close(struct cluster_source *s); /* NULL is fine */
/* A new reference to an object. ST_TIMEOUT: nobody answers. ST_UNSUPPORTED: who answers is of a
 * version that has no such view. */
enum status cluster_source_get(struct cluster_source *s, json_t **out, struct err *err);

#endif
