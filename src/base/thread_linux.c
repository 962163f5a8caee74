#include "base/thread.h"

#include <errno.h>
#include <time.h>

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
