/* forward.c: one step through the layers.
 *
 * All threads of the rank run step_thread() together. A step is a sequence of phases with a
 * barrier after each. Within a phase the work is handed out in pieces (pool_claim). Thread 0
 * alone does what is too small to share, and what uses the network. Which thread does what
 * never changes a bit. Errors come from the network and from files that were changed, on thread
 * 0. All threads learn of an error at the same barrier (forward_whole) and leave together.
 *
 * A layer has two halves, each of which ends with a product in fixed point and its sum over the
 * team:
 *   residual, norm + pack -> q, k, v -> bias, head norms, RoPE, into the cache -> attention ->
 *   pack -> output product -> sum;
 *   residual, norm + pack -> gate, up, SwiGLU + pack (ffn.c) -> down product -> sum.
 *
 * The tokens of a long step on a team are sharded (sequence_shard.h). From the sum to the
 * packed inputs of the next products, all members would compute the same. So each does this for
 * its own tokens, and then sends these inputs to the others. The sum is a reduce-scatter, and
 * until the last layer the residual stream of a token is up to date on one member only. Half of
 * the data on the wire is packed activations instead of sums.
 *
 * Over slow wires, such a step goes through each half in two microbatches instead
 * (microbatch.h), one after the other. While one microbatch's sum is under way (m->async_worker
 * does it, for thread 0), the threads compute the other's half. Thread 0 waits for it before it
 * uses the network for anything else, so calls never overlap. Their order, like the
 * microbatches, follows from facts that all ranks know. The second microbatch finds the first
 * one's keys in the cache as if it were a later step. */
#include "model/forward.h"
#include "model/on_device.h"

#include "arch/rope_table.h"
#include "base/clock.h"
#include "base/exact.h"
#include "base/mem.h"
#include "base/prefetch.h"

#include <math.h>

/* ---- the network, on thread 0 ------------------------------------------------------------- */

void forward_net_done(struct forward_pass *r, enum trace_kind kind, size_t size, uint64_t began,
                      enum status st) {
    struct model *m = r->m;
    uint64_t ended = clock_ns();
    m->times.fabric_ns += ended - began;
    trace_note(&m->trace, kind, began, ended, size);
    m->times.exchanges += m->f != NULL;
    if (r->st == ST_OK)
        r->st = st;
}

/* A late thread may still read the error state of one barrier when thread 0 is in the next
 * phase and has met an error. So each phase has a slot of its own. A slot is reused only after
 * one more barrier, which that thread has reached as well. */
bool forward_whole(struct forward_pass *r, struct pool *pool, int thread) {
    bool *told = &r->told[pool_phase(pool) % 2];
    if (thread == 0) {
        device_tell_error(r);
        *told = r->st == ST_OK;
    }
    pool_barrier(pool);
    return *told;
}

static void sum_beside(void *r_) {
    struct forward_pass *r = r_;
    struct sum *sum = &r->sum;
    mem_forbid_begin();
    sum->began_ns = clock_ns();
    sum->st = fabric_allreduce_beside(r->m->team, sum->acc, sum->n_values, &sum->err);
    sum->ended_ns = clock_ns();
    mem_forbid_end();
}

/* Thread 0: starts the sum of the microbatch's acc, in parallel to the step. */
static void sum_start(struct forward_pass *r) {
    r->sum = (struct sum){
        .under_way = true, .acc = r->acc, .n_values = r->step->n_tokens * r->m->ld_acc};
    async_worker_start(r->m->async_worker, sum_beside, r);
}

/* Thread 0: waits for the sum that runs in parallel to the step, if there is one. */
static void sum_wait(struct forward_pass *r) {
    struct model *m = r->m;
    struct sum *sum = &r->sum;
    if (!sum->under_way)
        return;
    uint64_t began = clock_ns();
    async_worker_wait(m->async_worker);
    sum->under_way = false;
    if (sum->st != ST_OK)
        r->err = sum->err;
    trace_note(&m->trace, TRACE_SUM_BESIDE, sum->began_ns, sum->ended_ns, sum->n_values);
    forward_net_done(r, TRACE_WAIT, sum->n_values, began, sum->st);
}

