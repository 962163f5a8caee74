/* synth_parts.h: the parts of synth: shapes, vocabularies, random blocks. For synth*.c and
 * tests. */
#ifndef LOCKSTEP_CONVERT_SYNTH_PARTS_H
#define LOCKSTEP_CONVERT_SYNTH_PARTS_H

#include "format/gguf_write.h"

/* --- shapes (synth_shapes.c) -------------------------------------------------------- */

enum synth_gating { GATING_SOFTMAX = 1, GATING_SIGMOID = 2 }; /* as in expert_gating_func */

struct synth_experts {
    uint32_t n, n_used, n_ff;
    uint32_t n_shared;    /* experts that every token uses, beside the n */
    uint32_t n_ff_shared; /* qwen2moe: or one of this width, with a gate; 0: none */
    uint32_t n_dense;     /* leading layers with an ordinary FFN */
    uint32_t n_groups, n_groups_used;
    float weights_scale; /* 0: the file does not say */
    bool weights_norm, bias;
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

struct synth_shape {
    const char *name, *title, *arch;
    const struct synth_vocab *vocab;
    uint32_t n_layers, n_ctx, n_embd, n_ff, n_heads, n_kv_heads, head_dim;
    float rope_base, rms_eps;
    float llama3_factor; /* of rope_freqs.weight; 0: no such tensor */
    bool tied;           /* the output matrix is token_embd */
    bool qk_norm, qkv_bias;
    uint32_t sliding_window; /* gpt-oss: sinks and biases come with it; 0: none */
    struct synth_yarn yarn;
    struct synth_experts experts; /* n = 0: a dense model */
    struct synth_mla mla;         /* kv_rank = 0: ordinary attention */
};

/* NULL if it is absent. */
const struct synth_shape *synth_shape_find(const char *name);

/* --- vocabularies (synth_vocab.c) --------------------------------------------------- */

extern const struct synth_vocab synth_vocab_llama3, synth_vocab_qwen, synth_vocab_deepseek2,
    synth_vocab_deepseek3, synth_vocab_kimi, synth_vocab_gpt_oss;

uint32_t synth_vocab_size(const struct synth_vocab *v);
/* tokenizer.* keys: byte-level BPE with 256 bytes, a few merges, filler words, and the family's
 * own control tokens at their own ids. */
enum status synth_vocab_write(const struct synth_vocab *v, struct gguf_writer *w,
                              struct err *err);

/* --- random blocks (synth_fill.c) --------------------------------------------------- */

/* n_blocks blocks of a matrix from first_block on: values of mean 0 and standard deviation
 * sigma, a function of (type, seed, block number) alone. type: one that synth_can_fill()
 * accepts. */
void synth_fill(enum qtype type, uint64_t seed, uint64_t first_block, float sigma, void *dst,
                size_t n_blocks);
bool synth_can_fill(enum qtype type);

#endif
