/* controller_owner.c: which node owns each deployment, from the reports of all nodes. It takes
 * over the list, and decides for each deployment whether this node serves it and where it is
 * served. Under the lock. */
#include "node/controller_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"

#include <stdio.h>

/* After a power cut a node waits this long for the nodes that it knew before. Otherwise the
 * first one to be back would serve alone. */
#define RETURN_S 30.0
/* A round's questions take less: a node that needed longer has stalled. */
#define PAUSE_S 5.0

static struct replica_run *run_place(struct controller *k, const char *name) {
    struct replica_run **at = &k->runs;
    while (*at != NULL && !str_eq((*at)->name, name))
        at = &(*at)->next;
    if (*at == NULL && (*at = mem_calloc(1, sizeof **at)) != NULL)
        snprintf((*at)->name, sizeof(*at)->name, "%s", name);
    return *at;
}

/* May all take part, or is it where the user asked for it? */
static bool is_wanted_anyhow(const struct deployment *wanted, const char *node) {
    return str_eq(wanted->nodes, "auto") || str_eq(wanted->home, node);
}

/* Does the user want this node to take part? By an address it may be known later. */
static bool is_wanted_here(const struct controller *k, const struct deployment *wanted) {
    return is_wanted_anyhow(wanted, k->name) || controller_means_self(k, wanted->nodes);
}

static bool is_followed(const struct replica_run *r, const struct deployment *one) {
    if (r->version != one->version || one->up != (r->wanted != NULL))
        return false;
    return !one->up || deployment_equal(r->wanted, one);
}

static size_t hasty_place(const struct controller *k, const char *name) {
    size_t i = 0;
    while (i < k->n_hasty && !str_eq(k->hasty[i], name))
        i++;
    return i;
}

bool controller_note_hasty(struct controller *k, const char *name) {
    size_t i = hasty_place(k, name);
    if (i < k->n_hasty)
        return true;
    if (!mem_reserve(&k->hasty, &k->cap_hasty, k->n_hasty + 1, sizeof k->hasty[0]))
        return false;
    snprintf(k->hasty[k->n_hasty++], sizeof k->hasty[0], "%s", name);
    return true;
}

bool controller_forget_hasty(struct controller *k, const char *name) {
    size_t i = hasty_place(k, name);
    if (i == k->n_hasty)
        return false;
    memmove(k->hasty[i], k->hasty[--k->n_hasty], sizeof k->hasty[0]);
    return true;
}

/* Not under the lock, for which the handlers wait: to close a share takes up to some seconds.
 * Of what the list says in another way now the model is forgotten, once it does not come any
 * more. */
static void forget_what_changed(struct controller *k) {
    pthread_mutex_lock(&k->lock);
    for (struct replica_run *r = k->runs; r != NULL; r = r->next) {
        const struct deployment *one = deployments_find(&k->list, r->name);
        r->changed = one != NULL && !is_followed(r, one);
    }
    pthread_mutex_unlock(&k->lock);
    for (struct replica_run *r = k->runs; r != NULL; r = r->next)
        if (r->changed && r->fetch != NULL)
            controller_stop_fetching(r);
        else if (r->changed)
            controller_forget_model(r);
}

static void note_move(struct controller *k, const struct replica_run *r,
                      const struct deployment *one) {
    double time = (double)one->version;
    const char *how = one->layout_parallel, *nodes = one->layout_nodes;
    if (deployment_same_layout(r->wanted, one))
        history_note(&k->history, time, HAPPENED_MOVED, one->home, one->name, "%s moves to %s",
                     one->name, one->home);
    else if (nodes == NULL)
        history_note(&k->history, time, HAPPENED_MOVED, one->home, one->name,
                     "%s is to run at %s, as is fastest", one->name, one->home);
    else
        history_note(&k->history, time, HAPPENED_MOVED, one->home, one->name,
                     "%s is to run on %s%s%s, and %s to answer", one->name, nodes,
                     str_eq(how, "auto") ? "" : " as ", str_eq(how, "auto") ? "" : how,
                     one->home);
}

