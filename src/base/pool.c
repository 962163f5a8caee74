/* pool.c: The threads of one rank: runs a function on all of them, barriers, and loop sharing.
 */
#include "base/pool.h"

#include "base/clock.h"
#include "base/core.h"
#include "base/float_env.h"
#include "base/futex.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"

#include <stdatomic.h>
#include <stdlib.h>

/* How long a waiting thread spins, and how long after that it polls and offers its core
 * (base/core.h), before it sleeps. A phase of a decode step is 20 to 300 us, a futex wake 5 to
 * 100 us. */
#define SPIN_NS 20000
#define POLL_NS 500000
/* A missing thread is watched for at least this long before it counts as off its core. */
#define WATCH_NS 10000
/* Not oftener does a thread leave its core for another, or lend it: each time costs some 10 us. */
#define LEAVE_NS 1000000
#define LEND_NS 500000

/* How much of a thread's share of a loop is claimed: from the front by the thread itself (low
 * half), from the back by others (high half). There is one word for the running loop and one
 * for the next, chosen by the generation's lowest bit. Its owner resets the next one. Relaxed:
 * barriers order the data. */
struct pool_share {
    _Alignas(CACHE_LINE) _Atomic uint64_t taken[2];
    _Atomic uint32_t at;     /* the generation of the last barrier that it reached */
    _Atomic int core_thread; /* its number (base/core.h) */
};

struct pool {
    int n_threads;
    pthread_t *handles; /* [n_threads - 1] */
    /* [n_threads], where each was when it last came to a barrier; hardly ever written, often
     * read. */
    _Atomic int *cores;
    void (*fn)(void *, struct pool *, int);
    void *arg;
    bool stop;

    /* Arrivals at the running barrier; the last one resets it. acq_rel: carries the data of all
     * arrivals to the last, which publishes them through `generation`. */
    _Alignas(CACHE_LINE) _Atomic uint32_t arrived;
    /* Bumped (release) by the last arrival; the others wait for it (acquire). */
    _Alignas(CACHE_LINE) _Atomic uint32_t generation;
    _Atomic uint32_t sleepers;  /* threads that may be in futex_wait on generation */
    _Atomic bool moving;        /* one thread at a time moves itself or another */
    struct pool_share shares[]; /* [n_threads] */
};

/* Which of the pool's threads this is, inside pool_run(). */
static _Thread_local int this_thread;

struct thread_start {
    struct pool *pool;
    int index;
};

static int core_of(const struct pool *pool, int thread) {
    return atomic_load_explicit(&pool->cores[thread], memory_order_relaxed);
}

static void note_core(struct pool *pool) {
    int here = core_here();
    if (core_of(pool, this_thread) != here)
        atomic_store_explicit(&pool->cores[this_thread], here, memory_order_relaxed);
}

static bool others_are_at(const struct pool *pool, int core) {
    for (int i = 0; i < pool->n_threads; i++)
        if (i != this_thread && core_of(pool, i) == core)
            return true;
    return false;
}

static bool move_begins(struct pool *pool) {
    return !atomic_exchange_explicit(&pool->moving, true, memory_order_acquire);
}

static void move_ends(struct pool *pool) {
    atomic_store_explicit(&pool->moving, false, memory_order_release);
}

/* In a wait: leaves this core if another thread of the pool has it too, and there is one that
 * none of them has. Has it left? */
static bool keep_apart(struct pool *pool) {
    static _Thread_local uint64_t next_ns;
    int here = core_here(), taken[POOL_MAX_THREADS];
    if (here < 0 || !others_are_at(pool, here) || clock_ns() < next_ns || !move_begins(pool))
        return false;
    for (int i = 0; i < pool->n_threads; i++)
        taken[i] = i == this_thread ? here : core_of(pool, i);
    /* A thread that moves counts as being on no core. It may have to wait for its new core, and
     * the thread on its old core must not leave that core as well. */
    atomic_store_explicit(&pool->cores[this_thread], -1, memory_order_relaxed);
    core_leave(taken, pool->n_threads);
    move_ends(pool);
    next_ns = clock_ns() + LEAVE_NS;
    return true;
}

