/* moe_device.c: experts on a device, which mostly also chooses them.
 *
 * A few tokens read each of their experts from where a table says, by the choice that the device
 * has just written. The choices of many are grouped by expert, on the device too, so that an expert
 * is read once for several tokens. So what is recorded does not depend on the choice, and nothing
 * waits for it. */
#include "model/moe.h"

bool device_chooses(const struct hparams *hp, uint32_t layer) {
    const struct moe_params *p = &hp->moe;
    const struct router router = moe_router(p, &(struct moe_weights){0});
    return layer >= p->n_hash && shaders_can_route(&router);
}

static struct shaders_chosen chosen(const struct forward_pass *r,
                                    const struct choice *choices) {
    const struct share *sh = r->m->share;
    const struct moe_params *p = &r->m->hp->moe;
    const bool none = sh->expert_ff_begin == sh->expert_ff_end;
    const bool many = r->step->n_tokens > device_few(p);
    return (struct shaders_chosen){.choices = choices,
                                   .n_tokens = r->step->n_tokens,
                                   .n_used = p->n_used,
                                   .begin = sh->expert_begin,
                                   .end = none ? sh->expert_begin : sh->expert_end,
                                   .groups = many ? r->m->on_device.groups : NULL,
                                   .n_experts = p->n_experts};
}

static float *shared_weights(const struct model *m) {
    return m->on_device.routing + m->cfg.n_tokens_max * (m->moe.ld_logits + TILE_ROWS);
}

static void record_choice(const struct forward_pass *r, const struct moe_weights *w) {
    const struct model *m = r->m;
    const struct acts *in = w->router_scale != NULL ? &m->router_act : &m->x_act;
    const struct router router = moe_router(&m->hp->moe, w);
    const size_t n = m->moe.ld_logits, ld = n + TILE_ROWS;
    struct shaders_routing to = {.logits = {m->on_device.routing, ld},
                                 .out = m->on_device.choices,
                                 .n_tokens = r->step->n_tokens};
    shaders_matmul(m->shaders, &w->router, forward_act_for(in, &w->router), to.logits.p, ld,
                   false);
    if (w->shared_router.n_rows != 0) {
        to.shared_logits = (struct rows){to.logits.p + n, ld};
        to.shared_weights = shared_weights(m);
        shaders_matmul(m->shaders, &w->shared_router,
                       forward_act_for(&m->x_act, &w->shared_router), to.shared_logits.p, ld,
                       true);
    }
    shaders_route(m->shaders, &router, &to);
}

/* Into the latent space of the experts. */
static void record_latents(const struct model *m, const struct moe_weights *w) {
    const struct moe_buffers *b = &m->moe;
    if (m->hp->moe.n_latent == 0)
        return;
    shaders_matmul(m->shaders, &w->latent_down, forward_act_for(&m->x_act, &w->latent_down),
                   b->latents, b->ld_latents, false);
    device_record_pack(m->shaders, &b->latent_act, b->latents, b->ld_latents);
}

/* What the chosen experts read: of each token, or of each choice where its weight multiplies it. */
static const struct acts *record_inputs(const struct model *m, const struct shaders_chosen *c,
                                        struct acts *weighed) {
    const struct acts *in = moe_input(m);
    const uint32_t n = c->n_tokens * c->n_used;
    if (!m->hp->moe.weighs_input)
        return in;
    *weighed = forward_acts_part(&m->moe.in_act, 0, n);
    if (weighed->f32.f != NULL)
        shaders_chosen_weigh(m->shaders, c, &weighed->f32, &in->f32);
    if (weighed->q8.q != NULL)
        shaders_chosen_weigh(m->shaders, c, &weighed->q8, &in->q8);
    return weighed;
}

