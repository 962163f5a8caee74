/* indexer_lanes.inc.h: indexer.h's kernels, written once for sixteen lanes. An ISA file
 * includes its v16_*.h, then this.
 *
 * Selected keys are scattered. Sixteen at a time are gathered into a tile, [dim][16] f32, which
 * all queries use. So the gathering is shared, and the sums are those of a cache with no other
 * keys. */
#include "base/exact.h"
#include "base/util.h"
#include "kernels/v16_exp.inc.h"
#include "mixers/indexer.h"

#include <math.h>
#include <string.h>

/* Queries, or heads of the index, that share what is loaded; vectors side by side. */
#define BLOCK 4

INLINE v16 load_cached(enum kv_type type, const uint8_t *p, size_t i) {
    return type == KV_F32   ? v16_load((const float *)p + i)
           : type == KV_F16 ? v16_load_f16((const uint16_t *)p + i)
                            : v16_load_i8((const int8_t *)p + i);
}

/* Sixteen positions of K that lie in one tile of the page, from slot `slot` on, as f32. */
static void whole_tile(const struct kv_shape *s, const uint8_t *head, uint32_t slot,
                       float *tile) {
    size_t k_dim = s->k_dim, at = slot / 16;
    const uint8_t *k = head + at * k_dim * 16 * kv_value_bytes(s->type);
    const uint16_t *scales =
        (const uint16_t *)(head + kv_layout(s).k_scales) + at * div_up(k_dim, KV_BLOCK) * 16;
    for (size_t d = 0; d < k_dim; d++) {
        v16 v = load_cached(s->type, k, d * 16);
        if (s->type == KV_Q8_0)
            v = v16_mul(v16_load_f16(scales + d / KV_BLOCK * 16), v);
        v16_store(tile + d * 16, v);
    }
}

/* A row of n values, padded to whole vectors in the page, as f32. */
static void load_row(enum kv_type type, const uint8_t *row, const uint8_t *scales, size_t n,
                     float *out) {
    for (size_t d = 0; d < n; d += 16) {
        v16 v = load_cached(type, row, d);
        if (type == KV_Q8_0)
            v = v16_mul(v16_set_f16(scales + d / KV_BLOCK * 2), v);
        v16_store(out + d, v);
    }
}

/* ---- scores -------------------------------------------------------------------------------- */

/* n queries, a constant of the caller's, with one tile. */
INLINE void dots(const float *const *q, const float *tile, size_t k_dim, v16 *acc,
                 const uint32_t n) {
    UNROLL
    for (uint32_t i = 0; i < n; i++)
        acc[i] = v16_zero();
    for (size_t d = 0; d < k_dim; d++) {
        const v16 k = v16_load(tile + d * 16);
        UNROLL
        for (uint32_t i = 0; i < n; i++)
            acc[i] = v16_fma(v16_set(q[i][d]), k, acc[i]);
    }
}

static void dots_up_to(const float *const *q, const float *tile, size_t k_dim, v16 *acc,
                       uint32_t n) {
    if (n == BLOCK)
        dots(q, tile, k_dim, acc, BLOCK);
    else
        for (uint32_t i = 0; i < n; i++)
            dots(q + i, tile, k_dim, acc + i, 1);
}

/* What is positive and tidy; of a NaN 0. */
INLINE v16 above_least(v16 x) {
    return v16_tidy(v16_max(x, v16_zero()));
}

static void scores(const struct index_scores_args *a) {
    const size_t k_dim = a->shape->k_dim;
    for (uint32_t pos = a->begin; pos < a->end; pos += 16) {
        v16 sum = v16_zero(), acc[BLOCK];
        whole_tile(a->shape, a->pages[pos / KV_PAGE], pos % KV_PAGE, a->scratch);
        for (uint32_t h = 0; h < a->n_heads; h += BLOCK) {
            const uint32_t n = MIN(a->n_heads - h, (uint32_t)BLOCK);
            const float *q[BLOCK];
            for (uint32_t i = 0; i < n; i++)
                q[i] = a->q + (h + i) * a->q_stride;
            dots_up_to(q, a->scratch, k_dim, acc, n);
            for (uint32_t i = 0; i < n; i++)
                sum = a->weights == NULL
                          ? acc[i]
                          : v16_fma(v16_set(a->weights[h + i]), above_least(acc[i]), sum);
        }
        v16_store(a->scores + pos, sum);
    }
}