/* A thread that others wait for, and how long it had run when it was found missing. */
struct late {
    int thread; /* -1: none */
    uint64_t found_ns, ran_ns;
};

static bool is_late(const struct pool *pool, int thread, uint32_t gen) {
    return atomic_load_explicit(&pool->shares[thread].at, memory_order_relaxed) != gen;
}

static uint64_t ran_ns(const struct pool *pool, int thread) {
    return core_ran_ns(
        atomic_load_explicit(&pool->shares[thread].core_thread, memory_order_relaxed));
}

static struct late find_late(const struct pool *pool, uint32_t gen, uint64_t now) {
    for (int i = 0; i < pool->n_threads; i++)
        if (is_late(pool, i, gen))
            return (struct late){i, now, ran_ns(pool, i)};
    return (struct late){-1, now, 0};
}

/* Before a waiting thread sleeps: moves the thread that it waits for to the core that becomes
 * free, if that thread has not run meanwhile. With few cores, a scheduler lets it stay in
 * another core's queue for a time slice. */
static void lend_core(struct pool *pool, const struct late *late, uint32_t gen, uint64_t now) {
    static _Thread_local uint64_t next_ns;
    const int here = core_here(), i = late->thread;
    if (here < 0 || i < 0 || !is_late(pool, i, gen) || core_of(pool, i) == here)
        return;
    if (now < next_ns || ran_ns(pool, i) - late->ran_ns > (now - late->found_ns) / 4 ||
        !move_begins(pool))
        return;
    next_ns = now + LEND_NS;
    atomic_store_explicit(&pool->cores[i], here, memory_order_relaxed);
    core_lend(atomic_load_explicit(&pool->shares[i].core_thread, memory_order_relaxed));
    move_ends(pool);
}

/* in_run: outside of a run no thread waits for thread 0. */
static void barrier(struct pool *pool, bool in_run) {
    if (pool->n_threads == 1) {
        atomic_store_explicit(&pool->shares[0].taken[pool->generation % 2], 0,
                              memory_order_relaxed);
        return;
    }
    uint32_t gen = atomic_load_explicit(&pool->generation, memory_order_acquire);
    atomic_store_explicit(&pool->shares[this_thread].taken[(gen + 1) % 2], 0,
                          memory_order_relaxed);
    note_core(pool);
    atomic_store_explicit(&pool->shares[this_thread].at, gen, memory_order_relaxed);
    uint32_t before = atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel);
    if (before + 1 == (uint32_t)pool->n_threads) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        /* seq_cst pairs with the sleeper's: either it sees the new generation or we see it. */
        atomic_fetch_add_explicit(&pool->generation, 1, memory_order_seq_cst);
        if (atomic_load_explicit(&pool->sleepers, memory_order_seq_cst) != 0)
            futex_wake(&pool->generation, INT32_MAX, false);
        return;
    }
    static _Thread_local struct core core;
    uint64_t began = clock_ns(), spin_end = began + SPIN_NS;
    struct late late = {.thread = -1};
    core_offer_at_times(&core, began);
    for (unsigned i = 0;; i++) {
        if (atomic_load_explicit(&pool->generation, memory_order_acquire) != gen)
            return;
        cpu_relax();
        if (i % 64 != 63)
            continue;
        uint64_t now = clock_ns();
        if (in_run && late.found_ns == 0 && now > spin_end - WATCH_NS)
            late = find_late(pool, gen, now);
        if (now < spin_end)
            continue;
        if (core_is_shared(&core, now) || now > spin_end + POLL_NS) {
            lend_core(pool, &late, gen, now);
            break;
        }
        if (!keep_apart(pool))
            core_offer(&core, now);
    }
    atomic_fetch_add_explicit(&pool->sleepers, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&pool->generation, memory_order_seq_cst) == gen)
        futex_wait(&pool->generation, gen, -1, false);
    keep_apart(pool);
    atomic_fetch_sub_explicit(&pool->sleepers, 1, memory_order_relaxed);
}

void pool_barrier(struct pool *pool) {
    barrier(pool, true);
}

uint32_t pool_phase(const struct pool *pool) {
    return atomic_load_explicit(&pool->generation, memory_order_relaxed);
}

/* A piece of thread `whose`'s share of n items: half of the rest of it, but at least min_items.
 */
