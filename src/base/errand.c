#include "base/errand.h"

#include "base/futex.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"

#include <stdatomic.h>

struct errand {
    pthread_t thread;
    void (*fn)(void *); /* NULL: the thread ends */
    void *arg;
    /* Counts of errands. The owner adds to `given` (release: fn, arg and what they stand for), the
     * thread to `ended` (release: what the errand did); each waits for the other's (acquire). */
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

static void *errand_main(void *e_) {
    struct errand *e = e_;
    for (uint32_t n = 1;; n++) {
        wait_for(&e->given, n);
        if (e->fn == NULL)
            return NULL;
        e->fn(e->arg);
        advance(&e->ended);
    }
}

static bool under_way(struct errand *e) {
    return atomic_load_explicit(&e->given, memory_order_relaxed) !=
           atomic_load_explicit(&e->ended, memory_order_relaxed);
}

void errand_start(struct errand *e, void (*fn)(void *), void *arg) {
    BUG_ON(under_way(e));
    e->fn = fn;
    e->arg = arg;
    advance(&e->given);
}

void errand_wait(struct errand *e) {
    wait_for(&e->ended, atomic_load_explicit(&e->given, memory_order_relaxed));
}

enum status errand_open(struct errand **out, struct err *err) {
    struct errand *e = mem_calloc(1, sizeof *e);
    if (e == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a thread");
    if (thread_start(&e->thread, errand_main, e) != 0) {
        mem_free(e);
        return err_set(err, ST_NO_MEMORY, "cannot start a thread: the system gave none");
    }
    *out = e;
    return ST_OK;
}

void errand_close(struct errand *e) {
    if (e == NULL)
        return;
    errand_start(e, NULL, NULL);
    pthread_join(e->thread, NULL);
    mem_free(e);
}
