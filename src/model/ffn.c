/* ffn.c: the FFN of a layer, and the first half of it for experts: gate, up, the activation,
 * and packing for the down product.
 *
 * A thread computes rows of gate and the same rows of up, and makes the down product's input
 * from them while they are in near caches. Results of [n_tokens, n_ff] are never written to
 * memory in f32. */
#include "model/on_device.h"
#include "shaders/definition.h"

#include <math.h>

/* A part has at most this many tokens, and so many tiles that its results fit FFN_FLOATS. */
#define PART_TOKENS (16 * ACT_GROUP)
/* Several parts' tokens pass before the next tiles: this many tiles of gate, and of up, stay in
 * near caches meanwhile. */
#define NEAR_TILES 16

/* Tiles [begin, end) of w, as a matrix. */
static struct wmat tiles_of(const struct wmat *w, uint32_t begin, uint32_t end) {
    struct wmat part = *w;
    part.tiles += begin * w->tile_bytes;
    part.n_rows = MIN(w->n_rows, end * TILE_ROWS) - begin * TILE_ROWS;
    return part;
}

static void multiply(const struct model *m, const struct wmat *w, const struct acts *x,
                     float *y, size_t ldy, uint32_t begin, uint32_t end) {
    const struct wmat part = tiles_of(w, begin, end);
    m->k->matmul(&part, forward_act_for(x, w), y, ldy, 0, end - begin);
}

/* What of the gates that are there already lies above the tokens' cutoffs. */
static void take_gates(float *gate, size_t ld, const struct ffn_up *u, uint32_t first,
                       uint32_t n, size_t col) {
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < ld; i++) {
            float g = u->gate_rows[(first + t) * u->ld_gate + col + i] - u->cutoffs[first + t];
            gate[t * ld + i] = g < 0.0f ? 0.0f : exact_tidy(g); /* NaN stays */
        }
}

/* Tiles [begin, end) of u with n tokens from `first` on; begin: even, so that blocks of
 * activations are whole. */
static void part_forward(const struct model *m, float *scratch, const struct ffn_up *u,
                         uint32_t first, uint32_t n, uint32_t begin, uint32_t end) {
    const size_t ld = (size_t)(end - begin) * TILE_ROWS, col = (size_t)begin * TILE_ROWS;
    const size_t n_cols = MIN(ld, u->gate->n_rows - col);
    const struct acts x = forward_acts_part(u->x, first, n);
    const struct acts out = forward_acts_part(u->out, first, n);
    float *gate = scratch, *up = scratch + FFN_FLOATS;
    const uint32_t block_begin = (uint32_t)(col / ACT_BLOCK),
                   block_end = (uint32_t)div_up(col + n_cols, ACT_BLOCK);
    if (n == 1)
        forward_own_blocks(&out, block_begin, block_end);
    if (u->gate_rows != NULL)
        take_gates(gate, ld, u, first, n, col);
    else
        multiply(m, u->gate, &x, gate, ld, begin, end);
    if (u->up->n_rows != 0)
        multiply(m, u->up, &x, up, ld, begin, end);
    for (size_t t = 0; t < n && u->gate_bias != NULL; t++) {
        m->k->add(gate + t * ld, u->gate_bias + col, n_cols);
        if (u->up_bias != NULL)
            m->k->add(up + t * ld, u->up_bias + col, n_cols);
    }
    ffn_activate(m->k, m->hp->ffn_act, m->hp->situ, u->limit, gate, up, n * ld);
    for (size_t t = 0; t < n && u->weights != NULL; t++)
        for (size_t i = 0; i < n_cols; i++)
            gate[t * ld + i] = exact_tidy(gate[t * ld + i] * u->weights[first + t]);
    forward_pack_blocks(m, &out, gate, ld, block_begin, block_end);
}

static void tiles_forward(const struct model *m, float *scratch, const struct ffn_up *u,
                          uint32_t begin, uint32_t end) {
    const uint32_t n = u->x->f32.n_tokens, tokens = MIN(n, (uint32_t)PART_TOKENS);
    const uint32_t tiles = (uint32_t)(FFN_FLOATS / (2 * TILE_ROWS * tokens)) * 2;
    const uint32_t near = MAX(tiles, (uint32_t)NEAR_TILES);
    for (uint32_t from = begin, to; from < end; from = to) {
        to = MIN(from + near, end);
        for (uint32_t t = 0; t < n; t += tokens)
            for (uint32_t tile = from; tile < to; tile += tiles)
                part_forward(m, scratch, u, t, MIN(tokens, n - t), tile, MIN(tile + tiles, to));
    }
}

