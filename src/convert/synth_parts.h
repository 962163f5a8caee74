/* synth_parts.h: the parts of synth: shapes, vocabularies, lists of tensors and keys, random
 * blocks. For synth*.c and tests. */
#ifndef LOCKSTEP_CONVERT_SYNTH_PARTS_H
#define LOCKSTEP_CONVERT_SYNTH_PARTS_H

#include "format/gguf_write.h"

/* --- shapes (synth_shapes*.c) ------------------------------------------------------- */

/* as in expert_gating_func */
enum synth_gating { SYNTH_SOFTMAX = 1, SYNTH_SIGMOID = 2, SYNTH_SQRT_SOFTPLUS = 4 };

struct synth_experts {
    uint32_t n, n_used, n_ff;
    uint32_t n_shared;    /* experts that every token uses, beside the n */
    uint32_t n_ff_shared; /* or one of this width; 0: none */
    uint32_t n_dense;     /* leading layers with an ordinary FFN */
    uint32_t n_hash;      /* leading layers whose experts are those of a table of tokens */
    uint32_t period;      /* layer l has experts if (l + 1) % period == 0; 0: all have */
    uint32_t n_groups, n_groups_used;
    uint32_t n_latent;       /* width of the space in which experts work; 0: the model's */
    const char *latent_name; /* of the matrices around it: "latent", "routed" */
    const char *latent_key;
    float weights_scale; /* 0: the file does not say */
    bool weights_norm, bias;
    bool shared_router;       /* the shared expert has a gate of its own */
    bool beside_dense;        /* and a dense FFN in the same layer, as in Gemma 4 */
    enum synth_gating gating; /* 0: the file does not say */
};

struct synth_mla {
    uint32_t q_rank; /* 0: q is projected at once */
    uint32_t kv_rank, rope_dim, v_dim;
};

struct synth_yarn {
    float factor; /* 0: none */
    uint32_t n_ctx_orig;
    float log_multiplier; /* 0: the file does not say */
};

/* rope_freqs.weight: what the frequencies are divided by. */
struct synth_factors {
    float factor; /* as Llama 3.1 scales them; 0: there is no such tensor */
    float high;   /* turns from which on a frequency is kept */
    uint32_t n_ctx_orig;
    uint32_t n_turning; /* not 0: this many are kept, and the others do not turn at all */
};

/* What layers with a window have in place of the shape's own numbers. */
struct synth_windowed {
    uint32_t size; /* positions; 0: no layer has a window */
    uint32_t n_heads, n_kv_heads, head_dim;
    float rope_base;
};

enum synth_recurrent_kind {
    SYNTH_NOT_RECURRENT,
    SYNTH_DELTA, /* gated delta net */
    SYNTH_KDA,   /* the same, with a decay for each channel */
    SYNTH_MAMBA2,
    SYNTH_SHORT_CONV, /* LFM2's */
};

struct synth_recurrent {
    enum synth_recurrent_kind kind;
    uint32_t n_taps, n_groups, n_heads, k_dim, v_dim;
    bool joint_gates; /* delta net: beta and alpha are one matrix */
    bool whole_gate;  /* KDA: the gate is one matrix */
};

/* Attention to chosen keys. */
struct synth_indexer {
    uint32_t top_k, n_heads, k_dim; /* top_k = 0: none */
    uint32_t block, n_local;        /* keys are chosen in blocks; 0: one by one */
    bool shares; /* only the first two layers and every fourth from there have one */
};

/* DeepSeek V4's attention to keys made of blocks of 4 positions (layers 2, 4, ...) and of 128 (3,
 * 5, ...), and its residual streams. */
struct synth_compressed {
    uint32_t q_rank, o_rank, n_groups; /* n_groups = 0: others */
    uint32_t first;                    /* block of layers 0 and 1; 0: none */
    uint32_t n_streams, n_iterations;
    float rope_base; /* of layers with such keys */
};

enum synth_attn_gate {
    SYNTH_NO_GATE,
    SYNTH_GATE_IN_Q,   /* attn_q has the queries' gates, too */
    SYNTH_GATE_HEADS,  /* attn_gate: a number for each head */
    SYNTH_GATE_VALUES, /* attn_gate: one for each value */
};

/* A key of the architecture that has no place above. */
struct synth_key {
    const char *name; /* without the architecture; NULL: the end */
    enum synth_key_type { SYNTH_U32, SYNTH_F32, SYNTH_BOOL } type;
    double value;
};
#define SYNTH_KEYS_MAX 6

