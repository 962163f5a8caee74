/* compressed.c: attention to compressed keys; compressed.h says what is kept. All ranks of a team
 * make the same keys and the same selection; each has query heads of whole output groups. */
#include "model/compressed.h"

#include "arch/rope_table.h"
#include "base/mem.h"
#include "model/block_key.h"
#include "model/forward.h"

#include <math.h>

/* Compressed keys that a thread scores at a time, in pages. */
#define SCORE_PAGES 16

_Static_assert(KV_PAGE % COMPRESS_FINE == 0 && COMPRESS_COARSE % KV_PAGE == 0,
               "a block lies in one page, or ends with a page");
_Static_assert(KV_PAGE / COMPRESS_FINE == 16, "a page of index keys is one tile");

static const struct attn_kind *kind_of(const struct model *m, const struct layer_weights *lw) {
    return &m->hp->attn[lw->attn];
}

static uint32_t n_heads_of(const struct model *m, const struct layer_weights *lw) {
    return m->share->heads[lw->attn].end - m->share->heads[lw->attn].begin;
}

/* ---- what is kept ---------- */

/* Where in a token's row of products everything begins; rows of products are whole tiles. */
struct raw_row {
    size_t kv, gate, index_kv, index_gate, weights; /* up to the weights it is kept */
    size_t end;
};

static struct raw_row raw_row_of(const struct hparams *hp, uint32_t head_dim, uint32_t ratio) {
    const bool fine = ratio == COMPRESS_FINE;
    const size_t width =
        ratio == 0 ? 0 : round_up((size_t)(fine ? 2 : 1) * head_dim, TILE_ROWS);
    const size_t index = fine ? round_up(2 * (size_t)hp->compress.k_dim, TILE_ROWS) : 0;
    struct raw_row row = {.gate = width, .index_kv = 2 * width};
    row.index_gate = row.index_kv + index;
    row.weights = row.index_gate + index;
    row.end = row.weights + (fine ? round_up(hp->compress.n_heads, TILE_ROWS) : 0);
    return row;
}

static struct raw_row raw_row_of_layer(const struct model *m, const struct layer_weights *lw) {
    return raw_row_of(m->hp, kind_of(m, lw)->head_dim, lw->compressed->ratio);
}

void compressed_keeps(struct kv_keep keeps[COMPRESSED_PARTS], const struct hparams *hp,
                      const struct share *sh, uint32_t layer, enum kv_type type) {
    const struct attn_kind *kind = hparams_attn(hp, layer);
    const uint32_t ratio = hp->compress.n_groups != 0 ? hp->compress.ratios[layer] : 0;
    const struct raw_row row = raw_row_of(hp, kind->head_dim, ratio);
    struct kv_shape keys = model_kv_shape(hp, sh, kind, type);
    keys.n_slots = ratio == COMPRESS_FINE ? KV_PAGE / COMPRESS_FINE : 1;
    for (int i = 0; i < COMPRESSED_PARTS; i++)
        keeps[i] = (struct kv_keep){.kind = KV_NONE};
    if (ratio == 0)
        return;
    keeps[COMPRESSED_KEYS] = (struct kv_keep){KV_WHOLE, keys};
    keeps[COMPRESSED_RAW] = (struct kv_keep){KV_WINDOW,
                                             {.type = KV_F32,
                                              .latent = true,
                                              .n_kv_heads = keys.n_kv_heads,
                                              .k_dim = (uint32_t)row.weights}};
    if (ratio == COMPRESS_FINE)
        keeps[COMPRESSED_INDEX] = (struct kv_keep){KV_WHOLE,
                                                   {.type = type,
                                                    .n_kv_heads = keys.n_kv_heads,
                                                    .k_dim = hp->compress.k_dim,
                                                    .n_slots = keys.n_slots}};
}

uint32_t compressed_most_seen(const struct hparams *hp, uint32_t n_ctx) {
    uint32_t most = 0, window = 0;
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        const uint32_t ratio = hp->compress.ratios[l];
        if (ratio != 0)
            most = MAX(most, MIN(n_ctx / ratio,
                                 ratio == COMPRESS_FINE ? hp->compress.top_k : UINT32_MAX));
        window = MAX(window, hparams_layer_window(hp, l));
    }
    return most + MIN(window, n_ctx);
}

