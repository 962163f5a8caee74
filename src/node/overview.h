/* overview.h: the whole cluster as one node sees it, for who looks at it (GET /v1/cluster).
 *
 * Each node tells of its machine, its copies, its servers and its history (GET /v1/cluster/self).
 * A thread asks all others: each second while somebody looks, else every ten seconds. A node reads
 * its folder of models at its start, and every ten seconds while somebody looks. So an answer
 * waits for nobody, or for the first round after a quiet time, at most a second. A node that is
 * lost, or has left, stays in the answer for ten minutes, with what it told last. */
#ifndef LOCKSTEP_NODE_OVERVIEW_H
#define LOCKSTEP_NODE_OVERVIEW_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>

struct controller;
struct other;
struct overview;

/* k stays the caller's, and is whole until overview_close(). ST_NO_MEMORY. */
enum status overview_open(struct overview **out, struct controller *k, struct err *err);
/* Ends its thread. NULL is fine. */
void overview_close(struct overview *v);

/* Under the controller's lock: this node was heard; it is gone (left: it has said so). Both go
 * into the history, once. */
void overview_hear(struct overview *v, const struct other *o);
void overview_miss(struct overview *v, const struct other *o, bool left);

/* What this node tells of itself. A new reference; NULL: no memory. */
json_t *overview_self(struct controller *k);

/* Who looks. */
struct overview_viewer {
    /* Whether a deployment of that name may be shown; what belongs to others is left out. */
    bool (*sees)(void *user, const char *deployment);
    void *user;
    bool waits;          /* for a round, if the last one was long ago; else never */
    bool manages;        /* it may change what is up */
    bool is_local;       /* at the page of this machine, where no model answers */
    const char *why_not; /* it may not: a sentence; "": it may */
};
/* All that is known, as docs/serve.md has it. May wait for a second. A new reference. */
json_t *overview_answer(struct controller *k, const struct overview_viewer *viewer);

#endif
