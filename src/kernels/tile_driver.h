/* tile_driver.h: the loops around the ISA files' matmul micro-kernels.
 *
 * A micro-kernel multiplies a few tiles with a few tokens over all columns and keeps every sum
 * in registers. The driver iterates over tiles and token groups. Pure: threads take disjoint
 * tiles. */
#ifndef LOCKSTEP_KERNELS_TILE_DRIVER_H
#define LOCKSTEP_KERNELS_TILE_DRIVER_H

#include "kernels/kernels.h"

/* The most tiles and tokens that a micro-kernel takes at once. */
#define MM_MAX_TILES 8
#define MM_MAX_TOKENS ACT_GROUP
/* The most tiles of a micro-kernel that takes a part of the columns. */
#define MM_CHUNK_TILES 2
/* Space for staged weights (below) on the stack, 112 KiB: the number of columns, and the bytes
 * for 32 of them. */
#define MM_STAGED_COLS 2048
#define MM_STAGED_BLOCK_BYTES 1792

struct mm_call {
    const uint8_t *w[MM_MAX_TILES]; /* tiles, from their column 0; the last may be repeated */
    size_t row[MM_MAX_TILES]; /* where in a token's results each tile's 16 values belong */
    uint32_t n_tiles;         /* to compute; the others are not written */
    uint32_t n_tokens;
    uint32_t n_cols;    /* of the whole tile */
    uint32_t col_phase; /* as in struct wmat */
    uint32_t seg_cols;  /* columns to a sum, from +0 or `from`; divides n_cols */
    float scale;        /* as in struct wmat */
    /* With chunk_bytes (below): the call's columns, whole segments or a part of the one. The sums
     * of a part begin where the part before left them (from; NULL: at +0) and, unless it is the
     * last, go to `part` (otherwise NULL): vectors of 16, [token][tile]. */
    uint32_t begin, end;
    const float *from;
    float *part;
    /* with stage (below): the weights of these columns as it left them */
    const uint8_t *staged;
    /* Several tokens: while a call computes, it prefetches the next tiles, so that memory and
     * arithmetic overlap: ahead_lines cache lines per block of columns, from `ahead` on. They
     * may lie beyond the matrix. */
    uintptr_t ahead, ahead_end;
    uint32_t ahead_lines;
    /* The activations of the call's first token at column `begin`; tokens of a group lie
     * interleaved, gs of them. */
    uint32_t gs;
    const float *f;
    const int8_t *q;
    const float *d;
    const struct act_sums *sums;
    const int32_t *start;
    const float *s;
    /* y [n tokens][ldy] gets the one sum of all columns. If y is NULL, fixed[token] gets the
     * segments' sums in fixed point, added to its value if `adds`. */
    float *y;
    size_t ldy;
    int64_t *fixed[MM_MAX_TOKENS];
    bool adds;
};
typedef void (*mm_fn)(const struct mm_call *c);

struct mm_kernels {
    mm_fn one; /* one token, one_tiles tiles: bound by memory */
    uint32_t one_tiles;
    mm_fn rest; /* not NULL: of fewer tiles than that, rest_tiles at a time */
    uint32_t rest_tiles;
    mm_fn many[MM_MAX_TOKENS + 1]; /* by number of tokens, 2 to max_tokens; many_tiles tiles */
    uint32_t many_tiles;
    /* Not 0: this many bytes of many_tiles tiles stay in near caches while several calls for
     * that part of the columns pass. */
    uint32_t chunk_bytes;
    /* If not NULL: calls need the weights of their columns in another form. This makes it of
     * many_tiles tiles, once for all calls of a pass. to: 64-byte aligned. */
    void (*stage)(const struct mm_call *c, uint8_t *to);
    uint32_t max_tokens;
};

/* struct kernels' matmul and matmul_fixed, on k = the micro-kernels of w->type. */
void mm_drive(const struct mm_kernels *k, const struct wmat *w, const struct act *x, float *y,
              size_t ldy, uint32_t tile_begin, uint32_t tile_end);
void mm_drive_fixed(const struct mm_kernels *k, const struct wmat *w, const struct act *x,
                    int64_t *y, size_t ldy, const uint32_t *rows, uint32_t seg_cols,
                    uint32_t tile_begin, uint32_t tile_end);

#endif