bool forward_team_sum(struct forward_pass *r, struct pool *pool, int thread, size_t n_values) {
    struct model *m = r->m;
    if (m->team == NULL)
        return true;
    forward_host(r, pool);
    if (thread == 0)
        sum_wait(r);
    if (thread == 0 && r->st == ST_OK) {
        uint64_t began = clock_ns();
        forward_net_done(r, TRACE_SUM, n_values, began,
                         fabric_allreduce(m->team, r->acc, n_values, &r->err));
    }
    return forward_whole(r, pool, thread);
}

/* Each member's own tokens' part of the sum, of a step in one microbatch. */
static bool sum_own(struct forward_pass *r, struct pool *pool, int thread) {
    struct model *m = r->m;
    forward_host(r, pool);
    if (thread == 0) {
        size_t begin[PLAN_MAX_RANKS + 1];
        for (int i = 0; i <= m->plan.tp; i++)
            begin[i] = r->shard_first[i] * m->ld_acc;
        uint64_t began = clock_ns();
        forward_net_done(r, TRACE_SUM, begin[m->plan.tp], began,
                         fabric_reduce_scatter(m->team, r->acc, begin, &r->err));
    }
    return forward_whole(r, pool, thread);
}

/* All members learn each other's rows of a list of buffers. */
static bool tell_rows(struct forward_pass *r, struct pool *pool, int thread,
                      const struct fabric_rows *list, size_t n) {
    struct model *m = r->m;
    forward_host(r, pool);
    if (thread == 0) {
        size_t size = 0;
        for (size_t i = 0; i < n; i++)
            size += list[i].row_bytes * r->step->n_tokens;
        uint64_t began = clock_ns();
        forward_net_done(r, TRACE_TELL, size, began,
                         fabric_allgather(m->team, list, n, r->shard_first, &r->err));
    }
    return forward_whole(r, pool, thread);
}

size_t forward_act_rows(const struct acts *a, struct forms told, struct fabric_rows *list) {
    const struct act *f32 = &a->f32, *q8 = &a->q8;
    const size_t n_blocks = q8->n_cols / ACT_BLOCK;
    size_t n = 0;
    if (told.f32)
        list[n++] = (struct fabric_rows){f32->f, f32->n_cols * sizeof *f32->f};
    if (told.q8) {
        list[n++] = (struct fabric_rows){q8->q, n_blocks * ACT_BLOCK};
        list[n++] = (struct fabric_rows){q8->d, n_blocks * sizeof *q8->d};
        list[n++] = (struct fabric_rows){q8->sums, n_blocks * sizeof *q8->sums};
        list[n++] = (struct fabric_rows){q8->start, n_blocks * sizeof *q8->start};
        list[n++] = (struct fabric_rows){q8->s, n_blocks * sizeof *q8->s};
    }
    return n;
}

bool forward_tell(struct forward_pass *r, struct pool *pool, int thread, const struct acts *a,
                  struct forms told, const struct fabric_rows *more, size_t n) {
    struct fabric_rows list[FORWARD_ACT_ROWS + FORWARD_MORE];
    if (!r->sharded)
        return true;
    size_t n_act = forward_act_rows(a, told, list);
    for (size_t i = 0; i < n; i++)
        list[n_act + i] = more[i];
    return tell_rows(r, pool, thread, list, n_act + n);
}

/* What goes from stage to stage: of each token the residual stream, or all of them. */
static float *residual_all(const struct model *m) {
    return m->hp->n_streams != 0 ? m->streams.all : m->x;
}

static size_t residual_width(const struct model *m) {
    return (size_t)m->hp->n_embd * MAX(m->hp->n_streams, 1u);
}

/* And the streams that were kept. */
static size_t kept_bytes(const struct forward_pass *r) {
    return r->whole->n_tokens * depth_width(r->m) * sizeof(float);
}

