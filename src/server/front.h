/* front.h: the port of a deployment (cluster/deployments.h) on each node: an HTTP server that passes each request on to the
 * server of the node that serves it, and its answer back.
 *
 * When that one is lost in the middle of an answer, the request is asked again of the one that stands in, and the answer
 * goes on where it was: what the client has got already is compared with what comes now, event by event, and left
 * out. That works because an answer has the same bits wherever it is computed, and because each request is named
 * (reply.h: REPLY_NAME_HEADER), so that ids, times and seeds are the same, too. Where events differ all the same, the
 * client's connection breaks.
 *
 * As long as nobody serves, requests wait; after a minute they get 503, GET at once. One whose answer was under way waits for
 * ten.
 *
 * A thread for each request under way, 512 at most. */
#ifndef LOCKSTEP_SERVER_FRONT_H
#define LOCKSTEP_SERVER_FRONT_H

#include "base/status.h"

struct front;

struct front_config {
    int port; /* 0: any free one */
    const char *tls_cert_pem,
        *tls_key_pem; /* of the server, which then is expected to show the same; NULL: plain HTTP */
};
/* Listens on all addresses. Texts are copied. ST_IO: the port is taken; ST_BAD_INPUT: no certificate. */
enum status front_open(struct front **out, const struct front_config *cfg, struct err *err);
int front_port(const struct front *f);
/* "host:port"; NULL: nobody serves. What is asked of the one before is asked again. */
void front_to(struct front *f, const char *address);
/* Requests under way. */
int front_n_passing(struct front *f);
/* Ends all requests. NULL is fine. */
void front_close(struct front *f);

#endif
