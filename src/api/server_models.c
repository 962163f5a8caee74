/* server_models.c: Says to ollama_store.c what a plain server serves, and starts its pulls. */
#include "api/server_models.h"

#include "api/dialects.h"
#include "api/managing.h"
#include "base/mem.h"
#include "base/thread.h"

#include <stdio.h>
#include <sys/stat.h>

static bool is_served(void *asker, const char *name) {
    return service_is_model(asker, name);
}

static bool uses(void *asker, const char *path, char name[OLLAMA_SERVED_BYTES]) {
    const struct service_facts *f = service_facts(asker);
    struct stat a, b;
    snprintf(name, OLLAMA_SERVED_BYTES, "%s", f->name);
    return stat(path, &a) == 0 && stat(f->path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

void server_models_init(struct server_models *m) {
    *m = (struct server_models){
        .store = {.starts = "lockstep serve", .is_served = is_served, .uses = uses}};
    pthread_mutex_init(&m->lock, NULL);
    thread_cond_init(&m->ended);
}

void server_models_deinit(struct server_models *m) {
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->ended);
}

/* ---- a request --------------------------------------------------------------------------- */

struct asking {
    struct server_models *models;
    struct service *service;
    struct http_request *request;
    atomic_bool gone; /* relaxed: the client */
};

static bool goes_on(void *waiter) {
    struct asking *a = waiter;
    pthread_mutex_lock(&a->models->lock);
    bool closing = a->models->closing;
    pthread_mutex_unlock(&a->models->lock);
    return !closing && !atomic_load_explicit(&a->gone, memory_order_relaxed);
}

static void answer(struct asking *a) {
    const struct ollama_client client = {
        .request = a->request,
        .manages = managing_is_from_here(a->request),
        .why_not = "to pull, copy or delete models, ask from the server's own machine",
        .asker = a->service,
        .goes_on = goes_on,
        .waiter = a};
    ollama_store_answer(&a->models->store, &client);
}

static void note_gone(void *user) {
    struct asking *a = user;
    atomic_store_explicit(&a->gone, true, memory_order_relaxed);
}

static bool enter(struct server_models *m) {
    pthread_mutex_lock(&m->lock);
    bool enters = !m->closing;
    m->n_threads += enters;
    pthread_mutex_unlock(&m->lock);
    return enters;
}

static void leave(struct server_models *m) {
    pthread_mutex_lock(&m->lock);
    m->n_threads--;
    pthread_cond_broadcast(&m->ended);
    pthread_mutex_unlock(&m->lock);
}

/* a is gone with its request. */
static void *asking_main(void *user) {
    struct asking *a = user;
    struct server_models *m = a->models;
    answer(a);
    leave(m);
    return NULL;
}

static void refuse(struct http_request *r, const char *sentence) {
    reply_json(r, 503, ollama_error(503, ERR_NONE, sentence, ""));
}

static void answer_in_thread(struct server_models *m, struct service *s,
                             struct http_request *r) {
    struct asking *a = mem_calloc(1, sizeof *a);
    pthread_t thread;
    if (a == NULL) {
        refuse(r, "no memory for a request");
        return;
    }
    if (!enter(m)) {
        mem_free(a);
        refuse(r, "this server ends");
        return;
    }
    *a = (struct asking){.models = m, .service = s, .request = r};
    http_set_release(r, mem_free, a);
    http_on_gone(r, note_gone, a);
    if (thread_start(&thread, asking_main, a) == 0) {
        pthread_detach(thread);
        return;
    }
    refuse(r, "no thread for a request");
    leave(m);
}

bool server_models_answer(struct server_models *m, struct service *s, struct http_request *r) {
    struct asking here = {.models = m, .service = s, .request = r};
    if (!ollama_store_has(http_path(r)))
        return false;
    if (ollama_store_takes_long(http_path(r)))
        answer_in_thread(m, s, r);
    else
        answer(&here);
    return true;
}

void server_models_end(struct server_models *m) {
    pthread_mutex_lock(&m->lock);
    m->closing = true;
    while (m->n_threads > 0)
        pthread_cond_wait(&m->ended, &m->lock);
    pthread_mutex_unlock(&m->lock);
}