static bool stage_receive(struct forward_pass *r, struct pool *pool, int thread) {
    struct model *m = r->m;
    forward_host(r, pool);
    if (thread == 0) {
        uint64_t began = clock_ns();
        size_t size = r->whole->n_tokens * residual_width(m) * sizeof(float);
        forward_net_done(
            r, TRACE_RECEIVE, size, began,
            fabric_recv(m->f, m->rank - m->plan.tp, residual_all(m), size, &r->err));
        if (r->st == ST_OK && m->kept != NULL)
            r->st = fabric_recv(m->f, m->rank - m->plan.tp, m->kept, kept_bytes(r), &r->err);
        if (r->st == ST_OK)
            r->st = indexer_receive(r);
    }
    return forward_whole(r, pool, thread);
}

static bool stage_send(struct forward_pass *r, struct pool *pool, int thread) {
    struct model *m = r->m;
    forward_host(r, pool);
    if (thread == 0) {
        uint64_t began = clock_ns();
        size_t size = r->whole->n_tokens * residual_width(m) * sizeof(float);
        forward_net_done(
            r, TRACE_SEND, size, began,
            fabric_send(m->f, m->rank + m->plan.tp, residual_all(m), size, &r->err));
        if (r->st == ST_OK && m->kept != NULL)
            r->st = fabric_send(m->f, m->rank + m->plan.tp, m->kept, kept_bytes(r), &r->err);
        if (r->st == ST_OK)
            r->st = indexer_send(r);
    }
    return forward_whole(r, pool, thread);
}

/* ---- activations -------------------------------------------------------------------------- */

void forward_acts_set_tokens(struct acts *a, uint32_t n_tokens) {
    a->f32.n_tokens = a->q8.n_tokens = n_tokens;
}

/* Columns that a thread packs at a time, in blocks. A batch of a few tokens is one group, and
 * one thread alone would keep the others waiting. */
#define PACK_BLOCKS 16

void forward_pack_blocks(const struct model *m, const struct acts *a, const float *x,
                         size_t ldx, uint32_t block_begin, uint32_t block_end) {
    if (a->f32.f != NULL)
        m->k->act_pack(&a->f32, x, ldx, block_begin, block_end);
    if (a->q8.q != NULL)
        m->k->act_pack(&a->q8, x, ldx, block_begin, block_end);
}

void forward_own_blocks(const struct acts *a, uint32_t block_begin, uint32_t block_end) {
    const struct act *f32 = &a->f32, *q8 = &a->q8;
    const size_t n = block_end - block_begin, first = block_begin;
    if (f32->f != NULL)
        prefetch_write(f32->f + first * ACT_BLOCK, n * ACT_BLOCK * sizeof *f32->f);
    if (q8->q == NULL)
        return;
    prefetch_write(q8->q + first * ACT_BLOCK, n * ACT_BLOCK);
    prefetch_write(q8->d + first, n * sizeof *q8->d);
    prefetch_write(q8->sums + first, n * sizeof *q8->sums);
    prefetch_write(q8->start + first, n * sizeof *q8->start);
    prefetch_write(q8->s + first, n * sizeof *q8->s);
}

struct acts forward_acts_narrow(const struct acts *a, uint32_t n_cols) {
    struct acts p = *a;
    p.f32.n_cols = p.q8.n_cols = n_cols;
    return p;
}

static uint32_t n_blocks_of(const struct acts *a) {
    return (uint32_t)div_up(a->f32.n_cols, ACT_BLOCK);
}

struct acts forward_acts_part(const struct acts *a, uint32_t first, uint32_t n) {
    struct acts p = *a;
    size_t values = (size_t)first * a->f32.n_cols,
           blocks = (size_t)first * (a->q8.n_cols / ACT_BLOCK);
    forward_acts_set_tokens(&p, n);
    if (p.f32.f != NULL)
        p.f32.f += values;
    if (p.q8.q != NULL) {
        p.q8.q += values;
        p.q8.d += blocks;
        p.q8.sums += blocks;
        p.q8.start += blocks;
        p.q8.s += blocks;
    }
    return p;
}

