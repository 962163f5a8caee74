/* hf_layered_archs.c: the tables of architectures whose config.json says what GGUF has in other
 * words: other numbers for other layers, or lists. hf_layered.c has the rest of each. */
#include "base/util.h"
#include "format/hf_tables.h"

/* ---- Gemma 4 and 3n ------------------------------------------------------------------ */

/* With the defaults that transformers has (Gemma4TextConfig). */
static const struct hf_key gemma4_keys[] = {
    {"context_length", GGUF_U32, "max_position_embeddings", NULL, 131072},
    {"attention.head_count", GGUF_U32, "num_attention_heads", NULL, 8},
    {"attention.key_length", GGUF_U32, "global_head_dim", NULL, 512},
    {"attention.value_length", GGUF_U32, "global_head_dim", NULL, 512},
    {"attention.key_length_swa", GGUF_U32, "head_dim", NULL, 256},
    {"attention.value_length_swa", GGUF_U32, "head_dim", NULL, 256},
    {"attention.sliding_window", GGUF_U32, "sliding_window", NULL, 512},
    {"attention.shared_kv_layers", GGUF_U32, "num_kv_shared_layers", NULL, 0},
    {"rope.dimension_count", GGUF_U32, "global_head_dim", NULL, 512},
    {"rope.freq_base", GGUF_F32, "rope_parameters.full_attention.rope_theta", NULL, 1e6},
    {"rope.freq_base_swa", GGUF_F32, "rope_parameters.sliding_attention.rope_theta", NULL,
     10000},
    {"final_logit_softcapping", GGUF_F32, "final_logit_softcapping", NULL, 0},
    END_OF_KEYS};

static const struct hf_must gemma4_musts[] = {
    {"hidden_activation", "gelu_pytorch_tanh", 0},
    {"attention_bias", NULL, 0},
    {"use_bidirectional_attention", "vision", 0}, /* of pictures' tokens alone */
    {"per_layer_config", NULL, 0},
    {"rope_parameters.sliding_attention.rope_type", "default", 0},
    {"rope_parameters.full_attention.rope_type", "proportional", 0},
    END_OF_MUSTS};

