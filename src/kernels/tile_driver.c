/* tile_driver.c: The loops over tiles and tokens around the micro-kernels of an instruction
 * set. */
#include "kernels/tile_driver.h"

#include "base/prefetch.h"
#include "base/util.h"
#include "kernels/tiles.h"

/* A call's activations: those of `token` of the batch and the others of its group, from column
 * c->begin on. */
static void point_at_tokens(struct mm_call *c, const struct act *x, uint32_t token) {
    uint32_t in_group = token % ACT_GROUP, group_at = token - in_group;
    c->gs = MIN(x->n_tokens - group_at, ACT_GROUP);
    if (x->kind == ACT_F32) {
        c->f = x->f + (size_t)group_at * x->n_cols + (size_t)c->begin * c->gs + in_group;
        return;
    }
    size_t block = (size_t)group_at * (x->n_cols / ACT_BLOCK) +
                   (size_t)(c->begin / ACT_BLOCK) * c->gs + in_group;
    c->q = x->q + block * ACT_BLOCK;
    c->d = x->d + block;
    c->sums = x->sums + block;
    c->start = x->start + block;
    c->s = x->s + block;
}

/* Tiles first, first + apart... (n of them) for a micro-kernel that takes `width`: the last is
 * repeated. */
static void point_at_tiles(struct mm_call *c, const struct wmat *w, uint32_t first,
                           uint32_t apart, uint32_t n, uint32_t width) {
    c->n_tiles = n;
    for (uint32_t i = 0; i < width; i++) {
        size_t tile = first + (size_t)MIN(i, n - 1) * apart;
        c->w[i] = w->tiles + tile * w->tile_bytes;
        c->row[i] = tile * TILE_ROWS;
    }
}

/* How many of the `left` tokens of a group the next call processes: equal parts, since a call
 * of few tokens is hardly faster than one of max_tokens. */
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

/* One token (at c) with tiles [begin, end), in as many runs of tiles side by side as the
 * micro-kernel supports: memory is fastest with a few long streams. The distance between runs
 * is odd: streams that are a large power of two apart share the same banks. */
static void drive_one(const struct mm_kernels *k, struct mm_call *c, const struct wmat *w,
                      uint32_t begin, uint32_t end) {
    mm_fn multiply = k->one;
    uint32_t width = k->one_tiles;
    while (begin < end) {
        if (end - begin < width && k->rest != NULL) {
            multiply = k->rest;
            width = k->rest_tiles;
        }
        uint32_t run = (end - begin) / width, n = run > 0 ? width : end - begin;
        run = run > 0 ? (run - 1) | 1 : 1;
        for (uint32_t i = 0; i < run; i++) {
            point_at_tiles(c, w, begin + i, run, n, width);
            multiply(c);
        }
        begin += run * n;
    }
}

/* How many calls pass while the weights of some columns stay near; staging costs as much as a
 * call or so. */
#define CALLS_AT_ONCE 8
#define CALLS_WHEN_STAGED 16

/* In equal parts of whole units, as few as fit. */
static uint32_t cols_staged(const struct mm_call *c, uint32_t unit) {
    uint32_t units = c->n_cols / unit;
    return (uint32_t)div_up(units, div_up(units, MM_STAGED_COLS / unit)) * unit;
}

/* How many columns stay near while several calls pass: what chunk_bytes hold, in equal parts of
 * whole units; all where that is not asked for. */
static uint32_t cols_at_once(const struct mm_kernels *k, const struct mm_call *c,
                             uint32_t n_tokens, size_t tile_bytes, uint32_t unit) {
    if (k->stage != NULL)
        return cols_staged(c, unit);
    if (k->chunk_bytes == 0 || n_tokens <= k->max_tokens)
        return c->n_cols;
    size_t passes = div_up(k->many_tiles * tile_bytes, k->chunk_bytes);
    return (uint32_t)(div_up(div_up(c->n_cols, passes), unit) * unit);
}

/* Spreads the asking for the next tiles over the calls with these. */
static void begin_ahead(const struct mm_kernels *k, struct mm_call *c, uint32_t n_tokens,
                        size_t tile_bytes) {
    size_t bytes = k->many_tiles * tile_bytes;
    size_t blocks = calls_for(k, n_tokens) * div_up(c->n_cols, ACT_BLOCK);
    c->ahead = (uintptr_t)c->w[0] + bytes;
    c->ahead_end = c->ahead + bytes;
    c->ahead_lines = (uint32_t)div_up(bytes / CACHE_LINE, blocks);
}

/* What a call asked for need not be asked for again. */
static void move_ahead(struct mm_call *c) {
    c->ahead += div_up(c->end - c->begin, ACT_BLOCK) * c->ahead_lines * CACHE_LINE;
    if (c->ahead >= c->ahead_end)
        c->ahead_lines = 0;
}

