/* prefetch.h: prefetches memory, and stores data where other cores find it.
 *
 * A cache line that another core has written lies in that core's cache. Reading it takes 50 to
 * 400 ns, as long as a line from memory. Code that reads such lines one by one waits for each
 * of them. Lines that are requested together take hardly longer than one. */
#ifndef LOCKSTEP_BASE_PREFETCH_H
#define LOCKSTEP_BASE_PREFETCH_H

#include "base/util.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* To be read. */
static inline void prefetch_read(const void *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += CACHE_LINE)
        __builtin_prefetch((const uint8_t *)p + at, 0);
}

/* To be written: other cores give their copies up. */
static inline void prefetch_write(void *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += CACHE_LINE) {
        uint8_t *line = (uint8_t *)p + at;
#if defined(__x86_64__)
        __asm__ volatile("prefetchw %0" ::"m"(*line)); /* without it compilers ask to read */
#else
        __builtin_prefetch(line, 1);
#endif
    }
}

/* Copies into memory that another core has read and will read again. The stores bypass the
 * caches. So no line has to be taken from the other core first, or fetched from this core's
 * cache later. The copy completes before any later store. */
static inline void prefetch_demote(void *to, const void *from, size_t bytes) {
    uint8_t *out = to;
    const uint8_t *in = from;
    size_t at = 0;
#if defined(__x86_64__)
    const bool aligned = (uintptr_t)to % 16 == 0; /* as slots in shared memory are */
    for (; aligned && at + 16 <= bytes; at += 16)
        _mm_stream_si128((__m128i *)(void *)(out + at),
                         _mm_loadu_si128((const void *)(in + at)));
    _mm_sfence();
#endif
    memcpy(out + at, in + at, bytes - at);
}

#endif
