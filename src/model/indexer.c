/* indexer.c: which keys the queries of a layer attend to.
 *
 * An indexer has queries and one key per position, in a cache of its own. Its pages have the
 * same ids as those of keys and values. For every token it scores all positions and selects the
 * best (mixers/indexer.h). All ranks of a team compute this from the same inputs and get the
 * same selection. If each key-value head has a selection of its own, a rank computes it for its
 * own heads.
 *
 * A query that sees no more positions than would be selected attends to everything, without the
 * indexer. */
#include "model/forward.h"

#include "base/mem.h"
#include "shaders/definition.h"

#include <math.h>

/* Positions that a thread scores at a time. */
#define SCORE_BLOCK 256

#define LAYER_NORM_EPS 1e-6f

static uint32_t heads_of_chooser(const struct indexer_params *p) {
    return p->block == 0 ? p->n_heads : 1;
}

/* A query that sees `end` positions attends to some of them only. */
static bool has_to_choose(const struct indexer_params *p, uint32_t end) {
    return (p->block == 0 ? end : (uint32_t)div_up(end, p->block)) > p->top_k;
}

/* Of a step's token: its run, and how many positions it sees. */
static const struct step_run *run_of(const struct forward_pass *r, uint32_t t, uint32_t *end) {
    uint32_t first;
    const struct step_run *run = forward_run_of(r->step, t, &first);
    *end = run->pos + t - first + 1;
    return run;
}

/* ---- sizes and buffers ------------------------------------------------------------------- */

struct kv_shape indexer_shape(const struct hparams *hp, enum kv_type type) {
    return (struct kv_shape){.type = type, .n_kv_heads = 1, .k_dim = hp->indexer.k_dim};
}

bool indexer_has_keys(const struct hparams *hp, uint32_t layer) {
    return hparams_layer_chooses(hp, layer) && hparams_layer_is(hp, layer, LAYER_INDEXED);
}

void indexer_size(struct index_buffers *b, const struct hparams *hp, const struct share *sh,
                  const struct model_config *cfg) {
    const struct indexer_params *p = &hp->indexer;
    const struct head_share *own = &sh->heads[0]; /* there is one kind of attention */
    uint32_t heads = p->block == 0 ? p->n_heads : own->kv_end - own->kv_begin;
    if (p->top_k == 0)
        return;
    b->shape = indexer_shape(hp, cfg->kv_type);
    b->ldq = round_up((size_t)heads * p->k_dim, TILE_ROWS);
    b->ldk = round_up(p->k_dim, TILE_ROWS);
    b->ldw = p->block == 0 ? round_up(p->n_heads, TILE_ROWS) : 0;
    b->n_choosers = p->block == 0 ? 1 : heads;
    b->ld_scores = round_up(cfg->n_ctx, 16);
    if (has_to_choose(p, cfg->n_ctx))
        b->ld_chosen = (size_t)p->top_k * MAX(p->block, 1u);
}

size_t indexer_scratch_floats(const struct model *m) {
    if (m->hp->indexer.top_k == 0)
        return 0;
    const struct kv_shape shape =
        model_kv_shape(m->hp, m->share, &m->hp->attn[0], m->cfg.kv_type);
    return MAX(chosen_scratch_floats(&shape), (size_t)16 * m->hp->indexer.k_dim);
}

