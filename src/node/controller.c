/* controller.c: the controller's thread. A few times a second it reads from its children, asks
 * the other nodes, decides for each deployment whether this node serves it, and acts on that.
 * The lock guards the data for decisions and for the handlers' answers. Actions (children,
 * files, the network) run without it. */
#include "node/controller_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "net/host_id.h"

#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOK_MS 200
#define GOSSIP_S 1.0
#define KNOWN_S 60.0 /* after a start; then the nodes known before are back, or are not */

bool controller_is_closing(struct controller *k) {
    pthread_mutex_lock(&k->lock);
    bool closing = k->closing;
    pthread_mutex_unlock(&k->lock);
    return closing;
}

/* A question here waits for a model that another node holds asleep: that one hears of it at
 * once. */
static void call_owner(struct controller *k, struct replica_run *r) {
    bool calls = r->known_asleep && !r->asleep && r->use.n_now > 0;
    if (calls && !r->calls)
        k->gossip_s = 0;
    r->calls = calls;
}

static void do_all(struct controller *k, bool settled, double now) {
    for (struct replica_run *r = k->runs; r != NULL; r = r->next) {
        controller_keep_port(k, r, now);
        controller_read_content(r, now);
        if (r->replica.state != REPLICA_IDLE) {
            controller_go_on_serving(k, r, now);
            continue;
        }
        controller_find_model(k, r, now);
        controller_fetch_model(k, r, now);
        call_owner(k, r);
        if (r->asleep)
            controller_stay_asleep(k, r, now);
        else if (!controller_may_begin(r, settled, now))
            continue;
        else if (r->known_asleep && r->questions == 0)
            controller_take_over_asleep(r);
        else
            controller_begin_serving(k, r, now);
    }
}

static enum run_state state_of(const struct replica_run *r) {
    switch (r->replica.state) {
    case REPLICA_STARTING:
        return RUN_STARTING;
    case REPLICA_LISTENING:
        return RUN_LISTENING;
    case REPLICA_STOPPING:
        return r->joining ? RUN_STARTING : RUN_STOPPING;
    default:
        return r->asleep ? RUN_ASLEEP : r->failures > 0 ? RUN_FAILED : RUN_WAITING;
    }
}

/* One that stops does not run it any more, but to begin again. False: no memory. */
static bool report_one(const struct replica_run *r, double now, struct node_report *out) {
    bool idle = r->replica.state == REPLICA_IDLE;
    bool listens = r->replica.state == REPLICA_LISTENING;
    bool runs_it =
        r->asleep ||
        (!idle && (r->replica.state != REPLICA_STOPPING || r->joining || r->sleeping));
    struct run_report *run = report_add_run(out, r->name);
    if (run == NULL)
        return false;
    snprintf(run->id, sizeof run->id, "%s", r->id);
    snprintf(run->content, sizeof run->content, "%s", r->content);
    run->named = r->named;
    run->version = idle ? r->version : r->running_version;
    run->state = state_of(r);
    run->term = runs_it ? r->term : 0;
    run->ranks = r->n_ranks;
    run->failures = r->failures;
    run->port = listens || r->sleeping ? r->replica.port : 0;
    run->requests = r->route != NULL ? gateway_n_passing(r->route) : 0;
    run->copying = r->fetch != NULL;
    run->answers = r->route != NULL && *r->target != '\0' && r->port_version == r->version;
    run->memory = mem_total();
    return report_set_text(&run->closed, r->port_err.text) &&
           report_set_text(&run->sentence, listens ? r->port_err.text : r->replica.last) &&
           controller_say_sleep(r, now, run) && controller_say_standby(r, now, run);
}

static bool report_all(const struct controller *k, double now, struct node_report *out) {
    for (struct replica_run *r = k->runs; r != NULL; r = r->next) {
        if (r->wanted == NULL && r->replica.state == REPLICA_IDLE)
            continue;
        if (!report_one(r, now, out))
            return false;
        /* Where others may fetch the model from; 0: they may not, but this node may serve. */
        if (controller_is_able(r, now) &&
            !report_add_able(out, r->name, r->share != NULL ? model_share_port(r->share) : 0))
            return false;
    }
    report_sort(out);
    return true;
}

static json_t *say_copy(const struct replica_run *r) {
    struct copy_figures f;
    controller_look_at_copy(r, &f);
    bool known = f.rate > 0;
    double left = f.total > f.bytes ? (double)(f.total - f.bytes) : 0;
    return json_pack("{s:s, s:s, s:I, s:I, s:o, s:o}", "name", r->name, "at", f.from, "bytes",
                     (json_int_t)f.bytes, "total", (json_int_t)f.total, "rate",
                     known ? json_real(f.rate) : json_null(), "left_s",
                     known ? json_real(left / f.rate) : json_null());
}

/* What stays true of a server that has ended: its model, and what was measured when it began. */
static json_t *say_asleep(const json_t *told) {
    static const char *const kept[] = {"layers", "heads", "context", "candidates"};
    const json_t *its = json_array_get(json_object_get(told, "deployments"), 0);
    json_t *nodes = json_array(), *node, *facts = json_object();
    size_t i;
    json_array_foreach(json_object_get(told, "nodes"), i, node) {
        json_array_append_new(nodes, json_pack("{s:O}", "name", json_object_get(node, "name")));
    }
    for (i = 0; i < ARRAY_LEN(kept); i++)
        if (json_object_get(its, kept[i]) != NULL)
            json_object_set(facts, kept[i], json_object_get(its, kept[i]));
    return json_pack("{s:o, s:[], s:[o]}", "nodes", nodes, "links", "deployments", facts);
}

