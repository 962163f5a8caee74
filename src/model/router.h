/* router.h: selects a token's experts and their weights. */
#ifndef LOCKSTEP_MODEL_ROUTER_H
#define LOCKSTEP_MODEL_ROUTER_H

#include "arch/hparams.h"
#include "kernels/kernels.h"

struct choice {
    uint32_t expert;
    float weight;
};

/* logits [n_experts] of one token (with the router's bias), overwritten; choice_bias
 * [n_experts] or NULL; scratch [n_experts] floats. out [n_used], best first; among equals the
 * lower expert.
 *
 * given [n_used]: these experts are used instead, in this order; NULL: they are chosen.
 *
 * Probabilities by p->gating. With a choice bias, experts are ranked by probability + bias.
 * With groups, only those of the best groups compete. A group's score is the sum of its best
 * two (arXiv 2412.19437, section 2.1.2), or its best (arXiv 2405.04434, section 2.2.2). Weights
 * are the probabilities without the bias, normalized and scaled as the model says. Pure. */
void router_choose(const struct kernels *k, const struct moe_params *p, float *logits,
                   const float *choice_bias, const int32_t *given, float *scratch,
                   struct choice *out);

#endif
