/* The controller's thread goes round a few times a second: it hears its children, asks the other
 * nodes, decides for each deployment whether it is this node's, and does what follows. What it
 * decides from is guarded by the lock, and so is what the handlers answer with; what it does
 * (children, files, the network) it does without. */
#include "node/controller_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sentence.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/store.h"
#include "net/host_id.h"
#include "server/reply.h"

#include <math.h>
#include <poll.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOK_MS 200
#define GOSSIP_S 1.0
/* After its own start a node first hears who serves what; and, after a power cut, waits a while
 * for those whom it knew before: otherwise the first to be back would serve alone. */
#define SETTLE_S 5.0
#define RETURN_S 30.0
#define KNOWN_S 60.0
#define KNOWN_GAP_S 10.0 /* between looks whether others are there now */
/* A round's questions take less: whoever needed longer stood still. */
#define PAUSE_S 5.0
#define FIND_S 15.0  /* between looks for a model, or whether it is still there */
#define LOOK_S 3.0   /* the latter where it takes no reading */
#define FETCH_S 60.0 /* and after a copy that failed */
/* A child that ends is started again after 2, 4, ... 64 seconds; having listened for so long,
 * it starts afresh. */
#define RETRY_LOG2_MAX 6
#define TERM_MAX ((json_int_t)1 << 52)
#define PROVEN_S 60.0
/* For a node that comes later the server starts again: once it has the model and has been there
 * for so long, no other is about to be as far (it begins to copy within JOIN_SOON_S), and
 * nothing has been answered for a while; at the latest after JOIN_LATEST_PAUSES times what a
 * start takes, or JOIN_LATEST_S. */
#define JOIN_S 10.0
#define JOIN_SOON_S 30.0
#define JOIN_IDLE_S 3.0
#define JOIN_LATEST_PAUSES 5.0
#define JOIN_LATEST_S 600.0
/* One with which it does not begin is tried again after two pauses (what a start takes), then
 * after four, and so on. */
#define REFUSED_PAUSES 2.0
#define REFUSED_PAUSE_MIN_S 2.0
#define REFUSED_MAX_S 3600.0

/* A model on its way here, on a thread of its own. */
struct fetch {
    pthread_t thread;
    atomic_bool unwanted, done; /* release by who sets it, acquire by who looks */
    const struct controller *controller;
    const struct replica_run *run; /* whose files and source do not change meanwhile */
    char from[NET_TEXT_BYTES];
    enum status st;
    struct err err;
};

bool controller_is_closing(struct controller *k) {
    pthread_mutex_lock(&k->lock);
    bool closing = k->closing;
    pthread_mutex_unlock(&k->lock);
    return closing;
}

/* ---- who does what ----------------------------------------------------------------------- */

static struct replica_run *run_place(struct controller *k, const char *name) {
    struct replica_run **at = &k->runs;
    while (*at != NULL && !str_eq((*at)->name, name))
        at = &(*at)->next;
    if (*at == NULL && (*at = mem_calloc(1, sizeof **at)) != NULL)
        snprintf((*at)->name, sizeof(*at)->name, "%s", name);
    return *at;
}

static void forget_model(struct replica_run *r) {
    controller_stop_reading(r);
    model_share_close(r->share);
    r->share = NULL;
    model_files_deinit(&r->files);
    r->files = (struct model_files){.name = NULL};
    r->path[0] = '\0';
}

/* May all take part, or is it where the user asked for it? */
static bool is_wanted_anyhow(const json_t *wanted, const char *node) {
    const char *wish = json_string_value(json_object_get(wanted, "nodes"));
    const char *home = json_string_value(json_object_get(wanted, "home"));
    return wish == NULL || str_eq(wish, "auto") || str_eq(home, node);
}

/* Does the user want this node to take part? By an address it may be known later. */
static bool is_wanted_here(const struct controller *k, const json_t *wanted) {
    return is_wanted_anyhow(wanted, k->name) ||
           controller_means_self(k, json_string_value(json_object_get(wanted, "nodes")));
}

static bool is_followed(const struct replica_run *r, const json_t *one) {
    return r->version == json_integer_value(json_object_get(one, "version")) &&
           (deployment_is_up(one) ? json_equal(r->wanted, one) : r->wanted == NULL);
}

/* Not under the lock, for which the handlers wait: to close a share takes up to some seconds.
 * Of what the list says in another way now the model is forgotten, once it does not come any
 * more. */
static void forget_what_changed(struct controller *k) {
    pthread_mutex_lock(&k->lock);
    for (struct replica_run *r = k->runs; r != NULL; r = r->next) {
        const json_t *one = deployments_find(&k->list, r->name);
        r->changed = one != NULL && !is_followed(r, one);
    }
    pthread_mutex_unlock(&k->lock);
    for (struct replica_run *r = k->runs; r != NULL; r = r->next)
        if (r->changed && r->fetch != NULL)
            atomic_store_explicit(&r->fetch->unwanted, true, memory_order_release);
        else if (r->changed)
            forget_model(r);
}

/* Takes over what the list says. What changes after forget_what_changed() waits for the next
 * round. */
