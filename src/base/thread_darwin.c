/* thread_darwin.c: threads on macOS. Its conditions know only the wall clock, but they also
 * take a relative timeout. Not yet run. */
#include "base/thread.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread/qos.h>

void thread_lower_priority(void) {
    (void)pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0);
}

size_t thread_stack_left(void) {
    const char here = 0;
    const uintptr_t top = (uintptr_t)pthread_get_stackaddr_np(pthread_self()),
                    low = top - pthread_get_stacksize_np(pthread_self());
    return (uintptr_t)&here > low ? (uintptr_t)&here - low : 0;
}

void thread_cond_init(pthread_cond_t *c) {
    pthread_cond_init(c, NULL);
}

bool thread_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t until_ns) {
    uint64_t now = clock_ns(), left = until_ns > now ? until_ns - now : 0;
    const struct timespec rest = {.tv_sec = (time_t)(left / 1000000000),
                                  .tv_nsec = (long)(left % 1000000000)};
    return pthread_cond_timedwait_relative_np(c, m, &rest) != ETIMEDOUT;
}
