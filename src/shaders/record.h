/* record.h: what the files that record runs share: addresses, and what is counted. */
#ifndef LOCKSTEP_SHADERS_RECORD_H
#define LOCKSTEP_SHADERS_RECORD_H

#include "base/util.h"
#include "shaders/shaders_impl.h"

static inline uint64_t at(const struct shaders *s, const void *p) {
    return p != NULL ? device_address(s->d, p) : 0;
}

/* From one row to the next: shaders multiply it to 64 bits. */
static inline uint32_t ld(size_t n) {
    BUG_ON(n > UINT32_MAX);
    return (uint32_t)n;
}

/* What a run reads or writes (device_count_bus()): n values of `size` bytes, of n_rows rows. */
static inline void touches(struct shaders *s, const void *p, size_t n, size_t size,
                           size_t n_rows) {
    if (p != NULL)
        device_count_bus(s->d, p, n * size * n_rows);
}

static inline void touches_floats(struct shaders *s, const void *p, size_t n, size_t n_rows) {
    touches(s, p, n, sizeof(float), n_rows);
}

/* Push constants have no padding, whose bytes would differ: equal runs are recorded once. */
#define RUN(s, shader, push, x, y) \
    device_run((s)->d, (s)->kernels[shader], &(push), sizeof(push), (uint32_t)(x), (y), 1)

#endif
