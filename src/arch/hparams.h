/* hparams.h: a model's sizes and options, read from a GGUF's metadata and checked.
 *
 * hparams_read() finds the architecture in a table (arch_*.c). Each architecture reads its own
 * keys with the helpers below. After ST_OK every number is in a range that the rest of the
 * project may multiply without overflow. */
#ifndef LOCKSTEP_ARCH_HPARAMS_H
#define LOCKSTEP_ARCH_HPARAMS_H

#include "base/status.h"
#include "format/gguf.h"
#include "kernels/activation.h"
#include "kernels/kernels.h"
#include "mixers/recurrent.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Ten times the deepest published model; a struct hparams has to fit a caller's small stack. */
/* Streams that a token may keep for mixtures over depth, the current one included. */
#define DEPTH_MIX_MAX 64
#define HPARAMS_LAYERS_MAX 1024

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN };

struct rope_params {
    enum rope_mode mode;
    uint32_t n_rot; /* dimensions of a head that turn; even, <= head_dim */
    float base;
    enum rope_scaling scaling;
    float factor;        /* context stretched by this much; 1: none */
    uint32_t n_ctx_orig; /* trained context, for yarn */
    float attn_factor;   /* multiplies cos and sin */
    bool yarn_scales;    /* yarn's own factor 1 + 0.1 ln(factor) multiplies cos and sin too */
    float beta_fast, beta_slow;
    bool yarn_between; /* the ramp's bounds may lie between two pairs: gpt-oss's folders */
};

/* What the attention of some layers is like. Most models have one kind; where some layers have a
 * window, these are another. */
struct attn_kind {
    uint32_t n_heads, n_kv_heads; /* n_heads is a multiple of n_kv_heads */
    uint32_t head_dim, v_dim;     /* of keys and queries, of values, as cached */
    uint32_t window;              /* positions that a query sees, its own included; 0: all */
    struct rope_params rope;
    bool rope_factors; /* hparams.rope_factors divides its frequencies */
    bool v_is_k;       /* there is no attn_v: a value is its key before norm and RoPE */
};
#define ATTN_KINDS_MAX 4
/* Different widths that the dense FFNs of a model may have. */
#define FF_WIDTHS_MAX 8

enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD,       /* RMSNorm of each query and key head before RoPE */
    QK_NORM_ROW,        /* RMSNorm of all query heads together, and of all key heads */
    QK_NORM_HEAD_AFTER, /* as HEAD, but after RoPE */
    QK_NORM_PLAIN,      /* after RoPE and without weights, in the layers that have RoPE */
};

/* What a head's result is multiplied by: sigmoids of */
enum attn_gate {
    ATTN_GATE_NONE,
    ATTN_GATE_IN_Q,  /* a gate for each value, which stands behind the head's query in attn_q */
    ATTN_GATE_HEADS, /* attn_gate: one number for a head */
    ATTN_GATE_VALUES, /* attn_gate: one for each value; of latent attention */
};

/* Mixture of experts; n_experts = 0: none. */
struct moe_params {
    uint32_t n_experts, n_used;
    uint32_t n_ff;        /* of one expert */
    uint32_t n_ff_shared; /* of the shared experts together; 0: none */
    /* Experts, but not the shared ones, read x through a matrix with this many rows, and their sum
     * goes through another to the residual stream; 0: they read x. */
    uint32_t n_latent;
    const char *latent_name; /* of these matrices: "latent" for ffn_latent_down and _up */
    uint32_t n_dense;        /* the first layers are dense */
    uint32_t period; /* of the others, layer l has experts if (l + 1) % period == 0; 0: all */
    uint32_t n_groups,
        n_groups_used; /* experts are chosen within the best groups; 1, 1: no groups */
    /* a group counts by its best expert, instead of by the sum of its best two */
    bool groups_by_best;
    enum gating gating;
    bool normalize; /* the chosen weights are divided by their sum */
    float scale;    /* and multiplied with this */
    /* In this many first layers a token's experts are those of a table (ffn_gate_tid2eid), and
     * have no bias. */
    uint32_t n_hash;
    bool bias;          /* exp_probs_b: added to the probabilities for choosing only */
    bool biases;        /* ffn_*_exps.bias and ffn_gate_inp.bias exist */
    bool shared_router; /* ffn_gate_inp_shexp: its sigmoid is the shared experts' weight */
    bool weighs_input;  /* a weight multiplies what its expert reads, not what it gives */
    /* A layer with experts has a dense FFN, too. Each reads x through a norm of its own, and their
     * results are normed before they are added; the router reads x over its RMS, times
     * ffn_gate_inp.scale / sqrt(n_embd), and weights are times ffn_down_exps.scale. */
    bool dense_beside;
};

/* Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434); kv_rank = 0: none. */
struct mla_params {
    uint32_t q_rank;  /* 0: queries come straight from attn_q */
    uint32_t kv_rank; /* of the cached latent */
    uint32_t nope;    /* dimensions of a head without RoPE */
    uint32_t v_dim;   /* of a head's value, before the output product */
};

/* Attention with a choice of keys: an indexer, which has queries and keys of its own, gives the
 * positions scores, and a query attends to the best only (mixers/indexer.h). */
struct indexer_params {
    uint32_t top_k;          /* keys, or blocks of them, that a query attends to; 0: to all */
    uint32_t n_heads, k_dim; /* of the indexer's queries; its key is shared by them */
    enum rope_mode rope;     /* of the first n_rot dimensions */
    /* a layer that is not LAYER_INDEXED attends to what the last one that is has chosen; else to
     * everything */
    bool shared;
    /* Not 0: each key-value head has one query in the indexer, and selects blocks of this many
     * positions for its own query heads. A block's score is that of its best position. The last
     * n_local blocks are always selected. */
    uint32_t block, n_local;
};

/* A compressed key is of this many positions. */
#define COMPRESS_FINE 4 /* overlaps the block before, and an indexer chooses among them */
#define COMPRESS_COARSE 128

/* Attention with one head that is both key and value, to a window of positions and to keys that
 * are each made of a block of positions (compressed.c); n_groups = 0: none. */
struct compress_params {
    uint32_t q_rank;                    /* of the low-rank queries */
    uint32_t n_groups, o_rank;          /* query heads share a low-rank output by groups */
    uint8_t ratios[HPARAMS_LAYERS_MAX]; /* COMPRESS_*; 0: the layer sees its window alone */
    /* Of the indexer in layers that are COMPRESS_FINE. */
    uint32_t top_k, n_heads, k_dim;
};

/* Streams that are mixed before and after each half layer (hyper.c, arXiv 2512.24880);
 * n_iterations = 0: none. Their number is n_streams. */
struct hyper_params {
    uint32_t n_iterations; /* that make the mixture doubly stochastic */
    float eps;
};

/* Layers that keep a state of a fixed size in place of keys and values. */
enum recurrent_kind {
    RECURRENT_NONE,
    RECURRENT_DELTA,      /* gated delta net (arXiv 2412.06464) */
    RECURRENT_MAMBA2,     /* arXiv 2405.21060 */
    RECURRENT_SHORT_CONV, /* LFM2's gated convolution, whose history is all that it keeps */
};

