/* gateway.h: a port at which every node answers for deployments (cluster/deployments.h). It is
 * an HTTP server that passes each request on to the node that serves the requested model, and
 * passes the answer back.
 *
 * Routing: the request's "model" ("name" in Ollama's older API), an argument ?model=NAME, or
 * /v1/models/NAME. A deployment's further names mean it, too; lists of models have them. A request that names none, or "default", goes to the deployment that was put
 * up first. Requests to all of them (lists of models, /health, /metrics) get one merged answer
 * (gateway_merge.h). Each server checks the client's key itself, so keys may differ. In a list,
 * a client sees the models that its key may use.
 *
 * If a server is lost in the middle of an answer, the gateway asks the next server and
 * continues the answer where it stopped. The new events are compared one by one with what the
 * client already has, and left out. This works because an answer has the same bits wherever it
 * is computed. Also, each request is named (reply.h: REPLY_NAME_HEADER), so ids, times and
 * seeds are the same. If events differ anyway, the client's connection breaks. It also breaks
 * if a server is lost between an answer's figures, which may differ, and the end mark, which
 * follows them at once.
 *
 * While an answer in events waits for the next server, the client gets comments (gateway_wait.c).
 *
 * While no node serves, requests wait. After a minute they get 503; GET gets it at once. A
 * request whose answer had begun waits for ten minutes.
 *
 * A model may be asleep: no node has it loaded, since nobody has asked it (gateway_sleep()). Then
 * a question, which is a request that needs the model and has a good key, waits until somebody
 * has loaded it. All other requests are answered here, from what the server said when it was
 * there (gateway_asleep.c).
 *
 * A thread for each request under way, at most 1024 (503 for the next). */
#ifndef LOCKSTEP_GATEWAY_GATEWAY_H
#define LOCKSTEP_GATEWAY_GATEWAY_H

#include "base/status.h"
#include "net/http.h"

#include <jansson.h>
#include <stdint.h>

struct gateway;
struct gateway_route;

#define GATEWAY_NAME_BYTES 64

/* Who asks for what takes long. */
struct gateway_client {
    struct http_request *request;
    int port;
    bool (*goes_on)(void *waiter); /* whether the answer is still of use */
    void *waiter;
};

struct gateway_config {
    int port; /* 0: any free one */
    /* of the servers, which then are expected to show the same; NULL: plain HTTP */
    const char *tls_cert_pem, *tls_key_pem;
    /* Answers what is asked of the cluster, not of a model (/v1/cluster and below): on a thread of
     * the request's own, and not for long. NULL: such requests go to a server, too. */
    void (*cluster)(void *user, struct http_request *r, int port);
    /* Whether this request's key is good for that deployment, from any thread. NULL: all are. */
    bool (*may_ask)(void *user, const struct http_request *r, const char *deployment);
    /* A question waits for a model that is asleep; from any thread. May be NULL. */
    void (*wake)(void *user);
    /* Likewise of models on the disk (api/ollama_store.h), for as long as it goes on. */
    void (*models)(void *user, const struct gateway_client *c);
    /* Further names of deployments: which one a name means, and all that one has (a new array).
     * NULL: there are none. */
    bool (*real_name)(void *user, const char *name, char out[GATEWAY_NAME_BYTES]);
    json_t *(*names_of)(void *user, const char *deployment);
    /* What to say of a model that no deployment has; false, or NULL: only that. */
    bool (*why_unknown)(void *user, const struct http_request *r, const char *name, char *out,
                        size_t size);
    void *user;
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

/* One deployment at this port, which no node serves yet. since: when it was put up, Unix time.
 * The first one (among equals by name) gets requests that name no model. Texts are copied.
 * NULL: no memory. */
struct gateway_route *gateway_add(struct gateway *f, const char *name, const char *file,
                                  int64_t since);
/* address: "host:port"; NULL: no node serves. server: the node that serves. If the server
 * changes, its running requests are asked again. If the same server has another address, they
 * go on. */
void gateway_to(struct gateway_route *r, const char *address, const char *server);
/* The names of the node that serves, or did last, and of the one that begins to ("": none): for
 * who waits. */
void gateway_name(struct gateway_route *r, const char *server, const char *coming);
/* Its server is about to end, since somebody has moved the model: who waits is told so, until there
 * is another address. */
void gateway_moves(struct gateway_route *r);
/* Requests under way there. */
int gateway_n_passing(struct gateway_route *r);
/* Has each of its servers asked, as soon as it serves, what is answered in its place while it is
 * asleep. key: an API key of it, copied; NULL: it needs none. Before the first gateway_to(). */
void gateway_keep(struct gateway_route *r, const char *key);
/* since: Unix time, when its server ended since nobody asked; 0: it is not asleep. Only matters
 * while no node serves. */
void gateway_sleep(struct gateway_route *r, int64_t since);
/* When that would happen, Unix time; 0: never, as far as it is known. */
void gateway_expire(struct gateway_route *r, int64_t when);
/* The questions of its clients. */
struct gateway_use {
    int n_now;        /* under way */
    uint64_t n_asked; /* how many there have been */
    uint64_t n_keeps; /* how many of them said for how long the model is to stay, */
    int64_t keep_ms;  /* and what the latest one said: DURATION_NEVER: always */
};
void gateway_look_at_use(struct gateway_route *r, struct gateway_use *out);
/* Ends them. NULL is fine. */
void gateway_remove(struct gateway_route *r);

#endif
