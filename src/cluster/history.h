/* history.h: what has happened in a cluster, as one node saw it: a ring of the latest events, and
 * the rings of several nodes as one list. Any thread. */
#ifndef LOCKSTEP_CLUSTER_HISTORY_H
#define LOCKSTEP_CLUSTER_HISTORY_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define HISTORY_MAX 256

enum happening {
    HAPPENED_UP,
    HAPPENED_DOWN,
    HAPPENED_LOST,   /* a node is silent */
    HAPPENED_LEFT,   /* a node was told to end */
    HAPPENED_JOINED, /* a node has come */
    HAPPENED_BACK,   /* one that was lost, or had left, has come */
    HAPPENED_TOOK_OVER,
    HAPPENED_PLACED, /* a server has begun on its ranks, or goes on with others */
    HAPPENED_COPIED,
    HAPPENED_FAILED,
    HAPPENED_MOVED,
    HAPPENED_SLEPT, /* a server has ended since nobody asked its model */
    HAPPENED_WOKE,  /* and is started again for a question */
    HAPPENED_N
};

struct event {
    double time; /* Unix */
    enum happening kind;
    char node[64], model[64]; /* whom it is about; "": nobody in particular, no model */
    char sentence[600];
};

struct history {
    pthread_mutex_t lock;
    char name[64];      /* of the node that keeps it */
    size_t n;           /* events so far: the latest HISTORY_MAX are kept */
    struct event *list; /* [HISTORY_MAX] owned */
};

/* False: no memory. node_history_deinit() it in any case. name: of this node. */
bool node_history_init(struct history *h, const char *name);
void node_history_deinit(struct history *h);

/* Notes that it happened now; `time` > 0: then. The sentence is printf style. */
__attribute__((format(printf, 6, 7))) void history_note(struct history *h, double time,
                                                        enum happening kind, const char *node,
                                                        const char *model, const char *sentence,
                                                        ...);
/* Was this node's last news of that node that it is gone? */
bool history_is_gone(struct history *h, const char *node);
/* The oldest first: [{"time", "kind", "node", "model" (unless ""), "sentence", "by"}]; "by": this
 * node. A new reference. */
json_t *history_json(struct history *h);

/* Unix time. */
double history_now(void);

/* One list, as history_json() has it, of several nodes' (borrowed): by time, each event once,
 * although several nodes noted it, the latest HISTORY_MAX. What is not of that form is left out. A
 * new reference. */
json_t *history_merge(json_t *const *lists, size_t n);

#endif