static bool take(struct pool *pool, int whose, size_t n, size_t min_items, size_t *begin,
                 size_t *end) {
    const size_t n_threads = (size_t)pool->n_threads, i = (size_t)whose;
    const size_t first = div_up(n * i, n_threads), past = div_up(n * (i + 1), n_threads);
    uint32_t gen = atomic_load_explicit(&pool->generation, memory_order_relaxed);
    _Atomic uint64_t *taken = &pool->shares[whose].taken[gen % 2];
    uint64_t seen = atomic_load_explicit(taken, memory_order_relaxed);
    for (;;) {
        size_t front = (uint32_t)seen, back = seen >> 32, left = past - first - front - back;
        if (left == 0)
            return false;
        size_t size = n_threads == 1 ? left : MIN(MAX(div_up(left, 2), min_items), left);
        bool own = whose == this_thread;
        uint64_t then = seen + (own ? size : (uint64_t)size << 32);
        if (atomic_compare_exchange_weak_explicit(taken, &seen, then, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            *begin = own ? first + front : past - back - size;
            *end = *begin + size;
            return true;
        }
    }
}

bool pool_claim(struct pool *pool, size_t n, size_t min_items, size_t *begin, size_t *end) {
    BUG_ON(n > UINT32_MAX || this_thread >= pool->n_threads);
    for (int i = 0; i < pool->n_threads; i++)
        if (take(pool, (this_thread + i) % pool->n_threads, n, min_items, begin, end))
            return true;
    return false;
}

static void note_thread(struct pool *pool) {
    atomic_store_explicit(&pool->shares[this_thread].core_thread, core_thread(),
                          memory_order_relaxed);
}

static void *thread_main(void *start_) {
    struct thread_start start = *(struct thread_start *)start_;
    mem_free(start_);
    struct pool *pool = start.pool;
    this_thread = start.index;
    note_thread(pool);
    while (atomic_load_explicit(&pool->generation, memory_order_acquire) == 0)
        futex_wait(&pool->generation, 0, -1, false);
    for (;;) {
        barrier(pool, false); /* a run begins (or stop) */
        if (pool->stop)
            return NULL;
        pool->fn(pool->arg, pool, start.index);
        pool_barrier(pool); /* the run ends */
    }
}

/* Thread 0's part of a run. */
static void lead(void *pool_) {
    struct pool *pool = pool_;
    struct float_env callers;
    float_env_begin(&callers);
    note_thread(pool);
    pool_barrier(pool);
    pool->fn(pool->arg, pool, 0);
    pool_barrier(pool);
    float_env_end(&callers);
}

void pool_run(struct pool *pool, void (*fn)(void *, struct pool *, int), void *arg) {
    BUG_ON(this_thread != 0);
    pool->fn = fn;
    pool->arg = arg;
    thread_call(POOL_STACK_BYTES, lead, pool);
}

int pool_n_threads(const struct pool *pool) {
    return pool->n_threads;
}

enum status pool_open(struct pool **out, int n_threads, struct err *err) {
    if (n_threads < 1 || n_threads > POOL_MAX_THREADS)
        return err_set(err, ST_BAD_INPUT, "%d threads: expected 1 to %d", n_threads,
                       POOL_MAX_THREADS);
    size_t n_bytes = sizeof(struct pool) + (size_t)n_threads * sizeof(struct pool_share);
    struct pool *pool = aligned_alloc(CACHE_LINE, n_bytes); /* a multiple: so are its parts */
    if (pool == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a thread pool");
    memset(pool, 0, n_bytes);
    pool->n_threads = 1;
    pool->handles = mem_calloc((size_t)n_threads, sizeof *pool->handles);
    pool->cores = mem_calloc((size_t)n_threads, sizeof *pool->cores);
    for (int i = 0; i < n_threads && pool->cores != NULL; i++)
        pool->cores[i] = -1; /* not known yet */

    /* The threads wait at the gate (generation 0) until their final number is known. */
    int created = 0;
    bool room = pool->handles != NULL && pool->cores != NULL;
    for (; room && created < n_threads - 1; created++) {
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
    mem_free(pool->cores);
    free(pool);
}
