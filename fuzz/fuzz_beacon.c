/* What any machine on the network may send, and what one with the cluster's key may: the same
 * bytes as they are, and signed. What is read is printable, and written again gives the same
 * bytes. */
#include "base/util.h"
#include "cluster/beacon.h"

#include <sodium.h>
#include <stdlib.h>

static const uint8_t key[BEACON_KEY_BYTES] = {1};

static void read_bytes(const uint8_t *data, size_t n) {
    struct beacon b;
    struct err err;
    uint8_t again[BEACON_BYTES_MAX];
    uint8_t *bytes = malloc(n ? n : 1); /* its own block: one byte too far is seen */
    memcpy(bytes, data, n);
    if (beacon_read(&b, bytes, n, key, &err) == ST_OK) {
        if (beacon_check(&b, &err) != ST_OK || beacon_write(again, &b, key) != n ||
            memcmp(again, bytes, n) != 0)
            abort();
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    uint8_t body[2 * BEACON_BYTES_MAX];
    if (sodium_init() < 0)
        return 0;
    read_bytes(data, n);
    n = MIN(n, sizeof body - crypto_auth_BYTES);
    memcpy(body, data, n);
    crypto_auth(body + n, body, n, key);
    read_bytes(body, n + crypto_auth_BYTES);
    return 0;
}
