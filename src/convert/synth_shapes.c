/* synth_shapes.c: true shapes of public models whose layers are all alike, from their model
 * cards and config.json; and what a letter of a pattern of layers means. */
#include "base/util.h"
#include "convert/synth.h"
#include "convert/synth_parts.h"

#define LLAMA3                                                                           \
    .arch = "llama", .vocab = &synth_vocab_llama3, .n_ctx = 131072, .rope_base = 500000, \
    .rms_eps = 1e-5f
#define QWEN3                                                                       \
    .arch = "qwen3", .vocab = &synth_vocab_qwen, .n_ctx = 40960, .rope_base = 1e6f, \
    .rms_eps = 1e-6f, .qk_norm = true, .head_dim = 128, .n_kv_heads = 8
#define QWEN3_MOE                                                                      \
    .arch = "qwen3moe", .vocab = &synth_vocab_qwen, .rms_eps = 1e-6f, .qk_norm = true, \
    .head_dim = 128
#define QWEN2_MOE                                                                        \
    .arch = "qwen2moe", .vocab = &synth_vocab_qwen, .rope_base = 1e6f, .rms_eps = 1e-6f, \
    .qkv_bias = true, .head_dim = 128
#define GPT_OSS                                                                        \
    .arch = "gpt-oss", .vocab = &synth_vocab_gpt_oss, .n_ctx = 131072, .n_embd = 2880, \
    .n_ff = 2880, .n_heads = 64, .n_kv_heads = 8, .head_dim = 64, .rope_base = 150000, \
    .rms_eps = 1e-5f, .windowed = {.size = 128}, .sinks = true, .qkv_bias = true,      \
    .norm_after_attn = true, .yarn = {32, 4096, 0}

