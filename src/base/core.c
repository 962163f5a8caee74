#include "base/core.h"

#include "base/clock.h"
#include "base/util.h"

#include <sched.h>
#include <sys/resource.h>

#define TAKEN_NS 100000u /* longer than a yield to nobody */
#define PAUSE_MIN_NS 100000000ull
#define PAUSE_MAX_NS 10000000000ull

/* How often this thread has had to leave its core. Unlike the time away it does not count what a hypervisor
 * took. Where nobody counts: always another number. */
static long times_switched(void) {
#ifdef RUSAGE_THREAD
    struct rusage u;
    if (getrusage(RUSAGE_THREAD, &u) == 0)
        return u.ru_nivcsw;
#endif
    static _Thread_local long unknown;
    return ++unknown;
}

uint64_t core_offer(struct core *core, uint64_t now_ns) {
    long before = times_switched();
    sched_yield();
    uint64_t back = clock_ns();
    if (back - now_ns < TAKEN_NS || times_switched() == before)
        return back;
    bool again = now_ns - core->shared_until_ns < core->pause_ns;
    core->pause_ns = again ? MIN(2 * core->pause_ns, PAUSE_MAX_NS) : PAUSE_MIN_NS;
    core->shared_until_ns = back + core->pause_ns;
    return back;
}
