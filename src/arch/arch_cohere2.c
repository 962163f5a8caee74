/* arch_cohere2.c: Command R7B, Command A and Aya: LayerNorm without a bias; attention and FFN read
 * the same normed input, and both are added to the residual stream. Three of four layers have a
 * window and RoPE, the others see everything and have none. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NORM;
    hp->parallel_blocks = true;
    TRY(hparams_read_window_period(hp, g, 4, err));
    if (hp->window == 0)
        return err_set(err, ST_BAD_INPUT,
                       "%s: the key cohere2.attention.sliding_window is missing", gguf_path(g));
    hparams_no_rope(hp, hp->window_period);
    TRY(hparam_f32(hp, g, "logit_scale", 1.0f, &hp->logit_scale, err));
    hparams_set_common(hp, hp->rope.base);
    return ST_OK;
}

const struct arch arch_cohere2 = {.name = "cohere2", .read = read, .layer_norm = true};
