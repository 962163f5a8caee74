#include "kernels/tile_driver.h"

#include "base/util.h"
#include "kernels/tiles.h"

/* A call's operands for tokens [token, token + n) of group g and tiles [tile, ...). */
static void point_at_tokens(struct mm_call *c, const struct act *x, uint32_t group,
                            uint32_t token) {
    uint32_t left = x->n_tokens - group * ACT_GROUP;
    c->gs = MIN(left, ACT_GROUP);
    size_t at = (size_t)group * ACT_GROUP;
    if (x->kind == ACT_F32) {
        c->f = x->f + at * x->n_cols + token;
        return;
    }
    size_t block = at * (x->n_cols / ACT_BLOCK);
    c->q = x->q + at * x->n_cols + (size_t)token * ACT_BLOCK;
    c->d = x->d + block + token;
    c->sums = x->sums + block + token;
    c->s = x->s + block + token;
}

/* Tiles first, first + apart... (n of them) for a micro-kernel that takes `width`: the last is repeated. */
static void point_at_tiles(struct mm_call *c, const struct wmat *w, uint32_t first,
                           uint32_t apart, uint32_t n, uint32_t width) {
    c->n_tiles = n;
    for (uint32_t i = 0; i < width; i++) {
        size_t tile = first + (size_t)MIN(i, n - 1) * apart;
        c->w[i] = w->tiles + tile * w->tile_bytes;
        c->row[i] = tile * TILE_ROWS;
    }
}

/* How many of the `left` tokens of a group the next call takes: equal parts, since a call
 * of few tokens is little faster than one of max_tokens. */
static uint32_t tokens_at_once(const struct mm_kernels *k, uint32_t left) {
    uint32_t calls = (uint32_t)div_up(left, k->max_tokens);
    return (uint32_t)div_up(left, calls);
}

/* How many calls a row of tiles takes. */
static uint32_t calls_for(const struct mm_kernels *k, uint32_t n_tokens) {
    return n_tokens / ACT_GROUP * (uint32_t)div_up(ACT_GROUP, k->max_tokens) +
           (uint32_t)div_up(n_tokens % ACT_GROUP, k->max_tokens);
}

/* Where a product's results go: one of the two. */
struct result {
    float *y;
    int64_t *fixed;
    const uint32_t *rows; /* of fixed, by token; NULL: a row each, in order */
};

/* A call's results for the n tokens from `token` of the batch on. */
static void point_at_results(struct mm_call *c, struct result to, uint32_t token, uint32_t n) {
    if (to.y != NULL) {
        c->y = to.y + token * c->ldy;
        return;
    }
    for (uint32_t t = 0; t < n; t++)
        c->fixed[t] = to.fixed + (to.rows != NULL ? to.rows[token + t] : token + t) * c->ldy;
}

/* One token (the one that c points at) with tiles [begin, end): as many runs of tiles side by side as
 * the micro-kernel takes, since memory gives most to a few long streams. Their distance is odd: streams
 * that lie a large power of two apart meet in the same banks. */
static void drive_one(const struct mm_kernels *k, struct mm_call *c, const struct wmat *w,
                      uint32_t begin, uint32_t end) {
    uint32_t width = k->one_tiles;
    while (begin < end) {
        uint32_t run = (end - begin) / width, n = run > 0 ? width : end - begin;
        run = run > 0 ? (run - 1) | 1 : 1;
        for (uint32_t i = 0; i < run; i++) {
            point_at_tiles(c, w, begin + i, run, n, width);
            k->one(c);
        }
        begin += run * n;
    }
}

/* c is changed in place from call to call: a copy of fields just written would wait for the
 * stores, and these for the arithmetic before them. */
static void drive(const struct mm_kernels *k, const struct wmat *w, const struct act *x,
                  struct result to, size_t ldy, uint32_t seg_cols, uint32_t tile_begin,
                  uint32_t tile_end) {
    struct mm_call c = {.n_cols = w->n_cols,
                        .col_phase = w->col_phase,
                        .blocks_at = tile_blocks_at(w->type, w->n_cols, w->col_phase),
                        .seg_cols = seg_cols,
                        .scale = w->scale,
                        .ldy = ldy,
                        .adds = to.rows != NULL};
    uint32_t width = x->n_tokens == 1 ? tile_end - tile_begin : k->many_tiles;
    c.next = (size_t)k->many_tiles * w->tile_bytes;
    c.n_turns = calls_for(k, x->n_tokens);
    for (uint32_t tile = tile_begin; tile < tile_end; tile += width) {
        uint32_t n_tiles = MIN(width, tile_end - tile), n;
        c.turn = 0;
        for (uint32_t t = 0; t < x->n_tokens; t += n) {
            uint32_t group = t / ACT_GROUP, in_group = t % ACT_GROUP;
            n = tokens_at_once(k, MIN(x->n_tokens - group * ACT_GROUP, ACT_GROUP) - in_group);
            point_at_tokens(&c, x, group, in_group);
            point_at_results(&c, to, t, n);
            c.n_tokens = n;
            if (n == 1) {
                drive_one(k, &c, w, tile, tile + n_tiles);
                continue;
            }
            point_at_tiles(&c, w, tile, 1, n_tiles, width);
            k->many[n](&c);
            c.turn++;
        }
    }
}

void mm_drive(const struct mm_kernels *k, const struct wmat *w, const struct act *x, float *y,
              size_t ldy, uint32_t tile_begin, uint32_t tile_end) {
    drive(k, w, x, (struct result){.y = y}, ldy, w->n_cols, tile_begin, tile_end);
}

void mm_drive_fixed(const struct mm_kernels *k, const struct wmat *w, const struct act *x,
                    int64_t *y, size_t ldy, const uint32_t *rows, uint32_t seg_cols,
                    uint32_t tile_begin, uint32_t tile_end) {
    struct result to = {.fixed = y, .rows = rows};
    drive(k, w, x, to, ldy, seg_cols, tile_begin, tile_end);
}
