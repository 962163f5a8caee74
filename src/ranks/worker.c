/* worker.c: a worker process: one rank other than 0. It lives as long as its group. When rank 0
 * closes, it exits with 0. When the group is lost, it exits with 3 and a sentence, which goes
 * to rank 0's process, or to stderr if there is none. */
#include "ranks/worker.h"

#include "base/float_env.h"
#include "base/log.h"
#include "base/mem.h"
#include "lockstep/lockstep.h"
#include "ranks/launch.h"
#include "ranks/rank.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static void watch_parent(void *user, double fraction) {
    (void)fraction;
    enum launch_parent parent = launch_worker_parent(user, 0);
    if (parent == PARENT_GONE)
        log_error("the process of rank 0 is gone");
    if (parent != PARENT_THERE)
        exit(status_exit_code(ST_PEER_LOST));
}

static enum status load(struct rank *r, struct launch_wire *wire,
                        const struct worker_sources *sources, struct err *err) {
    struct rank_hooks hooks = {.progress = watch_parent, .user = wire};
    struct file_source source;
    if (r->job.source == NULL)
        return rank_load(r, -1, &hooks, err);
    if (sources == NULL)
        return err_set(err, ST_UNSUPPORTED, "this worker cannot load a model from %s",
                       r->job.source);
    TRY(sources->open(&source, r->job.source, err));
    hooks.source = &source;
    enum status st = rank_load(r, -1, &hooks, err);
    sources->close(&source);
    return st;
}

static enum status read_job(struct launch_wire *wire, struct job *out, struct err *err) {
    char *text;
    size_t n;
    TRY(launch_worker_job(wire, &text, &n, err));
    enum status st = job_from_json(out, text, n, err);
    mem_free(text);
    return st;
}

static enum status work(struct rank *r, struct launch_wire *wire,
                        const struct worker_sources *sources, struct err *err) {
    struct job job;
    TRY(read_job(wire, &job, err));
    job_set_threads(&job);
    char name[32];
    snprintf(name, sizeof name, "rank %d", job.rank);
    log_set_name(name);
    TRY(rank_init(r, &job, NULL, err));
    TRY(load(r, wire, sources, err));
    launch_worker_say_ready(wire->out);
    return rank_follow(r, err);
}

int worker_main(int argc, char **argv, const struct worker_sources *sources) {
    struct launch_wire wire = launch_worker_wire(argc, argv);
    /* The terminal's Ctrl-C goes to every process; what it means is rank 0's decision. */
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    struct rank r = {0};
    struct err err = {.text = ""};
    struct float_env env;
    float_env_begin(&env); /* before threads are started */
    enum status st = work(&r, &wire, sources, &err);
    float_env_end(&env);
    if (st == ST_PEER_LOST) {
        /* The cause is elsewhere, and rank 0 tells it, unless rank 0 is what was lost. */
        if ((r.f == NULL || fabric_lost_rank(r.f) == 0) &&
            launch_worker_parent(&wire, LAUNCH_GRACE_MS) != PARENT_DONE)
            log_error("%s", err.text);
    } else if (st == ST_AGAIN) { /* other machines do it, and rank 0 tells */
        st = ST_OK;
    } else if (st != ST_OK) {
        /* Rank 0 that has ended has told its own reason: of the same refusal, where ranks
         * decide together. */
        bool heard = launch_worker_say_error(wire.out, err.text);
        if (!heard && r.f == NULL && launch_worker_parent(&wire, 0) != PARENT_DONE)
            log_error("%s", err.text);
    }
    rank_close(&r);
    return status_exit_code(st);
}

int lockstep_worker_main(int argc, char **argv) {
    return worker_main(argc, argv, NULL);
}