struct recurrent_params {
    enum recurrent_kind kind; /* of all layers that are LAYER_RECURRENT */
    uint32_t n_taps;          /* of the convolution, the token's own included */
    uint32_t n_groups;        /* key heads, or groups of B and C; divides n_heads */
    uint32_t n_heads;         /* value heads */
    uint32_t k_dim, v_dim;    /* of a head's state */
    bool tiled; /* value head h reads key head h % n_groups, not h / (n_heads / n_groups) */
    bool joint_gates; /* ssm_ba: of each key head its betas, then its alphas */
    bool joint_in;    /* ssm_in: of each key head q, k, its v heads and its z heads */
    /* Kimi's delta net: each key channel decays by itself, by a low-rank product of k_dim; so is
     * the gate of the results, of which the sigmoid counts. q, k and v have matrices of their
     * own. */
    bool by_channel;
    bool whole_gate; /* then the gate is a product of x, ssm_g */
    float
        least_decay; /* then a decay's logarithm is it times a sigmoid; 0: a softplus times ssm_a */
};

/* What a layer differs in from attention followed by an FFN. */
enum layer_flags {
    LAYER_RECURRENT = 1, /* in place of attention */
    LAYER_NO_MIXER = 2,  /* the FFN alone */
    LAYER_NO_FFN = 4,
    LAYER_NO_ROPE = 8,  /* queries and keys do not turn */
    LAYER_WINDOW = 16,  /* of an architecture whose file says which layers have one */
    LAYER_INDEXED = 32, /* has an indexer (struct indexer_params) */
    LAYER_SINKS = 64,   /* of an architecture whose layers may have sinks, or not */
};
/* Keys that a query chooses. */
#define HPARAMS_CHOSEN_MAX (1u << 20)
/* Value heads that read the same key head, where they are tiled. */
#define RECURRENT_PIECES_MAX 64

/* Queries are scaled by their position p, so that attention stays sharp in long contexts: times
 * 1 + scale * ln(1 + floor((p + first) / step)). */
struct query_growth {
    float scale; /* 0: they do not */
    uint32_t step, first;
    bool nope_only; /* in layers without RoPE */
};

