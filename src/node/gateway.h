/* gateway.h: a port at which every node answers for deployments (cluster/deployments.h): an HTTP
 * server that passes each request on to the server of the node that serves the model which it
 * names, and its answer back.
 *
 * Which one that is: the request's "model" ("name" in Ollama's older ones), an argument
 * ?model=NAME, or /v1/models/NAME; where it names none, or "default", the one that was put up
 * first. What is asked of all of them (lists of models, /health, /metrics) gets one answer made
 * of theirs (gateway_merge.h). Each server looks at the client's key itself, so that they may
 * have different ones: of a list, a client sees what its key is good for.
 *
 * When a server is lost in the middle of an answer, the request is asked again of the one that
 * stands in, and the answer goes on where it was: what the client has got already is compared
 * with what comes now, event by event, and left out. That works because an answer has the same
 * bits wherever it is computed, and because each request is named (reply.h: REPLY_NAME_HEADER),
 * so that ids, times and seeds are the same, too. Where events differ all the same, the
 * client's connection breaks: as it does when a server is lost between an answer's figures,
 * which may differ, and the end mark, which is written at once after them.
 *
 * As long as nobody serves, requests wait; after a minute they get 503, GET at once. One whose
 * answer was under way waits for ten.
 *
 * A thread for each request under way, of which there are 1024 at most (503 for the next). */
#ifndef LOCKSTEP_NODE_GATEWAY_H
#define LOCKSTEP_NODE_GATEWAY_H

#include "base/status.h"

#include <stdint.h>

struct gateway;
struct gateway_route;

struct gateway_config {
    int port; /* 0: any free one */
    /* of the servers, which then are expected to show the same; NULL: plain HTTP */
    const char *tls_cert_pem, *tls_key_pem;
};
/* Listens on all addresses. Texts are copied. ST_IO: the port is taken; ST_BAD_INPUT: no
 * certificate. */
enum status gateway_open(struct gateway **out, const struct gateway_config *cfg,
                         struct err *err);
int gateway_port(const struct gateway *f);
/* Refuses new requests with 503 and waits until those under way have ended, at most wait_ms. */
void gateway_drain(struct gateway *f, int wait_ms);
/* Ends all requests. All routes have been removed. NULL is fine. */
void gateway_close(struct gateway *f);

/* One deployment at this port, which nobody serves yet. since: when it was put up, Unix time:
 * the first one (of equals by name) is for requests that name none. Texts are copied. NULL: no
 * memory. */
struct gateway_route *gateway_add(struct gateway *f, const char *name, const char *file,
                                  int64_t since);
/* address: "host:port"; NULL: nobody serves. server: who that is. What is asked of another one
 * is asked again; what is asked of the same one at another address goes on. */
void gateway_to(struct gateway_route *r, const char *address, const char *server);
/* Requests under way there. */
int gateway_n_passing(struct gateway_route *r);
/* Ends them. NULL is fine. */
void gateway_remove(struct gateway_route *r);

#endif
