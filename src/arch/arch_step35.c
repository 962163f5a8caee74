/* arch_step35.c: Step 3.5: layers with a window and layers without one, with different numbers
 * of heads. Layers without a window rotate half of each head, with a base and factors of their
 * own. Each head's result is multiplied by the sigmoid of one number. The FFNs of some layers
 * have limits. Routing is a sigmoid plus a bias that counts for the selection only. There are
 * shared experts. Layers for multi-token prediction are not loaded. */
#include "arch/hparams.h"

static enum status read_kinds(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct layer_heads heads;
    TRY(hparams_read_layer_heads(hp, g, &heads, err));
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        struct attn_kind kind;
        TRY(hparams_layer_kind(hp, g, &heads, l, &kind, err));
        if (!hparams_layer_is(hp, l, LAYER_WINDOW))
            kind.rope.n_rot /= 2;
        TRY(hparams_set_attn(hp, g, l, &kind, err));
    }
    return ST_OK;
}

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->moe.gating = GATING_SIGMOID;
    if (gguf_tensor(g, "blk.0.attn_q_norm.weight") != NULL)
        hp->qk_norm = QK_NORM_HEAD;
    if (gguf_tensor(g, "blk.0.attn_gate.weight") != NULL)
        hp->attn_gate = ATTN_GATE_HEADS;
    TRY(hparams_drop_nextn(hp, g, err));
    TRY(hparams_read_windows(hp, g, err));
    TRY(read_kinds(hp, g, err));
    TRY(hparam_limits(hp, g, "swiglu_clamp_exp", hp->expert_limit, err));
    TRY(hparam_limits(hp, g, "swiglu_clamp_shexp", hp->ffn_limit, err));
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_step35 = {.name = "step35", .read = read, .layered = true};
