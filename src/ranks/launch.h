/* launch.h: worker processes, one per rank but rank 0, and what became of them. They are
 * children of this process; for another machine the child is an ssh that runs the worker there,
 * or lockstep's own stand-in for it, which asks the node there.
 *
 * A worker gets its job as JSON over a socket (so that the token is in no argument list), and
 * says over the same socket when it is ready, or the sentence with which it failed. The job
 * ends with '\0'; a byte after it dismisses the worker. That is how it tells a rank 0 that gave
 * up, and has said why, from one that was killed. */
#ifndef LOCKSTEP_RANKS_LAUNCH_H
#define LOCKSTEP_RANKS_LAUNCH_H

#include "base/status.h"
#include "fabric/fabric.h"
#include "fabric/launch_env.h"
#include "ranks/job.h"

#include <sys/types.h>

struct launch;

/* One worker process on this machine, with its job as JSON. *fd: hears what it says, "ready\n"
 * or "error: ...\n"; closed while the worker loads, it ends. The caller waits for *pid.
 * program: as launch_open's worker_path. */
enum status launch_worker(pid_t *pid, int *fd, const char *worker_path, const char *job,
                          struct err *err);

/* The program that calls is lockstep itself, whatever its file is called: ranks run the same
 * one. */
void launch_from_lockstep(void);

/* `lockstep WORDS` (up to a NULL) on this machine, with the other end of *fd as its standard
 * input, output and error, and that of *ready (a pipe; reads of it do not block) as its
 * descriptor LAUNCH_READY_FD, for --ready-fd. The caller closes both and waits for *pid. */
#define LAUNCH_READY_FD 3
enum status launch_command(pid_t *pid, int *fd, int *ready, const char *worker_path,
                           char *const *words, struct err *err);

/* worker_path: the lockstep program; NULL: $LOCKSTEP_WORKER, this program if it is called
 * lockstep, then $PATH. job: that of rank 0; its model_path is made absolute by the caller.
 * Starts ranks 1..n_ranks-1; with hosts (one per rank; NULL: all here) those whose host is not
 * the first's over ssh, where they find program and model at the same paths, or, with by_nodes,
 * through the nodes there (`lockstep remote`, cluster/client.h), which know where their model
 * is. threads: of each rank, 0: as many as its machine has cores for it. */
enum status launch_open(struct launch **out, const char *worker_path, const struct job *job,
                        const struct launch_hosts *hosts, bool by_nodes, int threads,
                        struct err *err);
/* A worker has ended: the group cannot form any more. */
bool launch_any_ended(struct launch *l);

/* Waits until every worker has said that it is ready; ST_PEER_LOST with the cause if one fails,
 * or what ended the group f, whose rank 0 this is. */
enum status launch_wait_ready(struct launch *l, struct fabric *f, struct err *err);

/* After the group was lost: puts the cause into err (the worker that was killed, or its own
 * sentence) if a worker's end explains it; otherwise leaves err as it is. */
void launch_explain(struct launch *l, int lost_rank, struct err *err);

/* The worker whose end is the cause of a loss; -1: none, or none yet. */
int launch_lost_rank(struct launch *l);
/* Kills the workers of these ranks (a bit each): they do not hear any more. */
void launch_kill(struct launch *l, uint64_t ranks);

/* How long dismissed workers have to end by themselves, and a worker that lost rank 0 waits to
 * be dismissed: the word comes a moment after rank 0 has left the group. */
#define LAUNCH_GRACE_MS 2000
/* Dismisses the workers: what there is to tell, this process tells. Waits for them to end by
 * themselves, then kills; no process is left. NULL is fine. */
void launch_close(struct launch *l);

/* Asks the machine of rank r of hosts whether it is there: `ssh HOST lockstep --version`, or,
 * with by_nodes, `lockstep remote --ask ADDRESS`. Does not wait: *pid is to be given to
 * launch_answer() until that is not ST_AGAIN, or to launch_stop_asking(). It asks nobody for a
 * password and says nothing. */
enum status launch_ask(pid_t *pid, const char *worker_path, const struct launch_hosts *hosts,
                       int r, bool by_nodes, struct err *err);
/* ST_OK: it is. ST_REFUSED: it is not. ST_AGAIN: not known yet. */
enum status launch_answer(pid_t pid);
void launch_stop_asking(pid_t pid);

/* What has become of the process that started a worker, rank 0's or a node's. */
enum launch_parent {
    PARENT_THERE,
    /* it has dismissed the worker (launch_close()), and tells why, if there is something to
     * tell */
    PARENT_DONE,
    PARENT_GONE, /* without a word */
};

/* The worker's side: where it hears and where it speaks. One socket; over ssh standard input
 * and output. */
struct launch_wire {
    int in, out;
    enum launch_parent parent;
};
/* `lockstep worker` or `lockstep worker --stdio`, whose standard output then is standard error. */
struct launch_wire launch_worker_wire(int argc, char **argv);
/* The job as JSON, '\0' after its n bytes; the caller frees it (mem_free()). */
enum status launch_worker_job(struct launch_wire *w, char **text, size_t *n, struct err *err);
/* Waits at most so many milliseconds for it to end or to dismiss this worker. */
enum launch_parent launch_worker_parent(struct launch_wire *w, int ms);
/* Report; false if rank 0's process is gone. */
bool launch_worker_say_ready(int fd);
bool launch_worker_say_error(int fd, const char *text);

#endif
