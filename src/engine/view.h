/* view.h: the ranks of an engine for who looks at them: what each has and holds, the links between
 * them, and the layouts that were looked at before one was chosen. Large: not for a stack. */
#ifndef LOCKSTEP_ENGINE_VIEW_H
#define LOCKSTEP_ENGINE_VIEW_H

#include "ranks/calibration.h"

#define ENGINE_PAIRS (PLAN_MAX_RANKS * (PLAN_MAX_RANKS - 1) / 2)

struct engine_rank_view {
    int64_t pid;
    char host
        [128]; /* its machine as the options name it, with the port of its node; "": this one */
    char device[48];                                       /* "": the processor */
    uint32_t layer_begin, layer_end, head_begin, head_end; /* half open */
    uint32_t expert_begin, expert_end;                     /* 0, 0: the model has none */
    uint64_t weight_bytes, cache_bytes, buffer_bytes, resident_bytes;
    double compute_s,
        fabric_s; /* in kernels; in collectives, since these ranks came together */
};

/* Of two ranks, a < b. */
struct engine_pair_view {
    int a, b;
    enum fabric_link link;
    char device[32]; /* rank 0's RDMA device that leads there; "": none, or not known */
    double latency_s, bandwidth; /* bytes/s; 0: not measured */
    uint64_t bytes;              /* that they have sent each other */
    double rate;                 /* bytes/s in the last second of work */
};

struct engine_view {
    int n_ranks, n_pairs, n_layouts;
    uint32_t n_layers, n_heads;
    char parallel[64];                /* what runs: "tensor2" */
    char placement[CALIBRATION_TEXT]; /* what was measured, in a line; "": nothing */
    int tp, pp;
    double told_s; /* clock: when the ranks last said how they are */
    struct engine_rank_view ranks[PLAN_MAX_RANKS];
    struct engine_pair_view pairs[ENGINE_PAIRS];
    struct calibration_layout layouts[CALIBRATION_LAYOUTS]; /* of all ranks first */
    uint64_t kept; /* those of the layouts' ranks that compute, a bit each */
    char layout_hosts[PLAN_MAX_RANKS][128]; /* of the layouts' ranks, as the ranks' host */
};

#endif
