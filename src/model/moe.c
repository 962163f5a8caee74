/* moe.c: the FFN of a layer with experts.
 *
 * Each token's router picks its experts: on every rank, since router and inputs are whole there, or, of many tokens,
 * on one, which tells its team; the tokens are then grouped by expert, so that an expert's tiles are read once for
 * all its tokens. gate and up run over the list of active experts as one row of tiles; the routing
 * weight is multiplied in before the down product, whose segments are fixed point: so the sum over
 * experts, like the sum over ranks, is a sum of integers, and neither the order of experts nor
 * who holds which slice of them can change a bit. */
#include "model/forward.h"

/* ---- routing ---------------------------------------------------------------------------------- */

static void route_token(struct run *r, int thread, const struct moe_weights *w, size_t t) {
    struct model *m = r->m;
    const struct moe_params *p = &m->hp->moe;
    struct moe_buffers *b = &m->moe;
    float *logits = b->logits + t * b->ld_logits;
    if (w->router_bias != NULL)
        m->k->add(logits, w->router_bias, p->n_experts);
    router_choose(m->k, p, logits, w->choice_bias,
                  b->router_scratch + (size_t)thread * p->n_experts,
                  b->choices + t * p->n_used);
    if (w->shared_router.n_rows != 0) {
        float weight = -m->shared_logits[t * TILE_ROWS];
        m->k->exp(&weight, &weight, 1);
        m->shared_weights[t] = 1.0f / (1.0f + weight);
    }
}

/* From how many tokens on a team shares the routing. A router is of floats and whole on every rank: a prompt of Kimi K2 on
 * eight ranks would, by the operations, have each spend a seventh of its time on it. With fewer a wire's latency may cost
 * more. */
#define TOKENS_SHARED 64

/* What a token's route takes of acc when it is told: experts, weights, the shared experts' weight. */
static size_t route_values(const struct moe_params *p) {
    return 2 * (size_t)p->n_used + 1;
}

/* Whether each rank routes some tokens and all tell each other; the same on all. With two waves there is a sum under way
 * beside this rank's work, which a word in between would wait for. */
static bool shares_routing(const struct run *r) {
    const struct model *m = r->m;
    return m->team != NULL && r->n_waves == 1 && r->step->n_tokens >= TOKENS_SHARED &&
           route_values(&m->hp->moe) <= m->ld_acc;
}

/* Of the step. */
struct tokens {
    uint32_t begin, n;
};

/* The tokens that this rank routes: of shared ones whole groups, as large a part as its part of the experts. */
static struct tokens routed_here(const struct run *r) {
    const struct moe_params *p = &r->m->hp->moe;
    const struct share *sh = r->m->share;
    const uint32_t n = r->step->n_tokens;
    if (!shares_routing(r))
        return (struct tokens){0, n};
    bool sliced = sh->expert_begin == 0 && sh->expert_end == p->n_experts;
    uint64_t from = sliced ? sh->expert_ff_begin : sh->expert_begin,
             to = sliced ? sh->expert_ff_end : sh->expert_end,
             of = sliced ? p->n_ff : p->n_experts, groups = act_n_groups(n);
    uint32_t begin = (uint32_t)MIN(groups * from / of * ACT_GROUP, n),
             end = (uint32_t)MIN(groups * to / of * ACT_GROUP, n);
    return (struct tokens){begin, end - begin};
}

static void route_tokens(struct run *r, struct pool *pool, int thread,
                         const struct moe_weights *w, struct tokens mine) {
    size_t begin, end;
    while (pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++)
            route_token(r, thread, w, mine.begin + t);
    pool_barrier(pool);
}

/* The route of token t as integers of 32 bits, which is how wires like them; of a token of another rank zeros. */
static void write_route(const struct run *r, size_t t, bool is_mine, int64_t *out) {
    const struct model *m = r->m;
    const uint32_t n_used = m->hp->moe.n_used;
    const struct choice *c = m->moe.choices + t * n_used;
    int32_t bits = 0;
    memset(out, 0, route_values(&m->hp->moe) * sizeof *out);
    for (uint32_t j = 0; j < n_used && is_mine; j++) {
        memcpy(&bits, &c[j].weight, sizeof bits);
        out[2 * j] = c[j].expert;
        out[2 * j + 1] = bits;
    }
    if (m->hp->moe.shared_router && is_mine) {
        memcpy(&bits, &m->shared_weights[t], sizeof bits);
        out[2 * n_used] = bits;
    }
}

