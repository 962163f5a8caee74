/* microbatch.h: divides the tokens of a step into two microbatches, so that one's sum over the
 * team runs in parallel to the other's compute. */
#ifndef LOCKSTEP_MODEL_MICROBATCH_H
#define LOCKSTEP_MODEL_MICROBATCH_H

#include "model/model.h"

#define MICROBATCHES_MAX 2
/* Tokens of the smallest microbatch: with fewer the kernels, too, would do less per weight that
 * they read. */
#define MICROBATCH_LEAST 60

/* From how many tokens on a step is worth two microbatches. Each microbatch reads the layers'
 * weights (weight_bytes in all) once more. They hide the two sums of each layer; a sum of
 * MICROBATCH_LEAST tokens takes sum_ns. */
uint32_t microbatch_worth(uint64_t weight_bytes, uint32_t n_layers, uint64_t sum_ns);

struct microbatch {
    struct step step; /* its tokens, as a step; not the outputs, which belong to the whole */
    uint32_t first;   /* of its tokens in the whole */
};

/* Divides a step into n microbatches, in order; all but the last consist of whole groups
 * (ACT_GROUP). runs has space for step->n_runs + n - 1; window: that of the layers that have
 * one (0: none). */
void microbatch_cut(struct microbatch *out, uint32_t n, const struct step *step,
                    uint32_t window, struct step_run *runs);

#endif
