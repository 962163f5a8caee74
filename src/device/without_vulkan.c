/* without_vulkan.c: what device.h offers in a build without Vulkan's headers: no device. */
#include "device/device.h"

#include "base/mem.h"
#include "base/util.h"

#include <stdio.h>

#if !defined(LOCKSTEP_HAS_VULKAN)
#define WHY "this build is without Vulkan: its headers were not there"

enum status device_list(struct device_info **out, size_t *n, char *why, size_t why_size,
                        struct err *err) {
    struct device_info *none = mem_calloc(1, sizeof *none);
    if (none == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for the list of devices");
    snprintf(why, why_size, "%s", WHY);
    *out = none;
    *n = 0;
    return ST_OK;
}

enum status device_open(struct device **out, const char *name, struct err *err) {
    (void)out;
    (void)name;
    return err_set(err, ST_BAD_INPUT, WHY);
}

void device_close(struct device *d) {
    BUG_ON(d != NULL);
}

/* No caller of these has a device. */
const struct device_info *device_info(const struct device *d) {
    (void)d;
    BUG_ON(true);
    return NULL;
}

enum status device_map(struct device *d, void *host, size_t bytes, enum device_place place,
                       struct err *err) {
    (void)d;
    (void)host;
    (void)bytes;
    (void)place;
    return err_set(err, ST_BAD_INPUT, WHY);
}

bool device_unmap(struct device *d, void *host) {
    (void)d;
    (void)host;
    return true;
}

size_t device_max_map(const struct device *d) {
    (void)d;
    return 0;
}

size_t device_reach(const struct device *d, const void *host) {
    (void)d;
    (void)host;
    return 0;
}

uint64_t device_address(const struct device *d, const void *host) {
    (void)d;
    (void)host;
    BUG_ON(true);
    return 0;
}

enum status device_kernel_make(struct device *d, struct device_kernel **out,
                               const uint32_t *spirv, size_t spirv_bytes,
                               const uint32_t *constants, uint32_t n_constants,
                               struct err *err) {
    (void)d;
    (void)out;
    (void)spirv;
    (void)spirv_bytes;
    (void)constants;
    (void)n_constants;
    return err_set(err, ST_BAD_INPUT, WHY);
}

void device_run(struct device *d, const struct device_kernel *k, const void *push,
                size_t push_bytes, uint32_t x, uint32_t y, uint32_t z) {
    (void)d;
    (void)k;
    (void)push;
    (void)push_bytes;
    (void)x;
    (void)y;
    (void)z;
}

void device_run_beside(struct device *d, const struct device_kernel *k, const void *push,
                       size_t push_bytes, uint32_t x, uint32_t y, uint32_t z) {
    device_run(d, k, push, push_bytes, x, y, z);
}

bool device_has_work(const struct device *d) {
    (void)d;
    return false;
}

enum status device_finish(struct device *d, struct err *err) {
    (void)d;
    return err_set(err, ST_BAD_INPUT, WHY);
}

void device_count_bus(struct device *d, const void *host, size_t bytes) {
    (void)d;
    (void)host;
    (void)bytes;
}

struct device_counts device_counts(const struct device *d) {
    (void)d;
    return (struct device_counts){0};
}

enum status device_roofs(struct device *d, struct device_roofs *out, struct err *err) {
    (void)d;
    (void)out;
    return err_set(err, ST_BAD_INPUT, WHY);
}

enum status device_crossing(struct device *d, uint64_t *ns, struct err *err) {
    (void)d;
    (void)ns;
    return err_set(err, ST_BAD_INPUT, WHY);
}
#endif
