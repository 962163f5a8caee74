/* selftest.h: what the files of the self-test share: memory, what is expected in it, and the
 * comparison. */
#ifndef LOCKSTEP_SHADERS_SELFTEST_H
#define LOCKSTEP_SHADERS_SELFTEST_H

#include "base/util.h"
#include "shaders/samples.h"
#include "shaders/shaders_impl.h"

#include <math.h>
#include <string.h>

#define MEMORY (1u << 20)
#define EXPECTED_MOST 24

/* Mapped memory of a test, and what is to be there once its runs are done. */
struct test {
    struct shaders *s;
    const struct kernels *definition;
    uint8_t *memory;
    size_t used;
    const char *name;
    uint32_t n_expected;
    struct {
        const void *got, *want;
        size_t n;
        bool floats; /* a NaN equals a NaN */
    } expected[EXPECTED_MOST];
};

static inline void *take(struct test *t, size_t bytes) {
    uint8_t *p = t->memory + t->used;
    t->used += round_up(bytes, CACHE_LINE);
    BUG_ON(t->used > MEMORY);
    return p;
}

static inline float *take_floats(struct test *t, size_t n, uint64_t seed) {
    float *x = take(t, n * sizeof *x);
    samples_floats(x, n, seed);
    return x;
}

static inline void *take_copy(struct test *t, const void *from, size_t bytes) {
    return memcpy(take(t, bytes), from, bytes);
}

/* n floats, or bytes. */
static inline void expect(struct test *t, const void *got, const void *want, size_t n,
                          bool floats) {
    BUG_ON(t->n_expected == EXPECTED_MOST);
    t->expected[t->n_expected].got = got;
    t->expected[t->n_expected].want = want;
    t->expected[t->n_expected].n = n;
    t->expected[t->n_expected++].floats = floats;
}

static inline void expect_floats(struct test *t, const float *got, const float *want,
                                 size_t n) {
    expect(t, got, want, n, true);
}

static inline void expect_bytes(struct test *t, const void *got, const void *want, size_t n) {
    expect(t, got, want, n, false);
}

static inline void test_begin(struct test *t, const char *name) {
    t->name = name;
    t->used = 0;
    t->n_expected = 0;
}

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline bool same_floats(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (bits_of(a[i]) != bits_of(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* Runs what is recorded, and compares. */
static inline enum status test_end(struct test *t, struct err *err) {
    enum status st = device_finish(t->s->d, err);
    const struct device_info *info = device_info(t->s->d);
    for (uint32_t i = 0; st == ST_OK && i < t->n_expected; i++) {
        const void *got = t->expected[i].got, *want = t->expected[i].want;
        size_t n = t->expected[i].n;
        if (t->expected[i].floats ? !same_floats(got, want, n) : memcmp(got, want, n) != 0)
            st = err_set(
                err, ST_BAD_INPUT,
                "%s (driver %s): its %s differs from the processor's in some bit, so it is "
                "not used",
                info->name, info->driver, t->name);
    }
    return st;
}

/* selftest_recurrent.c */
enum status test_conv(struct test *t, struct err *err);
enum status test_recurrent_gates(struct test *t, struct err *err);
enum status test_recurrence(struct test *t, struct err *err);

#endif
