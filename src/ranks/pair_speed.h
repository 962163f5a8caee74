/* pair_speed.h: how fast the wire between each two ranks is, for who looks at a cluster: half a
 * round trip of a small message, and the bytes per second of a large one. */
#ifndef LOCKSTEP_RANKS_PAIR_SPEED_H
#define LOCKSTEP_RANKS_PAIR_SPEED_H

#include "fabric/fabric.h"
#include "weights/plan.h"

struct pair_speed {
    double latency_s, bandwidth; /* bytes/s; 0: not measured */
};
/* [i][j], i < j; the rest is zero. */
struct pair_speeds {
    struct pair_speed of[PLAN_MAX_RANKS][PLAN_MAX_RANKS];
};

/* Collective: every rank calls it at the same point; `all` is the team of all. Some tens of
 * milliseconds for each other rank, more over slow wires. out: filled on rank 0; NULL is fine
 * elsewhere. ST_PEER_LOST, ST_NO_MEMORY. */
enum status pair_speed_measure(struct pair_speeds *out, struct fabric *f, struct team *all,
                               struct err *err);

#endif
