/* arch_bailingmoe2.c: Ling 2 and Ring 2 (inclusionAI's BailingMoeV2). Q, K, V are one tensor.
 * Each head has an RMSNorm, and RoPE rotates part of a head. The first layer is dense. The
 * others have experts in groups, routed by a sigmoid plus a bias that counts for the selection
 * only. dots.llm1 has the same experts without groups, and separate Q, K and V. */
#include "arch/hparams.h"

static enum status read_common(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->qk_norm = QK_NORM_HEAD;
    hp->moe.gating = GATING_SIGMOID;
    TRY(hparams_drop_nextn(hp, g, err));
    return hparams_read_moe(hp, g, err);
}

static enum status read_bailing(struct hparams *hp, const struct gguf *g, struct err *err) {
    uint32_t n_shared;
    hp->fused_qkv = true;
    TRY(read_common(hp, g, err));
    TRY(hparam_u32(hp, g, "expert_shared_count", 1, &n_shared, err));
    const struct gguf_tensor *shared =
        hparams_layer_tensor(g, hparams_first_moe_layer(hp), "ffn_up_shexp.weight");
    /* The key is the width of all shared experts in some files, and of one in others. */
    if (shared != NULL && shared->dims[1] == (uint64_t)n_shared * hp->moe.n_ff_shared)
        hp->moe.n_ff_shared = (uint32_t)shared->dims[1];
    return ST_OK;
}

const struct arch arch_bailingmoe2 = {.name = "bailingmoe2", .read = read_bailing};
const struct arch arch_dots1 = {.name = "dots1", .read = read_common};
