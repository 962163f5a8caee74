/* futex.h: sleeps until a 32-bit word changes. One file per system: futex_linux.c,
 * futex_darwin.c. `shared` must be true if several processes share the word's memory. */
#ifndef LOCKSTEP_BASE_FUTEX_H
#define LOCKSTEP_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns when *word != expected, when woken, after timeout_us, or for no reason: always
 * look again. timeout_us < 0 waits without limit. */
void futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_us, bool shared);

/* Wakes up to n waiters (INT32_MAX: all). */
void futex_wake(_Atomic uint32_t *word, int n, bool shared);

/* One iteration of a spin loop. */
static inline void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