static void follow_list(struct controller *k, double now) {
    const char *name;
    json_t *one;
    json_object_foreach(k->list.by_name, name, one) {
        struct replica_run *r = run_place(k, name);
        if (r == NULL || is_followed(r, one) || r->fetch != NULL ||
            (r->version != 0 && !r->changed))
            continue;
        json_int_t version = json_integer_value(json_object_get(one, "version"));
        bool up = deployment_is_up(one);
        if (r->version == version) /* other words in the same version: deployments_merge() */
            r->running_version = r->port_version = 0;
        json_decref(r->wanted);
        r->wanted = up ? json_deep_copy(one) : NULL;
        r->version = version;
        deployment_digest(one, r->id);
        r->named = up && is_wanted_here(k, r->wanted);
        r->learned_s = now;
        r->hasty = json_object_get(k->hasty, name) != NULL;
        json_object_clear(r->refused);
        r->failures = 0;
        r->served_content[0] = '\0';
        r->retry_s = r->find_s = r->fetch_s = r->read_s = 0;
        json_object_del(k->hasty, name);
    }
}

/* What another node says of a deployment. */
static const json_t *said_of(const struct other *o, const char *name, const char *key) {
    return json_object_get(json_object_get(o->runs, name), key);
}

/* May it take part? It may know of itself what is not known here. */
static bool takes_part(const struct replica_run *r, const struct other *o) {
    const char *its_id = json_string_value(said_of(o, r->name, "id"));
    return is_wanted_anyhow(r->wanted, o->name) ||
           controller_means(json_string_value(json_object_get(r->wanted, "nodes")), o) ||
           (its_id != NULL && str_eq(its_id, r->id) &&
            json_is_true(said_of(o, r->name, "named")));
}

static struct deployment_candidate candidate(const struct other *o, const char *name) {
    json_int_t term = json_integer_value(said_of(o, name, "term"));
    return (struct deployment_candidate){
        .node = o->id,
        .name = o->name,
        .term = term > 0 && term < TERM_MAX ? (uint64_t)term : 0,
        .ranks = (int)json_integer_value(said_of(o, name, "ranks")),
        .failures = (int)json_integer_value(said_of(o, name, "failures")),
        .able = json_object_get(o->able, name) != NULL};
}

/* Where another node's server listens; 0: it has none, or none that can be reached. */
static int port_of(const struct other *o, const char *name) {
    json_int_t port = json_integer_value(said_of(o, name, "port"));
    return o->host[0] != '\0' && port > 0 && port <= UINT16_MAX ? (int)port : 0;
}

static bool is_able(const struct replica_run *r, double now) {
    return r->wanted != NULL && r->named && r->path[0] != '\0' && now >= r->retry_s &&
           !controller_differs(r);
}

#define PARTY_KEY_BYTES (64 + 1 + NET_TEXT_BYTES)

static void party_key(char out[PARTY_KEY_BYTES], const struct other *o, const char *address) {
    snprintf(out, PARTY_KEY_BYTES, "%s %s", o->name, address);
}

/* What is noted there of this one; NULL: nothing. One that is back elsewhere is not the same,
 * since its rank is looked for where it was; nor is another one of that name. */
static json_t *note_of(const json_t *list, const struct other *o) {
    char key[PARTY_KEY_BYTES];
    size_t i;
    json_t *address;
    party_key(key, o, o->address);
    json_t *note = json_object_get(list, key);
    json_array_foreach(o->addresses, i, address) {
        if (note != NULL || !json_is_string(address))
            continue;
        party_key(key, o, json_string_value(address));
        note = json_object_get(list, key);
    }
    return note;
}

static bool is_noted(const json_t *list, const struct other *o) {
    return note_of(list, o) != NULL;
}

static bool is_refused(const struct replica_run *r, const struct other *o, double now) {
    const json_t *note = note_of(r->refused, o);
    return note != NULL && now < json_real_value(json_object_get(note, "until"));
}

static bool refuses_any(const struct replica_run *r, double now) {
    const char *key;
    json_t *note;
    json_object_foreach(r->refused, key, note) {
        if (now < json_real_value(json_object_get(note, "until")))
            return true;
    }
    return false;
}

/* Notes who could join the nodes that serve it with this one. */
static void look_for_joiners(const struct controller *k, struct replica_run *r, double now) {
    bool copies = json_is_true(json_object_get(r->wanted, "copies")), more = false;
    const char *joiner = NULL;
    for (size_t i = 0; i < k->n_others && r->replica.state == REPLICA_LISTENING; i++) {
        const struct other *o = &k->others[i];
        if (o->host[0] == '\0' || !takes_part(r, o) || is_noted(r->party, o) ||
            is_refused(r, o, now))
            continue;
        bool ready = !copies || json_object_get(o->able, r->name) != NULL;
        if (ready && now - o->since_s >= JOIN_S)
            joiner = o->name;
        else
            more |= now - o->since_s < (ready ? JOIN_S : JOIN_SOON_S) ||
                    json_is_true(said_of(o, r->name, "copying"));
    }
    snprintf(r->joiner, sizeof r->joiner, "%s", joiner != NULL && !more ? joiner : "");
    if (r->joiner[0] == '\0')
        r->joiner_s = 0;
    else if (r->joiner_s == 0)
        r->joiner_s = now;
}

static void look_for_requests(const struct controller *k, struct replica_run *r, double now) {
    bool busy = r->route != NULL && gateway_n_passing(r->route) > 0;
    for (size_t i = 0; i < k->n_others; i++)
        busy |= json_integer_value(said_of(&k->others[i], r->name, "requests")) > 0;
    if (busy)
        r->busy_s = now;
}

