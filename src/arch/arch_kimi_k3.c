/* arch_kimi_k3.c: Kimi K3. The layers are those of Kimi Linear, with a bounded decay and gates on
 * both kinds of attention. What a half layer reads is mixed over depth: of streams that earlier
 * layers have left and of the current one. Experts work in a latent space. */
#include "arch/hparams.h"

/* A number that must be there, and lie between 0 and `most`, or between `most` and 0. */
static enum status need_f32(const struct hparams *hp, const struct gguf *g, const char *name,
                            float most, float *out, struct err *err) {
    TRY(hparam_f32(hp, g, name, NAN, out, err));
    const float x = *out / most;
    if (x > 0.0f && x <= 1.0f)
        return ST_OK;
    return err_set(err, ST_BAD_INPUT,
                   "%s: %s.%s is missing or makes no sense: expected a number between 0 and %g",
                   gguf_path(g), hp->arch->name, name, (double)most);
}

static enum status read_mix(struct hparams *hp, const struct gguf *g, struct err *err) {
    TRY(hparam_need_u32(hp, g, "attn_res.block_size", 1, HPARAMS_LAYERS_MAX, &hp->mix_block,
                        err));
    if (hparams_n_kept(hp, hp->n_layers) < DEPTH_MIX_MAX)
        return ST_OK;
    return err_set(err, ST_UNSUPPORTED,
                   "%s: %u residual streams are mixed: expected at most %d", gguf_path(g),
                   hparams_n_kept(hp, hp->n_layers) + 1, DEPTH_MIX_MAX);
}

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->moe.gating = GATING_SIGMOID;
    hp->moe.normalize = true;
    hp->ffn_act = FFN_SITU;
    hp->recurrent.whole_gate = true;
    hp->attn_gate = ATTN_GATE_VALUES;
    TRY(hparams_drop_nextn(hp, g, err));
    TRY(hparams_read_mla(hp, g, err));
    hparams_no_rope(hp, 1);
    TRY(hparams_read_kda(hp, g, err));
    TRY(need_f32(hp, g, "kda.gate_lower_bound", -1e4f, &hp->recurrent.least_decay, err));
    TRY(need_f32(hp, g, "activation.situ_beta", 1e4f, &hp->situ.gate, err));
    TRY(need_f32(hp, g, "activation.situ_linear_beta", 1e4f, &hp->situ.up, err));
    TRY(read_mix(hp, g, err));
    TRY(hparams_read_moe(hp, g, err));
    return hparams_read_latent_experts(hp, g, "expert_latent_length", "routed", err);
}

const struct arch arch_kimi_k3 = {.name = "kimi-k3", .read = read, .hybrid = true};
