/* http_workers.c: The threads that call the server's handler, chosen by the size of the body. */
#include "net/http_workers.h"

#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "net/http_internal.h"

static const int threads_of[HTTP_N_LANES] = {
    [HTTP_LANE_QUICK] = 1, [HTTP_LANE_SHORT] = 2, [HTTP_LANE_LONG] = 1};
#define N_THREADS 4

struct lane {
    struct http_workers *workers;
    pthread_cond_t more; /* there is a request, or no more comes */
    /* Guarded by workers.lock: */
    struct http_request *first, **end; /* by next_waiting */
    int n;
};

struct http_workers {
    pthread_mutex_t lock;
    struct lane lanes[HTTP_N_LANES];
    bool closing;
    pthread_t threads[N_THREADS];
    int n_threads;
};

/* The next one; NULL: no more comes. */
static struct http_request *take(struct lane *lane) {
    struct http_workers *w = lane->workers;
    pthread_mutex_lock(&w->lock);
    while (lane->first == NULL && !w->closing)
        pthread_cond_wait(&lane->more, &w->lock);
    struct http_request *r = lane->first;
    if (r != NULL) {
        lane->first = r->next_waiting;
        lane->end = lane->first != NULL ? lane->end : &lane->first;
        lane->n--;
    }
    pthread_mutex_unlock(&w->lock);
    return r;
}

static void *work(void *user) {
    struct lane *lane = user;
    bool is_long = lane == &lane->workers->lanes[HTTP_LANE_LONG];
    struct http_request *r;
    if (is_long)
        thread_lower_priority();
    while ((r = take(lane)) != NULL) {
        http_request_handle(r);
        if (is_long) /* a text and what was made of it */
            mem_give_back();
    }
    return NULL;
}

enum status http_workers_open(struct http_workers **out, struct err *err) {
    struct http_workers *w = mem_calloc(1, sizeof *w);
    if (w == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for an HTTP server");
    pthread_mutex_init(&w->lock, NULL);
    for (int i = 0; i < HTTP_N_LANES; i++) {
        struct lane *lane = &w->lanes[i];
        lane->workers = w;
        lane->end = &lane->first;
        pthread_cond_init(&lane->more, NULL);
    }
    for (int i = 0; i < HTTP_N_LANES; i++)
        for (int k = 0; k < threads_of[i]; k++) {
            if (thread_start(&w->threads[w->n_threads], work, &w->lanes[i]) != 0) {
                http_workers_close(w);
                return err_set(err, ST_NO_MEMORY, "no thread for an HTTP server");
            }
            w->n_threads++;
        }
    *out = w;
    return ST_OK;
}

void http_workers_close(struct http_workers *w) {
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    for (int i = 0; i < HTTP_N_LANES; i++)
        pthread_cond_broadcast(&w->lanes[i].more);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_threads; i++)
        pthread_join(w->threads[i], NULL);
    for (int i = 0; i < HTTP_N_LANES; i++)
        pthread_cond_destroy(&w->lanes[i].more);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

bool http_workers_give(struct http_workers *w, enum http_lane which, struct http_request *r) {
    struct lane *lane = &w->lanes[which];
    pthread_mutex_lock(&w->lock);
    bool room = which != HTTP_LANE_LONG || lane->n < HTTP_LONG_WAITING;
    if (room) {
        r->next_waiting = NULL;
        *lane->end = r;
        lane->end = &r->next_waiting;
        lane->n++;
        pthread_cond_signal(&lane->more);
    }
    pthread_mutex_unlock(&w->lock);
    return room;
}
