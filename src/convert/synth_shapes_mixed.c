/* synth_shapes_mixed.c: true shapes of public models whose layers differ, or whose attention
 * chooses keys, from their config.json. Layers for multi-token prediction, and towers for images
 * and sound, are left out. So are numbers that change values and no shape: Granite's factors, the
 * limits of Step 3.5's activations, the scaling of Llama 4 Scout's RoPE, the growth of Mistral
 * Large 3's queries. */
#include "base/util.h"
#include "convert/synth_parts.h"

#define U32(key, value) \
    { key, SYNTH_U32, value }
#define F32(key, value) \
    { key, SYNTH_F32, value }

/* ---- Qwen3-Next, Qwen3.5 and 3.6: three delta nets, then gated attention ------------ */

#define QWEN_MIXED                                                                       \
    .pattern = "RRRA", .n_ctx = 262144, .head_dim = 256, .n_rot = 64, .rope_base = 1e7f, \
    .rms_eps = 1e-6f, .qk_norm = true, .norm_after_attn = true, .gate = SYNTH_GATE_IN_Q, \
    .keys = {U32("full_attention_interval", 4)}
#define QWEN35 .arch = "qwen35", .vocab = &synth_vocab_qwen35, QWEN_MIXED
#define QWEN35_MOE \
    .arch = "qwen35moe", .vocab = &synth_vocab_qwen35, .n_kv_heads = 2, QWEN_MIXED
#define DELTA(heads)                   \
    .recurrent = {.kind = SYNTH_DELTA, \
                  .n_taps = 4,         \
                  .n_groups = 16,      \
                  .n_heads = (heads),  \
                  .k_dim = 128,        \
                  .v_dim = 128}

/* ---- DeepSeek V3 and its descendants ------------------------------------------------ */

#define LATENT .mla = {.q_rank = 1536, .kv_rank = 512, .rope_dim = 64, .v_dim = 128}
#define GLM5                                                                       \
    .arch = "glm-dsa", .vocab = &synth_vocab_glm4, .n_layers = 78, .n_embd = 6144, \
    .n_ff = 12288, .n_heads = 64, .head_dim = 256, .rms_eps = 1e-5f,               \
    .mla = {.q_rank = 2048, .kv_rank = 512, .rope_dim = 64, .v_dim = 256},         \
    .experts = {.n = 256,                                                          \
                .n_used = 8,                                                       \
                .n_ff = 2048,                                                      \
                .n_shared = 1,                                                     \
                .n_dense = 3,                                                      \
                .weights_scale = 2.5f,                                             \
                .weights_norm = true,                                              \
                .bias = true,                                                      \
                .gating = SYNTH_SIGMOID}

#define DEEPSEEK4                                                                            \
    .arch = "deepseek4", .vocab = &synth_vocab_deepseek3, .n_ctx = 1048576, .n_kv_heads = 1, \
    .head_dim = 512, .n_rot = 64, .rope_base = 10000, .rms_eps = 1e-6f,                      \
    .windowed = {.size = 128}, .yarn = {16, 65536, 0}, .keys = {F32("swiglu_clamp_exp", 10)}

/* ---- Mamba-2 ------------------------------------------------------------------------ */

#define NEMOTRON_H                                                                            \
    .arch = "nemotron_h_moe", .vocab = &synth_vocab_nemotron, .n_ctx = 262144, .n_heads = 32, \
    .n_kv_heads = 2, .head_dim = 128, .rope_base = 10000, .rms_eps = 1e-5f, .relu2 = true,    \
    .kv_heads_array = true
#define GRANITE_H                                                                           \
    .arch = "granitehybrid", .vocab = &synth_vocab_granite, .pattern = "RRRRRARRRR",        \
    .n_layers = 40, .n_ctx = 131072, .head_dim = 128, .rope_base = 10000, .rms_eps = 1e-5f, \
    .tied = true, .kv_heads_array = true
