/* arch_gpt_oss.c: gpt-oss (model card of August 2025): every other layer has a window, each
 * query head has a sink logit, all matrices have biases. Clamped SwiGLU, softmax over the
 * selected experts, YaRN. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->qkv_bias = hp->o_bias = hp->sinks = true;
    hp->norm_after_attn = true;
    hp->ffn_act = FFN_SWIGLU_OAI;
    hp->moe.gating = GATING_SOFTMAX_CHOSEN;
    hp->moe.biases = true;
    TRY(hparams_read_window_period(hp, g, 2, err));
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_gpt_oss = {.name = "gpt-oss", .read = read};
