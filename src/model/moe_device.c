/* moe_device.c: experts of a few tokens on a device, which also chooses them.
 *
 * A token reads each of its experts from where a table says, by the choice that the device has
 * just written. So what is recorded does not depend on the choice, and nothing waits for it. An
 * expert is read once for each of its tokens; where there are many tokens, the host groups them
 * (moe.c). */
#include "model/moe.h"

bool device_chooses(const struct hparams *hp, uint32_t layer) {
    const struct moe_params *p = &hp->moe;
    const struct router router = moe_router(p, &(struct moe_weights){0});
    return p->n_latent == 0 && !p->weighs_input && layer >= p->n_hash &&
           shaders_can_route(&router);
}

struct shaders_chosen moe_chosen(const struct forward_pass *r, const struct choice *choices) {
    const struct share *sh = r->m->share;
    const bool none = sh->expert_ff_begin == sh->expert_ff_end;
    return (struct shaders_chosen){.choices = choices,
                                   .n_tokens = r->step->n_tokens,
                                   .n_used = r->m->hp->moe.n_used,
                                   .begin = sh->expert_begin,
                                   .end = none ? sh->expert_begin : sh->expert_end};
}

static float *shared_weights(const struct model *m) {
    return m->on_device.routing + device_few(&m->hp->moe) * (m->moe.ld_logits + TILE_ROWS);
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

/* The first half of the chosen experts; in mid, a token for each choice. */
static void record_chosen_up(const struct model *m, const struct moe_weights *w,
                             const struct shaders_chosen *c,
                             const struct shaders_matrix *matrices, const struct acts *mid) {
    struct shaders *s = m->shaders;
    const struct device_buffers *b = &m->on_device;
    const struct wmat *gate_w = &w->experts[c->begin].gate, *up_w = &w->experts[c->begin].up;
    const struct rows gate = {b->gate, b->ld_ff}, up = {b->up, b->ld_ff};
    const uint32_t width = gate_w->n_rows;
    shaders_chosen_matmul(s, c, matrices, gate_w, forward_act_for(&m->x_act, gate_w), gate,
                          false);
    if (up_w->n_rows != 0)
        shaders_chosen_matmul(s, c, matrices + m->hp->moe.n_experts, up_w,
                              forward_act_for(&m->x_act, up_w), up, true);
    if (w->gate_bias != NULL)
        shaders_chosen_add(s, c, gate, w->gate_bias, w->bias_stride, width);
    if (w->gate_bias != NULL && w->up_bias != NULL)
        shaders_chosen_add(s, c, up, w->up_bias, w->bias_stride, width);
    shaders_activate(s, m->hp->ffn_act, m->hp->situ, w->limit, gate, up, width,
                     c->n_tokens * c->n_used);
    shaders_chosen_scale(s, c, gate, width);
    device_record_pack(s, mid, gate.p, gate.ld);
}

static void record(struct forward_pass *r, const struct moe_weights *w,
                   const struct shaders_chosen *c, const struct shaders_matrix *matrices) {
    struct model *m = r->m;
    struct shaders *s = m->shaders;
    const struct moe_params *p = &m->hp->moe;
    const struct acts mid = forward_acts_part(&m->moe.mid_act, 0, c->n_tokens * c->n_used);
    const struct wmat *shared = &w->shared.down, *down;
    record_choice(r, w);
    if (shared->n_cols != 0) {
        const struct ffn_up up = moe_shared_up(m, w, shared_weights(m));
        device_record_up(m, &up, 0, c->n_tokens);
        shaders_matmul_fixed(s, shared, forward_act_for(&m->shared_act, shared), r->acc,
                             m->ld_acc, plan_ffn_segment(p->n_ff_shared));
    }
    if (c->begin >= c->end) { /* then all of them are other ranks' */
        if (shared->n_cols == 0)
            shaders_fixed_zero(s, r->acc, m->ld_acc, m->hp->n_embd, c->n_tokens);
        return;
    }
    down = &w->experts[c->begin].down;
    record_chosen_up(m, w, c, matrices, &mid);
    shaders_chosen_matmul_fixed(s, c, matrices + (size_t)2 * p->n_experts, down,
                                forward_act_for(&mid, down), r->acc, m->ld_acc,
                                plan_expert_segment(p->n_ff), shared->n_cols != 0);
    if (w->down_bias != NULL)
        shaders_chosen_fixed_bias(s, c, r->acc, m->ld_acc, w->down_bias, m->hp->n_embd,
                                  m->hp->n_embd);
}

/* A layer's: [3, n_experts]. */
static struct shaders_matrix *matrices_of(const struct model *m, uint32_t layer) {
    return m->on_device.matrices + (size_t)layer * 3 * m->hp->moe.n_experts;
}

void moe_share_matrices(struct model *m) {
    const uint32_t n = m->hp->moe.n_experts;
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
    const uint32_t n = r->step->n_tokens, layer = (uint32_t)(lw - m->w.layers);
    const struct shaders_chosen c = moe_chosen(r, m->on_device.choices);
    if (!on_device(r) || !device_chooses(m->hp, m->share->layer_begin + layer) || r->sharded ||
        n > device_few(&m->hp->moe))
        return false;
    if (device_records(pool))
        record(r, lw->moe, &c, matrices_of(m, layer));
    pool_barrier(pool);
    return true;
}
