/* router.h: which experts a token goes to, and with what weight. */
#ifndef LOCKSTEP_MODEL_ROUTER_H
#define LOCKSTEP_MODEL_ROUTER_H

#include "arch/hparams.h"
#include "kernels/kernels.h"

struct choice {
    uint32_t expert;
    float weight;
};

/* logits [n_experts] of one token (with the router's bias), overwritten; choice_bias [n_experts]
 * or NULL; scratch [n_experts] floats. out [n_used], best first; of equals the lower expert.
 *
 * Probabilities by p->gating; with a choice bias experts are ranked by probability + bias, with
 * groups only those of the best groups compete (a group counts by the sum of its best two,
 * arXiv 2412.19437, section 2.1.2, or by its best, arXiv 2405.04434, section 2.2.2); weights
 * are the probabilities without the bias, normalized and scaled as the model says. Pure. */
void router_choose(const struct kernels *k, const struct moe_params *p, float *logits,
                   const float *choice_bias, float *scratch, struct choice *out);

#endif
