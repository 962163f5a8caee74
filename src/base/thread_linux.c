/* thread_linux.c: threads on Linux: priority, stack size, and waits by the monotonic clock. */
#include "base/thread.h"

#include <errno.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

#define LOWER_BY 10 /* steps of nice(), each some 25 % */

void thread_lower_priority(void) {
    errno = 0;
    int now = getpriority(PRIO_PROCESS, 0); /* which is the thread's, here */
    if (errno == 0)
        (void)setpriority(PRIO_PROCESS, 0, now + LOWER_BY);
}

size_t thread_stack_left(void) {
    /* Asked for once: for the main thread it takes a file. */
    static _Thread_local uintptr_t low;
    const char here = 0;
    pthread_attr_t attr;
    if (low == 0 && pthread_getattr_np(pthread_self(), &attr) == 0) {
        void *base;
        size_t size;
        if (pthread_attr_getstack(&attr, &base, &size) == 0)
            low = (uintptr_t)base;
        pthread_attr_destroy(&attr);
    }
    return (uintptr_t)&here > low ? (uintptr_t)&here - low : 0;
}

void thread_cond_init(pthread_cond_t *c) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

bool thread_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t until_ns) {
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                                   .tv_nsec = (long)(until_ns % 1000000000)};
    return pthread_cond_timedwait(c, m, &until) != ETIMEDOUT;
}
