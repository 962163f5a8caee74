/* ask_server.h: asks a running server (lockstep serve, or the port of a cluster's deployments)
 * over HTTP, with libcurl.
 *
 *   ST_TIMEOUT    no answer
 *   ST_REFUSED    a key is missing or wrong; the certificate is not good
 *   ST_NOT_FOUND  no such path or model
 *   ST_BAD_INPUT  the server does not accept the request
 *   ST_AGAIN      it has no room now (with a sentence)
 *   ST_CANCELLED  the caller had enough
 *   ST_IO         everything else */
#ifndef LOCKSTEP_CLI_ASK_SERVER_H
#define LOCKSTEP_CLI_ASK_SERVER_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define SERVER_PORT 8080
#define SERVER_URL_BYTES 512

struct ask_server; /* one connection, kept open between calls; of one thread */

struct ask_server_config {
    const char *key;           /* NULL: none; borrowed */
    bool (*go_on)(void *user); /* asked several times a second; false: enough. May be NULL */
    void *user;
};

enum status ask_server_open(struct ask_server **out, const struct ask_server_config *cfg,
                            struct err *err);
void ask_server_close(struct ask_server *a); /* NULL is fine */

/* What people write, as a URL without a slash at its end: host, host:port, http://..., https://...
 * ST_BAD_INPUT. */
enum status ask_server_url(char out[SERVER_URL_BYTES], const char *word, size_t n,
                           struct err *err);
/* The same server at another host. False: too long. */
bool ask_server_url_at(char out[SERVER_URL_BYTES], const char *url, const char *host);

/* GET url + path as JSON, within seconds: a new reference. */
enum status ask_server_json(struct ask_server *a, const char *url, const char *path,
                            double seconds, json_t **out, struct err *err);

/* A chat request, streamed. */
struct ask_server_stream {
    const json_t *body;
    const char *name; /* of the request (server/reply.h); NULL: the server gives it one */
    /* Each event's JSON. A status ends it. */
    enum status (*event)(void *user, const json_t *event, struct err *err);
    /* What a gateway tells while the answer waits for another node: {"lost", "next", "sentence"}. */
    void (*told)(void *user, const json_t *comment);
    void *user;
};
/* Until the server says that the stream is over. *lost: the connection broke or the server ends:
 * another one may give the same answer, if the request has a name. */
enum status ask_server_chat(struct ask_server *a, const char *url,
                            const struct ask_server_stream *s, bool *lost, struct err *err);

#endif
