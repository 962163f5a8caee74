/* client.h: asks a node over HTTPS with libcurl and the cluster's identity (identity.h).
 *
 * Every call is bounded: CLIENT_CONNECT_MS to connect, CLIENT_REPLY_MS for a whole reply. A
 * stream of lines may take as long as it likes, but must not be silent for CLIENT_SILENCE_MS
 * (nodes send empty lines). Sentences name the node's address.
 *
 *   ST_TIMEOUT    no answer
 *   ST_REFUSED    whoever answers has another cluster key
 *   ST_CANCELLED  client_ask_whether()
 *   others        as the node reports */
#ifndef LOCKSTEP_CLUSTER_CLIENT_H
#define LOCKSTEP_CLUSTER_CLIENT_H

#include "cluster/identity.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLIENT_CONNECT_MS 3000
#define CLIENT_REPLY_MS 30000
#define CLIENT_SILENCE_MS 60000
/* The port of a node, and of its beacons. */
#define NODE_PORT 7342

struct client; /* one connection, kept open between calls; of one thread at a time */

/* address: "host", "host:port", "[v6]:port" or "v6"; the default port is NODE_PORT. Does not
 * connect yet. ST_BAD_INPUT: not an address. */
enum status client_open(struct client **out, const struct identity *id, const char *address,
                        struct err *err);
void client_close(struct client *c);

/* Asked several times a second during every call from now on; false: it is given up. NULL: none
 * is. */
void client_ask_whether(struct client *c, bool (*go_on)(void *user), void *user);

/* A JSON document for a JSON document. body: NULL for GET, else it is POSTed (the reference
 * stays the caller's). *reply: a new reference. */
enum status client_json(struct client *c, const char *path, const json_t *body, json_t **reply,
                        struct err *err);

/* The same of GET path, over a connection of its own. */
enum status client_get(const struct identity *id, const char *address, const char *path,
                       json_t **reply, struct err *err);

/* "host:port" of an address in any of its forms; [v6]:port. False: too long. */
bool client_full_address(const char *address, char *out, size_t size);
/* Does `address`, in any of its forms, mean `full` ("host:port")? Without a port it means all
 * of that host's; IPv6 has many ways to write one address. No name is looked up. */
bool client_is_address(const char *address, const char *full);

struct client_stream {
    /* Each line without its end; empty ones are left out. False: enough. */
    bool (*line)(void *user, char *line);
    void *user;
};
/* POSTs body and reads lines until the node ends the stream (ST_OK) or the caller has enough
 * (ST_CANCELLED). */
enum status client_lines(struct client *c, const char *path, const json_t *body,
                         const struct client_stream *to, struct err *err);

/* Of a file: `count` pieces of n bytes, the first at offset `at`, each further one `stride`
 * bytes on. */
struct client_pieces {
    uint64_t at;
    size_t n;
    uint64_t stride;
    size_t count;
};
/* These bytes one piece after the other, exactly, from a share (node/model_share.h). */
enum status client_pieces(struct client *c, const char *path, const struct client_pieces *p,
                          void *buf, struct err *err);

/* For other users of libcurl (CURL *; NULL: no memory): no proxy, no signals, and sockets that
 * children do not inherit. */
void *client_curl(void);
/* Of such a one: the server is known by its key, and by nothing else, since there is no certificate
 * authority and addresses change. False: no memory. */
bool client_pin(void *curl, const char *pin);

#endif
