/* kv_prefault.c: The thread that makes pages of the KV cache resident before a step needs
 * them. */
#include "model/kv_prefault.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <time.h>

/* In parallel to steps there is time, and the steps need the cores. So after every piece the
 * thread rests for several times as long as the piece took. A piece is short, since a thread of
 * the step may have to wait for it. Of a huge page the first piece makes all resident. */
#define PIECE_BYTES ((size_t)256 << 10)
#define REST_BESIDE_STEPS 3
#define REST_IDLE 1
#define REST_MAX_NS 100000000u
/* Idle: no step for this long. */
#define IDLE_NS 100000000u

struct kv_prefault {
    const struct kv_cache *kv;
    size_t idle_bytes;
    pthread_t thread;
    uint32_t noted[KV_KINDS]; /* a copy of n_used, for the thread that notes */

    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Guarded by lock. */
    uint32_t n_used[KV_KINDS]; /* the number of pages up to the last used one */
    atomic_bool stop;          /* written with lock; relaxed: looked at without it soon again */
    /* Begins and ends: odd while a step runs. Relaxed: it only says how much of a hurry there
     * is. */
    atomic_uint n_turns;

    /* The thread's own. */
    uint32_t n_ready[KV_KINDS];
    unsigned n_turns_seen;
    bool idle; /* no step for IDLE_NS, nor since */
};

/* The next page to make resident, with lock held; false: none. */
static bool choose(struct kv_prefault *a, bool idle, int *kind) {
    for (*kind = 0; *kind < KV_KINDS; ++*kind) {
        uint32_t n_used = a->n_used[*kind], *n_ready = &a->n_ready[*kind];
        size_t stride = a->kv->strides[*kind];
        if (stride == 0)
            continue;
        size_t n_ahead =
            idle ? MAX(a->idle_bytes / stride, (size_t)KV_AHEAD_PAGES) : KV_AHEAD_PAGES;
        *n_ready = MAX(*n_ready, n_used);
        if (*n_ready < MIN(n_used + n_ahead, (size_t)a->kv->n_pages[*kind]))
            return true;
    }
    return false;
}

/* Were there steps since this was last asked, or is there one? */
static bool steps_run(struct kv_prefault *a) {
    unsigned before = a->n_turns_seen;
    a->n_turns_seen = atomic_load_explicit(&a->n_turns, memory_order_relaxed);
    return a->n_turns_seen != before || before % 2 != 0;
}

/* False: it is to stop. What is noted meanwhile is looked at afterwards. */
static bool rest_for(struct kv_prefault *a, uint64_t rest_ns) {
    uint64_t until_ns = clock_ns() + rest_ns;
    pthread_mutex_lock(&a->lock);
    while (!atomic_load_explicit(&a->stop, memory_order_relaxed) &&
           thread_cond_wait_until(&a->wake, &a->lock, until_ns))
        ;
    pthread_mutex_unlock(&a->lock);
    return !atomic_load_explicit(&a->stop, memory_order_relaxed);
}

/* False: the system cannot. */
static bool make_ready(struct kv_prefault *a, int kind, uint32_t page) {
    size_t stride = a->kv->strides[kind];
    uint8_t *first = a->kv->kinds[kind] + page * stride;
    for (size_t at = 0; at < stride; at += PIECE_BYTES) {
        uint64_t began = clock_ns();
        if (atomic_load_explicit(&a->stop, memory_order_relaxed))
            return true;
        if (!mem_populate(first + at, MIN(PIECE_BYTES, stride - at)))
            return false;
        a->idle = a->idle && !steps_run(a);
        uint64_t rest = (clock_ns() - began) * (a->idle ? REST_IDLE : REST_BESIDE_STEPS);
        if (!rest_for(a, MIN(rest, REST_MAX_NS)))
            return true;
    }
    return true;
}

/* With lock held, until something is noted; where there is more to do without steps, until
 * there are none. */
static void wait_for_work(struct kv_prefault *a) {
    int kind;
    a->idle = false;
    if (!choose(a, true, &kind)) {
        pthread_cond_wait(&a->wake, &a->lock);
        return;
    }
    uint64_t until_ns = clock_ns() + IDLE_NS;
    steps_run(a);
    bool over = !thread_cond_wait_until(&a->wake, &a->lock, until_ns);
    a->idle = !steps_run(a) && over;
}

static void *ahead_main(void *arg) {
    struct kv_prefault *a = arg;
    bool able = true;
    int kind;
    pthread_mutex_lock(&a->lock);
    while (able && !atomic_load_explicit(&a->stop, memory_order_relaxed)) {
        if (!choose(a, a->idle, &kind)) {
            wait_for_work(a);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        able = make_ready(a, kind, a->n_ready[kind]++);
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

struct kv_prefault *kv_prefault_open(const struct kv_cache *kv) {
    struct kv_prefault *a = mem_calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->kv = kv;
    a->idle_bytes = MIN(KV_AHEAD_IDLE_BYTES, (size_t)(mem_available() / KV_AHEAD_IDLE_SHARE));
    pthread_mutex_init(&a->lock, NULL);
    thread_cond_init(&a->wake);
    if (thread_start(&a->thread, ahead_main, a) == 0)
        return a;
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
    return NULL;
}

void kv_prefault_close(struct kv_prefault *a) {
    if (a == NULL)
        return;
    pthread_mutex_lock(&a->lock);
    atomic_store_explicit(&a->stop, true, memory_order_relaxed);
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
}

void kv_prefault_note(struct kv_prefault *a, enum kv_kind kind, uint32_t page) {
    if (a == NULL || page < a->noted[kind])
        return;
    a->noted[kind] = page + 1;
    pthread_mutex_lock(&a->lock);
    a->n_used[kind] = page + 1;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

static void turn(struct kv_prefault *a) {
    if (a != NULL)
        atomic_fetch_add_explicit(&a->n_turns, 1, memory_order_relaxed);
}

void kv_prefault_step_begin(struct kv_prefault *a) {
    turn(a);
}

void kv_prefault_step_end(struct kv_prefault *a) {
    turn(a);
}
