/* kernels.h: the declarations of all kernels. Plain pointers in and out; no threads, no
 * allocation, no errors: loading a model checks everything that can fail.
 *
 * Every f32 that a function reads is 0, NaN, or at least 2^-40 in magnitude, and so is every f32
 * that it writes: what is smaller becomes +0 ("tidy", exact_tidy() in base/exact.h; exp() alone
 * gives less). So subnormals do not matter, and a device that flushes them gives the same bits.
 *
 * Every function here obeys docs/numerics.md. Its bits do not depend on the instruction set, on
 * how rows are split over threads and ranks, or on the other tokens in the batch. scalar.c is
 * the definition; the ISA files are compared with it for equality.
 *
 * Words used throughout:
 *   tile    16 rows of a weight matrix, all columns, repacked so that a SIMD lane is a row
 *   block   32 columns: the unit of activation quantization
 *   group   up to ACT_GROUP tokens with interleaved activations
 *   segment the columns after which a row-parallel partial sum is rounded to fixed point */
#ifndef LOCKSTEP_KERNELS_KERNELS_H
#define LOCKSTEP_KERNELS_KERNELS_H

#include "base/exact.h"
#include "base/status.h"
#include "quant/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TILE_ROWS 16
#define ACT_BLOCK 32
#define ACT_GROUP 12
#define KV_PAGE 64       /* positions in a page of the KV cache */
#define ATTN_TOGETHER 48 /* queries that attention() takes through the cache side by side */
#define ATTN_SPAN 512    /* positions per softmax partial; a multiple of KV_PAGE */
#define FLOAT_PIECE 256 /* columns of f32, f16, bf16 or f8_e4m3 whose products make one chain */

/* Fixed point of sums across ranks: multiples of 2^-24, saturated at +-2^24. This many terms
 * (segments, and biases) of at most 2^48 add up to less than 2^63. plan_make() refuses a model
 * with more terms in a sum. */
#define FIXED_BITS 24
#define FIXED_LIMIT 0x1p24f
#define FIXED_TERMS_MAX 32767

