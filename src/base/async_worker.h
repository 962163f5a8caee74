/* async_worker.h: a thread that does one thing at a time for its owner, who works on meanwhile.
 *
 * Beside a rank's pool: what mostly waits (for the network) needs no core of its own, and the
 * pool's threads keep theirs. Between jobs of the async worker the thread sleeps.
 *
 * One thread owns it: it alone calls what follows. What it wrote before async_worker_start() is
 * visible to the async worker, and what the async worker wrote is visible to it after
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
