/* replica.h: a deployment that this node serves: its child process, `lockstep serve`, and the
 * child's messages.
 *
 * The child reports the port on which it listens as data, by --ready-fd. Its standard input,
 * output and error are one socket. Its output goes to the node's log. When the node dies, in
 * any way, the child ends (--until-eof). It also ends when its ranks are lost and it cannot go
 * on (--until-lost). Then another one starts, and the requests under way are asked again. One
 * thread at a time. */
#ifndef LOCKSTEP_NODE_REPLICA_H
#define LOCKSTEP_NODE_REPLICA_H

#include "base/status.h"
#include "cluster/deployment.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#define REPLICA_FINISH_S 10.0 /* running requests have this long when the child is to end */

enum replica_state { REPLICA_IDLE, REPLICA_STARTING, REPLICA_LISTENING, REPLICA_STOPPING };

struct replica {
    enum replica_state state;
    pid_t pid;
    int fd;                        /* of its standard input, output and error */
    int ready_fd;                  /* of its --ready-fd; -1: it has said it, or will not */
    int port;                      /* where it listens, on all addresses; 0: it does not yet */
    double begin_s, stop_s;        /* when it began, and was told to end */
    double load_s;                 /* what it took until it listened */
    char *folder;                  /* of the deployment's files; owned */
    struct deployment *deployment; /* what it serves; owned */
    char last[400];                /* the last thing that it said, in UTF-8 */
    char line[2048];               /* of its output, as far as it has come */
    size_t n_line;
    char ready[2048]; /* likewise, of the line of --ready-fd */
    size_t n_ready;
};

struct replica_place {
    const char *program; /* as launch_open's worker_path */
    const char *state;   /* folder for the deployment's files */
    const char *path;    /* of the model */
    const char *nodes;   /* --nodes; NULL: none */
    /* --parallel of a chosen layout, in place of the deployment's words for it; NULL: these */
    const char *parallel;
};
/* t is REPLICA_IDLE. ST_IO, ST_NOT_FOUND, ST_NO_MEMORY: as launch_command(), or its files cannot
 * be written. */
enum status replica_start(struct replica *t, const struct deployment *deployment,
                          const struct replica_place *place, struct err *err);
/* Reads its messages and whether it has ended; never waits. True: it has just ended, by itself
 * or as it was told. */
bool replica_look(struct replica *t, const char *name);
/* What it tells of itself, ranks and their work (GET /v1/cluster, docs/serve.md): a new reference;
 * NULL: it has not said it within two seconds. Only reads t. */
json_t *replica_ask(const struct replica *t);
/* It is to end. Nothing to do for one that is idle or stops already. */
void replica_stop(struct replica *t);
/* It ends at once, and counts as one that was told to. Likewise. */
void replica_kill(struct replica *t);

#endif
