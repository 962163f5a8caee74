/* attention.c: queries, keys and values of a layer, the cache, attention.
 *
 * There are two forms. Grouped queries: Q, K, V from x; norms, RoPE; K and V into the cache.
 * Latent (MLA): the cache has the normed latent and the rotated key part as one kv head. k_b
 * projects each query into the latent space, v_b each result out of it. Then both attend in the
 * same way. */
#include "model/attention.h"

#include "base/exact.h"
#include "base/prefetch.h"
#include "shaders/definition.h"

#include <math.h>

/* ---- grouped queries --------------------------------------------------------------------- */

/* stride: floats from head to head */
static void head_norms(const struct model *m, const struct layer_weights *lw, float *x,
                       uint32_t n_heads, size_t stride, const float *w) {
    for (uint32_t h = 0; h < n_heads; h++)
        m->k->rmsnorm(x + h * stride, x + h * stride, w, attn_kind_of(m, lw)->head_dim,
                      m->hp->rms_eps);
}

/* RMSNorms without weights, of heads of hd dimensions that are `stride` apart. */
static void plain_head_norms(const struct model *m, float *x, uint32_t n_heads, uint32_t hd,
                             size_t stride) {
    for (uint32_t h = 0; h < n_heads; h++)
        plain_norm(x + h * stride, hd, m->hp->rms_eps);
}

/* Norms over the rows of all heads (QK_NORM_ROW). The heads lie on several ranks, so their sums
 * of squares are added exactly: acc [n_tokens, 2] for queries and keys. */