struct hparams {
    const struct arch *arch;
    uint32_t n_layers, n_embd, n_vocab, n_ctx_train;
    /* Of attention, as the keys say it for the whole model; what is computed goes by the kinds
     * below, and these are for reading and for latent attention, which has one kind. */
    uint32_t n_heads, n_kv_heads;
    uint32_t head_dim, v_dim;
    struct rope_params rope;
    /* The kinds that layers are of, and each layer's (0 where it has no attention). */
    struct attn_kind attn[ATTN_KINDS_MAX];
    uint32_t n_attn;
    uint8_t layer_attn[HPARAMS_LAYERS_MAX];
    uint32_t n_ff; /* the largest of: */
    uint32_t ff_widths[FF_WIDTHS_MAX], n_ff_widths;
    uint8_t layer_ff[HPARAMS_LAYERS_MAX]; /* which of these a dense layer has */
    float rms_eps;
    float attn_scale; /* of the logits: 1/sqrt(head_dim) unless the file says otherwise */
    struct moe_params moe;
    struct mla_params mla;
    struct indexer_params indexer;
    struct compress_params compress;
    enum qk_norm qk_norm; /* attn_{q,k}_norm */
    enum ffn_act ffn_act;
    struct situ_params situ;
    bool qkv_bias;        /* attn_{q,k,v}.bias exist */
    bool o_bias;          /* attn_output.bias exists */
    bool ffn_bias;        /* ffn_{gate,up,down}.bias exist in dense layers */
    bool sinks;           /* attn_sinks: one logit per query head */
    bool fused_qkv;       /* attn_qkv holds Q, K and V one after the other */
    bool fused_ffn;       /* ffn_up holds gate and up one after the other */
    bool parallel_blocks; /* the FFN reads what attention reads, and has no norm of its own */
    bool no_pre_norms;    /* a block reads the residual stream as it is */
    /* post_attention_norm, post_ffw_norm: of a block's result before it is added to the
     * residual stream */
    bool post_norms;
    bool norm_after_attn; /* the FFN's norm is called post_attention_norm */
    bool tied;            /* no output.weight: the token embedding is the output matrix */
    float embed_scale;    /* multiplies embeddings; 1: none */
    float residual_scale; /* what a block adds to the residual stream; 1: none */
    float logit_scale;    /* the normed hidden state before the output matrix; 1: none */
    bool
        suppresses; /* the file may list tokens that never come (tokenizer.ggml.suppress_tokens) */
    float logit_softcap; /* a logit x becomes c * tanh(x / c); 0: none */
    float value_scale;   /* multiplies values before they are kept; 1: none */
    float attn_softcap;  /* the same of attention's, after their scale */
    /* The last layers have no keys and values, and use those of the last earlier layer with a
     * window, or without one, as they are (hparams_kv_layer). */
    uint32_t n_shared_kv;
    bool v_norm; /* RMSNorm without weights of each value head */
    /* The size of the input that each layer gets for a token and adds to the residual stream
     * (layer_input.c); 0: none. */
    uint32_t n_layer_input;
    /* The residual stream is several, of which the layers compute the first (streams.c); 0: it is
     * one. Then n_laurel is the rank of what a layer adds to its attention. */
    uint32_t n_streams, n_laurel;
    struct hyper_params
        hyper; /* which the layers compute of all streams, in place of the first */
    /* Not 0: each of this many layers leaves the residual stream to the later ones, which read a
     * mixture of all that were left and the current one (depth.c). */
    uint32_t mix_block;
    /* In this many first layers a gate counts from the mean of its row plus this many standard
     * deviations on. */
    uint32_t n_sparse;
    float sparse_deviations;
    /* Positions that a windowed layer sees, itself included, or, if that is more, that it keeps
     * (compressed.c); 0: no windows. */
    uint32_t window;
    uint32_t window_period; /* layer l has a window unless l % period == period - 1 */
    uint32_t chunk; /* layers with RoPE see the positions of their chunk only; 0: no chunks */
    struct query_growth query_growth;
    const char *output_norm;  /* tensor; NULL: output_norm.weight */
    const char *rope_factors; /* tensor that divides the frequencies, NULL: none */
    /* Takes its place if the context is longer than rope.n_ctx_orig; NULL: none does. */
    const char *rope_factors_long;
    enum attn_gate attn_gate;
    /* By layer: after silu gate is at most so much, and up at most so far from 0; 0: any. Of
     * experts, and of a dense FFN or shared experts. */
    float expert_limit[HPARAMS_LAYERS_MAX], ffn_limit[HPARAMS_LAYERS_MAX];
    struct recurrent_params recurrent;
    uint8_t layer_flags[HPARAMS_LAYERS_MAX]; /* enum layer_flags */
};

/* An architecture: one file, one entry in hparams.c's table. */
struct arch {
    const char *name; /* general.architecture */
    /* Sets what differs from the common keys, which have been read already. */
    enum status (*read)(struct hparams *hp, const struct gguf *g, struct err *err);
    /* head_count_kv may be an array, whose zeros are layers without attention: they are
     * LAYER_RECURRENT when read() is called. */
    bool hybrid;
    /* head_count, head_count_kv and feed_forward_length may differ from layer to layer: read()
     * gives each layer its kind (hparams_set_attn). */
    bool layered;
    bool layer_norm; /* norms of the residual stream are LayerNorms without a bias */
};
extern const struct arch arch_llama, arch_qwen2, arch_qwen2moe, arch_qwen3, arch_qwen3moe,
    arch_deepseek2, arch_gpt_oss, arch_glm4moe, arch_gemma3, arch_phi3, arch_minimax_m2,
    arch_granite, arch_granitemoe, arch_qwen3next, arch_qwen35, arch_qwen35moe, arch_lfm2,
    arch_lfm2moe, arch_nemotron_h, arch_nemotron_h_moe, arch_granitehybrid, arch_mistral3,
    arch_smollm3, arch_seed_oss, arch_olmo2, arch_exaone4, arch_ernie4_5, arch_ernie4_5_moe,
    arch_hunyuan_dense, arch_hunyuan_moe, arch_bailingmoe2, arch_dots1, arch_llama4, arch_gemma,
    arch_glm4, arch_deepseek32, arch_glm_dsa, arch_kimi_linear, arch_minimax_m3, arch_gemma4,
    arch_step35, arch_gemma3n, arch_kimi_k3, arch_deepseek4, arch_gemma2, arch_mimo2,
    arch_cohere2, arch_qwen2vl, arch_qwen3vl, arch_qwen3vlmoe;

