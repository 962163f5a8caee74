/* check.h: the checksum of each message, against wires and memory that flip bits or deliver the
 * wrong bytes. It is not cryptographic: members of the group are trusted not to forge.
 *
 * Sixteen interleaved Fletcher sums over the 32-bit words of the payload, row by row of 64
 * bytes (the last row is padded with zeros). Any flipped bit and any swap of rows changes it.
 * It costs two additions per row, which sum_codec.h's loops do in the same pass. */
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
