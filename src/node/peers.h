/* peers.h: HTTPS for holders of the cluster's key, shared by nodes and shares. */
#ifndef LOCKSTEP_NODE_PEERS_H
#define LOCKSTEP_NODE_PEERS_H

#include "cluster/identity.h"
#include "net/http.h"

/* http_open() with the cluster's certificate and token. cfg->host NULL: all addresses. */
enum status peers_open(struct http_server **out, const struct http_config *cfg,
                       const struct identity *id, struct err *err);
/* {"error": sentence} */
void peers_refuse(struct http_request *r, int status, const char *sentence);

#endif
