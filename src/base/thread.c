/* thread.c: Starts the library's own threads: signals blocked, a stack of at least 1 MiB, and
 * the default floating-point environment. */
#include "base/thread.h"

#include "base/float_env.h"

#include <signal.h>

/* The default is 128 KiB with musl, and what ulimit -s says with glibc. */
#define STACK_BYTES_LEAST ((size_t)1 << 20)

struct call {
    void (*fn)(void *);
    void *arg;
    sigset_t signals; /* blocked, of the thread that calls */
};

static void *call_main(void *call_) {
    const struct call *call = call_;
    pthread_sigmask(SIG_SETMASK, &call->signals, NULL);
    call->fn(call->arg);
    return NULL;
}

void thread_call(size_t stack_bytes, void (*fn)(void *), void *arg) {
    struct call call = {.fn = fn, .arg = arg};
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all;
    bool done = false;
    if (thread_stack_left() < stack_bytes && pthread_attr_init(&attr) == 0) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &call.signals);
        /* The C library has a thread's own variables there too, which in TSan's are 700 KiB. */
        done = pthread_attr_setstacksize(&attr, stack_bytes + STACK_BYTES_LEAST) == 0 &&
               pthread_create(&thread, &attr, call_main, &call) == 0;
        if (done)
            pthread_join(thread, NULL);
        pthread_sigmask(SIG_SETMASK, &call.signals, NULL);
        pthread_attr_destroy(&attr);
    }
    if (!done)
        fn(arg);
}

int thread_start(pthread_t *out, void *(*fn)(void *), void *arg) {
    sigset_t all, before;
    struct float_env callers;
    pthread_attr_t attr;
    size_t bytes = 0;
    int rc = pthread_attr_init(&attr);
    if (rc != 0)
        return rc;
    if (pthread_attr_getstacksize(&attr, &bytes) == 0 && bytes < STACK_BYTES_LEAST)
        pthread_attr_setstacksize(&attr, STACK_BYTES_LEAST);
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of its own memory: base/file_map.h */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    float_env_begin(&callers);
    rc = pthread_create(out, &attr, fn, arg);
    float_env_end(&callers);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}