static const struct hf_name gemma4_names[] = {
    {"layer_output_scale.weight", "layer_scalar", TAKE},
    {"inp_gate.weight", "per_layer_input_gate.weight", TAKE},
    {"proj.weight", "per_layer_projection.weight", TAKE},
    {"post_norm.weight", "post_per_layer_input_norm.weight", TAKE},
    {"ffn_gate_inp.weight", "router.proj.weight", TAKE},
    {"ffn_gate_inp.scale", "router.scale", TAKE},
    {"ffn_down_exps.scale", "router.per_expert_scale", TAKE},
    {"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight", TAKE},
    {"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight", TAKE},
    {"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight", TAKE},
    {"ffn_gate_up_exps.weight", "experts.gate_up_proj", TAKE},
    {"ffn_down_exps.weight", "experts.down_proj", TAKE},
    {"ffn_gate_exps.weight", "experts.switch_glu.gate_proj.weight", TAKE}, /* MLX's */
    {"ffn_up_exps.weight", "experts.switch_glu.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "experts.switch_glu.down_proj.weight", TAKE},
    {"ffn_gate_exps.weight", "experts.%u.gate_proj.weight", TAKE}, /* quantized ones */
    {"ffn_up_exps.weight", "experts.%u.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "experts.%u.down_proj.weight", TAKE},
    NAMES_END};

static const struct hf_key gemma3n_keys[] = {
    {"context_length", GGUF_U32, "max_position_embeddings", NULL, 32768},
    U32("embedding_length", "hidden_size"),
    U32("block_count", "num_hidden_layers"),
    {"attention.head_count", GGUF_U32, "num_attention_heads", NULL, 8},
    {"attention.head_count_kv", GGUF_U32, "num_key_value_heads", NULL, 2},
    {"attention.key_length", GGUF_U32, "head_dim", NULL, 256},
    {"attention.value_length", GGUF_U32, "head_dim", NULL, 256},
    {"attention.layer_norm_rms_epsilon", GGUF_F32, "rms_norm_eps", NULL, 1e-6},
    {"attention.sliding_window", GGUF_U32, "sliding_window", NULL, 512},
    {"attention.shared_kv_layers", GGUF_U32, "num_kv_shared_layers", NULL, 15},
    {"rope.freq_base", GGUF_F32, "rope_theta", "rope_parameters.full_attention.rope_theta",
     1e6},
    {"rope.freq_base_swa", GGUF_F32, "rope_local_base_freq",
     "rope_parameters.sliding_attention.rope_theta", 10000},
    {"final_logit_softcapping", GGUF_F32, "final_logit_softcapping", NULL, 30},
    {"altup.num_inputs", GGUF_U32, "altup_num_inputs", NULL, 4},
    {"altup.active_idx", GGUF_U32, "altup_active_idx", NULL, 0},
    {"embedding_length_per_layer_input", GGUF_U32, "hidden_size_per_layer_input", NULL, 256},
    END_OF_KEYS};

static const struct hf_must gemma3n_musts[] = {{"hidden_activation", "gelu_pytorch_tanh", 0},
                                               {"attention_bias", NULL, 0},
                                               {"altup_active_idx", NULL, 0},
                                               {"altup_correct_scale", NULL, 1},
                                               END_OF_MUSTS};

static const struct hf_name gemma3n_names[] = {
    {"altup_correct_scale.weight", "altup.correct_output_scale", TAKE},
    {"altup_correct_coef.weight", "altup.correction_coefs.weight", TAKE},
    {"altup_predict_coef.weight", "altup.prediction_coefs.weight", TAKE},
    {"altup_router.weight", "altup.modality_router.weight", TAKE},
    {"altup_router_norm.weight", "altup.router_norm.weight", TAKE},
    {"laurel_l.weight", "laurel.linear_left.weight", TAKE},
    {"laurel_r.weight", "laurel.linear_right.weight", TAKE},
    {"laurel_post_norm.weight", "laurel.post_laurel_norm.weight", TAKE},
    {"inp_gate.weight", "per_layer_input_gate.weight", TAKE},
    {"proj.weight", "per_layer_projection.weight", TAKE},
    {"post_norm.weight", "post_per_layer_input_norm.weight", TAKE},
    NAMES_END};

/* ---- Llama 4 ------------------------------------------------------------------------- */

static const struct hf_key llama4_keys[] = {
    {"feed_forward_length", GGUF_U32, "intermediate_size_mlp", NULL, 16384},
    {"attention.layer_norm_rms_epsilon", GGUF_F32, "rms_norm_eps", NULL, 1e-5},
    {"rope.freq_base", GGUF_F32, "rope_theta", "rope_parameters.rope_theta", 500000},
    U32("expert_count", "num_local_experts"),
    {"expert_used_count", GGUF_U32, "num_experts_per_tok", NULL, 1},
    U32("expert_feed_forward_length", "intermediate_size"),
    {"interleave_moe_layer_step", GGUF_U32, "interleave_moe_layer_step", NULL, 1},
    END_OF_KEYS};

static const struct hf_must llama4_musts[] = {{"floor_scale", NULL, 8192},
                                              {"attn_scale", NULL, 0.1},
                                              {"attention_bias", NULL, 0},
                                              {"no_rope_layer_interval", NULL, 4},
                                              END_OF_MUSTS};

static const struct hf_name llama4_names[] = {
    {"ffn_norm.weight", "post_attention_layernorm.weight", TAKE},
    {"ffn_gate.weight", "feed_forward.gate_proj.weight", TAKE},
    {"ffn_up.weight", "feed_forward.up_proj.weight", TAKE},
    {"ffn_down.weight", "feed_forward.down_proj.weight", TAKE},
    {"ffn_gate_inp.weight", "feed_forward.router.weight", TAKE},
    {"ffn_gate_exps.weight", "feed_forward.experts.gate_up_proj", TRANSPOSE_FIRST},
    {"ffn_up_exps.weight", "feed_forward.experts.gate_up_proj", TRANSPOSE_SECOND},
    {"ffn_down_exps.weight", "feed_forward.experts.down_proj", TURN},
    {"ffn_gate_exps.weight", "feed_forward.experts.gate_proj.weight", TAKE}, /* MLX's */
    {"ffn_up_exps.weight", "feed_forward.experts.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "feed_forward.experts.down_proj.weight", TAKE},
    {"ffn_gate_exps.weight", "feed_forward.experts.%u.gate_proj.weight", TAKE}, /* FP8's */
    {"ffn_up_exps.weight", "feed_forward.experts.%u.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "feed_forward.experts.%u.down_proj.weight", TAKE},
    {"ffn_gate_shexp.weight", "feed_forward.shared_expert.gate_proj.weight", TAKE},
    {"ffn_up_shexp.weight", "feed_forward.shared_expert.up_proj.weight", TAKE},
    {"ffn_down_shexp.weight", "feed_forward.shared_expert.down_proj.weight", TAKE},
    NAMES_END};

/* ---- the rows ------------------------------------------------------------------------ */

#define GEMMA4                                                                        \
    .arch = "gemma4", .keys = {hf_common_keys, gemma4_keys}, .musts = {gemma4_musts}, \
    .names = {hf_attention_names, hf_gemma3_names, gemma4_names}, .layers = HF_OWN,   \
    .default_heads = 8, .default_kv_heads = 4, .put = hf_put_gemma4, .add = hf_check_gemma4
#define GEMMA3N                                                                        \
    .arch = "gemma3n", .keys = {gemma3n_keys}, .musts = {gemma3n_musts},               \
    .names = {hf_attention_names, hf_gemma3_names, gemma3n_names}, .window_period = 5, \
    .default_heads = 8, .default_kv_heads = 2, .put = hf_put_gemma3n, .add = hf_add_gemma3n
#define LLAMA4                                                                     \
    .arch = "llama4", .keys = {hf_common_keys, hf_head_keys, llama4_keys},         \
    .musts = {hf_silu, llama4_musts}, .names = {hf_attention_names, llama4_names}, \
    .layers = HF_OWN, .put = hf_put_llama4

const struct hf_arch hf_layered_archs[] = {
    {GEMMA4, .model_type = "gemma4"},   {GEMMA4, .model_type = "gemma4_text"},
    {GEMMA3N, .model_type = "gemma3n"}, {GEMMA3N, .model_type = "gemma3n_text"},
    {LLAMA4, .model_type = "llama4"},   {LLAMA4, .model_type = "llama4_text"},
};
const size_t n_layered_archs = ARRAY_LEN(hf_layered_archs);
