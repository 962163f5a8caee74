/* arch_phi3.c: Phi-3 and Phi-4: Q, K, V in one tensor, gate and up in another. longrope uses
 * one of two tensors of frequency factors, by whether the context is longer than the original
 * one. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    (void)err;
    hp->rope.mode = ROPE_NEOX;
    hp->fused_qkv = hp->fused_ffn = true;
    if (gguf_tensor(g, "rope_factors_short.weight") != NULL)
        hp->rope_factors = hp->n_ctx_train > hp->rope.n_ctx_orig ? "rope_factors_long.weight"
                                                                 : "rope_factors_short.weight";
    return ST_OK;
}

const struct arch arch_phi3 = {.name = "phi3", .read = read};