/* Each node notes the same at the same time, that of the request. */
static void note_change(struct controller *k, const struct replica_run *r,
                        const struct deployment *one) {
    if (!one->up && r->wanted != NULL)
        controller_remember_keys(k, r->wanted);
    if (!one->up && r->wanted != NULL)
        history_note(&k->history, (double)one->version, HAPPENED_DOWN, "", one->name,
                     "%s was taken down", one->name);
    else if (one->moved && r->wanted != NULL)
        note_move(k, r, one);
    else if (one->up)
        history_note(&k->history, (double)one->since, HAPPENED_UP, one->home, one->name,
                     "%s was put up at %s", one->name, one->home);
}

static void follow(struct controller *k, struct replica_run *r, const struct deployment *one,
                   double now) {
    struct deployment *wanted = one->up ? deployment_copy(one) : NULL;
    if (one->up && wanted == NULL)
        return; /* no memory: in the next round */
    note_change(k, r, one);
    if (r->version == one->version) /* other words in the same version: deployments_merge() */
        r->running_version = r->port_version = 0;
    deployment_free(r->wanted);
    r->wanted = wanted;
    r->version = one->version;
    deployment_digest(one, r->id);
    r->named = wanted != NULL && is_wanted_here(k, wanted);
    r->learned_s = now;
    r->hasty = controller_forget_hasty(k, one->name) ||
               (one->up && one->moved && str_eq(one->home, k->name));
    r->refused.n = 0;
    r->failures = 0;
    r->served_content[0] = '\0';
    r->keep = (struct keep){.term = 0};
    r->known_asleep &= wanted != NULL && one->moved; /* it stays so, at another node */
    r->retry_s = r->find_s = r->fetch_s = r->read_s = 0;
}

/* Takes over what the list says. What changes after forget_what_changed() waits for the next
 * round. */
static void follow_list(struct controller *k, double now) {
    for (size_t i = 0; i < k->list.n; i++) {
        const struct deployment *one = k->list.list[i];
        struct replica_run *r = run_place(k, one->name);
        if (r != NULL && !is_followed(r, one) && r->fetch == NULL &&
            (r->version == 0 || r->changed))
            follow(k, r, one, now);
    }
}

bool controller_takes_part(const struct replica_run *r, const struct other *o) {
    const struct run_report *its = report_of(&o->report, r->name);
    return r->wanted != NULL &&
           (is_wanted_anyhow(r->wanted, o->name) || controller_means(r->wanted->nodes, o) ||
            (str_eq(its->id, r->id) && its->named));
}

static struct deployment_candidate candidate(const struct other *o, const char *name) {
    const struct run_report *its = report_of(&o->report, name);
    return (struct deployment_candidate){.node = o->id,
                                         .name = o->name,
                                         .term = its->term,
                                         .ranks = its->ranks,
                                         .failures = its->failures,
                                         .able = report_able(&o->report, name) != NULL};
}

/* Where another node's server listens; 0: it has none, or none that can be reached. */
static int port_of(const struct other *o, const char *name) {
    return o->host[0] != '\0' ? report_of(&o->report, name)->port : 0;
}

bool controller_is_able(const struct replica_run *r, double now) {
    return r->wanted != NULL && r->named && r->path[0] != '\0' && now >= r->retry_s &&
           !controller_differs(r);
}

static void look_for_requests(const struct controller *k, struct replica_run *r, double now) {
    bool busy = r->route != NULL && gateway_n_passing(r->route) > 0;
    for (size_t i = 0; i < k->n_others; i++)
        busy |= report_of(&k->others[i].report, r->name)->requests > 0;
    if (busy)
        r->busy_s = now;
}

/* For the gateway: requests under way are that server's, of that node and term. */
static void set_target(struct replica_run *r, const char *host, int port, const char *node,
                       uint64_t term) {
    snprintf(r->target, sizeof r->target, "%s:%d", host, port);
    snprintf(r->server, sizeof r->server, "%s %llu", node, (unsigned long long)term);
}

/* Whether this node could take over, and whether its copy is the model that is served. server:
 * the serving node; NULL: none. */
