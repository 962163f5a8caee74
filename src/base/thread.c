#include "base/thread.h"

#include <signal.h>

/* Products keep up to 140 KiB on the stack; the default is 128 KiB with musl, and what ulimit
 * -s says with glibc. */
#define STACK_BYTES_LEAST ((size_t)1 << 20)

int thread_start(pthread_t *out, void *(*fn)(void *), void *arg) {
    sigset_t all, before;
    pthread_attr_t attr;
    size_t bytes = 0;
    int rc = pthread_attr_init(&attr);
    if (rc != 0)
        return rc;
    if (pthread_attr_getstacksize(&attr, &bytes) == 0 && bytes < STACK_BYTES_LEAST)
        pthread_attr_setstacksize(&attr, STACK_BYTES_LEAST);
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of its own memory: format/map.h */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(out, &attr, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}
