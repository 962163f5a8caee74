/* matmul_i8mm.c: micro-kernels for arm64 with int8 matrix instructions, for several tokens and
 * code weights. The other products, bound by memory or by f32, are matmul_neon.c's.
 *
 * smmla multiplies two rows with two tokens over eight columns: 32 products, where sdot has 16.
 * Tokens are processed in pairs, and so are the rows of a quarter. A result register is
 *     { row 0 token 0, row 0 token 1, row 1 token 0, row 1 token 1 }
 * Scales are repeated per row, and alternate per token. The codes of a quarter's block are
 * eight registers, unpacked once for all tokens of a group. The group's accumulators are twelve
 * more. So a quarter is processed over a span of blocks, before the next one follows with the
 * same activations.
 *
 * Biased codes are multiplied unsigned as they are (usmmla): a block's integer sum starts at
 * -bias * (sum of the block's activations). */
#include "kernels/matmul_isa.h"

#include "kernels/tile_neon.h"

#define MAX_PAIRS (MM_MAX_TOKENS / 2)
#define MAX_TILES 4
#define SPAN (QK_K / ACT_BLOCK) /* blocks: a superblock's at most */
#define ROW_PAIRS (QUARTER_ROWS / 2)
#define GROUPS (ACT_BLOCK / 8) /* of the columns that one instruction takes */

/* A block's activations of a pair of tokens. */
struct pair {
    /* What the integer sums of the halves start at; start[0]: of the whole block, where it has
     * one. */
    int32x4_t start[2];
    int8x16_t x[GROUPS]; /* eight columns of one token, eight of the other */
    float32x4_t d, s;
    int32x4_t sums[2]; /* of the halves */
};

INLINE float32x4_t both_twice(const float *p) {
    float32x2_t v = vld1_f32(p);
    return vcombine_f32(v, v);
}

INLINE bool has_one_sum(enum qtype type) {
    return !has_halves(type) && scales_of(type) != TILE_D_D;
}

/* Tokens t and t + 1 in block b; only what products of this type read. */
INLINE void load_pair(const struct mm_call *c, enum qtype type, uint32_t b, uint32_t t,
                      struct pair *out) {
    const size_t at = (size_t)b * c->gs + t;
    int64x2x4_t x = vld4q_s64((const int64_t *)(const void *)(c->q + at * ACT_BLOCK));
    UNROLL
    for (int k = 0; k < GROUPS; k++)
        out->x[k] = vreinterpretq_s8_s64(x.val[k]);
    float32x4_t d = both_twice(c->d + at);
    out->d = scales_of(type) == TILE_D_D ? vmulq_n_f32(d, c->scale) : d;
    if (has_offset(type))
        out->s = both_twice(c->s + at);
    const int bias = tile_formats[type].bias;
    int32x4_t both = vmovl_s16(vld1_s16(c->sums[at].half)), sums[2];
    sums[0] = vuzp1q_s32(both, both);
    sums[1] = vuzp2q_s32(both, both);
    if (scales_of(type) == TILE_HALVES_MIN) {
        out->sums[0] = sums[0];
        out->sums[1] = sums[1];
    }
    if (has_one_sum(type)) {
        out->start[0] = vmulq_n_s32(vaddq_s32(sums[0], sums[1]), -bias);
        return;
    }
    out->start[0] = vmulq_n_s32(sums[0], -bias);
    out->start[1] = vmulq_n_s32(sums[1], -bias);
}

/* out[i] = rows 2i, 2i + 1 of a quarter: four columns of each, and the next four. */
INLINE void zip_rows(uint8x16_t cols, uint8x16_t next_cols, uint8x16_t *out) {
    uint32x4_t v = vreinterpretq_u32_u8(cols), next = vreinterpretq_u32_u8(next_cols);
    out[0] = vreinterpretq_u8_u32(vzip1q_u32(v, next));
    out[1] = vreinterpretq_u8_u32(vzip2q_u32(v, next));
}

/* w[k][i] = the operands for rows 2i, 2i + 1 of a quarter and columns 8k to 8k + 7. vectors:
 * the block's, from this quarter's bytes on. */
