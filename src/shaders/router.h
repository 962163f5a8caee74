/* router.h: selects a token's experts and their weights, on the processor: what a device does, too
 * (shaders_route()). */
#ifndef LOCKSTEP_SHADERS_ROUTER_H
#define LOCKSTEP_SHADERS_ROUTER_H

#include "kernels/activation.h"
#include "kernels/kernels.h"

struct router {
    uint32_t n_experts, n_used;
    uint32_t n_groups,
        n_groups_used; /* experts are chosen within the best groups; 1, 1: none */
    enum gating gating;
    bool groups_by_best; /* a group counts by its best expert, not by the sum of its best two */
    bool normalize;      /* the chosen weights are divided by their sum */
    float scale;         /* and multiplied with this */
    /* [n_experts]: added to the logits; to the probabilities, for choosing only; multiplied with
     * the chosen weights. NULL: none. */
    const float *bias, *choice_bias, *expert_scale;
};

struct choice {
    uint32_t expert;
    float weight;
};

/* The smallest sum that weights are divided by: the smallest normal half, as the reference
 * does. */
#define ROUTER_LEAST_SUM 6.103515625e-5f

/* logits [n_experts] of one token, overwritten; scratch [n_experts] floats. out [n_used], best
 * first; among equals the lower expert.
 *
 * given [n_used]: these experts are used instead, in this order; NULL: they are chosen.
 *
 * Probabilities by r->gating. With a choice bias, experts are ranked by probability + bias.
 * With groups, only those of the best groups compete. A group's score is the sum of its best
 * two (arXiv 2412.19437, section 2.1.2), or its best (arXiv 2405.04434, section 2.2.2). Weights
 * are the probabilities without the bias, normalized and scaled as the model says. Pure. */
void router_choose(const struct kernels *k, const struct router *r, float *logits,
                   const int32_t *given, float *scratch, struct choice *out);

#endif
