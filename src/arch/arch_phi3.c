/* arch_phi3.c: Phi-3 and Phi-4: Q, K, V in one tensor, gate and up in another. longrope has
 * two tensors of frequency factors; the second one is for contexts longer than the original. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    (void)err;
    hp->rope.mode = ROPE_NEOX;
    hp->fused_qkv = hp->fused_ffn = true;
    if (gguf_tensor(g, "rope_factors_short.weight") != NULL) {
        hp->rope_factors = "rope_factors_short.weight";
        hp->rope_factors_long = "rope_factors_long.weight";
    }
    return ST_OK;
}

const struct arch arch_phi3 = {.name = "phi3", .read = read};