INLINE void load_operands(enum qtype type, const uint8_t *vectors, uint8x16_t (*w)[ROW_PAIRS]) {
    const bool nibbles = tile_formats[type].low_bits == 4 && tile_formats[type].high_bits == 0;
    UNROLL
    for (int k = 0; k < GROUPS; k++) {
        const uint8_t *pair = vectors + 2 * TILE_VECTOR * (k % 2);
        if (nibbles) /* two groups at once */
            zip_rows(vld1q_u8(pair), vld1q_u8(pair + TILE_VECTOR), w[k]);
        else
            zip_rows(codes(type, vectors, 2 * k), codes(type, vectors, 2 * k + 1), w[k]);
        UNROLL
        for (int i = 0; i < ROW_PAIRS; i++) {
            if (nibbles)
                w[k][i] = k < 2 ? vandq_u8(w[k][i], vdupq_n_u8(15)) : vshrq_n_u8(w[k][i], 4);
            if (has_table(type))
                w[k][i] = vreinterpretq_u8_s8(look_up(type, w[k][i]));
        }
    }
}

/* What a quarter's rows have, for its pairs of rows. */
INLINE void rows_twice_s32(int32x4_t v, int32x4_t *out) {
    out[0] = vzip1q_s32(v, v);
    out[1] = vzip2q_s32(v, v);
}

INLINE void rows_twice(float32x4_t v, float32x4_t *out) {
    out[0] = vzip1q_f32(v, v);
    out[1] = vzip2q_f32(v, v);
}

/* dot[i] = exact sums over column groups [begin, end). */
INLINE void dot_groups(enum qtype type, int begin, int end, int32x4_t start,
                       uint8x16_t (*w)[ROW_PAIRS], const struct pair *x, int32x4_t *dot) {
    UNROLL
    for (int i = 0; i < ROW_PAIRS; i++)
        dot[i] = start;
    UNROLL
    for (int k = begin; k < end; k++) {
        UNROLL
        for (int i = 0; i < ROW_PAIRS; i++)
            dot[i] = has_table(type) ? vmmlaq_s32(dot[i], vreinterpretq_s8_u8(w[k][i]), x->x[k])
                                     : vusmmlaq_s32(dot[i], w[k][i], x->x[k]);
    }
}

/* acc[p][i] += what quarter r of a block gives, for n pairs of tokens. */
INLINE void add_block(enum qtype type, int n, const struct coded_block *b, int r,
                      const struct pair *x, float32x4_t (*acc)[ROW_PAIRS]) {
    uint8x16_t w[GROUPS][ROW_PAIRS];
    float32x4_t d[ROW_PAIRS], offset[ROW_PAIRS];
    float32x4_t rows_d = load_d(type, b, r, 0);
    rows_twice(rows_d, d);
    if (has_offset(type))
        rows_twice(load_offset(type, b, r, rows_d), offset);
    load_operands(type, b->vectors + 16 * r, w);
    UNROLL
    for (int p = 0; p < n; p++) {
        int32x4_t dot[ROW_PAIRS];
        dot_groups(type, 0, GROUPS, x[p].start[0], w, &x[p], dot);
        UNROLL
        for (int i = 0; i < ROW_PAIRS; i++) {
            acc[p][i] = vfmaq_f32(acc[p][i], vcvtq_f32_s32(dot[i]), vmulq_f32(d[i], x[p].d));
            if (has_offset(type))
                acc[p][i] = vfmaq_f32(acc[p][i], offset[i], x[p].s);
        }
    }
}

