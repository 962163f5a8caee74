/* lanes16.inc.h: all of struct kernels except the products, written once for sixteen lanes.
 *
 * An ISA file includes its v16_*.h, then this. The formulas are those of kernels.h, the order
 * of operations that of scalar.c. */
#include "base/exact.h"
#include "base/util.h"
#include "kernels/kernels.h"
#include "kernels/v16_exp.inc.h"

/* exact_tanh */
INLINE v16 v16_tanh(v16 x) {
    const v16 one = v16_set(1.0f);
    v16 e = v16_exp(v16_add(x, x));
    return v16_sub(one, v16_div(v16_set(2.0f), v16_add(e, one)));
}

INLINE v16 capped(v16 x, v16 cap) {
    return v16_mul(cap, v16_tanh(v16_div(x, cap)));
}

/* ---- activations ---------------------------------------------------------------------- */

/* [n, ldx], which begins with column col_begin -> [col][n] */
static void pack_f32_columns(float *f, const float *x, size_t ldx, uint32_t n,
                             uint32_t col_begin, uint32_t col_end) {
    for (size_t col = col_begin; col < col_end; col++)
        for (size_t t = 0; t < n; t++)
            f[col * n + t] = exact_tidy(x[t * ldx + col - col_begin]);
}

/* Block `at` of a's arrays, of the values x. */
static void quantize_block(const struct act *a, size_t at, const float *x) {
    int8_t *q = a->q + at * ACT_BLOCK;
    v16 x0 = v16_load(x), x1 = v16_load(x + 16);
    /* v16_max takes its second operand where the first is NaN: NaN is passed over. */
    v16 largest = v16_max(v16_abs(x1), v16_max(v16_abs(x0), v16_zero()));
    float amax = v16_largest(largest);
    if (!(amax >= EXACT_LEAST)) {
        memset(q, 0, ACT_BLOCK);
        a->d[at] = a->s[at] = 0.0f;
        a->sums[at] = (struct act_sums){0};
        a->start[at] = 0;
        return;
    }
    v16 inverse = v16_set(127.0f / amax), limit = v16_set(127.0f), least = v16_set(-127.0f);
    /* NaN becomes 127 here. */
    v16i q0 = v16_round(v16_max(v16_min(v16_mul(x0, inverse), limit), least));
    v16i q1 = v16_round(v16_max(v16_min(v16_mul(x1, inverse), limit), least));
    v16i_store_8(q, q0);
    v16i_store_8(q + 16, q1);
    int32_t sum0 = v16i_sum(q0), sum1 = v16i_sum(q1);
    float d = amax / 127.0f;
    a->d[at] = d;
    a->sums[at] = (struct act_sums){{(int16_t)sum0, (int16_t)sum1}};
    a->start[at] = -128 * (sum0 + sum1);
    a->s[at] = d * (float)(sum0 + sum1);
}

static void act_pack(const struct act *a, const float *x, size_t ldx, uint32_t block_begin,
                     uint32_t block_end) {
    for (uint32_t first = 0; first < a->n_tokens; first += ACT_GROUP) {
        uint32_t n = MIN(a->n_tokens - first, ACT_GROUP);
        const float *xg = x + (size_t)first * ldx;
        if (a->kind == ACT_F32) {
            uint32_t col_end = MIN(block_end * ACT_BLOCK, a->n_cols);
            pack_f32_columns(a->f + (size_t)first * a->n_cols, xg, ldx, n,
                             block_begin * ACT_BLOCK, col_end);
            continue;
        }
        size_t n_blocks = a->n_cols / ACT_BLOCK;
        for (size_t t = 0; t < n; t++)
            for (size_t b = block_begin; b < block_end; b++)
                quantize_block(a, first * n_blocks + b * n + t,
                               xg + t * ldx + (b - block_begin) * ACT_BLOCK);
    }
}

/* ---- vectors -------------------------------------------------------------------------- */

INLINE v16 v16_fixed(const int64_t *y) {
    return v16_mul(v16_from_int64(y), v16_set(0x1p-24f));
}

static void fixed_add(float *x, const int64_t *y, size_t n) {
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(x + i, v16_tidy(v16_add(v16_load(x + i), v16_fixed(y + i))));
    for (; i < n; i++)
        x[i] = exact_tidy(x[i] + (float)y[i] * 0x1p-24f);
}