static void row_squares(struct forward_pass *r, struct pool *pool,
                        const struct layer_weights *lw) {
    struct model *m = r->m;
    const uint32_t hd = attn_kind_of(m, lw)->head_dim;
    size_t begin, end;
    while (pool_claim(pool, r->step->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            int64_t q = 0, k = 0;
            for (uint32_t h = 0; h < attn_n_heads(m, lw); h++)
                q += forward_fixed(lanes16_squares(m->q + t * m->ldq + (size_t)h * hd, hd));
            for (uint32_t h = !attn_counts_first_kv(m, lw); h < attn_n_kv(m, lw); h++)
                k += forward_fixed(lanes16_squares(m->k_new + t * m->ldk + (size_t)h * hd, hd));
            r->acc[2 * t] = q;
            r->acc[2 * t + 1] = k;
        }
}

static void row_norms_by_sums(struct forward_pass *r, struct pool *pool,
                              const struct layer_weights *lw) {
    struct model *m = r->m;
    const struct attn_kind *kind = attn_kind_of(m, lw);
    const uint32_t hd = kind->head_dim;
    const float eps = m->hp->rms_eps;
    size_t begin, end;
    while (pool_claim(pool, r->step->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            float sums[2];
            m->k->fixed_get(sums, r->acc + 2 * t, 2);
            row_norm(m->q + t * m->ldq, lw->q_norm, attn_n_heads(m, lw) * hd, sums[0],
                     (float)(kind->n_heads * hd), eps);
            row_norm(m->k_new + t * m->ldk, lw->k_norm, attn_n_kv(m, lw) * hd, sums[1],
                     (float)(kind->n_kv_heads * hd), eps);
        }
}

static bool row_norms(struct forward_pass *r, struct pool *pool, int thread,
                      const struct layer_weights *lw) {
    if (!on_device(r))
        row_squares(r, pool, lw);
    else if (device_records(pool))
        attn_record_row_squares(r, lw);
    pool_barrier(pool);
    if (!forward_team_sum(r, pool, thread, (size_t)r->step->n_tokens * 2))
        return false;
    if (!on_device(r))
        row_norms_by_sums(r, pool, lw);
    else if (device_records(pool))
        attn_record_row_norms(r, lw);
    pool_barrier(pool);
    return true;
}

static uint8_t *cache_page(const struct forward_pass *r, uint32_t layer,
                           const struct step_run *seq, uint32_t pos) {
    const struct step *step = r->step;
    uint32_t window = r->m->w.layers[layer].window, page = pos / KV_PAGE, id;
    if (window == 0)
        id = step->pages[seq->page_begin + page];
    else
        id = step->window_pages[seq->window_begin + page - kv_window_first(window, seq->pos)];
    return kv_page(&r->m->kv, layer, id);
}

float attn_query_growth(const struct query_growth *g, uint32_t pos) {
    double steps = (double)(((uint64_t)pos + g->first) / g->step);
    return (float)(1.0 + (double)g->scale * exact_log64(1.0 + steps));
}

static void grow_queries(const struct model *m, const struct layer_weights *lw, float *q,
                         uint32_t pos) {
    float by = attn_query_growth(&m->hp->query_growth, pos);
    for (uint32_t h = 0; h < attn_n_heads(m, lw); h++)
        forward_scale(q + (size_t)h * attn_q_rows(m, lw), attn_kind_of(m, lw)->head_dim, by);
}

/* RoPE, and the head norms that stand behind it. */
static void turn_heads(const struct model *m, const struct layer_weights *lw, float *q,
                       float *k, const float *cos, const float *sin) {
    const struct rope_params *rope = &attn_kind_of(m, lw)->rope;
    uint32_t hd = attn_kind_of(m, lw)->head_dim, q_rows = attn_q_rows(m, lw);
    uint32_t n_heads = attn_n_heads(m, lw), n_kv = lw->has_kv ? attn_n_kv(m, lw) : 0;
    if (lw->has_rope) {
        m->k->rope(q, n_heads, q_rows, rope->n_rot, cos, sin, rope->mode);
        m->k->rope(k, n_kv, hd, rope->n_rot, cos, sin, rope->mode);
    }
    if (m->hp->qk_norm == QK_NORM_HEAD_AFTER) {
        head_norms(m, lw, q, n_heads, q_rows, lw->q_norm);
        head_norms(m, lw, k, n_kv, hd, lw->k_norm);
    } else if (m->hp->qk_norm == QK_NORM_PLAIN && lw->has_rope) {
        plain_head_norms(m, q, n_heads, hd, q_rows);
        plain_head_norms(m, k, n_kv, hd, hd);
    }
}

/* Head norms and RoPE of one token's queries and keys; keys and values into the cache. */
static void finish_token(struct forward_pass *r, const struct layer_weights *lw, uint32_t layer,
                         uint32_t t) {
    struct model *m = r->m;
    const struct attn_kind *kind = attn_kind_of(m, lw);
    const struct rope_angles *angles = m->angles[lw->attn];
    uint32_t hd = kind->head_dim, vd = kind->v_dim, n_heads = attn_n_heads(m, lw), first;
    uint32_t n_kv = lw->has_kv ? attn_n_kv(m, lw) : 0;
    const struct step_run *seq = forward_run_of(r->step, t, &first);
    uint32_t pos = seq->pos + t - first;
    float *q = m->q + (size_t)t * m->ldq, *k = m->k_new + (size_t)t * m->ldk,
          *v = m->v_new + (size_t)t * m->ldv;
    if (r->step->n_tokens == 1) {
        prefetch_write(q, (size_t)n_heads * attn_q_rows(m, lw) * sizeof *q);
        prefetch_write(k, (size_t)n_kv * hd * sizeof *k);
        prefetch_read(v, (size_t)n_kv * vd * sizeof *v);
    }
    if (kind->v_is_k)
        memcpy(v, k, (size_t)n_kv * vd * sizeof *v);
    if (m->hp->v_norm)
        plain_head_norms(m, v, n_kv, vd, vd);
    forward_scale(v, n_kv * vd, m->hp->value_scale);
    size_t at = (size_t)(r->first + t) * angles->n_pairs;
    if (m->hp->qk_norm == QK_NORM_HEAD) {
        head_norms(m, lw, q, n_heads, attn_q_rows(m, lw), lw->q_norm);
        head_norms(m, lw, k, n_kv, hd, lw->k_norm);
    }
    turn_heads(m, lw, q, k, angles->cos + at, angles->sin + at);
    if (attn_grows_queries(m, lw))
        grow_queries(m, lw, q, pos);
    if (lw->has_kv)
        m->k->kv_store(&m->kv.layers[layer].shape, cache_page(r, layer, seq, pos),
                       pos % KV_PAGE, k, v);
}

static void add_biases(struct forward_pass *r, struct pool *pool,
                       const struct layer_weights *lw) {
    struct model *m = r->m;
    const struct attn_kind *kind = attn_kind_of(m, lw);
    const size_t n_q = (size_t)attn_n_heads(m, lw) * kind->head_dim, n_kv = attn_n_kv(m, lw);
    size_t begin, end;
    if (on_device(r)) {
        if (device_records(pool))
            attn_record_biases(r, lw);
        pool_barrier(pool);
        return;
    }
    while (pool_claim(pool, r->step->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            m->k->add(m->q + t * m->ldq, lw->q_bias, n_q);
            m->k->add(m->k_new + t * m->ldk, lw->k_bias, n_kv * kind->head_dim);
            m->k->add(m->v_new + t * m->ldv, lw->v_bias, n_kv * kind->v_dim);
        }
    pool_barrier(pool);
}

static bool qkv_forward(struct forward_pass *r, struct pool *pool, int thread,
                        const struct layer_weights *lw, uint32_t layer) {
    struct model *m = r->m;
    struct product list[7] = {{&lw->q, &m->x_act, m->q, m->ldq},
                              {&lw->k, &m->x_act, m->k_new, m->ldk},
                              {&lw->v, &m->x_act, m->v_new, m->ldv},
                              {&lw->head_gate, &m->x_act, m->gates, m->ld_gates}};
    size_t n_products = 4 + indexer_products_of_x(m, lw, &m->x_act, 0, list + 4);
    n_products += indexer_query_product(m, lw, &m->x_act, list + n_products);
    if (!forward_tell(r, pool, thread, &m->x_act, m->x_told, NULL, 0))
        return false;
    forward_products(r, pool, list, n_products);
    if (lw->q_bias != NULL)
        add_biases(r, pool, lw);
    if (m->hp->qk_norm == QK_NORM_ROW && !row_norms(r, pool, thread, lw))
        return false;
    size_t begin, end;
    if (attn_finish_is_on_device(r, lw)) {
        if (attn_n_heads(m, lw) != 0 && device_records(pool))
            attn_record_finish(r, lw, layer);
        pool_barrier(pool);
        return true;
    }
    forward_host(r, pool);
    while (attn_n_heads(m, lw) != 0 && pool_claim(pool, r->step->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            finish_token(r, lw, layer, (uint32_t)t);
            indexer_finish_token(r, lw, layer, (uint32_t)t);
        }
    pool_barrier(pool);
    indexer_choose(r, pool, thread, lw);
    return true;
}

/* ---- latent attention ----------------------------------------------------------------------- */

/* This rank's tokens through the matrices that every rank has whole: the latents, into k_new,
 * and the low-rank queries (if there are such), normed and packed for attn_q_b. Then all know
 * these of all tokens, or what else they read. */
static bool mla_latents(struct forward_pass *r, struct pool *pool, int thread,
                        const struct layer_weights *lw) {
    struct model *m = r->m;
    struct mla_buffers *b = &m->mla;
    const struct mla_weights *mla = &lw->mla;
    const struct tokens mine = r->mine;
    const struct acts x = forward_acts_part(&m->x_act, mine.begin, mine.n);
    struct fabric_rows told[FORWARD_MORE] = {{m->k_new, m->ldk * sizeof *m->k_new}};
    const struct product kv_a = {&mla->kv_a, &x, m->k_new + mine.begin * m->ldk, m->ldk};
    if (m->hp->mla.q_rank == 0) {
        if (mine.n > 0)
            forward_products(r, pool, &kv_a, 1);
        return forward_tell(r, pool, thread, &m->x_act, m->x_told, told, 1);
    }
    float *q_low = b->q_low + mine.begin * b->ld_q_low;
    const struct acts low_act = forward_acts_part(&b->q_low_act, mine.begin, mine.n);
    struct product list[4] = {kv_a, {&mla->q_a, &x, q_low, b->ld_q_low}};
    size_t n_products = 2 + indexer_products_of_x(m, lw, &x, mine.begin, list + 2);
    if (mine.n > 0)
        forward_products(r, pool, list, n_products);
    size_t begin, end;
    const bool device = on_device(r);
    if (device && mine.n > 0 && device_records(pool))
        attn_record_low_norm(r, mla);
    while (!device && pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            float *row = q_low + t * b->ld_q_low;
            m->k->rmsnorm(row, row, mla->q_a_norm, m->hp->mla.q_rank, m->hp->rms_eps);
        }
    pool_barrier(pool);
    forward_pack(r, pool, &low_act, q_low, b->ld_q_low);
    size_t n_told = 1 + indexer_rows(m, lw, told + 1);
    return forward_tell(r, pool, thread, &b->q_low_act, m->q_low_told, told, n_told);
}

/* The queries of this rank's heads, and latents, of all tokens. */
static bool mla_products(struct forward_pass *r, struct pool *pool, int thread,
                         const struct layer_weights *lw) {
    struct model *m = r->m;
    const bool low = m->hp->mla.q_rank != 0;
    const struct acts *of = low ? &m->mla.q_low_act : &m->x_act;
    struct product list[2] = {{&lw->q, of, m->q, m->ldq},
                              {&lw->mla.kv_a, &m->x_act, m->k_new, m->ldk}};
    const bool together = !low && !r->sharded; /* with one barrier less */
    if (!together && !mla_latents(r, pool, thread, lw))
        return false;
    size_t n = together ? 2 : 1 + indexer_query_product(m, lw, of, list + 1);
    forward_products(r, pool, list, n);
    return true;
}

/* The latent and the key's turning part of one token into the cache; the queries' turning
 * parts. */
static void mla_finish_token(struct forward_pass *r, const struct layer_weights *lw,
                             uint32_t layer, uint32_t t) {
    struct model *m = r->m;
    const struct hparams *hp = m->hp;
    const struct rope_params *rope = &hp->rope;
    uint32_t n_pairs = rope->n_rot / 2, rank = hp->mla.kv_rank, first;
    uint32_t key = hp->mla.nope + rope->n_rot;
    const struct step_run *seq = forward_run_of(r->step, t, &first);
    uint32_t pos = seq->pos + t - first;
    size_t at = (size_t)(r->first + t) * n_pairs;
    const float *cos = m->rope[0].cos + at, *sin = m->rope[0].sin + at;
    float *kv = m->k_new + (size_t)t * m->ldk;
    m->k->rmsnorm(kv, kv, lw->mla.kv_a_norm, rank, hp->rms_eps);
    if (lw->has_rope)
        m->k->rope(kv + rank, 1, rope->n_rot, rope->n_rot, cos, sin, rope->mode);
    m->k->kv_store(&m->kv.layers[layer].shape, cache_page(r, layer, seq, pos), pos % KV_PAGE,
                   kv, NULL);
    for (uint32_t h = 0; h < attn_latent_heads(m) && lw->has_rope; h++)
        m->k->rope(m->q + (size_t)t * m->ldq + (size_t)h * key + hp->mla.nope, 1, rope->n_rot,
                   rope->n_rot, cos, sin, rope->mode);
}

/* Every (head, group) as one list of claims: packs columns [0, width) of each head. */
static void pack_heads(struct forward_pass *r, struct pool *pool, const struct acts *acts,
                       const float *x, size_t ldx, size_t head_stride) {
    struct model *m = r->m;
    size_t groups = act_n_groups(r->step->n_tokens), begin, end;
    if (on_device(r)) {
        if (device_records(pool))
            attn_record_head_packs(r, acts, x, ldx, head_stride);
        pool_barrier(pool);
        return;
    }
    while (pool_claim(pool, groups * attn_latent_heads(m), 1, &begin, &end))
        for (size_t i = begin; i < end; i++)
            forward_pack_group(m, &acts[i / groups], x + i / groups * head_stride, ldx,
                               (uint32_t)(i % groups));
    pool_barrier(pool);
}

/* Products of each head with its own matrix. */
static void head_products(struct forward_pass *r, struct pool *pool, int thread,
                          const struct wmat *w, const struct acts *x, float *y, size_t ldy,
                          size_t head_stride) {
    struct model *m = r->m;
    struct product *list = m->mla.products;
    if (attn_latent_heads(m) == 0)
        return;
    for (uint32_t h = 0; thread == 0 && h < attn_latent_heads(m); h++)
        list[h] = (struct product){&w[h], &x[h], y + h * head_stride, ldy};
    pool_barrier(pool);
    forward_products(r, pool, list, attn_latent_heads(m));
}

static bool mla_forward(struct forward_pass *r, struct pool *pool, int thread,
                        const struct layer_weights *lw, uint32_t layer) {
    struct model *m = r->m;
    const struct hparams *hp = m->hp;
    const struct mla_weights *mla = &lw->mla;
    struct mla_buffers *b = &m->mla;
    uint32_t key = hp->mla.nope + hp->rope.n_rot;
    if (!mla_products(r, pool, thread, lw))
        return false;
    size_t begin, end;
    const bool device = on_device(r) && lw->index == NULL;
    if (device && device_records(pool))
        attn_record_latents(r, lw, layer);
    if (!device)
        forward_host(r, pool);
    while (!device && pool_claim(pool, r->step->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            mla_finish_token(r, lw, layer, (uint32_t)t);
            indexer_finish_token(r, lw, layer, (uint32_t)t);
        }
    pool_barrier(pool);
    indexer_choose(r, pool, thread, lw);
    pack_heads(r, pool, b->nope_act, m->q, m->ldq, key);
    head_products(r, pool, thread, mla->k_b, b->nope_act, b->q_latent, b->ld_latent,
                  b->latent_stride);
    /* The turning part comes last: the product's last tile may have written over its place. */
    if (on_device(r) && device_records(pool))
        attn_record_head_copies(r, b->q_latent + hp->mla.kv_rank, b->ld_latent,
                                b->latent_stride, m->q + hp->mla.nope, m->ldq, key,
                                hp->rope.n_rot);
    while (!on_device(r) && pool_claim(pool, r->step->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++)
            for (uint32_t h = 0; h < attn_latent_heads(m); h++)
                memcpy(b->q_latent + t * b->ld_latent + h * b->latent_stride + hp->mla.kv_rank,
                       m->q + t * m->ldq + (size_t)h * key + hp->mla.nope,
                       hp->rope.n_rot * sizeof(float));
    pool_barrier(pool);
    return true;
}

/* Results out of the latent space, close together for the output product. */
static void mla_results(struct forward_pass *r, struct pool *pool, int thread,
                        const struct mla_weights *mla) {
    struct model *m = r->m;
    struct mla_buffers *b = &m->mla;
    uint32_t vd = m->hp->mla.v_dim, nh = attn_latent_heads(m);
    size_t pad = round_up(vd, TILE_ROWS), rank = m->hp->mla.kv_rank, begin, end;
    pack_heads(r, pool, b->result_act, b->result, nh * rank, rank);
    head_products(r, pool, thread, mla->v_b, b->result_act, b->heads_out, nh * pad, pad);
    if (on_device(r) && device_records(pool))
        attn_record_head_copies(r, m->att, nh * vd, vd, b->heads_out, nh * pad, pad, vd);
    while (!on_device(r) && pool_claim(pool, r->step->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++)
            for (uint32_t h = 0; h < nh; h++)
                memcpy(m->att + (t * nh + h) * vd, b->heads_out + (t * nh + h) * pad,
                       vd * sizeof(float));
    pool_barrier(pool);
}

/* ---- attending --------------------------------------------------------------------------- */

/* The queries of one task: some tokens of a run, and this rank's heads that share one kv head
 * (some of them, if they are very many). */
struct attn_task {
    const struct step_run *seq;
    uint32_t t_begin, t_end; /* token indices in the step */
    uint32_t first;          /* token index of the run's first */
    uint32_t kv;             /* local kv head */
    uint32_t h_begin, h_end; /* local query heads */
};

/* Serves those of n queries, token after token, that attend to chosen keys only; the others are
 * what is left of the list, and their number is returned. */
static uint32_t attend_to_chosen(struct forward_pass *r, int thread,
                                 const struct layer_weights *lw, uint32_t layer,
                                 const struct attn_task *task, struct attn_query *queries,
                                 uint32_t n) {
    struct model *m = r->m;
    uint32_t per_token = task->h_end - task->h_begin, n_left = 0, n_chosen;
    for (uint32_t i = 0, t = task->t_begin; lw->chooses && i < n; i += per_token, t++) {
        const uint32_t *chosen = indexer_chosen(r, lw, t, task->kv, queries[i].end, &n_chosen);
        if (chosen == NULL) {
            memmove(queries + n_left, queries + i, per_token * sizeof *queries);
            n_left += per_token;
            continue;
        }
        const struct chosen_args args = {
            .shape = &m->kv.layers[layer].shape,
            .kv_head = task->kv,
            .pages = m->page_ptrs + task->seq->page_begin,
            .positions = chosen,
            .n = n_chosen,
            .n_queries = per_token,
            .queries = queries + i,
            .scale = m->hp->attn_scale,
            .scratch = m->attn_scratch + (size_t)thread * m->scratch_floats,
        };
        m->index.k->attend(&args);
    }
    return lw->chooses ? n_left : n;
}

static void attn_task_run(struct forward_pass *r, int thread, const struct layer_weights *lw,
                          uint32_t layer, const struct attn_task *task) {
    struct model *m = r->m;
    const struct attn_io io = attn_io_of(m, lw);
    struct attn_query queries[ATTN_TOGETHER];
    uint32_t n = 0;
    for (uint32_t t = task->t_begin; t < task->t_end; t++)
        for (uint32_t h = task->h_begin; h < task->h_end; h++) {
            uint32_t end = task->seq->pos + (t - task->first) + 1;
            BUG_ON(n == ATTN_TOGETHER);
            queries[n++] = (struct attn_query){
                .q = io.q + t * io.ldq + h * io.q_stride,
                .out = io.out + t * io.ldo + h * io.o_stride,
                .begin = attn_first_seen(lw, end),
                .end = end,
                .sink = lw->sinks != NULL ? lw->sinks[h] : -INFINITY,
            };
        }
    n = attend_to_chosen(r, thread, lw, layer, task, queries, n);
    if (n == 0)
        return;
    const struct attn_args args = {
        .shape = &m->kv.layers[layer].shape,
        .kv_head = task->kv,
        .pages = m->page_ptrs + task->seq->page_begin,
        .n_queries = n,
        .queries = queries,
        .scale = m->hp->attn_scale,
        .softcap = m->hp->attn_softcap,
        .scratch = m->attn_scratch + (size_t)thread * m->scratch_floats,
    };
    m->k->attention(&args);
}

/* How the queries of a kv head are cut into tasks. */
struct attn_cut {
    const struct head_share *own;
    uint32_t group, head_block, head_blocks, token_block;
};

static size_t attn_n_tasks(const struct forward_pass *r, const struct attn_cut *c);

static struct attn_cut attn_cut_by(const struct head_share *own, uint32_t group,
                                   uint32_t head_block) {
    return (struct attn_cut){.own = own,
                             .group = group,
                             .head_block = head_block,
                             .head_blocks = (uint32_t)div_up(group, head_block),
                             .token_block = ATTN_TOGETHER / head_block};
}

/* Some threads have nothing to do. */
static bool attn_cut_is_coarse(const struct forward_pass *r, const struct attn_cut *c) {
    size_t heads = MIN(c->own->end - c->own->begin, c->group); /* of a kv head, on this rank */
    return attn_n_tasks(r, c) * heads < c->group * (size_t)pool_n_threads(r->m->pool);
}

/* Tasks are large, unless that leaves threads without any (a short prompt; one kv head for all
 * queries, a token or two). Then first the tokens and then the heads are divided more finely,
 * as long as a few share each key and value that is loaded. */
static struct attn_cut attn_cut_of(const struct forward_pass *r,
                                   const struct layer_weights *lw) {
    const struct attn_kind *kind = attn_kind_of(r->m, lw);
    const struct head_share *own = attn_heads_of(r->m, lw);
    uint32_t group = kind->n_heads / kind->n_kv_heads;
    struct attn_cut c = attn_cut_by(own, group, MIN(group, (uint32_t)ATTN_TOGETHER));
    while (c.token_block > 1 && c.token_block * c.head_block > ATTN_LEAST &&
           attn_cut_is_coarse(r, &c))
        c.token_block = (uint32_t)div_up(c.token_block, 2);
    while (c.head_block > ATTN_LEAST && attn_cut_is_coarse(r, &c)) {
        uint32_t token_block = c.token_block;
        c = attn_cut_by(own, group, (uint32_t)div_up(c.head_block, 2));
        c.token_block = MIN(c.token_block, token_block);
    }
    return c;
}

/* Numbers the tasks of a step: by run, token block, kv head, and head block. Task i is found by
 * counting, which is cheap compared with the task. */
static bool attn_task_at(const struct forward_pass *r, const struct attn_cut *cut, size_t i,
                         struct attn_task *out) {
    const struct attn_cut c = *cut;
    const struct head_share *sh = c.own;
    uint32_t n_kv = sh->kv_end - sh->kv_begin, first = 0;
    for (uint32_t s = 0; s < r->step->n_runs; s++) {
        const struct step_run *seq = &r->step->runs[s];
        size_t token_blocks = div_up(seq->n_tokens, c.token_block);
        size_t n = token_blocks * n_kv * c.head_blocks;
        if (i >= n) {
            i -= n;
            first += seq->n_tokens;
            continue;
        }
        uint32_t hb = (uint32_t)(i % c.head_blocks), kv = (uint32_t)(i / c.head_blocks % n_kv);
        /* The last tokens see the most positions: begin with them. */
        uint32_t tb = (uint32_t)(token_blocks - 1 - i / c.head_blocks / n_kv);
        uint32_t h0 = (sh->kv_begin + kv) * c.group + hb * c.head_block;
        uint32_t h1 = MIN(h0 + c.head_block, (sh->kv_begin + kv + 1) * c.group);
        h0 = MAX(h0, sh->begin);
        h1 = MIN(h1, sh->end);
        *out = (struct attn_task){
            .seq = seq,
            .first = first,
            .t_begin = first + tb * c.token_block,
            .t_end = first + MIN((tb + 1) * c.token_block, seq->n_tokens),
            .kv = kv,
            .h_begin = h0 - sh->begin,
            .h_end = h1 > h0 ? h1 - sh->begin : h0 - sh->begin,
        };
        return true;
    }
    return false;
}

static size_t attn_n_tasks(const struct forward_pass *r, const struct attn_cut *c) {
    size_t n = 0;
    for (uint32_t s = 0; s < r->step->n_runs; s++)
        n += div_up(r->step->runs[s].n_tokens, c->token_block);
    return n * (c->own->kv_end - c->own->kv_begin) * c->head_blocks;
}

/* What every run sees in this layer. */
static void point_at_pages(struct forward_pass *r, uint32_t layer) {
    struct model *m = r->m;
    uint32_t window = m->w.layers[layer].window;
    for (uint32_t s = 0; s < r->step->n_runs; s++) {
        const struct step_run *seq = &r->step->runs[s];
        uint32_t page = window != 0 ? kv_window_first(window, seq->pos) : 0;
        for (; page * KV_PAGE < seq->pos + seq->n_tokens; page++)
            m->page_ptrs[seq->page_begin + page] = cache_page(r, layer, seq, page * KV_PAGE);
    }
}

static void attend(struct forward_pass *r, struct pool *pool, int thread,
                   const struct layer_weights *lw, uint32_t layer) {
    if (on_device(r) && !lw->chooses) {
        if (attn_n_heads(r->m, lw) != 0 && device_records(pool))
            attn_record(r, lw, layer);
        pool_barrier(pool);
        return;
    }
    struct attn_task task;
    const struct attn_cut cut = attn_cut_of(r, lw);
    size_t n = attn_n_heads(r->m, lw) == 0 ? 0 : attn_n_tasks(r, &cut), begin, end;
    forward_host(r, pool);
    while (pool_claim(pool, n, 1, &begin, &end))
        for (size_t i = begin; i < end; i++)
            if (attn_task_at(r, &cut, i, &task) && task.h_begin < task.h_end)
                attn_task_run(r, thread, lw, layer, &task);
    pool_barrier(pool);
}

/* Gates of latent attention's results. */
static bool wide_gates(struct forward_pass *r, struct pool *pool, int thread,
                       const struct layer_weights *lw) {
    struct model *m = r->m;
    const struct product gates = {&lw->head_gate, &m->x_act, m->gates, m->ld_gates};
    if (!forward_tell(r, pool, thread, &m->x_act, m->x_told, NULL, 0))
        return false;
    forward_products(r, pool, &gates, 1);
    return true;
}

/* Each head's results times the sigmoids of its gate (enum attn_gate). */
static void gate_results(struct forward_pass *r, struct pool *pool,
                         const struct layer_weights *lw) {
    struct model *m = r->m;
    uint32_t nh = attn_n_heads(m, lw), hd = attn_kind_of(m, lw)->head_dim,
             vd = hparams_out_dim(m->hp, attn_kind_of(m, lw)),
             dim = hparams_gate_dim(m->hp, attn_kind_of(m, lw));
    const struct rows gates =
        dim != 0 ? (struct rows){m->gates, m->ld_gates} : (struct rows){m->q + hd, m->ldq};
    const size_t apart = dim != 0 ? dim : 2 * hd;
    size_t begin, end;
    if (on_device(r)) {
        if (nh != 0 && device_records(pool))
            attn_record_gates(r, lw, gates, apart, dim == 1);
        pool_barrier(pool);
        return;
    }
    while (nh != 0 && pool_claim(pool, (size_t)r->step->n_tokens * nh, 8, &begin, &end))
        for (size_t i = begin; i < end; i++)
            gate_head(m->k, m->att + i * vd, gates.p + i / nh * gates.ld + i % nh * apart, vd,
                      dim == 1);
    pool_barrier(pool);
}

bool attention_forward(struct forward_pass *r, struct pool *pool, int thread,
                       const struct layer_weights *lw, uint32_t layer) {
    struct model *m = r->m;
    bool latent = m->hp->mla.kv_rank != 0;
    if (lw->compressed != NULL)
        return compressed_forward(r, pool, thread, lw, layer);
    if (thread == 0) { /* while the others begin: barriers follow before anybody looks */
        point_at_pages(r, layer);
        if (on_device(r))
            attn_device_tables(r, lw, layer);
        indexer_point_at_pages(r, lw, layer);
    }
    if (m->hp->attn_gate == ATTN_GATE_VALUES && !wide_gates(r, pool, thread, lw))
        return false;
    if (latent ? !mla_forward(r, pool, thread, lw, layer)
               : !qkv_forward(r, pool, thread, lw, layer))
        return false;
    attend(r, pool, thread, lw, layer);
    if (latent)
        mla_results(r, pool, thread, &lw->mla);
    if (m->hp->attn_gate != ATTN_GATE_NONE)
        gate_results(r, pool, lw);
    const struct acts att = forward_acts_narrow(&m->att_act, lw->o.n_cols);
    if (lw->o.n_cols != 0)
        forward_pack(r, pool, &att, m->att, lw->o.n_cols);
    forward_fixed_product(r, pool, thread, &lw->o, lw->o_segment, &att, lw->o_bias);
    return true;
}