/* ---- attention to chosen positions ----------------------------------------------------------- */

/* Queries at work; what they keep lies in args->scratch. */
struct at_work {
    const struct chosen_args *a;
    struct kv_layout lay;
    size_t head_at, pad; /* of the kv head in a page, in bytes; v_dim rounded up to 16 */
    float *p;            /* [queries][ATTN_SPAN]: logits, then probabilities */
    float *o, *total;    /* [queries][pad] of the span, of those before */
    float *tile, *rows;  /* [k_dim rounded up][16], [16][pad] */
    uint16_t *halves;    /* [16][k_dim rounded up] */
    float m[ATTN_TOGETHER], l[ATTN_TOGETHER]; /* of total */
};

static const uint8_t *head_of(const struct at_work *w, uint32_t pos) {
    return w->a->pages[pos / KV_PAGE] + w->head_at;
}

/* Values from one position's row to the next one's. */
INLINE size_t row_values(const struct kv_shape *s) {
    return round_up(s->latent ? s->k_dim : s->v_dim, 16);
}

/* The row of V of a position: in a latent cache the beginning of the key's. */
static void value_row(const struct at_work *w, uint32_t pos, float *out) {
    const struct kv_shape *s = w->a->shape;
    const uint8_t *head = head_of(w, pos);
    const size_t slot = pos % KV_PAGE, values = row_values(s);
    load_row(s->type, head + w->lay.v + slot * values * kv_value_bytes(s->type),
             head + w->lay.v_scales + slot * div_up(values, KV_BLOCK) * 2, w->pad, out);
}

/* Of f16: whole rows are copied side by side, and turned 16 x 16. */
static void gather_latent_f16(const struct at_work *w, const uint32_t *positions, uint32_t n) {
    const size_t k_pad = row_values(w->a->shape);
    uint16_t turned[256];
    for (uint32_t i = 0; i < n; i++)
        memcpy(w->halves + i * k_pad,
               head_of(w, positions[i]) + positions[i] % KV_PAGE * k_pad * sizeof *w->halves,
               k_pad * sizeof *w->halves);
    memset(w->halves + n * k_pad, 0, (16 - n) * k_pad * sizeof *w->halves);
    for (size_t d = 0; d < k_pad; d += 16) {
        v16_transpose_16(turned, w->halves + d, k_pad);
        for (size_t j = 0; j < 16; j++)
            v16_store(w->tile + (d + j) * 16, v16_load_f16(turned + j * 16));
    }
}

static void gather_latent(const struct at_work *w, const uint32_t *positions, uint32_t n) {
    const size_t k_pad = row_values(w->a->shape);
    float row[16];
    for (uint32_t i = 0; i < n; i++) {
        const struct kv_shape *s = w->a->shape;
        const uint8_t *head = head_of(w, positions[i]);
        const size_t slot = positions[i] % KV_PAGE, bytes = kv_value_bytes(s->type);
        const uint8_t *from = head + slot * k_pad * bytes,
                      *scales = head + w->lay.k_scales + slot * div_up(k_pad, KV_BLOCK) * 2;
        for (size_t d = 0; d < k_pad; d += 16) {
            load_row(s->type, from + d * bytes, scales + d / KV_BLOCK * 2, 16, row);
            for (size_t j = 0; j < 16; j++)
                w->tile[(d + j) * 16 + i] = row[j];
        }
    }
}