/* The port at which a node shares the model's files; 0: it does not. */
static int shares_at(const struct other *o, const struct replica_run *r) {
    return o->host[0] != '\0' ? (int)json_integer_value(json_object_get(o->able, r->name)) : 0;
}

/* Where the model can be had: after a copy that failed, from the next one. */
static void find_source(const struct controller *k, struct replica_run *r) {
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

/* For the gateway: requests under way are that server's, of that node and term. */
static void set_target(struct replica_run *r, const char *host, int port, const char *node,
                       uint64_t term) {
    snprintf(r->target, sizeof r->target, "%s:%d", host, port);
    snprintf(r->server, sizeof r->server, "%s %llu", node, (unsigned long long)term);
}

/* What there is to stand in with, and whether this node's copy is the one that is served.
 * server: the node; NULL: nobody is. */
static void look_at_standbys(const struct controller *k, struct replica_run *r,
                             const char *server) {
    bool here = server != NULL && str_eq(server, k->self);
    r->memory_left = r->term != 0 ? 0 : mem_total();
    for (size_t i = 0; i < k->n_others; i++) {
        const struct other *o = &k->others[i];
        bool serves = server != NULL && str_eq(server, o->id);
        if (!serves && r->wanted != NULL && takes_part(r, o))
            r->memory_left += (uint64_t)json_integer_value(said_of(o, r->name, "memory"));
        if (serves)
            controller_compare_content(r, o->name,
                                       json_string_value(said_of(o, r->name, "content")));
    }
    if (here)
        controller_compare_content(r, k->name, r->content);
}

/* Whose it is; and where it is served, if it is. */
static void judge(struct controller *k, struct replica_run *r, double now) {
    struct deployment_candidate all[OTHERS_MAX + 1], listening[OTHERS_MAX + 1];
    const char *hosts[OTHERS_MAX + 1], *home = json_text(r->wanted, "home");
    int ports[OTHERS_MAX + 1];
    size_t n = 0, n_listening = 0;
    if (r->wanted != NULL && !r->named)
        r->named = is_wanted_here(k, r->wanted);
    find_source(k, r);
    for (; n < k->n_others; n++) {
        const struct other *o = &k->others[n];
        int port = port_of(o, r->name);
        all[n] = candidate(o, r->name);
        r->seen_term = MAX(r->seen_term, all[n].term);
        if (port == 0 || all[n].term == 0)
            continue;
        hosts[n_listening] = o->host;
        ports[n_listening] = port;
        listening[n_listening++] = all[n];
    }
    all[n] = (struct deployment_candidate){
        k->self,    k->name,     r->term,
        r->n_ranks, r->failures, is_able(r, now) && r->replica.state == REPLICA_IDLE};
    if (r->replica.state == REPLICA_LISTENING) {
        hosts[n_listening] = "127.0.0.1";
        ports[n_listening] = r->replica.port;
        listening[n_listening++] = all[n];
    }
    size_t best = deployment_owner(r->name, home, listening, n_listening);
    r->target[0] = '\0';
    if (best < n_listening)
        set_target(r, hosts[best], ports[best], listening[best].node, listening[best].term);
    r->mine = r->wanted != NULL && deployment_owner(r->name, home, all, n + 1) == n;
    look_at_standbys(k, r, best < n_listening ? listening[best].node : NULL);
    look_for_joiners(k, r, now);
    look_for_requests(k, r, now);
}

static bool are_all_back(const struct controller *k) {
    size_t i;
    json_t *one;
    json_array_foreach(k->known, i, one) {
        bool here = false;
        for (size_t j = 0; j < k->n_others && !here; j++)
            here = str_eq(json_text(one, "name"), k->others[j].name);
        if (!here)
            return false;
    }
    return true;
}

static bool is_settled(const struct controller *k, double now) {
    double age = now - k->awake_s;
    return age >= RETURN_S || (age >= SETTLE_S && are_all_back(k));
}

/* What a machine that stood still (it was stopped, or its memory was elsewhere) has heard of the
 * others before is older than it knows: it asks them as after its own start. */
static void notice_pause(struct controller *k, double now) {
    double pause_s = now - k->round_s;
    k->round_s = now;
    if (pause_s < PAUSE_S)
        return;
    log_info("this node stood still for %.0f s: it hears the others anew", pause_s);
    k->awake_s = now;
    for (struct replica_run *r = k->runs; r != NULL; r = r->next)
        r->n_ranks = MIN(r->n_ranks, 1); /* until it is asked again */
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++)
        k->others[i].heard_s = MIN(k->others[i].heard_s + pause_s, now);
    pthread_mutex_unlock(&k->lock);
}

/* Reads what others say, and decides. True: this node may begin to serve what is its own. */
static bool judge_all(struct controller *k, double now) {
    forget_what_changed(k);
    pthread_mutex_lock(&k->lock);
    controller_expire(k, now);
    follow_list(k, now);
    bool settled = is_settled(k, now);
    for (struct replica_run *r = k->runs; r != NULL; r = r->next)
        judge(k, r, now);
    pthread_mutex_unlock(&k->lock);
    return settled;
}

