/* device_reading.c: Times the product of a step on a rank's device. */
#include "ranks/device_reading.h"

#include "base/clock.h"
#include "base/util.h"

#define PAGE 4096
#define AT_ONCE_MOST 16
#define SUBMISSION_S 0.005 /* of a product that is slower, one at a time */

static enum status map(struct device_reading *r, const struct device_block *b,
                       enum device_place place, struct err *err) {
    TRY(device_map(shaders_device(r->shaders), b->p, round_up(b->bytes, PAGE), place, err));
    r->mapped[r->n_mapped++] = b->p;
    return ST_OK;
}

/* Of so many products in one submission. */
static enum status time_all(double *seconds, const struct device_reading *r, uint32_t n,
                            struct err *err) {
    double began = clock_s();
    for (uint32_t i = 0; i < n; i++)
        shaders_matmul(r->shaders, r->w, r->x, r->y, r->w->n_rows, i > 0);
    TRY(device_finish(shaders_device(r->shaders), err));
    *seconds = clock_s() - began;
    return ST_OK;
}

enum status device_reading_open(struct device_reading *r, struct shaders *s,
                                const struct wmat *w, const struct act *x, float *y,
                                const struct device_block blocks[3], struct err *err) {
    double seconds;
    *r = (struct device_reading){.shaders = s, .w = w, .x = x, .y = y, .n_at_once = 1};
    TRY(shaders_prepare(s, w->type, err));
    TRY(map(r, &blocks[0], DEVICE_COPY, err));
    for (int i = 1; i < 3; i++)
        TRY(map(r, &blocks[i], DEVICE_SHARED, err));
    TRY(time_all(&seconds, r, 1, err)); /* not counted: its memory becomes its own */
    TRY(time_all(&seconds, r, 1, err));
    r->n_at_once =
        (uint32_t)MIN(MAX(SUBMISSION_S / MAX(seconds, 1e-9), 1), (double)AT_ONCE_MOST);
    return ST_OK;
}

enum status device_reading_time(double *seconds, const struct device_reading *r,
                                double crossing_s, struct err *err) {
    double all;
    TRY(time_all(&all, r, r->n_at_once, err));
    /* A crossing is not more of it than that, however noisy its own measurement was. */
    *seconds = MAX(all - crossing_s, all / 2) / r->n_at_once;
    return ST_OK;
}

bool device_reading_close(struct device_reading *r) {
    bool all = true;
    for (int i = 0; i < r->n_mapped; i++)
        all &= device_unmap(shaders_device(r->shaders), r->mapped[i]);
    r->n_mapped = 0;
    return all;
}

enum status device_reading_crossing(double *seconds, struct shaders *s, struct err *err) {
    uint64_t ns;
    TRY(device_crossing(shaders_device(s), &ns, err));
    *seconds = (double)ns * 1e-9;
    return ST_OK;
}

uint64_t device_reading_memory(const struct device_info *info, uint64_t host_bytes) {
    const uint64_t own = info->memory_bytes - info->memory_bytes / 16;
    return info->unified ? MIN(own, host_bytes) : own;
}
