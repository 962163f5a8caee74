/* peers.h: HTTPS for holders of the cluster's key, shared by nodes and shares. */
#ifndef LOCKSTEP_NODE_PEERS_H
#define LOCKSTEP_NODE_PEERS_H

#include "cluster/identity.h"
#include "net/http.h"

/* http_open() with the cluster's certificate and token. cfg->host NULL: all addresses. */
enum status peers_open(struct http_server **out, const struct http_config *cfg,
                       const struct identity *id, struct err *err);
/* The same at any free port of all addresses, for what is there only to be read: small requests. */
struct peers_reading {
    void (*handle)(void *user, struct http_request *r);
    void *user;
    int max_connections, max_per_address; /* max_per_address 0: no other limit */
};
enum status peers_open_to_read(struct http_server **out, const struct peers_reading *reading,
                               const struct identity *id, struct err *err);
/* {"error": sentence} */
void peers_refuse(struct http_request *r, int status, const char *sentence);

#endif
