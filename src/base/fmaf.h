/* fmaf.h: fmaf() without hardware for it, rounded once.
 *
 * Some C libraries' (musl's, FreeBSD's) compute in double and round the sum a second time, which
 * differs where the result is subnormal, and the bits of what is compiled without FMA
 * instructions with it. fmaf.c puts this one in their place. */
#ifndef LOCKSTEP_BASE_FMAF_H
#define LOCKSTEP_BASE_FMAF_H

#include <stdint.h>
#include <string.h>

/* The product is exact in double. The sum is rounded to odd: where it was inexact, to that of its
 * two neighbours whose last bit is set. With 53 bits of which float keeps 24 or fewer, such a sum
 * is on the true one's side of every tie, so rounding it to float is as rounding the true one
 * (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008). */
static inline float exact_fmaf(float x, float y, float z) {
    double p = (double)x * (double)y, s = p + (double)z;
    double of_z = s - p, lost = (p - (s - of_z)) + ((double)z - of_z);
    uint64_t bits;
    if (s - s != 0.0) /* infinite, or no number */
        return (float)s;
    memcpy(&bits, &s, sizeof bits);
    if (lost != 0.0 && bits % 2 == 0)
        bits += (lost > 0.0) == (s > 0.0) ? 1 : UINT64_MAX;
    memcpy(&s, &bits, sizeof s);
    return (float)s;
}

#endif
