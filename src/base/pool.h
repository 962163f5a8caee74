/* pool.h: the threads of one rank.
 *
 * The threads run one function together (SPMD) and meet at barriers; between two barriers the
 * work of one loop is handed out by pool_claim(): to each thread pieces of an equal share of its
 * own, one after the other, since memory is read fastest in long runs; then what the others have
 * left of theirs, from the end, so that a thread that is late (its core is shared with somebody)
 * has its rows taken by them. Which thread computes a row never changes the row's bits.
 *
 * At a barrier a thread spins, then polls and offers its core to others (base/core.h), then
 * sleeps on a futex: a sleeping thread frees its core for the one that it is waiting for. Where
 * schedulers have put two threads on one core (a sleeper wakes on that of its waker) and leave
 * them there for some 10 ms, the one that waits goes to another. And a thread that has lost its
 * core to somebody else's for a slice of some ms, with a piece of work in its hands, gets the
 * core of one that waits for it: with few cores a scheduler would leave that one idle. */
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
