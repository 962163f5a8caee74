/* moe.c: the FFN of a layer with experts.
 *
 * Each token's router selects its experts. This happens on every rank, since router and inputs
 * are whole there. In a sharded step one rank does it and tells its team. The tokens are then
 * grouped by expert, so that an expert's tiles are read once for all its tokens. gate and up
 * run over the list of active experts as one row of tiles. The routing weight is applied before
 * the down product, whose segments are fixed point. So the sum over experts, like the sum over
 * ranks, is a sum of integers. Neither the order of experts nor the ranks that hold their
 * slices can change a bit.
 *
 * Experts may work in a latent space. Every rank has the matrix into it whole. What the experts
 * give is summed over the team before it is rounded; then each rank computes its rows of the
 * matrix out of it. */
#include "model/on_device.h"

#include "kernels/activation.h"
#include "model/moe.h"
#include "shaders/definition.h"

/* ---- routing ----------------------------------------------------------------------------- */

struct router moe_router(const struct moe_params *p, const struct moe_weights *w) {
    return (struct router){.n_experts = p->n_experts,
                           .n_used = p->n_used,
                           .n_groups = p->n_groups,
                           .n_groups_used = p->n_groups_used,
                           .gating = p->gating,
                           .groups_by_best = p->groups_by_best,
                           .normalize = p->normalize,
                           .scale = p->scale,
                           .bias = w->router_bias,
                           .choice_bias = w->choice_bias,
                           .expert_scale = w->expert_scale};
}

static void route_token(struct forward_pass *r, int thread, const struct moe_weights *w,
                        size_t t) {
    struct model *m = r->m;
    const struct router router = moe_router(&m->hp->moe, w);
    struct moe_buffers *b = &m->moe;
    const int32_t *given =
        w->of_token != NULL ? w->of_token + (size_t)r->step->tokens[t] * router.n_used : NULL;
    router_choose(m->k, &router, b->logits + t * b->ld_logits, given,
                  b->router_scratch + (size_t)thread * router.n_experts,
                  b->choices + t * router.n_used);
    if (w->shared_router.n_rows != 0) {
        m->shared_weights[t] = m->shared_logits[t * TILE_ROWS];
        sigmoids(m->k, &m->shared_weights[t], 1);
    }
}