#define MAMBA2(heads, groups)           \
    .recurrent = {.kind = SYNTH_MAMBA2, \
                  .n_taps = 4,          \
                  .n_groups = (groups), \
                  .n_heads = (heads),   \
                  .k_dim = 128,         \
                  .v_dim = 64}

/* ---- others ------------------------------------------------------------------------- */

#define GEMMA4                                                                                 \
    .arch = "gemma4", .vocab = &synth_vocab_gemma4, .pattern = "WWWWWA", .n_ctx = 262144,      \
    .head_dim = 512, .rope_base = 1e6f, .rms_eps = 1e-6f, .factors = {.n_turning = 64},        \
    .tied = true, .qk_norm = true, .post_norms = true, .v_is_k = true, .kv_heads_array = true, \
    .keys = {F32("final_logit_softcapping", 30)}
#define LFM2                                                                            \
    .vocab = &synth_vocab_lfm2, .n_ctx = 128000, .n_embd = 2048, .n_heads = 32,         \
    .n_kv_heads = 8, .head_dim = 64, .rope_base = 1e6f, .rms_eps = 1e-5f, .tied = true, \
    .qk_norm = true, .embd_norm = true, .kv_heads_array = true,                         \
    .recurrent = {.kind = SYNTH_SHORT_CONV, .n_taps = 3}
#define LLAMA4                                                                           \
    .arch = "llama4", .vocab = &synth_vocab_llama4, .n_layers = 48, .n_embd = 5120,      \
    .n_ff = 16384, .n_heads = 40, .n_kv_heads = 8, .head_dim = 128, .rope_base = 500000, \
    .rms_eps = 1e-5f

#define TIMES_4(s) s s s s
#define TIMES_6(s) s s s s s s