/* The first half of the chosen experts; in mid, a token for each choice. */
static void record_chosen_up(const struct model *m, const struct moe_weights *w,
                             const struct shaders_chosen *choices,
                             const struct shaders_matrix *matrices, const struct acts *mid) {
    struct shaders *s = m->shaders;
    struct acts weighed;
    const struct acts *in = record_inputs(m, choices, &weighed);
    const struct device_buffers *b = &m->on_device;
    const struct wmat *gate_w = &w->experts[choices->begin].gate,
                      *up_w = &w->experts[choices->begin].up;
    const struct rows gate = {b->gate, b->ld_expert}, up = {b->up, b->ld_expert};
    const uint32_t width = gate_w->n_rows;
    struct shaders_chosen all = *choices, *c = &all;
    if (m->hp->moe.weighs_input) { /* now each reads a token of its own */
        all.n_tokens *= all.n_used;
        all.n_used = 1;
    }
    shaders_chosen_matmul(s, c, matrices, gate_w, forward_act_for(in, gate_w), gate, false);
    if (up_w->n_rows != 0)
        shaders_chosen_matmul(s, c, matrices + m->hp->moe.n_experts, up_w,
                              forward_act_for(in, up_w), up, true);
    if (w->gate_bias != NULL)
        shaders_chosen_add(s, c, gate, w->gate_bias, w->bias_stride, width);
    if (w->gate_bias != NULL && w->up_bias != NULL)
        shaders_chosen_add(s, c, up, w->up_bias, w->bias_stride, width);
    shaders_activate(s, m->hp->ffn_act, m->hp->situ, w->limit, gate, up, width,
                     c->n_tokens * c->n_used);
    if (!m->hp->moe.weighs_input)
        shaders_chosen_scale(s, c, gate, width);
    device_record_pack(s, mid, gate.p, gate.ld);
}

/* The second half, to acc or added to it. */
static void record_chosen_down(const struct model *m, const struct moe_weights *w,
                               const struct shaders_chosen *c,
                               const struct shaders_matrix *matrices, const struct acts *mid,
                               int64_t *acc, bool adds) {
    const struct wmat *down = &w->experts[c->begin].down;
    shaders_chosen_matmul_fixed(m->shaders, c, matrices + (size_t)2 * m->hp->moe.n_experts,
                                down, forward_act_for(mid, down), acc, moe_ld(m),
                                plan_expert_segment(m->hp->moe.n_ff), adds);
    if (w->down_bias != NULL)
        shaders_chosen_fixed_bias(m->shaders, c, acc, moe_ld(m), w->down_bias, m->hp->n_embd,
                                  m->hp->n_embd);
}

/* From the choices on. Where acc is the host's, sums over experts meet in the device's memory. */
static void record(const struct forward_pass *r, const struct moe_weights *w,
                   const struct shaders_chosen *c, const struct shaders_matrix *matrices,
                   const float *weights) {
    struct model *m = r->m;
    struct shaders *s = m->shaders;
    const struct acts mid = forward_acts_part(&m->moe.mid_act, 0, c->n_tokens * c->n_used);
    const struct wmat *shared = moe_shared_beside(m, w);
    const bool has_shared = shared->n_cols != 0, none = c->begin >= c->end;
    int64_t *acc = c->groups != NULL && m->on_device.sums != NULL ? m->on_device.sums : r->acc;
    if (w->shared.gate.n_rows != 0) {
        const struct ffn_up up = moe_shared_up(m, w, weights);
        for (uint32_t t = 0; t < c->n_tokens; t += DEVICE_FFN_TOKENS)
            device_record_up(m, &up, t, MIN(c->n_tokens - t, (uint32_t)DEVICE_FFN_TOKENS));
    }
    if (has_shared)
        shaders_matmul_fixed(s, shared, forward_act_for(&m->shared_act, shared), acc, m->ld_acc,
                             plan_ffn_segment(m->hp->moe.n_ff_shared));
    if (none && !has_shared) /* then all of them are other ranks' */
        shaders_fixed_zero(s, acc, moe_ld(m), moe_width(m), c->n_tokens);
    if (!none && c->groups != NULL)
        shaders_group(s, c);
    if (!none) {
        record_chosen_up(m, w, c, matrices, &mid);
        record_chosen_down(m, w, c, matrices, &mid, acc, has_shared);
    }
    if (acc != r->acc)
        shaders_copy(s, r->acc, moe_ld(m) * sizeof *acc, acc, moe_ld(m) * sizeof *acc,
                     moe_width(m) * sizeof *acc, c->n_tokens);
}