/* Tokens [token, token + n) of one group. */
struct few_tokens {
    uint32_t token, n;
};

/* The next calls of several tokens, CALLS_WHEN_STAGED at most, and how many they are: none before
 * a single token. */
static size_t list_calls(const struct mm_kernels *k, uint32_t token, uint32_t n_tokens,
                         struct few_tokens *calls) {
    size_t n = 0, at_most = k->stage != NULL ? CALLS_WHEN_STAGED : CALLS_AT_ONCE;
    while (n < at_most && token < n_tokens) {
        uint32_t group_end = MIN(token - token % ACT_GROUP + ACT_GROUP, n_tokens);
        uint32_t at_once = tokens_at_once(k, group_end - token);
        if (at_once == 1)
            break;
        calls[n++] = (struct few_tokens){token, at_once};
        token += at_once;
    }
    return n;
}

/* Some tiles, and tokens [begin, end): whole groups but at the batch's end. */
struct block {
    uint32_t tile_begin, tile_end, begin, end;
};

/* Products of many tokens are blocked. A block has so many tokens that their activations stay
 * in the second-level cache (512 KiB and more) while the block's tiles pass. It has so many
 * tiles that these stay in the third-level cache while the tokens pass. Otherwise each pair of
 * tiles would read the activations of all tokens again. Zen 5, 512 tokens: 1 to 3 % faster. It
 * would be 2 % more with all tiles of a call in one block, but other cores would get less
 * memory bandwidth. */
#define PREFETCH_BYTES 393216 /* of activations */
#define PREFETCH_GROUPS 4     /* but at least this many groups of tokens */
#define PREFETCH_TILES_BYTES 1048576

/* The tokens of a block: equal parts. Staging serves as many tokens as it can instead. */
static uint32_t tokens_near(const struct mm_kernels *k, const struct act *x) {
    size_t value_bytes = x->kind == ACT_F32 ? sizeof *x->f : sizeof *x->q;
    size_t near = PREFETCH_BYTES / (ACT_GROUP * x->n_cols * value_bytes);
    uint32_t groups = act_n_groups(x->n_tokens);
    if (k->stage != NULL)
        return x->n_tokens;
    return (uint32_t)div_up(groups, div_up(groups, MAX(near, (size_t)PREFETCH_GROUPS))) *
           ACT_GROUP;
}

/* What a product of many tokens keeps beside its results. One of it serves all tiles: the frame
 * of a function is touched page by page (-fstack-clash-protection), which took as long as a tile
 * of an expert with ten tokens does. */
struct room {
    uint8_t *staged; /* weights; NULL: nothing is staged */
    float (*parts)[MM_CHUNK_TILES * MM_MAX_TOKENS * TILE_ROWS]; /* sums, [CALLS_WHEN_STAGED] */
};

/* A block's tokens with n_tiles tiles, except for the last token if it would be alone; returns
 * the first remaining one. A few calls at a time cover so many columns that their weights stay
 * in near caches. c is changed in place from call to call: a copy of fields just written would
 * wait for the stores, and these for the arithmetic before them. */
static uint32_t drive_many(const struct mm_kernels *k, struct mm_call *c, const struct wmat *w,
                           const struct act *x, struct result to, const struct room *room,
                           struct block block, uint32_t tile, uint32_t n_tiles) {
    struct few_tokens calls[CALLS_WHEN_STAGED];
    uint32_t seg_cols = c->seg_cols, token = block.begin;
    /* A sum, that is; those in fixed point are of segments, added where they belong. */
    bool splits = to.y != NULL;
    uint32_t unit = x->kind == ACT_F32 ? FLOAT_PIECE : ACT_BLOCK;
    uint32_t cols =
        cols_at_once(k, c, block.end - block.begin, w->tile_bytes, splits ? unit : seg_cols);
    point_at_tiles(c, w, tile, 1, n_tiles, k->many_tiles);
    c->staged = room->staged;
    begin_ahead(k, c, block.end - block.begin, w->tile_bytes);
    for (size_t n; (n = list_calls(k, token, block.end, calls)) > 0;) {
        for (c->begin = 0; c->begin < c->n_cols; c->begin = c->end) {
            c->end = MIN(c->begin + cols, c->n_cols);
            c->seg_cols = splits ? c->end - c->begin : seg_cols;
            if (k->stage != NULL)
                k->stage(c, room->staged);
            for (size_t i = 0; i < n; i++) {
                point_at_tokens(c, x, calls[i].token);
                point_at_results(c, to, calls[i].token, calls[i].n);
                c->n_tokens = calls[i].n;
                c->from = splits && c->begin > 0 ? room->parts[i] : NULL;
                c->part = splits && c->end < c->n_cols ? room->parts[i] : NULL;
                k->many[calls[i].n](c);
                move_ahead(c);
            }
        }
        token = calls[n - 1].token + calls[n - 1].n;
    }
    c->seg_cols = seg_cols;
    return token;
}