const struct synth_shape synth_shapes_plain[] = {
    {LLAMA3, .name = "llama-3.2-1b", .title = "Llama 3.2 1B", .n_layers = 16, .n_embd = 2048,
     .n_ff = 8192, .n_heads = 32, .n_kv_heads = 8, .head_dim = 64, .factors = {32, 4, 8192, 0},
     .tied = true},
    {LLAMA3, .name = "llama-3.2-3b", .title = "Llama 3.2 3B", .n_layers = 28, .n_embd = 3072,
     .n_ff = 8192, .n_heads = 24, .n_kv_heads = 8, .head_dim = 128, .factors = {32, 4, 8192, 0},
     .tied = true},
    {LLAMA3, .name = "llama-3.1-8b", .title = "Llama 3.1 8B", .n_layers = 32, .n_embd = 4096,
     .n_ff = 14336, .n_heads = 32, .n_kv_heads = 8, .head_dim = 128,
     .factors = {8, 4, 8192, 0}},
    {LLAMA3, .name = "llama-3.3-70b", .title = "Llama 3.3 70B", .n_layers = 80, .n_embd = 8192,
     .n_ff = 28672, .n_heads = 64, .n_kv_heads = 8, .head_dim = 128,
     .factors = {8, 4, 8192, 0}},
    {QWEN3, .name = "qwen3-0.6b", .title = "Qwen3 0.6B", .n_layers = 28, .n_embd = 1024,
     .n_ff = 3072, .n_heads = 16, .tied = true},
    {QWEN3, .name = "qwen3-1.7b", .title = "Qwen3 1.7B", .n_layers = 28, .n_embd = 2048,
     .n_ff = 6144, .n_heads = 16, .tied = true},
    {QWEN3, .name = "qwen3-4b", .title = "Qwen3 4B", .n_layers = 36, .n_embd = 2560,
     .n_ff = 9728, .n_heads = 32, .tied = true},
    {QWEN3, .name = "qwen3-8b", .title = "Qwen3 8B", .n_layers = 36, .n_embd = 4096,
     .n_ff = 12288, .n_heads = 32},
    {QWEN3, .name = "qwen3-32b", .title = "Qwen3 32B", .n_layers = 64, .n_embd = 5120,
     .n_ff = 25600, .n_heads = 64},
    {QWEN2_MOE, .name = "qwen1.5-moe-a2.7b", .title = "Qwen1.5 MoE A2.7B", .n_layers = 24,
     .n_ctx = 8192, .n_embd = 2048, .n_ff = 5632, .n_heads = 16, .n_kv_heads = 16,
     .experts =
         {.n = 60, .n_used = 4, .n_ff = 1408, .n_ff_shared = 5632, .shared_router = true}},
    {QWEN2_MOE, .name = "qwen2-57b-a14b", .title = "Qwen2 57B A14B", .n_layers = 28,
     .n_ctx = 131072, .n_embd = 3584, .n_ff = 18944, .n_heads = 28, .n_kv_heads = 4,
     .experts =
         {.n = 64, .n_used = 8, .n_ff = 2560, .n_ff_shared = 20480, .shared_router = true}},
    {QWEN3_MOE, .name = "qwen3-30b-a3b", .title = "Qwen3 30B A3B", .n_layers = 48,
     .n_ctx = 40960, .n_embd = 2048, .n_ff = 6144, .n_heads = 32, .n_kv_heads = 4,
     .rope_base = 1e6f, .experts = {.n = 128, .n_used = 8, .n_ff = 768}},
    {QWEN3_MOE, .name = "qwen3-235b-a22b", .title = "Qwen3 235B A22B", .n_layers = 94,
     .n_ctx = 40960, .n_embd = 4096, .n_ff = 12288, .n_heads = 64, .n_kv_heads = 4,
     .rope_base = 1e6f, .experts = {.n = 128, .n_used = 8, .n_ff = 1536}},
    {QWEN3_MOE, .name = "qwen3-coder-480b", .title = "Qwen3 Coder 480B A35B", .n_layers = 62,
     .n_ctx = 262144, .n_embd = 6144, .n_ff = 8192, .n_heads = 96, .n_kv_heads = 8,
     .rope_base = 1e7f, .experts = {.n = 160, .n_used = 8, .n_ff = 2560}},
    {.name = "deepseek-v2-lite",
     .title = "DeepSeek V2 Lite",
     .arch = "deepseek2",
     .vocab = &synth_vocab_deepseek2,
     .n_layers = 27,
     .n_ctx = 163840,
     .n_embd = 2048,
     .n_ff = 10944,
     .n_heads = 16,
     .head_dim = 192,
     .rope_base = 10000,
     .rms_eps = 1e-6f,
     .yarn = {40, 4096, 0.0707f},
     .mla = {.kv_rank = 512, .rope_dim = 64, .v_dim = 128},
     .experts = {.n = 64,
                 .n_used = 6,
                 .n_ff = 1408,
                 .n_shared = 2,
                 .n_dense = 1,
                 .weights_scale = 1,
                 .gating = SYNTH_SOFTMAX}},
    {.name = "deepseek-v2",
     .title = "DeepSeek V2",
     .arch = "deepseek2",
     .vocab = &synth_vocab_deepseek2,
     .n_layers = 60,
     .n_ctx = 163840,
     .n_embd = 5120,
     .n_ff = 12288,
     .n_heads = 128,
     .head_dim = 192,
     .rope_base = 10000,
     .rms_eps = 1e-6f,
     .yarn = {40, 4096, 0.0707f},
     .mla = {.q_rank = 1536, .kv_rank = 512, .rope_dim = 64, .v_dim = 128},
     .experts = {.n = 160,
                 .n_used = 6,
                 .n_ff = 1536,
                 .n_shared = 2,
                 .n_dense = 1,
                 .n_groups = 8,
                 .n_groups_used = 3,
                 .weights_scale = 16,
                 .gating = SYNTH_SOFTMAX}},
    {.name = "deepseek-v3",
     .title = "DeepSeek V3",
     .arch = "deepseek2",
     .vocab = &synth_vocab_deepseek3,
     .n_layers = 61,
     .n_ctx = 163840,
     .n_embd = 7168,
     .n_ff = 18432,
     .n_heads = 128,
     .head_dim = 192,
     .rope_base = 10000,
     .rms_eps = 1e-6f,
     .yarn = {40, 4096, 0.1f},
     .mla = {.q_rank = 1536, .kv_rank = 512, .rope_dim = 64, .v_dim = 128},
     .experts = {.n = 256,
                 .n_used = 8,
                 .n_ff = 2048,
                 .n_shared = 1,
                 .n_dense = 3,
                 .n_groups = 8,
                 .n_groups_used = 4,
                 .weights_scale = 2.5f,
                 .weights_norm = true,
                 .bias = true,
                 .gating = SYNTH_SIGMOID}},
    {.name = "kimi-k2",
     .title = "Kimi K2",
     .arch = "deepseek2",
     .vocab = &synth_vocab_kimi,
     .n_layers = 61,
     .n_ctx = 131072,
     .n_embd = 7168,
     .n_ff = 18432,
     .n_heads = 64,
     .head_dim = 192,
     .rope_base = 50000,
     .rms_eps = 1e-6f,
     .yarn = {32, 4096, 0.1f},
     .mla = {.q_rank = 1536, .kv_rank = 512, .rope_dim = 64, .v_dim = 128},
     .experts = {.n = 384,
                 .n_used = 8,
                 .n_ff = 2048,
                 .n_shared = 1,
                 .n_dense = 1,
                 .n_groups = 1,
                 .n_groups_used = 1,
                 .weights_scale = 2.827f,
                 .weights_norm = true,
                 .bias = true,
                 .gating = SYNTH_SIGMOID}},
    {GPT_OSS, .name = "gpt-oss-20b", .title = "gpt-oss 20B", .n_layers = 24,
     .experts = {.n = 32, .n_used = 4, .n_ff = 2880}},
    {GPT_OSS, .name = "gpt-oss-120b", .title = "gpt-oss 120B", .n_layers = 36,
     .experts = {.n = 128, .n_used = 4, .n_ff = 2880}},
};