/* ---- doing it ---------------------------------------------------------------------------- */

static bool is_still_there(const struct replica_run *r) {
    return r->share != NULL ? share_is_intact(r->share)
                            : model_files_are_at(&r->files, r->path);
}

/* Somebody may delete it, too: such a node could not stand in, and has to know. */
static void find_model(struct controller *k, struct replica_run *r, double now) {
    struct err err;
    if (r->wanted == NULL || r->fetch != NULL || now < r->find_s)
        return;
    r->find_s = now + (r->share != NULL ? LOOK_S : FIND_S);
    if (r->path[0] != '\0' && is_still_there(r))
        return;
    forget_model(r);
    if (r->files.name == NULL &&
        model_files_from_json(&r->files, json_object_get(r->wanted, "model"), &err) != ST_OK)
        return;
    if (!store_find(k->models, &r->files, json_string_value(json_object_get(r->wanted, "hint")),
                    r->path, sizeof r->path)) {
        r->path[0] = '\0';
        controller_note_missing(k, r);
    } else if (model_share_open(&r->share, k->id, &r->files, r->path, &err) != ST_OK)
        log_warn("%s: this node cannot give its model to others: %s", r->name, err.text);
    if (r->path[0] != '\0')
        r->lack = LACK_MISSING;
}

static bool is_fetch_wanted(void *user, uint64_t bytes) {
    struct fetch *f = user;
    (void)bytes;
    return !atomic_load_explicit(&f->unwanted, memory_order_acquire);
}

static void *fetch_main(void *user) {
    struct fetch *f = user;
    const struct store_progress progress = {is_fetch_wanted, f};
    char path[PATH_MAX];
    f->st = store_check_room(f->controller->models, &f->run->files, &f->err);
    if (f->st == ST_OK)
        f->st = store_fetch(f->controller->models, f->controller->id, f->from, &f->run->files,
                            &progress, path, sizeof path, &f->err);
    atomic_store_explicit(&f->done, true, memory_order_release);
    return NULL;
}

static void end_fetching(struct replica_run *r, double now) {
    struct fetch *f = r->fetch;
    pthread_join(f->thread, NULL);
    if (f->st == ST_OK)
        log_info("%s: its model is here now, too", r->name);
    else if (f->st != ST_CANCELLED)
        log_warn("%s: its model does not come here, so this node cannot stand in: %s", r->name,
                 f->err.text);
    if (f->st != ST_OK && f->st != ST_CANCELLED)
        controller_note_no_copy(r, f->st, f->err.text);
    r->failed_copies += f->st != ST_OK && f->st != ST_CANCELLED;
    r->fetch = NULL;
    r->find_s = now;
    r->fetch_s = now + FETCH_S;
    mem_free(f);
}

/* A node that lacks the model could not go on when the one that serves is gone: it gets a copy,
 * once that listens and has time. */
static void fetch_model(struct controller *k, struct replica_run *r, double now) {
    if (r->fetch != NULL) {
        if (atomic_load_explicit(&r->fetch->done, memory_order_acquire))
            end_fetching(r, now);
        return;
    }
    if (r->wanted == NULL || !r->named || r->path[0] != '\0' || now < r->fetch_s ||
        *r->target == '\0' || *r->source == '\0' ||
        !json_is_true(json_object_get(r->wanted, "copies")))
        return;
    struct fetch *f = mem_calloc(1, sizeof *f);
    r->fetch_s = now + FETCH_S;
    if (f == NULL)
        return;
    f->controller = k;
    f->run = r;
    memcpy(f->from, r->source, sizeof f->from);
    if (thread_start(&f->thread, fetch_main, f) != 0) {
        mem_free(f);
        return;
    }
    r->fetch = f;
    log_info("%s: its model comes here from %s", r->name, f->from);
}

/* Is another node's copy known to be another model than the one here? Its rank would end the
 * group. */
static bool has_other_content(const struct replica_run *r, const struct other *o) {
    const char *its = json_string_value(said_of(o, r->name, "content"));
    return its != NULL && *its != '\0' && r->content[0] != '\0' && !str_eq(its, r->content);
}

static bool any_has_other_content(struct controller *k, const struct replica_run *r) {
    bool any = false;
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++)
        any |= has_other_content(r, &k->others[i]);
    pthread_mutex_unlock(&k->lock);
    return any;
}

/* --nodes for the child: all that this node knows of, or, of these or of those that the user
 * named, the ones that have not been refused, nor have another copy; false: none but this
 * machine. */
static bool nodes_for(struct controller *k, const struct replica_run *r, double now, char *out,
                      size_t size) {
    size_t n = 0;
    if (str_eq(json_text(r->wanted, "nodes"), "auto") && !refuses_any(r, now) &&
        !any_has_other_content(k, r))
        return snprintf(out, size, "auto@%s", k->own_address) < (int)size;
    *out = '\0';
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++) {
        const struct other *o = &k->others[i];
        if (takes_part(r, o) && !is_refused(r, o, now) && !has_other_content(r, o) &&
            o->address[0] != '\0' && n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? "," : "", o->address);
    }
    pthread_mutex_unlock(&k->lock);
    return n > 0 && n < size;
}

static void failed(struct replica_run *r, double now) {
    r->failures++;
    r->retry_s = now + ldexp(1, MIN(r->failures, RETRY_LOG2_MAX));
    log_error("%s: %s; once more in %.0f s, here or elsewhere", r->name, r->replica.last,
              r->retry_s - now);
}

