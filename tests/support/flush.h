/* flush.h: subnormals flushed, as some GPUs do it: results that are subnormal become 0, and
 * operands that are count as 0. Of the calling thread. */
#ifndef LOCKSTEP_TESTS_FLUSH_H
#define LOCKSTEP_TESTS_FLUSH_H

#include <stdbool.h>
#include <stdint.h>

#define FLUSH_BITS 0x8040u   /* of MXCSR: flush to zero, denormals are zero */
#define FLUSH_BIT (1u << 24) /* of FPCR: both */

/* Whether subnormals are flushed is in no function of fenv.h. */
static inline void flush_subnormals(bool flush) {
#if defined(__x86_64__)
    unsigned bits = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(flush ? bits | FLUSH_BITS : bits & ~FLUSH_BITS);
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    fpcr = flush ? fpcr | FLUSH_BIT : fpcr & ~(uint64_t)FLUSH_BIT;
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
#endif
}

static inline bool flushes_subnormals(void) {
    volatile float tiny = 0x1p-140f,
                   half = tiny * 0.5f; /* stored here: not after the environment has changed */
    return half == 0;
}

#endif
