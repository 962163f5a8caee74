/* near.h: asks for memory before it is needed.
 *
 * What another core has written lies in its cache, and a line of it takes 50 to 400 ns, as long as one from memory: code that
 * meets such lines one by one waits for each. Asked for all at once they take hardly longer than one. */
#ifndef LOCKSTEP_BASE_NEAR_H
#define LOCKSTEP_BASE_NEAR_H

#include "base/util.h"

/* To be read. */
static inline void near_ask(const void *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += CACHE_LINE)
        __builtin_prefetch((const uint8_t *)p + at, 0);
}

/* To be written: other cores give their copies up. */
static inline void near_own(void *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += CACHE_LINE) {
        uint8_t *line = (uint8_t *)p + at;
#if defined(__x86_64__)
        __asm__ volatile("prefetchw %0" ::"m"(*line)); /* without it compilers ask to read */
#else
        __builtin_prefetch(line, 1);
#endif
    }
}

#endif
