/* launch.h: starts worker processes, one per rank except rank 0, and explains how they ended.
 * They are children of this process. For another machine the child is an ssh that runs the
 * worker there, or `lockstep remote`, which asks the node there.
 *
 * A worker gets its job as JSON over a socket, so the token is in no argument list. Over the
 * same socket it reports that it is ready, or the sentence with which it failed. The job ends
 * with '\0'. A byte after it dismisses the worker. So the worker can distinguish a rank 0 that
 * gave up and has said why from one that was killed. */
#ifndef LOCKSTEP_RANKS_LAUNCH_H
#define LOCKSTEP_RANKS_LAUNCH_H

#include "base/status.h"
#include "fabric/fabric.h"
#include "fabric/launch_env.h"
#include "ranks/job.h"

#include <sys/types.h>

struct launch;

/* One worker process on this machine, with its job as JSON. *fd: receives its messages,
 * "ready\n" or "error: ...\n". If *fd is closed while the worker loads, the worker ends. The
 * caller waits for *pid. program: as launch_open's worker_path. */
enum status launch_worker(pid_t *pid, int *fd, const char *worker_path, const char *job,
                          struct err *err);

/* The program that calls is lockstep itself, whatever its file is called: ranks run the same
 * one. */
void launch_from_lockstep(void);

/* `lockstep WORDS` (up to a NULL) on this machine. Its standard input, output and error are the
 * other end of *fd. Its descriptor LAUNCH_READY_FD, for --ready-fd, is the other end of *ready
 * (a pipe; reads of it do not block). The caller closes both and waits for *pid. ready NULL: there
 * is none, and standard error is this process's. */
#define LAUNCH_READY_FD 3
enum status launch_command(pid_t *pid, int *fd, int *ready, const char *worker_path,
                           char *const *words, struct err *err);

/* Starts ranks 1..n_ranks-1.
 *
 * worker_path: the lockstep program; NULL: $LOCKSTEP_WORKER, this program if it is called
 * lockstep, then $PATH. job: that of rank 0; the caller makes its model_path absolute. hosts:
 * one per rank; NULL: all here. A rank with another host than rank 0's starts over ssh, with
 * program and model at the same paths. With by_nodes it starts through the nodes there
 * (`lockstep remote`, cluster/client.h), which know where their model is. threads: of each
 * rank, 0: as many as its machine has cores for it. */
enum status launch_open(struct launch **out, const char *worker_path, const struct job *job,
                        const struct launch_hosts *hosts, bool by_nodes, int threads,
                        struct err *err);
/* A worker has ended: the group cannot form any more. */
bool launch_any_ended(struct launch *l);

/* Waits until every worker has reported that it is ready. ST_PEER_LOST with the cause if one
 * fails, or with what ended the group f, in which this is rank 0. */
enum status launch_wait_ready(struct launch *l, struct fabric *f, struct err *err);

/* After the group was lost: if a worker's end explains it, puts the cause into err (the worker
 * was killed, or its own sentence). Otherwise leaves err as it is. */
void launch_explain(struct launch *l, int lost_rank, struct err *err);

/* The worker that caused a loss by ending; -1: none, or none yet. */
int launch_lost_rank(struct launch *l);
/* Kills the workers of these ranks (a bit each): they no longer respond. */
void launch_kill(struct launch *l, uint64_t ranks);

/* How long dismissed workers have to end by themselves. A worker that lost rank 0 waits as long
 * to be dismissed, since that byte arrives a moment after rank 0 has left the group. */
#define LAUNCH_GRACE_MS 2000
/* Dismisses the workers: what there is to tell, this process tells. Waits for them to end by
 * themselves, then kills; no process is left. NULL is fine. */
void launch_close(struct launch *l);

/* Asks whether the machine of rank r of hosts is up: `ssh HOST lockstep --version`, or with
 * by_nodes `lockstep remote --ask ADDRESS`. Does not wait. Pass *pid to launch_answer() until
 * that is not ST_AGAIN, or to launch_stop_asking(). It prompts for no password and prints
 * nothing. */
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

/* The worker's side: where it reads and where it writes. One socket; over ssh standard input
 * and output. */
struct launch_wire {
    int in, out;
    enum launch_parent parent;
};
/* `lockstep worker` or `lockstep worker --stdio`, with standard output redirected to standard
 * error. */
struct launch_wire launch_worker_wire(int argc, char **argv);
/* The job as JSON, '\0' after its n bytes; the caller frees it (mem_free()). */
enum status launch_worker_job(struct launch_wire *w, char **text, size_t *n, struct err *err);
/* Waits at most this many milliseconds for rank 0 to end or to dismiss this worker. */
enum launch_parent launch_worker_parent(struct launch_wire *w, int ms);
/* Report; false if rank 0's process is gone. */
bool launch_worker_say_ready(int fd);
bool launch_worker_say_error(int fd, const char *text);

#endif