static inline bool hparams_layer_is_moe(const struct hparams *hp, uint32_t layer) {
    return hp->moe.n_experts != 0 && layer >= hp->moe.n_dense &&
           (hp->moe.period == 0 || (layer + 1) % hp->moe.period == 0) &&
           (hp->layer_flags[layer] & LAYER_NO_FFN) == 0;
}

/* The first layer with experts; the last one where none has them. */
static inline uint32_t hparams_first_moe_layer(const struct hparams *hp) {
    uint32_t layer = 0;
    while (layer + 1 < hp->n_layers && !hparams_layer_is_moe(hp, layer))
        layer++;
    return layer;
}

/* Whether any layer has an FFN that is not of experts. */
static inline bool hparams_has_dense(const struct hparams *hp) {
    return hp->moe.n_experts == 0 || hp->moe.dense_beside || hp->moe.n_dense != 0 ||
           hp->moe.period > 1;
}

static inline bool hparams_layer_is(const struct hparams *hp, uint32_t layer,
                                    enum layer_flags flag) {
    return (hp->layer_flags[layer] & (unsigned)flag) != 0;
}

static inline bool hparams_layer_has_attention(const struct hparams *hp, uint32_t layer) {
    return (hp->layer_flags[layer] & (LAYER_RECURRENT | LAYER_NO_MIXER)) == 0;
}

static inline const struct attn_kind *hparams_attn(const struct hparams *hp, uint32_t layer) {
    return &hp->attn[hp->layer_attn[layer]];
}

static inline uint32_t hparams_layer_n_ff(const struct hparams *hp, uint32_t layer) {
    return hp->ff_widths[hp->layer_ff[layer]];
}

/* Dimensions of a query head's rows in attn_q. */
static inline uint32_t hparams_q_rows(const struct hparams *hp, const struct attn_kind *kind) {
    return hp->attn_gate == ATTN_GATE_IN_Q ? 2 * kind->head_dim : kind->head_dim;
}

/* Dimensions of a head's result as the output product reads it. */
static inline uint32_t hparams_out_dim(const struct hparams *hp, const struct attn_kind *kind) {
    return hp->mla.kv_rank != 0 ? hp->mla.v_dim : kind->v_dim;
}

/* Whether layers compute the first stream alone (streams.c). */
static inline bool hparams_predicts_streams(const struct hparams *hp) {
    return hp->n_streams != 0 && hp->hyper.n_iterations == 0;
}

/* Rows of attn_gate for a head; 0: there is no such matrix. */
static inline uint32_t hparams_gate_dim(const struct hparams *hp,
                                        const struct attn_kind *kind) {
    return hp->attn_gate == ATTN_GATE_HEADS    ? 1
           : hp->attn_gate == ATTN_GATE_VALUES ? hparams_out_dim(hp, kind)
                                               : 0;
}

/* Whether queries attend to chosen keys only. */
static inline bool hparams_layer_chooses(const struct hparams *hp, uint32_t layer) {
    return hp->indexer.top_k != 0 && hparams_layer_has_attention(hp, layer) &&
           (hp->indexer.shared || hparams_layer_is(hp, layer, LAYER_INDEXED));
}

/* The residual streams that the layers before this one have left. */
static inline uint32_t hparams_n_kept(const struct hparams *hp, uint32_t layer) {
    return hp->mix_block != 0 ? (layer + hp->mix_block - 1) / hp->mix_block : 0;
}