const struct synth_shape synth_shapes_mixed[] = {
    {QWEN_MIXED, .name = "qwen3-next-80b-a3b", .title = "Qwen3-Next 80B A3B",
     .arch = "qwen3next", .vocab = &synth_vocab_qwen, .n_layers = 48, .n_embd = 2048,
     .n_ff = 5120, .n_heads = 16, .n_kv_heads = 2,
     .experts =
         {.n = 512, .n_used = 10, .n_ff = 512, .n_ff_shared = 512, .shared_router = true},
     .recurrent = {.kind = SYNTH_DELTA,
                   .n_taps = 4,
                   .n_groups = 16,
                   .n_heads = 32,
                   .k_dim = 128,
                   .v_dim = 128,
                   .joint_gates = true}},
    {QWEN35_MOE, DELTA(32), .name = "qwen3.5-35b-a3b", .title = "Qwen3.5 and 3.6 35B A3B",
     .n_layers = 40, .n_embd = 2048, .n_heads = 16,
     .experts =
         {.n = 256, .n_used = 8, .n_ff = 512, .n_ff_shared = 512, .shared_router = true}},
    {QWEN35_MOE, DELTA(64), .name = "qwen3.5-122b-a10b", .title = "Qwen3.5 122B A10B",
     .n_layers = 48, .n_embd = 3072, .n_heads = 32,
     .experts =
         {.n = 256, .n_used = 8, .n_ff = 1024, .n_ff_shared = 1024, .shared_router = true}},
    {QWEN35_MOE, DELTA(64), .name = "qwen3.5-397b-a17b", .title = "Qwen3.5 397B A17B",
     .n_layers = 60, .n_embd = 4096, .n_heads = 32,
     .experts =
         {.n = 512, .n_used = 10, .n_ff = 1024, .n_ff_shared = 1024, .shared_router = true}},
    {QWEN35, DELTA(32), .name = "qwen3.5-9b", .title = "Qwen3.5 9B", .n_layers = 32,
     .n_embd = 4096, .n_ff = 12288, .n_heads = 16, .n_kv_heads = 4},
    {QWEN35, DELTA(48), .name = "qwen3.5-27b", .title = "Qwen3.5 and 3.6 27B", .n_layers = 64,
     .n_embd = 5120, .n_ff = 17408, .n_heads = 24, .n_kv_heads = 4},
    {GEMMA4, .name = "gemma-4-26b-a4b", .title = "Gemma 4 26B A4B", .n_layers = 30,
     .n_embd = 2816, .n_ff = 2112, .n_heads = 16, .n_kv_heads = 2,
     .windowed = {.size = 1024, .n_kv_heads = 8, .head_dim = 256, .rope_base = 10000},
     .experts = {.n = 128, .n_used = 8, .n_ff = 704, .beside_dense = true}},
    {GEMMA4, .name = "gemma-4-31b", .title = "Gemma 4 31B", .n_layers = 60, .n_embd = 5376,
     .n_ff = 21504, .n_heads = 32, .n_kv_heads = 4,
     .windowed = {.size = 1024, .n_kv_heads = 16, .head_dim = 256, .rope_base = 10000}},
    {LATENT, .name = "deepseek-v3.2", .title = "DeepSeek V3.2", .arch = "deepseek32",
     .vocab = &synth_vocab_deepseek3, .n_layers = 61, .n_ctx = 163840, .n_embd = 7168,
     .n_ff = 18432, .n_heads = 128, .head_dim = 192, .rope_base = 10000, .rms_eps = 1e-6f,
     .yarn = {40, 4096, 0.1f}, .indexer = {.top_k = 2048, .n_heads = 64, .k_dim = 128},
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
    {GLM5, .name = "glm-5", .title = "GLM-5", .n_ctx = 202752, .rope_base = 1e6f,
     .indexer = {.top_k = 2048, .n_heads = 32, .k_dim = 128}},
    {GLM5, .name = "glm-5.2", .title = "GLM-5.2", .n_ctx = 1048576, .rope_base = 8e6f,
     .indexer = {.top_k = 2048, .n_heads = 32, .k_dim = 128, .shares = true}},
    {DEEPSEEK4, .name = "deepseek-v4-flash", .title = "DeepSeek V4 Flash", .n_layers = 43,
     .n_embd = 4096, .n_heads = 64, .indexer = {.top_k = 512, .n_heads = 64, .k_dim = 128},
     .compressed = {.q_rank = 1024,
                    .o_rank = 1024,
                    .n_groups = 8,
                    .n_streams = 4,
                    .n_iterations = 20,
                    .rope_base = 160000},
     .experts = {.n = 256,
                 .n_used = 6,
                 .n_ff = 2048,
                 .n_shared = 1,
                 .n_hash = 3,
                 .weights_scale = 1.5f,
                 .weights_norm = true,
                 .bias = true,
                 .gating = SYNTH_SQRT_SOFTPLUS}},
    {DEEPSEEK4, .name = "deepseek-v4-pro", .title = "DeepSeek V4 Pro", .n_layers = 61,
     .n_embd = 7168, .n_heads = 128, .indexer = {.top_k = 1024, .n_heads = 64, .k_dim = 128},
     .compressed = {.q_rank = 1536,
                    .o_rank = 1024,
                    .n_groups = 16,
                    .first = 128,
                    .n_streams = 4,
                    .n_iterations = 20,
                    .rope_base = 160000},
     .experts = {.n = 384,
                 .n_used = 6,
                 .n_ff = 3072,
                 .n_shared = 1,
                 .n_hash = 3,
                 .weights_scale = 2.5f,
                 .weights_norm = true,
                 .bias = true,
                 .gating = SYNTH_SQRT_SOFTPLUS}},
    {LATENT, .name = "mistral-large-3", .title = "Mistral Large 3", .arch = "deepseek2",
     .vocab = &synth_vocab_mistral, .n_layers = 61, .n_ctx = 294912, .n_embd = 7168,
     .n_ff = 16384, .n_heads = 128, .head_dim = 192, .rope_base = 10000, .rms_eps = 1e-6f,
     .yarn = {36, 8192, 0},
     .experts = {.n = 128,
                 .n_used = 4,
                 .n_ff = 4096,
                 .n_shared = 1,
                 .n_dense = 3,
                 .weights_scale = 1,
                 .weights_norm = true,
                 .gating = SYNTH_SOFTMAX}},
    {.name = "kimi-linear-48b-a3b",
     .title = "Kimi Linear 48B A3B",
     .arch = "kimi-linear",
     .vocab = &synth_vocab_kimi,
     .pattern = TIMES_6("RRRA") "RRA",
     .n_layers = 27,
     .n_ctx = 1048576,
     .n_embd = 2304,
     .n_ff = 9216,
     .n_heads = 32,
     .head_dim = 192,
     .rope_base = 10000,
     .rms_eps = 1e-5f,
     .kv_heads_array = true,
     .mla = {.kv_rank = 512, .rope_dim = 64, .v_dim = 128},
     .recurrent = {.kind = SYNTH_KDA, .n_taps = 4, .n_heads = 32, .k_dim = 128},
     .experts = {.n = 256,
                 .n_used = 8,
                 .n_ff = 1024,
                 .n_shared = 1,
                 .n_dense = 1,
                 .weights_scale = 2.446f,
                 .weights_norm = true,
                 .bias = true,
                 .gating = SYNTH_SIGMOID}},
    {LATENT,
     .name = "kimi-k3",
     .title = "Kimi K3",
     .arch = "kimi-k3",
     .vocab = &synth_vocab_kimi,
     .pattern = TIMES_4(TIMES_6("RRRA")) "A",
     .n_layers = 93,
     .n_ctx = 1048576,
     .n_embd = 7168,
     .n_ff = 33792,
     .n_heads = 96,
     .head_dim = 192,
     .rope_base = 10000,
     .rms_eps = 1e-5f,
     .kv_heads_array = true,
     .depth_mix = true,
     .gate = SYNTH_GATE_VALUES,
     .recurrent =
         {.kind = SYNTH_KDA, .n_taps = 4, .n_heads = 96, .k_dim = 128, .whole_gate = true},
     .experts = {.n = 896,
                 .n_used = 16,
                 .n_ff = 3072,
                 .n_shared = 2,
                 .n_dense = 1,
                 .n_latent = 3584,
                 .latent_name = "routed",
                 .latent_key = "expert_latent_length",
                 .weights_scale = 1,
                 .weights_norm = true,
                 .bias = true,
                 .gating = SYNTH_SIGMOID},
     .keys = {F32("kda.gate_lower_bound", -5), F32("activation.situ_beta", 4),
              F32("activation.situ_linear_beta", 25), U32("attn_res.block_size", 12)}},
    {.name = "minimax-m3",
     .title = "MiniMax M3",
     .arch = "minimax-m3",
     .vocab = &synth_vocab_minimax,
     .n_layers = 60,
     .n_ctx = 1048576,
     .n_embd = 6144,
     .n_ff = 12288,
     .n_heads = 64,
     .n_kv_heads = 4,
     .head_dim = 128,
     .n_rot = 64,
     .rope_base = 5e6f,
     .rms_eps = 1e-6f,
     .qk_norm = true,
     .indexer = {.top_k = 16, .n_heads = 4, .k_dim = 128, .block = 128, .n_local = 1},
     .experts = {.n = 128,
                 .n_used = 4,
                 .n_ff = 3072,
                 .n_shared = 1,
                 .n_dense = 3,
                 .weights_scale = 2,
                 .weights_norm = true,
                 .bias = true,
                 .gating = SYNTH_SIGMOID}},
    {NEMOTRON_H, MAMBA2(64, 8), .name = "nemotron-3-nano-30b-a3b",
     .title = "Nemotron 3 Nano 30B A3B",
     .pattern = "rfrfra" TIMES_4("frfrfra") "frfrfrfra"
                                            "frfrfrfrf",
     .n_layers = 52, .n_embd = 2688, .n_ff = 1856,
     .experts = {.n = 128,
                 .n_used = 6,
                 .n_ff = 1856,
                 .n_shared = 1,
                 .n_ff_shared = 3712,
                 .weights_scale = 2.5f,
                 .weights_norm = true,
                 .bias = true,
                 .gating = SYNTH_SIGMOID}},
    {NEMOTRON_H, MAMBA2(128, 8), .name = "nemotron-3-super-120b-a12b",
     .title = "Nemotron 3 Super 120B A12B",
     .pattern = "rfrfrfra"
                "frfrfrfra"
                "frfrfrfra" TIMES_4("frfrfrfrfra") "frfrfrfra"
                                                   "frfrfrfrf",
     .n_layers = 88, .n_embd = 4096, .n_ff = 2688,
     .experts = {.n = 512,
                 .n_used = 22,
                 .n_ff = 2688,
                 .n_shared = 1,
                 .n_ff_shared = 5376,
                 .n_latent = 1024,
                 .latent_name = "latent",
                 .latent_key = "moe_latent_size",
                 .weights_scale = 5,
                 .weights_norm = true,
                 .bias = true,
                 .gating = SYNTH_SIGMOID}},
    {GRANITE_H, MAMBA2(48, 1), .name = "granite-4.0-h-tiny", .title = "Granite 4.0 H Tiny",
     .n_embd = 1536, .n_ff = 512, .n_heads = 12, .n_kv_heads = 4,
     .experts = {.n = 64, .n_used = 6, .n_ff = 512, .n_ff_shared = 1024}},
    {GRANITE_H, MAMBA2(128, 1), .name = "granite-4.0-h-small", .title = "Granite 4.0 H Small",
     .n_embd = 4096, .n_ff = 768, .n_heads = 32, .n_kv_heads = 8,
     .experts = {.n = 72, .n_used = 10, .n_ff = 768, .n_ff_shared = 1536}},
    {.name = "step-3.5-flash",
     .title = "Step 3.5 Flash",
     .arch = "step35",
     .vocab = &synth_vocab_step,
     .pattern = "AWWW",
     .n_layers = 45,
     .n_ctx = 262144,
     .n_embd = 4096,
     .n_ff = 11264,
     .n_heads = 64,
     .n_kv_heads = 8,
     .head_dim = 128,
     .rope_base = 5e6f,
     .rms_eps = 1e-5f,
     .factors = {2, 32, 131072, 0},
     .qk_norm = true,
     .kv_heads_array = true,
     .gate = SYNTH_GATE_HEADS,
     .windowed =
         {.size = 512, .n_heads = 96, .n_kv_heads = 8, .head_dim = 128, .rope_base = 10000},
     .experts = {.n = 288,
                 .n_used = 8,
                 .n_ff = 1280,
                 .n_ff_shared = 1280,
                 .n_dense = 3,
                 .weights_scale = 3,
                 .weights_norm = true,
                 .bias = true,
                 .gating = SYNTH_SIGMOID}},
    {LFM2, .name = "lfm2-1.2b", .title = "LFM2 1.2B", .arch = "lfm2",
     .pattern = "RRARRARRARARARAR", .n_layers = 16, .n_ff = 8192},
    {LFM2, .name = "lfm2-8b-a1b", .title = "LFM2 8B A1B", .arch = "lfm2moe",
     .pattern = "RRARRRARRRARRRARRRARRARR", .n_layers = 24, .n_ff = 7168,
     .experts = {.n = 32,
                 .n_used = 4,
                 .n_ff = 1792,
                 .n_dense = 2,
                 .bias = true,
                 .weights_norm = true,
                 .gating = SYNTH_SIGMOID}},
    {LLAMA4, .name = "llama-4-scout", .title = "Llama 4 Scout", .n_ctx = 10485760,
     .experts = {.n = 16, .n_used = 1, .n_ff = 8192, .n_shared = 1, .period = 1}},
    {LLAMA4, .name = "llama-4-maverick", .title = "Llama 4 Maverick", .n_ctx = 1048576,
     .experts = {.n = 128, .n_used = 1, .n_ff = 8192, .n_shared = 1, .period = 2}},
};

const size_t synth_n_mixed = ARRAY_LEN(synth_shapes_mixed);