struct synth_shape {
    const char *name, *title, *arch;
    const struct synth_vocab *vocab;
    /* The layers, over and over: A has attention, W attention with a window, R is recurrent, and
     * an FFN follows; a, r and f have only attention, a recurrence, an FFN. NULL: all are A. */
    const char *pattern;
    uint32_t n_layers, n_ctx, n_embd, n_ff, n_heads, n_kv_heads, head_dim;
    uint32_t n_rot; /* dimensions of a head that turn; 0: all */
    float rope_base, rms_eps;
    struct synth_factors factors;
    bool tied; /* the output matrix is token_embd */
    bool qk_norm, qkv_bias;
    bool sinks;           /* gpt-oss: and the biases that come with them */
    bool norm_after_attn; /* the FFN's norm is called post_attention_norm */
    bool post_norms;      /* norms after blocks, too, and a scale of the layer: Gemma 4 */
    bool v_is_k;          /* layers without a window have no attn_v */
    bool relu2;           /* FFNs have no gate */
    bool embd_norm;       /* the output norm is called token_embd_norm */
    bool kv_heads_array;  /* head_count_kv is an array: 0 where there is no attention */
    bool depth_mix;       /* Kimi K3: what a half layer reads is a mixture over depth */
    enum synth_attn_gate gate;
    struct synth_windowed windowed;
    struct synth_yarn yarn;
    struct synth_experts experts; /* n = 0: a dense model */
    struct synth_mla mla;         /* kv_rank = 0: ordinary attention */
    struct synth_recurrent recurrent;
    struct synth_indexer indexer;
    struct synth_compressed compressed;
    struct synth_key keys[SYNTH_KEYS_MAX + 1];
};

/* Which letter of the pattern a layer has. */
char synth_layer(const struct synth_shape *s, uint32_t layer);
bool synth_layer_has_attention(char letter);
bool synth_layer_is_recurrent(char letter);
bool synth_layer_has_ffn(char letter);
/* Of a layer with attention. */
uint32_t synth_layer_heads(const struct synth_shape *s, uint32_t layer);
uint32_t synth_layer_kv_heads(const struct synth_shape *s, uint32_t layer);
uint32_t synth_layer_head_dim(const struct synth_shape *s, uint32_t layer);
/* Positions of which it makes a key; 0: none. */
uint32_t synth_layer_ratio(const struct synth_shape *s, uint32_t layer);

/* The shapes of models whose layers are all alike, and of the others; names are unique. */
extern const struct synth_shape synth_shapes_plain[], synth_shapes_mixed[];
extern const size_t synth_n_plain, synth_n_mixed;

/* NULL if it is absent. */
const struct synth_shape *synth_shape_find(const char *name);

/* --- vocabularies (synth_vocab.c) --------------------------------------------------- */

extern const struct synth_vocab synth_vocab_llama3, synth_vocab_qwen, synth_vocab_deepseek2,
    synth_vocab_deepseek3, synth_vocab_kimi, synth_vocab_gpt_oss, synth_vocab_qwen35,
    synth_vocab_gemma4, synth_vocab_glm4, synth_vocab_minimax, synth_vocab_mistral,
    synth_vocab_nemotron, synth_vocab_step, synth_vocab_granite, synth_vocab_lfm2,
    synth_vocab_llama4;

uint32_t synth_vocab_size(const struct synth_vocab *v);
/* tokenizer.* keys: byte-level BPE with 256 bytes, a few merges, filler words, and the family's
 * own control tokens at their own ids. */
enum status synth_vocab_write(const struct synth_vocab *v, struct gguf_writer *w,
                              struct err *err);

/* --- tensors (synth_tensors.c) and keys (synth_keys.c) ------------------------------- */

enum synth_role {
    ROLE_WEIGHT,  /* deviation 1/sqrt(columns), so that products keep the size of activations */
    ROLE_NORM,    /* near 1 */
    ROLE_BIAS,    /* small */
    ROLE_DECAY,   /* near -1: ssm_a */
    ROLE_FACTORS, /* rope_freqs.weight */
    ROLE_EXPERTS  /* numbers of experts for each token, none twice */
};

struct synth_tensor {
    char name[GGUF_NAME_MAX + 1];
    enum synth_role role;
    enum qtype type;
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS];
};

struct synth_plan {
    const struct synth_shape *shape;
    enum qtype type; /* of the matrices */
    uint32_t n_layers;
    struct synth_tensor *tensors; /* [n], mem_free */
    size_t n, capacity;
    bool failed; /* no memory */
};

/* Lists the tensors of p->shape with p->n_layers layers. */
void synth_list_tensors(struct synth_plan *p);

/* All keys but those of the vocabulary. */
void synth_write_keys(const struct synth_plan *p, struct gguf_writer *w);

/* --- random blocks (synth_fill.c) --------------------------------------------------- */

/* n_blocks blocks of a matrix from first_block on: values of mean 0 and standard deviation
 * sigma, a function of (type, seed, block number) alone. type: one that synth_can_fill()
 * accepts. */
void synth_fill(enum qtype type, uint64_t seed, uint64_t first_block, float sigma, void *dst,
                size_t n_blocks);
bool synth_can_fill(enum qtype type);

#endif