/* The same where the halves of a block have a d each. */
INLINE void add_half_blocks(enum qtype type, int n, const struct coded_block *b, int r,
                            const struct pair *x, float32x4_t (*acc)[ROW_PAIRS]) {
    uint8x16_t w[GROUPS][ROW_PAIRS];
    float32x4_t d[2][ROW_PAIRS];
    rows_twice(load_d(type, b, r, 0), d[0]);
    rows_twice(load_d(type, b, r, 1), d[1]);
    load_operands(type, b->vectors + 16 * r, w);
    UNROLL
    for (int p = 0; p < n; p++) {
        UNROLL
        for (int half = 0; half < 2; half++) {
            int32x4_t dot[ROW_PAIRS];
            dot_groups(type, half * GROUPS / 2, (half + 1) * GROUPS / 2, x[p].start[half], w,
                       &x[p], dot);
            UNROLL
            for (int i = 0; i < ROW_PAIRS; i++)
                acc[p][i] =
                    vfmaq_f32(acc[p][i], vcvtq_f32_s32(dot[i]), vmulq_f32(d[half][i], x[p].d));
        }
    }
}

/* The same where the halves of a block have a scale, and perhaps a minimum, each. */
INLINE void add_halves(enum qtype type, int n, const struct coded_block *b, int r,
                       const struct pair *x, float32x4_t (*acc)[ROW_PAIRS]) {
    const uint8_t *rows = b->scales + QUARTER_ROWS * r;
    uint8x16_t w[GROUPS][ROW_PAIRS];
    int32x4_t scale[2][ROW_PAIRS], min[2][ROW_PAIRS];
    float32x4_t d[ROW_PAIRS], dmin[ROW_PAIRS];
    rows_twice(load_d(type, b, r, 0), d);
    rows_twice_s32(load_i8(rows), scale[0]);
    rows_twice_s32(load_i8(rows + TILE_ROWS), scale[1]);
    const bool has_min = scales_of(type) == TILE_HALVES_MIN;
    if (has_min) {
        rows_twice(load_super_dmin(b, r), dmin);
        rows_twice_s32(load_u8(rows + 2 * TILE_ROWS), min[0]);
        rows_twice_s32(load_u8(rows + 3 * TILE_ROWS), min[1]);
    }
    load_operands(type, b->vectors + 16 * r, w);
    UNROLL
    for (int p = 0; p < n; p++) {
        int32x4_t dot[2][ROW_PAIRS];
        dot_groups(type, 0, GROUPS / 2, x[p].start[0], w, &x[p], dot[0]);
        dot_groups(type, GROUPS / 2, GROUPS, x[p].start[1], w, &x[p], dot[1]);
        UNROLL
        for (int i = 0; i < ROW_PAIRS; i++) {
            int32x4_t sum = vmulq_s32(scale[0][i], dot[0][i]);
            sum = vmlaq_s32(sum, scale[1][i], dot[1][i]);
            acc[p][i] = vfmaq_f32(acc[p][i], vcvtq_f32_s32(sum), vmulq_f32(d[i], x[p].d));
            if (!has_min)
                continue;
            int32x4_t below = vmulq_s32(min[0][i], x[p].sums[0]);
            below = vmlaq_s32(below, min[1][i], x[p].sums[1]);
            acc[p][i] = vfmsq_f32(acc[p][i], vcvtq_f32_s32(below), vmulq_f32(dmin[i], x[p].d));
        }
    }
}

/* Quarter r of tile i, blocks [begin, end); x[block - begin]. */
INLINE void add_span(const struct mm_call *c, enum qtype type, int n, uint32_t i, int r,
                     uint32_t begin, uint32_t end, struct pair (*x)[MAX_PAIRS],
                     float32x4_t (*sums)[ROW_PAIRS]) {
    float32x4_t acc[MAX_PAIRS][ROW_PAIRS];
    UNROLL
    for (int p = 0; p < n; p++) {
        UNROLL
        for (int k = 0; k < ROW_PAIRS; k++)
            acc[p][k] = sums[p][k];
    }
    for (uint32_t b = begin; b < end; b++, x++) {
        struct coded_block block = coded_block_at(c, type, i, b);
        if (scales_of(type) == TILE_D_D)
            add_half_blocks(type, n, &block, r, *x, acc);
        else if (has_halves(type))
            add_halves(type, n, &block, r, *x, acc);
        else
            add_block(type, n, &block, r, *x, acc);
    }
    UNROLL
    for (int p = 0; p < n; p++) {
        UNROLL
        for (int k = 0; k < ROW_PAIRS; k++)
            sums[p][k] = acc[p][k];
    }
}

