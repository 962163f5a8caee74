/* kv_cache.c: The layout and the memory of one rank's KV cache. */
#include "model/kv_cache.h"

#include "base/mem.h"

static enum status too_large(struct err *err) {
    return err_set(err, ST_NO_MEMORY, "such a KV cache does not fit the address space");
}

/* Where the pages of the second kind begin: where a device may take them. */
static size_t second_kind(const struct kv_cache *kv) {
    return kv->kind_bytes[1] != 0 ? round_up(kv->kind_bytes[0], PIECES_PAGE)
                                  : kv->kind_bytes[0];
}

static enum status count_bytes(struct kv_cache *kv, const struct kv_keep *keeps,
                               struct err *err) {
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        const enum kv_kind kind = keeps[i].kind;
        size_t bytes;
        if (kind == KV_NONE)
            continue;
        if (!mul_size(kv->n_pages[kind], kv_page_bytes(&keeps[i].shape), &bytes) ||
            kv->data_bytes + bytes < bytes)
            return too_large(err);
        kv->kind_bytes[kind] += bytes;
        kv->data_bytes += bytes;
    }
    kv->data_bytes = second_kind(kv) + kv->kind_bytes[1];
    return ST_OK;
}

static void lay_out(struct kv_cache *kv, const struct kv_keep *keeps) {
    for (uint32_t i = 0; i < kv->n_layers; i++)
        if (keeps[i].kind != KV_NONE)
            kv->strides[keeps[i].kind] += kv_page_bytes(&keeps[i].shape);
    uint8_t *at[KV_KINDS];
    at[0] = kv->kinds[0] = kv->data;
    at[1] = kv->kinds[1] = kv->data + second_kind(kv);
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        const enum kv_kind kind = keeps[i].kind;
        if (kind == KV_NONE)
            continue;
        kv->layers[i] = (struct kv_layer){
            .shape = keeps[i].shape, .first = at[kind], .stride = kv->strides[kind]};
        at[kind] += kv_page_bytes(&keeps[i].shape);
    }
}

enum status kv_open(struct kv_cache *kv, const struct kv_keep *keeps, uint32_t n_layers,
                    const uint32_t n_pages[KV_KINDS], struct err *err) {
    struct kv_cache out = {.n_layers = n_layers};
    memcpy(out.n_pages, n_pages, sizeof out.n_pages);
    TRY(count_bytes(&out, keeps, err));
    out.layers = mem_calloc(n_layers, sizeof *out.layers);
    out.data = mem_huge_alloc(out.data_bytes);
    if (out.data == NULL || out.layers == NULL) {
        size_t bytes = out.data_bytes;
        kv_close(&out);
        return err_set(
            err, ST_NO_MEMORY,
            "no memory for a KV cache of %.2f GB: a shorter context (--ctx) needs less",
            (double)bytes * 1e-9);
    }
    lay_out(&out, keeps);
    *kv = out;
    return ST_OK;
}

void kv_close(struct kv_cache *kv) {
    if (kv->data != NULL)
        mem_huge_free(kv->data, kv->data_bytes);
    mem_free(kv->layers);
    *kv = (struct kv_cache){0};
}

enum status kv_parse_type(const char *text, enum kv_type *out, struct err *err) {
    static const char *const names[KV_N_TYPES] = {
        [KV_F16] = "f16", [KV_F32] = "f32", [KV_Q8_0] = "q8_0"};
    for (int i = 0; i < KV_N_TYPES; i++)
        if (str_eq(text != NULL ? text : "f16", names[i])) {
            *out = (enum kv_type)i;
            return ST_OK;
        }
    return err_set(err, ST_BAD_INPUT,
                   "keys and values cannot be kept as %s: expected f16, f32 or q8_0", text);
}
