/* bootstrap.h: how the ranks of a group find each other and become a mesh of TCP connections.
 *
 * Rank 0 listens at the rendezvous address. Every other rank connects there, proves with the
 * group's token that it belongs to the group (wire.h), and learns the others' addresses. Then
 * each rank connects to every lower one in the same way. A process that fails the proof is
 * rejected with a sentence on both sides, and the group does not notice.
 *
 * Blocks until the mesh is complete, a known rank is lost, or the deadline passes. Then rank 0
 * tells all present ranks which one is missing. */
#ifndef LOCKSTEP_FABRIC_BOOTSTRAP_H
#define LOCKSTEP_FABRIC_BOOTSTRAP_H

#include "fabric/fabric.h"
#include "link/wire.h"

struct mesh {
    int side[FABRIC_MAX_RANKS]; /* sockets by rank, -1 for oneself; owned */
    int data[FABRIC_MAX_RANKS];
    struct wire_rank who[FABRIC_MAX_RANKS];
};

/* On failure everything is closed, the listening socket of cfg too. */
enum status mesh_open(struct mesh *m, const struct fabric_config *cfg, uint64_t deadline_ns,
                      struct err *err);
void mesh_close(struct mesh *m);

/* No heartbeats run yet: how long a rank that has come may leave the others waiting for one
 * step. The silence limit, but not less than a slow start takes. */
#define FORMING_MS_MIN 2000
uint64_t forming_limit_ns(const struct fabric_config *cfg);
/* What a failed step with that rank means: ST_TIMEOUT becomes ST_PEER_LOST; names the rank. */
enum status forming_failed(enum status st, int rank, int pid, struct err *err);

#endif
