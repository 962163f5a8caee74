/* kv.h: one rank's KV cache: pages of KV_PAGE positions, for the layers of its stage and the kv heads
 * of its share. A page id means the same on every rank; who owns which page is rank 0's business
 * (engine). The memory is reserved at once and becomes resident as pages are used. */
#ifndef LOCKSTEP_MODEL_KV_H
#define LOCKSTEP_MODEL_KV_H

#include "base/status.h"
#include "kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>

struct kv_cache {
    struct kv_shape shape;
    uint32_t n_layers, n_pages;
    size_t page_bytes; /* of one layer */
    uint8_t *data;     /* owned: [n_layers, n_pages, page_bytes] */
    size_t data_bytes;
};

enum status kv_open(struct kv_cache *kv, const struct kv_shape *shape, uint32_t n_layers,
                    uint32_t n_pages, struct err *err);
void kv_close(struct kv_cache *kv);

static inline uint8_t *kv_page(const struct kv_cache *kv, uint32_t layer, uint32_t page) {
    return kv->data + ((size_t)layer * kv->n_pages + page) * kv->page_bytes;
}

#endif
