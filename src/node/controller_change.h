/* controller_change.h: changes of what a cluster serves, as people ask for them at the deployments'
 * ports (controller_cluster.c, which has looked at who asks). */
#ifndef LOCKSTEP_NODE_CONTROLLER_CHANGE_H
#define LOCKSTEP_NODE_CONTROLLER_CHANGE_H

#include "node/controller_internal.h"

struct change {
    struct controller *k;
    const json_t *wish; /* an object; borrowed */
    int port;           /* at which it is asked */
    bool manages;       /* who asks may change what is up */
    /* Whether who asks may see that deployment: others do not exist for it. */
    bool (*sees)(void *user, const char *deployment);
    void *user;
};

/* "up", "down", "move", "plan" (docs/serve.md). */
bool change_is_known(const char *what);
/* *out: the answer, a new reference. ST_BAD_INPUT, ST_NOT_FOUND; ST_REFUSED: that node cannot;
 * ST_IO: it cannot be kept. May take as long as a node needs to answer. */
enum status change_make(const struct change *c, const char *what, json_t **out,
                        struct err *err);

/* ---- between its files ---- */

#define CHANGE_NODES_BYTES 2048
/* ST_NOT_FOUND: no deployment of that name is up, or who asks may not know of it. */
enum status change_find_seen(const struct change *c, const char *name, struct err *err);
/* "nodes" of a wish, a text or a list, as words with commas between them; "": it says none.
 * ST_BAD_INPUT. */
enum status change_nodes(const json_t *wish, char out[CHANGE_NODES_BYTES], struct err *err);
/* Is a node one of these? "", "auto": all are. */
bool change_is_among(const char *words, const char *name);
/* Are a candidate's nodes just these? */
bool change_is_of_nodes(const json_t *candidate, const char *words);
/* The candidates that a server has measured when it began; a new reference, NULL: it has not. May
 * take a second. */
json_t *change_measured(const struct change *c, const char *name);
/* The address of one of these nodes that tells of a model of that name, and its name; false: none
 * does. */
bool change_find_holder(struct controller *k, const char *name, const char *words,
                        char node[64], char address[NET_TEXT_BYTES]);
/* What placements would give (controller_plan.c). */
enum status change_plan(const struct change *c, json_t **out, struct err *err);

#endif