static struct acts group_of(const struct acts *a, uint32_t group) {
    uint32_t first = group * ACT_GROUP;
    return forward_acts_part(a, first, MIN(a->f32.n_tokens - first, (uint32_t)ACT_GROUP));
}

void forward_pack_group(const struct model *m, const struct acts *a, const float *x, size_t ldx,
                        uint32_t group) {
    struct acts part = group_of(a, group);
    forward_pack_blocks(m, &part, x + (size_t)group * ACT_GROUP * ldx, ldx, 0, n_blocks_of(a));
}

void forward_pack(struct forward_pass *r, struct pool *pool, const struct acts *a,
                  const float *x, size_t ldx) {
    if (on_device(r)) {
        device_pack(r, pool, a, x, ldx);
        return;
    }
    const uint32_t n_blocks = n_blocks_of(a);
    const size_t per_group = div_up(n_blocks, PACK_BLOCKS);
    size_t begin, end;
    while (pool_claim(pool, act_n_groups(a->f32.n_tokens) * per_group, 1, &begin, &end))
        for (size_t i = begin; i < end; i++) {
            uint32_t g = (uint32_t)(i / per_group), b = (uint32_t)(i % per_group) * PACK_BLOCKS;
            struct acts group = group_of(a, g);
            const float *from = x + (size_t)g * ACT_GROUP * ldx + (size_t)b * ACT_BLOCK;
            forward_pack_blocks(r->m, &group, from, ldx, b, MIN(b + PACK_BLOCKS, n_blocks));
        }
    pool_barrier(pool);
}

/* ---- products ----------------------------------------------------------------------------- */

#define CLAIM_BYTES 65536

bool forward_claim_tiles(const struct forward_pass *r, struct pool *pool, size_t n_tiles,
                         size_t tile_bytes, size_t *begin, size_t *end) {
    size_t unit = r->step->n_tokens == 1 ? 4 : 2;
    size_t least = MAX((size_t)1, CLAIM_BYTES / MAX(unit * tile_bytes, (size_t)1));
    if (!pool_claim(pool, div_up(n_tiles, unit), least, begin, end))
        return false;
    *begin *= unit;
    *end = MIN(unit * *end, n_tiles);
    return true;
}

