/* scalar.c: the definition of every kernel, in plain C: one row, one token, one value at a
 * time, in the order that docs/numerics.md and kernels.h write down. The ISA versions must give
 * the same bits. Speed does not matter here. */
#include "base/exact.h"
#include "base/util.h"
#include "kernels/kernels.h"
#include "kernels/tiles.h"

#include <math.h>

/* ---- activations --------------------------------------------------------------------------- */

/* Tokens in the group, and where token t lies in it. */
static uint32_t group_size(const struct act *a, uint32_t group) {
    return MIN(a->n_tokens - group * ACT_GROUP, (uint32_t)ACT_GROUP);
}

static int8_t quantize(float x, float inverse) {
    float v = x * inverse;
    v = v < 127.0f ? v : 127.0f; /* NaN becomes 127 */
    v = v > -127.0f ? v : -127.0f;
    return (int8_t)rintf(v);
}

static void pack_block(const struct act *a, const float *x, uint32_t group, uint32_t gs,
                       uint32_t in, uint32_t block) {
    size_t n_blocks = a->n_cols / ACT_BLOCK;
    size_t at = (size_t)group * ACT_GROUP * n_blocks + (size_t)block * gs + in;
    float amax = 0.0f;
    for (uint32_t i = 0; i < ACT_BLOCK; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    bool some = amax >= EXACT_LEAST;
    float d = some ? amax / 127.0f : 0.0f, inverse = some ? 127.0f / amax : 0.0f;
    struct act_sums sums = {0};
    for (uint32_t i = 0; i < ACT_BLOCK; i++) {
        int8_t q = some ? quantize(x[i], inverse) : 0;
        a->q[at * ACT_BLOCK + i] = q;
        sums.half[i / 16] = (int16_t)(sums.half[i / 16] + q);
    }
    a->d[at] = d;
    a->sums[at] = sums;
    a->start[at] = -128 * (sums.half[0] + sums.half[1]);
    a->s[at] = d * (float)(sums.half[0] + sums.half[1]);
}

static void act_pack(const struct act *a, const float *x, size_t ldx, uint32_t block_begin,
                     uint32_t block_end) {
    for (uint32_t g = 0; g < act_n_groups(a->n_tokens); g++) {
        uint32_t gs = group_size(a, g);
        for (uint32_t t = 0; t < gs; t++) {
            const float *row = x + (size_t)(g * ACT_GROUP + t) * ldx;
            for (uint32_t b = block_begin; b < block_end; b++) {
                if (a->kind == ACT_Q8) {
                    pack_block(a, row + (size_t)(b - block_begin) * ACT_BLOCK, g, gs, t, b);
                    continue;
                }
                uint32_t end = MIN((b + 1) * ACT_BLOCK, a->n_cols);
                for (uint32_t c = b * ACT_BLOCK; c < end; c++)
                    a->f[(size_t)g * ACT_GROUP * a->n_cols + (size_t)c * gs + t] =
                        exact_tidy(row[c - block_begin * ACT_BLOCK]);
            }
        }
    }
}

/* ---- one row times one token, over columns [col_begin, col_end) ---------------------------- */

/* One token's view of its packed activations. */
struct token {
    const struct act *a;
    uint32_t gs;
    size_t value0; /* of column 0 in f: columns lie gs apart */
    size_t block0; /* of block 0 in d, sums, s and (times 32) q: blocks lie gs apart */
};

static struct token token_of(const struct act *a, uint32_t t) {
    uint32_t g = t / ACT_GROUP;
    return (struct token){
        .a = a,
        .gs = group_size(a, g),
        .value0 = (size_t)g * ACT_GROUP * a->n_cols + t % ACT_GROUP,
        .block0 = (size_t)g * ACT_GROUP * (a->n_cols / ACT_BLOCK) + t % ACT_GROUP,
    };
}

static uint16_t get_u16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static float float_weight(enum qtype type, const uint8_t *tile, uint32_t col, uint32_t lane) {
    const uint8_t *p = tile + tile_col_at(type, col) + lane * tile_col_bytes(type) / TILE_ROWS;
    float f;
    if (type == QT_F8_E4M3) {
        memcpy(&f, tile + tile_f8_scales_at(col) + lane * sizeof f, sizeof f);
        return f8_e4m3_to_f32(*p) * f;
    }
    if (type == QT_F16)
        return f16_to_f32(get_u16(p));
    if (type == QT_BF16)
        return bf16_to_f32(get_u16(p));
    memcpy(&f, p, sizeof f);
    return f;
}

static float dot_floats(const struct wmat *w, const uint8_t *tile, uint32_t lane,
                        const struct token *x, uint32_t col_begin, uint32_t col_end) {
    float sum = 0.0f;
    for (uint32_t begin = col_begin, end; begin < col_end; begin = end) {
        float acc = 0.0f;
        end = MIN(begin + FLOAT_PIECE, col_end);
        for (uint32_t c = begin; c < end; c++)
            acc = fmaf(float_weight(w->type, tile, c, lane),
                       x->a->f[x->value0 + (size_t)c * x->gs], acc);
        sum += acc;
    }
    return sum;
}

/* Code v of the four that lie in three bytes, a vector apart. */
static uint32_t six_bits(const uint8_t *p, uint32_t v) {
    if (v < 3)
        return p[v * TILE_VECTOR] & 63;
    return p[0] >> 6 | p[TILE_VECTOR] >> 6 << 2 | p[2 * TILE_VECTOR] >> 6 << 4;
}

/* The code of column i (0..31) of a block whose vectors begin at p (kernels.h: packed weights). */
static uint32_t block_code(const struct tile_format *f, const uint8_t *p, uint32_t lane,
                           uint32_t i) {
    uint32_t v = i / 4, byte = 4 * lane + i % 4, code;
    if (f->low_bits == 8)
        code = p[v * TILE_VECTOR + byte];
    else if (f->low_bits == 4)
        code = p[v % 4 * TILE_VECTOR + byte] >> (v < 4 ? 0 : 4) & 15;
    else if (f->low_bits == 6)
        code = six_bits(p + v / 4 * 3 * TILE_VECTOR + byte, v % 4);
    else
        code = p[v / 4 * TILE_VECTOR + byte] >> 2 * (v % 4) & 3;
    p += f->low_bits * TILE_VECTOR;
    if (f->high_bits == 1)
        code |= (p[byte] >> v & 1u) << f->low_bits;
    return code;
}

static int32_t block_weight(const struct tile_format *f, const uint8_t *p, uint32_t lane,
                            uint32_t i) {
    uint32_t code = block_code(f, p, lane, i);
    return f->values != NULL ? f->values[code] : (int32_t)code - f->bias;
}

/* Exact integer dot product of columns [i_begin, i_end) of a block. */
static int32_t block_dot(enum qtype type, const uint8_t *p, uint32_t lane, const int8_t *q,
                         uint32_t i_begin, uint32_t i_end) {
    int32_t sum = 0;
    for (uint32_t i = i_begin; i < i_end; i++)
        sum += block_weight(&tile_formats[type], p, lane, i) * q[i];
    return sum;
}

/* 2^(e - 128); of 0 it is 0. */
static float power_of_two(uint8_t e) {
    return e == 0 ? 0.0f : ldexpf(1.0f, e - 128);
}

/* A block with a d for each half: adds to acc. */
static float half_blocks(const struct wmat *w, const uint8_t *block, uint32_t lane,
                         const struct act *a, size_t at, float acc) {
    for (uint32_t h = 0; h < 2; h++) {
        float d = f16_to_f32(get_u16(block + h * 2 * TILE_ROWS + 2 * lane));
        int32_t dot = block_dot(w->type, block + tile_codes_at(w->type), lane,
                                a->q + at * ACT_BLOCK, 16 * h, 16 * (h + 1));
        acc = fmaf((float)dot, d * (a->d[at] * w->scale), acc);
    }
    return acc;
}

static float half_of(enum tile_scales scales, const uint8_t *p) {
    return scales == TILE_D_M_BF16 ? bf16_to_f32(get_u16(p)) : f16_to_f32(get_u16(p));
}

static float dot_simple_blocks(const struct wmat *w, const uint8_t *tile, uint32_t lane,
                               const struct token *x, uint32_t col_begin, uint32_t col_end) {
    enum tile_scales scales = tile_formats[w->type].scales;
    float acc = 0.0f;
    for (uint32_t b = col_begin / ACT_BLOCK; b < col_end / ACT_BLOCK; b++) {
        const uint8_t *block = tile + b * tile_block_bytes(w->type);
        size_t at = x->block0 + (size_t)b * x->gs;
        if (scales == TILE_D_D) {
            acc = half_blocks(w, block, lane, x->a, at, acc);
            continue;
        }
        float dw =
            scales == TILE_E8M0 ? power_of_two(block[lane]) : half_of(scales, block + 2 * lane);
        int32_t dot = block_dot(w->type, block + tile_codes_at(w->type), lane,
                                x->a->q + at * ACT_BLOCK, 0, ACT_BLOCK);
        acc = fmaf((float)dot, dw * x->a->d[at], acc);
        if (tile_has_m(w->type)) {
            float m = half_of(scales, block + 2 * TILE_ROWS + 2 * lane);
            if (tile_formats[w->type].bias != 0)
                m = fmaf(tile_formats[w->type].bias, dw, m);
            acc = fmaf(m, x->a->s[at], acc);
        }
    }
    return acc;
}

/* A block whose scales are multiplied by the superblock's: adds to acc. */
static float super_block(enum qtype type, const uint8_t *super, const uint8_t *block,
                         uint32_t lane, const struct act *a, size_t at, float acc) {
    const struct tile_format *f = &tile_formats[type];
    const uint8_t *scales = block + lane; /* [..][16] */
    const uint8_t *codes = block + tile_codes_at(type);
    const int8_t *q = a->q + at * ACT_BLOCK;
    float d = f16_to_f32(get_u16(super + 2 * lane)) * (f->d_factor != 0 ? f->d_factor : 1.0f);
    float dmin = f16_to_f32(get_u16(super + 2 * TILE_ROWS + 2 * lane));
    if (f->scales == TILE_SCALE || f->scales == TILE_SCALE_MIN) {
        /* i8 or u8: six bits, the same either way for the latter. */
        float scale = (float)(int8_t)scales[0];
        int32_t dot = block_dot(type, codes, lane, q, 0, ACT_BLOCK);
        acc = fmaf((float)dot, (d * scale) * a->d[at], acc);
        if (f->scales == TILE_SCALE_MIN)
            acc = fmaf(-(dmin * (float)scales[TILE_ROWS]), a->s[at], acc);
        return acc;
    }
    int32_t sc0 = (int8_t)scales[0], sc1 = (int8_t)scales[TILE_ROWS];
    int32_t sum = sc0 * block_dot(type, codes, lane, q, 0, 16) +
                  sc1 * block_dot(type, codes, lane, q, 16, 32);
    acc = fmaf((float)sum, d * a->d[at], acc);
    if (f->scales == TILE_HALVES_MIN) {
        int32_t below = scales[2 * TILE_ROWS] * a->sums[at].half[0] +
                        scales[3 * TILE_ROWS] * a->sums[at].half[1];
        acc = fmaf(-(float)below, dmin * a->d[at], acc);
    }
    return acc;
}

static float dot_super_blocks(const struct wmat *w, const uint8_t *tile, uint32_t lane,
                              const struct token *x, uint32_t col_begin, uint32_t col_end) {
    float acc = 0.0f;
    for (uint32_t b = col_begin / ACT_BLOCK; b < col_end / ACT_BLOCK; b++)
        acc = super_block(w->type, tile + tile_super_at(w->type, w->col_phase, b),
                          tile + tile_block_at(w->type, w->col_phase, b), lane, x->a,
                          x->block0 + (size_t)b * x->gs, acc);
    return acc;
}

static float dot_row(const struct wmat *w, uint32_t row, const struct token *x,
                     uint32_t col_begin, uint32_t col_end) {
    const uint8_t *tile = w->tiles + row / TILE_ROWS * w->tile_bytes;
    uint32_t lane = row % TILE_ROWS;
    if (act_kind_for(w->type) == ACT_F32)
        return dot_floats(w, tile, lane, x, col_begin, col_end);
    if (tile_has_supers(w->type))
        return dot_super_blocks(w, tile, lane, x, col_begin, col_end);
    return dot_simple_blocks(w, tile, lane, x, col_begin, col_end);
}

static void matmul(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                   uint32_t tile_begin, uint32_t tile_end) {
    for (uint32_t t = 0; t < x->n_tokens; t++) {
        struct token token = token_of(x, t);
        for (uint32_t row = tile_begin * TILE_ROWS; row < tile_end * TILE_ROWS; row++)
            y[t * ldy + row] = exact_tidy(dot_row(w, row, &token, 0, w->n_cols));
    }
}

/* ---- fixed point ---------------------------------------------------------------------------- */

/* x * 2^24 to the nearest integer, ties to even; saturated at +-FIXED_LIMIT; NaN gives
 * the upper limit. */
static int64_t fixed_from_f32(float x) {
    x = x < FIXED_LIMIT ? x : FIXED_LIMIT;
    x = x > -FIXED_LIMIT ? x : -FIXED_LIMIT;
    return llrintf(x * (float)(1 << FIXED_BITS));
}

static void matmul_fixed(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                         const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                         uint32_t tile_end) {
    for (uint32_t t = 0; t < x->n_tokens; t++) {
        struct token token = token_of(x, t);
        int64_t *to = y + (rows != NULL ? rows[t] : t) * ldy;
        for (uint32_t row = tile_begin * TILE_ROWS; row < tile_end * TILE_ROWS; row++) {
            int64_t sum = rows != NULL ? to[row] : 0;
            for (uint32_t c = 0; c < w->n_cols; c += seg_cols)
                sum += fixed_from_f32(dot_row(w, row, &token, c, c + seg_cols));
            to[row] = sum;
        }
    }
}

static void fixed_get(float *x, const int64_t *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)y[i] * (1.0f / (1 << FIXED_BITS));
}

