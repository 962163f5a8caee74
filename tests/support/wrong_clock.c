/* wrong_clock.c: a library for LD_PRELOAD that sets one machine's calendar wrong. Linux has one
 * calendar for all of its namespaces, so a machine that is a namespace needs this.
 *
 * $WRONG_CLOCK names a file of eight bytes, an int64 of nanoseconds: how much the calendar is
 * ahead. It is read at every look at the clock, so whoever writes there makes the clock jump.
 * Clocks that only count (CLOCK_MONOTONIC) stay as they are, as they would on a real machine. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000

static const volatile int64_t *ahead_ns; /* NULL: the clock is right */

static __attribute__((constructor)) void begin(void) {
    const char *path = getenv("WRONG_CLOCK");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *at = mmap(NULL, sizeof *ahead_ns, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
        ahead_ns = at;
}

int clock_gettime(clockid_t id, struct timespec *t) {
    long rc = syscall(SYS_clock_gettime, id, t);
    if (rc != 0 || ahead_ns == NULL || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
        return (int)rc;
    int64_t ns = (int64_t)t->tv_sec * NS_PER_S + t->tv_nsec + *ahead_ns;
    t->tv_sec = (time_t)(ns / NS_PER_S);
    t->tv_nsec = (long)(ns % NS_PER_S);
    return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    struct timespec t;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &t) != 0)
        return -1;
    *tv = (struct timeval){.tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out) {
    struct timespec t;
    if (clock_gettime(CLOCK_REALTIME, &t) != 0)
        return (time_t)-1;
    if (out != NULL)
        *out = t.tv_sec;
    return t.tv_sec;
}