enum status compressed_open(struct model *m, struct err *err) {
    struct compressed_buffers *b = &m->compressed;
    const uint32_t n = m->w.n_layers * COMPRESSED_PARTS;
    if (m->hp->compress.n_groups == 0)
        return ST_OK;
    struct kv_keep *keeps = mem_calloc(n, sizeof *keeps);
    if (keeps == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a KV cache");
    b->k = indexer_kernels_of(m->k);
    for (uint32_t i = 0; i < m->w.n_layers; i++)
        compressed_keeps(keeps + (size_t)i * COMPRESSED_PARTS, m->hp, m->share,
                         m->share->layer_begin + i, m->cfg.kv_type);
    enum status st = kv_open(&b->kv, keeps, n, m->cfg.n_pages, err);
    mem_free(keeps);
    if (st == ST_OK)
        b->kv_prefault = kv_prefault_open(&b->kv);
    return st;
}

void compressed_close(struct model *m) {
    kv_prefault_close(m->compressed.kv_prefault);
    kv_close(&m->compressed.kv);
    mem_free(m->compressed.group_act);
}

/* Sizes of the buffers. */
void compressed_size(struct model *m) {
    const struct hparams *hp = m->hp;
    const struct compress_params *p = &hp->compress;
    const struct head_share *own = &m->share->heads[0];
    const struct attn_kind *kind = &hp->attn[0];
    struct compressed_buffers *b = &m->compressed;
    const uint32_t n_fine = m->cfg.n_ctx / COMPRESS_FINE;
    const struct kv_shape shape = model_kv_shape(hp, m->share, kind, m->cfg.kv_type);
    for (uint32_t l = m->share->layer_begin; l < m->share->layer_end; l++)
        b->ld_raw = MAX(b->ld_raw, raw_row_of(hp, kind->head_dim, p->ratios[l]).end);
    b->n_groups = (own->end - own->begin) / (kind->n_heads / p->n_groups);
    b->ld_index_q = round_up((size_t)p->n_heads * p->k_dim, TILE_ROWS);
    b->ld_scores = round_up(n_fine, 16);
    b->ld_chosen = n_fine > p->top_k ? p->top_k : 0;
    b->low_stride = round_up(p->o_rank, TILE_ROWS);
    b->n_seen_pages = (uint32_t)div_up(compressed_most_seen(hp, m->cfg.n_ctx), KV_PAGE);
    b->seen_bytes = b->n_seen_pages * kv_page_bytes(&shape);
}

/* Of a thread: a key, what compress_rows() wants, cos and sin; or a tile of index keys. */
size_t compressed_scratch_floats(const struct hparams *hp) {
    const size_t dim = MAX(hp->head_dim, hp->compress.k_dim);
    if (hp->compress.n_groups == 0)
        return 0;
    return MAX(4 * dim + hp->rope.n_rot, (size_t)16 * hp->compress.k_dim);
}

/* ---- places ---------- */

static const struct step_run *run_of(const struct forward_pass *r, uint32_t t, uint32_t *pos) {
    uint32_t first;
    const struct step_run *run = forward_run_of(r->step, t, &first);
    *pos = run->pos + t - first;
    return run;
}

static uint32_t part_of(uint32_t layer, enum compressed_part part) {
    return layer * COMPRESSED_PARTS + part;
}

/* Of the pages that are kept for as long as a window. */
static uint8_t *window_page(const struct forward_pass *r, const struct kv_cache *kv,
                            uint32_t layer, const struct step_run *run, uint32_t pos) {
    const uint32_t first = kv_window_first(r->m->hp->window, run->pos);
    return kv_page(kv, layer, r->step->window_pages[run->window_begin + pos / KV_PAGE - first]);
}

/* The page with the compressed key of the block that ends at pos, and which of the page's. */
static uint8_t *block_page(const struct forward_pass *r, uint32_t layer,
                           enum compressed_part part, const struct step_run *run, uint32_t pos,
                           uint32_t ratio, uint32_t *slot) {
    *slot = pos % KV_PAGE / ratio;
    return kv_page(&r->m->compressed.kv, part_of(layer, part),
                   r->step->pages[run->page_begin + pos / KV_PAGE]);
}

static float *raw_at(const struct forward_pass *r, uint32_t layer, const struct step_run *run,
                     uint32_t pos) {
    const struct kv_cache *kv = &r->m->compressed.kv;
    const uint32_t part = part_of(layer, COMPRESSED_RAW);
    uint8_t *page = window_page(r, kv, part, run, pos);
    return (float *)(void *)page + (size_t)(pos % KV_PAGE) * kv->layers[part].shape.k_dim;
}

static float *scratch_of(const struct model *m, int thread) {
    return m->attn_scratch + (size_t)thread * m->scratch_floats;
}

/* ---- queries, keys and raw rows ---------- */

/* Products of x of tokens from `first` on: the low-rank queries, the key, and the raw row. */
static size_t products_of_x(struct model *m, const struct layer_weights *lw,
                            const struct acts *x, size_t first, struct product *list) {
    const struct compressed_weights *w = lw->compressed;
    struct compressed_buffers *b = &m->compressed;
    const struct raw_row row = raw_row_of_layer(m, lw);
    float *raw = b->raw + first * b->ld_raw;
    size_t n = 0;
    list[n++] =
        (struct product){&w->q_a, x, m->mla.q_low + first * m->mla.ld_q_low, m->mla.ld_q_low};
    list[n++] = (struct product){&w->kv, x, m->k_new + first * m->ldk, m->ldk};
    if (w->ratio == 0)
        return n;
    list[n++] = (struct product){&w->keys.kv, x, raw + row.kv, b->ld_raw};
    list[n++] = (struct product){&w->keys.gate, x, raw + row.gate, b->ld_raw};
    if (w->ratio != COMPRESS_FINE)
        return n;
    list[n++] = (struct product){&w->index.kv, x, raw + row.index_kv, b->ld_raw};
    list[n++] = (struct product){&w->index.gate, x, raw + row.index_gate, b->ld_raw};
    list[n++] = (struct product){&w->index_weights, x, raw + row.weights, b->ld_raw};
    return n;
}

/* Of this rank's tokens; then all know those of all tokens. */
static bool latents(struct forward_pass *r, struct pool *pool, int thread,
                    const struct layer_weights *lw) {
    struct model *m = r->m;
    struct mla_buffers *b = &m->mla;
    const struct tokens mine = r->mine;
    const struct acts x = forward_acts_part(&m->x_act, mine.begin, mine.n);
    const struct acts low_act = forward_acts_part(&b->q_low_act, mine.begin, mine.n);
    float *q_low = b->q_low + mine.begin * b->ld_q_low;
    struct product list[7];
    const size_t n_products = products_of_x(m, lw, &x, mine.begin, list);
    size_t begin, end;
    if (mine.n > 0)
        forward_products(r, pool, list, n_products);
    forward_host(r, pool);
    while (pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            float *row = q_low + t * b->ld_q_low;
            m->k->rmsnorm(row, row, lw->compressed->q_a_norm, m->hp->compress.q_rank,
                          m->hp->rms_eps);
        }
    pool_barrier(pool);
    forward_pack(r, pool, &low_act, q_low, b->ld_q_low);
    const struct fabric_rows told[FORWARD_MORE] = {
        {m->k_new, m->ldk * sizeof *m->k_new},
        {m->compressed.raw, m->compressed.ld_raw * sizeof *m->compressed.raw}};
    return forward_tell(r, pool, thread, &b->q_low_act, m->q_low_told, told,
                        m->compressed.raw != NULL ? 2 : 1);
}

static void query_products(struct forward_pass *r, struct pool *pool,
                           const struct layer_weights *lw) {
    struct model *m = r->m;
    const struct acts *low = &m->mla.q_low_act;
    const struct product list[] = {
        {&lw->q, low, m->q, m->ldq},
        {&lw->compressed->index_q, low, m->compressed.index_q, m->compressed.ld_index_q}};
    forward_products(r, pool, list, lw->compressed->ratio == COMPRESS_FINE ? 2 : 1);
}

/* The last n_rot dimensions of heads. */
static void turn(const struct model *m, const struct layer_weights *lw, float *x,
                 uint32_t n_heads, uint32_t dim, const float *cos, const float *sin) {
    const uint32_t n_rot = kind_of(m, lw)->rope.n_rot;
    m->k->rope(x + (dim - n_rot), n_heads, dim, n_rot, cos, sin, ROPE_NORM);
}

/* A token's raw row to its page; gates as they count at its place in the block. */
static void keep_raw(struct forward_pass *r, const struct layer_weights *lw, uint32_t layer,
                     const struct step_run *run, uint32_t pos, float *raw) {
    const struct compressed_weights *w = lw->compressed;
    const struct raw_row row = raw_row_of_layer(r->m, lw);
    const size_t width = row.index_kv - row.gate, index = row.weights - row.index_gate;
    const uint32_t at = pos % w->ratio;
    r->m->k->add(raw + row.gate, w->keys.ape + at * width, w->keys.gate.n_rows);
    if (index != 0)
        r->m->k->add(raw + row.index_gate, w->index.ape + at * index, w->index.gate.n_rows);
    memcpy(raw_at(r, layer, run, pos), raw, row.weights * sizeof *raw);
}

/* Norms and RoPE of one token; its key and raw row into their caches. */
static void finish_token(struct forward_pass *r, const struct layer_weights *lw, uint32_t layer,
                         uint32_t t) {
    struct model *m = r->m;
    const struct compressed_weights *w = lw->compressed;
    const struct rope_angles *angles = m->angles[lw->attn];
    const uint32_t n_heads = n_heads_of(m, lw), hd = kind_of(m, lw)->head_dim;
    const size_t at = (size_t)(r->first + t) * angles->n_pairs;
    const float *cos = angles->cos + at, *sin = angles->sin + at;
    float *q = m->q + t * m->ldq, *kv = m->k_new + t * m->ldk;
    uint32_t pos;
    const struct step_run *run = run_of(r, t, &pos);
    for (uint32_t h = 0; h < n_heads; h++)
        m->k->rmsnorm(q + (size_t)h * hd, q + (size_t)h * hd, NULL, hd, m->hp->rms_eps);
    m->k->rmsnorm(kv, kv, w->kv_norm, hd, m->hp->rms_eps);
    turn(m, lw, q, n_heads, hd, cos, sin);
    turn(m, lw, kv, 1, hd, cos, sin);
    m->k->kv_store(&m->kv.layers[layer].shape, window_page(r, &m->kv, layer, run, pos),
                   pos % KV_PAGE, kv, NULL);
    if (w->ratio != 0)
        keep_raw(r, lw, layer, run, pos, m->compressed.raw + t * m->compressed.ld_raw);
    if (w->ratio == COMPRESS_FINE)
        turn(m, lw, m->compressed.index_q + t * m->compressed.ld_index_q,
             m->hp->compress.n_heads, m->hp->compress.k_dim, cos, sin);
}

/* ---- compressed keys ---------- */

/* The block that ends at pos: its key, of the values at kv and the gates at gate of raw rows. */
static void make_key(struct forward_pass *r, int thread, const struct layer_weights *lw,
                     uint32_t layer, enum compressed_part part, const struct step_run *run,
                     uint32_t pos) {
    struct model *m = r->m;
    const struct raw_row row = raw_row_of_layer(m, lw);
    const bool keys = part == COMPRESSED_KEYS, fine = lw->compressed->ratio == COMPRESS_FINE;
    const uint32_t ratio = lw->compressed->ratio, first = pos + 1 - ratio;
    const uint32_t begin = fine && first > 0 ? first - ratio : first;
    const uint32_t dim = keys ? kind_of(m, lw)->head_dim : m->hp->compress.k_dim;
    const struct rope_angles *angles = m->angles[lw->attn];
    const float *values[COMPRESS_COARSE], *gates[COMPRESS_COARSE];
    float *key = scratch_of(m, thread), *sums = key + dim, *cos = sums + 3 * (size_t)dim;
    uint32_t slot;
    for (uint32_t p = begin; p <= pos; p++) {
        /* The block before has its part first in a row. */
        const float *raw = raw_at(r, layer, run, p) + (fine && p >= first ? dim : 0);
        values[p - begin] = raw + (keys ? row.kv : row.index_kv);
        gates[p - begin] = raw + (keys ? row.gate : row.index_gate);
    }
    compress_rows(m->k, key, values, gates, pos + 1 - begin, dim, sums);
    m->k->rmsnorm(key, key, keys ? lw->compressed->keys.norm : lw->compressed->index.norm, dim,
                  m->hp->rms_eps);
    rope_table_at(angles->freqs, angles->n_pairs, angles->scale, first, cos,
                  cos + angles->n_pairs);
    turn(m, lw, key, 1, dim, cos, cos + angles->n_pairs);
    uint8_t *page = block_page(r, layer, part, run, pos, ratio, &slot);
    m->k->kv_store(&m->compressed.kv.layers[part_of(layer, part)].shape, page, slot, key, key);
}

/* The keys of blocks that end in this step, once all its raw rows are there. */
static void make_keys(struct forward_pass *r, struct pool *pool, int thread,
                      const struct layer_weights *lw, uint32_t layer) {
    const uint32_t ratio = lw->compressed->ratio;
    size_t begin, end;
    if (ratio == 0)
        return;
    forward_host(r, pool);
    while (pool_claim(pool, r->step->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            uint32_t pos;
            const struct step_run *run = run_of(r, (uint32_t)t, &pos);
            if ((pos + 1) % ratio != 0)
                continue;
            make_key(r, thread, lw, layer, COMPRESSED_KEYS, run, pos);
            if (ratio == COMPRESS_FINE)
                make_key(r, thread, lw, layer, COMPRESSED_INDEX, run, pos);
        }
    pool_barrier(pool);
}

/* ---- the choice ---------- */

static float *scores_of(const struct compressed_buffers *b, size_t t) {
    return b->scores + t % INDEX_TOGETHER * b->ld_scores;
}

/* Compressed keys of a layer that token t sees, before any choice. */
static uint32_t n_blocks_of(const struct forward_pass *r, const struct layer_weights *lw,
                            uint32_t t) {
    uint32_t pos;
    run_of(r, t, &pos);
    return lw->compressed->ratio != 0 ? (pos + 1) / lw->compressed->ratio : 0;
}

/* Those of SCORE_PAGES pages, each of which has a tile of keys. */
static void score_pages(struct forward_pass *r, int thread, const struct layer_weights *lw,
                        uint32_t layer, uint32_t t, uint32_t first_page) {
    struct model *m = r->m;
    const struct compressed_buffers *b = &m->compressed;
    const struct compress_params *p = &m->hp->compress;
    const uint32_t part = part_of(layer, COMPRESSED_INDEX), n = n_blocks_of(r, lw, t);
    uint32_t pos;
    const struct step_run *run = run_of(r, t, &pos);
    if (n <= p->top_k)
        return;
    for (uint32_t page = first_page; page < first_page + SCORE_PAGES && page * 16 < n; page++) {
        const uint8_t *keys = kv_page(&b->kv, part, r->step->pages[run->page_begin + page]);
        const struct index_scores_args args = {
            .shape = &b->kv.layers[part].shape,
            .pages = &keys,
            .q = b->index_q + t * b->ld_index_q,
            .q_stride = p->k_dim,
            .weights = b->raw + t * b->ld_raw + raw_row_of_layer(m, lw).weights,
            .n_heads = p->n_heads,
            .end = MIN(n - page * 16, 16u),
            .scores = scores_of(b, t) + (size_t)page * 16,
            .scratch = scratch_of(m, thread),
        };
        b->k->scores(&args);
    }
}

static void choose_blocks(struct forward_pass *r, const struct layer_weights *lw, uint32_t t) {
    const struct compressed_buffers *b = &r->m->compressed;
    const uint32_t top_k = r->m->hp->compress.top_k, n = n_blocks_of(r, lw, t);
    const size_t at = r->first + t;
    if (n > top_k)
        b->n_chosen[at] =
            index_select(scores_of(b, t), n, top_k, b->chosen + at * b->ld_chosen);
}

static void choose(struct forward_pass *r, struct pool *pool, int thread,
                   const struct layer_weights *lw, uint32_t layer) {
    const uint32_t n = r->step->n_tokens;
    uint32_t most = 0;
    size_t begin, end;
    if (lw->compressed->ratio != COMPRESS_FINE)
        return;
    for (uint32_t t = 0; t < n; t++)
        most = MAX(most, n_blocks_of(r, lw, t));
    if (most <= r->m->hp->compress.top_k)
        return;
    for (uint32_t first = 0; first < n; first += INDEX_TOGETHER) {
        const size_t together = MIN(n - first, (uint32_t)INDEX_TOGETHER),
                     pieces = div_up(most, 16 * SCORE_PAGES);
        forward_host(r, pool);
        while (pool_claim(pool, together * pieces, 1, &begin, &end))
            for (size_t i = begin; i < end; i++)
                score_pages(r, thread, lw, layer, first + (uint32_t)(i / pieces),
                            (uint32_t)(i % pieces) * SCORE_PAGES);
        pool_barrier(pool);
        while (pool_claim(pool, together, 1, &begin, &end))
            for (size_t i = begin; i < end; i++)
                choose_blocks(r, lw, first + (uint32_t)i);
        pool_barrier(pool);
    }
}

/* ---- attending ---------- */

/* Row from_slot of a page becomes row to_slot of another one: a latent key and its scales. */
static void copy_row(const struct kv_shape *from, const uint8_t *from_page, uint32_t from_slot,
                     const struct kv_shape *to, uint8_t *to_page, uint32_t to_slot) {
    const size_t values = round_up(from->k_dim, TILE_ROWS),
                 bytes = values * kv_value_bytes(from->type),
                 scales = from->type == KV_Q8_0 ? 2 * div_up(values, KV_BLOCK) : 0;
    memcpy(to_page + to_slot * bytes, from_page + from_slot * bytes, bytes);
    memcpy(to_page + kv_layout(to).k_scales + to_slot * scales,
           from_page + kv_layout(from).k_scales + from_slot * scales, scales);
}

/* A thread's copy of what a token sees. */
struct seen {
    const struct kv_shape *shape;
    const uint8_t **pages;
    uint8_t *bytes;
    size_t page_bytes;
    uint32_t n;
};

static struct seen seen_of(const struct model *m, uint32_t layer, int thread) {
    const struct compressed_buffers *b = &m->compressed;
    struct seen s = {.shape = &m->kv.layers[layer].shape,
                     .pages = b->seen_pages + (size_t)thread * b->n_seen_pages,
                     .bytes = b->seen + (size_t)thread * b->seen_bytes};
    s.page_bytes = kv_page_bytes(s.shape);
    for (uint32_t i = 0; i < b->n_seen_pages; i++)
        s.pages[i] = s.bytes + i * s.page_bytes;
    return s;
}

static void see(struct seen *s, const struct kv_shape *from, const uint8_t *page,
                uint32_t slot) {
    copy_row(from, page, slot, s->shape, s->bytes + s->n / KV_PAGE * s->page_bytes,
             s->n % KV_PAGE);
    s->n++;
}

static void see_all(struct forward_pass *r, const struct layer_weights *lw, uint32_t layer,
                    uint32_t t, struct seen *s) {
    const struct model *m = r->m;
    const struct compressed_buffers *b = &m->compressed;
    const uint32_t ratio = lw->compressed->ratio, window = lw->window;
    const struct kv_shape *keys = &b->kv.layers[part_of(layer, COMPRESSED_KEYS)].shape;
    const size_t at = r->first + t;
    uint32_t pos, n = n_blocks_of(r, lw, t), slot;
    const struct step_run *run = run_of(r, t, &pos);
    const bool some = ratio == COMPRESS_FINE && n > m->hp->compress.top_k;
    n = some ? b->n_chosen[at] : n;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t block = some ? b->chosen[at * b->ld_chosen + i] : i;
        const uint8_t *page =
            block_page(r, layer, COMPRESSED_KEYS, run, (block + 1) * ratio - 1, ratio, &slot);
        see(s, keys, page, slot);
    }
    for (uint32_t p = pos >= window ? pos + 1 - window : 0; p <= pos; p++)
        see(s, s->shape, window_page(r, &m->kv, layer, run, p), p % KV_PAGE);
}

/* Heads [h_begin, h_end) of token t, whose results are turned back by its position. */
static void attend_heads(struct forward_pass *r, int thread, const struct layer_weights *lw,
                         uint32_t layer, uint32_t t, uint32_t h_begin, uint32_t h_end) {
    struct model *m = r->m;
    const struct rope_angles *angles = m->angles[lw->attn];
    const uint32_t hd = kind_of(m, lw)->head_dim, n = h_end - h_begin;
    const size_t at = (size_t)(r->first + t) * angles->n_pairs;
    float *out = m->att + ((size_t)t * n_heads_of(m, lw) + h_begin) * hd;
    float *back = scratch_of(m, thread);
    struct attn_query queries[ATTN_TOGETHER];
    struct seen s = seen_of(m, layer, thread);
    see_all(r, lw, layer, t, &s);
    for (uint32_t i = 0; i < n; i++)
        queries[i] = (struct attn_query){.q = m->q + t * m->ldq + (size_t)(h_begin + i) * hd,
                                         .out = out + (size_t)i * hd,
                                         .end = s.n,
                                         .sink = lw->sinks[h_begin + i]};
    const struct attn_args args = {.shape = s.shape,
                                   .pages = s.pages,
                                   .n_queries = n,
                                   .queries = queries,
                                   .scale = m->hp->attn_scale,
                                   .scratch = scratch_of(m, thread)};
    m->k->attention(&args);
    for (uint32_t i = 0; i < angles->n_pairs; i++)
        back[i] = -angles->sin[at + i];
    turn(m, lw, out, n, hd, angles->cos + at, back);
}

/* A task is some heads of one token: as many as share what is copied, unless threads would have
 * nothing to do. */
static void attend(struct forward_pass *r, struct pool *pool, int thread,
                   const struct layer_weights *lw, uint32_t layer) {
    const uint32_t n_heads = n_heads_of(r->m, lw), n_tokens = r->step->n_tokens;
    uint32_t block = MIN(n_heads, (uint32_t)ATTN_TOGETHER);
    while (block > ATTN_LEAST &&
           n_tokens * div_up(n_heads, block) < (size_t)pool_n_threads(pool))
        block = (uint32_t)div_up(block, 2);
    const size_t n_blocks = div_up(n_heads, block);
    size_t begin, end;
    forward_host(r, pool);
    while (pool_claim(pool, n_tokens * n_blocks, 1, &begin, &end))
        for (size_t i = begin; i < end; i++) {
            const uint32_t h = (uint32_t)(i % n_blocks) * block;
            attend_heads(r, thread, lw, layer, (uint32_t)(i / n_blocks), h,
                         MIN(h + block, n_heads));
        }
    pool_barrier(pool);
}

/* ---- the output ---------- */

/* Results of a group's heads through its low-rank matrix, close together for the output product. */
static void low_rank_output(struct forward_pass *r, struct pool *pool, int thread,
                            const struct layer_weights *lw) {
    struct model *m = r->m;
    struct compressed_buffers *b = &m->compressed;
    const uint32_t o_rank = m->hp->compress.o_rank, n_groups = b->n_groups;
    const size_t ld_att = (size_t)n_heads_of(m, lw) * kind_of(m, lw)->head_dim,
                 cols = ld_att / n_groups, n_parts = act_n_groups(r->step->n_tokens),
                 ld = n_groups * b->low_stride;
    size_t begin, end;
    for (uint32_t g = 0; thread == 0 && g < n_groups; g++)
        b->products[g] = (struct product){&lw->compressed->out_a[g], &b->group_act[g],
                                          b->low_out + g * b->low_stride, ld};
    forward_host(r, pool);
    while (pool_claim(pool, n_parts * n_groups, 1, &begin, &end))
        for (size_t i = begin; i < end; i++)
            forward_pack_group(m, &b->group_act[i / n_parts], m->att + i / n_parts * cols,
                               ld_att, (uint32_t)(i % n_parts));
    pool_barrier(pool);
    forward_products(r, pool, b->products, n_groups);
    forward_host(r, pool);
    while (pool_claim(pool, r->step->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++)
            for (uint32_t g = 0; g < n_groups; g++)
                memcpy(b->low + (t * n_groups + g) * o_rank,
                       b->low_out + t * ld + g * b->low_stride, o_rank * sizeof *b->low);
    pool_barrier(pool);
}

bool compressed_forward(struct forward_pass *r, struct pool *pool, int thread,
                        const struct layer_weights *lw, uint32_t layer) {
    struct model *m = r->m;
    const struct acts att = forward_acts_narrow(&m->att_act, lw->o.n_cols);
    size_t begin, end;
    if (!latents(r, pool, thread, lw))
        return false;
    if (n_heads_of(m, lw) != 0) { /* else nothing is kept here */
        query_products(r, pool, lw);
        forward_host(r, pool);
        while (pool_claim(pool, r->step->n_tokens, 1, &begin, &end))
            for (size_t t = begin; t < end; t++)
                finish_token(r, lw, layer, (uint32_t)t);
        pool_barrier(pool);
        make_keys(r, pool, thread, lw, layer);
        choose(r, pool, thread, lw, layer);
        attend(r, pool, thread, lw, layer);
        low_rank_output(r, pool, thread, lw);
        forward_pack(r, pool, &att, m->compressed.low, lw->o.n_cols);
    }
    forward_fixed_product(r, pool, thread, &lw->o, lw->o_segment, &att, NULL);
    return true;
}