/* ---- packed weights ------------------------------------------------------------------
 *
 * Tile layouts, per 16 rows (r = 0..15 is the lane), columns ascending:
 *   f32        [col][16] f32
 *   f16, bf16  [col][16] 16-bit
 *   f8_e4m3    for each 32 columns: scale [16] f32, then [col][16] bytes
 * Quantized types have a code of a few bits per weight. A block's codes are vectors of 64
 * bytes. Byte 4*r+i of a vector holds row r's column 4*v+i, for one or several v = 0..7:
 *   8 bits     8 vectors: vector v
 *   4 bits     4 vectors: vector v % 4, the low nibble for v < 4
 *   2 bits     2 vectors: vector v / 4, bits 2*(v % 4) and the next
 *   6 bits     6 vectors: vector v - v / 4, the low six bits, for v % 4 < 3; the other two bits of
 *              three such bytes, the first one's lowest, for v % 4 = 3
 *   and a high bit of the codes, after these: bit v of a single vector
 *
 *   type                     code  weight               scales
 *   q8_0                     8     code - 128           d
 *   q4_0                     4     code - 8             d
 *   q4_1                     4     code                 d, m
 *   q5_0                     4+1   code - 16            d
 *   q5_1                     4+1   code                 d, m
 *   mlx4                     4     code                 d, m
 *   mlx8, mlx8_f16           8     code - 128           d, m + 128 d
 *   iq4_nl                   4     by table             d
 *   mxfp4                    4     by table, doubled    e: d = 2^(e - 128), 0 for e = 0
 *   nvfp4                    4     by table, doubled    d0, d1 (e4m3 / 2, which f16 holds)
 *   q2_K                     2     code                 halves and mins
 *   q3_K                     2+1   code - 4             halves
 *   q4_K                     4     code                 scale, min
 *   q5_K                     4+1   code                 scale, min
 *   q6_K                     6     code - 32            halves
 *   iq4_xs                   4     by table             scale
 *   iq3_s, iq3_xxs           4     sign and magnitude   scale (2k + 1; iq3_xxs: d / 4)
 *   iq2_s, iq2_xs            2+1   sign and magnitude   halves (2k + 1; d / 8)
 *   iq2_xxs                  2+1   sign and magnitude   scale (2k + 1; d / 8)
 *   iq1_s                    2+1   by table             scale (2k + 1; d / 8)
 *   iq1_m                    2+1   by table             halves (2k + 1; d / 8)
 *   tq1_0, tq2_0             2     code - 1             scale (1)
 *
 * The codebooks of iq3, iq2 and iq1 are expanded when a tile is packed. So their tiles are
 * larger than the file: 4 bits instead of 3.1 or 3.4, 3 instead of 1.6 to 2.6. iq1's -1, 0 and
 * 1, shifted by an eighth up or down, are stored in eighths: -7, 1, 9 or -9, -1, 7.
 *   d; d, m        per block: d [16] f16 (and m [16] f16; mlx4, mlx8: bf16), then its codes
 *   d0, d1         per block: d0 [16] f16, d1 [16] f16 of its halves, then its codes
 *   e              per block: e [16] u8, then its codes
 *   others         per superblock of which this share holds anything: d [16] f16, dmin [16] f16
 *                  (or 32 bytes of padding); then its blocks, each with, before its codes,
 *                    scale       scale [16] i8
 *                    scale, min  scale [16] u8, min [16] u8
 *                    halves      scale [2][16] i8
 *                    and mins    scale [2][16] u8, min [2][16] u8
 * A tile is read sequentially from its beginning to its end. Data that is needed early but lies
 * elsewhere interrupts the hardware prefetcher. (Zen 4, one thread of AVX-512: superblocks'
 * scales together at the tile's beginning give Q4_K 0.63 instead of 0.85 of the roof with 8192
 * columns, 0.89 instead of 0.91 with 2048; AVX2 0.62 instead of 0.82, 0.72 instead of 0.78.)
 *
 * Rows beyond n_rows are zero: their results are computed and written (y has space for whole
 * tiles).
 */
struct wmat {
    enum qtype type;
    uint32_t n_rows;    /* of this share; tiles = div_up(n_rows, 16) */
    uint32_t n_cols;    /* of this share; a multiple of 32 for quantized types */
    uint32_t col_phase; /* K types: where in its superblock column 0 lies, a multiple of 32 */
    size_t tile_bytes;  /* from one tile to the next, a multiple of 64 */
    float scale;        /* nvfp4: of the whole matrix; 1 elsewhere */
    const uint8_t *tiles;
};

/* True if matrices of this type can be multiplied (others must be refused at load). */
bool wmat_type_supported(enum qtype type);

/* Sets all fields but tiles (scale: 1); the tiles need wmat_bytes(), 64-byte aligned. */
struct wmat wmat_shape(enum qtype type, uint32_t n_rows, uint32_t n_cols, uint32_t col_phase);
size_t wmat_bytes(const struct wmat *w);
static inline uint32_t wmat_n_tiles(const struct wmat *w) {
    return (w->n_rows + TILE_ROWS - 1) / TILE_ROWS;
}

/* Packs tiles [tile_begin, tile_end) from rows in the file's format. src_row(ctx, r) gives row
 * r of this share (r < n_rows), whole as in the file. The share's column 0 is the row's column
 * col_begin: a multiple of 32, and of the type's block too unless that is a superblock. The
 * bits of the weights are preserved exactly, but for f32 and bf16 weights, and bf16 and e8m0
 * scales, below 2^-40, and scales of f8_e4m3 below 2^-31: they become 0. Pure: threads take
 * disjoint ranges. */
void wmat_pack(const struct wmat *w, uint8_t *tiles, uint32_t tile_begin, uint32_t tile_end,
               const uint8_t *(*src_row)(const void *ctx, uint32_t r), const void *ctx,
               uint32_t col_begin);

/* ---- activations --------------------------------------------------------------------- */