/* 0: the layer sees everything. */
static inline uint32_t hparams_layer_window(const struct hparams *hp, uint32_t layer) {
    return hp->attn[hp->layer_attn[layer]].window;
}

/* The layer whose keys and values this one uses: its own, or an earlier one's. */
uint32_t hparams_kv_layer(const struct hparams *hp, uint32_t layer);

/* From this layer on all must be in one stage, since they use the same cache; n_layers: none. */
uint32_t hparams_first_joined(const struct hparams *hp);

static inline bool hparams_layer_has_rope(const struct hparams *hp, uint32_t layer) {
    return !hparams_layer_is(hp, layer, LAYER_NO_ROPE);
}

enum status hparams_read(struct hparams *hp, const struct gguf *g, struct err *err);

/* The architecture's keys: "<arch>.<name>". The default is taken when the key is absent;
 * hparam_need_* refuse its absence. An array with the same number for every layer is that
 * number. */
enum status hparam_u32(const struct hparams *hp, const struct gguf *g, const char *name,
                       uint32_t fallback, uint32_t *out, struct err *err);
enum status hparam_need_u32(const struct hparams *hp, const struct gguf *g, const char *name,
                            uint32_t min, uint32_t max, uint32_t *out, struct err *err);
enum status hparam_f32(const struct hparams *hp, const struct gguf *g, const char *name,
                       float fallback, float *out, struct err *err);

/* Makes this the kind of a layer's attention. ST_BAD_INPUT: its numbers make no sense;
 * ST_UNSUPPORTED: the layers are of too many kinds. */
enum status hparams_set_attn(struct hparams *hp, const struct gguf *g, uint32_t layer,
                             const struct attn_kind *kind, struct err *err);

/* Chooses what depends on the context for which a model is opened. */
void hparams_set_context(struct hparams *hp, uint32_t n_ctx);

/* The kind that the model's own numbers make, with hp->window or without one. */
struct attn_kind hparams_common_attn(const struct hparams *hp, bool windowed);

/* All layers are of the kinds that the model's own numbers make, and of width n_ff. base: of the
 * RoPE of layers with a window, which is not scaled then; 0: the same. */
void hparams_set_common(struct hparams *hp, float base);

/* attention.sliding_window, and attention.sliding_window_pattern: for each layer whether it has
 * it (LAYER_WINDOW). */
enum status hparams_read_windows(struct hparams *hp, const struct gguf *g, struct err *err);

/* attention.sliding_window (0: none), and a number in sliding_window_pattern, or else `usual`, as
 * window_period. */
enum status hparams_read_window_period(struct hparams *hp, const struct gguf *g, uint32_t usual,
                                       struct err *err);

/* attention.shared_kv_layers, or else `fallback`. To be followed by hparams_check_shared_kv(). */
enum status hparams_read_shared_kv(struct hparams *hp, const struct gguf *g, uint32_t fallback,
                                   struct err *err);
/* Layers that use the keys and values of another are of its kind. */
enum status hparams_check_shared_kv(const struct hparams *hp, const struct gguf *g,
                                    struct err *err);
/* final_logit_softcapping, or else `fallback`; 0: none. */
enum status hparams_read_softcap(struct hparams *hp, const struct gguf *g, float fallback,
                                 struct err *err);
/* embedding_length_per_layer_input */
enum status hparams_read_layer_input(struct hparams *hp, const struct gguf *g, struct err *err);

/* A number >= 0 for each layer, the same for all, or 0 if the key is absent. */
enum status hparam_limits(const struct hparams *hp, const struct gguf *g, const char *name,
                          float *out, struct err *err);

/* kind, of the model's own numbers, as a layer with a window has them: the keys key_length_swa,
 * value_length_swa, dimension_count_swa and freq_base_swa, and RoPE without scaling. */