static void fixed_add(float *x, const int64_t *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = exact_tidy(x[i] + (float)y[i] * (1.0f / (1 << FIXED_BITS)));
}

/* ---- small things --------------------------------------------------------------------------- */

static void rmsnorm(float *y, const float *x, const float *w, size_t n, float eps) {
    float mean = exact_squares(x, n) / (float)n;
    float r = 1.0f / sqrtf(mean + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = exact_tidy(w != NULL ? x[i] * r * w[i] : x[i] * r);
}

static void rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot,
                 const float *cos, const float *sin, enum rope_mode mode) {
    for (uint32_t h = 0; h < n_heads; h++)
        for (uint32_t i = 0; i < n_rot / 2; i++) {
            float *head = x + (size_t)h * head_dim;
            float *a = head + (mode == ROPE_NORM ? 2 * i : i);
            float *b = mode == ROPE_NORM ? a + 1 : a + n_rot / 2;
            float x0 = *a, x1 = *b;
            *a = exact_tidy(fmaf(x0, cos[i], -(x1 * sin[i])));
            *b = exact_tidy(fmaf(x0, sin[i], x1 * cos[i]));
        }
}

static void swiglu(float *y, const float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = exact_tidy(gate[i] / (1.0f + exact_exp(-gate[i])) * up[i]);
}

