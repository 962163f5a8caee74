/* exact.h against long double libm. */
#include "base/exact.h"
#include "base/fmaf.h"
#include "base/rng.h"
#include "base/util.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* The distance between f32 values around x, x normal. */
static long double ulp_f32(long double x) {
    int e;
    frexpl(x, &e);
    return ldexpl(1.0L, MAX(e - 24, -149));
}

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* With y = 1 + z, in ulps of y where these are smallest (y < 1: 2^-24, and there |r| < 0.347,
 * |z| < 0.3): the last addition 0.5; z = fma(p, r^2, r) rounds by 2^-26: 0.25; r does too, times
 * dy/dr = y: 0.18 where r is largest (y = 0.71); r * r and p, both below 2^-26 relative to a
 * term of 0.06: 0.06; the polynomial, 2^-27.9 of y: 0.05. Together 1.04. All 2^32 arguments
 * were once walked through: the largest error is 1.009. The stride visits every 997th. */
static void exp_is_within_1_05_ulp(void **state) {
    (void)state;
    for (uint64_t i = 0; i < UINT32_MAX; i += 997) {
        float x = from_bits((uint32_t)i), y = exact_exp(x);
        if (x != x) {
            assert_true(y != y);
        } else if (x < EXACT_EXP_MIN) {
            assert_true(y == 0.0f);
        } else if (x > EXACT_EXP_MAX) {
            assert_true(isinf(y) && y > 0);
        } else {
            long double want = expl((long double)x);
            long double error = fabsl((long double)y - want) / ulp_f32(want);
            if (!(error < 1.05L))
                fail_msg("exp(%a) is %a: %.3Lf ulp", (double)x, (double)y, error);
        }
    }
}

static void exp_at_its_ends(void **state) {
    (void)state;
    assert_true(exact_exp(-INFINITY) == 0.0f);
    assert_true(isinf(exact_exp(INFINITY)));
    assert_true(isinf(exact_exp(88.73f)));
    assert_true(exact_exp(EXACT_EXP_MAX) < INFINITY);
    assert_true(exact_exp(EXACT_EXP_MIN) >= FLT_MIN); /* never subnormal */
    assert_true(exact_exp(nextafterf(EXACT_EXP_MIN, -INFINITY)) == 0.0f);
    assert_true(exact_exp(0.0f) == 1.0f && exact_exp(-0.0f) == 1.0f);
}

/* Softmax relies on it: a larger logit never gets the smaller weight by more than rounding. */
static void exp_hardly_ever_falls(void **state) {
    (void)state;
    for (float x = -87.0f; x < 88.0f; x += 0.37f) {
        float y = x;
        for (int i = 0; i < 1000; i++, y = nextafterf(y, INFINITY)) {
            float a = exact_exp(y), b = exact_exp(nextafterf(y, INFINITY));
            assert_true(b >= nextafterf(a, 0.0f));
        }
    }
}

/* exp errs by an ulp, 1 + exp and the quotient round: 2 / (1 + e) <= 2 in error by 3 * 2^-24 of
 * itself, and at most 2 of it where e is 0. */
static void tanh_is_close(void **state) {
    (void)state;
    for (float x = -12.0f; x <= 12.0f; x += 0.00037f) {
        long double error = fabsl((long double)exact_tanh(x) - tanhl((long double)x));
        if (!(error <= 3.5L * 0x1p-24L))
            fail_msg("tanh(%a) errs by %Lg", (double)x, error);
    }
    assert_true(exact_tanh(INFINITY) == 1.0f && exact_tanh(-INFINITY) == -1.0f);
    assert_true(exact_tanh(0.0f) == 0.0f);
    assert_true(exact_tanh(NAN) != exact_tanh(NAN));
}

/* A few roundings of a double each. */
static void check_f64(const char *what, double x, double got, long double want,
                      long double bound) {
    if (!(fabsl((long double)got - want) <= bound))
        fail_msg("%s(%a) is %a, errs by %Lg", what, x, got, fabsl((long double)got - want));
}