static void fixed_get(float *x, const int64_t *y, size_t n) {
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(x + i, v16_fixed(y + i));
    for (; i < n; i++)
        x[i] = (float)y[i] * 0x1p-24f;
}

/* The sixteen lanes from `lane` on of exact_squares(), which takes 256. */
INLINE v16 squares_of(const float *x, size_t n, size_t lane) {
    v16 sum = v16_zero();
    for (size_t i = lane; i < n; i += EXACT_LANES) {
        v16 v = v16_load_n(x + i, MIN(n - i, 16));
        sum = v16_fma(v, v, sum);
    }
    return sum;
}

/* Of rows that fill fewer lanes, the tree begins where something is added. */
static float row_squares(const float *x, size_t n) {
    v16 lanes[EXACT_LANES / 16];
    size_t used = 1;
    while (used < EXACT_LANES / 16 && used * 16 < n)
        used *= 2;
    for (size_t i = 0; i < used; i++)
        lanes[i] = squares_of(x, n, 16 * i);
    for (size_t half = used / 2; half >= 1; half /= 2)
        for (size_t i = 0; i < half; i++)
            lanes[i] = v16_add(lanes[i], lanes[i + half]);
    return v16_sum(lanes[0]);
}

static void rmsnorm(float *y, const float *x, const float *w, size_t n, float eps) {
    float mean = row_squares(x, n) / (float)n;
    v16 r = v16_set(1.0f / sqrtf(mean + eps));
    for (size_t i = 0; i < n; i += 16) {
        size_t k = MIN(n - i, 16);
        v16 v = v16_mul(v16_load_n(x + i, k), r);
        if (w != NULL)
            v = v16_mul(v, v16_load_n(w + i, k));
        v16_store_n(y + i, v16_tidy(v), k);
    }
}

/* Pairs (2i, 2i+1). */
static void rope_norm_head(float *x, uint32_t n_rot, const float *cos, const float *sin) {
    uint32_t i = 0;
    for (; i + 16 <= n_rot; i += 16) {
        v16 v = v16_load(x + i);
        v16 cs = v16_interleave(cos + i / 2, sin + i / 2);
        v16 sc = v16_interleave(sin + i / 2, cos + i / 2);
        v = v16_fmaddsub(v16_even_twice(v), cs, v16_mul(v16_odd_twice(v), sc));
        v16_store(x + i, v16_tidy(v));
    }
    for (; i < n_rot; i += 2) {
        float x0 = x[i], x1 = x[i + 1], c = cos[i / 2], s = sin[i / 2];
        x[i] = exact_tidy(fmaf(x0, c, -(x1 * s)));
        x[i + 1] = exact_tidy(fmaf(x0, s, x1 * c));
    }
}

/* Pairs (i, i + n_rot/2). */
static void rope_neox_head(float *x, uint32_t n_rot, const float *cos, const float *sin) {
    size_t half = n_rot / 2;
    for (size_t i = 0; i < half; i += 16) {
        size_t k = MIN(half - i, 16);
        v16 x0 = v16_load_n(x + i, k), x1 = v16_load_n(x + half + i, k);
        v16 c = v16_load_n(cos + i, k), s = v16_load_n(sin + i, k);
        v16_store_n(x + i, v16_tidy(v16_fms(x0, c, v16_mul(x1, s))), k);
        v16_store_n(x + half + i, v16_tidy(v16_fma(x0, s, v16_mul(x1, c))), k);
    }
}

static void rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot,
                 const float *cos, const float *sin, enum rope_mode mode) {
    for (size_t h = 0; h < n_heads; h++) {
        if (mode == ROPE_NORM)
            rope_norm_head(x + h * head_dim, n_rot, cos, sin);
        else
            rope_neox_head(x + h * head_dim, n_rot, cos, sin);
    }
}

static void swiglu(float *y, const float *gate, const float *up, size_t n) {
    const v16 one = v16_set(1.0f);
    for (size_t i = 0; i < n; i += 16) {
        size_t k = MIN(n - i, 16);
        v16 g = v16_load_n(gate + i, k);
        v16 silu = v16_div(g, v16_add(one, v16_exp(v16_negate(g))));
        v16_store_n(y + i, v16_tidy(v16_mul(silu, v16_load_n(up + i, k))), k);
    }
}

