/* source.h: reads bytes of a model's files that lie on another machine. */
#ifndef LOCKSTEP_FORMAT_SOURCE_H
#define LOCKSTEP_FORMAT_SOURCE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct file_source {
    /* Reads `count` pieces of n bytes each from the model's file number `part`. The first is at
     * offset `at`, the others follow every `stride` bytes. They go to out, out_stride apart.
     * Many threads call it at once. */
    enum status (*read)(void *user, uint32_t part, uint64_t at, size_t n, uint64_t stride,
                        size_t count, uint8_t *out, size_t out_stride, struct err *err);
    void *user;
};

#endif
