/* roof.h: the rooflines of this machine, with which our kernels are compared.
 *
 * Each roof is the rate of the best of several loops in the instruction set in use
 * (kernels_select), on all threads of the pool at once. Measuring takes 0.1 to 1 s. */
#ifndef LOCKSTEP_ROOF_ROOF_H
#define LOCKSTEP_ROOF_ROOF_H

#include "base/pool.h"

#include <stddef.h>

/* Reads buf [bytes] `rounds` times with each loop (numbers of streams, prefetch distances), in
 * turn, and then as often with the best of them alone. Returns the median of the latter, in
 * GB/s. (The best of several noisy medians would be more than any loop reaches.) The buffer
 * should lie on huge pages and be much larger than the caches. */
double roof_read_gbs(struct pool *pool, const void *buf, size_t bytes, int rounds);

/* int8 multiply-add on registers: 2 operations each, in 10^9 operations/s. */
double roof_int8_gops(struct pool *pool);

/* f32 multiply-add on registers: 2 operations each, in 10^9 operations/s. */
double roof_f32_gops(struct pool *pool);

#endif
