/* arch_gemma4.c: Gemma 4: norms around each block, no scale in attention, GELU. Some layers
 * have a window and some have none; heads, RoPE and FFNs differ between the two kinds. The
 * small models have inputs for each layer and share caches. The large dense model uses keys as
 * values. One model has experts beside its dense FFN. */
#include "arch/hparams.h"

#include "base/util.h"

#include <math.h>

#define SOFTCAP 30.0f /* where the key is missing */

static enum status read_kinds(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct layer_heads heads;
    TRY(hparams_read_layer_heads(hp, g, &heads, err));
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        const uint32_t kept = hparams_kv_layer(hp, l);
        struct attn_kind kind;
        TRY(hparams_layer_kind(hp, g, &heads, l, &kind, err));
        kind.v_is_k = hparams_layer_tensor(g, kept, "attn_v.weight") == NULL;
        if (kind.v_is_k && kind.v_dim != kind.head_dim)
            return err_set(
                err, ST_BAD_INPUT,
                "%s: layer %u has no blk.%u.attn_v.weight, but keys of %u and values "
                "of %u dimensions",
                gguf_path(g), l, kept, kind.head_dim, kind.v_dim);
        TRY(hparams_set_attn(hp, g, l, &kind, err));
    }
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
    TRY(hparams_read_softcap(hp, g, SOFTCAP, err));
    TRY(hparams_read_layer_input(hp, g, err));
    TRY(hparams_read_windows(hp, g, err));
    TRY(hparams_read_shared_kv(hp, g, 0, err));
    TRY(read_kinds(hp, g, err));
    TRY(hparams_check_shared_kv(hp, g, err));
    return read_experts(hp, g, err);
}

const struct arch arch_gemma4 = {.name = "gemma4", .read = read, .layered = true};
