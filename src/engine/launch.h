/* launch.h: worker processes on this machine, one per rank but rank 0, and what became of them.
 *
 * A worker gets its job as JSON over a socket (so that the token is in no argument list), and says
 * over the same socket when it is ready, or the sentence with which it failed. */
#ifndef LOCKSTEP_ENGINE_LAUNCH_H
#define LOCKSTEP_ENGINE_LAUNCH_H

#include "base/status.h"
#include "engine/job.h"

#include <sys/types.h>

struct launch;

/* worker_path: the lockstep program; NULL: $LOCKSTEP_WORKER, this program if it is called lockstep,
 * then $PATH. job: that of rank 0; its model_path is made absolute by the caller. Starts ranks
 * 1..n_ranks-1. */
enum status launch_open(struct launch **out, const char *worker_path, const struct job *job,
                        struct err *err);

/* Waits until every worker has said that it is ready; ST_PEER_LOST with the cause if one fails. */
enum status launch_wait_ready(struct launch *l, struct err *err);

/* After the group was lost: puts the cause into err (the worker that was killed, or its own
 * sentence) if a worker's end explains it; otherwise leaves err as it is. */
void launch_explain(struct launch *l, int lost_rank, struct err *err);

/* Waits a moment for the workers to end by themselves, then kills; no process is left. NULL is fine. */
void launch_close(struct launch *l);

/* The worker's side of the socket: reads the job; reports. */
enum status launch_worker_job(int fd, struct job *out, struct err *err);
/* False if rank 0's process is gone. */
bool launch_worker_say_ready(int fd);
bool launch_worker_say_error(int fd, const char *text);
bool launch_worker_parent_gone(int fd);

#endif