/* width: of the tiles that go together. room: NULL for a single token. */
static void drive_block(const struct mm_kernels *k, struct mm_call *c, const struct wmat *w,
                        const struct act *x, struct result to, const struct room *room,
                        struct block b, uint32_t width) {
    for (uint32_t tile = b.tile_begin; tile < b.tile_end; tile += width) {
        uint32_t n_tiles = MIN(width, b.tile_end - tile), token = b.begin;
        if (x->n_tokens > 1)
            token = drive_many(k, c, w, x, to, room, b, tile, n_tiles);
        if (token < b.end) {
            c->begin = 0;
            c->end = c->n_cols;
            c->from = c->part = NULL;
            point_at_tokens(c, x, token);
            point_at_results(c, to, token, 1);
            c->n_tokens = 1;
            drive_one(k, c, w, tile, tile + n_tiles);
        }
    }
}

/* Prefetches all of one token's activations, a part of which other threads have written. A
 * product that meets these lines a few at a time requests no weights while it waits for them.
 * Two cores of two chiplets (Zen 4) generate 2 to 4 % faster. */
static void ask_for_token(const struct act *x) {
    const size_t n_blocks = x->n_cols / ACT_BLOCK;
    if (x->kind == ACT_F32) {
        prefetch_read(x->f, x->n_cols * sizeof *x->f);
        return;
    }
    prefetch_read(x->q, n_blocks * ACT_BLOCK);
    prefetch_read(x->d, n_blocks * sizeof *x->d);
    prefetch_read(x->sums, n_blocks * sizeof *x->sums);
    prefetch_read(x->start, n_blocks * sizeof *x->start);
    prefetch_read(x->s, n_blocks * sizeof *x->s);
}

/* Several tokens and tiles [tile_begin, tile_end). */
static __attribute__((noinline)) void drive_blocks(const struct mm_kernels *k,
                                                   struct mm_call *c, const struct wmat *w,
                                                   const struct act *x, struct result to,
                                                   uint8_t *staged, uint32_t tile_begin,
                                                   uint32_t tile_end) {
    _Alignas(
        CACHE_LINE) float parts[CALLS_WHEN_STAGED][MM_CHUNK_TILES * MM_MAX_TOKENS * TILE_ROWS];
    const struct room room = {staged, parts};
    const uint32_t n_tokens = tokens_near(k, x);
    const size_t calls = PREFETCH_TILES_BYTES / (k->many_tiles * w->tile_bytes);
    const uint32_t tiles_near = (uint32_t)MAX(calls, (size_t)1) * k->many_tiles;
    struct block b;
    for (b.tile_begin = tile_begin; b.tile_begin < tile_end; b.tile_begin = b.tile_end) {
        b.tile_end = MIN(b.tile_begin + tiles_near, tile_end);
        for (b.begin = 0; b.begin < x->n_tokens; b.begin = b.end) {
            b.end = MIN(b.begin + n_tokens, x->n_tokens);
            drive_block(k, c, w, x, to, &room, b, k->many_tiles);
        }
    }
}

static __attribute__((noinline)) void drive_staged(const struct mm_kernels *k,
                                                   struct mm_call *c, const struct wmat *w,
                                                   const struct act *x, struct result to,
                                                   uint32_t tile_begin, uint32_t tile_end) {
    _Alignas(CACHE_LINE) uint8_t staged[MM_STAGED_COLS / ACT_BLOCK * MM_STAGED_BLOCK_BYTES];
    drive_blocks(k, c, w, x, to, staged, tile_begin, tile_end);
}

static void drive(const struct mm_kernels *k, const struct wmat *w, const struct act *x,
                  struct result to, size_t ldy, uint32_t seg_cols, uint32_t tile_begin,
                  uint32_t tile_end) {
    struct mm_call c = {.n_cols = w->n_cols,
                        .col_phase = w->col_phase,
                        .seg_cols = seg_cols,
                        .scale = w->scale,
                        .ldy = ldy,
                        .adds = to.rows != NULL};
    if (x->n_tokens == 1) {
        ask_for_token(x);
        drive_block(k, &c, w, x, to, NULL, (struct block){tile_begin, tile_end, 0, 1},
                    tile_end - tile_begin);
    } else if (k->stage != NULL) {
        drive_staged(k, &c, w, x, to, tile_begin, tile_end);
    } else {
        drive_blocks(k, &c, w, x, to, NULL, tile_begin, tile_end);
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