/* Tiles of u, in whole pairs: a pair's rows are a block of activations. */
static size_t n_tiles_of(const struct ffn_up *u) {
    return round_up(wmat_n_tiles(u->gate), 2);
}

void ffn_up_forward(struct forward_pass *r, struct pool *pool, int thread,
                    const struct ffn_up *list, size_t n) {
    const struct model *m = r->m;
    float *scratch = m->ffn_scratch + (size_t)thread * 2 * FFN_FLOATS;
    size_t total = 0, begin, end;
    if (on_device(r) && device_ffn_up(r, pool, list, n))
        return;
    forward_host(r, pool);
    for (size_t i = 0; i < n; i++)
        total += n_tiles_of(list + i);
    while (total != 0 &&
           forward_claim_tiles(r, pool, total, 2 * list[0].gate->tile_bytes, &begin, &end)) {
        size_t first = 0;
        for (size_t i = 0; i < n && first < end; i++) {
            size_t tiles = wmat_n_tiles(list[i].gate);
            size_t b = MAX(begin, first), e = MIN(end, first + tiles);
            if (b < e)
                tiles_forward(m, scratch, list + i, (uint32_t)(b - first),
                              (uint32_t)(e - first));
            first += n_tiles_of(list + i);
        }
    }
    pool_barrier(pool);
}

/* Sums of a token's gates and of their squares, added up by segments: exact, since they lie on
 * several ranks. */
static void gate_sums(const float *gate, uint32_t n, uint32_t segment, int64_t *sums) {
    sums[0] = sums[1] = 0;
    for (uint32_t at = 0; at < n; at += segment) {
        float sum = 0.0f;
        for (uint32_t i = 0; i < segment; i++)
            sum += gate[at + i];
        sums[0] += forward_fixed(sum);
        sums[1] += forward_fixed(lanes16_squares(gate + at, segment));
    }
}

/* The threshold of each token's gates: their mean plus some standard deviations. */
static bool sparse_gates(struct forward_pass *r, struct pool *pool, int thread,
                         const struct layer_weights *lw) {
    struct model *m = r->m;
    struct stream_buffers *b = &m->streams;
    const uint32_t n = r->step->n_tokens;
    const uint32_t width =
        hparams_layer_n_ff(m->hp, m->share->layer_begin + (uint32_t)(lw - m->w.layers));
    const struct product gate = {&lw->ffn.gate, &m->x_act, b->gate_rows, b->ld_gate};
    size_t begin, end;
    forward_products(r, pool, &gate, 1);
    forward_host(r, pool);
    while (pool_claim(pool, n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++)
            gate_sums(b->gate_rows + t * b->ld_gate, lw->ffn.gate.n_rows, lw->ffn_segment,
                      r->acc + 2 * t);
    pool_barrier(pool);
    if (!forward_team_sum(r, pool, thread, (size_t)n * 2))
        return false;
    while (pool_claim(pool, n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            const double one = 1.0 / (1 << FIXED_BITS);
            double sum = (double)r->acc[2 * t] * one, squares = (double)r->acc[2 * t + 1] * one;
            double mean = sum / width, var = (squares - sum * mean) / MAX(width - 1.0, 1.0);
            b->cutoffs[t] =
                (float)(mean + (double)m->hp->sparse_deviations * sqrt(MAX(var, 0)));
        }
    pool_barrier(pool);
    return true;
}

bool ffn_forward(struct forward_pass *r, struct pool *pool, int thread,
                 const struct layer_weights *lw) {
    struct model *m = r->m;
    const struct acts mid = forward_acts_narrow(&m->ff_act, lw->ffn.down.n_cols);
    struct ffn_up up = {.gate = &lw->ffn.gate,
                        .up = &lw->ffn.up,
                        .gate_bias = lw->gate_bias,
                        .up_bias = lw->up_bias,
                        .x = &m->x_act,
                        .out = &mid,
                        .limit = lw->ffn_limit};
    if (lw->sparse) {
        if (!sparse_gates(r, pool, thread, lw))
            return false;
        up.gate_rows = m->streams.gate_rows;
        up.cutoffs = m->streams.cutoffs;
        up.ld_gate = m->streams.ld_gate;
    }
    ffn_up_forward(r, pool, thread, &up, 1);
    forward_fixed_product(r, pool, thread, &lw->ffn.down, lw->ffn_segment, &mid, lw->down_bias);
    return true;
}