/* Position `pos` as lane i of the tile. */
static void gather_key(const struct at_work *w, uint32_t pos, uint32_t i) {
    const struct kv_shape *s = w->a->shape;
    const uint8_t *head = head_of(w, pos);
    const size_t at = pos % KV_PAGE / 16, lane = pos % 16, k_dim = s->k_dim;
    for (size_t d = 0; d < k_dim; d++) {
        const uint8_t *v = head + ((at * k_dim + d) * 16 + lane) * kv_value_bytes(s->type);
        uint16_t half;
        if (s->type == KV_F32) {
            memcpy(&w->tile[d * 16 + i], v, sizeof(float));
        } else if (s->type == KV_F16) {
            memcpy(&half, v, sizeof half);
            w->tile[d * 16 + i] = f16_to_f32(half);
        } else {
            size_t scale = (at * div_up(k_dim, KV_BLOCK) + d / KV_BLOCK) * 16 + lane;
            memcpy(&half, head + w->lay.k_scales + 2 * scale, sizeof half);
            w->tile[d * 16 + i] = f16_to_f32(half) * (float)*(const int8_t *)v;
        }
    }
}

/* The keys of n <= 16 positions as a tile; lanes beyond them hold anything that is a number. */
static void gather(const struct at_work *w, const uint32_t *positions, uint32_t n) {
    const struct kv_shape *s = w->a->shape;
    if (n < 16)
        memset(w->tile, 0, row_values(s) * 16 * sizeof *w->tile);
    if (s->latent && s->type == KV_F16)
        gather_latent_f16(w, positions, n);
    else if (s->latent)
        gather_latent(w, positions, n);
    else if (n == 16 && positions[0] % 16 == 0 && positions[15] == positions[0] + 15)
        whole_tile(s, head_of(w, positions[0]), positions[0] % KV_PAGE, w->tile);
    else
        for (uint32_t i = 0; i < n; i++)
            gather_key(w, positions[i], i);
}

static void logits_of_span(const struct at_work *w, const uint32_t *positions, uint32_t n) {
    const struct chosen_args *a = w->a;
    const v16 scale = v16_set(a->scale);
    for (uint32_t at = 0; at < n; at += 16) {
        gather(w, positions + at, MIN(n - at, 16u));
        for (uint32_t i = 0; i < a->n_queries; i += BLOCK) {
            const uint32_t m = MIN(a->n_queries - i, (uint32_t)BLOCK);
            const float *q[BLOCK];
            v16 acc[BLOCK];
            for (uint32_t j = 0; j < m; j++)
                q[j] = a->queries[i + j].q;
            dots_up_to(q, w->tile, a->shape->k_dim, acc, m);
            for (uint32_t j = 0; j < m; j++)
                v16_store(w->p + (i + j) * ATTN_SPAN + at, v16_mul(acc[j], scale));
        }
    }
}

/* Query i's logits become probabilities. */
static void softmax_of_span(const struct at_work *w, uint32_t i, const uint32_t *positions,
                            uint32_t n, float *m, float *l) {
    float *p = w->p + i * ATTN_SPAN, lanes[16] = {0};
    const v16 lowest = v16_set(-INFINITY);
    v16 largest = lowest;
    for (uint32_t at = 0; at < n; at += 16)
        largest = v16_max(v16_keep(v16_load(p + at), 0, MIN(n - at, 16u), lowest), largest);
    *m = v16_largest(largest);
    for (uint32_t at = 0; at < n; at += 16)
        v16_store(p + at, v16_attn_weight(v16_sub(v16_load(p + at), v16_set(*m))));
    for (uint32_t k = 0; k < n; k++)
        lanes[positions[k] % 16] += p[k];
    *l = v16_sum(v16_load(lanes));
}

/* o += p rows, nv vectors of 16 dimensions, a constant of the caller's. */
INLINE void add_values(float *o, const float *p, const float *rows, size_t pad, uint32_t n,
                       const int nv) {
    v16 acc[BLOCK];
    UNROLL
    for (int j = 0; j < nv; j++)
        acc[j] = v16_load(o + j * 16);
    for (uint32_t k = 0; k < n; k++, rows += pad) {
        const v16 by = v16_set(p[k]);
        UNROLL
        for (int j = 0; j < nv; j++)
            acc[j] = v16_fma(by, v16_load(rows + j * 16), acc[j]);
    }
    UNROLL
    for (int j = 0; j < nv; j++)
        v16_store(o + j * 16, acc[j]);
}

