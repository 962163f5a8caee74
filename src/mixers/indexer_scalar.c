/* indexer_scalar.c: the definition of indexer.h's kernels, one position and one query at a time. */
#include "base/exact.h"
#include "base/util.h"
#include "mixers/indexer.h"

#include <math.h>
#include <string.h>

/* Value i of a head's part of a page, whose scale is number `scale` of those behind it. */
static float cached(enum kv_type type, const uint8_t *values, size_t i, const uint8_t *scales,
                    size_t scale) {
    uint16_t half;
    float v;
    switch (type) {
    case KV_F32:
        memcpy(&v, values + 4 * i, sizeof v);
        return v;
    case KV_F16:
        memcpy(&half, values + 2 * i, sizeof half);
        return f16_to_f32(half);
    default:
        memcpy(&half, scales + 2 * scale, sizeof half);
        return f16_to_f32(half) * (float)(int8_t)values[i];
    }
}

static float key(const struct kv_shape *s, const uint8_t *head, uint32_t slot, uint32_t d) {
    const uint8_t *scales = head + kv_layout(s).k_scales;
    size_t row = s->latent ? round_up(s->k_dim, TILE_ROWS) : s->k_dim;
    size_t n_scales = div_up(row, KV_BLOCK), tile = slot / 16, lane = slot % 16;
    if (s->latent)
        return cached(s->type, head, slot * row + d, scales, slot * n_scales + d / KV_BLOCK);
    return cached(s->type, head, (tile * row + d) * 16 + lane, scales,
                  (tile * n_scales + d / KV_BLOCK) * 16 + lane);
}

static float value(const struct kv_shape *s, const uint8_t *head, uint32_t slot, uint32_t d) {
    const struct kv_layout l = kv_layout(s);
    size_t row = round_up(s->latent ? s->k_dim : s->v_dim, TILE_ROWS);
    return cached(s->type, head + l.v, slot * row + d, head + l.v_scales,
                  slot * div_up(row, KV_BLOCK) + d / KV_BLOCK);
}

static float dot(const struct kv_shape *s, const uint8_t *head, uint32_t slot, const float *q) {
    float sum = 0.0f;
    for (uint32_t d = 0; d < s->k_dim; d++)
        sum = fmaf(q[d], key(s, head, slot, d), sum);
    return sum;
}

static void scores(const struct index_scores_args *a) {
    for (uint32_t pos = a->begin; pos < round_up(a->end, 16); pos++) {
        const uint8_t *head = a->pages[pos / KV_PAGE];
        float sum = 0.0f;
        for (uint32_t h = 0; h < a->n_heads; h++) {
            float r = dot(a->shape, head, pos % KV_PAGE, a->q + h * a->q_stride);
            sum =
                a->weights == NULL ? r : fmaf(a->weights[h], r >= EXACT_LEAST ? r : 0.0f, sum);
        }
        a->scores[pos] = sum;
    }
}

/* A softmax so far: the largest logit, the sum, and in `out` the weighted values. */
struct partial {
    float m, l;
};

/* Of n positions of one span. */
static struct partial span_partial(const struct chosen_args *a, const float *q,
                                   const uint32_t *positions, uint32_t n, float *out) {
    const struct kv_shape *s = a->shape;
    const size_t at = a->kv_head * kv_layout(s).bytes;
    float m = -INFINITY, lanes[16] = {0}, *logits = a->scratch;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *head = a->pages[positions[i] / KV_PAGE] + at;
        logits[i] = dot(s, head, positions[i] % KV_PAGE, q) * a->scale;
        m = logits[i] > m ? logits[i] : m;
    }
    memset(out, 0, s->v_dim * sizeof *out);
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *head = a->pages[positions[i] / KV_PAGE] + at;
        float p = attn_weight(logits[i] - m);
        lanes[positions[i] % 16] += p;
        for (uint32_t d = 0; d < s->v_dim; d++)
            out[d] = fmaf(p, value(s, head, positions[i] % KV_PAGE, d), out[d]);
    }
    exact_tidy_all(out, s->v_dim);
    return (struct partial){m, exact_sum_lanes(lanes)};
}

static void merge(struct partial *all, float *total, struct partial p, const float *out,
                  uint32_t n) {
    float m = p.m > all->m ? p.m : all->m;
    float before = attn_weight(all->m - m), now = attn_weight(p.m - m);
    *all = (struct partial){m, fmaf(all->l, before, p.l * now)};
    for (uint32_t d = 0; d < n; d++)
        total[d] = exact_tidy(fmaf(total[d], before, out[d] * now));
}

static void attend_one(const struct chosen_args *a, const struct attn_query *q) {
    const uint32_t v_dim = a->shape->v_dim;
    float *out = a->scratch + ATTN_SPAN;
    struct partial all = {0};
    for (uint32_t begin = 0, end; begin < a->n; begin = end) {
        const uint32_t span = a->positions[begin] / ATTN_SPAN;
        for (end = begin; end < a->n && a->positions[end] / ATTN_SPAN == span;)
            end++;
        struct partial p = span_partial(a, q->q, a->positions + begin, end - begin, out);
        if (begin == 0) {
            all = p;
            memcpy(q->out, out, v_dim * sizeof *out);
        } else {
            merge(&all, q->out, p, out, v_dim);
        }
    }
    if (q->sink != -INFINITY) {
        memset(out, 0, v_dim * sizeof *out);
        merge(&all, q->out, (struct partial){q->sink, 1.0f}, out, v_dim);
    }
    for (uint32_t d = 0; d < v_dim; d++)
        q->out[d] = exact_tidy(q->out[d] / all.l);
}

static void attend(const struct chosen_args *a) {
    for (uint32_t i = 0; i < a->n_queries; i++)
        attend_one(a, &a->queries[i]);
}

const struct indexer_kernels indexer_scalar = {.scores = scores, .attend = attend};
