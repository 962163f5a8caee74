/* futex_darwin.c: futex.h on macOS: os_sync_wait_on_address() and its relatives from 14.4 on,
 * and __ulock_wait() before that.
 *
 * The newer functions are looked up by name at run time. So one program serves both systems and
 * builds with either SDK. Apple's own C++ library waits with the older functions; no header
 * declares them. Prototypes and constants are from the SDK of 14.4 and the kernel's published
 * source (XNU, ulock). Compiled and linked, not yet run. */
#include "base/futex.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

enum { SYNC_SHARED = 1, CLOCK_MACH_ABSOLUTE = 32 };
enum {
    ULOCK_WAIT = 1,
    ULOCK_WAIT_SHARED = 3,
    ULOCK_WAKE_ALL = 0x100,
    ULOCK_NO_ERRNO = 0x1000000
};

extern int __ulock_wait(uint32_t operation, void *address, uint64_t value, uint32_t timeout_us);
extern int __ulock_wake(uint32_t operation, void *address, uint64_t value);

/* All four, or none. */
static struct {
    int (*wait)(void *address, uint64_t value, size_t size, uint32_t flags);
    int (*wait_with_timeout)(void *address, uint64_t value, size_t size, uint32_t flags,
                             uint32_t clock, uint64_t timeout_ns);
    int (*wake_any)(void *address, size_t size, uint32_t flags);
    int (*wake_all)(void *address, size_t size, uint32_t flags);
} os_sync;
static bool has_os_sync;
static pthread_once_t looked_up = PTHREAD_ONCE_INIT;

/* Into function pointers, in the way that POSIX demands. */
static bool look_up(const char *name, void *function) {
    void *found = dlsym(RTLD_DEFAULT, name);
    *(void **)function = found;
    return found != NULL;
}

static void look_up_all(void) {
    has_os_sync = look_up("os_sync_wait_on_address", &os_sync.wait) &&
                  look_up("os_sync_wait_on_address_with_timeout", &os_sync.wait_with_timeout) &&
                  look_up("os_sync_wake_by_address_any", &os_sync.wake_any) &&
                  look_up("os_sync_wake_by_address_all", &os_sync.wake_all);
}

/* A wait without limit is 0 to the kernel. A longer one than it can count ends early: the caller
 * looks again. */
static uint32_t ulock_timeout(int64_t timeout_us) {
    if (timeout_us < 0)
        return 0;
    return timeout_us < UINT32_MAX ? (uint32_t)timeout_us : UINT32_MAX;
}

static uint32_t ulock_operation(bool shared) {
    return (shared ? ULOCK_WAIT_SHARED : ULOCK_WAIT) | ULOCK_NO_ERRNO;
}

void futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_us, bool shared) {
    pthread_once(&looked_up, look_up_all);
    void *address = (void *)word;
    if (timeout_us == 0)
        return;
    if (!has_os_sync)
        (void)__ulock_wait(ulock_operation(shared), address, expected,
                           ulock_timeout(timeout_us));
    else if (timeout_us < 0)
        (void)os_sync.wait(address, expected, sizeof *word, shared ? SYNC_SHARED : 0);
    else
        (void)os_sync.wait_with_timeout(address, expected, sizeof *word,
                                        shared ? SYNC_SHARED : 0, CLOCK_MACH_ABSOLUTE,
                                        (uint64_t)timeout_us * 1000);
}

void futex_wake(_Atomic uint32_t *word, int n, bool shared) {
    pthread_once(&looked_up, look_up_all);
    void *address = (void *)word;
    if (!has_os_sync)
        (void)__ulock_wake(ulock_operation(shared) | (n == 1 ? 0 : ULOCK_WAKE_ALL), address, 0);
    else if (n == 1)
        (void)os_sync.wake_any(address, sizeof *word, shared ? SYNC_SHARED : 0);
    else
        (void)os_sync.wake_all(address, sizeof *word, shared ? SYNC_SHARED : 0);
}
