/* macOS 14.4 and later: os_sync_wait_on_address. Written for, not yet run. */
#include "base/futex.h"

#include <limits.h>
#include <os/clock.h>
#include <os/os_sync_wait_on_address.h>

void futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_us, bool shared) {
    if (timeout_us < 0)
        os_sync_wait_on_address((void *)word, expected, sizeof *word,
                                shared ? OS_SYNC_WAIT_ON_ADDRESS_SHARED
                                       : OS_SYNC_WAIT_ON_ADDRESS_NONE);
    else
        os_sync_wait_on_address_with_timeout(
            (void *)word, expected, sizeof *word,
            shared ? OS_SYNC_WAIT_ON_ADDRESS_SHARED : OS_SYNC_WAIT_ON_ADDRESS_NONE,
            OS_CLOCK_MACH_ABSOLUTE_TIME, (uint64_t)timeout_us * 1000);
}

void futex_wake(_Atomic uint32_t *word, int n, bool shared) {
    os_sync_wake_by_address_flags_t flags =
        shared ? OS_SYNC_WAKE_BY_ADDRESS_SHARED : OS_SYNC_WAKE_BY_ADDRESS_NONE;
    if (n == 1)
        os_sync_wake_by_address_any((void *)word, sizeof *word, flags);
    else
        os_sync_wake_by_address_all((void *)word, sizeof *word, flags);
}
