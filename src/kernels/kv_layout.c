/* kv_layout.c: the layout of keys and values in a page of the KV cache, and their conversion to
 * q8_0. The code is the same on every instruction set. */
#include "base/util.h"
#include "kernels/kernels.h"
#include "quant/quant.h"

#include <math.h>

static size_t n_blocks(size_t n) {
    return div_up(n, KV_BLOCK);
}

struct kv_layout kv_layout(const struct kv_shape *s) {
    size_t value = kv_value_bytes(s->type), scale = s->type == KV_Q8_0 ? 2 : 0;
    size_t k = s->latent ? round_up(s->k_dim, TILE_ROWS) : s->k_dim;
    size_t v = s->latent ? 0 : round_up(s->v_dim, TILE_ROWS);
    size_t n = s->n_slots != 0 ? s->n_slots : KV_PAGE;
    struct kv_layout l = {.k_scales = n * k * value};
    l.v = l.k_scales + n * n_blocks(k) * scale;
    l.v_scales = l.v + n * v * value;
    l.bytes = l.v_scales + n * n_blocks(v) * scale;
    if (s->latent) {
        l.v = 0;
        l.v_scales = l.k_scales;
    }
    return l;
}

size_t kv_page_bytes(const struct kv_shape *s) {
    return round_up(s->n_kv_heads * kv_layout(s).bytes, CACHE_LINE);
}

/* The codes go to q[0], q[stride]...; their scale is returned. */
static uint16_t quantize_block(const float *x, size_t n, int8_t *q, size_t stride) {
    float amax = 0;
    for (size_t i = 0; i < n; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    uint16_t scale = f32_to_f16(amax / 127.0f < 65504.0f ? amax / 127.0f : 65504.0f);
    float d = f16_to_f32(scale);
    for (size_t i = 0; i < n; i++) {
        float v = d != 0 ? x[i] / d : 0;
        v = v < 127 ? v : 127;
        q[i * stride] = (int8_t)rintf(v > -127 ? v : -127);
    }
    return scale;
}

/* A row of n values padded with zeros to n_pad: codes and scales side by side. */
static void store_row_q8_0(const float *x, size_t n, size_t n_pad, uint8_t *codes,
                           uint8_t *scales) {
    memset(codes + n, 0, n_pad - n);
    for (size_t d = 0; d < n_pad; d += KV_BLOCK) {
        uint16_t scale = 0; /* of a block of padding */
        if (d < n)
            scale = quantize_block(x + d, MIN(n - d, KV_BLOCK), (int8_t *)codes + d, 1);
        memcpy(scales + d / KV_BLOCK * 2, &scale, 2);
    }
}

/* A lane is a position. */
static void store_k_q8_0(const struct kv_shape *s, uint8_t *head, uint32_t slot,
                         const float *k) {
    uint8_t *scales = head + kv_layout(s).k_scales;
    size_t tile = slot / 16, lane = slot % 16;
    for (size_t d = 0; d < s->k_dim; d += KV_BLOCK) {
        int8_t *codes = (int8_t *)head + (tile * s->k_dim + d) * 16 + lane;
        uint16_t scale = quantize_block(k + d, MIN(s->k_dim - d, KV_BLOCK), codes, 16);
        memcpy(scales + ((tile * n_blocks(s->k_dim) + d / KV_BLOCK) * 16 + lane) * 2, &scale,
               2);
    }
}

void kv_store_q8_0(const struct kv_shape *s, uint8_t *page, uint32_t slot, const float *k,
                   const float *v) {
    const struct kv_layout l = kv_layout(s);
    size_t n = s->latent ? s->k_dim : s->v_dim, n_pad = round_up(n, TILE_ROWS);
    for (size_t h = 0; h < s->n_kv_heads; h++) {
        uint8_t *head = page + h * l.bytes;
        if (!s->latent)
            store_k_q8_0(s, head, slot, k + h * s->k_dim);
        store_row_q8_0(s->latent ? k + h * n : v + h * n, n, n_pad, head + l.v + slot * n_pad,
                       head + l.v_scales + slot * n_blocks(n_pad) * 2);
    }
}

/* Logits of 16 queries over a span, their probabilities, a converted K tile or V rows, results
 * of queries that are processed together, and up to four transposed K tiles. */
size_t attn_scratch_floats(const struct kv_shape *s) {
    size_t k_pad = round_up(s->k_dim, TILE_ROWS), dims = k_pad + round_up(s->v_dim, TILE_ROWS);
    return (size_t)16 * ATTN_SPAN * 2 + (16 + ATTN_TOGETHER) * dims +
           (s->latent ? 4 * 16 * k_pad : 0);
}
