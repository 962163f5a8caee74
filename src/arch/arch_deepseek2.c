/* arch_deepseek2.c: DeepSeek V2, V2-lite, V3, R1 and Kimi K2: latent attention, a few dense
 * layers, then many small experts with shared ones. V2 routes by softmax, V3 by a sigmoid plus
 * a bias that counts for the selection only. Both select within the best groups (arXiv
 * 2405.04434, 2412.19437). A group's score is that of its best expert in V2, and the sum of its
 * best two in V3. No key says which, but the routing does.
 *
 * For each position the cache has the normed latent and the rotated key part, shared by all
 * heads. This is the absorbed form: queries are projected into the latent space, results out of
 * it. Some files split the up-projection into attn_k_b (transposed) and attn_v_b and have one
 * kv head. Others have it whole as attn_kv_b. */
#include "arch/hparams.h"
#include "base/exact.h"

enum status hparams_read_mla(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct mla_params *mla = &hp->mla;
    uint32_t key_dim;
    TRY(hparam_need_u32(hp, g, "attention.kv_lora_rank", 1, 65536, &mla->kv_rank, err));
    TRY(hparam_u32(hp, g, "attention.q_lora_rank", 0, &mla->q_rank, err));
    TRY(hparam_u32(hp, g, "attention.key_length_mla", hp->head_dim, &key_dim, err));
    TRY(hparam_u32(hp, g, "attention.value_length_mla", hp->v_dim, &mla->v_dim, err));
    if (key_dim <= hp->rope.n_rot || key_dim > 65536 || mla->v_dim == 0 || mla->v_dim > 65536 ||
        mla->q_rank > (1u << 20))
        return err_set(err, ST_BAD_INPUT,
                       "%s: latent attention with keys of %u, values of %u and %u turning "
                       "dimensions makes no sense",
                       gguf_path(g), key_dim, mla->v_dim, hp->rope.n_rot);
    mla->nope = key_dim - hp->rope.n_rot;
    hp->n_kv_heads = 1;
    hp->head_dim = mla->kv_rank + hp->rope.n_rot;
    hp->v_dim = mla->kv_rank;
    hp->attn_scale = 1.0f / sqrtf((float)key_dim);
    return ST_OK;
}

/* YaRN as DeepSeek trained it: the attention factor goes to the logits, squared, instead of to cos
 * and sin. The file's yarn_log_multiplier is 0.1 * mscale_all_dim. */
static enum status read_yarn(struct hparams *hp, const struct gguf *g, struct err *err) {
    float log_mul;
    TRY(hparam_f32(hp, g, "rope.scaling.yarn_log_multiplier", 0.0f, &log_mul, err));
    if (hp->rope.scaling != ROPE_SCALING_YARN || log_mul == 0.0f)
        return ST_OK;
    double mscale = 1.0 + (double)log_mul * exact_log64((double)hp->rope.factor);
    hp->rope.yarn_scales = false;
    hp->attn_scale = (float)((double)hp->attn_scale * mscale * mscale);
    return ST_OK;
}

enum status hparams_read_deepseek(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NORM;
    TRY(hparams_read_mla(hp, g, err));
    TRY(read_yarn(hp, g, err));
    TRY(hparams_read_moe(hp, g, err));
    hp->moe.groups_by_best = hp->moe.gating == GATING_SOFTMAX;
    return ST_OK;
}

const struct arch arch_deepseek2 = {.name = "deepseek2", .read = hparams_read_deepseek};
