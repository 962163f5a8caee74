/* arch_granite.c: Granite 3 (IBM): a llama with four factors: on embeddings, on what a block
 * adds to the residual stream, instead of 1/sqrt(head_dim) in attention, and (as a divisor) on
 * logits. granitemoe has experts; their weights are a softmax over the selected ones.
 * granitehybrid (Granite 4) has Mamba-2 if head_count_kv is 0, experts or not, and RoPE unless
 * rope.scaling.finetuned is false. */
#include "arch/hparams.h"

/* 0 is written where a model has no such factor. */
static enum status read_factor(const struct hparams *hp, const struct gguf *g, const char *name,
                               float fallback, float *out, struct err *err) {
    TRY(hparam_f32(hp, g, name, fallback, out, err));
    if (*out == 0.0f)
        *out = fallback;
    return ST_OK;
}

static enum status read_factors(struct hparams *hp, const struct gguf *g, struct err *err) {
    float divisor;
    hp->rope.mode = ROPE_NORM;
    hparams_find_biases(hp, g);
    TRY(read_factor(hp, g, "embedding_scale", 1.0f, &hp->embed_scale, err));
    TRY(read_factor(hp, g, "residual_scale", 1.0f, &hp->residual_scale, err));
    TRY(read_factor(hp, g, "attention.scale", 1.0f / sqrtf((float)hp->head_dim),
                    &hp->attn_scale, err));
    TRY(hparam_f32(hp, g, "logit_scale", 1.0f, &divisor, err));
    if (!(hp->embed_scale > 0) || !(hp->residual_scale > 0) || !(divisor > 0) ||
        !(hp->attn_scale > 0))
        return err_set(
            err, ST_BAD_INPUT,
            "%s: a factor of a Granite model is not more than 0: %g on embeddings, %g on "
            "residuals, %g on attention, 1/%g on logits",
            gguf_path(g), (double)hp->embed_scale, (double)hp->residual_scale,
            (double)hp->attn_scale, (double)divisor);
    hp->logit_scale = 1.0f / divisor;
    return ST_OK;
}

static enum status read_moe(struct hparams *hp, const struct gguf *g, struct err *err) {
    TRY(read_factors(hp, g, err));
    hp->moe.gating = GATING_SOFTMAX_CHOSEN;
    return hparams_read_moe(hp, g, err);
}

static enum status read_hybrid(struct hparams *hp, const struct gguf *g, struct err *err) {
    bool rope = true;
    enum status st = gguf_bool(g, "granitehybrid.rope.scaling.finetuned", &rope, err);
    if (st != ST_OK && st != ST_NOT_FOUND)
        return st;
    if (!rope)
        hparams_no_rope(hp, 1);
    TRY(read_moe(hp, g, err));
    return hparams_read_ssm(hp, g, RECURRENT_MAMBA2, err);
}

const struct arch arch_granitehybrid = {
    .name = "granitehybrid", .read = read_hybrid, .hybrid = true};
const struct arch arch_granite = {.name = "granite", .read = read_factors};
const struct arch arch_granitemoe = {.name = "granitemoe", .read = read_moe};
