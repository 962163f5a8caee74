/* controller_copy.c: this node's copy of a deployment's model: finds it, copies it from another
 * node, and shares it with others. */
#include "node/controller_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/store.h"

#include <stdatomic.h>
#include <stdio.h>

#define FIND_S 15.0  /* between looks for a model, or whether it is still there */
#define LOOK_S 3.0   /* the latter where it takes no reading */
#define FETCH_S 60.0 /* and after a copy that failed */

/* A model on its way here, on a thread of its own. */
struct fetch {
    pthread_t thread;
    atomic_bool unwanted, done; /* release when set, acquire when read */
    struct controller *controller;
    double begin_s;
    const struct replica_run *run; /* its deployment and source do not change meanwhile */
    char from[NET_TEXT_BYTES];
    atomic_uint_least64_t bytes; /* relaxed: that are here */
    uint64_t first_bytes;        /* that were here when its first look came */
    double first_s;              /* and when that was; 0: not yet */
    enum status st;
    struct err err;
};

void controller_forget_model(struct replica_run *r) {
    controller_stop_reading(r);
    model_share_close(r->share);
    r->share = NULL;
    r->path[0] = '\0';
}

/* The port at which a node shares the model's files; 0: it does not. */
static int shares_at(const struct other *o, const struct replica_run *r) {
    const struct able_report *its = report_able(&o->report, r->name);
    return its != NULL && o->host[0] != '\0' ? its->share_port : 0;
}

void controller_find_source(const struct controller *k, struct replica_run *r) {
    unsigned n = 0;
    for (size_t i = 0; i < k->n_others; i++)
        n += shares_at(&k->others[i], r) > 0;
    unsigned at = n > 0 ? r->failed_copies % n : 0;
    r->source[0] = '\0';
    for (size_t i = 0; i < k->n_others; i++) {
        const struct other *o = &k->others[i];
        if (shares_at(o, r) > 0 && at-- == 0)
            snprintf(r->source, sizeof r->source, "%s:%d", o->host, shares_at(o, r));
    }
}

bool controller_is_still_there(const struct replica_run *r) {
    return r->share != NULL ? share_is_intact(r->share)
                            : model_files_are_at(&r->wanted->model, r->path);
}

void controller_find_model(struct controller *k, struct replica_run *r, double now) {
    struct err err;
    if (r->wanted == NULL || r->fetch != NULL || now < r->find_s)
        return;
    r->find_s = now + (r->share != NULL ? LOOK_S : FIND_S);
    if (r->path[0] != '\0' && controller_is_still_there(r))
        return;
    controller_forget_model(r);
    const struct model_files *model = &r->wanted->model;
    if (!store_find(k->models, model, r->wanted->hint, r->path, sizeof r->path)) {
        r->path[0] = '\0';
        controller_note_missing(k, r);
    } else if (model_share_open(&r->share, k->id, model, r->path, &err) != ST_OK)
        log_warn("%s: this node cannot give its model to others: %s", r->name, err.text);
    if (r->path[0] != '\0')
        r->lack = LACK_MISSING;
}

static bool is_fetch_wanted(void *user, uint64_t bytes) {
    struct fetch *f = user;
    atomic_store_explicit(&f->bytes, bytes, memory_order_relaxed);
    return !atomic_load_explicit(&f->unwanted, memory_order_acquire);
}

void controller_look_at_copy(const struct replica_run *r, struct copy_figures *out) {
    struct fetch *f = r->fetch;
    double now = clock_s();
    out->bytes = atomic_load_explicit(&f->bytes, memory_order_relaxed);
    out->total = r->wanted->model.bytes;
    out->from = f->from;
    out->rate = 0;
    if (out->bytes > 0 && f->first_s == 0) {
        f->first_bytes = out->bytes;
        f->first_s = now;
    }
    if (out->bytes > f->first_bytes && now > f->first_s)
        out->rate = (double)(out->bytes - f->first_bytes) / (now - f->first_s);
}

static void *fetch_main(void *user) {
    struct fetch *f = user;
    const struct store_progress progress = {is_fetch_wanted, f};
    char path[PATH_MAX];
    const struct model_files *model = &f->run->wanted->model;
    f->st = store_check_room(f->controller->models, model, &f->err);
    if (f->st == ST_OK)
        f->st = store_fetch(f->controller->models, f->controller->id, f->from, model, &progress,
                            path, sizeof path, &f->err);
    atomic_store_explicit(&f->done, true, memory_order_release);
    return NULL;
}

void controller_stop_fetching(struct replica_run *r) {
    if (r->fetch != NULL)
        atomic_store_explicit(&r->fetch->unwanted, true, memory_order_release);
}

static void note_copy(const struct fetch *f, double now) {
    struct controller *k = f->controller;
    const struct replica_run *r = f->run;
    log_info("%s: this node now has its model too", r->name);
    history_note(&k->history, 0, HAPPENED_COPIED, k->name, r->name,
                 "%s has a copy of %s now (%.1f MB in %.1f s)", k->name, r->name,
                 (double)r->wanted->model.bytes * 1e-6, now - f->begin_s);
}

void controller_end_fetching(struct replica_run *r, double now) {
    struct fetch *f = r->fetch;
    pthread_join(f->thread, NULL);
    if (f->st == ST_OK)
        note_copy(f, now);
    else if (f->st != ST_CANCELLED)
        log_warn(
            "%s: its model cannot be copied to this node, so this node cannot stand in: %s",
            r->name, f->err.text);
    if (f->st != ST_OK && f->st != ST_CANCELLED)
        history_note(&f->controller->history, 0, HAPPENED_FAILED, f->controller->name, r->name,
                     "%s has no copy of %s: %s", f->controller->name, r->name, f->err.text);
    if (f->st != ST_OK && f->st != ST_CANCELLED)
        controller_note_no_copy(r, f->st, f->err.text);
    r->failed_copies += f->st != ST_OK && f->st != ST_CANCELLED;
    r->fetch = NULL;
    r->find_s = now;
    r->fetch_s = now + FETCH_S;
    mem_free(f);
}

void controller_fetch_model(struct controller *k, struct replica_run *r, double now) {
    if (r->fetch != NULL) {
        if (atomic_load_explicit(&r->fetch->done, memory_order_acquire))
            controller_end_fetching(r, now);
        return;
    }
    if (r->wanted == NULL || !r->named || r->path[0] != '\0' || now < r->fetch_s ||
        *r->target == '\0' || *r->source == '\0' || !r->wanted->copies)
        return;
    struct fetch *f = mem_calloc(1, sizeof *f);
    r->fetch_s = now + FETCH_S;
    if (f == NULL)
        return;
    f->controller = k;
    f->run = r;
    f->begin_s = now;
    memcpy(f->from, r->source, sizeof f->from);
    if (thread_start(&f->thread, fetch_main, f) != 0) {
        mem_free(f);
        return;
    }
    r->fetch = f;
    log_info("%s: copying its model from %s", r->name, f->from);
}
