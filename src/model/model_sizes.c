/* model_sizes.c: what a share of a model keeps and sends, from its sizes alone. */
#include "base/util.h"
#include "model/compressed.h"
#include "model/on_device.h"

struct kv_shape model_kv_shape(const struct hparams *hp, const struct share *sh,
                               const struct attn_kind *kind, enum kv_type type) {
    const struct head_share *own = &sh->heads[kind - hp->attn];
    return (struct kv_shape){.type = type,
                             .latent = hp->mla.kv_rank != 0 || hp->compress.n_groups != 0,
                             .n_kv_heads = own->kv_end - own->kv_begin,
                             .k_dim = kind->head_dim,
                             .v_dim = kind->v_dim};
}

struct kv_keep model_kv_keep(const struct hparams *hp, const struct share *sh, uint32_t layer,
                             enum kv_type type) {
    const struct attn_kind *kind = hparams_attn(hp, layer);
    if (!hparams_layer_has_attention(hp, layer) || hparams_kv_layer(hp, layer) != layer)
        return (struct kv_keep){.kind = KV_NONE};
    return (struct kv_keep){.kind = kind->window != 0 ? KV_WINDOW : KV_WHOLE,
                            .shape = model_kv_shape(hp, sh, kind, type)};
}

void model_kv_page_bytes(const struct hparams *hp, const struct share *sh, enum kv_type type,
                         size_t bytes[KV_KINDS]) {
    const struct kv_shape index = indexer_shape(hp, type);
    memset(bytes, 0, KV_KINDS * sizeof *bytes);
    for (uint32_t i = sh->layer_begin; i < sh->layer_end; i++) {
        const struct kv_keep keep = model_kv_keep(hp, sh, i, type);
        if (keep.kind != KV_NONE)
            bytes[keep.kind] += kv_page_bytes(&keep.shape);
        if (indexer_has_keys(hp, i))
            bytes[KV_WHOLE] += kv_page_bytes(&index);
        struct kv_keep more[COMPRESSED_PARTS];
        compressed_keeps(more, hp, sh, i, type);
        for (int part = 0; part < COMPRESSED_PARTS; part++)
            if (more[part].kind != KV_NONE)
                bytes[more[part].kind] += kv_page_bytes(&more[part].shape);
    }
}

size_t model_index_page_bytes(const struct hparams *hp, const struct share *sh,
                              enum kv_type type) {
    const struct kv_shape index = indexer_shape(hp, type);
    size_t bytes = 0;
    for (uint32_t i = sh->layer_begin; i < sh->layer_end; i++) {
        struct kv_keep more[COMPRESSED_PARTS];
        compressed_keeps(more, hp, sh, i, type);
        bytes += indexer_has_keys(hp, i) ? kv_page_bytes(&index) : 0;
        if (more[COMPRESSED_INDEX].kind != KV_NONE)
            bytes += kv_page_bytes(&more[COMPRESSED_INDEX].shape);
    }
    return bytes;
}

uint32_t model_layer_sums(const struct hparams *hp, const struct plan *plan, uint32_t layer) {
    const bool moe = hparams_layer_is_moe(hp, layer);
    uint32_t n = 0;
    n += !hparams_layer_is(hp, layer, LAYER_NO_MIXER);
    n += hparams_layer_has_attention(hp, layer) && hp->qk_norm == QK_NORM_ROW;
    n += hparams_layer_is(hp, layer, LAYER_RECURRENT) && !recurrent_groups_are_whole(hp, plan);
    n += !hparams_layer_is(hp, layer, LAYER_NO_FFN);
    n += moe && hp->moe.dense_beside;
    n += moe && hp->moe.n_latent != 0;
    n += layer < hp->n_sparse;
    return n;
}

/* Of attention, beside its sums: an indexer's choice is the processor's, and so is what comes
 * before it; with latents there are products in between. */
static uint32_t attention_waits(const struct hparams *hp, uint32_t layer) {
    if (!hparams_layer_chooses(hp, layer))
        return 0;
    return hp->mla.kv_rank != 0 ? 2 : 1;
}

/* Recurrent layers of which the processor does a part wait for what it reads and for what their
 * output product reads, which is the processor's, and then for no sum. Nor is there anything to
 * wait for at the sums of layers with compressed keys. */
uint32_t model_layer_waits(const struct hparams *hp, const struct plan *plan, uint32_t layer) {
    const bool recurrent =
        hparams_layer_is(hp, layer, LAYER_RECURRENT) && !recurrent_is_on_device(hp);
    uint32_t n = plan->tp > 1 ? model_layer_sums(hp, plan, layer) : 0;
    if (hp->compress.n_groups != 0)
        return 6;
    if (recurrent && plan->tp > 1)
        n -= 1 + !recurrent_groups_are_whole(hp, plan);
    n += recurrent ? 2 : 0;
    if (hparams_layer_has_attention(hp, layer))
        n += attention_waits(hp, layer);
    if (hparams_layer_is_moe(hp, layer))
        n += !device_chooses(hp, layer);
    if (hp->n_layer_input != 0)
        n += layer == 0 ? 3 : 2;
    return n;
}

size_t model_kv_bytes(const struct model *m) {
    return kv_bytes(&m->kv) + kv_bytes(&m->index.kv) + kv_bytes(&m->compressed.kv);
}

size_t model_kv_window_bytes(const struct model *m) {
    return m->kv.kind_bytes[KV_WINDOW] + m->compressed.kv.kind_bytes[KV_WINDOW];
}

size_t model_state_bytes(const struct model *m) {
    return m->states.data_bytes;
}

size_t model_buffer_bytes(const struct model *m) {
    return m->block_bytes;
}

size_t model_max_message_bytes(const struct hparams *hp, uint32_t n_tokens_max) {
    size_t width = round_up(MAX(hp->n_embd, hp->moe.n_latent), TILE_ROWS);
    size_t sum = n_tokens_max * width * sizeof(int64_t);
    size_t rows = (size_t)LOGIT_ROWS * MAX(hp->n_vocab, hp->n_embd) * sizeof(float);
    size_t n_streams = MAX(hp->n_streams, hparams_n_kept(hp, hp->n_layers));
    size_t streams = n_tokens_max * n_streams * hp->n_embd * sizeof(float);
    return MAX(MAX(sum, rows), streams);
}