const size_t synth_n_plain = ARRAY_LEN(synth_shapes_plain);

static const struct synth_shape *shape_at(size_t i) {
    return i < synth_n_plain                   ? &synth_shapes_plain[i]
           : i < synth_n_plain + synth_n_mixed ? &synth_shapes_mixed[i - synth_n_plain]
                                               : NULL;
}

const struct synth_shape *synth_shape_find(const char *name) {
    for (size_t i = 0; shape_at(i); i++)
        if (str_eq(shape_at(i)->name, name))
            return shape_at(i);
    return NULL;
}

const char *synth_shape_name(size_t i) {
    return shape_at(i) ? shape_at(i)->name : NULL;
}

/* ---- layers ------------------------------------------------------------------------ */

char synth_layer(const struct synth_shape *s, uint32_t layer) {
    return s->pattern ? s->pattern[layer % strlen(s->pattern)] : 'A';
}

bool synth_layer_has_attention(char letter) {
    return letter == 'A' || letter == 'W' || letter == 'a';
}

bool synth_layer_is_recurrent(char letter) {
    return letter == 'R' || letter == 'r';
}

bool synth_layer_has_ffn(char letter) {
    return letter != 'a' && letter != 'r';
}

static uint32_t of_layer(const struct synth_shape *s, uint32_t layer, uint32_t all,
                         uint32_t windowed) {
    return synth_layer(s, layer) == 'W' && windowed ? windowed : all;
}

uint32_t synth_layer_heads(const struct synth_shape *s, uint32_t layer) {
    return of_layer(s, layer, s->n_heads, s->windowed.n_heads);
}

uint32_t synth_layer_kv_heads(const struct synth_shape *s, uint32_t layer) {
    return of_layer(s, layer, s->n_kv_heads, s->windowed.n_kv_heads);
}

uint32_t synth_layer_head_dim(const struct synth_shape *s, uint32_t layer) {
    return of_layer(s, layer, s->head_dim, s->windowed.head_dim);
}

uint32_t synth_layer_ratio(const struct synth_shape *s, uint32_t layer) {
    if (s->compressed.n_groups == 0 || layer < 2)
        return s->compressed.first;
    return layer % 2 == 0 ? 4 : 128;
}
