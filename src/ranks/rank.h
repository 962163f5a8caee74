/* rank.h: one rank of an instance: file, plan, threads, fabric and model opened together, and
 * the messages by which rank 0 leads the others. Every rank runs the same code. */
#ifndef LOCKSTEP_RANKS_RANK_H
#define LOCKSTEP_RANKS_RANK_H

#include "base/pool.h"
#include "base/status.h"
#include "fabric/fabric.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "model/trace.h"
#include "ranks/calibration.h"
#include "ranks/device_steps.h"
#include "ranks/job.h"
#include "ranks/same_model.h"

/* What a rank says of itself; goes over the wire between ranks of the same build. */
struct rank_report {
    int64_t pid;
    uint64_t weight_bytes, replicated_bytes, token_bytes, token_macs;
    uint64_t kv_bytes, kv_window_bytes, state_bytes, buffer_bytes, resident_bytes;
    uint64_t step_ns, fabric_ns; /* since the opening; of the steps' time, in collectives */
    uint64_t sent_bytes[PLAN_MAX_RANKS]; /* to each other rank */
    uint8_t links[PLAN_MAX_RANKS];       /* enum fabric_link, by which; 0: none */
    char device[48];                     /* "": it computes on its processor */
};

struct device;
struct shaders;

struct rank {
    struct job job; /* owned copy of what it was told */
    struct gguf *g;
    struct hparams hp;
    struct plan plan; /* final when the ranks have met, if the job leaves a placement open */
    char placement[CALIBRATION_TEXT];    /* what was measured and chosen; "": nothing */
    struct calibration_figures *figures; /* of rank 0: what it was; owned; NULL: nothing */
    struct pool *pool;
    const struct kernels *kernels;
    struct device *device;   /* NULL: the processor computes, */
    struct shaders *shaders; /* without these */
    struct device_steps device_steps;
    struct fabric *f;        /* NULL: alone */
    uint64_t missing;        /* bit r: rank r did not come to the group */
    struct team *all;        /* of all ranks; NULL: alone */
    struct same_model *same; /* NULL: alone */
    struct model *model;
    /* Message buffers, sized for the largest step. */
    uint32_t *words;
    size_t n_words_max;
    struct trace_event *trace; /* [RANK_TRACE_EVENTS], owned; NULL: nothing is noted */
    uint64_t trace_zero_ns;    /* this machine's clock when all ranks began */
};

struct rank_hooks {
    const struct file_source *source; /* where the job's source leads; NULL: it has none */
    void (*progress)(void *user, double fraction);
    void *user;
    bool (*placed)(void *user, uint64_t fastest,
                   const char *why); /* calibration.h; may be NULL */
    void *placed_user;
    bool (*hopeless)(void *user); /* as fabric_config's; may be NULL */
    void *hopeless_user;
};

/* Reads the file's header and plans: quick, and where most bad input is found. The job is
 * moved, and so is g (the file, if it is open already; NULL: it is opened): they belong to the
 * rank, whatever the result. rank_close() is due in any case. */
enum status rank_init(struct rank *r, struct job *job, struct gguf *g, struct err *err);
/* The same for a rank that another program started. It joins the group by the job's rank,
 * n_ranks, rendezvous, token, link, rdma and silence_ms, and gets the rest from rank 0 (with a
 * job that invites). The job's own model_path (if any), n_threads and n_local stay. */
enum status rank_join(struct rank *r, struct job *job, struct err *err);
/* Joins the group unless rank_join() did. listen_fd: rank 0's listening socket, -1 elsewhere;
 * taken over. Decides with the group what the job leaves open, and loads. */
/* ST_AGAIN, on every rank and without a sentence: placed() chose other machines. */
enum status rank_load(struct rank *r, int listen_fd, const struct rank_hooks *hooks,
                      struct err *err);
void rank_close(struct rank *r);
/* The same, but for the file, which stays open and is returned; it may be NULL. */
struct gguf *rank_close_but_file(struct rank *r);

struct rank_report rank_report(const struct rank *r);

/* ---- rank 0 leads ------------------------------------------------------------------------ */

/* One step on all ranks. ST_BAD_INPUT: it is known meanwhile that one has another model. */
enum status rank_lead_step(struct rank *r, const struct step *step,
                           const struct step_sink *sink, struct err *err);
/* Everybody's report: reports [n_ranks]. */
enum status rank_lead_reports(struct rank *r, struct rank_report *reports, struct err *err);
/* All ranks note from here on what they do (model/trace.h), RANK_TRACE_EVENTS each at most. */
#define RANK_TRACE_EVENTS ((size_t)1 << 18)
enum status rank_lead_trace_begin(struct rank *r, struct err *err);
/* The events that all ranks have recorded, with each rank's times counted from the start: n[i]
 * events of rank i, one rank after the other in *events, which the caller frees with
 * mem_free(). Recording ends. */
enum status rank_lead_trace_end(struct rank *r, struct trace_event **events, size_t *n,
                                struct err *err);
/* Tells the others to end. */
void rank_lead_close(struct rank *r);

/* ---- the others follow ------------------------------------------------------------------- */

/* Does what rank 0 says until it says close (ST_OK) or the group is lost. */
enum status rank_follow(struct rank *r, struct err *err);

#endif
