/* check.c: The check of a message, in portable code. */
#include "fabric/check.h"

#include "fabric/sum_codec.h"

#include <string.h>

void check_bytes(struct check *c, const void *data, size_t n_bytes) {
    size_t n_rows = n_bytes / CHECK_ROW_BYTES, rest = n_bytes % CHECK_ROW_BYTES;
    const struct pack_loops *loops = pack_loops_select();
    loops->check(c, data, n_rows);
    if (rest != 0) {
        uint8_t row[CHECK_ROW_BYTES] = {0};
        memcpy(row, (const uint8_t *)data + n_rows * CHECK_ROW_BYTES, rest);
        loops->check(c, row, 1);
    }
}

/* Odd weights: no single lane's change can vanish. The multiplication after it spreads what
 * is left over all bits. */
uint32_t check_end(const struct check *c, size_t n_bytes) {
    uint32_t low = 0, high = 0;
    for (uint32_t k = 0; k < CHECK_LANES; k++) {
        low += c->sum[k] * (2 * k + 1);
        high += c->sums[k] * (2 * k + 0x9e3779b1u);
    }
    uint64_t h = ((uint64_t)high << 32 | low) + n_bytes * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    return (uint32_t)(h >> 32) ^ (uint32_t)h;
}

uint32_t check_of(const void *data, size_t n_bytes) {
    struct check c = {0};
    if (n_bytes != 0)
        check_bytes(&c, data, n_bytes);
    return check_end(&c, n_bytes);
}
