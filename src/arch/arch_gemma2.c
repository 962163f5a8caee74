/* arch_gemma2.c: Gemma 2 (arXiv 2408.00118): norms before and after each block, embeddings
 * times sqrt(n_embd), GELU. Every second layer has a window. Logits of attention and of tokens
 * are capped. */
#include "arch/hparams.h"

#include <math.h>

#define LAYERS_27B 46
#define WINDOW 4096
#define ATTN_SOFTCAP 50.0f
#define LOGIT_SOFTCAP 30.0f

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->post_norms = true;
    hp->ffn_act = FFN_GEGLU;
    hp->embed_scale = sqrtf((float)hp->n_embd);
    if (hp->n_layers == LAYERS_27B && !gguf_has(g, "gemma2.attention.scale"))
        hp->attn_scale = 1.0f / sqrtf((float)hp->n_embd / (float)hp->n_heads);
    TRY(hparams_read_window_period(hp, g, 2, err));
    if (!gguf_has(g, "gemma2.attention.sliding_window"))
        hp->window = WINDOW;
    TRY(hparams_read_softcap(hp, g, LOGIT_SOFTCAP, err));
    TRY(hparam_f32(hp, g, "attn_logit_softcapping", ATTN_SOFTCAP, &hp->attn_softcap, err));
    if (hp->attn_softcap >= 0.0f)
        return ST_OK;
    return err_set(err, ST_BAD_INPUT, "%s: gemma2.attn_logit_softcapping is negative",
                   gguf_path(g));
}

const struct arch arch_gemma2 = {.name = "gemma2", .read = read};