static void add(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        size_t k = MIN(n - i, 16);
        v16 sum = v16_add(v16_load_n(y + i, k), v16_load_n(x + i, k));
        v16_store_n(y + i, v16_tidy(sum), k);
    }
}

static void exp_lanes(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        size_t k = MIN(n - i, 16);
        v16_store_n(y + i, v16_exp(v16_load_n(x + i, k)), k);
    }
}

static void softcap(float *y, float cap, size_t n) {
    const v16 c = v16_set(cap);
    for (size_t i = 0; i < n; i += 16) {
        size_t k = MIN(n - i, 16);
        v16_store_n(y + i, v16_tidy(capped(v16_load_n(y + i, k), c)), k);
    }
}

/* ---- the KV cache --------------------------------------------------------------------- */

INLINE size_t v_pad(const struct kv_shape *s) {
    return round_up(s->v_dim, 16);
}

/* Values from one position's V to the next one's. */
INLINE size_t v_stride(const struct kv_shape *s) {
    return round_up(s->latent ? s->k_dim : s->v_dim, 16);
}

/* K of one head: dimension d of the slot's lane, 16 positions apart. */
static void store_k(const struct kv_shape *s, uint8_t *head, uint32_t slot, const float *k) {
    size_t at = (size_t)(slot / 16) * s->k_dim * 16 + slot % 16;
    if (s->type == KV_F32) {
        float *dst = (float *)head + at;
        for (size_t d = 0; d < s->k_dim; d++)
            dst[d * 16] = k[d];
        return;
    }
    uint16_t *dst = (uint16_t *)head + at;
    for (size_t d = 0; d < s->k_dim; d += 16) {
        uint16_t h[16];
        size_t n = MIN(s->k_dim - d, 16);
        v16_store_f16(h, v16_load_n(k + d, n));
        for (size_t i = 0; i < n; i++)
            dst[(d + i) * 16] = h[i];
    }
}

/* A row of n values, padded with zeros. */
static void store_row(const struct kv_shape *s, uint8_t *head, size_t at, const float *v,
                      size_t n) {
    for (size_t d = 0; d < n; d += 16) {
        v16 row = v16_load_n(v + d, MIN(n - d, 16));
        if (s->type == KV_F32)
            v16_store((float *)head + at + d, row);
        else
            v16_store_f16((uint16_t *)head + at + d, row);
    }
}

static void kv_store(const struct kv_shape *s, uint8_t *page, uint32_t slot, const float *k,
                     const float *v) {
    const struct kv_layout l = kv_layout(s);
    if (s->type == KV_Q8_0) {
        kv_store_q8_0(s, page, slot, k, v);
        return;
    }
    for (size_t h = 0; h < s->n_kv_heads; h++) {
        uint8_t *head = page + h * l.bytes;
        if (s->latent) {
            store_row(s, head, slot * v_stride(s), k + h * s->k_dim, s->k_dim);
            continue;
        }
        store_k(s, head, slot, k + h * s->k_dim);
        store_row(s, head + l.v, slot * v_stride(s), v + h * s->v_dim, s->v_dim);
    }
}

/* ---- attention ------------------------------------------------------------------------
 *
 * Blocks of up to ATTN_BLOCK queries share each converted vector of K or V. Up to ATTN_TOGETHER
 * queries, block by block, process a span before any of them goes on to the next one. So the
 * span is read from memory once. A query's sums are its own: sharing changes nothing but speed.
 */

#define ATTN_BLOCK 6
/* From one query's probabilities to the next one's: a power of two would put them all into the
 * same few sets of the first-level cache. */
#define ATTN_P_ROW (ATTN_SPAN + 16)

/* What the spans so far gave a query; its total is in args->scratch. */
struct attn_sums {
    float m, l;
    bool started; /* m, l and total hold something */
};

/* A block of queries at work. What it keeps lies in args->scratch. */
struct attn_block {
    const struct attn_args *a;
    size_t head_at; /* this kv head in a page, in bytes */
    struct kv_layout lay;
    size_t pad;      /* v_dim rounded up to 16 */
    uint8_t *turned; /* latent: [ATTN_TILES] of [k_dim rounded up to 16][16], f16 or f32 */
    uint32_t n;      /* queries */
    const struct attn_query *queries; /* [n] */
    float *p;                         /* [n][ATTN_P_ROW]: logits, then probabilities */
    float *o;                         /* [n][pad] of the running span */
    float *total;                     /* [n][pad] of the spans before */
    struct attn_sums *sums;           /* [n] */
};