/* What is under way, for who looks at the cluster. */
static json_t *say_doings(const struct controller *k) {
    json_t *copies = json_array(), *servers = json_object();
    for (const struct replica_run *r = k->runs; r != NULL; r = r->next) {
        if (r->fetch != NULL)
            json_array_append_new(copies, say_copy(r));
        if (r->told != NULL && r->replica.state == REPLICA_LISTENING)
            json_object_set(servers, r->name, r->told);
        else if (r->told != NULL && r->asleep)
            json_object_set_new(servers, r->name, say_asleep(r->told));
    }
    return json_pack("{s:o, s:o}", "copies", copies, "servers", servers);
}

/* What the other nodes, and users, learn of this node. Without memory: what they learned
 * before. */
static void publish(struct controller *k, double now) {
    struct node_report report = {.runs = NULL};
    json_t *doings = say_doings(k), *doings_before;
    pthread_mutex_lock(&k->lock);
    doings_before = k->doings;
    k->doings = doings;
    pthread_mutex_unlock(&k->lock);
    json_decref(doings_before);
    if (report_all(k, now, &report)) {
        pthread_mutex_lock(&k->lock);
        struct node_report before = k->self_report;
        k->self_report = report;
        pthread_mutex_unlock(&k->lock);
        report = before;
    }
    report_deinit(&report);
}

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
        controller_notice_pause(k, now);
        do_all(k, controller_judge_all(k, now), now);
        publish(k, now);
        controller_save_list(k);
        controller_save_known(k, now);
        k->round_s = clock_s();
        poll(&fd, 1, LOOK_MS);
        wake_drain(&k->wake);
    }
    return NULL;
}

static bool copy_texts(struct controller *k, const struct controller_config *cfg) {
    static const char *const names[] = {"deployments.json", "known.json"};
    char **const paths[] = {&k->list_path, &k->known_path};
    for (int i = 0; i < 2; i++) {
        size_t size = strlen(cfg->state) + strlen(names[i]) + 2;
        if ((*paths[i] = mem_alloc(size)) == NULL)
            return false;
        snprintf(*paths[i], size, "%s/%s", cfg->state, names[i]);
    }
    k->store.folder = k->models = mem_strdup(cfg->models);
    k->state = mem_strdup(cfg->state);
    k->seeds = cfg->seeds != NULL ? mem_strdup(cfg->seeds) : NULL;
    k->program = cfg->program != NULL ? mem_strdup(cfg->program) : NULL;
    return k->models != NULL && k->state != NULL && (cfg->seeds == NULL || k->seeds != NULL) &&
           (cfg->program == NULL || k->program != NULL);
}

static void controller_free(struct controller *k) {
    controller_wait_for_later(k);
    overview_close(k->overview);
    k->overview = NULL;
    while (k->runs != NULL) {
        struct replica_run *r = k->runs;
        k->runs = r->next;
        controller_leave_port(k, r);
        controller_forget_model(r);
        deployment_free(r->wanted);
        controller_forget_party(&r->party);
        controller_forget_party(&r->joiners);
        controller_forget_party(&r->refused);
        json_decref(r->told);
        mem_free(r);
    }
    for (size_t i = 0; i < k->n_peers; i++)
        client_close(k->peers[i].client);
    while (k->n_others > 0)
        controller_drop(k, 0);
    for (size_t i = 0; i < k->n_told; i++)
        addresses_deinit(&k->told[i].addresses);
    deployments_deinit(&k->list);
    controller_forget_known(k);
    report_deinit(&k->self_report);
    json_decref(k->doings);
    json_decref(k->past_keys);
    node_history_deinit(&k->history);
    addresses_deinit(&k->self_addresses);
    mem_free(k->hasty);
    wake_close(&k->wake);
    pthread_mutex_destroy(&k->lock);
    pthread_mutex_destroy(&k->save_lock);
    pthread_cond_destroy(&k->later_ended);
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
    k->tell = cfg->tell;
    k->tell_user = cfg->tell_user;
    randombytes_buf(id, sizeof id);
    sodium_bin2hex(k->self, sizeof k->self, cfg->node != NULL ? cfg->node : id, sizeof id);
    host_id(machine);
    sodium_bin2hex(k->machine, sizeof k->machine, machine, BEACON_ID_BYTES);
    net_join(k->own_address, sizeof k->own_address,
             cfg->host != NULL && !str_eq(cfg->host, "*") ? cfg->host : "127.0.0.1", cfg->port);
    snprintf(k->name, sizeof k->name, "%s", cfg->name);
    pthread_mutex_init(&k->lock, NULL);
    pthread_mutex_init(&k->save_lock, NULL);
    pthread_cond_init(&k->later_ended, NULL);
    deployments_init(&k->list);
    controller_init_models(k);
    bool remembers = node_history_init(&k->history, k->name);
    enum status st = copy_texts(k, cfg) && remembers
                         ? ST_OK
                         : err_set(err, ST_NO_MEMORY, "no memory for a cluster's deployments");
    if (st == ST_OK)
        st = check_seeds(k, err);
    if (st == ST_OK)
        st = controller_load(k, err);
    if (st == ST_OK)
        st = wake_open(&k->wake, err);
    if (st == ST_OK)
        st = overview_open(&k->overview, k, err);
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
        controller_stop_fetching(r);
    }
    controller_say_goodbye(k);
}

/* Until all have ended; replica_look() kills those that take too long. */
static void wait_for_children(struct controller *k) {
    for (struct replica_run *r = k->runs; r != NULL; r = r->next) {
        if (r->fetch != NULL)
            controller_end_fetching(r, clock_s());
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
