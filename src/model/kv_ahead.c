#include "model/kv_ahead.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <time.h>

/* There is time, and the steps want the cores: after every piece it rests some times as long as that took. */
#define PIECE_BYTES ((size_t)2 << 20)
#define REST 3
#define REST_MAX_NS 100000000u

struct kv_ahead {
    const struct kv_cache *kv;
    pthread_t thread;
    uint32_t noted[KV_KINDS]; /* a copy of n_used, of who notes */

    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Guarded by lock. */
    uint32_t n_used[KV_KINDS]; /* pages of which the last one was used */
    atomic_bool stop;          /* written with lock; relaxed: looked at without it soon again */
};

/* The next page to make ready, with lock held; false: there is none. */
static bool choose(const struct kv_ahead *a, uint32_t n_ready[KV_KINDS], int *kind) {
    for (*kind = 0; *kind < KV_KINDS; ++*kind) {
        uint32_t n_used = a->n_used[*kind];
        n_ready[*kind] = MAX(n_ready[*kind], n_used);
        if (n_ready[*kind] < MIN(n_used + KV_AHEAD_PAGES, a->kv->n_pages[*kind]) &&
            a->kv->strides[*kind] != 0)
            return true;
    }
    return false;
}

/* False: the system cannot. */
static bool make_ready(struct kv_ahead *a, int kind, uint32_t page) {
    size_t stride = a->kv->strides[kind];
    uint8_t *first = a->kv->kinds[kind] + page * stride;
    for (size_t at = 0; at < stride; at += PIECE_BYTES) {
        uint64_t began = clock_ns();
        if (atomic_load_explicit(&a->stop, memory_order_relaxed))
            return true;
        if (!mem_populate(first + at, MIN(PIECE_BYTES, stride - at)))
            return false;
        uint64_t rest = MIN(REST * (clock_ns() - began), REST_MAX_NS);
        nanosleep(&(struct timespec){.tv_nsec = (long)rest}, NULL);
    }
    return true;
}

static void *ahead_main(void *arg) {
    struct kv_ahead *a = arg;
    uint32_t n_ready[KV_KINDS] = {0};
    bool able = true;
    int kind;
    pthread_mutex_lock(&a->lock);
    while (able && !atomic_load_explicit(&a->stop, memory_order_relaxed)) {
        if (!choose(a, n_ready, &kind)) {
            pthread_cond_wait(&a->wake, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        able = make_ready(a, kind, n_ready[kind]++);
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

struct kv_ahead *kv_ahead_open(const struct kv_cache *kv) {
    struct kv_ahead *a = mem_calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->kv = kv;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    if (thread_start(&a->thread, ahead_main, a) == 0)
        return a;
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
    return NULL;
}

void kv_ahead_close(struct kv_ahead *a) {
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

void kv_ahead_note(struct kv_ahead *a, enum kv_kind kind, uint32_t page) {
    if (a == NULL || page < a->noted[kind])
        return;
    a->noted[kind] = page + 1;
    pthread_mutex_lock(&a->lock);
    a->n_used[kind] = page + 1;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}
