/* fmaf.h: fmaf() without hardware support, rounded once.
 *
 * Some C libraries (musl, FreeBSD) compute it in double and round the sum a second time. The
 * result then differs if it is subnormal. Code that is compiled without FMA instructions would
 * get other bits. fmaf.c replaces that function with this one. */
#ifndef LOCKSTEP_BASE_FMAF_H
#define LOCKSTEP_BASE_FMAF_H

#include <stdint.h>
#include <string.h>

/* The product is exact in double. The sum is rounded to odd: if it is inexact, it becomes the
 * neighbour whose last bit is set. Double has 53 bits and float 24 or fewer. So the sum is on
 * the same side of every tie as the exact one, and rounding it to float gives the correctly
 * rounded result (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008). */
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
