/* float_env.h: the floating-point environment, on which the bits of results depend.
 *
 * Rounding mode and flush-to-zero belong to a thread. The thread may be the caller's, and a new
 * thread inherits them from its creator. All computing code runs between these two calls, in
 * the default environment: round to nearest, no flushing.
 *
 * thread_start() puts them around the start of a thread, so the library's threads begin in this
 * environment. fabric_open() puts them around what it opens, because a link's library may
 * change the environment while it loads. pool_run() puts them around a thread's work. */
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

/* Until float_env_end(), this thread and those that it starts flush subnormals. */
static inline void float_env_flush(void) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040u); /* FTZ and DAZ */
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)1 << 24) : "memory"); /* FZ */
#endif
}

static inline void float_env_end(const struct float_env *e) {
    fesetenv(&e->callers);
#if defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(e->control) : "memory");
#endif
}

#endif
