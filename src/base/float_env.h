/* float_env.h: the floating-point environment that bits depend on.
 *
 * Rounding and the treatment of subnormals belong to a thread, which may be a caller's, and a
 * new thread has those of the one that started it. What computes runs between these two, in the
 * default environment: to nearest, nothing flushed. thread_start() puts them around the start of
 * a thread, so one of our own begins with that; fabric_open() around what it opens, because a
 * library that a link loads may set something else for the thread that loads it; and pool_run()
 * around a thread's work. */
#ifndef LOCKSTEP_BASE_FLOAT_ENV_H
#define LOCKSTEP_BASE_FLOAT_ENV_H

#include <fenv.h>
#include <stdint.h>

struct float_env {
    fenv_t callers;
#if defined(__aarch64__)
    uint64_t control; /* FPCR: glibc leaves some of it alone (the form of f16) */
#endif
};

static inline void float_env_begin(struct float_env *e) {
    fegetenv(&e->callers);
#if defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(e->control));
#endif
    fesetenv(FE_DFL_ENV);
#if defined(__aarch64__)
    __asm__ volatile("msr fpcr, xzr" ::: "memory");
#endif
}

static inline void float_env_end(const struct float_env *e) {
    fesetenv(&e->callers);
#if defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(e->control) : "memory");
#endif
}

#endif
