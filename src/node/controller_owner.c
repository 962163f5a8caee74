/* controller_owner.c: whose each deployment is, from what all nodes say: takes over what the list
 * says, and decides for each whether this node serves it and where it is served. Under the lock. */
#include "node/controller_internal.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"

#include <stdio.h>

/* After a power cut a node waits for those whom it knew before for so long: otherwise the first to
 * be back would serve alone. */
#define RETURN_S 30.0
/* A round's questions take less: whoever needed longer stood still. */
#define PAUSE_S 5.0
#define TERM_MAX ((json_int_t)1 << 52)

static struct replica_run *run_place(struct controller *k, const char *name) {
    struct replica_run **at = &k->runs;
    while (*at != NULL && !str_eq((*at)->name, name))
        at = &(*at)->next;
    if (*at == NULL && (*at = mem_calloc(1, sizeof **at)) != NULL)
        snprintf((*at)->name, sizeof(*at)->name, "%s", name);
    return *at;
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
            controller_stop_fetching(r);
        else if (r->changed)
            controller_forget_model(r);
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

const json_t *controller_said_of(const struct other *o, const char *name, const char *key) {
    return json_object_get(json_object_get(o->runs, name), key);
}

bool controller_takes_part(const struct replica_run *r, const struct other *o) {
    const char *its_id = json_string_value(controller_said_of(o, r->name, "id"));
    return is_wanted_anyhow(r->wanted, o->name) ||
           controller_means(json_string_value(json_object_get(r->wanted, "nodes")), o) ||
           (its_id != NULL && str_eq(its_id, r->id) &&
            json_is_true(controller_said_of(o, r->name, "named")));
}

static struct deployment_candidate candidate(const struct other *o, const char *name) {
    json_int_t term = json_integer_value(controller_said_of(o, name, "term"));
    return (struct deployment_candidate){
        .node = o->id,
        .name = o->name,
        .term = term > 0 && term < TERM_MAX ? (uint64_t)term : 0,
        .ranks = (int)json_integer_value(controller_said_of(o, name, "ranks")),
        .failures = (int)json_integer_value(controller_said_of(o, name, "failures")),
        .able = json_object_get(o->able, name) != NULL};
}

/* Where another node's server listens; 0: it has none, or none that can be reached. */
static int port_of(const struct other *o, const char *name) {
    json_int_t port = json_integer_value(controller_said_of(o, name, "port"));
    return o->host[0] != '\0' && port > 0 && port <= UINT16_MAX ? (int)port : 0;
}

bool controller_is_able(const struct replica_run *r, double now) {
    return r->wanted != NULL && r->named && r->path[0] != '\0' && now >= r->retry_s &&
           !controller_differs(r);
}

static void look_for_requests(const struct controller *k, struct replica_run *r, double now) {
    bool busy = r->route != NULL && gateway_n_passing(r->route) > 0;
    for (size_t i = 0; i < k->n_others; i++)
        busy |= json_integer_value(controller_said_of(&k->others[i], r->name, "requests")) > 0;
    if (busy)
        r->busy_s = now;
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
        if (!serves && r->wanted != NULL && controller_takes_part(r, o))
            r->memory_left +=
                (uint64_t)json_integer_value(controller_said_of(o, r->name, "memory"));
        if (serves)
            controller_compare_content(
                r, o->name, json_string_value(controller_said_of(o, r->name, "content")));
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
    controller_look_for_joiners(k, r, now);
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
    return age >= RETURN_S || (age >= CONTROLLER_SETTLE_S && are_all_back(k));
}

void controller_notice_pause(struct controller *k, double now) {
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