void forward_products(struct forward_pass *r, struct pool *pool, const struct product *list,
                      size_t n) {
    size_t total = 0, begin, end;
    if (on_device(r)) {
        device_products(r, pool, list, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        total += wmat_n_tiles(list[i].w);
    while (forward_claim_tiles(r, pool, total, list[0].w->tile_bytes, &begin, &end)) {
        size_t first = 0;
        for (size_t i = 0; i < n && first < end; i++) {
            size_t tiles = wmat_n_tiles(list[i].w);
            size_t b = MAX(begin, first), e = MIN(end, first + tiles);
            if (b < e)
                r->m->k->matmul(list[i].w, forward_act_for(list[i].x, list[i].w), list[i].y,
                                list[i].ldy, (uint32_t)(b - first), (uint32_t)(e - first));
            first += tiles;
        }
    }
    pool_barrier(pool);
}

int64_t forward_fixed(float x) {
    x = x < FIXED_LIMIT ? x : FIXED_LIMIT;
    x = x > -FIXED_LIMIT ? x : -FIXED_LIMIT;
    return llrintf(x * (float)(1 << FIXED_BITS));
}

static void add_bias(struct forward_pass *r, struct pool *pool, const float *bias) {
    struct model *m = r->m;
    size_t begin, end;
    while (pool_claim(pool, r->step->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++)
            for (uint32_t i = 0; i < m->hp->n_embd; i++)
                r->acc[t * m->ld_acc + i] += forward_fixed(bias[i]);
    pool_barrier(pool);
}

void forward_fixed_product(struct forward_pass *r, struct pool *pool, int thread,
                           const struct wmat *w, uint32_t segment, const struct acts *x,
                           const float *bias) {
    struct model *m = r->m;
    size_t begin, end;
    if (on_device(r)) {
        device_fixed_product(r, pool, w, segment, x, bias);
        return;
    }
    if (w->n_cols == 0) {
        if (thread == 0)
            memset(r->acc, 0, r->step->n_tokens * m->ld_acc * sizeof *r->acc);
    } else {
        while (forward_claim_tiles(r, pool, wmat_n_tiles(w), w->tile_bytes, &begin, &end))
            m->k->matmul_fixed(w, forward_act_for(x, w), r->acc, m->ld_acc, NULL, segment,
                               (uint32_t)begin, (uint32_t)end);
    }
    pool_barrier(pool);
    if (bias != NULL)
        add_bias(r, pool, bias);
}

/* ---- the step ---------------------------------------------------------------------------- */

/* Thread 0, before a barrier. */
static void turn_to(struct forward_pass *r, uint32_t i) {
    struct model *m = r->m;
    const struct microbatch *w = &r->microbatches[i];
    r->step = &w->step;
    r->first = w->first;
    r->x = m->x + (size_t)w->first * m->hp->n_embd;
    r->acc = m->acc + (size_t)w->first * m->ld_acc;
    r->mine = (struct tokens){0, w->step.n_tokens};
    if (r->sharded) {
        const uint32_t *first = &r->shard_first[m->share->member];
        r->mine = (struct tokens){first[0], first[1] - first[0]};
    }
    struct acts *all[] = {&m->x_act,           &m->att_act,       &m->ff_act,
                          &m->shared_act,      &m->router_act,    &m->input.mid_act,
                          &m->streams.low_act, &m->mla.q_low_act, &m->moe.latent_act};
    for (size_t k = 0; k < ARRAY_LEN(all); k++)
        forward_acts_set_tokens(all[k], w->step.n_tokens);
    for (uint32_t g = 0; g < m->compressed.n_groups; g++)
        forward_acts_set_tokens(&m->compressed.group_act[g], w->step.n_tokens);
    for (uint32_t j = 0; j < m->recurrent.lay.n_pieces; j++)
        forward_acts_set_tokens(&m->recurrent.out_act[j], w->step.n_tokens);
    for (uint32_t h = 0;
         h < m->share->heads[0].end - m->share->heads[0].begin && m->hp->mla.kv_rank; h++) {
        forward_acts_set_tokens(&m->mla.nope_act[h], w->step.n_tokens);
        forward_acts_set_tokens(&m->mla.result_act[h], w->step.n_tokens);
    }
}

/* The end of microbatch i's half of a layer; its products are in acc. They are summed over the
 * team, in parallel to the next microbatch's half if there are several. That microbatch's own
 * last sum is complete then. */
static bool sum_and_turn(struct forward_pass *r, struct pool *pool, int thread, uint32_t i) {
    if (r->sharded)
        return sum_own(r, pool, thread);
    if (r->n_microbatches == 1)
        return forward_team_sum(r, pool, thread, r->step->n_tokens * r->m->ld_acc);
    forward_host(r, pool);
    if (thread == 0) {
        sum_wait(r);
        if (r->st == ST_OK)
            sum_start(r);
        turn_to(r, (i + 1) % r->n_microbatches);
    }
    return forward_whole(r, pool, thread);
}

static bool attention_half(struct forward_pass *r, struct pool *pool, int thread,
                           uint32_t layer) {
    struct model *m = r->m;
    const struct layer_weights *lw = &m->w.layers[layer];
    /* What the layer before left in acc is added when this one begins. */
    residual_begin_layer(r, pool, layer, lw->attn_norm);
    if (lw->recurrent != NULL)
        return recurrent_forward(r, pool, thread, lw->recurrent);
    return attention_forward(r, pool, thread, lw, layer);
}

static bool ffn_half(struct forward_pass *r, struct pool *pool, int thread, uint32_t layer) {
    const struct layer_weights *lw = &r->m->w.layers[layer];
    if (lw->has_mixer)
        residual_after_mixer(r, pool, lw);
    else
        residual_begin_layer(r, pool, layer, lw->ffn_norm);
    if (lw->moe != NULL && lw->moe_norm == NULL)
        return moe_forward(r, pool, thread, lw);
    if (!forward_tell(r, pool, thread, &r->m->x_act, r->m->x_told, NULL, 0))
        return false;
    return ffn_forward(r, pool, thread, lw);
}

/* Experts beside the FFN that has just been summed. */
static bool beside_half(struct forward_pass *r, struct pool *pool, int thread, uint32_t layer) {
    const struct layer_weights *lw = &r->m->w.layers[layer];
    residual_set_beside(r, pool, lw);
    return moe_forward(r, pool, thread, lw);
}

static bool layer_forward(struct forward_pass *r, struct pool *pool, int thread,
                          uint32_t layer) {
    const struct layer_weights *lw = &r->m->w.layers[layer];
    for (uint32_t i = 0; i < r->n_microbatches && lw->has_mixer; i++)
        if (!attention_half(r, pool, thread, layer) || !sum_and_turn(r, pool, thread, i))
            return false;
    for (uint32_t i = 0; i < r->n_microbatches && lw->has_ffn; i++)
        if (!ffn_half(r, pool, thread, layer) || !sum_and_turn(r, pool, thread, i))
            return false;
    for (uint32_t i = 0; i < r->n_microbatches && lw->moe_norm != NULL; i++)
        if (!beside_half(r, pool, thread, layer) || !sum_and_turn(r, pool, thread, i))
            return false;
    return true;
}

/* What the last layer left in acc, microbatch by microbatch; then x is up to date on all
 * members. */
static bool last_residual(struct forward_pass *r, struct pool *pool, int thread) {
    const struct layer_weights *last = &r->m->w.layers[r->m->w.n_layers - 1];
    for (uint32_t i = 0; i < r->n_microbatches; i++) {
        if (i > 0)
            forward_host(r, pool);
        if (i > 0 && thread == 0) {
            sum_wait(r);
            turn_to(r, i);
        }
        if (i > 0 && !forward_whole(r, pool, thread))
            return false;
        residual_end_layer(r, pool, last);
    }
    const struct fabric_rows x[] = {
        {residual_all(r->m), residual_width(r->m) * sizeof *r->x},
        {r->m->kept, depth_width(r->m) * sizeof *r->x},
    };
    return !r->sharded || tell_rows(r, pool, thread, x, r->m->kept != NULL ? 2 : 1);
}

/* Embeddings (first stage) and the angles of every token. False: what was read is not the model
 * that was opened. */
static bool begin_tokens(struct forward_pass *r, struct pool *pool, int thread) {
    struct model *m = r->m;
    const struct step *step = r->whole;
    float *embeddings = m->on_device.embeddings != NULL ? m->on_device.embeddings : m->x;
    uint32_t e = m->hp->n_embd, first;
    size_t begin, end;
    while (pool_claim(pool, step->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            if (m->share->stage == 0) {
                float *x = embeddings + t * e;
                weights_embed_row(&m->w, step->tokens[t], x);
                forward_scale(x, e, m->hp->embed_scale);
            }
            const struct step_run *seq = forward_run_of(step, (uint32_t)t, &first);
            for (const struct rope_angles *a = m->rope; a < m->rope + m->hp->n_attn; a++)
                if (a->n_pairs != 0)
                    rope_table_at(a->freqs, a->n_pairs, a->scale,
                                  seq->pos + (uint32_t)t - first, a->cos + t * a->n_pairs,
                                  a->sin + t * a->n_pairs);
        }
    pool_barrier(pool);
    device_take_embeddings(r, pool);
    if (thread == 0)
        r->st = gguf_check_intact(m->g, &r->err);
    return forward_whole(r, pool, thread);
}

static void step_forward(struct forward_pass *r, struct pool *pool, int thread) {
    struct model *m = r->m;
    const struct plan *plan = &m->plan;
    if (!begin_tokens(r, pool, thread))
        return;
    if (m->hp->n_layer_input != 0 && m->w.n_layers != 0)
        layer_inputs_forward(r, pool);
    if (m->hp->n_streams != 0 && m->share->stage == 0)
        hparams_predicts_streams(m->hp) ? streams_begin(r, pool) : hyper_start(r, pool);
    if (m->share->stage > 0 && !stage_receive(r, pool, thread))
        return;
    for (uint32_t layer = 0; layer < m->w.n_layers; layer++)
        if (!layer_forward(r, pool, thread, layer))
            return;
    if (m->w.n_layers != 0 && !last_residual(r, pool, thread))
        return;
    if (m->share->stage + 1 < plan->pp && !stage_send(r, pool, thread))
        return;
    if (m->hp->n_streams != 0 && m->share->last_stage && r->whole->n_outputs != 0)
        hparams_predicts_streams(m->hp) ? streams_end(r, pool) : hyper_join(r, pool);
    for (uint32_t first = 0; first < r->whole->n_outputs; first += LOGIT_ROWS)
        if (!output_rows(r, pool, thread, first,
                         MIN(r->whole->n_outputs - first, (uint32_t)LOGIT_ROWS)))
            return;
}

static void step_thread(void *arg, struct pool *pool, int thread) {
    mem_forbid_begin();
    step_forward(arg, pool, thread);
    mem_forbid_end();
}

static enum status check_pages(const uint32_t *pages, uint32_t n, uint32_t n_cache,
                               struct err *err) {
    for (uint32_t i = 0; i < n; i++)
        if (pages[i] >= n_cache)
            return err_set(err, ST_BAD_INPUT, "page %u is not in a cache of %u", pages[i],
                           n_cache);
    return ST_OK;
}

static enum status check_states(const struct model *m, const struct step_run *run,
                                struct err *err) {
    uint32_t n = m->cfg.n_states;
    if (m->states.slot_floats == 0 ||
        (run->state < n && (run->pos == 0 || run->state_from < n)))
        return ST_OK;
    return err_set(err, ST_BAD_INPUT, "states %u and %u are not among %u", run->state_from,
                   run->state, n);
}

enum status model_check_step(const struct model *m, const struct step *step, struct err *err) {
    if (step->n_tokens == 0 || step->n_tokens > m->cfg.n_tokens_max ||
        step->n_pages > m->n_pages_max || step->n_window_pages > m->n_pages_max ||
        step->n_outputs > step->n_tokens || step->n_runs > m->cfg.n_runs_max)
        return err_set(err, ST_BAD_INPUT,
                       "a step of %u tokens, %u runs, %u pages and %u outputs: expected "
                       "at most %u tokens, %u runs and %zu pages",
                       step->n_tokens, step->n_runs, step->n_pages, step->n_outputs,
                       m->cfg.n_tokens_max, m->cfg.n_runs_max, m->n_pages_max);
    for (uint32_t i = 0; i < step->n_tokens; i++)
        if (step->tokens[i] < 0 || (uint32_t)step->tokens[i] >= m->hp->n_vocab)
            return err_set(err, ST_BAD_INPUT, "token %d is not in the vocabulary of %u",
                           step->tokens[i], m->hp->n_vocab);
    TRY(check_pages(step->pages, step->n_pages, m->cfg.n_pages[KV_WHOLE], err));
    TRY(check_pages(step->window_pages, step->n_window_pages, m->cfg.n_pages[KV_WINDOW], err));
    for (uint32_t i = 0; i < step->n_outputs; i++)
        if (step->outputs[i] >= step->n_tokens)
            return err_set(err, ST_BAD_INPUT, "output %u is not among %u tokens",
                           step->outputs[i], step->n_tokens);
    uint64_t n = 0;
    for (uint32_t i = 0; i < step->n_runs; i++) {
        const struct step_run *seq = &step->runs[i];
        uint64_t end = (uint64_t)seq->pos + seq->n_tokens;
        if (seq->n_tokens == 0 || end > m->cfg.n_ctx ||
            seq->page_begin + div_up(end, KV_PAGE) > step->n_pages ||
            (m->hp->window != 0 &&
             (uint64_t)seq->window_begin + div_up(end, KV_PAGE) >
                 (uint64_t)step->n_window_pages + kv_window_first(m->hp->window, seq->pos)))
            return err_set(err, ST_BAD_INPUT,
                           "positions up to %llu do not fit a context of %u or their pages",
                           (unsigned long long)end, m->cfg.n_ctx);
        n += seq->n_tokens;
        TRY(check_states(m, seq, err));
    }
    if (n != step->n_tokens)
        return err_set(err, ST_BAD_INPUT, "the runs of a step hold %llu tokens of %u",
                       (unsigned long long)n, step->n_tokens);
    return ST_OK;
}

/* The pages that the step writes to. */
static void note_pages(struct model *m, const struct step *step) {
    for (uint32_t i = 0; i < step->n_runs; i++) {
        const struct step_run *seq = &step->runs[i];
        uint32_t first = kv_window_first(m->hp->window, seq->pos),
                 end = seq->pos + seq->n_tokens;
        for (uint32_t page = seq->pos / KV_PAGE; page * KV_PAGE < end; page++) {
            kv_prefault_note(m->kv_prefault, KV_WHOLE, step->pages[seq->page_begin + page]);
            kv_prefault_note(m->index.kv_prefault, KV_WHOLE,
                             step->pages[seq->page_begin + page]);
            kv_prefault_note(m->compressed.kv_prefault, KV_WHOLE,
                             step->pages[seq->page_begin + page]);
            if (m->hp->window == 0)
                continue;
            const uint32_t id = step->window_pages[seq->window_begin + page - first];
            kv_prefault_note(m->kv_prefault, KV_WINDOW, id);
            kv_prefault_note(m->compressed.kv_prefault, KV_WINDOW, id);
        }
    }
}

enum status model_step(struct model *m, const struct step *step, const struct step_sink *sink,
                       struct err *err) {
    TRY(model_check_step(m, step, err));
    struct forward_pass r = {
        .m = m,
        .whole = step,
        .n_microbatches = step->n_tokens >= m->microbatches_from ? MICROBATCHES_MAX : 1,
        .on_device = m->shaders != NULL && step->n_tokens >= m->cfg.device_from &&
                     step->n_tokens < m->cfg.device_until,
        .sink = sink,
        .rows_wanted = sink != NULL && sink->rows != NULL};
    uint64_t began = clock_ns();
    kv_prefault_step_begin(m->kv_prefault);
    kv_prefault_step_begin(m->index.kv_prefault);
    kv_prefault_step_begin(m->compressed.kv_prefault);
    note_pages(m, step);
    r.sharded = m->shards && r.n_microbatches == 1 && step->n_tokens >= SHARD_LEAST;
    if (r.sharded)
        shard_tokens(&m->plan, m->share->stage, step->n_tokens, r.shard_first);
    microbatch_cut(r.microbatches, r.n_microbatches, step, m->hp->window, m->microbatch_runs);
    turn_to(&r, 0);
    pool_run(m->pool, step_thread, &r);
    device_end_step(&r);
    kv_prefault_step_end(m->kv_prefault);
    kv_prefault_step_end(m->index.kv_prefault);
    kv_prefault_step_end(m->compressed.kv_prefault);
    uint64_t ended = clock_ns();
    m->times.step_ns += ended - began;
    trace_note(&m->trace, TRACE_STEP, began, ended, step->n_tokens);
    m->times.steps++;
    if (r.st != ST_OK && err != NULL)
        *err = r.err;
    return r.st;
}