static void read_route(const struct run *r, size_t t, const int64_t *in) {
    const struct model *m = r->m;
    const uint32_t n_used = m->hp->moe.n_used;
    struct choice *c = m->moe.choices + t * n_used;
    int32_t bits;
    for (uint32_t j = 0; j < n_used; j++) {
        bits = (int32_t)in[2 * j + 1];
        c[j].expert = (uint32_t)in[2 * j];
        memcpy(&c[j].weight, &bits, sizeof bits);
    }
    if (m->hp->moe.shared_router) {
        bits = (int32_t)in[2 * n_used];
        memcpy(&m->shared_weights[t], &bits, sizeof bits);
    }
}

/* What others say is not believed. */
static enum status check_choices(const struct run *r, struct err *err) {
    const struct moe_params *p = &r->m->hp->moe;
    const struct choice *c = r->m->moe.choices;
    for (size_t i = 0; i < (size_t)r->step->n_tokens * p->n_used; i++)
        if (c[i].expert >= p->n_experts)
            return err_set(err, ST_BAD_INPUT, "a rank of the team chose expert %u of %u",
                           c[i].expert, p->n_experts);
    return ST_OK;
}

/* All learn what each routed: a sum in which every token has one member's numbers and the others' zeros. acc is free
 * until the down product. False if the group was lost, or one of it chose what is not there. */