/* Positions; none if begin >= end. */
struct range {
    uint32_t begin, end;
};

/* All positions that some of n queries read. */
static struct range range_of(const struct attn_query *queries, uint32_t n) {
    struct range all = {UINT32_MAX, 0};
    for (const struct attn_query *q = queries; q < queries + n; q++)
        if (q->begin < q->end)
            all = (struct range){MIN(all.begin, q->begin), MAX(all.end, q->end)};
    return all;
}

static struct range range_in_span(struct range r, uint32_t span_begin) {
    return (struct range){MAX(r.begin, span_begin), MIN(r.end, span_begin + ATTN_SPAN)};
}

static struct range query_in_span(const struct attn_query *q, uint32_t span_begin) {
    return range_in_span((struct range){q->begin, q->end}, span_begin);
}

/* A position's scales in a latent cache, or of its V. */
INLINE const uint8_t *row_scales(const struct attn_block *b, uint32_t pos) {
    size_t n = div_up(v_stride(b->a->shape), KV_BLOCK);
    return b->a->pages[pos / KV_PAGE] + b->head_at + b->lay.v_scales + pos % KV_PAGE * n * 2;
}

/* Sixteen rows of a latent cache as a tile, [dim][16]: a lane is a position. f16 stays what it is,
 * the others become f32. */
static const uint8_t *transpose_rows(const struct attn_block *b, const uint8_t *rows,
                                     uint32_t pos, uint32_t slot) {
    enum kv_type type = b->a->shape->type;
    size_t pad = v_stride(b->a->shape);
    uint8_t *tile = b->turned + slot * pad * 16 * (type == KV_F16 ? 2 : 4);
    for (size_t d = 0; type != KV_Q8_0 && d < pad; d += 16) {
        if (type == KV_F16) {
            v16_transpose_16((uint16_t *)tile + d * 16, (const uint16_t *)rows + d, pad);
            continue;
        }
        for (size_t i = 0; i < 256; i++)
            ((float *)tile)[d * 16 + i] = ((const float *)rows)[i % 16 * pad + d + i / 16];
    }
    for (uint32_t i = 0; type == KV_Q8_0 && i < 16; i++) {
        const uint8_t *scales = row_scales(b, pos + i);
        for (size_t d = 0; d < pad; d += 16) {
            float row[16];
            v16_store(row, v16_mul(v16_set_f16(scales + d / KV_BLOCK * 2),
                                   v16_load_i8((const int8_t *)rows + i * pad + d)));
            for (size_t j = 0; j < 16; j++)
                ((float *)tile)[(d + j) * 16 + i] = row[j];
        }
    }
    return tile;
}

/* slot: which tile of those at work together. */
static const uint8_t *k_tile(const struct attn_block *b, uint32_t pos, uint32_t slot) {
    const struct kv_shape *s = b->a->shape;
    size_t row = s->latent ? v_stride(s) : s->k_dim, value = pos % KV_PAGE / 16 * row * 16;
    const uint8_t *k =
        b->a->pages[pos / KV_PAGE] + b->head_at + value * kv_value_bytes(s->type);
    return s->latent ? transpose_rows(b, k, pos, slot) : k;
}

/* The scales of a tile of K: [k blocks][16] f16. */
INLINE const uint8_t *k_scales(const struct attn_block *b, uint32_t pos) {
    size_t at = pos % KV_PAGE / 16 * div_up(b->a->shape->k_dim, KV_BLOCK) * 16;
    return b->a->pages[pos / KV_PAGE] + b->head_at + b->lay.k_scales + at * 2;
}

static const uint8_t *v_row(const struct attn_block *b, uint32_t pos) {
    size_t value = pos % KV_PAGE * v_stride(b->a->shape);
    return b->a->pages[pos / KV_PAGE] + b->head_at + b->lay.v +
           value * kv_value_bytes(b->a->shape->type);
}

/* Of KV_Q8_0: the codes, without their scale. */
INLINE v16 load_cached(enum kv_type type, const uint8_t *p, size_t i) {
    return type == KV_F32   ? v16_load((const float *)p + i)
           : type == KV_F16 ? v16_load_f16((const uint16_t *)p + i)
                            : v16_load_i8((const int8_t *)p + i);
}

