/* arch_minimax_m2.c: MiniMax M2: RMSNorm over the whole row of queries and of keys, RoPE on
 * part of a head. Routing is a sigmoid plus a bias that counts for the selection only. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->qk_norm = QK_NORM_ROW;
    hp->moe.gating = GATING_SIGMOID;
    hp->moe.normalize = true;
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_minimax_m2 = {.name = "minimax-m2", .read = read};
