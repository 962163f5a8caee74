/* ollama_store.h: what Ollama's API has for models on a disk: pull, delete and copy. Plain
 * servers have it (server_models.h), and nodes at the deployments' ports (node/). A model comes
 * as with lockstep pull and goes as with lockstep rm. */
#ifndef LOCKSTEP_API_OLLAMA_STORE_H
#define LOCKSTEP_API_OLLAMA_STORE_H

#include "base/status.h"
#include "net/http.h"

#include <stdatomic.h>
#include <stdbool.h>

#define OLLAMA_SERVED_BYTES 64

/* Who has the models. The functions get the client's `asker`. */
struct ollama_store {
    const char *folder; /* of models; NULL: the default one */
    const char *starts; /* what serves a model of the disk, "lockstep up" */
    /* Whether a request of that model would be answered. */
    bool (*is_served)(void *asker, const char *name);
    /* Who serves the model at that path; false: nobody. */
    bool (*uses)(void *asker, const char *path, char name[OLLAMA_SERVED_BYTES]);
    /* A served model gets one more name; such a name goes. ST_NOT_FOUND: there is no such
     * model, no such name; ST_REFUSED: the name is taken. NULL: there are none. */
    enum status (*copy)(void *asker, const char *source, const char *name, struct err *err);
    enum status (*forget)(void *asker, const char *name, struct err *err);
    atomic_int n_pulls; /* under way */
};

/* Who asks. All borrowed until the answer. */
struct ollama_client {
    struct http_request *request;
    bool manages;        /* may change something */
    const char *why_not; /* a sentence, if not */
    void *asker;
    /* Whether the answer is still of use: asked several times a second, from the thread that
     * answers. */
    bool (*goes_on)(void *waiter);
    void *waiter;
};

/* Whether a path is one of these. */
bool ollama_store_has(const char *path);
/* And one that may take long. */
bool ollama_store_takes_long(const char *path);
/* Answers; a pull for as long as it takes. */
void ollama_store_answer(struct ollama_store *s, const struct ollama_client *c);

/* A model of that name is on the disk: what puts it up, or as what it is up, as a sentence. False:
 * none is. */
bool ollama_store_hint(const struct ollama_store *s, void *asker, const char *name, char *out,
                       size_t size);

#endif