/* What a few queries' products with K prefetch meanwhile: the rows of V for the same positions,
 * of which each pass of pv() reads a part, and K one page ahead. In a decode the queries wait
 * for memory, so this comes before them. The blocks of a long prompt have more queries and find
 * the span in a cache. */
#define AHEAD_QUERIES 4
struct ahead {
    const uint8_t *v, *k;
    size_t v_bytes, k_bytes; /* for each dimension of K */
};

/* Of n positions from pos on, those in its page: only they lie together. */
INLINE size_t in_page(uint32_t pos, uint32_t n) {
    return MIN(n, KV_PAGE - pos % KV_PAGE);
}

INLINE struct ahead ahead_of(const struct attn_block *b, uint32_t pos, uint32_t end, int nt) {
    const struct kv_shape *s = b->a->shape;
    size_t value = kv_value_bytes(s->type);
    uint32_t n = 16 * (uint32_t)nt, next = pos + MAX(n, (uint32_t)KV_PAGE);
    if (s->latent)
        return (struct ahead){0};
    struct ahead a = {.v = v_row(b, pos),
                      .v_bytes = div_up(v_stride(s) * value * in_page(pos, n), s->k_dim)};
    if (next < end) {
        a.k = k_tile(b, next, 0);
        a.k_bytes = value * in_page(next, n);
    }
    return a;
}

INLINE void ask_ahead(const struct ahead *a, size_t d) {
    for (size_t at = d * a->v_bytes; at < (d + 1) * a->v_bytes; at += CACHE_LINE)
        __builtin_prefetch(a->v + at);
    for (size_t at = d * a->k_bytes; at < (d + 1) * a->k_bytes; at += CACHE_LINE)
        __builtin_prefetch(a->k + at, 0, 2);
}

/* q.K of nq queries and nt tiles of 16 positions, from the tile of `pos`. A tile at or beyond
 * `end` is not read: the last one before it is computed again. */
INLINE void qk(const struct attn_block *b, uint32_t pos, uint32_t end, enum kv_type type,
               int nq, int nt) {
    v16 acc[ATTN_BLOCK][ATTN_TILES], scale[ATTN_TILES];
    const uint8_t *k[ATTN_TILES], *scales[ATTN_TILES];
    uint32_t at[ATTN_TILES];
    UNROLL
    for (int j = 0; j < nt; j++) {
        uint32_t tile = MIN(pos + 16 * (uint32_t)j, (end - 1) & ~15u);
        k[j] = k_tile(b, tile, (uint32_t)j);
        scales[j] = type == KV_Q8_0 ? k_scales(b, tile) : NULL;
        scale[j] = v16_zero();
        at[j] = tile % ATTN_SPAN;
        UNROLL
        for (int i = 0; i < nq; i++)
            acc[i][j] = v16_zero();
    }
    size_t k_dim = b->a->shape->k_dim;
    const struct ahead ahead =
        nq <= AHEAD_QUERIES ? ahead_of(b, pos, end, nt) : (struct ahead){0};
    for (size_t d = 0; d < k_dim; d++) {
        v16 kd[ATTN_TILES];
        if (nq <= AHEAD_QUERIES)
            ask_ahead(&ahead, d);
        UNROLL
        for (int j = 0; j < nt; j++) {
            if (type == KV_Q8_0 && d % KV_BLOCK == 0)
                scale[j] = v16_load_f16((const uint16_t *)scales[j] + d / KV_BLOCK * 16);
            kd[j] = load_cached(type, k[j], d * 16);
            if (type == KV_Q8_0)
                kd[j] = v16_mul(scale[j], kd[j]);
        }
        UNROLL
        for (int i = 0; i < nq; i++) {
            v16 qd = v16_set(b->queries[i].q[d]);
            UNROLL
            for (int j = 0; j < nt; j++)
                acc[i][j] = v16_fma(qd, kd[j], acc[i][j]);
        }
    }
    UNROLL
    for (int i = 0; i < nq; i++) {
        UNROLL
        for (int j = 0; j < nt; j++)
            v16_store(b->p + i * ATTN_P_ROW + at[j], acc[i][j]);
    }
}