enum status hparams_read_windowed(const struct hparams *hp, const struct gguf *g,
                                  struct attn_kind *kind, struct err *err);

/* Of each layer: head_count and head_count_kv. */
struct layer_heads {
    uint32_t n[HPARAMS_LAYERS_MAX], n_kv[HPARAMS_LAYERS_MAX];
};
enum status hparams_read_layer_heads(const struct hparams *hp, const struct gguf *g,
                                     struct layer_heads *out, struct err *err);
/* kind, as a layer with these heads has it, windowed where the layer has a window. */
enum status hparams_layer_kind(const struct hparams *hp, const struct gguf *g,
                               const struct layer_heads *heads, uint32_t layer,
                               struct attn_kind *kind, struct err *err);

/* The tensor blk.LAYER.NAME; NULL: there is none. */
const struct gguf_tensor *hparams_layer_tensor(const struct gguf *g, uint32_t layer,
                                               const char *name);

/* A llama's matrices may have biases, which only the tensors tell: Granite Code has them
 * everywhere. */
void hparams_find_biases(struct hparams *hp, const struct gguf *g);
/* Those of queries, keys and values alone. */
void hparams_find_qkv_bias(struct hparams *hp, const struct gguf *g);

/* The last of each `period` layers has no RoPE; 1: none has. */
void hparams_no_rope(struct hparams *hp, uint32_t period);

/* Leaves out the trailing layers that predict further tokens (nextn_predict_layers). */
enum status hparams_drop_nextn(struct hparams *hp, const struct gguf *g, struct err *err);

/* The keys that architectures with experts share: expert_count, expert_used_count,
 * expert_feed_forward_length, ... Does not change moe if there are no experts. */
enum status hparams_read_moe(struct hparams *hp, const struct gguf *g, struct err *err);

/* The size of the space in which the experts work, if the key is there, and its tensors' name. */
enum status hparams_read_latent_experts(struct hparams *hp, const struct gguf *g,
                                        const char *key, const char *tensors, struct err *err);

/* Those of latent attention (kv_lora_rank, ...): mla, and the heads as they are cached. */
enum status hparams_read_mla(struct hparams *hp, const struct gguf *g, struct err *err);

/* All that DeepSeek V2 and V3 have; the gating that is set is the default. */
enum status hparams_read_deepseek(struct hparams *hp, const struct gguf *g, struct err *err);

/* attention.indexer.head_count, key_length and top_k. */
enum status hparams_read_indexer(struct hparams *hp, const struct gguf *g, struct err *err);

/* A boolean for each layer, from an array of bool or of integers; ST_NOT_FOUND, without a
 * sentence: the key is absent. out [n_layers] */
enum status hparam_bool_of_layers(const struct hparams *hp, const struct gguf *g,
                                  const char *name, bool *out, struct err *err);

/* The keys of the recurrent layers, as n_* above: <arch>.ssm.conv_kernel, state_size, group_count,
 * time_step_rank, inner_size. */
enum status hparams_read_ssm(struct hparams *hp, const struct gguf *g, enum recurrent_kind kind,
                             struct err *err);

/* The same of a delta net by channels: ssm.conv_kernel, kda.head_dim. */
enum status hparams_read_kda(struct hparams *hp, const struct gguf *g, struct err *err);

/* One number for each layer of an array, or the same for all. */
enum status hparam_u32_of_layers(const struct hparams *hp, const struct gguf *g,
                                 const char *name, uint32_t *out, struct err *err);

/* The tensor `blk.<layer>.<name>` (layer < 0: just name) with exactly these dimensions (columns
 * first; rows = 1: a vector; n > 1: that many matrices). ST_BAD_INPUT with the expected and the
 * found shape. */
enum status hparam_tensor(const struct gguf *g, int layer, const char *name, uint64_t cols,
                          uint64_t rows, uint64_t n, const struct gguf_tensor **out,
                          struct err *err);

#endif
