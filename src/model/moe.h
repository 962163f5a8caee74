/* moe.h: what the experts' files share: moe.c, and moe_device.c, where a device chooses them. */
#ifndef LOCKSTEP_MODEL_MOE_H
#define LOCKSTEP_MODEL_MOE_H

#include "model/on_device.h"

struct router moe_router(const struct moe_params *p, const struct moe_weights *w);
/* The first half of the shared experts; weights [n_tokens] by their own router, if they have it. */
struct ffn_up moe_shared_up(const struct model *m, const struct moe_weights *w,
                            const float *weights);
/* The step's choices, of which the device knows the held ones. */
struct shaders_chosen moe_chosen(const struct forward_pass *r, const struct choice *choices);

/* A layer's experts from x_act to acc, where few tokens' are chosen on the device. False: they are
 * not, and nothing was done. */
bool moe_on_device(struct forward_pass *r, struct pool *pool, const struct layer_weights *lw);

#endif