enum act_kind {
    ACT_F32, /* for f32, f16, bf16, f8_e4m3 weights: values as they are */
    ACT_Q8,  /* for all others: int8 blocks of 32 with an f32 scale */
};
enum act_kind act_kind_for(enum qtype weight_type);

/* Activations of n_tokens, in groups of ACT_GROUP tokens (the last may hold fewer, gs of them):
 *   ACT_F32  f   [group][col][gs]
 *   ACT_Q8   q   [group][block][gs][32] int8, -127..127
 *            d   [group][block][gs] f32, the scale
 *            sums [group][block][gs] int16[2], sums of the q of the block's halves
 *            start [group][block][gs] int32, -128 * (sums[0] + sums[1]): where the integer sum of
 *                 a block begins whose weights are taken as 128 too large
 *            s   [group][block][gs] f32, d * (float)(sums[0] + sums[1])
 * Group g of the q array starts at g * ACT_GROUP * n_cols; of d, sums, start, s at
 * g * ACT_GROUP * (n_cols / 32). Buffers: caller's, 64-byte aligned. */
#define ACT_LEAST_SCALE (EXACT_LEAST / 127.0f) /* the least d but 0 */
struct act_sums {
    int16_t half[2];
};
struct act {
    enum act_kind kind;
    uint32_t n_tokens, n_cols;
    float *f;
    int8_t *q;
    float *d;
    struct act_sums *sums;
    int32_t *start;
    float *s;
};
static inline uint32_t act_n_groups(uint32_t n_tokens) {
    return (n_tokens + ACT_GROUP - 1) / ACT_GROUP;
}

/* ---- attention ----------------------------------------------------------------------- */

/* The KV cache of one layer of one rank: pages of KV_PAGE positions. In a page, for each kv
 * head: K as [KV_PAGE/16][k_dim][16] (a lane is a position), then V as [KV_PAGE][v_pad] (a lane
 * is a dimension; v_pad = v_dim rounded up to 16, the padding zero). If a value is the
 * beginning of its key (latent attention), only the key is stored, as [KV_PAGE][k_pad]. Its
 * tiles of 16 positions are transposed as they are read.
 *
 * KV_Q8_0: every KV_BLOCK dimensions of a key or value (the last block may be shorter) are int8
 * with one f16 scale: d = f16(amax / 127), at most 65504; q = rint(x / d), clamped to +-127,
 * NaN to 127; d = 0 gives q = 0. Attention uses d * q, which f32 holds exactly. The scales lie
 * behind their codes: of K [KV_PAGE/16][k blocks][16], of V and of latent rows
 * [KV_PAGE][blocks]. */
enum kv_type { KV_F16, KV_F32, KV_Q8_0, KV_N_TYPES };
#define KV_BLOCK 32

struct kv_shape {
    enum kv_type type;
    bool latent; /* V is the first v_dim <= k_dim values of K */
    uint32_t n_kv_heads;
    uint32_t k_dim, v_dim;
    /* Positions of a page; 0: KV_PAGE. 16, or of a latent cache any number: pages of which a
     * kernel is given one at a time. */
    uint32_t n_slots;
};
/* Where the parts of one head in one page begin, in bytes. */
struct kv_layout {
    size_t k_scales, v, v_scales, bytes; /* K is at 0; latent: V is K */
};
struct kv_layout kv_layout(const struct kv_shape *s);
static inline size_t kv_value_bytes(enum kv_type type) {
    return type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1;
}
/* The kernels' kv_store for KV_Q8_0, on every instruction set. */
void kv_store_q8_0(const struct kv_shape *s, uint8_t *page, uint32_t slot, const float *k,
                   const float *v);
size_t kv_page_bytes(const struct kv_shape *s); /* of all heads, a multiple of 64 */

/* One query head at one position. Attends to positions [begin, end). */
struct attn_query {
    const float *q; /* [k_dim], after RoPE */
    float *out;     /* [v_dim] */
    uint32_t begin, end;
    float sink; /* a logit that takes part in the softmax without a value; -INFINITY: none */
};