static void look_at_standbys(const struct controller *k, struct replica_run *r,
                             const char *server) {
    bool here = server != NULL && str_eq(server, k->self);
    r->memory_left = r->term != 0 ? 0 : mem_total();
    for (size_t i = 0; i < k->n_others; i++) {
        const struct other *o = &k->others[i];
        const struct run_report *its = report_of(&o->report, r->name);
        bool serves = server != NULL && str_eq(server, o->id);
        if (!serves && controller_takes_part(r, o))
            r->memory_left += its->memory;
        if (serves)
            controller_compare_content(r, o->name, its->content);
    }
    if (here)
        controller_compare_content(r, k->name, r->content);
}

/* Which node begins to serve it. */
static void look_for_coming(const struct controller *k, struct replica_run *r) {
    const char *coming = r->replica.state == REPLICA_STARTING ? k->name : "";
    for (size_t i = 0; i < k->n_others && *coming == '\0'; i++)
        if (report_of(&k->others[i].report, r->name)->state == RUN_STARTING)
            coming = k->others[i].name;
    snprintf(r->coming, sizeof r->coming, "%s", coming);
}

/* Its ranks before still hold the memory of the machines. */
static bool is_still_held(const struct controller *k, const struct replica_run *r) {
    bool held = false;
    for (size_t i = 0; i < k->n_others && r->wanted->moved; i++)
        held |= report_of(&k->others[i].report, r->name)->state == RUN_STOPPING;
    return held && r->replica.state == REPLICA_IDLE;
}

/* Whose it is; and where it is served, if it is. */
static void judge(struct controller *k, struct replica_run *r, double now) {
    struct deployment_candidate all[OTHERS_MAX + 1], listening[OTHERS_MAX + 1];
    const char *hosts[OTHERS_MAX + 1], *home = r->wanted != NULL ? r->wanted->home : "";
    int ports[OTHERS_MAX + 1];
    size_t n = 0, n_listening = 0;
    if (r->wanted != NULL && !r->named)
        r->named = is_wanted_here(k, r->wanted);
    controller_find_source(k, r);
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
        k->self,     k->name,
        r->term,     r->n_ranks,
        r->failures, controller_is_able(r, now) && r->replica.state == REPLICA_IDLE};
    if (r->replica.state == REPLICA_LISTENING || (r->sleeping && r->replica.port > 0)) {
        hosts[n_listening] = "127.0.0.1";
        ports[n_listening] = r->replica.port;
        listening[n_listening++] = all[n];
    }
    size_t best = deployment_owner(r->name, home, listening, n_listening);
    r->target[0] = '\0';
    if (best < n_listening)
        snprintf(r->server_name, sizeof r->server_name, "%s", listening[best].name);
    if (best < n_listening)
        r->target_term = listening[best].term;
    if (best < n_listening)
        set_target(r, hosts[best], ports[best], listening[best].node, listening[best].term);
    r->mine = r->wanted != NULL && deployment_owner(r->name, home, all, n + 1) == n &&
              !is_still_held(k, r);
    look_for_coming(k, r);
    look_at_standbys(k, r, best < n_listening ? listening[best].node : NULL);
    controller_look_for_joiners(k, r, now);
    look_for_requests(k, r, now);
    controller_look_at_sleep(k, r, now);
}

static bool is_here(const struct controller *k, const char *name) {
    for (size_t i = 0; i < k->n_others; i++)
        if (str_eq(k->others[i].name, name))
            return true;
    return false;
}

static bool are_all_back(const struct controller *k) {
    for (size_t i = 0; i < k->n_known; i++)
        if (!is_here(k, k->known[i].name))
            return false;
    return true;
}

static bool is_settled(const struct controller *k, double now) {
    double age = now - k->awake_s;
    return age >= RETURN_S || (age >= CONTROLLER_SETTLE_S && are_all_back(k));
}

void controller_notice_pause(struct controller *k, double now) {
    double pause_s = now - k->round_s;
    k->round_s = now;
    if (pause_s < PAUSE_S)
        return;
    log_info("this node stood still for %.0f s: it listens to the others again first", pause_s);
    k->awake_s = now;
    for (struct replica_run *r = k->runs; r != NULL; r = r->next)
        r->n_ranks = MIN(r->n_ranks, 1); /* until it is asked again */
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++)
        k->others[i].heard_s = MIN(k->others[i].heard_s + pause_s, now);
    pthread_mutex_unlock(&k->lock);
}

bool controller_judge_all(struct controller *k, double now) {
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
