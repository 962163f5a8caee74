/* sum_codec.h: fixed-point numbers on the wire.
 *
 * Narrow: n int32. Wide: a bitmap with one bit per block of 64 elements (in 64-bit words), then
 * the blocks in order, int64 if the bit is set, int32 otherwise. Pure functions. Payloads are
 * 8-byte aligned, and hostile until checked. Each pass also computes the payload's check. */
#ifndef LOCKSTEP_FABRIC_SUM_CODEC_H
#define LOCKSTEP_FABRIC_SUM_CODEC_H

#include "fabric/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACK_BLOCK 64
/* Elements of one message. */
#define PACK_CHUNK 4096

/* Returns the bytes written; *narrow says which form, *check is the payload's. */
size_t pack(void *out, const int64_t *x, size_t n, bool *narrow, uint32_t *check);

/* x[i] += the unpacked value (add), or x[i] = it (copy). False: n_bytes does not match the form
 * of n elements. *check is computed from the bytes that were used. */
bool unpack_add(int64_t *x, size_t n, const void *in, size_t n_bytes, bool narrow,
                uint32_t *check);
bool unpack_copy(int64_t *x, size_t n, const void *in, size_t n_bytes, bool narrow,
                 uint32_t *check);

/* ---- the inner loops, one table per instruction set; rows of 16 elements ----------------- */

struct pack_loops {
    /* out = the low halves of x; the result is 0 if every element fitted. */
    uint64_t (*narrow)(int32_t *out, const int64_t *x, size_t n_rows, struct check *c);
    void (*add)(int64_t *x, const int32_t *in, size_t n_rows, struct check *c);
    void (*copy)(int64_t *x, const int32_t *in, size_t n_rows, struct check *c);
    void (*check)(struct check *c, const void *data, size_t n_rows);
};
extern const struct pack_loops pack_loops_plain, pack_loops_avx2, pack_loops_avx512;
/* The fastest that this machine can run. */
const struct pack_loops *pack_loops_select(void);

#endif
