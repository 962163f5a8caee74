/* arch_nemotron_h.c: Nemotron H and Nemotron 3 (NVIDIA). Every layer has one block: attention
 * if head_count_kv is not 0, an FFN if feed_forward_length is not 0, otherwise Mamba-2.
 * Attention has no RoPE. An FFN has no gate, and squares max(up, 0). Experts are routed by
 * sigmoids plus a bias that counts for the selection only; Nemotron 3 Super's work in a latent
 * space. */
#include "arch/hparams.h"

static enum status read_nemotron_h(struct hparams *hp, const struct gguf *g, struct err *err) {
    uint32_t ff[HPARAMS_LAYERS_MAX];
    hp->ffn_act = FFN_RELU2;
    hparams_find_biases(hp, g);
    TRY(hparam_u32_of_layers(hp, g, "feed_forward_length", ff, err));
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        bool attention = hparams_layer_has_attention(hp, l);
        if (attention || ff[l] == 0)
            hp->layer_flags[l] |= LAYER_NO_FFN;
        else
            hp->layer_flags[l] = LAYER_NO_MIXER;
    }
    hparams_no_rope(hp, 1);
    return hparams_read_ssm(hp, g, RECURRENT_MAMBA2, err);
}

static enum status read_nemotron_h_moe(struct hparams *hp, const struct gguf *g,
                                       struct err *err) {
    TRY(read_nemotron_h(hp, g, err));
    hp->moe.gating = GATING_SIGMOID;
    TRY(hparams_read_moe(hp, g, err));
    return hparams_read_latent_experts(hp, g, "moe_latent_size", "latent", err);
}

const struct arch arch_nemotron_h = {
    .name = "nemotron_h", .read = read_nemotron_h, .hybrid = true};
const struct arch arch_nemotron_h_moe = {
    .name = "nemotron_h_moe", .read = read_nemotron_h_moe, .hybrid = true};