/* o += p V over positions r, nv vectors of 16 dimensions from vector v0, of nq queries. */
INLINE void pv(const struct attn_block *b, struct range r, size_t v0, float *const *o,
               const float *const *p, enum kv_type type, int nq, int nv) {
    v16 acc[ATTN_BLOCK][ATTN_VECTORS];
    UNROLL
    for (int i = 0; i < nq; i++) {
        UNROLL
        for (int j = 0; j < nv; j++)
            acc[i][j] = v16_load(o[i] + (v0 + (size_t)j) * 16);
    }
    size_t row_bytes = v_stride(b->a->shape) * kv_value_bytes(type);
    size_t scale_bytes = div_up(v_stride(b->a->shape), KV_BLOCK) * 2;
    for (uint32_t pos = r.begin; pos < r.end;) {
        uint32_t stop = MIN(r.end, (pos / KV_PAGE + 1) * KV_PAGE);
        const uint8_t *row = v_row(b, pos), *scales = row_scales(b, pos);
        for (; pos < stop; pos++, row += row_bytes, scales += scale_bytes) {
            size_t at = pos % ATTN_SPAN;
            /* Each p is set where it is used: all of them and the sums want more registers than
             * there are. */
            UNROLL
            for (int j = 0; j < nv; j++) {
                v16 v = load_cached(type, row, (v0 + (size_t)j) * 16);
                if (type == KV_Q8_0)
                    v = v16_mul(v16_set_f16(scales + (v0 + (size_t)j) * 16 / KV_BLOCK * 2), v);
                UNROLL
                for (int i = 0; i < nq; i++)
                    acc[i][j] = v16_fma(v16_set(p[i][at]), v, acc[i][j]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < nq; i++) {
        UNROLL
        for (int j = 0; j < nv; j++)
            v16_store(o[i] + (v0 + (size_t)j) * 16, acc[i][j]);
    }
}

INLINE void qk_range(const struct attn_block *b, struct range r, enum kv_type type, int nq,
                     int nt) {
    for (uint32_t pos = r.begin & ~15u; pos < r.end; pos += 16 * (uint32_t)nt)
        qk(b, pos, r.end, type, nq, nt);
}

INLINE void pv_range(const struct attn_block *b, struct range r, float *const *o,
                     const float *const *p, enum kv_type type, int nq, int nv) {
    size_t v = 0, n = b->pad / 16;
    for (; v + (size_t)nv <= n; v += (size_t)nv)
        pv(b, r, v, o, p, type, nq, nv);
    for (; v < n; v++)
        pv(b, r, v, o, p, type, nq, 1);
}

typedef void (*qk_fn)(const struct attn_block *b, struct range r);
typedef void (*pv_fn)(const struct attn_block *b, struct range r, float *const *o,
                      const float *const *p);

#define ATTN_INSTANCE(name, type, nq)                                                         \
    static void qk_##name##_##nq(const struct attn_block *b, struct range r) {                \
        qk_range(b, r, type, nq, ATTN_TILES_FOR(nq));                                         \
    }                                                                                         \
    static void pv_##name##_##nq(const struct attn_block *b, struct range r, float *const *o, \
                                 const float *const *p) {                                     \
        pv_range(b, r, o, p, type, nq, ATTN_VECTORS_FOR(nq));                                 \
    }
#define ATTN_INSTANCES(name, type) \
    ATTN_INSTANCE(name, type, 1)   \
    ATTN_INSTANCE(name, type, 2)   \
    ATTN_INSTANCE(name, type, 3)   \
    ATTN_INSTANCE(name, type, 4)   \
    ATTN_INSTANCE(name, type, 5)   \
    ATTN_INSTANCE(name, type, 6)
ATTN_INSTANCES(f16, KV_F16)
ATTN_INSTANCES(f32, KV_F32)
ATTN_INSTANCES(q8_0, KV_Q8_0)

/* [type of the cache][queries] */
static const qk_fn qk_by_queries[KV_N_TYPES][ATTN_BLOCK + 1] = {
    [KV_F16] = {NULL, qk_f16_1, qk_f16_2, qk_f16_3, qk_f16_4, qk_f16_5, qk_f16_6},
    [KV_F32] = {NULL, qk_f32_1, qk_f32_2, qk_f32_3, qk_f32_4, qk_f32_5, qk_f32_6},
    [KV_Q8_0] = {NULL, qk_q8_0_1, qk_q8_0_2, qk_q8_0_3, qk_q8_0_4, qk_q8_0_5, qk_q8_0_6},
};
static const pv_fn pv_by_queries[KV_N_TYPES][ATTN_BLOCK + 1] = {
    [KV_F16] = {NULL, pv_f16_1, pv_f16_2, pv_f16_3, pv_f16_4, pv_f16_5, pv_f16_6},
    [KV_F32] = {NULL, pv_f32_1, pv_f32_2, pv_f32_3, pv_f32_4, pv_f32_5, pv_f32_6},
    [KV_Q8_0] = {NULL, pv_q8_0_1, pv_q8_0_2, pv_q8_0_3, pv_q8_0_4, pv_q8_0_5, pv_q8_0_6},
};

/* Logits of positions r become probabilities; lanes outside r become 0. */
static void softmax_range(const struct attn_args *a, float *p, struct range r, float *m,
                          float *l) {
    uint32_t from = r.begin % ATTN_SPAN, to = from + (r.end - r.begin);
    const v16 lowest = v16_set(-INFINITY), scale = v16_set(a->scale);
    const v16 cap = v16_set(a->softcap);
    v16 largest = lowest, sum = v16_zero();
    for (uint32_t at = from & ~15u; at < to; at += 16) {
        v16 v = v16_mul(v16_load(p + at), scale);
        if (a->softcap != 0)
            v = capped(v, cap);
        v = v16_keep(v, MAX(from, at) - at, MIN(to - at, 16), lowest);
        largest = v16_max(v, largest);
        v16_store(p + at, v);
    }
    *m = v16_largest(largest);
    for (uint32_t at = from & ~15u; at < to; at += 16) {
        v16 v = v16_attn_weight(v16_sub(v16_load(p + at), v16_set(*m)));
        v = v16_keep(v, MAX(from, at) - at, MIN(to - at, 16), v16_zero());
        sum = v16_add(sum, v);
        v16_store(p + at, v);
    }
    *l = v16_sum(sum);
}

/* A span's result o [pad], with its m and l, joins the spans before it of query i. */
static void merge_span(struct attn_block *b, uint32_t i, const float *o, float m, float l) {
    struct attn_sums *sums = &b->sums[i];
    float *total = b->total + i * b->pad;
    if (!sums->started) {
        for (size_t d = 0; d < b->pad; d += 16)
            v16_store(total + d, v16_tidy(v16_load(o + d)));
        *sums = (struct attn_sums){m, l, true};
        return;
    }
    float largest = m > sums->m ? m : sums->m;
    float before = attn_weight(sums->m - largest), now = attn_weight(m - largest);
    sums->m = largest;
    sums->l = fmaf(sums->l, before, l * now);
    for (size_t d = 0; d < b->pad; d += 16)
        v16_store(total + d,
                  v16_tidy(v16_fma(v16_load(total + d), v16_set(before),
                                   v16_mul(v16_tidy(v16_load(o + d)), v16_set(now)))));
}

/* o = p V for every query of the span. The positions that all of them read are walked once;
 * what a query reads before and after these (the causal edge), it walks alone. */
static void span_values(struct attn_block *b, uint32_t span_begin) {
    const pv_fn *pv_by = pv_by_queries[b->a->shape->type];
    float *o[ATTN_BLOCK];
    const float *p[ATTN_BLOCK];
    struct range own[ATTN_BLOCK], common = {0, UINT32_MAX};
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        struct range r = query_in_span(&b->queries[i], span_begin);
        if (r.begin >= r.end)
            continue;
        o[n] = b->o + i * b->pad;
        p[n] = b->p + i * ATTN_P_ROW;
        own[n++] = r;
        common = (struct range){MAX(common.begin, r.begin), MIN(common.end, r.end)};
    }
    if (n == 0)
        return;
    bool shared = common.begin < common.end;
    for (uint32_t i = 0; i < n; i++)
        pv_by[1](b, shared ? (struct range){own[i].begin, common.begin} : own[i], o + i, p + i);
    if (!shared)
        return;
    pv_by[n](b, common, o, p);
    for (uint32_t i = 0; i < n; i++)
        pv_by[1](b, (struct range){common.end, own[i].end}, o + i, p + i);
}

