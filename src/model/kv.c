#include "model/kv.h"

#include "base/mem.h"
#include "base/util.h"

enum status kv_open(struct kv_cache *kv, const struct kv_shape *shape, uint32_t n_layers,
                    uint32_t n_pages, struct err *err) {
    struct kv_cache out = {.shape = *shape, .n_layers = n_layers, .n_pages = n_pages};
    out.page_bytes = kv_page_bytes(shape);
    size_t pages;
    if (!mul_size(n_layers, n_pages, &pages) || !mul_size(pages, out.page_bytes, &out.data_bytes))
        return err_set(err, ST_NO_MEMORY, "a KV cache of %u pages does not fit the address space",
                       n_pages);
    out.data = mem_huge_alloc(out.data_bytes);
    if (out.data == NULL)
        return err_set(err, ST_NO_MEMORY,
                       "no memory for a KV cache of %.2f GB: a shorter context (--ctx) needs less",
                       (double)out.data_bytes * 1e-9);
    *kv = out;
    return ST_OK;
}

void kv_close(struct kv_cache *kv) {
    if (kv->data != NULL)
        mem_huge_free(kv->data, kv->data_bytes);
    *kv = (struct kv_cache){0};
}
