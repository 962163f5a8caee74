/* controller_sleep.c: a model that nobody asks: its owner ends the server and holds the deployment
 * asleep, until any node has a question for it. If that owner is lost, the next one holds it. */
#include "node/controller_internal.h"

#include "base/duration.h"
#include "base/json.h"
#include "base/log.h"
#include "base/util.h"
#include "node/sleep.h"

#include <stdio.h>
#include <time.h>

/* Its server was asked how many requests it has this long ago at most. */
#define FRESH_S 3.0

/* ---- what all nodes say ------------------------------------------------------------------ */

static void take_keep(struct replica_run *r, const struct keep *its) {
    if (its->term > 0 && sleep_is_newer(its, &r->keep))
        r->keep = *its;
}

/* What clients have asked for at this node since the last look. */
static void look_at_gateway(struct replica_run *r) {
    uint64_t n_keeps = r->use.n_keeps;
    if (r->route == NULL)
        return;
    gateway_look_at_use(r->route, &r->use);
    if (r->use.n_keeps == n_keeps || r->target_term == 0)
        return;
    const struct keep said = {
        .term = r->target_term, .at_ms = (int64_t)(history_now() * 1e3), .ms = r->use.keep_ms};
    take_keep(r, &said);
}

/* What became of it, as far as one node has it asleep or runs it. */
struct sleepers {
    bool any, awake;
    uint64_t term;
    int64_t since;
};

static void note_holder(struct sleepers *s, bool asleep, uint64_t term, int64_t since) {
    s->awake |= !asleep;
    s->any |= asleep;
    if (asleep && term >= s->term) {
        s->term = term;
        s->since = since;
    }
}

static void look_at_others(const struct controller *k, struct replica_run *r,
                           struct sleepers *s, int64_t *questions, int64_t *asked) {
    for (size_t i = 0; i < k->n_others; i++) {
        const struct run_report *its = report_of(&k->others[i].report, r->name);
        if (its->version != r->version)
            continue;
        *questions += its->questions;
        *asked += its->asked;
        take_keep(r, &its->keep);
        if (its->term > 0)
            note_holder(s, its->state == RUN_ASLEEP, its->term, its->slept);
    }
}

/* Requests that reach its server past the ports are in use, too. */
static bool is_server_busy(const struct replica_run *r) {
    const json_t *its = json_array_get(json_object_get(r->told, "deployments"), 0);
    const json_t *requests = json_object_get(its, "requests");
    return json_integer_value(json_object_get(requests, "running")) +
               json_integer_value(json_object_get(requests, "waiting")) >
           0;
}

void controller_look_at_sleep(const struct controller *k, struct replica_run *r, double now) {
    struct sleepers s = {.any = false};
    int64_t questions, asked;
    look_at_gateway(r);
    questions = r->use.n_now;
    asked = (int64_t)r->use.n_asked;
    look_at_others(k, r, &s, &questions, &asked);
    if (r->asleep || (r->term > 0 && r->running_version == r->version))
        note_holder(&s, r->asleep, r->term, r->slept);
    if (s.any || s.awake) /* else as it was last */
        r->known_asleep = !s.awake;
    if (s.any && s.term >= r->slept_term) {
        r->slept_term = s.term;
        r->slept = s.since;
    }
    if (*r->target != '\0' && r->used_term != r->target_term) { /* another server */
        r->used_term = r->target_term;
        r->used_s = now;
    }
    bool serves = r->replica.state == REPLICA_LISTENING;
    if (questions > 0 || asked != r->n_asked || (serves && is_server_busy(r)))
        r->used_s = now;
    r->questions = questions;
    r->n_asked = asked;
    r->idle_ms = r->wanted != NULL ? sleep_idle_ms(r->wanted->idle_s, &r->keep, r->slept_term)
                                   : DURATION_NEVER;
}

int64_t controller_unloads_at(const struct replica_run *r, double now) {
    if (*r->target == '\0' || r->idle_ms == DURATION_NEVER)
        return 0;
    return (int64_t)(history_now() + (double)r->idle_ms * 1e-3 - (now - r->used_s));
}

/* ---- what its owner does ----------------------------------------------------------------- */

bool controller_is_time_to_sleep(const struct replica_run *r, double now) {
    if (r->replica.state != REPLICA_LISTENING ||
        !sleep_is_due(r->idle_ms, now - r->used_s, r->questions > 0))
        return false;
    /* what all nodes said, and its server, after that was due; not long ago */
    double due_s = r->used_s + (double)r->idle_ms * 1e-3;
    return r->told != NULL && r->told_s >= due_s && now - r->told_s <= FRESH_S;
}

static void hold(struct replica_run *r) {
    r->asleep = r->known_asleep = true;
    r->sleeping = r->hasty = r->joining = false;
    r->n_ranks = 0;
    r->running_version = r->version;
    r->slept_term = r->term;
}

void controller_fall_asleep(struct controller *k, struct replica_run *r) {
    char idle[32], why[64] = "a client does not need it any more";
    duration_print(r->idle_ms, idle, sizeof idle);
    if (r->idle_ms > 0)
        snprintf(why, sizeof why, "nobody has asked it for %s", idle);
    r->slept = (int64_t)history_now();
    hold(r);
    log_info("%s: %s: it is unloaded until somebody asks", r->name, why);
    history_note(&k->history, 0, HAPPENED_SLEPT, k->name, r->name, "%s is unloaded: %s",
                 r->name, why);
}

void controller_take_over_asleep(struct replica_run *r) {
    log_info("%s: it is asleep; this node loads it when somebody asks", r->name);
    r->term = ++r->seen_term;
    hold(r);
}

void controller_stay_asleep(struct controller *k, struct replica_run *r, double now) {
    bool stays =
        r->wanted != NULL && r->mine && r->path[0] != '\0' && r->running_version == r->version;
    if (stays && r->questions == 0)
        return;
    r->asleep = false;
    r->term = 0;
    if (!stays) { /* it is another node's, or down */
        r->find_s = now;
        return;
    }
    log_info("%s: somebody asks it", r->name);
    history_note(&k->history, 0, HAPPENED_WOKE, k->name, r->name, "%s is loaded for a question",
                 r->name);
    controller_begin_serving(k, r, now);
}

bool controller_say_sleep(const struct replica_run *r, double now, struct run_report *out) {
    char text[96] = "", when[32];
    struct tm tm;
    time_t since = (time_t)r->slept;
    out->questions = r->use.n_now;
    out->asked = (int64_t)r->use.n_asked;
    out->keep = r->keep;
    out->idle_ms = r->idle_ms;
    out->unloads = controller_unloads_at(r, now);
    if (!r->asleep)
        return true;
    out->slept = r->slept;
    if (gmtime_r(&since, &tm) != NULL &&
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm) > 0)
        snprintf(text, sizeof text, "asleep since %s UTC: the next question loads it", when);
    return report_set_text(&out->sentence, text);
}
