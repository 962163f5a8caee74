#include "kernels/tile_driver.h"

#include "base/util.h"

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
    c->sum = x->sum + block + token;
    c->s = x->s + block + token;
}

/* Tiles [tile, tile + n) for a micro-kernel that takes `width`: the last tile is repeated. */
static void point_at_tiles(struct mm_call *c, const struct wmat *w, uint32_t tile, uint32_t n,
                           uint32_t width) {
    c->n_tiles = n;
    for (uint32_t i = 0; i < width; i++)
        c->w[i] = w->tiles + (size_t)(tile + MIN(i, n - 1)) * w->tile_bytes;
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
};

/* Runs the micro-kernel on tiles [tile, tile + n) and the tokens that c points at, from `token` of
 * the batch on. c is changed in place: a copy of fields just written would wait for the
 * stores, and these for the arithmetic before them. */
static void run(mm_fn fn, struct mm_call *c, const struct wmat *w, struct result to,
                uint32_t tile, uint32_t n, uint32_t width, uint32_t token) {
    size_t at = (size_t)token * c->ldy + (size_t)tile * TILE_ROWS;
    point_at_tiles(c, w, tile, n, width);
    c->y = to.y != NULL ? to.y + at : NULL;
    c->fixed = to.fixed != NULL ? to.fixed + at : NULL;
    fn(c);
}

static void drive(const struct mm_kernels *k, const struct wmat *w, const struct act *x,
                  struct result to, size_t ldy, uint32_t seg_cols, uint32_t tile_begin,
                  uint32_t tile_end) {
    struct mm_call c = {
        .n_cols = w->n_cols, .col_phase = w->col_phase, .seg_cols = seg_cols,
        .scale = w->scale, .ldy = ldy};
    uint32_t width = x->n_tokens == 1 ? k->one_tiles : k->many_tiles;
    c.next = width * w->tile_bytes;
    c.n_turns = calls_for(k, x->n_tokens);
    for (uint32_t tile = tile_begin; tile < tile_end; tile += width) {
        uint32_t n_tiles = MIN(width, tile_end - tile), n;
        c.turn = 0;
        for (uint32_t t = 0; t < x->n_tokens; t += n) {
            uint32_t group = t / ACT_GROUP, in_group = t % ACT_GROUP;
            n = tokens_at_once(k, MIN(x->n_tokens - group * ACT_GROUP, ACT_GROUP) - in_group);
            point_at_tokens(&c, x, group, in_group);
            if (n > 1) {
                run(k->many[n], &c, w, to, tile, n_tiles, width, t);
                c.turn++;
                continue;
            }
            for (uint32_t i = 0; i < n_tiles; i += k->one_tiles)
                run(k->one, &c, w, to, tile + i, MIN(k->one_tiles, n_tiles - i), k->one_tiles, t);
        }
    }
}

void mm_drive(const struct mm_kernels *k, const struct wmat *w, const struct act *x, float *y,
              size_t ldy, uint32_t tile_begin, uint32_t tile_end) {
    drive(k, w, x, (struct result){.y = y}, ldy, w->n_cols, tile_begin, tile_end);
}

void mm_drive_fixed(const struct mm_kernels *k, const struct wmat *w, const struct act *x,
                    int64_t *y, size_t ldy, uint32_t seg_cols, uint32_t tile_begin,
                    uint32_t tile_end) {
    drive(k, w, x, (struct result){.fixed = y}, ldy, seg_cols, tile_begin, tile_end);
}
