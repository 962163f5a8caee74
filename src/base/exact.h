/* exact.h: exp, tanh, log, sin, cos and sums of lanes with the same bits everywhere. libm's
 * results differ between systems.
 *
 * These are pure functions: a fixed sequence of IEEE operations and explicit fma, compiled with
 * -ffp-contract=off. A SIMD version can repeat the f32 functions operation by operation. exp,
 * swiglu and attention in kernels.h use exactly these. The f64 functions make tables (RoPE) and
 * are accurate to about 1e-15. */
#ifndef LOCKSTEP_BASE_EXACT_H
#define LOCKSTEP_BASE_EXACT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* exp(x) for f32, within 1.05 ulp:
 *   x < EXP_MIN gives 0, x > EXP_MAX gives infinity, NaN stays NaN;
 *   n = rint(x * log2(e)), r = fma(n, -LN2_LO, fma(n, -LN2_HI, x)),
 *   p = Horner with fma over EXP_C4..EXP_C0, y = fma(p, r * r, r) + 1,
 *   and n is added to the exponent bits of y.
 * EXP_MIN is chosen so that the result is never subnormal. LN2_HI is ln 2 rounded to f32. The
 * inner fma is exact, since x and n * LN2_HI are multiples of 2^-25 that nearly cancel. The
 * polynomial is the minimax one for (e^r - 1 - r) / r^2 on [-ln2/2, ln2/2] (Remez, error
 * weighted by r^2 e^-r). Its coefficients are rounded to f32: e^r errs by less than 2^-27.9. */
#define EXACT_EXP_MIN (-87.3f)
#define EXACT_EXP_MAX 88.72f
#define EXACT_LOG2E 0x1.715476p+0f
#define EXACT_LN2_HI 0x1.62e430p-1f
#define EXACT_LN2_LO (-0x1.05c610p-29f)
#define EXACT_EXP_C0 0x1.fffffcp-2f
#define EXACT_EXP_C1 0x1.555492p-3f
#define EXACT_EXP_C2 0x1.5558f2p-5f
#define EXACT_EXP_C3 0x1.1239e2p-7f
#define EXACT_EXP_C4 0x1.6a2434p-10f