static void add(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = exact_tidy(y[i] + x[i]);
}

static void exp_all(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = exact_exp(x[i]);
}

static void softcap(float *y, float cap, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = exact_tidy(cap * exact_tanh(y[i] / cap));
}

/* ---- attention ------------------------------------------------------------------------------ */

static void cache_put(const struct kv_shape *s, uint8_t *base, size_t i, float v) {
    if (s->type == KV_F32) {
        memcpy(base + 4 * i, &v, sizeof v);
    } else {
        uint16_t h = f32_to_f16(v);
        memcpy(base + 2 * i, &h, sizeof h);
    }
}

/* The index in a page's head: of dimension d of a slot's key among K, and of its value among V.
 */
static size_t key_at(const struct kv_shape *s, uint32_t slot, uint32_t d) {
    if (s->latent)
        return slot * round_up(s->k_dim, TILE_ROWS) + d;
    return ((size_t)(slot / 16) * s->k_dim + d) * 16 + slot % 16;
}

static size_t value_at(const struct kv_shape *s, uint32_t slot, uint32_t d) {
    return slot * round_up(s->latent ? s->k_dim : s->v_dim, TILE_ROWS) + d;
}

/* Which scale is theirs, with KV_Q8_0. */
static size_t key_scale_at(const struct kv_shape *s, uint32_t slot, uint32_t d) {
    size_t n = div_up(s->latent ? round_up(s->k_dim, TILE_ROWS) : s->k_dim, KV_BLOCK);
    return s->latent ? slot * n + d / KV_BLOCK
                     : ((slot / 16) * n + d / KV_BLOCK) * 16 + slot % 16;
}

