/* overview.c: keeps what all nodes tell of themselves: asks them, and remembers those that are
 * gone for a while. */
#include "node/overview_internal.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/catalog.h"
#include "cluster/machine_facts.h"

#include <stdio.h>

#define LOOKED_AT_S 15.0 /* so long after a question the others are asked each second */
#define BUSY_S 0.8       /* between two rounds then */
#define QUIET_S 10.0     /* and else */
#define ASK_S 1.0        /* for one node to answer */
#define GONE_S 600.0     /* so long a node that is gone is remembered */
#define CATALOG_S 10.0   /* between two looks at the folder of models, while somebody looks */
#define SELF_PATH "/v1/cluster/self"
#define WATCHED_PATH SELF_PATH "?watched=1"

/* ---- who is there ------------------------------------------------------------------------ */

static struct seen_node *find_id(struct overview *v, const char *id) {
    for (size_t i = 0; i < v->n_seen; i++)
        if (str_eq(v->seen[i]->id, id))
            return v->seen[i];
    return NULL;
}

/* The entry of a node that was started again: of its name, and gone, or where this one is. */
static struct seen_node *find_earlier(struct overview *v, const struct other *o) {
    for (size_t i = 0; i < v->n_seen; i++) {
        struct seen_node *s = v->seen[i];
        if (str_eq(s->name, o->name) &&
            (s->state != SEEN_HERE || o->address[0] == '\0' || str_eq(s->address, o->address)))
            return s;
    }
    return NULL;
}

/* NULL: no memory. */
static struct seen_node *add_seen(struct overview *v) {
    if (!mem_reserve(&v->seen, &v->cap_seen, v->n_seen + 1, sizeof *v->seen))
        return NULL;
    struct seen_node *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->view = v;
    s->state = SEEN_LEFT; /* it is not here yet */
    v->seen[v->n_seen++] = s;
    return s;
}

static void seen_free(struct seen_node *s) {
    client_close(s->client);
    json_decref(s->told);
    mem_free(s);
}

/* In its first seconds a node hears of all others, and none of them has just come. */
static void note_arrival(struct overview *v, const struct other *o, bool known, bool gone) {
    struct controller *k = v->controller;
    bool back = known || history_is_gone(&k->history, o->name);
    if (!back && clock_s() - v->opened_s < QUIET_S)
        return;
    history_note(&k->history, 0, back ? HAPPENED_BACK : HAPPENED_JOINED, o->name, "",
                 !back            ? "%s has come"
                 : known && !gone ? "%s was started again"
                                  : "%s is back",
                 o->name);
}

void overview_hear(struct overview *v, const struct other *o) {
    if (v == NULL)
        return;
    pthread_mutex_lock(&v->lock);
    struct seen_node *s = find_id(v, o->id);
    bool same = s != NULL && s->state == SEEN_HERE;
    if (s == NULL)
        s = find_earlier(v, o);
    bool known = s != NULL, gone = known && s->state != SEEN_HERE;
    if (s == NULL)
        s = add_seen(v);
    if (s != NULL && !same) {
        s->state = SEEN_HERE;
        s->since = history_now();
        note_arrival(v, o, known, gone);
    }
    if (s != NULL) {
        s->heard_s = o->heard_s;
        memcpy(s->id, o->id, sizeof s->id);
        memcpy(s->name, o->name, sizeof s->name);
        memcpy(s->version, o->version, sizeof s->version);
        if (o->host[0] != '\0')
            memcpy(s->host, o->host, sizeof s->host);
        memcpy(s->address, o->address, sizeof s->address);
    }
    pthread_mutex_unlock(&v->lock);
}

void overview_miss(struct overview *v, const struct other *o, bool left) {
    if (v == NULL)
        return;
    pthread_mutex_lock(&v->lock);
    struct seen_node *s = find_id(v, o->id);
    if (s != NULL && s->state == SEEN_HERE) {
        s->state = left ? SEEN_LEFT : SEEN_LOST;
        s->since = history_now();
        history_note(&v->controller->history, 0, left ? HAPPENED_LEFT : HAPPENED_LOST, s->name,
                     "",
                     left ? "%s was told to end" : "%s is lost: it has been silent for %.0f s",
                     s->name, clock_s() - s->heard_s);
    }
    pthread_mutex_unlock(&v->lock);
}

/* ---- what this one tells ----------------------------------------------------------------- */

