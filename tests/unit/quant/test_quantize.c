/* Quantizers: each error within the bound that the format gives, the whole no worse than the
 * reference quantizer's (golden/quant-models), which is far better than naive rounding. */
#include "base/rng.h"
#include "base/util.h"
#include "fixture.h"
#include "format/gguf.h"
#include "quant/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define N 8192 /* values: 32 superblocks */

/* Roughly normal: the sum of four uniform numbers. */
static double normal(uint64_t seed, uint64_t i) {
    double sum = 0;
    for (uint64_t k = 0; k < 4; k++)
        sum += rng_uniform(seed, 4 * i + k) - 0.5;
    return sum * 1.7320508;
}

enum kind { NORMAL, HEAVY_TAILS, POSITIVE, TINY, MINUTE, LARGE, N_KINDS };

static void make_values(enum kind kind, float *x) {
    for (uint64_t i = 0; i < N; i++) {
        double v = normal(7, i);
        if (kind == HEAVY_TAILS)
            v = v * v * v;
        else if (kind == POSITIVE)
            v = fabs(v) + 1;
        else if (kind == TINY)
            v *= 1e-3;
        else if (kind == MINUTE)
            v *= 1e-4;
        else if (kind == LARGE)
            v *= 1e3;
        x[i] = (float)v;
    }
}

static void round_trip(enum qtype type, const float *x, const float *importance, float *y,
                       size_t n) {
    const struct qtype_info *info = qtype_info(type);
    size_t n_blocks = n / info->block_values;
    /* One byte off: blocks need no alignment. The last byte shows a write beyond the end. */
    uint8_t *blocks = malloc(n_blocks * info->block_bytes + 2);
    blocks[n_blocks * info->block_bytes + 1] = 0xa5;
    info->quantize(x, importance, blocks + 1, n_blocks);
    assert_int_equal(blocks[n_blocks * info->block_bytes + 1], 0xa5);
    info->dequantize(blocks + 1, y, n_blocks);
    free(blocks);
}

static double rms_error(const float *x, const float *y, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sqrt(sum / (double)n);
}

static double largest(const float *x, size_t n, double *min, double *max) {
    *min = *max = (double)x[0];
    for (size_t i = 1; i < n; i++) {
        *min = fmin(*min, (double)x[i]);
        *max = fmax(*max, (double)x[i]);
    }
    return fmax(fabs(*min), fabs(*max));
}

/* Bounds of one block of 32 for a scale that is taken from the extreme values. Half a step of
 * rounding; an f16 scale is off by at most 2^-11, which moves the largest quant by that much of
 * the largest value (or 2^-25, if it is subnormal; that of Q8_0 is then rounded up by at most
 * 2^-24, of which half a step has a half); symmetric types lose up to a step where the extreme
 * value's opposite is clipped. */
static double block_bound(enum qtype type, const float *x) {
    double min, max, top = largest(x, QK, &min, &max), half = 0x1p-11, tiny = 0x1p-25;
    switch ((int)type) {
    case QT_Q8_0:
        return top * (0.5 / 127 + half) + tiny;
    case QT_Q4_0:
        return top * (1.0 / 8 + half) + 8 * tiny;
    case QT_Q5_0:
        return top * (1.0 / 16 + half) + 16 * tiny;
    case QT_Q4_1:
        return (max - min) * (0.5 / 15 + half) + fabs(min) * half + 16 * tiny;
    case QT_Q5_1:
        return (max - min) * (0.5 / 31 + half) + fabs(min) * half + 32 * tiny;
    case QT_F16:
        return top * half + tiny;
    case QT_BF16:
        return top * 0x1p-8;
    default:
        return 0; /* F32 */
    }
}

/* A searched scale may move single values further, but never all: the plain scale is one of those
 * tried, and the one with the least squared error wins. */
static bool is_searched(enum qtype type) {
    return type == QT_Q4_0 || type == QT_Q4_1 || type == QT_Q5_0 || type == QT_Q5_1;
}

static void simple_types_keep_their_bounds(void **state) {
    (void)state;
    static const enum qtype types[] = {QT_F32,  QT_F16,  QT_BF16, QT_Q8_0,
                                       QT_Q4_0, QT_Q4_1, QT_Q5_0, QT_Q5_1};
    static float x[N], y[N];
    for (size_t k = 0; k < ARRAY_LEN(types); k++) {
        for (int kind = 0; kind < N_KINDS; kind++) {
            make_values((enum kind)kind, x);
            round_trip(types[k], x, NULL, y, N);
            for (size_t i = 0; i < N; i++) {
                size_t block = i / QK * QK;
                double bound = block_bound(types[k], x + block) * (1 + 1e-6) + 1e-7;
                double error = is_searched(types[k]) ? rms_error(x + block, y + block, QK)
                                                     : fabs((double)x[i] - (double)y[i]);
                if (error > bound)
                    fail_msg("%s: %g became %g, error %g, bound %g", qtype_info(types[k])->name,
                             (double)x[i], (double)y[i], error, bound);
            }
        }
    }
}

