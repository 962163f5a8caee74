/* Gemma 3: norms before and after each block, five layers with a window for each one without, which have
 * a RoPE base of their own and no scaling, embeddings times sqrt(n_embd), GELU. */
#include "model/hparams.h"

#include <math.h>

#define LAYERS_27B 62

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->qk_norm = QK_NORM_HEAD;
    hp->post_norms = true;
    hp->ffn_act = FFN_GEGLU;
    hp->embed_scale = sqrtf((float)hp->n_embd);
    hp->window_period = 6;
    if (hp->n_layers == LAYERS_27B) /* query_pre_attn_scalar of the 27B model */
        hp->attn_scale = 1.0f / sqrtf((float)hp->n_embd / (float)hp->n_heads);
    TRY(hparam_u32(hp, g, "attention.sliding_window", 0, &hp->window, err));
    return hparam_f32(hp, g, "rope.freq_base_swa", 10000.0f, &hp->rope.base_local, err);
}

const struct arch arch_gemma3 = {.name = "gemma3", .read = read};
