/* core.h: a thread and its core: staying on it, leaving it to others, and what a wait for
 * others learns by offering it.
 *
 * Sleeping costs a wait 10 to 100 us more than polling (in a virtual machine a halted core
 * takes long to wake), and schedulers like to wake a sleeper on the core of whoever wakes it,
 * where the two then take turns. So a short wait polls, and offers its core now and then. Does
 * somebody take it and stay, the core is not its own: for a while the thread's waits sleep
 * early, as the one who took it may be the thread that is waited for.
 *
 * Threads that hardly ever wait long offer their cores as well: where all cores compute, who
 * sends what they have computed would wait for the end of a time slice, some milliseconds. */
#ifndef LOCKSTEP_BASE_CORE_H
#define LOCKSTEP_BASE_CORE_H

#include <stdbool.h>
#include <stdint.h>

/* Of one thread; all zero at first. */
struct core {
    uint64_t offer_ns, at_times_ns; /* the next time */
    uint64_t taken_ns, shared_until_ns, pause_ns;
};

/* Did somebody take the core lately? now_ns: clock_ns(). */
static inline bool core_is_shared(const struct core *core, uint64_t now_ns) {
    return now_ns < core->shared_until_ns;
}

/* Keeps the calling thread on one of the cores that it may use: the nth, counting round; where
 * the system has no such thing it stays free. */
void core_pin(int nth);

/* Where the calling thread runs just now; -1 where the system does not say. */
int core_here(void);
/* Moves the calling thread to one of the cores that it may use, but none of taken[n]; the
 * system may move it on from there. Stays where there is no other core. */
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
/* Where a wait begins, however short it may be: the same, if the last time is 200 us ago. After
 * one who stayed it is longer, so that hardly any of the core's time is given away. */
void core_offer_at_times(struct core *core, uint64_t now_ns);

#endif