/* A layer's: [3, n_experts]. */
static struct shaders_matrix *matrices_of(const struct model *m, uint32_t layer) {
    return m->on_device.matrices + (size_t)layer * 3 * m->hp->moe.n_experts;
}

void moe_share_matrices(struct model *m) {
    const uint32_t n = m->hp->moe.n_experts;
    for (uint32_t t = 0; m->hp->moe.n_latent != 0 && t < m->cfg.n_tokens_max; t++)
        m->moe.in_order[t] = t;
    for (uint32_t l = 0; l < m->w.n_layers; l++)
        for (uint32_t e = 0; e < n && m->w.layers[l].moe != NULL; e++) {
            const struct ffn_weights *expert = &m->w.layers[l].moe->experts[e];
            struct shaders_matrix *to = matrices_of(m, l) + e;
            to[0] = shaders_matrix(m->shaders, &expert->gate);
            to[n] = shaders_matrix(m->shaders, &expert->up);
            to[(size_t)2 * n] = shaders_matrix(m->shaders, &expert->down);
        }
}

bool moe_on_device(struct forward_pass *r, struct pool *pool, const struct layer_weights *lw) {
    const struct model *m = r->m;
    const uint32_t layer = (uint32_t)(lw - m->w.layers);
    const struct shaders_chosen c = chosen(r, m->on_device.choices);
    if (!on_device(r) || !device_chooses(m->hp, m->share->layer_begin + layer) || r->sharded)
        return false;
    if (device_records(pool)) {
        record_choice(r, lw->moe);
        record_latents(m, lw->moe);
        record(r, lw->moe, &c, matrices_of(m, layer), shared_weights(m));
    }
    pool_barrier(pool);
    return true;
}

void moe_chosen_on_device(struct forward_pass *r, struct pool *pool,
                          const struct layer_weights *lw) {
    const struct model *m = r->m;
    const struct shaders_chosen c = chosen(r, m->moe.choices);
    if (device_records(pool))
        record(r, lw->moe, &c, matrices_of(m, (uint32_t)(lw - m->w.layers)), m->shared_weights);
    pool_barrier(pool);
}

void moe_leave_latents_on_device(struct forward_pass *r, struct pool *pool,
                                 const struct moe_weights *w) {
    const struct model *m = r->m;
    const struct moe_buffers *b = &m->moe;
    const struct wmat *up = &w->latent_up, *shared = &w->shared.down;
    const struct rows latents = {b->latents, b->ld_latents};
    const uint32_t n = r->step->n_tokens, width = m->hp->moe.n_latent;
    struct shaders *s = m->shaders;
    if (device_records(pool)) {
        shaders_fixed_get(s, latents, r->acc, b->ld_latents, width, n);
        if (w->latent_norm != NULL)
            shaders_rmsnorm(s, latents, latents, w->latent_norm, width, n, m->hp->rms_eps);
        device_record_pack(s, &b->latent_act, latents.p, latents.ld);
        if (shared->n_cols != 0)
            shaders_matmul_fixed(s, shared, forward_act_for(&m->shared_act, shared), r->acc,
                                 m->ld_acc, plan_ffn_segment(m->hp->moe.n_ff_shared));
        else
            shaders_fixed_zero(s, r->acc, m->ld_acc, m->hp->n_embd, n);
        if (up->n_rows != 0)
            shaders_matmul_fixed_add(s, up, forward_act_for(&b->latent_act, up),
                                     r->acc + m->share->embd_begin, m->ld_acc, b->in_order,
                                     plan_ffn_segment(width));
    }
    pool_barrier(pool);
}