static void route_tokens(struct forward_pass *r, struct pool *pool, int thread,
                         const struct moe_weights *w) {
    size_t begin, end;
    while (pool_claim(pool, r->mine.n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++)
            route_token(r, thread, w, r->mine.begin + t);
    pool_barrier(pool);
}

/* Selects the experts of this rank's tokens. A router has float weights and is whole on every
 * rank. If each of eight ranks routed all tokens of a prompt of Kimi K2, it would spend a
 * seventh of its time on that (by the number of operations). */
static void route(struct forward_pass *r, struct pool *pool, int thread,
                  const struct moe_weights *w) {
    struct model *m = r->m;
    struct moe_buffers *b = &m->moe;
    const struct tokens mine = r->mine;
    const struct acts x = forward_acts_part(&m->x_act, mine.begin, mine.n);
    const struct acts in =
        w->router_scale != NULL ? forward_acts_part(&m->router_act, mine.begin, mine.n) : x;
    const bool has_shared = w->shared_router.n_rows != 0;
    float *shared = has_shared ? m->shared_logits + (size_t)mine.begin * TILE_ROWS : NULL;
    const struct product list[] = {
        {&w->router, &in, b->logits + mine.begin * b->ld_logits, b->ld_logits},
        {&w->latent_down, &x, b->latents + mine.begin * b->ld_latents, b->ld_latents},
        {&w->shared_router, &x, shared, TILE_ROWS},
    };
    if (mine.n > 0)
        forward_products(r, pool, list, has_shared ? 3 : 2);
    forward_host(r, pool);
    if (r->step->n_tokens > 1)
        route_tokens(r, pool, thread, w);
    else if (thread == 0) /* there is nothing to share */
        route_token(r, thread, w, 0);
}

/* The first choice of an expert that is not there; NULL: none is. */
static const struct choice *wrong_choice(const struct forward_pass *r) {
    const struct moe_params *p = &r->m->hp->moe;
    const struct choice *c = r->m->moe.choices;
    for (size_t i = 0; i < (size_t)r->step->n_tokens * p->n_used; i++)
        if (c[i].expert >= p->n_experts)
            return &c[i];
    return NULL;
}

/* Where the step is sharded, all learn what each has packed and routed, and do not believe
 * it. */
static bool tell_routes(struct forward_pass *r, struct pool *pool, int thread) {
    const struct model *m = r->m;
    const struct moe_buffers *b = &m->moe;
    struct fabric_rows more[FORWARD_MORE] = {
        {b->choices, m->hp->moe.n_used * sizeof *b->choices}};
    size_t n = 1;
    if (!r->sharded)
        return true;
    if (m->shared_weights != NULL)
        more[n++] = (struct fabric_rows){m->shared_weights, sizeof *m->shared_weights};
    if (b->latents != NULL)
        more[n++] = (struct fabric_rows){b->latents, b->ld_latents * sizeof *b->latents};
    if (!forward_tell(r, pool, thread, &m->x_act, m->x_told, more, n))
        return false;
    const struct choice *wrong = wrong_choice(r); /* found by every thread alike */
    if (wrong == NULL)
        return true;
    if (thread == 0)
        r->st = err_set(&r->err, ST_BAD_INPUT, "a rank of the team chose expert %u of %u",
                        wrong->expert, m->hp->moe.n_experts);
    return false;
}

static bool is_held(const struct model *m, uint32_t expert) {
    return expert >= m->share->expert_begin && expert < m->share->expert_end &&
           m->share->expert_ff_begin < m->share->expert_ff_end;
}

/* Thread 0: sorts the (token, expert) pairs by expert, tokens ascending. */
static void group_by_expert(struct forward_pass *r) {
    struct model *m = r->m;
    const struct moe_params *p = &m->hp->moe;
    struct moe_buffers *b = &m->moe;
    size_t n = (size_t)r->step->n_tokens * p->n_used;
    memset(b->first, 0, (p->n_experts + 1) * sizeof *b->first);
    for (size_t i = 0; i < n; i++)
        b->first[b->choices[i].expert + 1] += is_held(m, b->choices[i].expert);
    b->n_active = b->n_groups = 0;
    for (uint32_t e = 0; e < p->n_experts; e++) {
        uint32_t n_rows = b->first[e + 1];
        b->first[e + 1] += b->first[e];
        if (n_rows == 0)
            continue;
        b->active[b->n_active++] = e;
        for (uint32_t g = 0; g < act_n_groups(n_rows); g++)
            b->groups[b->n_groups++] = (struct moe_group){e, g};
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t e = b->choices[i].expert;
        if (!is_held(m, e))
            continue;
        uint32_t row = b->first[e] + b->filled[e]++;
        b->tokens[row] = (uint32_t)(i / p->n_used);
        b->weights[row] = b->choices[i].weight;
    }
    for (uint32_t i = 0; i < b->n_active; i++)
        b->filled[b->active[i]] = 0;
}

/* The experts of a single token read it as it is packed already. */
static bool reads_input(const struct forward_pass *r) {
    return r->step->n_tokens == 1 && !r->m->hp->moe.weighs_input;
}

struct ffn_up moe_shared_up(const struct model *m, const struct moe_weights *w,
                            const float *weights) {
    return (struct ffn_up){.gate = &w->shared.gate,
                           .up = &w->shared.up,
                           .x = &m->x_act,
                           .out = &m->shared_act,
                           .limit = w->shared_limit,
                           .weights = w->shared_router.n_rows != 0 ? weights : NULL};
}

/* Thread 0: the inputs and middles of the active experts, and of the shared ones. */
static void plan_experts(struct forward_pass *r, const struct moe_weights *w) {
    struct model *m = r->m;
    struct moe_buffers *b = &m->moe;
    b->n_ups = 0;
    for (uint32_t i = 0; i < b->n_active; i++) {
        uint32_t e = b->active[i], first = b->first[e], n = b->first[e + 1] - first;
        const struct ffn_weights *expert = &w->experts[e];
        bool biased = w->gate_bias != NULL;
        b->in[i] = reads_input(r) ? *moe_input(m) : forward_acts_part(&b->in_act, first, n);
        b->mid[i] = forward_acts_part(&b->mid_act, first, n);
        b->slot[e] = i;
        b->ups[b->n_ups++] = (struct ffn_up){
            .gate = &expert->gate,
            .up = &expert->up,
            .x = &b->in[i],
            .out = &b->mid[i],
            .gate_bias = biased ? w->gate_bias + (size_t)e * w->bias_stride : NULL,
            .up_bias = biased ? w->up_bias + (size_t)e * w->bias_stride : NULL,
            .weights = m->hp->moe.weighs_input ? NULL : b->weights + first,
            .limit = w->limit};
    }
    if (w->shared.gate.n_rows != 0)
        b->ups[b->n_ups++] = moe_shared_up(m, w, m->shared_weights);
}

/* ---- the experts ------------------------------------------------------------------------- */

/* Group g of dst = the given tokens of src, in packed form, written in order: each token is
 * quantized once, however many experts it has. */
static void gather_q8(const struct act *dst, uint32_t g, const struct act *src,
                      const uint32_t *tokens, uint32_t n) {
    size_t n_blocks = src->n_cols / ACT_BLOCK, at = (size_t)g * ACT_GROUP * n_blocks;
    size_t from[ACT_GROUP], step[ACT_GROUP];
    for (uint32_t j = 0; j < n; j++) {
        uint32_t group = tokens[j] / ACT_GROUP * ACT_GROUP;
        step[j] = MIN(src->n_tokens - group, (uint32_t)ACT_GROUP);
        from[j] = group * n_blocks + tokens[j] - group;
    }
    for (size_t b = 0; b < n_blocks; b++)
        for (uint32_t j = 0; j < n; j++, at++) {
            size_t old = from[j] + b * step[j];
            memcpy(dst->q + at * ACT_BLOCK, src->q + old * ACT_BLOCK, ACT_BLOCK);
            dst->d[at] = src->d[old];
            dst->sums[at] = src->sums[old];
            dst->start[at] = src->start[old];
            dst->s[at] = src->s[old];
        }
}

static void gather_f32(const struct act *dst, uint32_t g, const struct act *src,
                       const uint32_t *tokens, uint32_t n) {
    float *to = dst->f + (size_t)g * ACT_GROUP * src->n_cols;
    for (uint32_t j = 0; j < n; j++) {
        uint32_t token = tokens[j], group = token / ACT_GROUP * ACT_GROUP;
        uint32_t gs = MIN(src->n_tokens - group, (uint32_t)ACT_GROUP);
        const float *from = src->f + (size_t)group * src->n_cols + token - group;
        for (size_t c = 0; c < src->n_cols; c++)
            to[c * n + j] = from[c * gs];
    }
}

/* Multiplies n inputs from `first` on by their weights. */
static void weigh_inputs(const struct acts *in, uint32_t first, const float *weights,
                         uint32_t n) {
    for (uint32_t j = 0; j < n; j++) {
        if (in->q8.q != NULL)
            act_weigh(&in->q8, first + j, weights[j]);
        if (in->f32.f != NULL)
            act_weigh(&in->f32, first + j, weights[j]);
    }
}

/* The inputs of each expert, group by group. */
static void gather_inputs(struct forward_pass *r, struct pool *pool) {
    struct model *m = r->m;
    struct moe_buffers *b = &m->moe;
    size_t begin, end;
    forward_host(r, pool);
    while (pool_claim(pool, b->n_groups, 1, &begin, &end))
        for (size_t i = begin; i < end; i++) {
            struct moe_group g = b->groups[i];
            const struct acts *in = &b->in[b->slot[g.expert]];
            uint32_t first = b->first[g.expert] + g.group * ACT_GROUP;
            uint32_t n = MIN(b->first[g.expert + 1] - first, (uint32_t)ACT_GROUP);
            if (in->q8.q != NULL)
                gather_q8(&in->q8, g.group, &moe_input(m)->q8, b->tokens + first, n);
            if (in->f32.f != NULL)
                gather_f32(&in->f32, g.group, &moe_input(m)->f32, b->tokens + first, n);
            if (m->hp->moe.weighs_input)
                weigh_inputs(in, g.group * ACT_GROUP, b->weights + first, n);
        }
    pool_barrier(pool);
}

/* To acc the biases of expert e's rows, each with its token's routing weight. */
static void add_down_bias(struct forward_pass *r, int64_t *acc, const float *bias, uint32_t e,
                          uint32_t tile_begin, uint32_t tile_end) {
    struct model *m = r->m;
    struct moe_buffers *b = &m->moe;
    uint32_t end = MIN(tile_end * TILE_ROWS, m->hp->n_embd);
    for (uint32_t j = b->first[e]; j < b->first[e + 1]; j++)
        for (uint32_t c = tile_begin * TILE_ROWS; c < end; c++)
            acc[b->tokens[j] * m->ld_acc + c] += forward_fixed(b->weights[j] * bias[c]);
}

/* Adds to acc[.., tiles] of its tokens what the i-th active expert makes of them. */
static void add_expert(struct forward_pass *r, int64_t *acc, const struct moe_weights *w,
                       uint32_t i, uint32_t tile_begin, uint32_t tile_end) {
    struct model *m = r->m;
    struct moe_buffers *b = &m->moe;
    uint32_t e = b->active[i];
    const struct wmat *down = &w->experts[e].down;
    m->k->matmul_fixed(down, forward_act_for(&b->mid[i], down), acc, moe_ld(m),
                       b->tokens + b->first[e], plan_expert_segment(m->hp->moe.n_ff),
                       tile_begin, tile_end);
    if (w->down_bias != NULL)
        add_down_bias(r, acc, w->down_bias + (size_t)e * m->hp->n_embd, e, tile_begin,
                      tile_end);
}

/* The shared experts' to acc, as matmul_fixed does with such rows. */
static void shared_down(struct forward_pass *r, int64_t *acc, const uint32_t *rows,
                        const struct wmat *down, uint32_t tile_begin, uint32_t tile_end) {
    struct model *m = r->m;
    m->k->matmul_fixed(down, forward_act_for(&m->shared_act, down), acc, m->ld_acc, rows,
                       plan_ffn_segment(m->hp->moe.n_ff_shared), tile_begin, tile_end);
}

/* acc[.., tiles] of all tokens, whose rows are ld apart, from the shared experts, or zero. */
static void shared_tiles(struct forward_pass *r, const struct wmat *shared, size_t ld,
                         uint32_t tile_begin, uint32_t tile_end) {
    if (shared->n_cols != 0)
        shared_down(r, r->acc, NULL, shared, tile_begin, tile_end);
    else
        for (uint32_t t = 0; t < r->step->n_tokens; t++)
            memset(r->acc + t * ld + tile_begin * TILE_ROWS, 0,
                   (tile_end - tile_begin) * TILE_ROWS * sizeof *r->acc);
}

/* acc[.., tiles] of all tokens from the shared experts (or zero), then from each active expert
 * in turn. Threads take disjoint tiles of rows, so no other thread adds to these. */
static void down_tiles(struct forward_pass *r, const struct moe_weights *w, uint32_t tile_begin,
                       uint32_t tile_end) {
    struct model *m = r->m;
    shared_tiles(r, moe_shared_beside(m, w), moe_ld(m), tile_begin, tile_end);
    for (uint32_t i = 0; i < m->moe.n_active; i++)
        add_expert(r, r->acc, w, i, tile_begin, tile_end);
}

/* Each expert adds to the rows of its tokens, all over acc. The part of acc in use stays in the
 * second-level cache while the experts pass. A prompt of 512 over two ranks of one thread
 * (interleaved, Zen 4): Qwen3-30B-A3B 1.01 to 1.09 times as fast, DeepSeek-V2-Lite 1.02 to
 * 1.04. Otherwise the thread would process all tiles at once. */
#define NEAR_ACC_BYTES 524288

static uint32_t tiles_near(const struct forward_pass *r) {
    const size_t pair_bytes = r->step->n_tokens * 2 * TILE_ROWS * sizeof *r->acc;
    return 2 * (uint32_t)MAX(NEAR_ACC_BYTES / pair_bytes, (size_t)1); /* kernels take pairs */
}

static void down(struct forward_pass *r, struct pool *pool, const struct moe_weights *w) {
    struct model *m = r->m;
    const uint32_t near = tiles_near(r);
    uint32_t n_tiles = (uint32_t)div_up(moe_width(m), TILE_ROWS);
    size_t begin, end;
    size_t tile_bytes = moe_shared_beside(m, w)->tile_bytes; /* of all that are added up */
    for (size_t i = 0; i < m->moe.n_active; i++)
        tile_bytes += w->experts[m->moe.active[i]].down.tile_bytes;
    while (forward_claim_tiles(r, pool, n_tiles, tile_bytes, &begin, &end))
        for (uint32_t t = (uint32_t)begin; t < end; t += near)
            down_tiles(r, w, t, MIN(t + near, (uint32_t)end));
    pool_barrier(pool);
}

/* Few tokens: the threads process the tiles of all experts as one row, so that each piece is a
 * long run in memory. Each thread adds into sums of its own (the first one's are acc). By tiles
 * of acc, as above, a thread would jump every 28 KB (Qwen3-30B-A3B in Q4_K, two threads). Each
 * jump costs it 1.4 us on Zen 4: a token took 1.03 to 1.05 times as long. */
static void down_few(struct forward_pass *r, struct pool *pool, int thread,
                     const struct moe_weights *w) {
    struct model *m = r->m;
    struct moe_buffers *b = &m->moe;
    static const uint32_t in_order[] = {0, 1, 2, 3, 4, 5, 6, 7};
    _Static_assert(ARRAY_LEN(in_order) == MOE_FEW, "a row for each token");
    const struct wmat *shared = moe_shared_beside(m, w);
    const struct wmat *first = b->n_active > 0 ? &w->experts[b->active[0]].down : shared;
    const size_t n_tiles = div_up(moe_width(m), TILE_ROWS);
    const size_t n = b->n_active + (shared->n_cols != 0);
    const size_t n_sums = r->step->n_tokens * moe_ld(m), apart = MOE_FEW * m->ld_acc;
    int64_t *sums = thread == 0 ? r->acc : b->sums + (size_t)(thread - 1) * apart;
    size_t begin, end;
    memset(sums, 0, n_sums * sizeof *sums);
    while (forward_claim_tiles(r, pool, n * n_tiles, first->tile_bytes, &begin, &end))
        for (size_t to; begin < end; begin = to) {
            const size_t i = begin / n_tiles, at = i * n_tiles;
            to = MIN(end, at + n_tiles);
            if (i < b->n_active)
                add_expert(r, sums, w, (uint32_t)i, (uint32_t)(begin - at),
                           (uint32_t)(to - at));
            else
                shared_down(r, sums, in_order, shared, (uint32_t)(begin - at),
                            (uint32_t)(to - at));
        }
    pool_barrier(pool);
    while (pool_claim(pool, div_up(n_sums, TILE_ROWS), 8, &begin, &end))
        for (size_t i = begin * TILE_ROWS; i < MIN(end * TILE_ROWS, n_sums); i++)
            for (int t = 1; t < pool_n_threads(pool); t++)
                r->acc[i] += b->sums[(size_t)(t - 1) * apart + i];
    pool_barrier(pool);
}

/* The latents, in b->latents, in the form that products read. */
static void pack_latents(struct forward_pass *r, struct pool *pool) {
    const struct moe_buffers *b = &r->m->moe;
    forward_pack(r, pool, &b->latent_act, b->latents, b->ld_latents);
}

/* acc = the shared experts, plus this rank's rows of what the latents give; in_order [n]. */
static void up_tiles(struct forward_pass *r, const struct moe_weights *w, uint32_t tile_begin,
                     uint32_t tile_end) {
    struct model *m = r->m;
    const struct moe_buffers *b = &m->moe;
    const struct wmat *up = &w->latent_up;
    const uint32_t first = m->share->embd_begin / TILE_ROWS;
    const uint32_t begin = MAX(tile_begin, first),
                   end = MIN(tile_end, first + (uint32_t)wmat_n_tiles(up));
    shared_tiles(r, &w->shared.down, m->ld_acc, tile_begin, tile_end);
    if (begin < end)
        m->k->matmul_fixed(up, forward_act_for(&b->latent_act, up),
                           r->acc + (size_t)first * TILE_ROWS, m->ld_acc, b->in_order,
                           plan_ffn_segment(m->hp->moe.n_latent), begin - first, end - first);
}

/* From the experts' sums in acc out of the latent space. False if the group was lost. */
static bool leave_latents(struct forward_pass *r, struct pool *pool, int thread,
                          const struct moe_weights *w) {
    struct model *m = r->m;
    struct moe_buffers *b = &m->moe;
    const uint32_t n = r->step->n_tokens, width = m->hp->moe.n_latent;
    size_t begin, end;
    if (!forward_team_sum(r, pool, thread, n * b->ld_latents))
        return false;
    if (on_device(r)) {
        moe_leave_latents_on_device(r, pool, w);
        return true;
    }
    while (pool_claim(pool, n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            float *row = b->latents + t * b->ld_latents;
            m->k->fixed_get(row, r->acc + t * b->ld_latents, width);
            if (w->latent_norm != NULL)
                m->k->rmsnorm(row, row, w->latent_norm, width, m->hp->rms_eps);
            b->in_order[t] = (uint32_t)t;
        }
    pool_barrier(pool);
    pack_latents(r, pool);
    while (forward_claim_tiles(r, pool, div_up(m->hp->n_embd, TILE_ROWS),
                               w->latent_up.tile_bytes + w->shared.down.tile_bytes, &begin,
                               &end))
        up_tiles(r, w, (uint32_t)begin, (uint32_t)end);
    pool_barrier(pool);
    return true;
}

/* From the choices to the sum over experts. */
static void on_pool(struct forward_pass *r, struct pool *pool, int thread,
                    const struct moe_weights *w) {
    const struct moe_buffers *b = &r->m->moe;
    if (thread == 0) {
        group_by_expert(r);
        plan_experts(r, w);
    }
    pool_barrier(pool);
    if (!reads_input(r))
        gather_inputs(r, pool);
    ffn_up_forward(r, pool, thread, b->ups, b->n_ups);
    if (r->step->n_tokens <= MOE_FEW)
        down_few(r, pool, thread, w);
    else
        down(r, pool, w);
}

/* Everything up to the sum over experts. False: the group was lost, or a member chose wrong. */
static bool choose_and_sum(struct forward_pass *r, struct pool *pool, int thread,
                           const struct layer_weights *lw) {
    if (moe_on_device(r, pool, lw))
        return true;
    route(r, pool, thread, lw->moe);
    if (!tell_routes(r, pool, thread))
        return false;
    if (r->m->hp->moe.n_latent != 0)
        pack_latents(r, pool);
    if (on_device(r))
        moe_chosen_on_device(r, pool, lw);
    else
        on_pool(r, pool, thread, lw->moe);
    return true;
}

bool moe_forward(struct forward_pass *r, struct pool *pool, int thread,
                 const struct layer_weights *lw) {
    if (!choose_and_sum(r, pool, thread, lw))
        return false;
    return r->m->hp->moe.n_latent == 0 || leave_latents(r, pool, thread, lw->moe);
}
