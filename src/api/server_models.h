/* server_models.h: Ollama's pull, delete and copy at a plain server, for programs on its own
 * machine. A pull has a thread of its own. */
#ifndef LOCKSTEP_API_SERVER_MODELS_H
#define LOCKSTEP_API_SERVER_MODELS_H

#include "api/ollama_store.h"
#include "server/service.h"

#include <pthread.h>

struct server_models {
    struct ollama_store store;
    pthread_mutex_t lock; /* guards: */
    pthread_cond_t ended;
    int n_threads;
    bool closing;
};
void server_models_init(struct server_models *m);
/* False: the request is for something else. */
bool server_models_answer(struct server_models *m, struct service *s, struct http_request *r);
/* Pulls end, and new ones are refused. */
void server_models_end(struct server_models *m);
void server_models_deinit(struct server_models *m);

#endif