struct attn_args {
    const struct kv_shape *shape;
    uint32_t kv_head;
    const uint8_t *const *pages; /* [div_up(largest end, KV_PAGE)] of this sequence and layer */
    uint32_t n_queries;          /* any number, all reading this kv head of this sequence */
    const struct attn_query *queries;
    float scale;    /* of the logits, before softcap */
    float softcap;  /* 0: none; otherwise cap * tanh(logit / cap) */
    float *scratch; /* attn_scratch_floats(shape) floats, 64-byte aligned */
};
size_t attn_scratch_floats(const struct kv_shape *s);

/* What a position weighs whose logit is x above the largest: exp(x), but nothing if it is far
 * below. (e^-27 is more than 2^-39.) */
#define ATTN_LEAST_LOGIT (-27.0f)
static inline float attn_weight(float x) {
    return x < ATTN_LEAST_LOGIT ? 0.0f : exact_exp(x);
}

/* ---- the table ----------------------------------------------------------------------- */

enum rope_mode {
    ROPE_NORM, /* pairs (0,1), (2,3)...: llama */
    ROPE_NEOX, /* pairs (i, i + n_rot/2): qwen, gpt-oss... */
};

struct kernels {
    const char *name; /* "scalar", "avx2", "avxvnni", "avx512", "amx", "neon", "i8mm" */

    /* Packs blocks [block_begin, block_end) of all tokens (ACT_F32: 32 columns each, the last
     * may be short). x [n_tokens, ldx] f32 begins with the first of these blocks' columns. Q8:
     * amax = largest |x|; d = amax / 127; q = rint(x * (127 / amax)), clamped to +-127, NaN to
     * 127; amax < 2^-40 (or no comparable value) gives d = 0, q = 0. F32: tidied. */
    void (*act_pack)(const struct act *a, const float *x, size_t ldx, uint32_t block_begin,
                     uint32_t block_end);

    /* y[t][r] = sum over columns of W[r] . x[t], rows of tiles [tile_begin, tile_end).
     *
     * w     packed, any supported type; x: act_kind_for(w->type), n_cols equal
     * y     [n_tokens, ldy] f32; row r of the share is y[..][r]
     *
     * Numbers  one f32 accumulator per (row, token), from +0, in column order:
     *          f32, f16, bf16   acc = fma(w, x, acc) per column, over pieces of FLOAT_PIECE
     *                           columns (the last may be shorter), each from +0; the pieces
     *                           are added in order
     *          f8_e4m3          the same with w = scale * value, rounded to f32
     *          quantized        by the scales of the type (packed weights, above), per block:
 *          d, e             acc = fma((float)dot, dw * dx, acc)
 *          d, m             the same, then acc = fma(m, s, acc)
     *          d, m + 128 d     the same with fma(128, d, m) for m
 *          d0, d1           acc = fma((float)dot0, d0 * (dx * w->scale), acc), then dot1 and d1
 *          scale            acc = fma((float)dot, (d * scale) * dx, acc)
 *          scale, min       the same, then acc = fma(-(dmin * min), s, acc)
 *          halves           acc = fma((float)(sc0 * dot0 + sc1 * dot1), d * dx, acc)
 *          and mins         the same, then acc = fma(-(float)(min0 * sum0 + min1 * sum1),
 *                           dmin * dx, acc); sum0, sum1: of the activations of the halves
 *          dot: exact int32 over the block (dot0, dot1: its halves of 16). The
     *          sum is tidied.
     * Cost     each tile is read once per call: for one token bound by memory. */
    void (*matmul)(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                   uint32_t tile_begin, uint32_t tile_end);

    /* The row-parallel form. Columns are cut into segments of seg_cols (divides n_cols; a
     * multiple of 32 for quantized types). Each segment's sum is computed as above from +0 and
     * rounded to fixed point (fixed_from_f32). The segments are added as integers. One rank
     * does the same, so the bits agree.
     *
     * rows == NULL: y [n_tokens, ldy] int64 gets the sums. Otherwise token t's sums are added
     * to row rows[t] of y: so a token collects the sums of its experts. */
    void (*matmul_fixed)(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                         const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                         uint32_t tile_end);

