/* arch_gemma.c: Gemma 1: a llama with GELU, embeddings times sqrt(n_embd), and a tied output
 * matrix. */
#include "arch/hparams.h"

#include <math.h>

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    (void)g;
    (void)err;
    hp->rope.mode = ROPE_NEOX;
    hp->ffn_act = FFN_GEGLU;
    hp->embed_scale = sqrtf((float)hp->n_embd);
    return ST_OK;
}

const struct arch arch_gemma = {.name = "gemma", .read = read};
