/* report.h: a node's report to the others: the deployments that it knows, what it does for
 * each, and which it could serve. Nodes exchange it as JSON (POST /v1/deployments/sync in
 * controller.h). A controller parses it once, when it arrives, and keeps it in this form.
 *
 * "runs": {name of a deployment: {"id", "named", "version", "state", "term", "ranks",
 * "failures", "port", "requests", "copying", "answers", "closed", "sentence", "content",
 * "memory", "standby", "questions", "asked", "slept", "keep"}}; "able": {name: port}. A field that
 * is missing or has another type is 0, false or "" here. */
#ifndef LOCKSTEP_NODE_REPORT_H
#define LOCKSTEP_NODE_REPORT_H

#include "base/content.h"
#include "base/status.h"
#include "cluster/deployment.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define REPORT_NAME_BYTES 64
#define REPORT_CONTENT_BYTES (2 * CONTENT_BYTES + 1)

enum run_state {
    RUN_UNKNOWN = 0, /* the report has another state */
    RUN_WAITING,
    RUN_STARTING,
    RUN_LISTENING,
    RUN_STOPPING,
    RUN_FAILED,
    RUN_ASLEEP, /* its server has ended since nobody asked; a question starts it (node/sleep.h) */
    RUN_N_STATES
};
const char *run_state_name(enum run_state s); /* "waiting"...; NULL: RUN_UNKNOWN */

/* Could the node serve it if the one that does were lost? */
enum standby {
    STANDBY_NONE = 0, /* it serves it, or is not to, or has not said */
    STANDBY_READY,
    STANDBY_MISSING, /* and why not: it has no copy of the model */
    STANDBY_COPYING,
    STANDBY_DAMAGED,
    STANDBY_DIFFERENT, /* its copy is another than the one that is served */
    STANDBY_DISK,
    STANDBY_MEMORY,
    STANDBY_FAILED,
    STANDBY_N
};

/* For how long a model stays loaded that nobody asks, as a client has said it. */
struct keep {
    uint64_t term; /* of the server that was asked; 0: no client has said anything */
    int64_t at_ms; /* when, Unix time: the latest one counts */
    int64_t ms;    /* DURATION_NEVER: always */
};

/* What it does for one deployment. */
struct run_report {
    char name[REPORT_NAME_BYTES];
    char id[DEPLOYMENTS_DIGEST_BYTES]; /* of the deployment as it knows it */
    bool named;                        /* it is wanted to take part, as far as it knows */
    json_int_t version;                /* of the deployment that it runs, or knows */
    enum run_state state;
    uint64_t term; /* it runs it, for the so-manieth time of all nodes; 0: it does not */
    int ranks, failures;
    int port; /* where its server listens; 0: nowhere */
    int64_t requests;
    bool copying;      /* a copy of the model is on its way there */
    bool answers;      /* it answers at the deployment's port, for the node that serves */
    int64_t questions; /* of requests under way there, those that need the model */
    int64_t asked;     /* how many of them there have been */
    int64_t slept;     /* RUN_ASLEEP: since when, Unix time */
    struct keep keep;  /* as far as it knows */
    /* Of this node, and not told to others: */
    int64_t idle_ms; /* sleep_idle_ms() */
    int64_t unloads; /* when it would be unloaded, Unix time; 0: never, or it does not serve */
    uint64_t memory;
    char content[REPORT_CONTENT_BYTES]; /* digest of its copy; "": not known */
    enum standby standby;
    char *closed, *sentence, *standby_sentence; /* owned; never NULL */
};

/* It could serve it, and other nodes may fetch the model at that port; 0: they may not. */
struct able_report {
    char name[REPORT_NAME_BYTES];
    int share_port;
};

/* Zeroed it is empty. */
struct node_report {
    struct run_report *runs; /* [n_runs], sorted by name once report_sort() was called */
    size_t n_runs, cap_runs;
    struct able_report *able; /* [n_able], likewise */
    size_t n_able, cap_able;
};

void report_deinit(struct node_report *r);

/* One more, empty but for the name; false or NULL: no memory. */
struct run_report *report_add_run(struct node_report *r, const char *name);
bool report_add_able(struct node_report *r, const char *name, int share_port);
/* Sets a text of a run; invalid UTF-8 is replaced. False: no memory, and it is "". */
bool report_set_text(char **text, const char *value);
/* After the last one was added, before the first is looked for. */
void report_sort(struct node_report *r);

/* An empty one where nothing is said of it. */
const struct run_report *report_of(const struct node_report *r, const char *name);
/* NULL: not found. */
const struct run_report *report_run(const struct node_report *r, const char *name);
const struct able_report *report_able(const struct node_report *r, const char *name);

/* ST_BAD_INPUT: no objects; ST_NO_MEMORY. */
enum status report_parse(struct node_report *out, const json_t *runs, const json_t *able,
                         struct err *err);
/* New references. */
json_t *report_runs_json(const struct node_report *r);
json_t *report_able_json(const struct node_report *r);
/* {"reason", "sentence"}, null for STANDBY_NONE. */
json_t *report_standby_json(const struct run_report *run);

#endif
