/* arch_mistral3.c: Mistral 3 (Ministral 3, Devstral 2): a llama with YaRN that does not scale
 * cos and sin. Queries are scaled by their position (attention.temperature_scale). */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    float log_mul;
    hp->rope.mode = ROPE_NORM;
    hparams_find_biases(hp, g);
    TRY(hparam_f32(hp, g, "rope.scaling.yarn_log_multiplier", 0.0f, &log_mul, err));
    if (log_mul != 0.0f) /* mscale equals mscale_all_dim: they cancel */
        hp->rope.yarn_scales = false;
    TRY(hparam_f32(hp, g, "attention.temperature_scale", 0.0f, &hp->query_growth.scale, err));
    hp->query_growth.step = hp->rope.n_ctx_orig;
    if (hp->query_growth.scale != 0.0f && hp->query_growth.step == 0)
        return err_set(err, ST_BAD_INPUT,
                       "%s: mistral3.attention.temperature_scale without an original context",
                       gguf_path(g));
    hp->moe.normalize = true;
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_mistral3 = {.name = "mistral3", .read = read};