json_t *overview_self(struct controller *k) {
    struct overview *v = k->overview;
    json_t *o = machine_facts(k->models);
    if (o == NULL)
        return NULL;
    json_object_set_new(o, "name", json_string(k->name));
    json_object_set_new(o, "version", json_string(LOCKSTEP_VERSION));
    if (k->tell != NULL)
        k->tell(k->tell_user, o);
    pthread_mutex_lock(&k->lock);
    if (k->doings != NULL)
        json_object_update(o, k->doings);
    pthread_mutex_unlock(&k->lock);
    pthread_mutex_lock(&v->lock);
    if (v->catalog != NULL)
        json_object_set(o, "models", v->catalog);
    pthread_mutex_unlock(&v->lock);
    json_object_set_new(o, "events", history_json(&k->history));
    return o;
}

/* Under the lock. A disk may sleep while nobody looks. */
static bool models_are_due(const struct overview *v) {
    double now = clock_s();
    return now >= v->catalog_s && (v->catalog == NULL || now - v->wanted_s < LOOKED_AT_S);
}

/* Names and sizes: where they lie is nobody's business. */
static void look_at_models(struct overview *v) {
    size_t i;
    json_t *one, *list = json_array();
    pthread_mutex_lock(&v->lock);
    v->catalog_s = clock_s() + CATALOG_S;
    pthread_mutex_unlock(&v->lock);
    json_t *found = catalog_read_all(v->controller->models);
    json_array_foreach(found, i, one) {
        json_array_append_new(list,
                              json_pack("{s:O, s:O}", "name", json_object_get(one, "name"),
                                        "bytes", json_object_get(one, "bytes")));
    }
    json_decref(found);
    pthread_mutex_lock(&v->lock);
    json_t *before = v->catalog;
    v->catalog = list;
    pthread_mutex_unlock(&v->lock);
    json_decref(before);
}

/* ---- asking the others ------------------------------------------------------------------- */

static bool is_closing(struct overview *v) {
    pthread_mutex_lock(&v->lock);
    bool closing = v->closing;
    pthread_mutex_unlock(&v->lock);
    return closing;
}

static bool in_time(void *user) {
    const struct seen_node *s = user;
    return clock_s() < s->until_s && !is_closing(s->view);
}

static void ask(struct seen_node *s) {
    struct overview *v = s->view;
    struct err err;
    json_t *told = NULL;
    enum status st = ST_OK;
    if (s->client != NULL && !str_eq(s->asked_at, s->ask_at)) {
        client_close(s->client);
        s->client = NULL;
    }
    if (s->client == NULL) {
        st = client_open(&s->client, v->controller->id, s->ask_at, &err);
        memcpy(s->asked_at, s->ask_at, sizeof s->asked_at);
    }
    if (st == ST_OK) {
        s->until_s = clock_s() + ASK_S;
        client_ask_whether(s->client, in_time, s);
        st = client_json(s->client, s->watched ? WATCHED_PATH : SELF_PATH, NULL, &told, &err);
    }
    if (st != ST_OK || !json_is_object(told)) {
        client_close(s->client);
        s->client = NULL;
        json_decref(told);
        return;
    }
    pthread_mutex_lock(&v->lock);
    json_t *before = s->told;
    s->told = told;
    pthread_mutex_unlock(&v->lock);
    json_decref(before);
}

static void *ask_main(void *user) {
    ask(user);
    return NULL;
}

/* Those to ask in this round, [n] owned by the caller; NULL: none, or no memory. */
static struct seen_node **choose(struct overview *v, size_t *n) {
    *n = 0;
    pthread_mutex_lock(&v->lock);
    struct seen_node **list =
        v->n_seen > 0 ? mem_calloc(v->n_seen, sizeof(struct seen_node *)) : NULL;
    for (size_t i = 0; i < v->n_seen && list != NULL; i++) {
        struct seen_node *s = v->seen[i];
        if (s->state != SEEN_HERE || s->address[0] == '\0')
            continue;
        memcpy(s->ask_at, s->address, sizeof s->ask_at);
        s->watched = clock_s() - v->looked_s < LOOKED_AT_S;
        list[(*n)++] = s;
    }
    pthread_mutex_unlock(&v->lock);
    return list;
}

static void ask_all(struct overview *v) {
    size_t n;
    struct seen_node **list = choose(v, &n);
    for (size_t i = 0; i < n; i++)
        list[i]->asked = thread_start(&list[i]->thread, ask_main, list[i]) == 0;
    for (size_t i = 0; i < n; i++)
        if (list[i]->asked)
            pthread_join(list[i]->thread, NULL);
    mem_free(list);
}

