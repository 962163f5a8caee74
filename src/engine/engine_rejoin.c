/* engine_rejoin.c: asks machines that were left out whether they are back, and takes them in
 * again.
 *
 * An answer is a child process's exit status. The engine's thread does not wait for it. */
#include "base/clock.h"
#include "base/log.h"
#include "base/sentence.h"
#include "base/util.h"
#include "engine/engine_internal.h"

#include <stdio.h>

/* Longer than an answer takes that comes at all. */
#define ASK_S 30.0

static bool is_bit(uint64_t bits, int i) {
    return bits >> i & 1;
}

static enum status ask_one(struct engine *e, int machine, struct err *err) {
    const struct lockstep_options *all = &e->left.all;
    struct launch_hosts hosts;
    TRY(launch_hosts(&hosts, all->hosts, err));
    return launch_ask(&e->asks[machine].pid, all->worker_path, &hosts, machine, all->by_nodes,
                      err);
}

/* One that cannot be asked has not answered. */
static void ask(struct engine *e, double now) {
    uint64_t due = rejoin_ask(&e->rejoin, now);
    struct err ignored;
    for (int i = 0; due != 0 && i < FABRIC_MAX_RANKS; i++) {
        if (!is_bit(due, i))
            continue;
        e->asks[i].began_s = now;
        if (ask_one(e, i, &ignored) != ST_OK)
            rejoin_hear(&e->rejoin, i, false, now);
    }
}

static void stop_asking(struct engine *e, uint64_t machines) {
    rejoin_drop(&e->rejoin, machines);
    for (int i = 0; i < FABRIC_MAX_RANKS; i++) {
        if (!is_bit(machines, i) || e->asks[i].pid == 0)
            continue;
        launch_stop_asking(e->asks[i].pid);
        e->asks[i].pid = 0;
    }
}

static void hear(struct engine *e, double now) {
    for (int i = 0; e->rejoin.asked != 0 && i < FABRIC_MAX_RANKS; i++) {
        if (!is_bit(e->rejoin.asked, i))
            continue;
        enum status st = launch_answer(e->asks[i].pid);
        if (st == ST_AGAIN && now - e->asks[i].began_s < ASK_S)
            continue;
        if (st == ST_AGAIN)
            launch_stop_asking(e->asks[i].pid);
        e->asks[i].pid = 0;
        rejoin_hear(&e->rejoin, i, st == ST_OK, now);
    }
}

void engine_stop_asking(struct engine *e) {
    stop_asking(e, UINT64_MAX);
}

static void take_in(struct engine *e, uint64_t machines) {
    struct err err;
    const char *names;
    if (membership_take_back(&e->left, machines, &names, &err) != ST_OK || names == NULL)
        return; /* no memory: perhaps later */
    char why[sizeof err.text];
    sentence_print(why, sizeof why, "%.400s %s back: opening the model on %d ranks again",
                   names, strchr(names, ',') != NULL ? "are" : "is", e->left.opt.n_ranks);
    log_info("%s", why);
    rejoin_update(&e->rejoin, e->left.machines_out, clock_s());
    engine_reopen(e, why);
    rejoin_update(&e->rejoin, e->left.machines_out, clock_s());
    rejoin_joined(&e->rejoin, clock_s());
}

void engine_look_out(struct engine *e) {
    if ((e->left.machines_out | e->rejoin.out) == 0 || e->lost != ST_OK)
        return;
    double now = clock_s();
    e->rejoin.pause_s = e->in.info.load_s;
    if (e->requests != NULL || e->rejoin.out == 0)
        e->busy_s = now;
    rejoin_update(&e->rejoin, e->left.machines_out, now);
    hear(e, now);
    ask(e, now);
    uint64_t machines = rejoin_take_in(&e->rejoin, e->busy_s, now);
    if (machines == 0)
        return;
    stop_asking(e, machines);
    take_in(e, machines);
}