/* ---- against the reference quantizer ----------------------------------------------- */

static struct gguf *open_golden(const char *name) {
    char path[256];
    struct gguf *g = NULL;
    struct err err = {.text = ""};
    snprintf(path, sizeof path, "quant-models/%s", name);
    if (gguf_open(&g, golden_path(path), NULL, &err) != ST_OK)
        fail_msg("%s", err.text);
    return g;
}

static float *values_of(const struct gguf_tensor *t) {
    size_t n = (size_t)(t->dims[0] * t->dims[1] * t->dims[2]);
    float *x = malloc(n * sizeof *x);
    qtype_info(t->type)->dequantize(t->data, x, n / qtype_info(t->type)->block_values);
    return x;
}

/* The error over all tensors of the type, ours and the reference's. */
static void compare_errors(const struct gguf *true_weights, const struct gguf *reference,
                           enum qtype type, double *ours, double *theirs) {
    *ours = *theirs = 0;
    for (size_t i = 0; i < gguf_n_tensors(reference); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(reference, i);
        if (t->type != type || t->n_dims < 2)
            continue;
        size_t n = (size_t)(t->dims[0] * t->dims[1] * t->dims[2]);
        float *x = values_of(gguf_tensor(true_weights, t->name)), *y = values_of(t);
        *theirs += pow(rms_error(x, y, n), 2) * (double)n;
        round_trip(type, x, NULL, y, n);
        *ours += pow(rms_error(x, y, n), 2) * (double)n;
        free(x);
        free(y);
    }
}

/* The squared error is what the searches minimize. It is at most this part of the reference's,
 * which weighs errors and searches less, and for q4_0 to q5_1 not at all. */
static void errors_are_no_worse_than_the_references(void **state) {
    (void)state;
    static const struct {
        enum qtype type;
        const char *name;
        double most;
    } files[] = {
        {QT_Q8_0, "q8_0", 1.0},   {QT_Q4_0, "q4_0", 0.89},     {QT_Q4_1, "q4_1", 0.8},
        {QT_Q5_0, "q5_0", 0.89},  {QT_Q5_1, "q5_1", 0.8},      {QT_Q2_K, "q2_K", 0.79},
        {QT_Q3_K, "q3_K", 0.91},  {QT_Q4_K, "q4_K", 0.97},     {QT_Q5_K, "q5_K", 0.92},
        {QT_Q6_K, "q6_K", 0.91},  {QT_IQ4_NL, "iq4_nl", 0.94}, {QT_IQ4_XS, "iq4_xs", 0.94},
        {QT_MXFP4, "mxfp4", 0.94}};
    golden_or_skip("quant-models/q-llama-f16.gguf");
    struct gguf *true_weights = open_golden("q-llama-f16.gguf");
    for (size_t k = 0; k < ARRAY_LEN(files); k++) {
        char name[64];
        double ours, theirs;
        snprintf(name, sizeof name, "q-llama-%s.gguf", files[k].name);
        struct gguf *reference = open_golden(name);
        compare_errors(true_weights, reference, files[k].type, &ours, &theirs);
        if (!(ours <= files[k].most * theirs))
            fail_msg("%s: squared error %.4f of the reference's", files[k].name, ours / theirs);
        gguf_close(reference);
    }
    gguf_close(true_weights);
}

/* ---- against naive rounding -------------------------------------------------------- */

static const struct {
    enum qtype type;
    int part;   /* values that share a scale */
    int levels; /* steps from the smallest to the largest value, or (symmetric) from 0 */
    bool symmetric;
} searched[] = {{QT_Q2_K, 16, 3, false},
                {QT_Q3_K, 16, 4, true},
                {QT_Q4_K, 32, 15, false},
                {QT_Q5_K, 32, 31, false},
                {QT_Q6_K, 16, 32, true}};

/* Each part rounded to evenly spaced steps over its range, with scales in double. The types
 * cannot store a positive minimum. */
static double naive_error(const float *x, int part, int levels, bool symmetric) {
    double sum = 0;
    for (size_t i = 0; i < N; i++) {
        double min, max, top = largest(x + i / part * part, (size_t)part, &min, &max);
        double from = symmetric ? 0 : fmin(min, 0);
        double step = (symmetric ? top : max - from) / levels;
        double y = from + step * rint(((double)x[i] - from) / step);
        sum += (y - (double)x[i]) * (y - (double)x[i]);
    }
    return sqrt(sum / N);
}

/* Ours must round the scales too (to 4 or 6 bits, times a half that is subnormal where values are
 * small): 10 % for that. */
