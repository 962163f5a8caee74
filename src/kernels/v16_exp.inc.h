/* v16_exp.inc.h: exp of sixteen lanes, and weights of attention. An ISA file includes its v16_*.h
 * before. */
#ifndef LOCKSTEP_KERNELS_V16_EXP_INC_H
#define LOCKSTEP_KERNELS_V16_EXP_INC_H

#include "base/exact.h"
#include "kernels/kernels.h"
#include "kernels/simd.h"

/* exact_exp (base/exact.h), lane by lane. */
INLINE v16 v16_exp(v16 x) {
    v16i n = v16_round(v16_mul(x, v16_set(EXACT_LOG2E)));
    v16 nf = v16_from_int(n);
    v16 r = v16_fma(nf, v16_set(-EXACT_LN2_HI), x);
    r = v16_fma(nf, v16_set(-EXACT_LN2_LO), r);
    v16 p = v16_set(EXACT_EXP_C4);
    p = v16_fma(p, r, v16_set(EXACT_EXP_C3));
    p = v16_fma(p, r, v16_set(EXACT_EXP_C2));
    p = v16_fma(p, r, v16_set(EXACT_EXP_C1));
    p = v16_fma(p, r, v16_set(EXACT_EXP_C0));
    v16 y = v16_add(v16_fma(p, v16_mul(r, r), r), v16_set(1.0f));
    y = v16_from_bits(v16i_add(v16i_from_bits(y), v16i_shift_left(n, 23)));
    y = v16_if_less(x, v16_set(EXACT_EXP_MIN), v16_zero(), y);
    y = v16_if_less(v16_set(EXACT_EXP_MAX), x, v16_set(INFINITY), y);
    return v16_if_nan(x, x, y);
}

/* attn_weight */
INLINE v16 v16_attn_weight(v16 x) {
    return v16_if_less(x, v16_set(ATTN_LEAST_LOGIT), v16_zero(), v16_exp(x));
}

#endif