static void remember_party(struct controller *k, struct replica_run *r, double now) {
    json_t *party = json_object();
    json_decref(r->joiners);
    r->joiners = json_object();
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++) {
        const struct other *o = &k->others[i];
        char key[PARTY_KEY_BYTES];
        if (o->host[0] == '\0' || !takes_part(r, o) || is_refused(r, o, now))
            continue;
        party_key(key, o, o->address);
        json_object_set_new(party, key, json_true());
        if (r->joining && !is_noted(r->party, o))
            json_object_set_new(r->joiners, key, json_string(o->name));
    }
    pthread_mutex_unlock(&k->lock);
    json_decref(r->party);
    r->party = party;
}

static void begin_serving(struct controller *k, struct replica_run *r, double now) {
    char nodes[OTHERS_MAX * 32];
    struct err err;
    bool has_nodes = nodes_for(k, r, now, nodes, sizeof nodes);
    const struct replica_place place = {.program = k->program,
                                        .state = k->state,
                                        .path = r->path,
                                        .nodes = has_nodes ? nodes : NULL};
    remember_party(k, r, now);
    r->hasty = r->joining = false;
    if (r->path[0] != '\0' && !model_files_are_at(&r->files, r->path)) {
        sentence_print(r->replica.last, sizeof r->replica.last,
                       "%.300s is gone, or has become another model", r->path);
        log_warn("%s: %s", r->name, r->replica.last);
        forget_model(r);
        failed(r, now);
        return;
    }
    /* Also of words that came from another node, or from the disk. */
    if (k->check_words(json_object_get(r->wanted, "args"), &err) != ST_OK ||
        replica_start(&r->replica, r->wanted, &place, &err) != ST_OK) {
        sentence_print(r->replica.last, sizeof r->replica.last, "%s", err.text);
        failed(r, now);
        return;
    }
    r->term = ++r->seen_term;
    r->n_ranks = 1 + (int)json_object_size(r->party); /* until it listens, and says it */
    r->running_version = r->version;
    log_info("%s: this node serves it", r->name);
}

static bool is_time_to_join(const struct replica_run *r, double now) {
    double latest_s = MIN(JOIN_LATEST_PAUSES * r->replica.load_s, JOIN_LATEST_S);
    return r->joiner[0] != '\0' &&
           (now - r->busy_s >= JOIN_IDLE_S || now - r->joiner_s >= latest_s);
}

/* A node that has come must not be the end of what was served without it. */
static void refuse_joiners(struct replica_run *r, double now) {
    const char *key;
    json_t *name;
    if (r->refused == NULL)
        r->refused = json_object();
    json_object_foreach(r->joiners, key, name) {
        json_t *before = json_object_get(json_object_get(r->refused, key), "for");
        double wait = before != NULL
                          ? 2 * json_real_value(before)
                          : REFUSED_PAUSES * MAX(r->replica.load_s, REFUSED_PAUSE_MIN_S);
        wait = MIN(wait, REFUSED_MAX_S);
        log_warn("%s: it does not begin with %s, and goes on without: %s; once more in %.0f s",
                 r->name, json_string_value(name), r->replica.last, wait);
        json_object_set_new(r->refused, key,
                            json_pack("{s:f, s:f}", "for", wait, "until", now + wait));
    }
}

/* Those with which it has begun since, and stayed. */
static void forgive_joiners(struct replica_run *r) {
    const char *key;
    json_t *one;
    json_object_foreach(r->party, key, one) {
        json_object_del(r->refused, key);
    }
}

/* It has just begun to listen. What was checked before it began may have been changed before it
 * opened it, and then it is another model, which nobody may be told of. */
static void check_what_it_opened(struct replica_run *r) {
    if (r->wanted == NULL || r->path[0] == '\0' || is_still_there(r))
        return;
    log_warn("%s: %s was changed while the server began: it ends", r->name, r->path);
    replica_kill(&r->replica);
}

static void go_on_serving(struct controller *k, struct replica_run *r, double now) {
    bool stopping = r->replica.state == REPLICA_STOPPING;
    bool listened = r->replica.state == REPLICA_LISTENING;
    if (r->replica.state == REPLICA_LISTENING)
        json_object_clear(r->joiners);
    if (r->replica.state == REPLICA_LISTENING && now - r->replica.begin_s >= PROVEN_S) {
        r->failures = 0;
        forgive_joiners(r);
    }
    if (!stopping && (!r->mine || r->running_version != r->version)) {
        log_info("%s: %s", r->name,
                 r->wanted == NULL ? "it is taken down" : "another node serves it");
        replica_stop(&r->replica);
    } else if (!stopping && is_time_to_join(r, now)) {
        log_info("%s: %s has come: starting again, with it", r->name, r->joiner);
        r->joining = true;
        replica_stop(&r->replica);
    }
    if (!replica_look(&r->replica, r->name)) {
        if (r->replica.state == REPLICA_LISTENING && !listened)
            check_what_it_opened(r);
        return;
    }
    bool joined = !stopping && json_object_size(r->joiners) > 0;
    if (joined)
        refuse_joiners(r, now);
    if ((joined || r->joining) && r->mine && r->running_version == r->version) {
        begin_serving(k, r, now);
        return;
    }
    r->joining = false;
    r->term = 0;
    forget_model(r); /* it may be gone, and that be the cause */
    r->find_s = now;
    if (!stopping)
        failed(r, now);
}

