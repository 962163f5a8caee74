/* roof.c: the most that a device could do: how fast it reads its memory, and how fast it
 * multiplies. */
#include "base/util.h"

#if defined(LOCKSTEP_HAS_VULKAN)
#include "device/device_internal.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/mem.h"

#if defined(LOCKSTEP_HAS_SHADERS)
extern const uint32_t roof_read_spv[], roof_peak_spv[], roof_peak_dot_spv[];
extern const size_t roof_read_spv_bytes, roof_peak_spv_bytes, roof_peak_dot_spv_bytes;

#define EXTERN(name)                            \
    extern const uint32_t roof_matrix_##name[]; \
    extern const size_t roof_matrix_##name##_bytes;
EXTERN(khr_spv)
EXTERN(nv_spv)
EXTERN(emulated_spv)
static const struct {
    const uint32_t *words;
    const size_t *bytes;
} matrix_codes[DEVICE_N_MATRIX] = {
#if defined(LOCKSTEP_HAS_MATRIX_KHR)
    [DEVICE_MATRIX_KHR] = {roof_matrix_khr_spv, &roof_matrix_khr_spv_bytes},
#endif
#if defined(LOCKSTEP_HAS_MATRIX_NV)
    [DEVICE_MATRIX_NV] = {roof_matrix_nv_spv, &roof_matrix_nv_spv_bytes},
#endif
    [DEVICE_MATRIX_EMULATED] = {roof_matrix_emulated_spv, &roof_matrix_emulated_spv_bytes},
};

#define READ_GROUP 65536u /* bytes that a workgroup reads: roof_read.comp */
#define LEAST_NS 10000000 /* the way there and back is then less than a hundredth */
#define MOST_RUNS 4096
#define PEAK_LANES 256       /* of a workgroup */
#define PEAK_OPS (256.0 * 8) /* of a workgroup and round: lanes, chains */
#define MATRIX_CHAINS 4      /* of each subgroup */

/* Larger than a cache, and what a software device reads in a few ms. */
static size_t read_bytes(const struct device *d) {
    return d->physical.info.kind == DEVICE_SOFTWARE ? (size_t)16 << 20 : (size_t)256 << 20;
}

/* What is run again and again. */
struct work {
    const struct device_kernel *k;
    const void *push;
    size_t push_bytes;
    uint32_t groups;
};

static enum status time_runs(struct device *d, const struct work *w, uint32_t n, double *ns,
                             struct err *err) {
    uint64_t begin = clock_ns();
    for (uint32_t i = 0; i < n; i++)
        device_run_beside(d, w->k, w->push, w->push_bytes, w->groups, 1, 1);
    TRY(device_finish(d, err));
    *ns = (double)(clock_ns() - begin);
    return ST_OK;
}

/* The time of one run, of as many as take long enough: the median of three. */
static enum status time_one(struct device *d, const struct work *w, double *ns,
                            struct err *err) {
    double took[3];
    uint32_t n = 1;
    TRY(time_runs(d, w, n, &took[0], err)); /* it warms up */
    for (;; n *= 2) {
        TRY(time_runs(d, w, n, &took[0], err));
        if (took[0] >= LEAST_NS || n >= MOST_RUNS)
            break;
    }
    for (size_t i = 1; i < ARRAY_LEN(took); i++)
        TRY(time_runs(d, w, n, &took[i], err));
    *ns = median(took, ARRAY_LEN(took)) / n;
    return ST_OK;
}

static enum status measure_read(struct device *d, void *block, struct device_roofs *out,
                                struct err *err) {
    struct device_kernel *k;
    double ns;
    const uint64_t at = device_address(d, block), push[2] = {at, at};
    TRY(device_kernel_make(d, &k, roof_read_spv, roof_read_spv_bytes, NULL, 0, err));
    const struct work w = {k, push, sizeof push, (uint32_t)(read_bytes(d) / READ_GROUP)};
    TRY(time_one(d, &w, &ns, err));
    out->read_gbs = (double)read_bytes(d) / ns;
    return ST_OK;
}

/* per_chain: operations of a step of a chain. */
static enum status measure_peak(struct device *d, void *block, uint32_t floats,
                                double per_chain, double *gops, struct err *err) {
    struct device_kernel *k;
    double ns;
    const bool dot = d->physical.info.features[DEVICE_DOT],
               software = d->physical.info.kind == DEVICE_SOFTWARE;
    const struct {
        uint64_t to;
        uint32_t n_rounds;
        int32_t word;
    } push = {device_address(d, block), software ? 64 : 256, 0x01020304};
    TRY(device_kernel_make(d, &k, dot ? roof_peak_dot_spv : roof_peak_spv,
                           dot ? roof_peak_dot_spv_bytes : roof_peak_spv_bytes, &floats, 1,
                           err));
    const struct work w = {k, &push, sizeof push, software ? 64 : 4096};
    TRY(time_one(d, &w, &ns, err));
    *gops = PEAK_OPS * per_chain * w.groups * push.n_rounds / ns;
    return ST_OK;
}

/* A driver that does not take the shader: no rate. */
static enum status measure_matrix(struct device *d, void *block, double *gops,
                                  struct err *err) {
    const struct device_info *info = &d->physical.info;
    const uint32_t constants[18] = {[16] = info->matrix_columns, [17] = info->matrix_lanes};
    const bool software = info->kind == DEVICE_SOFTWARE;
    struct device_kernel *k;
    double ns;
    const struct {
        uint64_t to;
        uint32_t n_rounds;
        int32_t word;
    } push = {device_address(d, block), software ? 4 : 1024, 0x01020304};
    *gops = 0;
    if (!info->features[DEVICE_MATRIX])
        return ST_OK;
    if (device_kernel_make(d, &k, matrix_codes[info->matrix].words,
                           *matrix_codes[info->matrix].bytes, constants, ARRAY_LEN(constants),
                           NULL) != ST_OK)
        return d->lost ? device_is_lost(d, err) : ST_OK;
    const struct work w = {k, &push, sizeof push, software ? 8 : 4096};
    TRY(time_one(d, &w, &ns, err));
    *gops = 2.0 * 16 * 16 * info->matrix_columns * MATRIX_CHAINS *
            (PEAK_LANES / info->matrix_lanes) * w.groups * push.n_rounds / ns;
    return ST_OK;
}

enum status device_roofs(struct device *d, struct device_roofs *out, struct err *err) {
    const size_t bytes = read_bytes(d);
    const struct device_counts counts = d->counts;
    void *block = mem_huge_alloc(bytes);
    BUG_ON(device_has_work(d));
    if (block == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a block that a device reads");
    memset(block, 0, bytes);
    enum status st = device_map(d, block, bytes, DEVICE_COPY, err);
    if (st != ST_OK) {
        mem_huge_free(block, bytes);
        return st;
    }
    st = measure_read(d, block, out, err);
    if (st == ST_OK)
        st = measure_peak(d, block, 0, 8, &out->int8_gops, err);
    if (st == ST_OK)
        st = measure_peak(d, block, 1, 2, &out->f32_gops, err);
    if (st == ST_OK)
        st = measure_matrix(d, block, &out->matrix_gops, err);
    if (device_unmap(d, block))
        mem_huge_free(block, bytes);
    d->counts = counts; /* of what others ask for */
    return st;
}
#else
enum status device_roofs(struct device *d, struct device_roofs *out, struct err *err) {
    (void)d;
    (void)out;
    return err_set(err, ST_UNSUPPORTED, "this build has no shaders: glslc was not there");
}
#endif
#endif
