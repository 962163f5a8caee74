/* float_env.h: the floating-point environment that bits depend on.
 *
 * Rounding and the treatment of subnormals belong to a thread, which may be a caller's, and a new thread has those of the
 * one that started it. What computes runs between these two, in the default environment: to nearest, nothing flushed. */
#ifndef LOCKSTEP_BASE_FLOAT_ENV_H
#define LOCKSTEP_BASE_FLOAT_ENV_H

#include <fenv.h>

struct float_env {
    fenv_t callers;
};

static inline void float_env_begin(struct float_env *e) {
    fegetenv(&e->callers);
    fesetenv(FE_DFL_ENV);
}

static inline void float_env_end(const struct float_env *e) {
    fesetenv(&e->callers);
}

#endif