/* A node that hears of a deployment gives the one where it was asked for the time to say so. */
static bool may_begin(const struct replica_run *r, bool settled, double now) {
    return r->wanted != NULL && r->mine && r->path[0] != '\0' &&
           (r->hasty || (settled && now - r->learned_s >= SETTLE_S));
}

static void do_all(struct controller *k, bool settled, double now) {
    for (struct replica_run *r = k->runs; r != NULL; r = r->next) {
        controller_keep_port(k, r, now);
        controller_read_content(r, now);
        if (r->replica.state != REPLICA_IDLE) {
            go_on_serving(k, r, now);
            continue;
        }
        find_model(k, r, now);
        fetch_model(k, r, now);
        if (may_begin(r, settled, now))
            begin_serving(k, r, now);
    }
}

/* Whatever the child has said, the others hear of the run. */
static json_t *sentence_of(const struct replica_run *r) {
    const char *sentence =
        r->replica.state != REPLICA_LISTENING ? r->replica.last : r->port_err.text;
    return bytes_json(sentence, strlen(sentence));
}

static const char *state_of(const struct replica_run *r) {
    switch (r->replica.state) {
    case REPLICA_STARTING:
        return "starting";
    case REPLICA_LISTENING:
        return "listening";
    case REPLICA_STOPPING:
        return r->joining ? "starting" : "stopping";
    default:
        return r->failures > 0 ? "failed" : "waiting";
    }
}

/* What the others, and users, hear of this node. One that stops does not run it any more, but
 * to begin again. */
static void publish(struct controller *k, double now) {
    json_t *runs = json_object(), *able = json_object();
    for (struct replica_run *r = k->runs; r != NULL; r = r->next) {
        bool idle = r->replica.state == REPLICA_IDLE;
        if (r->wanted == NULL && idle)
            continue;
        bool runs_it = !idle && (r->replica.state != REPLICA_STOPPING || r->joining);
        json_object_set_new(
            runs, r->name,
            json_pack(
                "{s:s, s:b, s:I, s:s, s:I, s:i, s:i, s:i, s:i, s:b, s:b, s:s, s:o, s:s, s:I, s:o}",
                "id", r->id, "named", r->named, "version",
                idle ? r->version : r->running_version, "state", state_of(r), "term",
                (json_int_t)(runs_it ? r->term : 0), "ranks", r->n_ranks, "failures",
                r->failures, "port",
                r->replica.state == REPLICA_LISTENING ? r->replica.port : 0, "requests",
                r->route != NULL ? gateway_n_passing(r->route) : 0, "copying", r->fetch != NULL,
                "answers",
                r->route != NULL && *r->target != '\0' && r->port_version == r->version,
                "closed", r->port_err.text, "sentence", sentence_of(r), "content", r->content,
                "memory", (json_int_t)mem_total(), "standby", controller_standby(r, now)));
        /* Where others may fetch the model from; 0: they may not, but this node may serve. */
        if (is_able(r, now))
            json_object_set_new(
                able, r->name, json_integer(r->share != NULL ? model_share_port(r->share) : 0));
    }
    pthread_mutex_lock(&k->lock);
    json_decref(k->self_runs);
    json_decref(k->self_able);
    k->self_runs = runs;
    k->self_able = able;
    pthread_mutex_unlock(&k->lock);
}

/* ---- what is kept ------------------------------------------------------------------------ */

/* Under the save lock. */
static enum status write_list(struct controller *k, const struct deployments *list,
                              struct err *err) {
    char digest[DEPLOYMENTS_DIGEST_BYTES];
    deployments_digest(list, digest);
    if (str_eq(digest, k->saved))
        return ST_OK;
    TRY(deployments_write(list, k->list_path, err));
    snprintf(k->saved, sizeof k->saved, "%s", digest);
    return ST_OK;
}

/* by_name: NULL if there is no memory. */
static struct deployments copy_list(struct controller *k) {
    pthread_mutex_lock(&k->lock);
    struct deployments copy = {.by_name = json_deep_copy(k->list.by_name)};
    pthread_mutex_unlock(&k->lock);
    return copy;
}

void controller_save_list(struct controller *k) {
    struct err err;
    char digest[DEPLOYMENTS_DIGEST_BYTES];
    pthread_mutex_lock(&k->save_lock);
    pthread_mutex_lock(&k->lock);
    deployments_digest(&k->list, digest);
    pthread_mutex_unlock(&k->lock);
    if (!str_eq(digest, k->saved)) {
        struct deployments copy = copy_list(k);
        enum status st = copy.by_name != NULL ? write_list(k, &copy, &err) : ST_AGAIN;
        if (st != ST_OK && st != ST_AGAIN && !k->said_save)
            log_error("deployments are not kept across a start of this node: %s", err.text);
        k->said_save = st != ST_OK;
        deployments_deinit(&copy);
    }
    pthread_mutex_unlock(&k->save_lock);
}

