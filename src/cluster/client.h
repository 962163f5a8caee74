/* client.h: asking a node: HTTPS on libcurl, with the cluster's identity (identity.h).
 *
 * Every call is bounded: CLIENT_CONNECT_MS to connect, CLIENT_REPLY_MS for a whole reply; a stream of lines has no end of its own, but its
 * caller is asked several times a second whether to go on. Sentences begin with the node's address.
 * ST_TIMEOUT: nobody answers there; ST_REFUSED: whoever does has another cluster key; else what the node said. */
#ifndef LOCKSTEP_CLUSTER_CLIENT_H
#define LOCKSTEP_CLUSTER_CLIENT_H

#include "cluster/identity.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLIENT_CONNECT_MS 3000
#define CLIENT_REPLY_MS 30000
/* The port of a node, and of its beacons. */
#define NODE_PORT 7342

struct client; /* one connection, kept open between calls; of one thread at a time */

/* address: "host", "host:port", "[v6]:port" or "v6", NODE_PORT where none is given. Does not connect yet. */
enum status client_open(struct client **out, const struct identity *id, const char *address,
                        struct err *err);
void client_close(struct client *c);

/* A JSON document for a JSON document. body: NULL for GET, else it is POSTed (the reference stays the caller's). *reply: a
 * new reference. */
enum status client_json(struct client *c, const char *path, const json_t *body, json_t **reply,
                        struct err *err);

struct client_stream {
    /* Each line without its end; empty ones are left out. False: enough. */
    bool (*line)(void *user, char *line);
    /* Asked now and then; false: enough. NULL: goes on. */
    bool (*go_on)(void *user);
    void *user;
};
/* POSTs body and hears lines until the node ends the stream (ST_OK) or the caller has enough (ST_CANCELLED). */
enum status client_lines(struct client *c, const char *path, const json_t *body,
                         const struct client_stream *to, struct err *err);

/* Of a file: `count` pieces of n bytes, the first at offset `at`, each further one `stride` bytes on. */
struct client_pieces {
    uint64_t at;
    size_t n;
    uint64_t stride;
    size_t count;
};
/* These bytes one piece after the other, exactly, from a share (server/share.h). */
enum status client_pieces(struct client *c, const char *path, const struct client_pieces *p,
                          void *buf, struct err *err);

#endif