static void attend_span(struct attn_block *b, uint32_t span_begin, struct range all) {
    float m[ATTN_BLOCK], l[ATTN_BLOCK];
    const struct kv_shape *s = b->a->shape;
    enum kv_type turned = s->type == KV_F16 ? KV_F16 : KV_F32; /* what transpose_rows() makes */
    qk_by_queries[s->latent ? turned : s->type][b->n](b, all);
    for (uint32_t i = 0; i < b->n; i++) {
        struct range r = query_in_span(&b->queries[i], span_begin);
        if (r.begin < r.end)
            softmax_range(b->a, b->p + i * ATTN_P_ROW, r, &m[i], &l[i]);
    }
    memset(b->o, 0, b->n * b->pad * sizeof *b->o);
    span_values(b, span_begin);
    for (uint32_t i = 0; i < b->n; i++) {
        struct range r = query_in_span(&b->queries[i], span_begin);
        if (r.begin < r.end)
            merge_span(b, i, b->o + i * b->pad, m[i], l[i]);
    }
}

static void finish_query(struct attn_block *b, uint32_t i) {
    const struct attn_query *q = &b->queries[i];
    if (q->sink != -INFINITY) {
        memset(b->o, 0, b->pad * sizeof *b->o);
        merge_span(b, i, b->o, q->sink, 1.0f);
    }
    const v16 l = v16_set(b->sums[i].l);
    for (size_t d = 0; d < b->a->shape->v_dim; d += 16)
        v16_store_n(q->out + d, v16_tidy(v16_div(v16_load(b->total + i * b->pad + d), l)),
                    MIN(b->a->shape->v_dim - d, 16));
}

