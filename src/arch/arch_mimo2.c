/* arch_mimo2.c: MiMo-V2-Flash: most layers have a window, with other numbers of heads and another
 * base of RoPE. Keys are wider than values. Layers may have a sink logit for each query head.
 * Routing is a sigmoid plus a bias that counts for the selection only. */
#include "arch/hparams.h"

static enum status read_kinds(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct layer_heads heads;
    TRY(hparams_read_layer_heads(hp, g, &heads, err));
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        struct attn_kind kind;
        TRY(hparams_layer_kind(hp, g, &heads, l, &kind, err));
        TRY(hparams_set_attn(hp, g, l, &kind, err));
        if (hparams_layer_tensor(g, l, "attn_sinks.weight") != NULL)
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
               hparams_layer_tensor(g, hp->moe.n_dense, "ffn_gate_inp.weight") == NULL)
            hp->moe.n_dense++;
    hp->moe.bias = hparams_layer_tensor(g, hp->moe.n_dense, "exp_probs_b.bias") != NULL;
    return ST_OK;
}

const struct arch arch_mimo2 = {.name = "mimo2", .read = read, .layered = true};
