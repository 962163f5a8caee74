/* pieces.c: Several threads fetch pieces of a file; the caller's hands them on in order. */
#include "hub/pieces.h"

#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define PIECES_AT_LEAST 4
#define CONNECTIONS_MAX 16
#define LOOK_MS 100

struct slot {
    char *bytes; /* [HUB_PIECE_BYTES] */
    size_t n;
    bool full;
};

struct pieces {
    const struct hub_settings *settings;
    struct hub_download *whole;
    uint64_t begin, n; /* the first piece's first byte; pieces */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t next, given; /* pieces that somebody fetches, or has; that were handed on */
    bool stop;
    enum status st; /* of the first that failed */
    struct err err;
    struct slot slots[2 * CONNECTIONS_MAX];
    size_t n_slots;
};

/* ---- fetching a piece ---------------------------------------------------------------------- */

static bool is_wanted(void *user) {
    struct pieces *p = user;
    pthread_mutex_lock(&p->lock);
    bool stop = p->stop;
    pthread_mutex_unlock(&p->lock);
    return !stop;
}

static enum status keep(void *user, const void *bytes, size_t n, struct err *err) {
    struct slot *s = user;
    if (n > HUB_PIECE_BYTES - s->n)
        return err_set(err, ST_IO, "the host sends more than was asked for");
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
    return ST_OK;
}

static enum status fetch(struct hub_connection *c, const struct pieces *p, uint64_t k,
                         struct slot *s, struct err *err) {
    struct hub_download part = *p->whole;
    part.at = p->begin + k * HUB_PIECE_BYTES;
    part.end = MIN(part.at + HUB_PIECE_BYTES, part.bytes);
    part.take = keep;
    part.user = s;
    s->n = 0;
    return hub_download(c, &part, err);
}

/* The number of a piece, whose slot is free; false: there is nothing more to do. Under the lock. */
static bool take_number(struct pieces *p, uint64_t *k) {
    while (!p->stop && p->next < p->n && p->next >= p->given + p->n_slots)
        pthread_cond_wait(&p->changed, &p->lock);
    if (p->stop || p->next == p->n)
        return false;
    *k = p->next++;
    return true;
}

/* Under the lock. */
static void fail(struct pieces *p, enum status st, const struct err *err) {
    if (p->st == ST_OK) {
        p->st = st;
        p->err = *err;
    }
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
}

static void *fetch_pieces(void *user) {
    struct pieces *p = user;
    struct hub_settings own = *p->settings;
    struct hub_connection *c = NULL;
    struct err err;
    uint64_t k;
    own.go_on = is_wanted;
    own.user = p;
    enum status st = hub_open(&c, &own, &err);
    pthread_mutex_lock(&p->lock);
    while (st == ST_OK && take_number(p, &k)) {
        struct slot *s = &p->slots[k % p->n_slots];
        pthread_mutex_unlock(&p->lock);
        st = fetch(c, p, k, s, &err);
        pthread_mutex_lock(&p->lock);
        s->full = st == ST_OK;
        pthread_cond_broadcast(&p->changed);
    }
    if (st != ST_OK)
        fail(p, st, &err);
    pthread_mutex_unlock(&p->lock);
    if (c != NULL)
        hub_close(c);
    return NULL;
}

/* ---- handing them on ----------------------------------------------------------------------- */

static void wait_a_while(struct pieces *p) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&p->changed, &p->lock, &until);
}

static bool goes_on(const struct pieces *p) {
    return p->settings->go_on == NULL || p->settings->go_on(p->settings->user);
}

/* The next piece, when it is there. Takes the lock, and leaves it. */
static enum status give_next(struct pieces *p, struct err *err) {
    struct hub_download *d = p->whole;
    struct slot *s = &p->slots[p->given % p->n_slots];
    pthread_mutex_lock(&p->lock);
    if (!s->full && !p->stop)
        wait_a_while(p);
    bool full = s->full;
    enum status st = full ? ST_OK : p->st;
    if (st != ST_OK)
        *err = p->err;
    pthread_mutex_unlock(&p->lock);
    TRY(st);
    if (!goes_on(p))
        return err_set(err, ST_CANCELLED, "%s: given up", d->repo);
    if (!full)
        return ST_OK;
    TRY(d->take(d->user, s->bytes, s->n, err));
    d->at += s->n;
    pthread_mutex_lock(&p->lock);
    s->full = false;
    p->given++;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return ST_OK;
}

static enum status run(struct pieces *p, int n_threads, struct err *err) {
    pthread_t threads[CONNECTIONS_MAX];
    enum status st = ST_OK;
    int n = 0;
    while (n < n_threads && thread_start(&threads[n], fetch_pieces, p) == 0)
        n++;
    if (n == 0)
        return err_set(err, ST_NO_MEMORY, "no thread for a download");
    while (st == ST_OK && p->given < p->n)
        st = give_next(p, err);
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    return st;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static bool make_slots(struct pieces *p, int n_threads) {
    for (int i = 0; i < 2 * n_threads; i++) {
        if ((p->slots[i].bytes = mem_alloc(HUB_PIECE_BYTES)) == NULL)
            return false;
        p->n_slots++;
    }
    return true;
}

static void free_slots(struct pieces *p) {
    for (size_t i = 0; i < p->n_slots; i++)
        mem_free(p->slots[i].bytes);
}

enum status hub_download_pieces(struct hub_connection *c, const struct hub_settings *settings,
                                struct hub_download *d, struct err *err) {
    struct pieces p = {.settings = settings, .whole = d, .begin = d->at};
    int n_threads = MIN(settings->n_connections, CONNECTIONS_MAX);
    enum status st = ST_UNSUPPORTED;
    p.n = (d->bytes - d->at + HUB_PIECE_BYTES - 1) / HUB_PIECE_BYTES;
    if (n_threads > 1 && settings->pin == NULL && p.n >= PIECES_AT_LEAST &&
        make_slots(&p, n_threads)) {
        pthread_mutex_init(&p.lock, NULL);
        pthread_cond_init(&p.changed, NULL);
        st = run(&p, n_threads, err);
        pthread_cond_destroy(&p.changed);
        pthread_mutex_destroy(&p.lock);
    }
    free_slots(&p);
    return st == ST_UNSUPPORTED ? hub_download(c, d, err) : st;
}