static size_t value_scale_at(const struct kv_shape *s, uint32_t slot, uint32_t d) {
    size_t n = round_up(s->latent ? s->k_dim : s->v_dim, TILE_ROWS);
    return slot * div_up(n, KV_BLOCK) + d / KV_BLOCK;
}

static void kv_store(const struct kv_shape *s, uint8_t *page, uint32_t slot, const float *k,
                     const float *v) {
    const struct kv_layout l = kv_layout(s);
    if (s->type == KV_Q8_0) {
        kv_store_q8_0(s, page, slot, k, v);
        return;
    }
    for (uint32_t h = 0; h < s->n_kv_heads; h++) {
        uint8_t *base = page + h * l.bytes;
        for (uint32_t d = 0; d < s->k_dim; d++)
            cache_put(s, base, key_at(s, slot, d), k[(size_t)h * s->k_dim + d]);
        for (uint32_t d = s->k_dim; s->latent && d < round_up(s->k_dim, TILE_ROWS); d++)
            cache_put(s, base, key_at(s, slot, d), 0.0f);
        for (uint32_t d = 0; !s->latent && d < round_up(s->v_dim, TILE_ROWS); d++)
            cache_put(s, base + l.v, value_at(s, slot, d),
                      d < s->v_dim ? v[(size_t)h * s->v_dim + d] : 0.0f);
    }
}