static void searches_are_no_worse_than_naive_rounding(void **state) {
    (void)state;
    static float x[N], y[N];
    for (size_t k = 0; k < ARRAY_LEN(searched); k++) {
        for (int kind = 0; kind < N_KINDS; kind++) {
            make_values((enum kind)kind, x);
            round_trip(searched[k].type, x, NULL, y, N);
            double naive =
                naive_error(x, searched[k].part, searched[k].levels, searched[k].symmetric);
            if (!(rms_error(x, y, N) <= 1.1 * naive))
                fail_msg("%s, kind %d: error %g, naive %g", qtype_info(searched[k].type)->name,
                         kind, rms_error(x, y, N), naive);
        }
    }
}

/* ---- properties -------------------------------------------------------------------- */

/* With a step of 1, values are rounded as roundf() does it: the reference quantizer calls it. */
static void q8_0_rounds_as_the_reference(void **state) {
    (void)state;
    float x[QK] = {127}, y[QK];
    for (int i = 1; i < QK; i++)
        x[i] = ((float)i - 16) * 3 + 0.5f;
    x[1] = nextafterf(0.5f, 0);
    round_trip(QT_Q8_0, x, NULL, y, QK);
    for (int i = 0; i < QK; i++)
        assert_true(y[i] == roundf(x[i]));
}

/* What a block of these types holds is what it holds after another round. A scale may be of either
 * sign, so zeros are, too. */
static void rounding_twice_changes_nothing(void **state) {
    (void)state;
    static const enum qtype types[] = {QT_F16, QT_BF16, QT_Q8_0, QT_Q4_0, QT_Q5_0, QT_MXFP4};
    static float x[N], y[N], z[N];
    make_values(NORMAL, x);
    for (size_t k = 0; k < ARRAY_LEN(types); k++) {
        round_trip(types[k], x, NULL, y, N);
        round_trip(types[k], y, NULL, z, N);
        for (size_t i = 0; i < N; i++)
            assert_true(y[i] == z[i]);
    }
}

static double weighted_error(const float *x, const float *y, const float *importance) {
    double sum = 0;
    for (size_t i = 0; i < N; i++)
        sum += (double)importance[i] * pow((double)x[i] - (double)y[i], 2);
    return sum;
}

static void importance_moves_the_error(void **state) {
    (void)state;
    static const enum qtype types[] = {QT_Q4_0, QT_Q4_1, QT_Q5_0,   QT_Q5_1,   QT_Q2_K,
                                       QT_Q3_K, QT_Q4_K, QT_IQ4_NL, QT_IQ4_XS, QT_Q5_K};
    static float x[N], y[N], importance[N];
    make_values(NORMAL, x);
    for (size_t i = 0; i < N; i++) /* one value in eight matters */
        importance[i] = i % 8 == 3 ? 10 : 0.01f;
    for (size_t k = 0; k < ARRAY_LEN(types); k++) {
        round_trip(types[k], x, NULL, y, N);
        double without = weighted_error(x, y, importance);
        round_trip(types[k], x, importance, y, N);
        if (!(weighted_error(x, y, importance) < 0.8 * without))
            fail_msg("%s: %g, without %g", qtype_info(types[k])->name,
                     weighted_error(x, y, importance), without);
    }
}

static bool is_finite_block(const float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(y[i]))
            return false;
    return true;
}

/* Zeros stay zeros, constants are met within a step; what cannot be represented gives something
 * (the sanitizers watch). */
static void strange_values_are_survived(void **state) {
    (void)state;
    static const float values[] = {0,       -0.0f, 1,     -3,        1e-12f,   1e-38f,
                                   -1e-45f, 65504, 3e38f, -INFINITY, INFINITY, NAN};
    float x[QK_K], y[QK_K], importance[QK_K];
    for (uint32_t type = 0; type < QT_N; type++) {
        const struct qtype_info *info = qtype_info(type);
        if (!info || !info->quantize)
            continue;
        for (size_t k = 0; k < ARRAY_LEN(values); k++) {
            for (size_t i = 0; i < QK_K; i++) {
                x[i] = values[k];
                importance[i] = fabsf(values[k]);
            }
            round_trip((enum qtype)type, x, importance, y, QK_K);
            round_trip((enum qtype)type, x, NULL, y, QK_K);
            if (fabsf(values[k]) <= 3)
                assert_true(is_finite_block(y, QK_K) &&
                            fabsf(y[5] - x[5]) <= fabsf(x[5]) * 0.1f + 1e-6f);
            for (size_t i = 0; i < QK_K; i++) /* one of them among ordinary values */
                x[i] = i % 37 == 0 ? values[k] : (float)i;
            round_trip((enum qtype)type, x, NULL, y, QK_K);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simple_types_keep_their_bounds),
        cmocka_unit_test(errors_are_no_worse_than_the_references),
        cmocka_unit_test(searches_are_no_worse_than_naive_rounding),
        cmocka_unit_test(q8_0_rounds_as_the_reference),
        cmocka_unit_test(rounding_twice_changes_nothing),
        cmocka_unit_test(importance_moves_the_error),
        cmocka_unit_test(strange_values_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
