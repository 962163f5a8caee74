/* arch_llama.c: Llama 1 to 3.3, Mistral, Mixtral (experts), and all other files with the
 * architecture `llama` (Granite Code has biases on all its matrices). Grouped queries, SwiGLU,
 * RoPE in pairs (0,1), (2,3)... Llama 3's frequency scaling is the tensor rope_freqs. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NORM;
    hparams_find_biases(hp, g);
    hp->moe.normalize = true;
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_llama = {.name = "llama", .read = read};
