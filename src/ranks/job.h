/* job.h: the job of one rank, and its text form (JSON) for sending it to a worker process. */
#ifndef LOCKSTEP_RANKS_JOB_H
#define LOCKSTEP_RANKS_JOB_H

#include "base/status.h"
#include "fabric/fabric.h"
#include "model/kv_cache.h"
#include "weights/plan.h"

#include <stdbool.h>
#include <stdint.h>

/* What the ranks measure and decide when they have met (calibration.h), rather than being told. */
enum job_placement {
    JOB_PLACE_TOLD,   /* nothing: tp, pp and weights hold */
    JOB_PLACE_SHARES, /* weights, for this tp and pp */
    JOB_PLACE_ALL,    /* these too */
    JOB_PLACE_N
};

struct job {
    char *model_path; /* owned */
    char *rendezvous; /* owned; "host:port", NULL for one rank */
    char *emulate;    /* owned; as fabric_config's, NULL: none */
    char *rdma;       /* owned; MLX's matrix (fabric/launch_env.h), NULL: none */
    /* owned; where the data of the model are that has only its header here ("host:port",
     * cluster/source.h); NULL: they are in the file */
    char *source;
    char *devices; /* owned; of the ranks (job_device), NULL: none has one */
    uint8_t token[FABRIC_TOKEN_BYTES];
    int rank, n_ranks, tp, pp;
    int n_weights;
    double weights[PLAN_MAX_WEIGHTS];
    enum job_placement placement;
    enum fabric_link link;
    int n_threads;              /* 0: the cores of its part of this machine (job_set_threads) */
    uint32_t n_ctx, n_chunk;    /* final numbers */
    uint32_t n_runs;            /* sequences in a step */
    uint32_t n_pages[KV_KINDS]; /* of the KV cache; windows: 0 if no layer has one */
    uint32_t n_states;          /* of recurrent layers; 0 if no layer is one */
    enum kv_type kv_type;
    enum experts_mode experts;
    int silence_ms;
    int n_local;         /* ranks that share this machine's cores, */
    int local_rank;      /* and which of them this is */
    int may_lack_device; /* 1: a rank whose device does not open computes on its processor */
    bool own_cores;      /* of this process: a launcher has bound it to its share already */
    bool invites;        /* rank 0: tells the others what to do when they have come (rank.c) */
};

void job_deinit(struct job *job);

/* *text is malloc'd. */
enum status job_to_json(const struct job *job, char **text, struct err *err);
enum status job_from_json(struct job *out, const char *text, size_t len, struct err *err);

/* A step of fewer tokens than this counts as tokens, a longer one as a prompt. */
#define JOB_PROMPT_TOKENS 16

/* What a rank computes on, by `devices`. */
struct job_device {
    char name[256]; /* "": it has none */
    uint32_t from,
        until;     /* steps of [from, until) tokens are the device's, others the processor's */
    bool divides;  /* these are both: the device's memory has to be the host's */
    bool measures; /* which they are is to be measured, if its memory is the host's */
};

/* "NAME": all steps are the device's. "NAME+cpu": prompts. "cpu+NAME": tokens. "NAME+auto":
 * prompts, and tokens where it is faster; so it is with "auto", where it can be. "cpu": none are.
 * ST_BAD_INPUT: something else; the list has one for each rank of another number of ranks. */
enum status job_device(const struct job *job, struct job_device *out, struct err *err);
/* Bit r: rank r computes on its processor alone, by what `devices` says. */
uint64_t job_processors(const struct job *job);
/* Whether any rank measures. */
bool job_measures_devices(const struct job *job);

/* Whether a list of devices has different names. NULL has not. */
bool job_devices_differ(const char *devices);

/* The number of threads where the job leaves it open. */
void job_set_threads(struct job *job);
/* The calling thread, and those that it starts, run in this rank's part of the machine
 * (base/machine.h). */
void job_keep_to_part(const struct job *job);

/* A link's name or "auto"; NULL is auto. */
enum status job_parse_link(const char *text, enum fabric_link *out, struct err *err);

#endif
