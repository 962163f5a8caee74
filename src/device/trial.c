/* trial.c: what is found out about a device by trying: whether its fma() is fused, and how long the
 * way there and back takes. */
#include "base/util.h"

#if defined(LOCKSTEP_HAS_VULKAN)
#include "device/device_internal.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/mem.h"

#include <math.h>

#if defined(LOCKSTEP_HAS_SHADERS)
extern const uint32_t trial_fma_spv[], empty_spv[];
extern const size_t trial_fma_spv_bytes, empty_spv_bytes;

/* a, b, c and r, a page each. */
#define N 1024
struct trial {
    float a[N], b[N], c[N], r[N];
};

/* Products whose leading half c takes away: a sum that was rounded before is then zero or far
 * off. No number comes near the subnormals. */
static void make_numbers(struct trial *t) {
    uint32_t state = 1;
    float *const to[] = {t->a, t->b};
    for (size_t k = 0; k < ARRAY_LEN(to); k++)
        for (size_t i = 0; i < N; i++) {
            state = state * 1664525u + 1013904223u;
            to[k][i] = ldexpf(1 + (float)(state >> 9) * 0x1p-23f, (int)(i % 21) - 10);
        }
    for (size_t i = 0; i < N; i++) {
        float product = t->a[i] * t->b[i];
        t->c[i] = i % 3 == 0 ? -product : i % 3 == 1 ? product * 0.37f : -t->b[i];
        t->r[i] = NAN;
    }
}

static bool all_fused(const struct trial *t) {
    for (size_t i = 0; i < N; i++)
        if (t->r[i] != fmaf(t->a[i], t->b[i], t->c[i]))
            return false;
    return true;
}

static enum status try_numbers(struct device *d, const struct trial *t, struct err *err) {
    struct device_kernel *k;
    const struct {
        uint64_t a, b, c, r;
        uint32_t n, unused;
    } push = {device_address(d, t->a),
              device_address(d, t->b),
              device_address(d, t->c),
              device_address(d, t->r),
              N,
              0};
    TRY(device_kernel_make(d, &k, trial_fma_spv, trial_fma_spv_bytes, NULL, 0, err));
    device_run(d, k, &push, sizeof push, N / 64, 1, 1);
    return device_finish(d, err);
}

enum status device_try_fma(struct device *d, bool *fused, struct err *err) {
    struct trial *t = mem_huge_alloc(sizeof *t);
    if (t == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to try a device");
    make_numbers(t);
    enum status st = device_map(d, t, sizeof *t, DEVICE_SHARED, err);
    if (st == ST_OK) {
        st = try_numbers(d, t, err);
        if (st == ST_OK)
            *fused = all_fused(t);
        device_unmap(d, t);
    }
    if (!d->busy)
        mem_huge_free(t, sizeof *t);
    return st;
}

enum status device_crossing(struct device *d, uint64_t *ns, struct err *err) {
    double took[20];
    struct device_kernel *k;
    BUG_ON(device_has_work(d));
    TRY(device_kernel_make(d, &k, empty_spv, empty_spv_bytes, NULL, 0, err));
    for (size_t i = 0; i < ARRAY_LEN(took) + 1; i++) { /* the first one warms it up */
        uint64_t begin = clock_ns();
        device_run(d, k, NULL, 0, 1, 1, 1);
        TRY(device_finish(d, err));
        if (i > 0)
            took[i - 1] = (double)(clock_ns() - begin);
    }
    *ns = (uint64_t)median(took, ARRAY_LEN(took));
    return ST_OK;
}
#else
enum status device_try_fma(struct device *d, bool *fused, struct err *err) {
    (void)d;
    (void)err;
    *fused = false;
    return ST_OK;
}

enum status device_crossing(struct device *d, uint64_t *ns, struct err *err) {
    (void)d;
    (void)ns;
    return err_set(err, ST_UNSUPPORTED, "this build has no shaders: glslc was not there");
}
#endif
#endif
