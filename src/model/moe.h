/* moe.h: what the experts' files share: moe.c, and moe_device.c, where a device chooses them. */
#ifndef LOCKSTEP_MODEL_MOE_H
#define LOCKSTEP_MODEL_MOE_H

#include "model/on_device.h"

struct router moe_router(const struct moe_params *p, const struct moe_weights *w);
/* The first half of the shared experts; weights [n_tokens] by their own router, if they have it. */
struct ffn_up moe_shared_up(const struct model *m, const struct moe_weights *w,
                            const float *weights);
/* What the experts read, how wide what they give is, and from one row of their sums to the next. */
static inline const struct acts *moe_input(const struct model *m) {
    return m->hp->moe.n_latent != 0 ? &m->moe.latent_act : &m->x_act;
}
static inline uint32_t moe_width(const struct model *m) {
    return m->hp->moe.n_latent != 0 ? m->hp->moe.n_latent : m->hp->n_embd;
}
static inline size_t moe_ld(const struct model *m) {
    return m->hp->moe.n_latent != 0 ? m->moe.ld_latents : m->ld_acc;
}
/* The shared experts whose results are added up with the others': none in a latent space. */
static inline const struct wmat *moe_shared_beside(const struct model *m,
                                                   const struct moe_weights *w) {
    static const struct wmat none;
    return m->hp->moe.n_latent != 0 ? &none : &w->shared.down;
}

/* A layer's experts from x_act to acc, where the device chooses them. False: it does not, and
 * nothing was done. */
bool moe_on_device(struct forward_pass *r, struct pool *pool, const struct layer_weights *lw);
/* The same, of m->moe.choices, up to the sum over experts. */
void moe_chosen_on_device(struct forward_pass *r, struct pool *pool,
                          const struct layer_weights *lw);
/* Out of the latent space, from the experts' sums over the team: beside the shared experts. */
void moe_leave_latents_on_device(struct forward_pass *r, struct pool *pool,
                                 const struct moe_weights *w);

#endif
