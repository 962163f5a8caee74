/* deployments.h: which models a cluster serves, and which node serves each: the list behind
 * `lockstep up` and `lockstep down`.
 *
 * Every node keeps the whole list, also on disk, and sends it to every other node
 * (node/controller.h). There is no master. A deployment has a version: the time of the request
 * (Unix, in seconds), or one more than the known version of that name. The greater version
 * wins. A deployment that was taken down stays in the list as a name and a version, so a
 * machine that was off at the time learns of it.
 *
 * Merging lists is commutative, associative and idempotent. So nodes end with the same list,
 * whatever they receive and in which order. The latest 1024 removals are kept. If a machine was
 * off during more than 1024 removals, it brings back deployments that were removed before
 * these.
 *
 * Which node serves a deployment is a function of the list and of the living nodes' reports.
 *
 * One thread at a time. deployment.h describes one deployment. */
#ifndef LOCKSTEP_CLUSTER_DEPLOYMENTS_H
#define LOCKSTEP_CLUSTER_DEPLOYMENTS_H

#include "base/status.h"
#include "cluster/deployment.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEPLOYMENTS_MAX 64         /* that are up, where one more is wished for */
#define DEPLOYMENTS_HEARD_MAX 1024 /* that are up, of other nodes' wishes as well */
#define DEPLOYMENTS_DOWN_MAX 1024  /* that were taken down: the latest */
#define DEPLOYMENTS_NAMES_MAX 256  /* further names, where one more is wished for */

struct deployments {
    struct deployment **list; /* owned, and so is each; a name once, in any order */
    size_t n, cap;
};

void deployments_init(struct deployments *d);
void deployments_deinit(struct deployments *d);
/* ST_NO_MEMORY: *out is empty. */
enum status deployments_copy(struct deployments *out, const struct deployments *d,
                             struct err *err);

/* Several may have one port if they show the same certificate there, or none. */
bool deployments_may_share_port(const struct deployment *a, const struct deployment *b);

/* What is known of a name (borrowed until the list changes); NULL: nothing. */
const struct deployment *deployments_find(const struct deployments *d, const char *name);
/* How many are up. */
size_t deployments_n_up(const struct deployments *d);

/* A new deployment in the next version of its name; its own "version" does not matter.
 * ST_BAD_INPUT: its form; or the name is up already, or its port has another certificate;
 * ST_NO_MEMORY: too many. The very one that is up already is ST_OK and changes nothing. */
enum status deployments_put(struct deployments *d, const json_t *deployment, struct err *err);
/* ST_NOT_FOUND: no such name is up. Its further names go with it. */
enum status deployments_remove(struct deployments *d, const char *name, struct err *err);
struct deployment_move {
    const char *node; /* that is to serve it; NULL: its home */
    /* Those that are to compute, and how: deployment.h's layout. NULL: the one before, if `node`
     * is among its nodes; "auto": whatever is fastest. */
    const char *nodes, *parallel;
};
/* Its next version, which is at home at that node: there it is served, once its server here has
 * ended (deployment_owner()). Its home before stays one of those that take part. Likewise;
 * ST_BAD_INPUT: there is no such layout. */
enum status deployments_move(struct deployments *d, const char *name,
                             const struct deployment_move *to, struct err *err);

/* One more name of a deployment that is up, by which requests find it, too; a name of another one
 * becomes this one's. ST_BAD_INPUT: the name's form; ST_NOT_FOUND: no such deployment is up;
 * ST_REFUSED: a deployment that is up has the name; ST_NO_MEMORY: too many. */
enum status deployments_name(struct deployments *d, const char *name, const char *of,
                             struct err *err);
/* Takes one away. ST_NOT_FOUND: it is no such name. */
enum status deployments_unname(struct deployments *d, const char *name, struct err *err);
/* The deployment that is up and has that further name (borrowed, as above); NULL: none. */
const struct deployment *deployments_named(const struct deployments *d, const char *name);
/* All further names of a deployment: a new array; NULL: no memory. */
json_t *deployments_names_of(const struct deployments *d, const char *of);

/* All of them, sorted by name, for other nodes: a copy; NULL: no memory. */
json_t *deployments_list(const struct deployments *d);
/* Takes what is newer in another node's list, also where more are up then than
 * deployments_put() allows. *changed: anything was. ST_BAD_INPUT: one of them is not of the
 * form above; ST_NO_MEMORY: too many are up; the good ones before it are taken. */
enum status deployments_merge(struct deployments *d, const json_t *list, bool *changed,
                              struct err *err);
/* The same for the same list, on any node. */
void deployments_digest(const struct deployments *d, char out[DEPLOYMENTS_DIGEST_BYTES]);

/* On disk, readable only by its owner, since it contains keys. A list that was written survives
 * a power cut. ST_NOT_FOUND: there is no list yet. ST_BAD_INPUT: damaged. ST_IO: the old list
 * is still there. */
enum status deployments_read(struct deployments *d, const char *path, struct err *err);
enum status deployments_write(const struct deployments *d, const char *path, struct err *err);

/* A living node, as far as one deployment concerns it. */
struct deployment_candidate {
    const char *node; /* its id */
    const char *name; /* and its name */
    uint64_t term;    /* runs it, for the so-manieth time of all nodes; 0: does not */
    int ranks;        /* on so many, if it runs it */
    int failures;     /* how often it tried in vain since it last did run it */
    bool able;        /* the model is there, and the last failure was long enough ago */
};
/* The index of the node that serves it, or n for none. First comes a node that already serves
 * it. Several may, if two parts of a cluster could not see each other: then the one with most
 * ranks, and among equals the one that began first. Otherwise it is the able node with the
 * fewest failures. Among equals its home comes first, and then an order that differs between
 * names, so that several deployments do not all move to one node. */
size_t deployment_owner(const char *name, const char *home,
                        const struct deployment_candidate *list, size_t n);

#endif
