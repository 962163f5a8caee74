/* microbatch.h: the tokens of a step in two microbatches, so that one's sum over the team goes
 * on beside the other's compute. */
#ifndef LOCKSTEP_MODEL_MICROBATCH_H
#define LOCKSTEP_MODEL_MICROBATCH_H

#include "model/model.h"

#define MICROBATCHES_MAX 2
/* Tokens of the smallest microbatch: with fewer the kernels, too, would do less per weight that
 * they read. */
#define MICROBATCH_LEAST 60

/* From how many tokens on a step is worth two microbatches. Each microbatch reads the layers'
 * weights (weight_bytes in all) once more, and they hide the two sums of each layer, of which
 * MICROBATCH_LEAST tokens take sum_ns. */
uint32_t microbatch_worth(uint64_t weight_bytes, uint32_t n_layers, uint64_t sum_ns);

struct microbatch {
    struct step step; /* its tokens, as a step; not the outputs, which belong to the whole */
    uint32_t first;   /* of its tokens in the whole */
};

/* Cuts a step into n microbatches, in order; all but the last are of whole groups (ACT_GROUP). runs
 * has room for step->n_runs + n - 1; window: that of the layers that have one (0: none). */
void microbatch_cut(struct microbatch *out, uint32_t n, const struct step *step,
                    uint32_t window, struct step_run *runs);

#endif
