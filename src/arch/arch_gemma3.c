/* arch_gemma3.c: Gemma 3: norms before and after each block, embeddings times sqrt(n_embd),
 * GELU. Five of six layers have a window. These have a RoPE base of their own and no RoPE
 * scaling. */
#include "arch/hparams.h"

#include <math.h>

#define LAYERS_27B 62

/* The bases of layers without a window and with one; under other names in what Ollama's
 * converter writes. */
static enum status read_bases(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct rope_params *r = &hp->rope;
    float local;
    if (!gguf_has(g, "gemma3.rope.freq_base"))
        TRY(hparam_f32(hp, g, "rope.global.freq_base", r->base, &r->base, err));
    TRY(hparam_f32(hp, g, "rope.local.freq_base", 10000.0f, &local, err));
    TRY(hparam_f32(hp, g, "rope.freq_base_swa", local, &local, err));
    if (!(r->base > 1.0f) || !(local > 1.0f))
        return err_set(err, ST_BAD_INPUT, "%s: RoPE bases of %g and %g, expected more than 1",
                       gguf_path(g), (double)r->base, (double)local);
    hparams_set_common(hp, local);
    return ST_OK;
}

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->qk_norm = QK_NORM_HEAD;
    hp->post_norms = true;
    hp->ffn_act = FFN_GEGLU;
    hp->embed_scale = sqrtf((float)hp->n_embd);
    if (hp->n_layers == LAYERS_27B) /* query_pre_attn_scalar of the 27B model */
        hp->attn_scale = 1.0f / sqrtf((float)hp->n_embd / (float)hp->n_heads);
    TRY(hparams_read_window_period(hp, g, 6, err));
    TRY(hparams_read_softcap(hp, g, 0.0f, err));
    return read_bases(hp, g, err);
}

const struct arch arch_gemma3 = {.name = "gemma3", .read = read};
