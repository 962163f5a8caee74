/* check.h: the check that travels with each message, against wires and memory that flip bits or
 * deliver the wrong bytes. Not a cryptographic one: who is in the group is trusted not to forge.
 *
 * Sixteen interleaved Fletcher sums over the 32-bit words of the payload, row by row of 64 bytes
 * (the last row filled up with zeros): any one flipped bit and any swap of rows changes it, and
 * it costs two additions per row, which sum_codec.h's loops do in passing. */
#ifndef LOCKSTEP_FABRIC_CHECK_H
#define LOCKSTEP_FABRIC_CHECK_H

#include <stddef.h>
#include <stdint.h>

#define CHECK_LANES 16
#define CHECK_ROW_BYTES 64

struct check {
    _Alignas(64) uint32_t sum[CHECK_LANES]; /* of the words */
    uint32_t sums[CHECK_LANES];             /* of the running sums */
};

void check_bytes(struct check *c, const void *data, size_t n_bytes);
/* The 32 bits for the header. */
uint32_t check_end(const struct check *c, size_t n_bytes);
/* Both: data may be NULL where n_bytes is 0. */
uint32_t check_of(const void *data, size_t n_bytes);

#endif
