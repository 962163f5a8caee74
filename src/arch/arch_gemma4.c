/* arch_gemma4.c: Gemma 4: norms around each block, no scale in attention, GELU. Some layers
 * have a window and some have none; heads, RoPE and FFNs differ between the two kinds. The
 * small models have inputs for each layer and share caches. The large dense model uses keys as
 * values. One model has experts beside its dense FFN. */
#include "arch/hparams.h"

#include "base/util.h"

#include <math.h>
#include <stdio.h>

#define LAYER_INPUT_MAX 65536

static enum status read_kinds(struct hparams *hp, const struct gguf *g, struct err *err) {
    uint32_t n_heads[HPARAMS_LAYERS_MAX], n_kv_heads[HPARAMS_LAYERS_MAX];
    TRY(hparam_u32_of_layers(hp, g, "attention.head_count", n_heads, err));
    TRY(hparam_u32_of_layers(hp, g, "attention.head_count_kv", n_kv_heads, err));
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        struct attn_kind kind = hparams_common_attn(hp, false);
        char name[64];
        if (hparams_layer_is(hp, l, LAYER_WINDOW))
            TRY(hparams_read_windowed(hp, g, &kind, err));
        kind.n_heads = n_heads[l];
        kind.n_kv_heads = n_kv_heads[l];
        snprintf(name, sizeof name, "blk.%u.attn_v.weight", hparams_kv_layer(hp, l));
        kind.v_is_k = gguf_tensor(g, name) == NULL;
        if (kind.v_is_k && kind.v_dim != kind.head_dim)
            return err_set(err, ST_BAD_INPUT,
                           "%s: layer %u has no %s, but keys of %u and values of %u dimensions",
                           gguf_path(g), l, name, kind.head_dim, kind.v_dim);
        TRY(hparams_set_attn(hp, g, l, &kind, err));
    }
    return ST_OK;
}

static enum status read_shared(struct hparams *hp, const struct gguf *g, struct err *err) {
    TRY(hparam_u32(hp, g, "attention.shared_kv_layers", 0, &hp->n_shared_kv, err));
    if (hp->n_shared_kv >= hp->n_layers)
        return err_set(err, ST_BAD_INPUT,
                       "%s: %u of %u layers use the keys and values of others", gguf_path(g),
                       hp->n_shared_kv, hp->n_layers);
    for (uint32_t l = hp->n_layers - hp->n_shared_kv; l < hp->n_layers; l++)
        if (hparams_kv_layer(hp, l) == l)
            return err_set(err, ST_BAD_INPUT,
                           "%s: layer %u has no keys and values, and no earlier layer of its "
                           "kind has them",
                           gguf_path(g), l);
    return ST_OK;
}

static enum status check_shared(const struct hparams *hp, const struct gguf *g,
                                struct err *err) {
    for (uint32_t l = hp->n_layers - hp->n_shared_kv; l < hp->n_layers; l++)
        if (hp->layer_attn[l] != hp->layer_attn[hparams_kv_layer(hp, l)])
            return err_set(err, ST_UNSUPPORTED,
                           "%s: layer %u uses the keys and values of layer %u, whose heads are "
                           "others",
                           gguf_path(g), l, hparams_kv_layer(hp, l));
    return ST_OK;
}

static enum status read_experts(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->moe.gating = GATING_SOFTMAX;
    hp->moe.normalize = true;
    TRY(hparams_read_moe(hp, g, err));
    hp->moe.dense_beside = hp->moe.n_experts != 0;
    return ST_OK;
}

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->qk_norm = QK_NORM_HEAD;
    hp->v_norm = true;
    hp->suppresses = true;
    hp->post_norms = true;
    hp->ffn_act = FFN_GEGLU;
    hp->embed_scale = sqrtf((float)hp->n_embd);
    TRY(hparam_f32(hp, g, "attention.scale", 1.0f, &hp->attn_scale, err));
    TRY(hparam_f32(hp, g, "final_logit_softcapping", 0.0f, &hp->logit_softcap, err));
    if (hp->logit_softcap < 0.0f)
        return err_set(err, ST_BAD_INPUT, "%s: gemma4.final_logit_softcapping is negative",
                       gguf_path(g));
    TRY(hparam_u32(hp, g, "embedding_length_per_layer_input", 0, &hp->n_layer_input, err));
    if (hp->n_layer_input > LAYER_INPUT_MAX)
        return err_set(err, ST_BAD_INPUT,
                       "%s: gemma4.embedding_length_per_layer_input is %u, expected at most %d",
                       gguf_path(g), hp->n_layer_input, LAYER_INPUT_MAX);
    TRY(hparams_read_windows(hp, g, err));
    TRY(read_shared(hp, g, err));
    TRY(read_kinds(hp, g, err));
    TRY(check_shared(hp, g, err));
    return read_experts(hp, g, err);
}

const struct arch arch_gemma4 = {.name = "gemma4", .read = read, .layered = true};
