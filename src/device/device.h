/* device.h: accelerators behind Vulkan: what is there, memory that host and device share, commands
 * that are recorded and run. Nothing of language models; no numbers.
 *
 * The Vulkan library is loaded at run time. Where it is missing, device_list() finds nothing and
 * says why, and the program is as it is without this file.
 *
 * One thread uses an open device at a time. */
#ifndef LOCKSTEP_DEVICE_DEVICE_H
#define LOCKSTEP_DEVICE_DEVICE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum device_kind { DEVICE_DISCRETE, DEVICE_INTEGRATED, DEVICE_SOFTWARE, DEVICE_OTHER };

/* What shaders use where a device has it. Each has a fall-back that needs none of it. */
enum device_feature {
    DEVICE_FMA,     /* GLSL's fma() is fused: found by a trial when the device is opened */
    DEVICE_FMA_KHR, /* VK_KHR_shader_fma */
    DEVICE_F64,
    DEVICE_INT64,
    DEVICE_DOT,    /* packed int8 dot products */
    DEVICE_MATRIX, /* matrix units that multiply int8 */
    DEVICE_N_FEATURES
};
/* "fma", "fma-khr", "f64", "int64", "dot", "matrix": also the names in LOCKSTEP_DEVICE_WITHOUT, a
 * list with commas of features that are taken as missing. "unified" in it: memory is copied
 * everywhere. */
const char *device_feature_name(enum device_feature f);

/* How shaders reach matrix units (matrix_unit.glsl). */
enum device_matrix {
    DEVICE_MATRIX_NONE,
    DEVICE_MATRIX_KHR,      /* VK_KHR_cooperative_matrix */
    DEVICE_MATRIX_NV,       /* VK_NV_cooperative_matrix */
    DEVICE_MATRIX_EMULATED, /* there are none: for tests */
    DEVICE_N_MATRIX
};

struct device_info {
    char name[256], driver[256]; /* as the driver says; the driver's name and version */
    enum device_kind kind;
    bool features[DEVICE_N_FEATURES];
    enum device_matrix matrix; /* not NONE: features[DEVICE_MATRIX] */
    uint32_t matrix_columns;   /* of two matrices of 16 rows that are multiplied: 16 or 32 */
    uint32_t matrix_lanes;     /* that do it together: 16, 32 or 64 */
    uint64_t memory_bytes;     /* of the largest heap that is the device's own */
    bool unified;              /* that heap is the host's memory */
    uint32_t subgroup;         /* lanes */
    uint32_t api_version;      /* major * 1000 + minor */
    char lacks[128]; /* what a device must have and this one has not; "": it can be opened */
};
const char *
device_kind_name(enum device_kind k); /* "discrete", "integrated", "software", "other" */

/* Of the environment, for tests (settings.c): LOCKSTEP_DEVICE_LOST_AFTER=N, the N-th submission to
 * an open device ends as if the device were lost. LOCKSTEP_DEVICE_PROFILE=apple: the device lacks
 * what those lack, and flushes subnormals where it computes on the processor.
 * LOCKSTEP_DEVICE_PIECE=N: device_max_map() is no more than N pages of 4096 bytes.
 * LOCKSTEP_DEVICE_MATRIX=16 or 32: the device has matrix units of so many columns, which shaders
 * emulate.
 * LOCKSTEP_DEVICE_FAULT: */
enum device_fault_kind {
    DEVICE_FAULT_NONE,
    DEVICE_FAULT_FMA,      /* "fma": a kernel's FMAs round twice; "fma:NAME": of one alone */
    DEVICE_FAULT_DIVISION, /* "division", likewise: a * (1 / b) */
    DEVICE_FAULT_FLUSH,    /* "flush": as the profile */
    DEVICE_FAULT_MEMORY, /* "memory:N": of the process's blocks of memory, the N-th is refused */
    DEVICE_FAULT_OPEN,   /* "open:N": so is the N-th opening */
    DEVICE_FAULT_HANG,   /* "hang:N": the N-th submission to an open device is not answered */
};
struct device_fault {
    enum device_fault_kind kind;
    unsigned long n;
    char kernel[32]; /* "": all */
};

/* All devices, in the driver's order; free with mem_free(). No Vulkan, or no device: *n = 0 and
 * `why` (of why_size bytes) has a sentence. */
enum status device_list(struct device_info **out, size_t *n, char *why, size_t why_size,
                        struct err *err);

struct device;

/* The device whose name contains `name`, whatever the case ("0", "1"...: by its number in the
 * list); "auto": the first that is hardware. ST_BAD_INPUT: there is none, or it lacks something;
 * the sentence lists what is there. */
