/* arch_glm4moe.c: GLM-4.5 and 4.6: biases on Q, K and V, optional head norms, RoPE on part of a
 * head. The first layer is dense. Routing is a sigmoid plus a bias that counts for the
 * selection only. Trailing layers for multi-token prediction (nextn) are not loaded. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hparams_find_qkv_bias(hp, g);
    if (gguf_tensor(g, "blk.0.attn_q_norm.weight") != NULL)
        hp->qk_norm = QK_NORM_HEAD;
    hp->norm_after_attn = true;
    hp->moe.gating = GATING_SIGMOID;
    hp->moe.normalize = true;
    TRY(hparams_drop_nextn(hp, g, err));
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_glm4moe = {.name = "glm4moe", .read = read};
