/* clock.h: monotonic time. Thread-safe, never fails, never goes back. */
#ifndef LOCKSTEP_BASE_CLOCK_H
#define LOCKSTEP_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read_ns(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_ns(void) {
    return clock_read_ns(CLOCK_MONOTONIC);
}

/* The same, but it goes on while the machine is suspended, where clock_ns() may stand still. */
static inline uint64_t clock_suspended_ns(void) {
#ifdef CLOCK_BOOTTIME
    return clock_read_ns(CLOCK_BOOTTIME);
#else
    return clock_ns(); /* where the system has one such clock, it goes on */
#endif
}

static inline double clock_s(void) {
    return (double)clock_ns() * 1e-9;
}

#endif