static void forget_old(struct overview *v) {
    double now = history_now();
    pthread_mutex_lock(&v->lock);
    for (size_t i = v->n_seen; i-- > 0;) {
        struct seen_node *s = v->seen[i];
        if (s->state == SEEN_HERE || now - s->since < GONE_S)
            continue;
        seen_free(s);
        v->seen[i] = v->seen[--v->n_seen];
    }
    pthread_mutex_unlock(&v->lock);
}

/* Until the next round is due. Looks at the models when somebody wants them. */
static void rest(struct overview *v) {
    double begun_s = clock_s();
    pthread_mutex_lock(&v->lock);
    v->n_rounds++;
    v->round_s = begun_s;
    pthread_cond_broadcast(&v->changed);
    while (!v->closing) {
        if (models_are_due(v)) {
            pthread_mutex_unlock(&v->lock);
            look_at_models(v);
            pthread_mutex_lock(&v->lock);
        }
        bool looked_at = clock_s() - v->looked_s < LOOKED_AT_S;
        double until_s = begun_s + (looked_at ? BUSY_S : QUIET_S);
        if (clock_s() >= until_s)
            break;
        (void)thread_cond_wait_until(&v->changed, &v->lock, (uint64_t)(until_s * 1e9));
    }
    pthread_mutex_unlock(&v->lock);
}

static void *overview_main(void *user) {
    struct overview *v = user;
    while (!is_closing(v)) {
        pthread_mutex_lock(&v->lock);
        bool due = models_are_due(v);
        pthread_mutex_unlock(&v->lock);
        if (due)
            look_at_models(v);
        ask_all(v);
        forget_old(v);
        rest(v);
    }
    return NULL;
}

void overview_look(struct overview *v, bool waits) {
    pthread_mutex_lock(&v->lock);
    double now = clock_s();
    uint64_t n = v->n_rounds, until_ns = clock_ns() + (uint64_t)(ASK_S * 1e9);
    bool stale = now - v->round_s > 2 * BUSY_S;
    v->looked_s = v->wanted_s = now;
    if (stale || models_are_due(v))
        pthread_cond_broadcast(&v->changed);
    while (stale && waits && !v->closing && v->n_rounds == n)
        if (!thread_cond_wait_until(&v->changed, &v->lock, until_ns))
            break;
    pthread_mutex_unlock(&v->lock);
}

void overview_want_models(struct overview *v) {
    pthread_mutex_lock(&v->lock);
    v->wanted_s = clock_s();
    if (models_are_due(v))
        pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
}

/* The first round tells the others that somebody looks, the second hears of what they found. */
void overview_hear_models(struct overview *v) {
    uint64_t until_ns = clock_ns() + (uint64_t)(3 * ASK_S * 1e9);
    overview_look(v, true);
    pthread_mutex_lock(&v->lock);
    for (uint64_t n = v->n_rounds; !v->closing && v->n_rounds < n + 2;)
        if (!thread_cond_wait_until(&v->changed, &v->lock, until_ns))
            break;
    pthread_mutex_unlock(&v->lock);
}

/* ---- opening and closing ----------------------------------------------------------------- */

static void overview_free(struct overview *v) {
    for (size_t i = 0; i < v->n_seen; i++)
        seen_free(v->seen[i]);
    mem_free(v->seen);
    json_decref(v->catalog);
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->lock);
    mem_free(v);
}

enum status overview_open(struct overview **out, struct controller *k, struct err *err) {
    struct overview *v = mem_calloc(1, sizeof *v);
    if (v == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a view of the cluster");
    v->controller = k;
    v->opened_s = clock_s();
    v->opened_unix = history_now();
    v->looked_s = v->wanted_s = -LOOKED_AT_S;
    pthread_mutex_init(&v->lock, NULL);
    thread_cond_init(&v->changed);
    if (thread_start(&v->thread, overview_main, v) != 0) {
        overview_free(v);
        return err_set(err, ST_NO_MEMORY, "no thread for a view of the cluster");
    }
    *out = v;
    return ST_OK;
}

void overview_close(struct overview *v) {
    if (v == NULL)
        return;
    pthread_mutex_lock(&v->lock);
    v->closing = true;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
    pthread_join(v->thread, NULL);
    overview_free(v);
}
