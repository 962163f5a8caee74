/* gpt-oss (model card of August 2025): every other layer sees a window, each query head has a
 * sink logit, biases everywhere, clamped SwiGLU, softmax over the chosen experts, YaRN. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->qkv_bias = hp->o_bias = hp->sinks = true;
    hp->norm_after_attn = true;
    hp->ffn_act = FFN_SWIGLU_OAI;
    hp->moe.gating = GATING_SOFTMAX_CHOSEN;
    hp->moe.biases = true;
    hp->window_period = 2;
    TRY(hparam_u32(hp, g, "attention.sliding_window", 0, &hp->window, err));
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_gpt_oss = {.name = "gpt-oss", .read = read};