/* n queries, at most ATTN_TOGETHER, in blocks of about the same size. */
static void attend_together(struct attn_block *b, const struct attn_query *queries,
                            uint32_t n) {
    struct attn_sums sums[ATTN_TOGETHER] = {0};
    uint32_t n_blocks = (uint32_t)div_up(n, ATTN_BLOCK);
    struct range all = range_of(queries, n);
    b->n = n;
    b->queries = queries;
    b->sums = sums;
    memset(b->total, 0, n * b->pad * sizeof *b->total);
    for (uint32_t s = all.begin / ATTN_SPAN * ATTN_SPAN; s < all.end; s += ATTN_SPAN)
        for (uint32_t i = 0; i < n_blocks; i++) {
            struct attn_block part = *b;
            uint32_t first = i * n / n_blocks;
            part.n = (i + 1) * n / n_blocks - first;
            part.queries += first;
            part.sums += first;
            part.total += first * b->pad;
            struct range r = range_in_span(range_of(part.queries, part.n), s);
            if (r.begin < r.end)
                attend_span(&part, s, r);
        }
    for (uint32_t i = 0; i < n; i++)
        finish_query(b, i);
}

static void attention(const struct attn_args *a) {
    const struct kv_shape *s = a->shape;
    struct attn_block b = {.a = a, .pad = v_pad(s), .lay = kv_layout(s)};
    b.head_at = a->kv_head * b.lay.bytes;
    b.p = a->scratch;
    b.o = b.p + ATTN_BLOCK * ATTN_P_ROW;
    b.total = b.o + ATTN_BLOCK * b.pad;
    b.turned = (uint8_t *)(b.total + ATTN_TOGETHER * b.pad);
    for (uint32_t i = 0; i < a->n_queries; i += ATTN_TOGETHER)
        attend_together(&b, a->queries + i, MIN(a->n_queries - i, (uint32_t)ATTN_TOGETHER));
}

/* The kernel table of an instruction set that has these lanes; its matmul_ISA.h is included. */
#define LANES16_KERNELS(isa)                \
    const struct kernels kernels_##isa = {  \
        .name = #isa,                       \
        .act_pack = act_pack,               \
        .matmul = matmul_##isa,             \
        .matmul_fixed = matmul_fixed_##isa, \
        .fixed_add = fixed_add,             \
        .fixed_get = fixed_get,             \
        .rmsnorm = rmsnorm,                 \
        .rope = rope,                       \
        .swiglu = swiglu,                   \
        .add = add,                         \
        .exp = exp_lanes,                   \
        .softcap = softcap,                 \
        .kv_store = kv_store,               \
        .attention = attention,             \
    }
