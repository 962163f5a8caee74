/* fabric.h: bytes between the ranks of a group, and the exact sum.
 *
 * A fabric is one rank's membership in a group of n_ranks processes, possibly on several hosts.
 * fabric_open() meets the others at rank 0's rendezvous address, checks that they know the
 * group's token, and opens a link to every rank (shm inside a host, tcp anywhere; more in the
 * table of links.h). A team is an ordered subset of the ranks (a pipeline stage's tensor group;
 * or all).
 *
 * Threads: one thread at a time per fabric (the rank's thread 0, or a thread that runs a sum
 * for it), except fabric_abort().
 *
 * Order: messages between two ranks are matched by order. All calls that two ranks share must
 * come in the same order on both (a mismatch is detected and ends the group).
 *
 * Failure: no wait is endless. A rank counts as lost in these cases:
 *   - It dies: its TCP side channel closes, and the others notice at once.
 *   - Its process or network stops: no heartbeat for silence_ms. A thread sends heartbeats, so a
 *     rank that computes is not silent.
 *   - A message is lost or damaged.
 *   - It keeps the others waiting in a call for compute_ms.
 * Then every survivor's running or next call returns ST_PEER_LOST, with the rank and the cause
 * in the sentence. From then on every call does, buffers are garbage, and only fabric_close()
 * is useful. A rank that leaves on purpose calls fabric_close(). Only a rank that still needs
 * something from it gets an error: "rank 2 has left". */
#ifndef LOCKSTEP_FABRIC_FABRIC_H
#define LOCKSTEP_FABRIC_FABRIC_H

#include "base/status.h"
#include "link/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fabric;
struct team;

void fabric_config_defaults(struct fabric_config *cfg);

enum status fabric_open(struct fabric **out, const struct fabric_config *cfg, struct err *err);
/* Says goodbye, frees everything: segments, sockets. NULL is fine. */
void fabric_close(struct fabric *f);
/* From any thread or a signal handler: the running call returns ST_CANCELLED soon. */
void fabric_abort(struct fabric *f);

int fabric_rank(const struct fabric *f);
int fabric_n_ranks(const struct fabric *f);
/* "shm", "tcp", "emulated shm": how this rank talks to that one; "self". */
const char *fabric_link_name(const struct fabric *f, int rank);
/* The RDMA device of this machine that leads there ("rdma_en5"); "": none does. */
const char *fabric_link_device(const struct fabric *f, int rank);
/* AUTO: it is this rank itself. */
enum fabric_link fabric_link_kind(const struct fabric *f, int rank);
/* That this rank has sent to that one in messages, since the opening. The calls' thread. */
uint64_t fabric_sent_bytes(const struct fabric *f, int rank);
/* The rank whose loss ended the group. This rank itself, if it stalled and the others gave it
 * up. -1 if the group is whole. */
int fabric_lost_rank(const struct fabric *f);

/* Collective over its members, which all give the same list; a rank may be in several teams.
 * Larger teams measure here which algorithm sums fastest (some milliseconds, or many times a
 * slow wire's latency). The same list again is the same team. A team of one is legal, and every
 * operation on it is a no-op. fabric_close() closes it. */
enum status fabric_team(struct fabric *f, struct team **out, const int *ranks, int n_ranks,
                        struct err *err);
int team_size(const struct team *t);
int team_index(const struct team *t); /* of the caller, 0..size-1 */
/* All members run on this machine, without an emulated wire between them: an exchange is work
 * of its cores, not waiting. */
bool team_in_one_host(const struct team *t);
/* How a sum of n elements goes: "one-shot", "scatter", "ring", "hierarchical", "tree"; "none" in
 * a team of one. The same on all members; the bits do not depend on it. */
const char *team_algorithm(const struct team *t, size_t n);

/* ---- collectives: every member calls with the same sizes -------------------------------- */

/* x[i] = sum of x[i] over the team, in place, on every member, exactly.
 *
 *   x   [n] fixed point, multiples of 2^-24 (docs/numerics.md); wraps like int64 addition
 *
 * Integer addition is associative, so the algorithm is chosen for speed alone. On the wire an
 * element is an int32 if its block of 64 fits, otherwise an int64. */
enum status fabric_allreduce(struct team *t, int64_t *x, size_t n, struct err *err);
/* The same for a thread beside those that compute. Its waits sleep at once, so that the others
 * have the cores. It is slower for itself if the others do not need them. */
enum status fabric_allreduce_beside(struct team *t, int64_t *x, size_t n, struct err *err);

/* The sum in two halves: fabric_reduce_scatter(), fabric_allgather(). Between them each member
 * works on its own share of the result, and then sends it in the shortest form. Only allowed if
 * team_has_halves(), which is the same on all members: the largest sums of this team use shares
 * anyway, or could. */
bool team_has_halves(const struct team *t);
/* x[i] = sum of x[i] over the team for begin[index] <= i < begin[index + 1]; the rest of x is
 * garbage then.
 *
 *   x      [begin[size]] as fabric_allreduce's
 *   begin  [size + 1] ascending from 0; shares may be empty */
enum status fabric_reduce_scatter(struct team *t, int64_t *x, const size_t *begin,
                                  struct err *err);
struct fabric_rows {
    void *at; /* [first[size]] rows of row_bytes each, one after the other */
    size_t row_bytes;
};
/* Member i's rows first[i]..first[i + 1] of each buffer of the list [n] to all. first [size +
 * 1] ascending from 0 */
enum status fabric_allgather(struct team *t, const struct fabric_rows *list, size_t n,
                             const uint32_t *first, struct err *err);

/* Copies root's buf to all. `root` is a member's index in the team, here and below. */
enum status fabric_broadcast(struct team *t, int root, void *buf, size_t n_bytes,
                             struct err *err);

/* Parts of unequal size (part_bytes[i] of member i, 0 is legal) one after the other into `all` on
 * the root; elsewhere all is ignored. `part` of the root may already lie in place. */
enum status fabric_gather(struct team *t, int root, const void *part, void *all,
                          const size_t *part_bytes, struct err *err);

enum status fabric_barrier(struct team *t, struct err *err);
/* A barrier without the limit compute_ms: a living rank may come as late as it likes, since its
 * machine takes as long as it takes (loading). Sleeps meanwhile. */
enum status fabric_meet(struct team *t, struct err *err);

/* ---- point to point ---------------------------------------------------------------------- */

/* Ordered per pair of ranks. The receiver gives the size that the sender sent. send may return
 * when the bytes are in the link's buffers. */
enum status fabric_send(struct fabric *f, int to, const void *buf, size_t n_bytes,
                        struct err *err);
enum status fabric_recv(struct fabric *f, int from, void *buf, size_t n_bytes, struct err *err);

/* Waits until a message from that rank, or a broadcast rooted there, can be received: a worker
 * between two requests. It has no deadline, but watches every peer. Sleeps, uses no CPU.
 * timeout_ms >= 0: ST_AGAIN after that long. */
enum status fabric_wait(struct fabric *f, int from, int timeout_ms, struct err *err);

#endif
