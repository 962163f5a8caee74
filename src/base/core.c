/* core.c: Offers a thread's core to other threads, notices when one takes it, and binds
 * threads to cores. */
#include "base/core.h"

#include "base/clock.h"
#include "base/util.h"

#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define OFFER_NS 10000u
#define AT_TIMES_NS 200000u
#define STAYS_NS 500000u   /* longer than it takes to send what there is */
#define STAYS_SHARE 20     /* so many times as long no offer at times */
#define TAKEN_NS 100000u   /* longer than a yield with no other thread */
#define TWICE_NS 10000000u /* ... and again within this: another thread stays here */
#define PAUSE_MIN_NS 100000000ull
#define PAUSE_MAX_NS 10000000000ull

/* How often this thread has had to leave its core. Unlike the time away, it does not count what
 * a hypervisor took. If the system has no such count: always another number. */
static long times_switched(void) {
#ifdef RUSAGE_THREAD
    struct rusage u;
    if (getrusage(RUSAGE_THREAD, &u) == 0)
        return u.ru_nivcsw;
#endif
    static _Thread_local long unknown;
    return ++unknown;
}

static void offer(struct core *core, uint64_t now_ns) {
    long before = times_switched();
    sched_yield();
    uint64_t back = clock_ns(), away = back - now_ns;
    core->offer_ns = back + OFFER_NS;
    core->at_times_ns = back + (away < STAYS_NS ? AT_TIMES_NS : STAYS_SHARE * away);
    if (away < TAKEN_NS || times_switched() == before)
        return;
    bool twice = back - core->taken_ns < TWICE_NS;
    core->taken_ns = back;
    if (!twice) /* anything may run for once */
        return;
    bool again = now_ns - core->shared_until_ns < core->pause_ns;
    core->pause_ns = again ? MIN(2 * core->pause_ns, PAUSE_MAX_NS) : PAUSE_MIN_NS;
    core->shared_until_ns = back + core->pause_ns;
}

void core_offer(struct core *core, uint64_t now_ns) {
    if (now_ns >= core->offer_ns)
        offer(core, now_ns);
}

void core_offer_at_times(struct core *core, uint64_t now_ns) {
    if (now_ns >= core->at_times_ns)
        offer(core, now_ns);
}

int core_here(void) {
#ifdef __linux__
    return sched_getcpu();
#else
    return -1;
#endif
}

void core_leave(const int *taken, int n) {
#ifdef __linux__
    cpu_set_t all, others;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    others = all;
    for (int i = 0; i < n; i++)
        if (taken[i] >= 0 && taken[i] < CPU_SETSIZE)
            CPU_CLR(taken[i], &others);
    if (CPU_COUNT(&others) == 0)
        return;
    sched_setaffinity(0, sizeof others, &others); /* moves it at once */
    sched_setaffinity(0, sizeof all, &all);
#else
    (void)taken, (void)n;
#endif
}

int core_thread(void) {
#ifdef __linux__
    static _Thread_local int thread;
    if (thread == 0)
        thread = (int)gettid();
    return thread;
#else
    return -1;
#endif
}

uint64_t core_ran_ns(int thread) {
#ifdef __linux__
    /* As pthread_getcpuclockid() makes it, but of a thread that may have ended. */
    const clockid_t clock = (clockid_t)(~(unsigned)thread << 3 | 6);
    struct timespec t;
    if (clock_gettime(clock, &t) == 0)
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
    (void)thread;
    return clock_ns();
}

void core_lend(int thread) {
#ifdef __linux__
    cpu_set_t all, one;
    int here = core_here();
    if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(thread, sizeof all, &all) != 0 ||
        !CPU_ISSET(here, &all))
        return;
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    sched_setaffinity(thread, sizeof one, &one);
    sched_setaffinity(thread, sizeof all, &all);
#else
    (void)thread;
#endif
}

void core_pin(int nth) {
#ifdef __linux__
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    int skip = nth % CPU_COUNT(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && skip-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
#else
    (void)nth;
#endif
}
