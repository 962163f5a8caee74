/* arch_deepseek4.c: DeepSeek V4: several residual streams with hyper-connections. One head is both
 * key and value. A query sees a window of positions and, in most layers, keys that are each made
 * of a block of 4 or of 128 positions; of those of 4 an indexer selects. Layers with such keys
 * have a RoPE of their own, which YaRN stretches. The first layers take their experts from a table
 * of tokens. Trailing layers for multi-token prediction are not loaded. */
#include "arch/hparams.h"

#include "base/util.h"

#include <string.h>

#define MAX_RANK 65536
#define MAX_ITERATIONS 1000
#define STREAMS_MAX 8

static enum status read_ratios(struct hparams *hp, const struct gguf *g, struct err *err) {
    uint32_t of_layers[HPARAMS_LAYERS_MAX];
    TRY(hparam_u32_of_layers(hp, g, "attention.compress_ratios", of_layers, err));
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        const uint32_t ratio = of_layers[l];
        if (ratio != 0 && ratio != COMPRESS_FINE && ratio != COMPRESS_COARSE)
            return err_set(err, ST_UNSUPPORTED,
                           "%s: deepseek4.attention.compress_ratios is %u for layer %u, "
                           "expected 0, %d or %d",
                           gguf_path(g), ratio, l, COMPRESS_FINE, COMPRESS_COARSE);
        hp->compress.ratios[l] = (uint8_t)ratio;
    }
    return ST_OK;
}

/* The indexer is not one of struct indexer_params: it chooses among compressed keys. */
static enum status read_index(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct compress_params *c = &hp->compress;
    TRY(hparams_read_indexer(hp, g, err));
    c->top_k = hp->indexer.top_k;
    c->n_heads = hp->indexer.n_heads;
    c->k_dim = hp->indexer.k_dim;
    hp->indexer = (struct indexer_params){0};
    return ST_OK;
}

/* Layers keep what a compressed key is made of until it is: the block's positions, and those of
 * the block before. */
static uint32_t positions_kept(const struct hparams *hp, uint32_t window) {
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        const uint32_t ratio = hp->compress.ratios[l];
        window = MAX(window, ratio == COMPRESS_FINE ? 2 * ratio : ratio);
    }
    return window;
}

static enum status read_kinds(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct attn_kind plain = hparams_common_attn(hp, false), compressed = plain;
    uint32_t window;
    TRY(hparam_need_u32(hp, g, "attention.sliding_window", 1, UINT32_MAX / 4, &window, err));
    TRY(hparam_f32(hp, g, "attention.compress_rope_freq_base", hp->rope.base,
                   &compressed.rope.base, err));
    plain.window = compressed.window = window;
    plain.rope.scaling = ROPE_SCALING_NONE;
    plain.rope.factor = 1.0f;
    hp->window = positions_kept(hp, window);
    for (uint32_t l = 0; l < hp->n_layers; l++)
        TRY(hparams_set_attn(hp, g, l, hp->compress.ratios[l] != 0 ? &compressed : &plain,
                             err));
    return ST_OK;
}

static enum status read_compressed(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct compress_params *c = &hp->compress;
    hp->rope.mode = ROPE_NORM;
    hp->rope.yarn_scales = false;
    hp->sinks = true;
    TRY(hparam_need_u32(hp, g, "attention.q_lora_rank", 1, MAX_RANK, &c->q_rank, err));
    TRY(hparam_need_u32(hp, g, "attention.output_lora_rank", 1, MAX_RANK, &c->o_rank, err));
    TRY(hparam_need_u32(hp, g, "attention.output_group_count", 1, hp->n_heads, &c->n_groups,
                        err));
    if (hp->n_heads % c->n_groups != 0 || hp->n_kv_heads != 1 || hp->v_dim != hp->head_dim)
        return err_set(err, ST_BAD_INPUT,
                       "%s: %u heads in %u groups, %u of keys, of %u and %u dimensions: "
                       "expected equal groups, and one key that is its value",
                       gguf_path(g), hp->n_heads, c->n_groups, hp->n_kv_heads, hp->head_dim,
                       hp->v_dim);
    TRY(read_ratios(hp, g, err));
    TRY(read_index(hp, g, err));
    return read_kinds(hp, g, err);
}

static enum status read_hyper(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct hyper_params *h = &hp->hyper;
    TRY(hparam_need_u32(hp, g, "hyper_connection.count", 2, STREAMS_MAX, &hp->n_streams, err));
    TRY(hparam_need_u32(hp, g, "hyper_connection.sinkhorn_iterations", 1, MAX_ITERATIONS,
                        &h->n_iterations, err));
    TRY(hparam_f32(hp, g, "hyper_connection.epsilon", 1e-6f, &h->eps, err));
    if (h->eps >= 0.0f && h->eps < 1.0f)
        return ST_OK;
    return err_set(err, ST_BAD_INPUT,
                   "%s: deepseek4.hyper_connection.epsilon is %g, expected 0 to 1",
                   gguf_path(g), (double)h->eps);
}

static enum status read_experts(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->moe.gating = GATING_SQRT_SOFTPLUS;
    hp->ffn_act = FFN_SWIGLU_CLAMPED;
    TRY(hparams_read_moe(hp, g, err));
    if (hp->moe.n_experts == 0)
        return err_set(err, ST_BAD_INPUT, "%s: the key deepseek4.expert_count is missing or 0",
                       gguf_path(g));
    TRY(hparam_u32(hp, g, "hash_layer_count", 0, &hp->moe.n_hash, err));
    hp->moe.n_hash = MIN(hp->moe.n_hash, hp->n_layers);
    hp->moe.bias = hparams_layer_tensor(g, hp->moe.n_hash, "exp_probs_b.bias") != NULL;
    TRY(hparam_limits(hp, g, "swiglu_clamp_exp", hp->expert_limit, err));
    memcpy(hp->ffn_limit, hp->expert_limit, sizeof hp->ffn_limit);
    return ST_OK;
}

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    TRY(hparams_drop_nextn(hp, g, err));
    TRY(read_compressed(hp, g, err));
    TRY(read_hyper(hp, g, err));
    return read_experts(hp, g, err);
}

const struct arch arch_deepseek4 = {.name = "deepseek4", .read = read};
