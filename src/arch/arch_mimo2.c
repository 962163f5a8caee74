/* arch_mimo2.c: MiMo-V2-Flash: most layers have a window, with other numbers of heads and another
 * base of RoPE. Keys are wider than values. Layers may have a sink logit for each query head.
 * Routing is a sigmoid plus a bias that counts for the selection only. */
#include "arch/hparams.h"

#include <stdio.h>

static bool has_in(const struct gguf *g, uint32_t layer, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    return gguf_tensor(g, full) != NULL;
}

static enum status read_kinds(struct hparams *hp, const struct gguf *g, struct err *err) {
    uint32_t n_heads[HPARAMS_LAYERS_MAX], n_kv_heads[HPARAMS_LAYERS_MAX];
    TRY(hparam_u32_of_layers(hp, g, "attention.head_count", n_heads, err));
    TRY(hparam_u32_of_layers(hp, g, "attention.head_count_kv", n_kv_heads, err));
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        struct attn_kind kind = hparams_common_attn(hp, false);
        if (hparams_layer_is(hp, l, LAYER_WINDOW))
            TRY(hparams_read_windowed(hp, g, &kind, err));
        kind.n_heads = n_heads[l];
        kind.n_kv_heads = n_kv_heads[l];
        TRY(hparams_set_attn(hp, g, l, &kind, err));
        if (has_in(g, l, "attn_sinks.weight"))
            hp->layer_flags[l] |= LAYER_SINKS;
    }
    return ST_OK;
}

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->moe.gating = GATING_SIGMOID;
    hp->moe.normalize = true;
    TRY(hparams_drop_nextn(hp, g, err));
    TRY(hparams_read_windows(hp, g, err));
    TRY(read_kinds(hp, g, err));
    TRY(hparam_f32(hp, g, "attention.value_scale", 1.0f, &hp->value_scale, err));
    TRY(hparams_read_moe(hp, g, err));
    if (!gguf_has(g, "mimo2.leading_dense_block_count"))
        while (hp->moe.n_dense < hp->n_layers &&
               !has_in(g, hp->moe.n_dense, "ffn_gate_inp.weight"))
            hp->moe.n_dense++;
    hp->moe.bias = has_in(g, hp->moe.n_dense, "exp_probs_b.bias");
    return ST_OK;
}

const struct arch arch_mimo2 = {.name = "mimo2", .read = read, .layered = true};