static void values_of_span(const struct at_work *w, const uint32_t *positions, uint32_t n) {
    memset(w->o, 0, w->a->n_queries * w->pad * sizeof *w->o);
    for (uint32_t at = 0; at < n; at += 16) {
        const uint32_t n_rows = MIN(n - at, 16u);
        for (uint32_t k = 0; k < n_rows; k++)
            value_row(w, positions[at + k], w->rows + k * w->pad);
        for (uint32_t i = 0; i < w->a->n_queries; i++) {
            const float *p = w->p + i * ATTN_SPAN + at;
            float *o = w->o + i * w->pad;
            size_t d = 0;
            for (; d + (size_t)BLOCK * 16 <= w->pad; d += (size_t)BLOCK * 16)
                add_values(o + d, p, w->rows + d, w->pad, n_rows, BLOCK);
            for (; d < w->pad; d += 16)
                add_values(o + d, p, w->rows + d, w->pad, n_rows, 1);
        }
    }
}

static void merge(struct at_work *w, uint32_t i, float m, float l) {
    float *total = w->total + i * w->pad;
    const float *o = w->o + i * w->pad;
    const float largest = m > w->m[i] ? m : w->m[i];
    const float before = attn_weight(w->m[i] - largest), now = attn_weight(m - largest);
    w->m[i] = largest;
    w->l[i] = fmaf(w->l[i], before, l * now);
    for (size_t d = 0; d < w->pad; d += 16)
        v16_store(total + d,
                  v16_tidy(v16_fma(v16_load(total + d), v16_set(before),
                                   v16_mul(v16_tidy(v16_load(o + d)), v16_set(now)))));
}

/* n positions of one span. */
static void attend_span(struct at_work *w, const uint32_t *positions, uint32_t n, bool first) {
    float m[ATTN_TOGETHER], l[ATTN_TOGETHER];
    const uint32_t n_queries = w->a->n_queries;
    logits_of_span(w, positions, n);
    for (uint32_t i = 0; i < n_queries; i++)
        softmax_of_span(w, i, positions, n, &m[i], &l[i]);
    values_of_span(w, positions, n);
    for (uint32_t i = 0; i < n_queries; i++) {
        if (!first) {
            merge(w, i, m[i], l[i]);
            continue;
        }
        w->m[i] = m[i];
        w->l[i] = l[i];
        for (size_t d = i * w->pad; d < (i + 1) * w->pad; d += 16)
            v16_store(w->total + d, v16_tidy(v16_load(w->o + d)));
    }
}

static void finish(struct at_work *w, uint32_t i) {
    const struct attn_query *q = &w->a->queries[i];
    const size_t v_dim = w->a->shape->v_dim;
    if (q->sink != -INFINITY) {
        memset(w->o + i * w->pad, 0, w->pad * sizeof *w->o);
        merge(w, i, q->sink, 1.0f);
    }
    for (size_t d = 0; d < v_dim; d += 16)
        v16_store_n(q->out + d,
                    v16_tidy(v16_div(v16_load(w->total + i * w->pad + d), v16_set(w->l[i]))),
                    MIN(v_dim - d, 16));
}

static void attend(const struct chosen_args *a) {
    struct at_work w = {
        .a = a, .lay = kv_layout(a->shape), .pad = round_up(a->shape->v_dim, 16)};
    w.head_at = a->kv_head * w.lay.bytes;
    w.p = a->scratch;
    w.o = w.p + (size_t)ATTN_TOGETHER * ATTN_SPAN;
    w.total = w.o + ATTN_TOGETHER * w.pad;
    w.tile = w.total + ATTN_TOGETHER * w.pad;
    w.rows = w.tile + round_up(a->shape->k_dim, 16) * 16;
    w.halves = (uint16_t *)(w.rows + 16 * w.pad);
    for (uint32_t begin = 0, end; begin < a->n; begin = end) {
        const uint32_t span = a->positions[begin] / ATTN_SPAN;
        for (end = begin; end < a->n && a->positions[end] / ATTN_SPAN == span;)
            end++;
        attend_span(&w, a->positions + begin, end - begin, begin == 0);
    }
    for (uint32_t i = 0; i < a->n_queries; i++)
        finish(&w, i);
}

#define INDEXER_LANES_KERNELS(isa) \
    const struct indexer_kernels indexer_##isa = {.scores = scores, .attend = attend}