static bool share_routes(struct run *r, struct pool *pool, int thread, struct tokens mine) {
    const size_t each = route_values(&r->m->hp->moe), n = r->step->n_tokens;
    size_t begin, end;
    while (pool_claim(pool, n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++)
            write_route(r, t, t >= mine.begin && t < mine.begin + mine.n, r->acc + t * each);
    pool_barrier(pool);
    if (!forward_team_sum(r, pool, thread, n * each))
        return false;
    while (pool_claim(pool, n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++)
            read_route(r, t, r->acc + t * each);
    pool_barrier(pool);
    if (thread == 0)
        r->st = check_choices(r, &r->err);
    pool_barrier(pool);
    return r->st == ST_OK;
}

/* The choices of all tokens. False as share_routes(). */
static bool route(struct run *r, struct pool *pool, int thread, const struct moe_weights *w) {
    struct model *m = r->m;
    struct moe_buffers *b = &m->moe;
    const struct tokens mine = routed_here(r);
    const struct acts x = forward_acts_part(&m->x_act, mine.begin, mine.n);
    const bool has_shared = w->shared_router.n_rows != 0;
    float *shared = has_shared ? m->shared_logits + (size_t)mine.begin * TILE_ROWS : NULL;
    const struct product list[] = {
        {&w->router, &x, b->logits + mine.begin * b->ld_logits, b->ld_logits},
        {&w->shared_router, &x, shared, TILE_ROWS},
    };
    if (mine.n > 0)
        forward_products(r, pool, list, has_shared ? 2 : 1);
    if (r->step->n_tokens > 1)
        route_tokens(r, pool, thread, w, mine);
    else if (thread == 0) /* is no work to share */
        route_token(r, thread, w, 0);
    return !shares_routing(r) || share_routes(r, pool, thread, mine);
}

static bool is_held(const struct model *m, uint32_t expert) {
    return expert >= m->share->expert_begin && expert < m->share->expert_end &&
           m->share->expert_ff_begin < m->share->expert_ff_end;
}

/* Thread 0: sorts the (token, expert) pairs by expert, tokens ascending. */
static void group_by_expert(struct run *r) {
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

/* Thread 0: the inputs and middles of the active experts, and of the shared ones. */
static void plan_experts(struct run *r, const struct moe_weights *w) {
    struct model *m = r->m;
    struct moe_buffers *b = &m->moe;
    b->n_ups = 0;
    for (uint32_t i = 0; i < b->n_active; i++) {
        uint32_t e = b->active[i], first = b->first[e], n = b->first[e + 1] - first;
        const struct ffn_weights *expert = &w->experts[e];
        bool biased = w->gate_bias != NULL;
        /* A single token is packed already. */
        b->in[i] = r->step->n_tokens == 1 ? m->x_act : forward_acts_part(&b->in_act, first, n);
        b->mid[i] = forward_acts_part(&b->mid_act, first, n);
        b->slot[e] = i;
        b->ups[b->n_ups++] = (struct ffn_up){
            .gate = &expert->gate,
            .up = &expert->up,
            .x = &b->in[i],
            .out = &b->mid[i],
            .gate_bias = biased ? w->gate_bias + (size_t)e * w->bias_stride : NULL,
            .up_bias = biased ? w->up_bias + (size_t)e * w->bias_stride : NULL,
            .weights = b->weights + first};
    }
    if (w->shared.gate.n_rows != 0)
        b->ups[b->n_ups++] =
            (struct ffn_up){.gate = &w->shared.gate,
                            .up = &w->shared.up,
                            .x = &m->x_act,
                            .out = &m->shared_act,
                            .weights = w->shared_router.n_rows != 0 ? m->shared_weights : NULL};
}

/* ---- the experts ------------------------------------------------------------------------------ */

/* Group g of dst = the given tokens of src, as they are packed there, written in order: each token is quantized once,
 * however many experts it has. */
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

/* The inputs of each expert, group by group. */
static void gather_inputs(struct run *r, struct pool *pool) {
    struct model *m = r->m;
    struct moe_buffers *b = &m->moe;
    size_t begin, end;
    while (pool_claim(pool, b->n_groups, 1, &begin, &end))
        for (size_t i = begin; i < end; i++) {
            struct moe_group g = b->groups[i];
            const struct acts *in = &b->in[b->slot[g.expert]];
            uint32_t first = b->first[g.expert] + g.group * ACT_GROUP;
            uint32_t n = MIN(b->first[g.expert + 1] - first, (uint32_t)ACT_GROUP);
            if (in->q8.q != NULL)
                gather_q8(&in->q8, g.group, &m->x_act.q8, b->tokens + first, n);
            if (in->f32.f != NULL)
                gather_f32(&in->f32, g.group, &m->x_act.f32, b->tokens + first, n);
        }
    pool_barrier(pool);
}

/* The biases of expert e's rows, each with its token's routing weight. */
static void add_down_bias(struct run *r, const float *bias, uint32_t e, uint32_t tile_begin,
                          uint32_t tile_end) {
    struct model *m = r->m;
    struct moe_buffers *b = &m->moe;
    uint32_t end = MIN(tile_end * TILE_ROWS, m->hp->n_embd);
    for (uint32_t j = b->first[e]; j < b->first[e + 1]; j++)
        for (uint32_t c = tile_begin * TILE_ROWS; c < end; c++)
            r->acc[b->tokens[j] * m->ld_acc + c] += forward_fixed(b->weights[j] * bias[c]);
}

/* acc[.., tiles] of all tokens from the shared experts (or zero), then of each active expert in turn.
 * Threads take disjoint tiles of rows, so nobody else adds to these. */
static void down_tiles(struct run *r, const struct moe_weights *w, uint32_t tile_begin,
                       uint32_t tile_end) {
    struct model *m = r->m;
    struct moe_buffers *b = &m->moe;
    if (w->shared.down.n_cols != 0)
        m->k->matmul_fixed(&w->shared.down, forward_act_for(&m->shared_act, &w->shared.down),
                           r->acc, m->ld_acc, NULL, plan_ffn_segment(m->hp->moe.n_ff_shared),
                           tile_begin, tile_end);
    else
        for (uint32_t t = 0; t < r->step->n_tokens; t++)
            memset(r->acc + t * m->ld_acc + tile_begin * TILE_ROWS, 0,
                   (tile_end - tile_begin) * TILE_ROWS * sizeof *r->acc);
    for (uint32_t i = 0; i < b->n_active; i++) {
        uint32_t e = b->active[i];
        const struct wmat *down = &w->experts[e].down;
        m->k->matmul_fixed(down, forward_act_for(&b->mid[i], down), r->acc, m->ld_acc,
                           b->tokens + b->first[e], plan_expert_segment(m->hp->moe.n_ff),
                           tile_begin, tile_end);
        if (w->down_bias != NULL)
            add_down_bias(r, w->down_bias + (size_t)e * m->hp->n_embd, e, tile_begin, tile_end);
    }
}

static void down(struct run *r, struct pool *pool, const struct moe_weights *w) {
    struct model *m = r->m;
    uint32_t n_tiles = (uint32_t)div_up(m->hp->n_embd, TILE_ROWS);
    size_t begin, end;
    size_t tile_bytes = w->shared.down.tile_bytes; /* of all that are added up */
    for (size_t i = 0; i < m->moe.n_active; i++)
        tile_bytes += w->experts[m->moe.active[i]].down.tile_bytes;
    while (forward_claim_tiles(r, pool, n_tiles, tile_bytes, &begin, &end))
        down_tiles(r, w, (uint32_t)begin, (uint32_t)end);
    pool_barrier(pool);
}

bool moe_forward(struct run *r, struct pool *pool, int thread, const struct layer_weights *lw) {
    struct model *m = r->m;
    if (!route(r, pool, thread, lw->moe))
        return false;
    if (thread == 0) {
        group_by_expert(r);
        plan_experts(r, lw->moe);
    }
    pool_barrier(pool);
    if (r->step->n_tokens > 1)
        gather_inputs(r, pool);
    ffn_up_forward(r, pool, thread, m->moe.ups, m->moe.n_ups);
    down(r, pool, lw->moe);
    return true;
}