    /* x[i] = tidy(x[i] + (float)y[i] * 2^-24): int64 to f32 rounds to nearest even. */
    void (*fixed_add)(float *x, const int64_t *y, size_t n);
    /* x[i] = (float)y[i] * 2^-24 */
    void (*fixed_get)(float *x, const int64_t *y, size_t n);

    /* y = x * (1 / sqrt(mean(x^2) + eps)) * w: sum of squares over 256 lanes (lane = i mod 256, fma
     * in order of i), tree 128+128, 64+64, ... 1+1; mean = sum / n; r = 1 / sqrtf(mean + eps);
     * y[i] = tidy((x[i] * r) * w[i]). w may be NULL (no weight). x == y is allowed. eps is 0 or at
     * least 2^-100. */
    void (*rmsnorm)(float *y, const float *x, const float *w, size_t n, float eps);

    /* In place on n_heads heads of head_dim, the first n_rot dimensions of each (even). cos, sin
     * [n_rot/2]. y0 = fma(x0, c, -(x1 * s)); y1 = fma(x0, s, x1 * c); both tidied. */
    void (*rope)(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot,
                 const float *cos, const float *sin, enum rope_mode mode);

    /* y[i] = tidy(silu(gate[i]) * up[i]); silu(v) = v / (1 + exp(-v)). y may be gate or up. */
    void (*swiglu)(float *y, const float *gate, const float *up, size_t n);
    /* y[i] = tidy(y[i] + x[i]) */
    void (*add)(float *y, const float *x, size_t n);

    /* y[i] = exp(x[i]): our polynomial (exact.h) */
    void (*exp)(float *y, const float *x, size_t n);
    /* y[i] = tidy(cap * tanh(y[i] / cap)), by exact_tanh() (exact.h) */
    void (*softcap)(float *y, float cap, size_t n);

    /* Stores one position's K and V of all kv heads: k [n_kv_heads, k_dim], v [n_kv_heads, v_dim]
     * f32, as s->type (to f16: to nearest even). s->latent: v is not read. */
    void (*kv_store)(const struct kv_shape *s, uint8_t *page, uint32_t slot, const float *k,
                     const float *v);

    /* For each query: softmax(scale * q.K) V over its positions.
     *
     * Numbers  logit: one fma per dimension in order, from +0, then * scale (then softcap).
     *          Positions are taken in spans of ATTN_SPAN at absolute positions. Within a span:
     *          m = max; p = e(logit - m), where e is attn_weight(); l = sum of p over 16 lanes
     *          (lane = position mod 16, in order), tree 8+8, 4+4, 2+2, 1+1;
     *          o[d] = fma(p, v[d], o[d]) in order of positions, tidied at the span's end.
     *          Spans are merged in order: M' = max(M, m), a = e(M - M'), b = e(m - M'),
     *          L = fma(L, a, l * b), O = tidy(fma(O, a, o * b)); the first span is taken as it
     *          is; a span with no position of the query is skipped. The sink comes last as
     *          (m = sink, l = 1, o = 0). out = tidy(O / L). */
    void (*attention)(const struct attn_args *a);
};

enum isa { ISA_SCALAR, ISA_AVX2, ISA_AVXVNNI, ISA_AVX512, ISA_AMX, ISA_NEON, ISA_I8MM, ISA_N };

/* NULL if this binary or this machine cannot run it. */
const struct kernels *kernels_get(enum isa isa);

/* The best that this machine runs, or what LOCKSTEP_ISA names (scalar, avx2, avxvnni, avx512,
 * amx, neon, i8mm). A
 * name that is unknown or cannot run here is ST_BAD_INPUT with a sentence that lists what can. */
enum status kernels_select(const struct kernels **out, struct err *err);

#endif
