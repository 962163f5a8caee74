/* futex_linux.c: Sleeps until a 32-bit word changes, with Linux's futex. */
#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_us, bool shared) {
    struct timespec ts = {.tv_sec = timeout_us / 1000000,
                          .tv_nsec = (timeout_us % 1000000) * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT | (shared ? 0 : FUTEX_PRIVATE_FLAG), expected,
            timeout_us < 0 ? NULL : &ts, NULL, 0);
}

void futex_wake(_Atomic uint32_t *word, int n, bool shared) {
    syscall(SYS_futex, word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), n, NULL, NULL, 0);
}
