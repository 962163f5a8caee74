/* device_reading.h: how fast a rank's device reads weights, for calibration.h. The product is the
 * one of a step (shaders_matmul), over memory that lies where the weights will. */
#ifndef LOCKSTEP_RANKS_DEVICE_READING_H
#define LOCKSTEP_RANKS_DEVICE_READING_H

#include "kernels/kernels.h"
#include "shaders/shaders.h"

struct device_reading {
    struct shaders *shaders;
    const struct wmat *w;
    const struct act *x; /* one token */
    float *y;
    void *mapped[3];
    int n_mapped;
    uint32_t n_at_once; /* products of a submission: enough that its crossing is little */
};

struct device_block {
    void *p;
    size_t bytes;
};

/* Makes the product and maps the memory of w's tiles, x and y, whole blocks of mem_huge_alloc(), in
 * this order. Fails as shaders_prepare() and device_map(); close it then, too. */
enum status device_reading_open(struct device_reading *r, struct shaders *s,
                                const struct wmat *w, const struct act *x, float *y,
                                const struct device_block blocks[3], struct err *err);
/* Seconds of one product, without the crossing. ST_PEER_LOST: the device was lost. */
enum status device_reading_time(double *seconds, const struct device_reading *r,
                                double crossing_s, struct err *err);
/* False: the device did not answer, and the blocks have to stay. */
bool device_reading_close(struct device_reading *r);

/* From a submission to its result, of a rank with this device. */
enum status device_reading_crossing(double *seconds, struct shaders *s, struct err *err);

/* What a rank may take of a device's memory: the host's memory, if that is what it has. */
uint64_t device_reading_memory(const struct device_info *info, uint64_t host_bytes);

#endif