static void f64_functions_are_close(void **state) {
    (void)state;
    for (double x = -690; x < 690; x += 0.0173) {
        long double want = expl((long double)x);
        check_f64("exp", x, exact_exp64(x), want, want * 0x1p-51L);
    }
    for (double x = 0x1p-40; x < 0x1p60; x *= 1.00037) {
        long double want = logl((long double)x);
        check_f64("log", x, exact_log64(x), want, fabsl(want) * 0x1p-50L);
    }
    for (double x = -1000; x < 0x1p30; x = x < 1000 ? x + 0.0137 : x * 1.00137) {
        double s, c;
        exact_sincos64(x, &s, &c);
        check_f64("sin", x, s, sinl((long double)x), 0x1p-51L);
        check_f64("cos", x, c, cosl((long double)x), 0x1p-51L);
    }
}

/* A float of any class, often near the others' or the smallest. */
static float any_float(uint64_t v) {
    uint32_t bits = (uint32_t)v;
    if (v >> 62 == 0)
        bits = (bits & 0x807fffff) | (uint32_t)(v >> 32 & 63) << 23; /* products: subnormal */
    else if (v >> 62 == 1)
        bits = (bits & 0x807fffff) | (uint32_t)(96 + (v >> 32 & 31)) << 23;
    return from_bits(bits);
}

static void check_fmaf(float x, float y, float z) {
    float want = fmaf(x, y, z), got = exact_fmaf(x, y, z);
    if (memcmp(&want, &got, sizeof got) != 0 && !(want != want && got != got))
        fail_msg("%a * %a + %a: %a and %a", (double)x, (double)y, (double)z, (double)want,
                 (double)got);
}

/* A product beside a tie by less than double holds, about subnormal and normal numbers: computing
 * in double and rounding twice errs here. The sums are known. */
static void fmaf_rounds_once(void **state) {
    (void)state;
    static const float cases[][4] = {
        {0x1.000002p-75f, 0x1.fffffcp-76f, 0x1.000004p-127f, 0x1.000004p-127f},
        {0x1.001p-75f, 0x1.ffe002p-76f, 0x1p-127f, 0x1.000004p-127f},
        {0x1.000002p-12f, 0x1.fffffcp-13f, 0x1.000002p0f, 0x1.000002p0f},
        {0x1.001p-12f, 0x1.ffe002p-13f, 1.0f, 0x1.000002p0f},
        {0x1.001p0f, 0x1.001p0f, -0x1.002p0f, 0x1p-24f},
        {0x1p127f, 2.0f, -INFINITY, -INFINITY},
        {0x1.fffffep127f, 0x1.fffffep127f, -0x1.fffffep127f, INFINITY},
        {0x1p-149f, 0x1p-149f, 0x1p-149f, 0x1p-149f},
        {0x1p-149f, 0x1p-149f, 0.0f, 0.0f},
        {-0x1p-149f, 0x1p-149f, 0.0f, -0.0f}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            float x = cases[i][0] * (float)sign, z = cases[i][2] * (float)sign;
            float want = cases[i][3] * (float)sign;
            /* 0 * -1 is another zero than the sum of two that differ */
            if (want != 0.0f)
                assert_true(exact_fmaf(x, cases[i][1], z) == want);
            check_fmaf(x, cases[i][1], z);
        }
}

/* The system's own, with hardware for it where there is (on Linux and macOS it rounds once). */
static void fmaf_is_the_systems(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 3000000; i++)
        check_fmaf(any_float(rng_u64(1, i)), any_float(rng_u64(2, i)),
                   any_float(rng_u64(3, i)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_1_05_ulp),  cmocka_unit_test(exp_at_its_ends),
        cmocka_unit_test(exp_hardly_ever_falls),   cmocka_unit_test(tanh_is_close),
        cmocka_unit_test(f64_functions_are_close), cmocka_unit_test(fmaf_rounds_once),
        cmocka_unit_test(fmaf_is_the_systems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
