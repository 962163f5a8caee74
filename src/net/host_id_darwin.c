/* host_id_darwin.c: the host's identity on macOS. kern.bootsessionuuid is new at each boot. Not
 * yet run. */
#include "net/host_id.h"

#include <sodium.h>
#include <sys/sysctl.h>

void host_id(uint8_t out[32]) {
    char uuid[64] = {0};
    size_t n = sizeof uuid;
    if (sysctlbyname("kern.bootsessionuuid", uuid, &n, NULL, 0) != 0)
        randombytes_buf(uuid, sizeof uuid); /* unknown: equal to no other */
    crypto_generichash(out, 32, (const uint8_t *)uuid, sizeof uuid, NULL, 0);
}
