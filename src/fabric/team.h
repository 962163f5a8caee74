/* team.h: a team's shape: which members have a wire to each other, the trees over these wires,
 * and which algorithm sums which size. All members compute the same from the same facts. */
#ifndef LOCKSTEP_FABRIC_TEAM_H
#define LOCKSTEP_FABRIC_TEAM_H

#include "fabric/group.h"

/* A shortest-path tree over the wires, from one member; seen from this rank. Member indices. */
struct team_tree {
    int parent; /* -1: this rank is the root */
    int n_children;
    int8_t children[FABRIC_MAX_RANKS];
    int8_t branch[FABRIC_MAX_RANKS]; /* the child whose branch contains that member, or -1 */
};

/* How sums up to `max_elements` go. */
struct team_choice {
    size_t max_elements;
    const struct sum_algorithm *algorithm;
    /* How slots are filled (team_send), if both ends have them in their caches. Stores that
     * bypass the caches are faster between cores that share no cache; normal stores are faster
     * between cores that share one. */
    bool past_caches;
};
#define TEAM_MAX_CHOICES 4

struct team {
    struct fabric *f;
    struct team *next;
    uint16_t id;
    int size, index;
    int ranks[FABRIC_MAX_RANKS];
    bool mesh;                     /* every two members have a wire */
    struct team_tree *trees;       /* [size], by root */
    int8_t ring[FABRIC_MAX_RANKS]; /* a closed walk over wires, once through every member */
    bool has_ring;
    int8_t leader[FABRIC_MAX_RANKS]; /* the first member on that member's host */
    int n_hosts;
    size_t n_ahead;   /* of every link to a member: struct link_ops */
    bool past_caches; /* the running call's: struct team_choice */
    uint8_t *staging; /* one packed chunk, on its way to several members */
    int n_choices;
    struct team_choice choices[TEAM_MAX_CHOICES];
};

/* The member `steps` places after the caller in the ring (before it, if steps < 0; at most one
 * round). */
int team_after(const struct team *t, int steps);

/* ---- allreduce.c
 * ------------------------------------------------------------------------------- */

/* The last two are the halves (fabric_reduce_scatter, fabric_allgather); NULL: there are none,
 * since these wires would carry more that way. */
struct sum_algorithm {
    const char *name;
    bool (*fits)(const struct team *t);
    enum status (*sum)(struct team *t, int64_t *x, size_t n, struct err *err);
    enum status (*reduce_scatter)(struct team *t, int64_t *x, const size_t *begin,
                                  struct err *err);
    enum status (*share)(struct team *t, const struct fabric_rows *list, size_t n,
                         const uint32_t *first, struct err *err);
};
/* Ends with a NULL name; the last one fits every shape. */
extern const struct sum_algorithm sum_algorithms[];

/* ---- collective.c ------------------------------------------------------------------------ */

/* A message to a member; `check` is the payload's (check.h). */
enum status team_send(struct team *t, int to, enum wire_kind kind, uint64_t offset,
                      const void *from, size_t n_bytes, uint32_t check, struct err *err);

enum status mesh_share(struct team *t, const struct fabric_rows *list, size_t n,
                       const uint32_t *first, struct err *err);
enum status ring_share(struct team *t, const struct fabric_rows *list, size_t n,
                       const uint32_t *first, struct err *err);

#endif
