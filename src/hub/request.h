/* request.h: asks a hub over HTTP with libcurl, again and again where that is of use.
 *
 * A cut connection, silence, a status of 429 or 5xx, and a storage host that refuses what has
 * expired are tried again after growing waits, HUB_TRIES times without a byte between them.
 * Redirects are followed by hand: the token goes to the hub's own origin and to no other, and
 * only over HTTPS.
 *
 *   ST_NOT_FOUND  no such repository, revision or file
 *   ST_REFUSED    a token is missing, or this one may not read it; the certificate is not good
 *   ST_TIMEOUT    no answer
 *   ST_CANCELLED  the caller had enough
 *   ST_IO         everything else */
#ifndef LOCKSTEP_HUB_REQUEST_H
#define LOCKSTEP_HUB_REQUEST_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define HUB_TRIES 6

struct hub_connection; /* of one thread */

struct hub_settings {
    const char *endpoint;     /* "https://HOST[:PORT][/PATH]" */
    const char *token;        /* NULL: none */
    const char *certificates; /* a file of certificates to trust; NULL: the system's */
    /* NULL, or the public key that the host must have ("sha256//..."): it is a machine of the
     * cluster that passes on what comes (node/hub_relay.h). It gives what it has so far, and 503
     * while it has nothing more, for as long as it is there. */
    const char *pin;
    int silence_s;             /* after which a silent host is given up */
    int n_connections;         /* that a large file comes over (pieces.h); 0: one */
    bool (*go_on)(void *user); /* asked several times a second; false: enough. May be NULL */
    void *user;
};

/* $HF_ENDPOINT, or the hub's public address. */
const char *hub_endpoint(void);

/* Strings stay the caller's until hub_close(). ST_BAD_INPUT: the endpoint is no address. */
enum status hub_open(struct hub_connection **out, const struct hub_settings *s,
                     struct err *err);
void hub_close(struct hub_connection *c);

/* GET ENDPOINT/path as JSON. repo: for sentences. */
enum status hub_json(struct hub_connection *c, const char *path, const char *repo, json_t **out,
                     struct err *err);

struct hub_download {
    const char *repo, *commit, *file;
    const char *hash; /* what its content is called; the hub must agree if it says it */
    uint64_t bytes;   /* all of it */
    uint64_t at;      /* bytes that are here; goes on */
    uint64_t end;     /* not 0: only those before this one, of which the first is `at` */
    /* The next bytes. */
    enum status (*take)(void *user, const void *bytes, size_t n, struct err *err);
    /* The host sends all from the start: forget what is here. Not called where `end` is given:
     * then a host that sends no parts is ST_UNSUPPORTED. */
    enum status (*restart)(void *user, struct err *err);
    void *user;
};
/* Until it is all here. */
enum status hub_download(struct hub_connection *c, struct hub_download *d, struct err *err);

#endif