static inline float exact_exp(float x) {
    if (x < EXACT_EXP_MIN)
        return 0.0f;
    if (x > EXACT_EXP_MAX)
        return INFINITY;
    if (x != x)
        return x;
    float n = rintf(x * EXACT_LOG2E);
    float r = fmaf(n, -EXACT_LN2_LO, fmaf(n, -EXACT_LN2_HI, x));
    float p = EXACT_EXP_C4;
    p = fmaf(p, r, EXACT_EXP_C3);
    p = fmaf(p, r, EXACT_EXP_C2);
    p = fmaf(p, r, EXACT_EXP_C1);
    p = fmaf(p, r, EXACT_EXP_C0);
    float y = fmaf(p, r * r, r) + 1.0f;
    uint32_t bits;
    memcpy(&bits, &y, sizeof bits);
    bits += (uint32_t)(int32_t)n << 23;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* tanh(x) = 1 - 2 / (exp(2x) + 1): exact at the ends; absolute error within 2e-7, which is what a
 * softcap of logits needs. */
static inline float exact_tanh(float x) {
    return 1.0f - 2.0f / (exact_exp(x + x) + 1.0f);
}

/* The least magnitude of a number that is stored for others to read (docs/numerics.md). Whatever is
 * below it is +0: then no operation on such numbers meets a subnormal that could matter. NaN stays.
 */
#define EXACT_LEAST 0x1p-40f
#define EXACT_LEAST_BITS 0x2b800000u

static inline float exact_tidy(float x) {
    return fabsf(x) < EXACT_LEAST ? 0.0f : x;
}

static inline void exact_tidy_all(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = exact_tidy(x[i]);
}

/* The one tree that sums 16 lanes (docs/numerics.md): lanes 8 apart, then 4, 2, 1. Overwrites
 * them. */
static inline float exact_sum_lanes(float lanes[16]) {
    for (int half = 8; half >= 1; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

/* x . y: lane i % 16 takes products i in order, by fma. */
static inline float exact_dot(const float *x, const float *y, size_t n) {
    float lanes[16] = {0};
    for (size_t i = 0; i < n; i++)
        lanes[i % 16] = fmaf(x[i], y[i], lanes[i % 16]);
    return exact_sum_lanes(lanes);
}

/* x . x for long rows: lane i % 256 takes squares i in order, by fma; a tree of lanes 128 apart,
 * 64, ..., 1. */
#define EXACT_LANES 256
static inline float exact_squares(const float *x, size_t n) {
    float lanes[EXACT_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lanes[i % EXACT_LANES] = fmaf(x[i], x[i], lanes[i % EXACT_LANES]);
    for (int half = EXACT_LANES / 2; half >= 1; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

#define EXACT_LN2_HI64 0x1.62e42fee00000p-1
#define EXACT_LN2_LO64 0x1.a39ef35793c76p-33

/* exp(x) for |x| < 700: the series to the 13th power on [-ln2/2, ln2/2]. */
static inline double exact_exp64(double x) {
    double n = rint(x * 1.4426950408889634);
    double r = fma(n, -EXACT_LN2_LO64, fma(n, -EXACT_LN2_HI64, x));
    double p = 1.0;
    for (int k = 13; k >= 1; k--)
        p = fma(p, r / k, 1.0);
    return ldexp(p, (int)n);
}

/* log(x) for finite x > 0: x = 2^n m, m in [sqrt(1/2), sqrt(2)). log m = 2 artanh(s) with s =
 * (m - 1) / (m + 1), |s| < 0.172, by the series up to s^23. */
static inline double exact_log64(double x) {
    int n;
    double m = frexp(x, &n);
    if (m < 0.70710678118654752) {
        m += m;
        n--;
    }
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, p = 0.0;
    for (int k = 23; k >= 1; k -= 2)
        p = fma(p, s2, 1.0 / k);
    return fma(n, EXACT_LN2_HI64, fma(n, EXACT_LN2_LO64, 2.0 * s * p));
}

/* ln(1 + e^x), in double; where e^x is small by its series. */
static inline float exact_softplus(float x) {
    if (!(x <= 20.0f))
        return x; /* NaN too */
    if (x < -80.0f)
        return 0.0f;
    double e = exact_exp64((double)x);
    return (float)(x < -12.0f ? e * (1.0 - 0.5 * e) : exact_log64(1.0 + e));
}

/* x to the power of y. By multiplication where y is whole, so exact where the result is; else
 * accurate to about 1e-13. NaN for x < 0 and a y that is not whole. */
static inline double exact_pow64(double x, double y) {
    if (!isfinite(x) || !isfinite(y))
        return pow(x, y); /* 0, 1, infinity or NaN, by IEEE's rules: nothing is rounded */
    if (y == floor(y) && fabs(y) < 0x1p53) {
        double result = 1;
        for (int64_t n = (int64_t)fabs(y); n > 0; n >>= 1, x *= x)
            if ((n & 1) != 0)
                result *= x;
        return y < 0 ? 1 / result : result;
    }
    if (x <= 0)
        return x == 0 && y > 0 ? 0 : x == 0 ? INFINITY : NAN;
    if (y == 0.5)
        return sqrt(x);
    double e = y * exact_log64(x);
    return e > 709 ? INFINITY : e < -708 ? 0 : exact_exp64(e);
}

/* sin and cos of x, |x| < 2^30: reduced by multiples of pi/2 in three parts, then the series to
 * the 17th power on [-pi/4, pi/4]. */
static inline void exact_sincos64(double x, double *sin_x, double *cos_x) {
    double n = rint(x * 0.63661977236758134);
    double r = fma(n, -0x1.921fb54400000p+0, x);
    r = fma(n, -0x1.0b4611a600000p-34, r);
    r = fma(n, -0x1.3198a2e037073p-69, r);
    double r2 = r * r, s = 1.0, c = 1.0;
    for (int k = 16; k >= 2; k -= 2) {
        s = fma(s, -r2 / (k * (k + 1)), 1.0);
        c = fma(c, -r2 / ((k - 1) * k), 1.0);
    }
    s *= r;
    switch ((uint32_t)(int64_t)n & 3) {
    case 0:
        *sin_x = s, *cos_x = c;
        break;
    case 1:
        *sin_x = c, *cos_x = -s;
        break;
    case 2:
        *sin_x = -s, *cos_x = -c;
        break;
    default:
        *sin_x = -c, *cos_x = s;
        break;
    }
}

#endif
