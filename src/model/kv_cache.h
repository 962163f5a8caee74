/* kv_cache.h: one rank's KV cache: pages of KV_PAGE positions, for the layers of its stage and
 * the kv heads of its share. A page id means the same on every rank. Rank 0 (engine) decides
 * which sequence owns which page. The memory is reserved at once and becomes resident as pages
 * are used, a little ahead of the steps (kv_prefault.h). A page's parts of all layers lie side
 * by side. If each layer's pages lay together, a step would now and then meet a fresh huge page
 * in every layer, and wait until 60 MB are cleared.
 *
 * There are two kinds of layers, and each kind has pages of its own: layers that see
 * everything, and layers with a window. The latter's pages are free again when the sequence has
 * passed by. So a long context costs the second kind no more than a short one. */
#ifndef LOCKSTEP_MODEL_KV_CACHE_H
#define LOCKSTEP_MODEL_KV_CACHE_H

#include "base/pieces.h"
#include "base/status.h"
#include "base/util.h"
#include "kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>

enum kv_kind { KV_WHOLE, KV_WINDOW, KV_KINDS, KV_NONE = KV_KINDS /* has no keys and values */ };

/* What a layer keeps; shape: of no meaning where kind is KV_NONE. */
struct kv_keep {
    enum kv_kind kind;
    struct kv_shape shape;
};

struct kv_layer {
    struct kv_shape shape;
    uint8_t *first; /* its part of page 0 */
    size_t stride;  /* bytes from page to page */
};

struct kv_cache {
    uint32_t n_layers, n_pages[KV_KINDS];
    uint8_t *data;            /* owned: the kinds in turn */
    uint8_t *kinds[KV_KINDS]; /* into data: the first page of each kind; of whole pages */
    size_t strides[KV_KINDS]; /* bytes of a page, all its layers; 0: no layer is of this kind */
    struct kv_layer *layers;  /* owned: [n_layers] */
    size_t data_bytes, kind_bytes[KV_KINDS]; /* what lies between the kinds is not counted */
};
static inline size_t kv_bytes(const struct kv_cache *kv) {
    return kv->kind_bytes[KV_WHOLE] + kv->kind_bytes[KV_WINDOW];
}

/* keeps [n_layers] */
enum status kv_open(struct kv_cache *kv, const struct kv_keep *keeps, uint32_t n_layers,
                    const uint32_t n_pages[KV_KINDS], struct err *err);
void kv_close(struct kv_cache *kv);

/* "f16" (also NULL), "f32", "q8_0". */
enum status kv_parse_type(const char *text, enum kv_type *out, struct err *err);

static inline uint8_t *kv_page(const struct kv_cache *kv, uint32_t layer, uint32_t page) {
    return kv->layers[layer].first + page * kv->layers[layer].stride;
}

/* The first page that the token at pos sees through a window of this many positions. */
static inline uint32_t kv_window_first(uint32_t window, uint32_t pos) {
    return pos >= window ? (pos + 1 - window) / KV_PAGE : 0;
}

/* How many pages of a layer with a window a sequence needs at once, if a step has at most
 * n_chunk of its tokens: from the first position that the first token sees, up to the last
 * token. window, n_ctx, n_chunk > 0. */
static inline uint32_t kv_window_pages(uint32_t window, uint32_t n_ctx, uint32_t n_chunk) {
    uint64_t span = (uint64_t)window + n_chunk - 1; /* it may begin at a page's last position */
    return (uint32_t)MIN(div_up(span - 1, KV_PAGE) + 1, div_up(n_ctx, KV_PAGE));
}

#endif
