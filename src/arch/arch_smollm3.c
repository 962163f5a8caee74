/* arch_smollm3.c: SmolLM3: a llama without RoPE in every fourth layer (arXiv 2501.18795). */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    (void)err;
    hp->rope.mode = ROPE_NORM;
    hparams_no_rope(hp, 4);
    hparams_find_biases(hp, g);
    return ST_OK;
}

const struct arch arch_smollm3 = {.name = "smollm3", .read = read};
