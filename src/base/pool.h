/* pool.h: the threads of one rank.
 *
 * The threads run one function together (SPMD) and meet at barriers. Between two barriers,
 * pool_claim() hands out the iterations of one loop. A thread first gets pieces of its own
 * equal share, in order, since memory is read fastest in long runs. Then it gets pieces from
 * the ends of the other threads' shares. So others take rows from a thread that is late, for
 * example because its core is shared. Which thread computes a row never changes the row's bits.
 *
 * At a barrier a thread spins, then polls and offers its core to others (base/core.h), then
 * sleeps on a futex. A sleeping thread frees its core for the thread that it waits for.
 *
 * The scheduler may put two threads on one core (a sleeper wakes on its waker's core) and leave
 * them there for some 10 ms. Then the waiting thread moves to another core. A thread may also
 * lose its core to another process for a time slice of some ms while it holds a piece of work.
 * Then it gets the core of a thread that waits for it. With few cores, a scheduler would leave
 * that core idle. */
#ifndef LOCKSTEP_BASE_POOL_H
#define LOCKSTEP_BASE_POOL_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool;

#define POOL_MAX_THREADS 1024

/* What a thread has of stack at least inside pool_run(). Products keep up to 140 KiB there. */
#define POOL_STACK_BYTES ((size_t)256 << 10)

/* n_threads: 1 to POOL_MAX_THREADS; the caller of pool_run() is thread 0, the others are
 * created here. */
enum status pool_open(struct pool **out, int n_threads, struct err *err);
/* Stops and joins the threads. Not from inside pool_run(). NULL is fine. */
void pool_close(struct pool *pool);

int pool_n_threads(const struct pool *pool);

/* Runs fn(arg, pool, thread) once on every thread, in the default floating-point environment;
 * returns when all have returned. A caller with less than POOL_STACK_BYTES of its stack left has
 * thread 0's part done on another thread (thread_call). One pool_run at a time. */
void pool_run(struct pool *pool, void (*fn)(void *arg, struct pool *pool, int thread),
              void *arg);

/* --- inside fn only --- */

/* Every thread must arrive. What was written before is visible to all after. Begins
 * the next loop's claims. */
void pool_barrier(struct pool *pool);

/* The number of the running phase: all threads have the same between two barriers, and the next
 * one after it. Stays the same in a pool of one thread. */
uint32_t pool_phase(const struct pool *pool);

/* The next piece [*begin, *end) of a loop of n items (below 2^32); false when nothing is left.
 * Pieces shrink towards the end of a share but are never smaller than min_items, except its
 * last. All threads use the same n between two barriers. */
bool pool_claim(struct pool *pool, size_t n, size_t min_items, size_t *begin, size_t *end);

#endif
