/* Llama 1 to 3.3, Mistral, Mixtral (experts), and everything that is written as `llama`
 * (Granite Code has biases on all its matrices): grouped queries, RoPE in pairs (0,1),
 * (2,3)..., SwiGLU; llama-3's frequency scaling comes as the tensor rope_freqs. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NORM;
    hparams_find_biases(hp, g);
    hp->moe.normalize = true;
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_llama = {.name = "llama", .read = read};
