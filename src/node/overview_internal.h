/* overview_internal.h: an overview's internal interface. overview.c asks the nodes and keeps what
 * they tell; overview_answer.c makes one answer of it. */
#ifndef LOCKSTEP_NODE_OVERVIEW_INTERNAL_H
#define LOCKSTEP_NODE_OVERVIEW_INTERNAL_H

#include "node/controller_internal.h"
#include "node/overview.h"

enum seen_state { SEEN_HERE, SEEN_LOST, SEEN_LEFT };

/* Another node, now or not long ago. */
struct seen_node {
    struct overview *view;
    /* The view's lock guards: */
    char id[ID_BYTES], name[64], version[16];
    char host[NET_TEXT_BYTES], address[NET_TEXT_BYTES]; /* "": not known */
    enum seen_state state;
    double since;   /* Unix: of that state */
    double heard_s; /* clock */
    json_t *told;   /* what it told last; owned; NULL: nothing yet */

    /* The asking thread's. */
    struct client *client;
    char ask_at[NET_TEXT_BYTES], asked_at[NET_TEXT_BYTES]; /* now, and the client's */
    double until_s;
    pthread_t thread;
    bool asked, watched; /* watched: somebody looks */
};

struct overview {
    struct controller *controller;
    double opened_s, opened_unix;
    pthread_t thread;
    pthread_mutex_t lock; /* taken after the controller's; guards what follows */
    pthread_cond_t changed;
    bool closing;
    struct seen_node **seen; /* [n_seen] owned, and so is each; only its thread removes one */
    size_t n_seen, cap_seen;
    json_t *catalog;            /* the models here; owned; NULL: not known yet */
    double catalog_s, wanted_s; /* when it may be read again; when somebody wanted it */
    uint64_t n_rounds;
    double round_s, looked_s; /* when the last round ended; when somebody looked */
};

/* Somebody looks. waits: for a round, if the last one was long ago. */
void overview_look(struct overview *v, bool waits);
/* Somebody looks at another node: the list of models here is soon as its folder is. */
void overview_want_models(struct overview *v);
/* Waits until all nodes that answer have told of the models that they have now: some seconds at
 * most. */
void overview_hear_models(struct overview *v);

#endif