/* The first token of pair p: of an odd number, the last pair's first is the one before's
 * second. */
INLINE uint32_t token_of(const struct mm_call *c, int p) {
    return MIN(2 * (uint32_t)p, c->n_tokens - 2);
}

/* sums[r]: of quarter r of tile i. */
static void store_sums(const struct mm_call *c, int n, int i, uint32_t end,
                       float32x4_t (*sums)[MAX_PAIRS][ROW_PAIRS]) {
    for (int p = 0; p < n; p++) {
        const int t = (int)token_of(c, p);
        float32x4_t first[QUARTERS], second[QUARTERS];
        UNROLL
        for (int r = 0; r < QUARTERS; r++) {
            first[r] = vuzp1q_f32(sums[r][p][0], sums[r][p][1]);
            second[r] = vuzp2q_f32(sums[r][p][0], sums[r][p][1]);
        }
        if (t == 2 * p)
            store_rows(c, i, t, end, first);
        store_rows(c, i, t + 1, end, second);
    }
}

INLINE void mm_coded(const struct mm_call *c, enum qtype type, int n) {
    float32x4_t sums[MAX_TILES][QUARTERS][MAX_PAIRS][ROW_PAIRS];
    struct pair x[SPAN][MAX_PAIRS];
    uint32_t b = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        memset(sums, 0, c->n_tiles * sizeof sums[0]);
        while (b < end / ACT_BLOCK) {
            uint32_t super_end = tile_super_end(c->col_phase, tile_super_of(c->col_phase, b));
            uint32_t span_end = MIN(super_end, end / ACT_BLOCK);
            for (uint32_t k = b; k < span_end; k++)
                for (int p = 0; p < n; p++)
                    load_pair(c, type, k, token_of(c, p), &x[k - b][p]);
            for (uint32_t i = 0; i < c->n_tiles; i++)
                for (int r = 0; r < QUARTERS; r++)
                    add_span(c, type, n, i, r, b, span_end, x, sums[i][r]);
            b = span_end;
        }
        for (uint32_t i = 0; i < c->n_tiles; i++)
            store_sums(c, n, (int)i, end, sums[i]);
    }
}

/* ---- the table --------------------------------------------------------------------------- */

#define INSTANCE(type, n)                                  \
    static void mm_##type##_##n(const struct mm_call *c) { \
        mm_coded(c, QT_##type, n);                         \
    }
#define INSTANCES(type) \
    INSTANCE(type, 1)   \
    INSTANCE(type, 2) INSTANCE(type, 3) INSTANCE(type, 4) INSTANCE(type, 5) INSTANCE(type, 6)
TILE_CODED_TYPES(INSTANCES)

/* By number of pairs. */
#define ENTRY(type)                                                            \
    [QT_##type] = {NULL,          mm_##type##_1, mm_##type##_2, mm_##type##_3, \
                   mm_##type##_4, mm_##type##_5, mm_##type##_6},
static const mm_fn pairs_of[QT_N][MAX_PAIRS + 1] = {TILE_CODED_TYPES(ENTRY)};

static struct mm_kernels kernels_of(enum qtype type) {
    struct mm_kernels k = *mm_kernels_neon(type);
    if (act_kind_for(type) != ACT_Q8)
        return k;
    for (uint32_t n = 2; n <= MM_MAX_TOKENS; n++)
        k.many[n] = pairs_of[type][(n + 1) / 2];
    k.many_tiles = MAX_TILES;
    k.max_tokens = MM_MAX_TOKENS;
    return k;
}

void matmul_i8mm(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                 uint32_t tile_begin, uint32_t tile_end) {
    struct mm_kernels k = kernels_of(w->type);
    mm_drive(&k, w, x, y, ldy, tile_begin, tile_end);
}

void matmul_fixed_i8mm(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                       const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                       uint32_t tile_end) {
    struct mm_kernels k = kernels_of(w->type);
    mm_drive_fixed(&k, w, x, y, ldy, rows, seg_cols, tile_begin, tile_end);
}