static float cache_get(enum kv_type type, const uint8_t *values, size_t i,
                       const uint8_t *scales, size_t scale) {
    float v;
    if (type == KV_F16)
        return f16_to_f32(get_u16(values + 2 * i));
    if (type == KV_Q8_0)
        return f16_to_f32(get_u16(scales + 2 * scale)) * (float)(int8_t)values[i];
    memcpy(&v, values + 4 * i, sizeof v);
    return v;
}

static const uint8_t *head_page(const struct attn_args *a, uint32_t pos) {
    return a->pages[pos / KV_PAGE] + a->kv_head * kv_layout(a->shape).bytes;
}

static float logit(const struct attn_args *a, const struct attn_query *q, uint32_t pos) {
    const struct kv_shape *s = a->shape;
    const uint8_t *base = head_page(a, pos), *scales = base + kv_layout(s).k_scales;
    uint32_t slot = pos % KV_PAGE;
    float dot = 0.0f;
    for (uint32_t d = 0; d < s->k_dim; d++)
        dot =
            fmaf(q->q[d],
                 cache_get(s->type, base, key_at(s, slot, d), scales, key_scale_at(s, slot, d)),
                 dot);
    float x = dot * a->scale;
    return a->softcap != 0.0f ? a->softcap * exact_tanh(x / a->softcap) : x;
}

