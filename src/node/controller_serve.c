/* controller_serve.c: the server of a deployment that this node owns: starts it, reads its
 * state, and ends it. */
#include "node/controller_internal.h"

#include "base/log.h"
#include "base/sentence.h"
#include "base/util.h"

#include <math.h>
#include <stdio.h>

/* A child that ends is started again after 2, 4, ... 64 seconds. After it has listened for this
 * long, the count starts again. */
#define RETRY_LOG2_MAX 6
#define PROVEN_S 60.0

static bool any_has_other_content(struct controller *k, const struct replica_run *r) {
    bool any = false;
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++)
        any |= controller_has_other_content(r, &k->others[i]);
    pthread_mutex_unlock(&k->lock);
    return any;
}

/* --nodes for the child: all nodes that this one knows ("auto"), or a list. The list has those
 * of them, or of the ones that the user named, that have not been refused and have no other
 * copy, and of a layout that is followed its nodes. False: only this machine. */
static bool nodes_for(struct controller *k, const struct replica_run *r, bool has_layout,
                      double now, char *out, size_t size) {
    size_t n = 0;
    if (str_eq(r->wanted->nodes, "auto") && !has_layout && !controller_refuses_any(r, now) &&
        !any_has_other_content(k, r))
        return snprintf(out, size, "auto@%s", k->own_address) < (int)size;
    *out = '\0';
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++) {
        const struct other *o = &k->others[i];
        if (controller_computes(k, r, o, now) && !controller_is_refused(r, o, now) &&
            !controller_has_other_content(r, o) && o->address[0] != '\0' && n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? "," : "", o->address);
    }
    pthread_mutex_unlock(&k->lock);
    return n > 0 && n < size;
}

static void failed(struct controller *k, struct replica_run *r, double now) {
    r->failures++;
    r->retry_s = now + ldexp(1, MIN(r->failures, RETRY_LOG2_MAX));
    log_error("%s: %s; once more in %.0f s, here or elsewhere", r->name, r->replica.last,
              r->retry_s - now);
    history_note(&k->history, 0, HAPPENED_FAILED, k->name, r->name, "%s does not serve %s: %s",
                 k->name, r->name, r->replica.last);
}

/* Another node served it before. */
static void note_takeover(struct controller *k, const struct replica_run *r) {
    if (r->server_name[0] != '\0' && !str_eq(r->server_name, k->name))
        history_note(&k->history, 0, HAPPENED_TOOK_OVER, k->name, r->name,
                     "%s takes over %s from %s", k->name, r->name, r->server_name);
}

void controller_begin_serving(struct controller *k, struct replica_run *r, double now) {
    char nodes[OTHERS_MAX * 32], parallel[64] = "";
    struct err err;
    pthread_mutex_lock(&k->lock);
    bool has_layout = controller_follows_layout(k, r, now);
    pthread_mutex_unlock(&k->lock);
    if (has_layout)
        controller_layout_words(r->wanted, parallel, sizeof parallel);
    bool has_nodes = nodes_for(k, r, has_layout, now, nodes, sizeof nodes);
    const struct replica_place place = {.program = k->program,
                                        .state = k->state,
                                        .path = r->path,
                                        .nodes = has_nodes ? nodes : NULL,
                                        .parallel = has_layout ? parallel : NULL};
    controller_remember_party(k, r, now);
    r->hasty = r->joining = false;
    if (r->path[0] != '\0' && !model_files_are_at(&r->wanted->model, r->path)) {
        sentence_print(r->replica.last, sizeof r->replica.last,
                       "%.300s is gone, or is now a different model", r->path);
        log_warn("%s: %s", r->name, r->replica.last);
        controller_forget_model(r);
        failed(k, r, now);
        return;
    }
    /* Also of words that came from another node, or from the disk. */
    if (k->check_words(r->wanted->args, r->wanted->n_args, &err) != ST_OK ||
        replica_start(&r->replica, r->wanted, &place, &err) != ST_OK) {
        sentence_print(r->replica.last, sizeof r->replica.last, "%s", err.text);
        failed(k, r, now);
        return;
    }
    r->term = ++r->seen_term;
    r->n_ranks = 1 + (int)r->party.n; /* until it listens, and says it */
    r->running_version = r->version;
    log_info("%s: this node serves it", r->name);
    note_takeover(k, r);
    r->placed[0] = '\0';
}

/* The server has just begun to listen. The files were checked before it started, but may have
 * been changed before it opened them. Then it is another model, which must not be announced. */
static void check_what_it_opened(struct replica_run *r) {
    if (r->wanted == NULL || r->path[0] == '\0' || controller_is_still_there(r))
        return;
    log_warn("%s: %s was changed while the server began: it ends", r->name, r->path);
    replica_kill(&r->replica);
}

void controller_go_on_serving(struct controller *k, struct replica_run *r, double now) {
    bool stopping = r->replica.state == REPLICA_STOPPING;
    bool listened = r->replica.state == REPLICA_LISTENING;
    if (r->replica.state == REPLICA_LISTENING)
        r->joiners.n = 0;
    if (r->replica.state == REPLICA_LISTENING && now - r->replica.begin_s >= PROVEN_S) {
        r->failures = 0;
        controller_forgive_joiners(r);
    }
    if (!stopping && (!r->mine || r->running_version != r->version)) {
        log_info("%s: %s", r->name,
                 r->wanted == NULL ? "it is taken down"
                 : r->mine         ? "it begins again, as it is wanted now"
                                   : "another node serves it");
        replica_stop(&r->replica);
    } else if (!stopping && controller_is_time_to_join(r, now)) {
        log_info("%s: %s has come: starting again, with it", r->name, r->joiner);
        r->joining = true;
        replica_stop(&r->replica);
    } else if (!stopping && controller_is_time_to_sleep(r, now)) {
        r->sleeping = true;
        replica_stop(&r->replica);
    }
    if (!replica_look(&r->replica, r->name)) {
        if (r->replica.state == REPLICA_LISTENING && !listened)
            check_what_it_opened(r);
        return;
    }
    bool joined = !stopping && r->joiners.n > 0;
    if (joined)
        controller_refuse_joiners(r, now);
    if ((joined || r->joining) && r->mine && r->running_version == r->version) {
        controller_begin_serving(k, r, now);
        return;
    }
    if (r->sleeping && r->mine && r->running_version == r->version) {
        controller_fall_asleep(k, r);
        return;
    }
    r->joining = r->sleeping = false;
    r->term = 0;
    controller_forget_model(r); /* it may be gone, and that be the cause */
    r->find_s = now;
    if (!stopping)
        failed(k, r, now);
}

bool controller_may_begin(const struct replica_run *r, bool settled, double now) {
    return r->wanted != NULL && r->mine && r->path[0] != '\0' &&
           (r->hasty || (settled && now - r->learned_s >= CONTROLLER_SETTLE_S));
}
