/* amx_permission_linux.c: Asks Linux for permission to use AMX's tile registers. */
#include "base/amx_permission.h"

#if defined(__x86_64__)
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of the kernel's asm/prctl.h and fpu/types.h, which older headers lack. */
#define REQUEST_PERMISSION 0x1023
#define TILE_DATA 18

/* Threads that come first together ask the same twice, which is the same as once. */
bool amx_permitted(void) {
    enum { UNKNOWN, YES, NO };
    static atomic_int known; /* relaxed: nothing else is told by it */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        answer = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 ? YES : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == YES;
}
#else
bool amx_permitted(void) {
    return false;
}
#endif
