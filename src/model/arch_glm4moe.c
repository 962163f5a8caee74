/* GLM-4.5 and 4.6: biases on Q, K and V, optional head norms, RoPE on part of a head, a dense
 * first layer, sigmoid gating with a bias that only chooses. The trailing layers that predict
 * further tokens (nextn) are left out. */
#include "model/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    uint32_t n_next;
    hp->rope.mode = ROPE_NEOX;
    hp->qkv_bias = gguf_tensor(g, "blk.0.attn_q.bias") != NULL;
    if (gguf_tensor(g, "blk.0.attn_q_norm.weight") != NULL)
        hp->qk_norm = QK_NORM_HEAD;
    hp->norm_after_attn = true;
    hp->moe.gating = GATING_SIGMOID;
    hp->moe.normalize = true;
    TRY(hparam_u32(hp, g, "nextn_predict_layers", 0, &n_next, err));
    if (n_next >= hp->n_layers)
        return err_set(err, ST_BAD_INPUT, "%s: %u of %u layers predict further tokens",
                       gguf_path(g), n_next, hp->n_layers);
    hp->n_layers -= n_next;
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_glm4moe = {.name = "glm4moe", .read = read};