enum status device_open(struct device **out, const char *name, struct err *err);
void device_close(struct device *d);
const struct device_info *device_info(const struct device *d);
const struct device_fault *device_fault(const struct device *d);

/* ---- memory ------------------------------------------------------------------------------ */

enum device_place {
    DEVICE_SHARED, /* host memory that the device reads and writes where it is */
    DEVICE_COPY, /* device memory; what the host has is copied there, and then of no meaning */
    DEVICE_MIRROR, /* device memory, a copy of what the host has; neither writes to it */
};

/* From now on the device knows the bytes at `host`, a multiple of 4096 long and aligned to that,
 * until device_unmap() or device_close(). (Of a device that did not answer it may go on to use them
 * until it does.) Where memory is unified, all are DEVICE_SHARED.
 * ST_NO_MEMORY, ST_BAD_INPUT (more than the device takes at once; device_max_map()). */
enum status device_map(struct device *d, void *host, size_t bytes, enum device_place place,
                       struct err *err);
/* False: the device did not answer and may still use the bytes. They must stay until the process
 * ends. */
bool device_unmap(struct device *d, void *host);
size_t device_max_map(const struct device *d);
/* Bytes from `host` to the end of the range that it is in: a shader that has its address reads so
 * far. */
size_t device_reach(const struct device *d, const void *host);

/* Where shaders find what is at `host`, anywhere within a mapped range; BUG_ON that it is in
 * none. */
uint64_t device_address(const struct device *d, const void *host);

/* ---- commands ---------------------------------------------------------------------------- */

/* A compute shader with its specialization constants 0..n - 1. All parameters are push constants,
 * at most 128 bytes: addresses (buffer_reference) and numbers. Owned by the device.
 *
 * Mesa's llvmpipe ends the loops of an invocation after 65535 rounds, all its loops together. */
struct device_kernel;
enum status device_kernel_make(struct device *d, struct device_kernel **out,
                               const uint32_t *spirv, size_t spirv_bytes,
                               const uint32_t *constants, uint32_t n_constants,
                               struct err *err);

/* Records a run of x * y * z workgroups, after all that was recorded before it. Errors are told by
 * device_finish(). 0 of them: nothing is recorded.
 *
 * x, y and z are at most DEVICE_GROUPS_MAX. Where y is 1, x may be more: then it is folded, so that
 * the shader's number is gl_WorkGroupID.x + gl_WorkGroupID.y * 65535, and the last few workgroups
 * may be past its end. */
#define DEVICE_GROUPS_MAX 65535
void device_run(struct device *d, const struct device_kernel *k, const void *push,
                size_t push_bytes, uint32_t x, uint32_t y, uint32_t z);
/* The same, but it needs nothing of what the run before it wrote, nor that one what this reads. */
void device_run_beside(struct device *d, const struct device_kernel *k, const void *push,
                       size_t push_bytes, uint32_t x, uint32_t y, uint32_t z);
/* Whether something is recorded and has not run. */
bool device_has_work(const struct device *d);

/* Runs what was recorded and waits for it; then the host sees what was written. Nothing recorded:
 * ST_OK at once. ST_PEER_LOST: the device was lost or did not answer within
 * LOCKSTEP_DEVICE_TIMEOUT seconds (10; of a software device 120); it stays so. */
enum status device_finish(struct device *d, struct err *err);

/* That a run reads or writes so many bytes at `host`: counted if they cross a bus, since a device
 * with memory of its own reaches there for the host's. */
void device_count_bus(struct device *d, const void *host, size_t bytes);

struct device_counts { /* since it was opened */
    uint64_t submissions, runs, bus_bytes, wait_ns;
    uint64_t recorded; /* submissions whose commands had not been recorded before */
};
struct device_counts device_counts(const struct device *d);

/* The time from a submission to its result on the host: an empty run, the median of 20. Nothing may
 * be recorded. ST_UNSUPPORTED: this build has no shaders. */
enum status device_crossing(struct device *d, uint64_t *ns, struct err *err);

/* The most that the device could do: it reads its memory, a large block, and does nothing else; it
 * multiplies on registers, int8 as the products of weights do (packed, where it has that), and f32;
 * and int8 by matrix units, where there are any.
 * An operation is half a multiply-add. Takes a tenth of a second or two, and 256 MiB for that time.
 * Nothing may be recorded; it does not count. ST_NO_MEMORY, ST_UNSUPPORTED, ST_PEER_LOST. */
struct device_roofs {
    double read_gbs;            /* GB/s */
    double int8_gops, f32_gops; /* 10^9 operations/s */
    double matrix_gops;         /* 0: there are no matrix units */
};
enum status device_roofs(struct device *d, struct device_roofs *out, struct err *err);

#endif
