/* async_worker.h: a thread that runs one job at a time for its owner, which goes on with other
 * work.
 *
 * It exists beside a rank's pool. Its jobs mostly wait (for the network) and need no core of
 * their own, so the pool's threads keep theirs. Between jobs the thread sleeps.
 *
 * One thread owns it and is the only one to call these functions. The worker sees what the
 * owner wrote before async_worker_start(). The owner sees what the worker wrote after
 * async_worker_wait(). */
#ifndef LOCKSTEP_BASE_ASYNC_WORKER_H
#define LOCKSTEP_BASE_ASYNC_WORKER_H

#include "base/status.h"

struct async_worker;

enum status async_worker_open(struct async_worker **out, struct err *err);
/* Nothing may be under way. NULL is fine. */
void async_worker_close(struct async_worker *e);

/* Runs fn(arg) on the thread. Nothing may be under way. Allocates nothing. */
void async_worker_start(struct async_worker *e, void (*fn)(void *arg), void *arg);
/* Sleeps until the last async_worker has ended. Not to be called without one. */
void async_worker_wait(struct async_worker *e);

#endif