/* The softmax partial of positions [begin, end) of one span: its largest logit, the sum of exp,
 * and the weighted values in o [v_dim]. logits: space for ATTN_SPAN. */
static void span_partial(const struct attn_args *a, const struct attn_query *q, uint32_t begin,
                         uint32_t end, float *logits, float *m_out, float *l_out, float *o) {
    const struct kv_layout l = kv_layout(a->shape);
    float m = -INFINITY, lanes[16] = {0};
    for (uint32_t pos = begin; pos < end; pos++) {
        logits[pos - begin] = logit(a, q, pos);
        m = logits[pos - begin] > m ? logits[pos - begin] : m;
    }
    memset(o, 0, a->shape->v_dim * sizeof *o);
    for (uint32_t pos = begin; pos < end; pos++) {
        float p = attn_weight(logits[pos - begin] - m);
        lanes[pos % 16] += p;
        const uint8_t *base = head_page(a, pos);
        uint32_t slot = pos % KV_PAGE;
        for (uint32_t d = 0; d < a->shape->v_dim; d++)
            o[d] = fmaf(p,
                        cache_get(a->shape->type, base + l.v, value_at(a->shape, slot, d),
                                  base + l.v_scales, value_scale_at(a->shape, slot, d)),
                        o[d]);
    }
    exact_tidy_all(o, a->shape->v_dim);
    *m_out = m;
    *l_out = exact_sum_lanes(lanes);
}

static void attend(const struct attn_args *a, const struct attn_query *q) {
    uint32_t v_dim = a->shape->v_dim;
    float *logits = a->scratch, *o = logits + ATTN_SPAN;
    float m_all = -INFINITY, l_all = 0.0f;
    bool first = true;
    memset(q->out, 0, v_dim * sizeof *q->out);
    for (uint32_t span = q->begin / ATTN_SPAN; span * ATTN_SPAN < q->end; span++) {
        float m, l;
        span_partial(a, q, MAX(q->begin, span * ATTN_SPAN), MIN(q->end, (span + 1) * ATTN_SPAN),
                     logits, &m, &l, o);
        if (first) {
            m_all = m;
            l_all = l;
            memcpy(q->out, o, v_dim * sizeof *o);
            first = false;
            continue;
        }
        float both = m > m_all ? m : m_all;
        float before = attn_weight(m_all - both), now = attn_weight(m - both);
        m_all = both;
        l_all = fmaf(l_all, before, l * now);
        for (uint32_t d = 0; d < v_dim; d++)
            q->out[d] = exact_tidy(fmaf(q->out[d], before, o[d] * now));
    }
    if (q->sink != -INFINITY) {
        float both = q->sink > m_all ? q->sink : m_all;
        float before = attn_weight(m_all - both), now = attn_weight(q->sink - both);
        l_all = fmaf(l_all, before, now);
        for (uint32_t d = 0; d < v_dim; d++)
            q->out[d] = exact_tidy(fmaf(q->out[d], before, 0.0f * now));
    }
    for (uint32_t d = 0; d < v_dim; d++)
        q->out[d] = exact_tidy(q->out[d] / l_all);
}

static void attention(const struct attn_args *a) {
    for (uint32_t i = 0; i < a->n_queries; i++)
        attend(a, &a->queries[i]);
}

const struct kernels kernels_scalar = {
    .name = "scalar",
    .act_pack = act_pack,
    .matmul = matmul,
    .matmul_fixed = matmul_fixed,
    .fixed_add = fixed_add,
    .fixed_get = fixed_get,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .swiglu = swiglu,
    .add = add,
    .exp = exp_all,
    .softcap = softcap,
    .kv_store = kv_store,
    .attention = attention,
};
