/* core.h: a thread's core: pinning, leaving it, and offering it to other threads during a wait.
 *
 * A wait that sleeps costs 10 to 100 us more than one that polls, because a halted core of a
 * virtual machine wakes slowly. Schedulers also tend to wake a sleeper on its waker's core,
 * where the two then take turns. So a short wait polls, and offers its core now and then. If
 * another thread takes the core and stays, the core is shared: for a while, this thread's waits
 * sleep early. The other thread may be the one that is waited for.
 *
 * Threads that rarely wait offer their cores too. If all cores compute, the thread that sends
 * their results would otherwise wait until the end of a time slice (some milliseconds). */
#ifndef LOCKSTEP_BASE_CORE_H
#define LOCKSTEP_BASE_CORE_H

#include <stdbool.h>
#include <stdint.h>

/* Of one thread; all zero at first. */
struct core {
    uint64_t offer_ns, at_times_ns; /* the next time */
    uint64_t taken_ns, shared_until_ns, pause_ns;
};

/* Whether another thread took the core lately. now_ns: clock_ns(). */
static inline bool core_is_shared(const struct core *core, uint64_t now_ns) {
    return now_ns < core->shared_until_ns;
}

/* Pins the calling thread to the nth of the cores that it may use, modulo their number. Does
 * nothing if the system cannot pin threads. */
void core_pin(int nth);

/* Where the calling thread runs just now; -1 where the system does not say. */
int core_here(void);
/* Moves the calling thread to one of the cores that it may use, but to none of taken[n]. The
 * system may move it on from there. Stays if there is no other core. */
void core_leave(const int *taken, int n);

/* The calling thread, as others know it; -1 where the system has no such number. */
int core_thread(void);
/* How long that thread has run in all; where the system does not say, as if it ran all the
 * time. */
uint64_t core_ran_ns(int thread);
/* Moves that thread to the calling one's core if it may run there, while the latter goes to
 * sleep; the system may move it on. For each thread, core_leave() and core_lend() are for one
 * caller at a time. */
void core_lend(int thread);

/* Every 10 us of a wait: lets another thread run here if one wants to, and notes it. */
void core_offer(struct core *core, uint64_t now_ns);
/* At the beginning of a wait, however short it may be: the same, if the last offer is 200 us
 * ago. After another thread has stayed, this time is longer, so that hardly any of the core's
 * time is given away. */
void core_offer_at_times(struct core *core, uint64_t now_ns);

#endif