static void set_hasty(struct controller *k, const char *name, bool is) {
    if (name == NULL)
        return;
    pthread_mutex_lock(&k->lock);
    if (is)
        json_object_set_new(k->hasty, name, json_true());
    else
        json_object_del(k->hasty, name);
    pthread_mutex_unlock(&k->lock);
}

/* What is newer in a copy of the list; another node may have told of something meanwhile. */
static enum status take_changes(struct controller *k, const struct deployments *copy,
                                struct err *err) {
    bool changed;
    json_t *list = deployments_list(copy);
    if (list == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for deployments");
    pthread_mutex_lock(&k->lock);
    enum status st = deployments_merge(&k->list, list, &changed, err);
    pthread_mutex_unlock(&k->lock);
    json_decref(list);
    return st;
}

enum status controller_change_list(struct controller *k,
                                   enum status (*change)(struct deployments *d,
                                                         const json_t *wish, struct err *err),
                                   const json_t *wish, const char *hasty, struct err *err) {
    pthread_mutex_lock(&k->save_lock);
    struct deployments copy = copy_list(k);
    enum status st = copy.by_name != NULL
                         ? change(&copy, wish, err)
                         : err_set(err, ST_NO_MEMORY, "no memory for deployments");
    if (st == ST_OK && (st = write_list(k, &copy, err)) != ST_OK)
        err_prefix(err, st, "nothing is changed, since %s could not keep it: ", k->name);
    if (st == ST_OK) {
        set_hasty(k, hasty, true); /* before the thread sees it */
        st = take_changes(k, &copy, err);
        if (st != ST_OK)
            set_hasty(k, hasty, false);
    }
    pthread_mutex_unlock(&k->save_lock);
    deployments_deinit(&copy);
    return st;
}

/* [{"name", "addresses"}] of all that are heard. */
static json_t *list_known(const struct controller *k) {
    json_t *known = json_array();
    for (size_t i = 0; i < k->n_others; i++)
        json_array_append_new(known,
                              json_pack("{s:s, s:o}", "name", k->others[i].name, "addresses",
                                        controller_addresses(&k->others[i])));
    return known;
}

/* Who is there, for the next start: for whom it waits then, and whom it asks, whoever of its
 * seeds is there. Not at once: after a start they are not all back. */
static void save_known(struct controller *k, double now) {
    struct file_new file;
    struct err err;
    if (now < k->save_known_s)
        return;
    k->save_known_s = now + KNOWN_GAP_S;
    pthread_mutex_lock(&k->lock);
    json_t *known = list_known(k);
    pthread_mutex_unlock(&k->lock);
    if (!json_equal(known, k->known) && file_new_open(&file, k->known_path, &err) == ST_OK) {
        if (json_dumpf(known, file.f, JSON_COMPACT) == 0)
            file_new_finish(&file, true, &err);
        file_new_drop(&file);
        json_decref(k->known);
        k->known = json_incref(known);
    }
    json_decref(known);
}

/* ---- the thread -------------------------------------------------------------------------- */

static void *controller_main(void *user) {
    struct controller *k = user;
    struct pollfd fd = {.fd = k->wake.fds[0], .events = POLLIN};
    while (!controller_is_closing(k)) {
        double now = clock_s();
        if (now >= k->gossip_s) {
            k->gossip_s = now + GOSSIP_S;
            controller_gossip(k);
            now = clock_s();
        }
        notice_pause(k, now);
        do_all(k, judge_all(k, now), now);
        publish(k, now);
        controller_save_list(k);
        save_known(k, now);
        k->round_s = clock_s();
        poll(&fd, 1, LOOK_MS);
        wake_drain(&k->wake);
    }
    return NULL;
}

/* ---- opening and closing ----------------------------------------------------------------- */

static bool copy_texts(struct controller *k, const struct controller_config *cfg) {
    static const char *const names[] = {"deployments.json", "known.json"};
    char **const paths[] = {&k->list_path, &k->known_path};
    for (int i = 0; i < 2; i++) {
        size_t size = strlen(cfg->state) + strlen(names[i]) + 2;
        if ((*paths[i] = mem_alloc(size)) == NULL)
            return false;
        snprintf(*paths[i], size, "%s/%s", cfg->state, names[i]);
    }
    k->models = mem_strdup(cfg->models);
    k->state = mem_strdup(cfg->state);
    k->seeds = cfg->seeds != NULL ? mem_strdup(cfg->seeds) : NULL;
    k->program = cfg->program != NULL ? mem_strdup(cfg->program) : NULL;
    return k->models != NULL && k->state != NULL && (cfg->seeds == NULL || k->seeds != NULL) &&
           (cfg->program == NULL || k->program != NULL);
}

static void controller_free(struct controller *k) {
    while (k->runs != NULL) {
        struct replica_run *r = k->runs;
        k->runs = r->next;
        controller_leave_port(k, r);
        forget_model(r);
        json_decref(r->wanted);
        json_decref(r->party);
        json_decref(r->joiners);
        json_decref(r->refused);
        mem_free(r);
    }
    for (size_t i = 0; i < k->n_peers; i++)
        client_close(k->peers[i].client);
    while (k->n_others > 0)
        controller_drop(k, 0);
    for (size_t i = 0; i < k->n_told; i++)
        json_decref(k->told[i].addresses);
    deployments_deinit(&k->list);
    json_decref(k->hasty);
    json_decref(k->known);
    json_decref(k->self_runs);
    json_decref(k->self_able);
    json_decref(k->self_addresses);
    wake_close(&k->wake);
    pthread_mutex_destroy(&k->lock);
    pthread_mutex_destroy(&k->save_lock);
    mem_free(k->seeds);
    mem_free(k->models);
    mem_free(k->state);
    mem_free(k->program);
    mem_free(k->list_path);
    mem_free(k->known_path);
    mem_free(k);
}

static enum status check_seeds(const struct controller *k, struct err *err) {
    char list[SEEDS_BYTES], *rest = list, *seed, address[NET_TEXT_BYTES];
    struct client *c;
    if (k->seeds == NULL)
        return ST_OK;
    if (snprintf(list, sizeof list, "%s", k->seeds) >= (int)sizeof list)
        return err_set(err, ST_BAD_INPUT, "--seeds is too long");
    while ((seed = strsep(&rest, ",")) != NULL) {
        enum status st = client_full_address(seed, address, sizeof address)
                             ? client_open(&c, k->id, seed, err)
                             : err_set(err, ST_BAD_INPUT, "%.40s... is too long", seed);
        if (st != ST_OK)
            return err_prefix(err, st, "--seeds: ");
        client_close(c);
    }
    return ST_OK;
}

static enum status load(struct controller *k, struct err *err) {
    char *text;
    enum status st = deployments_read(&k->list, k->list_path, err);
    if (st != ST_OK && st != ST_NOT_FOUND)
        return st;
    /* Else an empty one is written now: whether that works is known before there is something to
     * keep. */
    if (st == ST_OK)
        deployments_digest(&k->list, k->saved);
    if (file_read_text(&text, NULL, k->known_path, (size_t)1 << 20, err) == ST_OK) {
        k->known = json_loads(text, 0, NULL); /* a damaged one is none */
        mem_free(text);
    }
    return ST_OK;
}

enum status controller_open(struct controller **out, const struct controller_config *cfg,
                            struct err *err) {
    struct controller *k = mem_calloc(1, sizeof *k);
    uint8_t id[BEACON_ID_BYTES], machine[32];
    if (k == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a cluster's deployments");
    k->id = cfg->id;
    k->discovery = cfg->discovery;
    k->wake = (struct wake)WAKE_CLOSED;
    k->api_port = cfg->port;
    k->awake_s = k->round_s = clock_s();
    k->save_known_s = k->awake_s + KNOWN_S;
    k->check_words = cfg->check_words;
    randombytes_buf(id, sizeof id);
    sodium_bin2hex(k->self, sizeof k->self, cfg->node != NULL ? cfg->node : id, sizeof id);
    host_id(machine);
    sodium_bin2hex(k->machine, sizeof k->machine, machine, BEACON_ID_BYTES);
    net_join(k->own_address, sizeof k->own_address,
             cfg->host != NULL && !str_eq(cfg->host, "*") ? cfg->host : "127.0.0.1", cfg->port);
    snprintf(k->name, sizeof k->name, "%s", cfg->name);
    pthread_mutex_init(&k->lock, NULL);
    pthread_mutex_init(&k->save_lock, NULL);
    k->hasty = json_object();
    k->self_runs = json_object();
    k->self_able = json_object();
    k->self_addresses = json_array();
    enum status st = deployments_init(&k->list, err);
    if (st == ST_OK && (k->hasty == NULL || k->self_runs == NULL || k->self_able == NULL ||
                        k->self_addresses == NULL || !copy_texts(k, cfg)))
        st = err_set(err, ST_NO_MEMORY, "no memory for a cluster's deployments");
    if (st == ST_OK)
        st = check_seeds(k, err);
    if (st == ST_OK)
        st = load(k, err);
    if (st == ST_OK)
        st = wake_open(&k->wake, err);
    if (st == ST_OK && thread_start(&k->thread, controller_main, k) != 0)
        st = err_set(err, ST_NO_MEMORY, "no thread for a cluster's deployments");
    if (st != ST_OK) {
        controller_free(k);
        return st;
    }
    *out = k;
    return ST_OK;
}

void controller_leave(struct controller *k) {
    pthread_mutex_lock(&k->lock);
    k->closing = true;
    pthread_mutex_unlock(&k->lock);
    wake_ring(&k->wake);
    pthread_join(k->thread, NULL);
    k->left_s = clock_s();
    controller_drain_ports(k, 0);
    for (struct replica_run *r = k->runs; r != NULL; r = r->next) {
        replica_stop(&r->replica);
        if (r->fetch != NULL)
            atomic_store_explicit(&r->fetch->unwanted, true, memory_order_release);
    }
    controller_say_goodbye(k);
}

/* Until all have ended; replica_look() kills those that take too long. */
static void wait_for_children(struct controller *k) {
    for (struct replica_run *r = k->runs; r != NULL; r = r->next) {
        if (r->fetch != NULL)
            end_fetching(r, clock_s());
        while (r->replica.state != REPLICA_IDLE && !replica_look(&r->replica, r->name))
            poll(NULL, 0, 20);
    }
}

void controller_close(struct controller *k) {
    if (k == NULL)
        return;
    if (k->left_s == 0)
        controller_leave(k);
    wait_for_children(k);
    controller_drain_ports(k, k->left_s + REPLICA_FINISH_S - clock_s());
    controller_free(k);
}
