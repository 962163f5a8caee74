/* arch_hunyuan.c: Hunyuan (Tencent): an RMSNorm of each query and key head after RoPE.
 * hunyuan-moe has experts and a shared one in every layer. Routing is a softmax; weights are
 * divided by their sum. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->qk_norm = QK_NORM_HEAD_AFTER;
    hparams_find_biases(hp, g);
    hp->moe.normalize = true;
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_hunyuan_dense = {.name = "hunyuan-dense", .read = read};
const struct arch arch_hunyuan_moe = {.name = "hunyuan-moe", .read = read};
