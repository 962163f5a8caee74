/* async_worker.c: The thread behind async_worker.h. It sleeps until its owner gives it a job. */
#include "base/async_worker.h"

#include "base/futex.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"

#include <stdatomic.h>

struct async_worker {
    pthread_t thread;
    void (*fn)(void *); /* NULL: the thread ends */
    void *arg;
    /* Counts of jobs of the async worker. The owner increments `given` (release: it publishes
     * fn, arg and their data). The thread increments `ended` (release: it publishes what the
     * job wrote). Each side waits with acquire for the other's count. */
    _Atomic uint32_t given, ended;
};

static void wait_for(_Atomic uint32_t *word, uint32_t value) {
    uint32_t seen;
    while ((seen = atomic_load_explicit(word, memory_order_acquire)) != value)
        futex_wait(word, seen, -1, false);
}

static void advance(_Atomic uint32_t *word) {
    atomic_fetch_add_explicit(word, 1, memory_order_release);
    futex_wake(word, 1, false);
}

static void *async_worker_main(void *e_) {
    struct async_worker *e = e_;
    for (uint32_t n = 1;; n++) {
        wait_for(&e->given, n);
        if (e->fn == NULL)
            return NULL;
        e->fn(e->arg);
        advance(&e->ended);
    }
}

static bool under_way(struct async_worker *e) {
    return atomic_load_explicit(&e->given, memory_order_relaxed) !=
           atomic_load_explicit(&e->ended, memory_order_relaxed);
}

void async_worker_start(struct async_worker *e, void (*fn)(void *), void *arg) {
    BUG_ON(under_way(e));
    e->fn = fn;
    e->arg = arg;
    advance(&e->given);
}

void async_worker_wait(struct async_worker *e) {
    wait_for(&e->ended, atomic_load_explicit(&e->given, memory_order_relaxed));
}

enum status async_worker_open(struct async_worker **out, struct err *err) {
    struct async_worker *e = mem_calloc(1, sizeof *e);
    if (e == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a thread");
    if (thread_start(&e->thread, async_worker_main, e) != 0) {
        mem_free(e);
        return err_set(err, ST_NO_MEMORY, "cannot start a thread: the system gave none");
    }
    *out = e;
    return ST_OK;
}

void async_worker_close(struct async_worker *e) {
    if (e == NULL)
        return;
    async_worker_start(e, NULL, NULL);
    pthread_join(e->thread, NULL);
    mem_free(e);
}