enum status indexer_open(struct model *m, struct err *err) {
    struct index_buffers *b = &m->index;
    struct kv_keep *keeps;
    if (m->hp->indexer.top_k == 0)
        return ST_OK;
    b->k = indexer_kernels_of(m->k);
    b->shape = indexer_shape(m->hp, m->cfg.kv_type);
    keeps = mem_calloc(m->w.n_layers, sizeof *keeps);
    if (keeps == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a KV cache");
    for (uint32_t i = 0; i < m->w.n_layers; i++)
        keeps[i] = (struct kv_keep){
            .kind = indexer_has_keys(m->hp, m->share->layer_begin + i) ? KV_WHOLE : KV_NONE,
            .shape = b->shape,
        };
    enum status st = kv_open(&b->kv, keeps, m->w.n_layers, m->cfg.n_pages, err);
    mem_free(keeps);
    if (st == ST_OK)
        b->kv_prefault = kv_prefault_open(&b->kv);
    return st;
}

void indexer_close(struct model *m) {
    kv_prefault_close(m->index.kv_prefault);
    kv_close(&m->index.kv);
}

/* ---- queries and keys -------------------------------------------------------------------------
 */

size_t indexer_products_of_x(struct model *m, const struct layer_weights *lw,
                             const struct acts *x, uint32_t first, struct product *list) {
    const struct index_buffers *b = &m->index;
    size_t n = 0;
    if (lw->index == NULL)
        return 0;
    list[n++] = (struct product){&lw->index->k, x, b->k_new + first * b->ldk, b->ldk};
    if (lw->index->weights.n_rows != 0)
        list[n++] =
            (struct product){&lw->index->weights, x, b->weights + first * b->ldw, b->ldw};
    return n;
}

size_t indexer_query_product(struct model *m, const struct layer_weights *lw,
                             const struct acts *of, struct product *list) {
    if (lw->index == NULL)
        return 0;
    list[0] = (struct product){&lw->index->q, of, m->index.q, m->index.ldq};
    return 1;
}

size_t indexer_rows(const struct model *m, const struct layer_weights *lw,
                    struct fabric_rows *list) {
    const struct index_buffers *b = &m->index;
    if (lw->index == NULL)
        return 0;
    list[0] = (struct fabric_rows){b->k_new, b->ldk * sizeof *b->k_new};
    list[1] = (struct fabric_rows){b->weights, b->ldw * sizeof *b->weights};
    return 2;
}

static void layer_norm(float *x, uint32_t n, const float *w, const float *bias) {
    float mean = lanes16_sum(x, n) / (float)n;
    for (uint32_t i = 0; i < n; i++)
        x[i] = exact_tidy(x[i] - mean);
    float by = 1.0f / sqrtf(lanes16_squares(x, n) / (float)n + LAYER_NORM_EPS);
    for (uint32_t i = 0; i < n; i++)
        x[i] = exact_tidy(x[i] * by * w[i] + bias[i]);
}

void indexer_finish_token(struct forward_pass *r, const struct layer_weights *lw,
                          uint32_t layer, uint32_t t) {
    struct model *m = r->m;
    const struct indexer_params *p = &m->hp->indexer;
    const struct index_weights *w = lw->index;
    const struct index_buffers *b = &m->index;
    const uint32_t n_rot = m->hp->rope.n_rot, n_heads = b->n_choosers * heads_of_chooser(p);
    const size_t at = (size_t)(r->first + t) * (n_rot / 2);
    const float *cos = m->rope[0].cos + at, *sin = m->rope[0].sin + at;
    float *q = b->q + t * b->ldq, *k = b->k_new + t * b->ldk;
    uint32_t end;
    if (w == NULL)
        return;
    const struct step_run *run = run_of(r, t, &end);
    for (uint32_t h = 0; h < n_heads && w->q_norm != NULL; h++)
        m->k->rmsnorm(q + (size_t)h * p->k_dim, q + (size_t)h * p->k_dim, w->q_norm, p->k_dim,
                      m->hp->rms_eps);
    if (w->k_norm_bias != NULL)
        layer_norm(k, p->k_dim, w->k_norm, w->k_norm_bias);
    else
        m->k->rmsnorm(k, k, w->k_norm, p->k_dim, m->hp->rms_eps);
    if (lw->has_rope) {
        m->k->rope(q, n_heads, p->k_dim, n_rot, cos, sin, p->rope);
        m->k->rope(k, 1, p->k_dim, n_rot, cos, sin, p->rope);
    }
    uint32_t page = r->step->pages[run->page_begin + (end - 1) / KV_PAGE];
    m->k->kv_store(&b->shape, kv_page(&b->kv, layer, page), (end - 1) % KV_PAGE, k, k);
}

void indexer_point_at_pages(struct forward_pass *r, const struct layer_weights *lw,
                            uint32_t layer) {
    const struct step *step = r->step;
    struct index_buffers *b = &r->m->index;
    for (uint32_t s = 0; s < step->n_runs && lw->index != NULL && b->pages != NULL; s++) {
        const struct step_run *run = &step->runs[s];
        for (uint32_t i = 0; i * KV_PAGE < run->pos + run->n_tokens; i++)
            b->pages[run->page_begin + i] =
                kv_page(&b->kv, layer, step->pages[run->page_begin + i]);
    }
}

/* ---- the choice ---------------------------------------------------------------------------------
 */

static float *scores_of(const struct index_buffers *b, size_t chooser) {
    return b->scores + chooser % INDEX_TOGETHER * b->ld_scores;
}

/* Chooser `i` of the step: token i / n_choosers's. */
static void score_block(struct forward_pass *r, int thread, const struct layer_weights *lw,
                        size_t i, uint32_t block) {
    struct model *m = r->m;
    const struct indexer_params *p = &m->hp->indexer;
    const struct index_buffers *b = &m->index;
    const uint32_t t = (uint32_t)(i / b->n_choosers), which = (uint32_t)(i % b->n_choosers);
    uint32_t end;
    const struct step_run *run = run_of(r, t, &end);
    if (!has_to_choose(p, end) || block * SCORE_BLOCK >= end)
        return;
    const struct index_scores_args args = {
        .shape = &b->shape,
        .pages = b->pages + run->page_begin,
        .q = b->q + t * b->ldq + (size_t)which * heads_of_chooser(p) * p->k_dim,
        .q_stride = p->k_dim,
        .weights = lw->index->weights.n_rows != 0 ? b->weights + t * b->ldw : NULL,
        .n_heads = heads_of_chooser(p),
        .begin = block * SCORE_BLOCK,
        .end = MIN(end, (block + 1) * SCORE_BLOCK),
        .scores = scores_of(b, i),
        .scratch = m->attn_scratch + (size_t)thread * m->scratch_floats,
    };
    b->k->scores(&args);
}

/* The best blocks of those that `end` positions begin, as ascending positions: how many. */
static uint32_t choose_blocks(const struct indexer_params *p, float *scores, uint32_t end,
                              uint32_t *chosen) {
    uint32_t n_blocks = (uint32_t)div_up(end, p->block), n_local = MIN(p->n_local, n_blocks);
    for (uint32_t b = 0; b < n_blocks; b++) {
        float best = -INFINITY;
        for (uint32_t pos = b * p->block; pos < MIN(end, (b + 1) * p->block); pos++)
            best = scores[pos] > best ? scores[pos] : best;
        scores[b] = best;
    }
    uint32_t n = index_select(scores, n_blocks - n_local, p->top_k - n_local, chosen);
    for (uint32_t b = n_blocks - n_local; b < n_blocks; b++)
        chosen[n++] = b;
    uint32_t n_positions = n * p->block;
    if (chosen[n - 1] == n_blocks - 1)
        n_positions -= n_blocks * p->block - end;
    for (uint32_t i = n; i-- > 0;) { /* from the last: what is not yet read stays */
        uint32_t first = chosen[i] * p->block, at = i * p->block;
        for (uint32_t j = MIN(p->block, end - first); j-- > 0;)
            chosen[at + j] = first + j;
    }
    return n_positions;
}

static void choose(struct forward_pass *r, size_t i) {
    struct model *m = r->m;
    const struct indexer_params *p = &m->hp->indexer;
    const struct index_buffers *b = &m->index;
    const size_t at = (size_t)r->first * b->n_choosers + i;
    uint32_t *chosen = b->chosen + at * b->ld_chosen, end;
    run_of(r, (uint32_t)(i / b->n_choosers), &end);
    if (!has_to_choose(p, end))
        return;
    b->n_chosen[at] = p->block == 0 ? index_select(scores_of(b, i), end, p->top_k, chosen)
                                    : choose_blocks(p, scores_of(b, i), end, chosen);
}

void indexer_choose(struct forward_pass *r, struct pool *pool, int thread,
                    const struct layer_weights *lw) {
    const struct index_buffers *b = &r->m->index;
    const size_t n = (size_t)r->step->n_tokens * b->n_choosers;
    const uint32_t most = forward_longest(r->step);
    size_t begin, end;
    if (lw->index == NULL || !has_to_choose(&r->m->hp->indexer, most))
        return;
    for (size_t first = 0; first < n; first += INDEX_TOGETHER) {
        const size_t together = MIN(n - first, (size_t)INDEX_TOGETHER),
                     blocks = div_up(most, SCORE_BLOCK);
        forward_host(r, pool);
        while (pool_claim(pool, together * blocks, 1, &begin, &end))
            for (size_t i = begin; i < end; i++)
                score_block(r, thread, lw, first + i / blocks, (uint32_t)(i % blocks));
        pool_barrier(pool);
        while (pool_claim(pool, together, 1, &begin, &end))
            for (size_t i = begin; i < end; i++)
                choose(r, first + i);
        pool_barrier(pool);
    }
}

const uint32_t *indexer_chosen(const struct forward_pass *r, const struct layer_weights *lw,
                               uint32_t t, uint32_t kv, uint32_t end, uint32_t *n) {
    const struct index_buffers *b = &r->m->index;
    if (!lw->chooses || !has_to_choose(&r->m->hp->indexer, end))
        return NULL;
    const size_t at = (size_t)(r->first + t) * b->n_choosers + (b->n_choosers > 1 ? kv : 0);
    *n = b->n_chosen[at];
    return b->chosen + at * b->ld_chosen;
}

/* ---- from stage to stage ------------------------------------------------------------------------
 */

/* Whether the layer that a stage begins with uses what the stage before it has chosen. */
static bool goes_on(const struct model *m, uint32_t layer) {
    return layer != 0 && layer < m->hp->n_layers && hparams_layer_chooses(m->hp, layer) &&
           !hparams_layer_is(m->hp, layer, LAYER_INDEXED);
}

/* The choice of the whole step, in pieces no larger than the hidden state. */
static enum status pass_on(struct forward_pass *r, bool send) {
    struct model *m = r->m;
    const struct step *step = r->whole;
    uint8_t *data = (uint8_t *)m->index.chosen;
    size_t n = (size_t)step->n_tokens * m->index.ld_chosen * sizeof *m->index.chosen,
           piece = (size_t)step->n_tokens * m->hp->n_embd * sizeof(float);
    for (size_t at = 0; at < n; at += piece) {
        size_t bytes = MIN(piece, n - at);
        TRY(send ? fabric_send(m->f, m->rank + m->plan.tp, data + at, bytes, &r->err)
                 : fabric_recv(m->f, m->rank - m->plan.tp, data + at, bytes, &r->err));
    }
    return ST_OK;
}

enum status indexer_send(struct forward_pass *r) {
    const struct model *m = r->m;
    if (!goes_on(m, m->share->layer_end) ||
        !has_to_choose(&m->hp->indexer, forward_longest(r->whole)))
        return ST_OK;
    return pass_on(r, true);
}

enum status indexer_receive(struct forward_pass *r) {
    const struct model *m = r->m;
    if (!goes_on(m, m->share->layer_begin) ||
        !has_to_choose(&m->hp->indexer, forward_longest(r->whole)))
        return ST_OK;
    for (uint32_t t = 0; t < r->whole->n_tokens; t++)
        m->index.n_chosen[t] = m->hp->indexer.top_k; /* of those that have to choose */
    return pass_on(r, false);
}
