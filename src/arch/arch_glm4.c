/* arch_glm4.c: GLM-4 (0414): norms before and after each block, RoPE on pairs of part of a
 * head, gate and up in one tensor. Some models have biases on Q, K and V. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NORM;
    hp->post_norms = hp->fused_ffn = true;
    hparams_find_qkv_bias(hp, g);
    return hparams_drop_nextn(hp, g, err);
}

const struct arch arch_glm4 = {.name = "glm4", .read = read};
