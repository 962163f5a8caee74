#include "base/pool.h"

#include "base/clock.h"
#include "base/core.h"
#include "base/futex.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"

#include <stdatomic.h>
#include <stdlib.h>

/* How long a waiting thread spins, and how long after that it polls and offers its core (base/core.h), before it
 * sleeps. A phase of a decode step is 20 to 300 us, a futex wake 5 to 100 us. */
#define SPIN_NS 20000
#define POLL_NS 500000

struct pool {
    int n_threads;
    pthread_t *handles; /* [n_threads - 1] */
    void (*fn)(void *, struct pool *, int);
    void *arg;
    bool stop;

    /* Arrivals of the running barrier; the last one resets it. acq_rel: carries the data of
     * all arrivals to the last, which publishes them through `generation`. */
    _Alignas(CACHE_LINE) _Atomic uint32_t arrived;
    /* Bumped (release) by the last arrival; the others wait for it (acquire). */
    _Alignas(CACHE_LINE) _Atomic uint32_t generation;
    _Atomic uint32_t sleepers; /* threads that may be in futex_wait on generation */
    /* Next unclaimed item; relaxed: barriers order the data. */
    _Alignas(CACHE_LINE) _Atomic size_t claimed;
};

struct thread_start {
    struct pool *pool;
    int index;
};

void pool_barrier(struct pool *pool) {
    if (pool->n_threads == 1) {
        atomic_store_explicit(&pool->claimed, 0, memory_order_relaxed);
        return;
    }
    uint32_t gen = atomic_load_explicit(&pool->generation, memory_order_acquire);
    uint32_t before = atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel);
    if (before + 1 == (uint32_t)pool->n_threads) {
        atomic_store_explicit(&pool->claimed, 0, memory_order_relaxed);
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        /* seq_cst pairs with the sleeper's: either it sees the new generation or we see it. */
        atomic_fetch_add_explicit(&pool->generation, 1, memory_order_seq_cst);
        if (atomic_load_explicit(&pool->sleepers, memory_order_seq_cst) != 0)
            futex_wake(&pool->generation, INT32_MAX, false);
        return;
    }
    static _Thread_local struct core core;
    uint64_t spin_end = 0;
    for (unsigned i = 0;; i++) {
        if (atomic_load_explicit(&pool->generation, memory_order_acquire) != gen)
            return;
        cpu_relax();
        if (i % 64 != 63)
            continue;
        uint64_t now = clock_ns();
        if (spin_end == 0)
            spin_end = now + SPIN_NS;
        if (now < spin_end)
            continue;
        if (core_is_shared(&core, now) || now > spin_end + POLL_NS)
            break;
        core_offer(&core, now);
    }
    atomic_fetch_add_explicit(&pool->sleepers, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&pool->generation, memory_order_seq_cst) == gen)
        futex_wait(&pool->generation, gen, -1, false);
    atomic_fetch_sub_explicit(&pool->sleepers, 1, memory_order_relaxed);
}

bool pool_claim(struct pool *pool, size_t n, size_t min_items, size_t *begin, size_t *end) {
    size_t at = atomic_load_explicit(&pool->claimed, memory_order_relaxed);
    for (;;) {
        if (at >= n)
            return false;
        /* Half of an equal share of the rest: few claims, and a short tail. */
        size_t take = (n - at) / (2 * (size_t)pool->n_threads);
        take = pool->n_threads == 1 ? n - at : MAX(take, min_items);
        take = MIN(take, n - at);
        if (atomic_compare_exchange_weak_explicit(&pool->claimed, &at, at + take,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            *begin = at;
            *end = at + take;
            return true;
        }
    }
}

static void *thread_main(void *start_) {
    struct thread_start start = *(struct thread_start *)start_;
    mem_free(start_);
    struct pool *pool = start.pool;
    while (atomic_load_explicit(&pool->generation, memory_order_acquire) == 0)
        futex_wait(&pool->generation, 0, -1, false);
    for (;;) {
        pool_barrier(pool); /* a run begins (or stop) */
        if (pool->stop)
            return NULL;
        pool->fn(pool->arg, pool, start.index);
        pool_barrier(pool); /* the run ends */
    }
}

void pool_run(struct pool *pool, void (*fn)(void *, struct pool *, int), void *arg) {
    pool->fn = fn;
    pool->arg = arg;
    pool_barrier(pool);
    fn(arg, pool, 0);
    pool_barrier(pool);
}

int pool_n_threads(const struct pool *pool) {
    return pool->n_threads;
}

enum status pool_open(struct pool **out, int n_threads, struct err *err) {
    if (n_threads < 1 || n_threads > POOL_MAX_THREADS)
        return err_set(err, ST_BAD_INPUT, "%d threads: expected 1 to %d", n_threads,
                       POOL_MAX_THREADS);
    struct pool *pool = aligned_alloc(CACHE_LINE, round_up(sizeof *pool, CACHE_LINE));
    if (pool == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a thread pool");
    memset(pool, 0, sizeof *pool);
    pool->n_threads = 1;
    pool->handles = mem_calloc((size_t)n_threads, sizeof *pool->handles);

    /* The threads wait at the gate (generation 0) until their final number is known. */
    int created = 0;
    for (; pool->handles != NULL && created < n_threads - 1; created++) {
        struct thread_start *start = mem_alloc(sizeof *start);
        if (start == NULL)
            break;
        *start = (struct thread_start){.pool = pool, .index = created + 1};
        if (thread_start(&pool->handles[created], thread_main, start) != 0) {
            mem_free(start);
            break;
        }
    }
    pool->n_threads = created + 1;
    atomic_store_explicit(&pool->generation, 1, memory_order_release);
    futex_wake(&pool->generation, INT32_MAX, false);
    if (created < n_threads - 1) {
        pool_close(pool);
        return err_set(err, ST_NO_MEMORY, "cannot start %d threads: the system gave %d",
                       n_threads, created + 1);
    }
    *out = pool;
    return ST_OK;
}

void pool_close(struct pool *pool) {
    if (pool == NULL)
        return;
    pool->stop = true;
    pool_barrier(pool);
    for (int i = 0; i < pool->n_threads - 1; i++)
        pthread_join(pool->handles[i], NULL);
    mem_free(pool->handles);
    free(pool);
}
