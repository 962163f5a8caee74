/* gateway_internal.h: a gateway's internal interface. gateway.c has the port and routes
 * requests. gateway_pass.c asks one server, and the next one if it is lost. gateway_wait.c tells
 * clients that wait for that. gateway_asleep.c answers for a server that is asleep, and
 * gateway_kept.c keeps what it needs for that. */
#ifndef LOCKSTEP_GATEWAY_GATEWAY_INTERNAL_H
#define LOCKSTEP_GATEWAY_GATEWAY_INTERNAL_H

#include "cluster/identity.h"
#include "gateway/gateway.h"
#include "net/http.h"
#include "net/net.h"
#include "server/reply.h"

#include <curl/curl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Choices of a stream that may take turns, and all that is of none. */
#define GATEWAY_LANES 129

/* What a server says of its model, and is kept. */
enum kept {
    KEPT_MODELS,    /* GET /v1/models */
    KEPT_ANTHROPIC, /* the same to Anthropic's clients */
    KEPT_STUDIO,    /* GET /api/v0/models */
    KEPT_TAGS,      /* GET /api/tags */
    KEPT_SHOW,      /* POST /api/show */
    KEPT_VERSION,   /* GET /api/version */
    KEPT_PROPS,     /* GET /props */
    KEPT_N
};

struct gateway_route {
    struct gateway *gateway;
    struct gateway_route *next;
    char *name, *file; /* owned */
    int64_t since;

    /* The gateway's lock guards: */
    bool removed;
    char target[NET_TEXT_BYTES];         /* "": none */
    char server[64];                     /* the node that serves */
    uint64_t n_targets;                  /* how many servers there have been */
    char name_of_server[64], coming[64]; /* as gateway_name() */
    bool moves;                          /* as gateway_moves() */
    int n_passing;
    bool keeps;
    char *key;              /* owned; as gateway_keep() */
    int64_t slept, expires; /* Unix time; 0: not, never */
    bool woken;             /* it was asleep, and no node serves it yet */
    struct gateway_use use;
    char *kept[KEPT_N]; /* owned; JSON; NULL: not known */
    char *origin;       /* owned; of the pages that its server lets in; NULL: not known */
    bool keeping;       /* a thread asks for them */
};

struct gateway {
    struct http_server *http;
    struct gateway_config cfg; /* without its texts */
    const char *scheme;
    char pin[IDENTITY_PIN_BYTES]; /* pin "": plain HTTP */

    atomic_bool ending; /* relaxed: what takes long is to end */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool closing;
    struct gateway_route *routes; /* the first one first */
    int n_threads;
};

/* What a stream consists of. */
enum gateway_units { GATEWAY_WHOLE, GATEWAY_EVENTS, GATEWAY_LINES };

struct lane;

/* A request on its way. Its thread's, but for what is atomic. */
struct passing {
    struct gateway *f;
    struct http_request *r;
    const char *method;
    char *path;        /* with the query, escaped; owned */
    char *asked_model; /* the argument ?model=; owned; NULL: absent */
    struct curl_slist *headers;
    atomic_bool gone; /* relaxed: the client */

    struct gateway_route *route; /* held: the route in use */
    double limit_s;              /* for each of them; 0: none */
    double head_s;               /* likewise, but of a stream only until it has begun */

    bool is_unknown; /* it names a model that is not here, which its server is to say */
    bool question;   /* it needs the model, and its key is good */
    int64_t keep_ms; /* for how long it wants the model to stay */
    bool keeps;      /* it says so, and the route does not know it yet */
    bool gives_page; /* the answer is the page, or a file of it */

    /* Of this try: */
    uint64_t target;  /* its number */
    double head_by_s; /* clock; 0: no limit */
    int status;
    bool has_status, broken; /* broken: what comes is not what came, or does not fit */
    enum gateway_units units;
    struct buf text; /* whole: the body; else the unit that is not complete yet */
    struct curl_slist *reply_headers; /* "name: value" */

    /* Of all tries: */
    bool begun;                             /* the client has the status */
    bool events;                            /* and gets events */
    char served_by[64], lost[64], next[64]; /* the node of this try; as the client was told */
    bool moves;                             /* and that it is no loss */
    struct lane *lanes[GATEWAY_LANES];
};

/* ---- gateway_wait.c ------------------------------------------------------------------------ */

/* The server of this try is lost. If the client has a part of a stream of events, it is told. */
void wait_note_lost(struct passing *p);
/* Likewise, that a node is about to serve, if that is news. */
void wait_look(struct passing *p);
/* Likewise, that one serves. */
void wait_end(struct passing *p);

/* ---- gateway_asleep.c ---------------------------------------------------------------------- */

/* Looks at what p asks of p->route: a question is counted until question_end(). */
void question_begin(struct passing *p);
void question_end(struct gateway_route *r);
/* It has reached its server. */
void question_reaches(struct passing *p);
/* Ollama's clients unload a model with a question without words. True: it was one, and *p has the
 * answer. */
bool question_unloads(struct passing *p);
/* Under the lock: no node has it loaded, and a question is needed. */
bool asleep_is(const struct gateway_route *r);
/* True: p->route is asleep, and *p has the answer to a request that does not wake it. */
bool asleep_answers(struct passing *p);
/* Puts into a list of running models, which has just come, until when they stay. */
void asleep_add_expiry(struct passing *p);

/* ---- gateway_kept.c ------------------------------------------------------------------------ */

/* Under the lock: another server serves. Asks it, on a thread, for what is kept. */
void kept_refresh(struct gateway_route *r);
/* What was kept: a new reference; NULL: nothing. */
json_t *kept_json(struct gateway_route *r, enum kept what);
void kept_free(struct gateway_route *r);

/* ---- gateway_pass.c ------------------------------------------------------------------------ */

/* NULL: no memory. */
struct passing *passing_open(struct gateway *f, struct http_request *r);
void passing_free(void *p);
/* The client has gone; from any thread. */
void passing_gone(void *p);
/* The server is told which model was found. before: what the path has before a model's name;
 * NULL: it has none. */
void passing_set_model(struct passing *p, const char *name, const char *before);
/* Asks p->route, and the node that takes over. True: the answer is complete (p->status,
 * p->text), or of a stream, the part that the client does not have yet. False: no node serves
 * (a patient request waits for one), or the answer is no longer needed. */
bool passing_ask(struct passing *p, bool patient);
/* Sends one of these to the client: what has been received, or that no node serves. */
void passing_end(struct passing *p, bool complete);
/* and other words, with the headers of what came last. */
void passing_give(struct passing *p, int status, const char *type, const struct buf *text);
/* Of the last answer; NULL: no header has that name. */
const char *passing_reply_header(const struct passing *p, const char *name);
/* The answer is this one, instead of a server's; text, or v, is taken over. */
void passing_set(struct passing *p, int status, const char *type, char *text);
void passing_set_json(struct passing *p, int status, json_t *v);
void passing_add_header(struct passing *p, const char *name, const char *value);
/* GET, which HEAD is here, too. */
bool passing_only_asks(const struct passing *p);

#endif
