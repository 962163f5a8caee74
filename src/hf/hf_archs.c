/* hf_archs.c: the architectures that config.json may name. Their tables say where each GGUF key
 * has its value, which settings must have one value, and which tensor becomes which. */
#include "base/util.h"
#include "hf/hf_tables.h"

const struct hf_key hf_common_keys[] = {
    U32("context_length", "max_position_embeddings"),
    U32("embedding_length", "hidden_size"),
    U32("block_count", "num_hidden_layers"),
    U32("feed_forward_length", "intermediate_size"),
    U32("attention.head_count", "num_attention_heads"),
    U32("attention.head_count_kv", "num_key_value_heads"),
    {"attention.layer_norm_rms_epsilon", GGUF_F32, "rms_norm_eps", NULL, 1e-6},
    {"rope.freq_base", GGUF_F32, "rope_theta", "rope_parameters.rope_theta", 10000},
    END_OF_KEYS};

const struct hf_key hf_head_keys[] = {U32("attention.key_length", "head_dim"),
                                      U32("attention.value_length", "head_dim"), END_OF_KEYS};

const struct hf_key hf_mixtral_keys[] = {U32("expert_count", "num_local_experts"),
                                         U32("expert_used_count", "num_experts_per_tok"),
                                         END_OF_KEYS};

static const struct hf_key qwen3moe_keys[] = {
    U32("expert_count", "num_experts"), U32("expert_used_count", "num_experts_per_tok"),
    U32("expert_feed_forward_length", "moe_intermediate_size"),
    BOOL("expert_weights_norm", "norm_topk_prob"), END_OF_KEYS};

static const struct hf_key qwen2moe_keys[] = {
    U32("expert_shared_feed_forward_length", "shared_expert_intermediate_size"), END_OF_KEYS};

static const struct hf_key delta_keys[] = {
    U32("full_attention_interval", "full_attention_interval"),
    U32("ssm.conv_kernel", "linear_conv_kernel_dim"),
    U32("ssm.state_size", "linear_key_head_dim"),
    U32("ssm.group_count", "linear_num_key_heads"),
    U32("ssm.time_step_rank", "linear_num_value_heads"),
    END_OF_KEYS};

static const struct hf_key lfm2_keys[] = {
    {"attention.layer_norm_rms_epsilon", GGUF_F32, "norm_eps", "block_norm_eps", 1e-5},
    {"shortconv.l_cache", GGUF_U32, "conv_L_cache", NULL, 3},
    U32("leading_dense_block_count", "num_dense_layers"),
    F32("expert_weights_scale", "routed_scaling_factor"),
    END_OF_KEYS};

static const struct hf_key granite_hybrid_keys[] = {
    {"ssm.conv_kernel", GGUF_U32, "mamba_d_conv", NULL, 4},
    U32("ssm.state_size", "mamba_d_state"),
    {"ssm.group_count", GGUF_U32, "mamba_n_groups", NULL, 1},
    U32("ssm.time_step_rank", "mamba_n_heads"),
    END_OF_KEYS};

/* A granite hybrid without experts calls its FFN shared. */
static const struct hf_key granite_dense_keys[] = {
    U32("feed_forward_length", "shared_intermediate_size"), END_OF_KEYS};

static const struct hf_key nemotron_keys[] = {
    {"attention.layer_norm_rms_epsilon", GGUF_F32, "layer_norm_epsilon", "norm_eps", 1e-5},
    {"attention.key_length", GGUF_U32, "attention_head_dim", "head_dim", NAN},
    {"attention.value_length", GGUF_U32, "attention_head_dim", "head_dim", NAN},
    {"ssm.conv_kernel", GGUF_U32, "conv_kernel", NULL, 4},
    U32("ssm.state_size", "ssm_state_size"),
    {"ssm.group_count", GGUF_U32, "n_groups", NULL, 1},
    U32("ssm.time_step_rank", "mamba_num_heads"),
    U32("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"),
    U32("moe_latent_size", "moe_latent_size"),
    END_OF_KEYS};

const struct hf_key hf_routed_keys[] = {
    U32("expert_count", "n_routed_experts"),
    U32("expert_used_count", "num_experts_per_tok"),
    U32("expert_feed_forward_length", "moe_intermediate_size"),
    U32("expert_shared_count", "n_shared_experts"),
    U32("leading_dense_block_count", "first_k_dense_replace"),
    BOOL("expert_weights_norm", "norm_topk_prob"),
    F32("expert_weights_scale", "routed_scaling_factor"),
    U32("expert_group_count", "n_group"),
    U32("expert_group_used_count", "topk_group"),
    END_OF_KEYS};

const struct hf_key hf_mla_keys[] = {
    U32("attention.kv_lora_rank", "kv_lora_rank"),
    {"attention.q_lora_rank", GGUF_U32, "q_lora_rank", NULL, 0},
    U32("attention.value_length", "v_head_dim"),
    U32("rope.dimension_count", "qk_rope_head_dim"),
    END_OF_KEYS};

static const struct hf_key indexer_keys[] = {
    U32("attention.indexer.head_count", "index_n_heads"),
    U32("attention.indexer.key_length", "index_head_dim"),
    U32("attention.indexer.top_k", "index_topk"), END_OF_KEYS};

static const struct hf_key granite_keys[] = {F32("embedding_scale", "embedding_multiplier"),
                                             F32("residual_scale", "residual_multiplier"),
                                             F32("attention.scale", "attention_multiplier"),
                                             F32("logit_scale", "logits_scaling"), END_OF_KEYS};

static const struct hf_key granite_moe_keys[] = {
    U32("expert_count", "num_local_experts"), U32("expert_used_count", "num_experts_per_tok"),
    U32("expert_shared_feed_forward_length", "shared_intermediate_size"), END_OF_KEYS};

static const struct hf_key granite_shared_keys[] = {
    U32("expert_shared_feed_forward_length", "shared_intermediate_size"), END_OF_KEYS};

static const struct hf_key gpt_oss_keys[] = {
    U32("expert_count", "num_local_experts"),
    {"expert_used_count", GGUF_U32, "num_experts_per_tok", "experts_per_token", NAN},
    U32("expert_feed_forward_length", "intermediate_size"),
    U32("attention.sliding_window", "sliding_window"),
    END_OF_KEYS};

/* The defaults that published files leave out (transformers: Gemma3TextConfig). */
static const struct hf_key gemma3_keys[] = {
    {"context_length", GGUF_U32, "max_position_embeddings", NULL, 131072},
    {"attention.head_count", GGUF_U32, "num_attention_heads", NULL, 8},
    {"attention.head_count_kv", GGUF_U32, "num_key_value_heads", NULL, 4},
    {"attention.key_length", GGUF_U32, "head_dim", NULL, 256},
    {"attention.value_length", GGUF_U32, "head_dim", NULL, 256},
    {"attention.sliding_window", GGUF_U32, "sliding_window", NULL, 4096},
    {"rope.freq_base", GGUF_F32, "rope_theta", "rope_parameters.full_attention.rope_theta",
     1e6},
    {"rope.freq_base_swa", GGUF_F32, "rope_local_base_freq",
     "rope_parameters.sliding_attention.rope_theta", 10000},
    {"final_logit_softcapping", GGUF_F32, "final_logit_softcapping", NULL, 0},
    END_OF_KEYS};

static const struct hf_key gemma2_keys[] = {
    {"attention.sliding_window", GGUF_U32, "sliding_window", NULL, 4096},
    {"attn_logit_softcapping", GGUF_F32, "attn_logit_softcapping", NULL, 50},
    {"final_logit_softcapping", GGUF_F32, "final_logit_softcapping", NULL, 30},
    END_OF_KEYS};

static const struct hf_key cohere2_keys[] = {
    {"attention.layer_norm_epsilon", GGUF_F32, "layer_norm_eps", NULL, 1e-5},
    {"attention.sliding_window", GGUF_U32, "sliding_window", NULL, 4096},
    {"logit_scale", GGUF_F32, "logit_scale", NULL, 0.0625},
    END_OF_KEYS};

static const struct hf_key minimax_keys[] = {
    U32("expert_count", "num_local_experts"), U32("expert_used_count", "num_experts_per_tok"),
    U32("expert_feed_forward_length", "intermediate_size"),
    U32("rope.dimension_count", "rotary_dim"), END_OF_KEYS};

static const struct hf_key mistral3_keys[] = {
    F32("attention.temperature_scale", "rope_parameters.llama_4_scaling_beta"), END_OF_KEYS};

static const struct hf_key window_keys[] = {
    {"attention.sliding_window", GGUF_U32, "sliding_window", NULL, 0}, END_OF_KEYS};

/* The base that transformers' Ernie4_5Config has by default. */
static const struct hf_key ernie_keys[] = {
    {"rope.freq_base", GGUF_F32, "rope_theta", "rope_parameters.rope_theta", 500000},
    U32("expert_count", "moe_num_experts"),
    U32("expert_used_count", "moe_k"),
    U32("expert_feed_forward_length", "moe_intermediate_size"),
    U32("expert_shared_count", "moe_num_shared_experts"),
    U32("leading_dense_block_count", "moe_layer_start_index"),
    U32("interleave_moe_layer_step", "moe_layer_interval"),
    END_OF_KEYS};

const struct hf_must hf_silu[] = {{"hidden_act", "silu", 0}, END_OF_MUSTS};
static const struct hf_must qwen_musts[] = {{"use_sliding_window", NULL, 0},
                                            {"decoder_sparse_step", NULL, 1},
                                            {"mlp_only_layers", NULL, 0},
                                            END_OF_MUSTS};
static const struct hf_must lfm2_musts[] = {{"conv_bias", NULL, 0}, END_OF_MUSTS};
static const struct hf_must lfm2moe_musts[] = {
    {"norm_topk_prob", NULL, 1}, {"use_expert_bias", NULL, 1}, END_OF_MUSTS};
static const struct hf_must granite_hybrid_musts[] = {
    {"mamba_conv_bias", NULL, 1}, {"mamba_proj_bias", NULL, 0}, END_OF_MUSTS};
static const struct hf_must nemotron_musts[] = {
    {"mlp_hidden_act", "relu2", 0}, {"use_conv_bias", NULL, 1},  {"use_bias", NULL, 0},
    {"mlp_bias", NULL, 0},          {"attention_bias", NULL, 0}, END_OF_MUSTS};
static const struct hf_must delta_musts[] = {
    {"hidden_act", "silu", 0}, {"attn_output_gate", NULL, 1}, END_OF_MUSTS};
const struct hf_must hf_routed_musts[] = {{"moe_layer_freq", NULL, 1}, END_OF_MUSTS};
static const struct hf_must glm_lite_musts[] = {
    {"rope_interleave", NULL, 1}, {"attention_bias", NULL, 0}, END_OF_MUSTS};
static const struct hf_must v2_musts[] = {{"norm_topk_prob", NULL, 0}, END_OF_MUSTS};
static const struct hf_must gpt_oss_musts[] = {{"swiglu_limit", NULL, 7}, END_OF_MUSTS};
static const struct hf_must gemma3_musts[] = {{"hidden_activation", "gelu_pytorch_tanh", 0},
                                              {"attn_logit_softcapping", NULL, 0},
                                              {"sliding_window_pattern", NULL, 6},
                                              END_OF_MUSTS};
static const struct hf_must smollm3_musts[] = {
    {"no_rope_layer_interval", NULL, 4}, {"use_sliding_window", NULL, 0}, END_OF_MUSTS};
static const struct hf_must dots1_musts[] = {
    {"scoring_func", "sigmoid", 0}, {"n_group", NULL, 1}, END_OF_MUSTS};
static const struct hf_must gemma_musts[] = {{"hidden_activation", "gelu_pytorch_tanh", 0},
                                             END_OF_MUSTS};
static const struct hf_must cohere2_musts[] = {
    {"attention_bias", NULL, 0}, {"sliding_window_pattern", NULL, 4}, END_OF_MUSTS};
static const struct hf_must minimax_musts[] = {
    {"scoring_func", "sigmoid", 0}, {"qk_norm_type", "per_layer", 0}, END_OF_MUSTS};

const struct hf_name hf_attention_names[] = {
    {"attn_norm.weight", "input_layernorm.weight", TAKE_NORM},
    {"attn_q.weight", "self_attn.q_proj.weight", TAKE_HEADS},
    {"attn_k.weight", "self_attn.k_proj.weight", TAKE_HEADS},
    {"attn_v.weight", "self_attn.v_proj.weight", TAKE},
    {"attn_q.bias", "self_attn.q_proj.bias", TAKE_HEADS},
    {"attn_k.bias", "self_attn.k_proj.bias", TAKE_HEADS},
    {"attn_v.bias", "self_attn.v_proj.bias", TAKE},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", TAKE_NORM},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", TAKE_NORM},
    {"attn_output.weight", "self_attn.o_proj.weight", TAKE},
    NAMES_END};

const struct hf_name hf_ffn_names[] = {
    {"ffn_norm.weight", "post_attention_layernorm.weight", TAKE_NORM},
    {"ffn_gate.weight", "mlp.gate_proj.weight", TAKE},
    {"ffn_up.weight", "mlp.up_proj.weight", TAKE},
    {"ffn_down.weight", "mlp.down_proj.weight", TAKE},
    NAMES_END};

/* Granite Code's: a llama with biases on all its matrices. */
const struct hf_name hf_bias_names[] = {{"attn_output.bias", "self_attn.o_proj.bias", TAKE},
                                        {"ffn_gate.bias", "mlp.gate_proj.bias", TAKE},
                                        {"ffn_up.bias", "mlp.up_proj.bias", TAKE},
                                        {"ffn_down.bias", "mlp.down_proj.bias", TAKE},
                                        NAMES_END};

/* Experts one by one, or together as MLX and transformers 5 keep them. */
const struct hf_name hf_expert_names[] = {
    {"ffn_gate_inp.weight", "mlp.gate.weight", TAKE},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", TAKE},
    {"ffn_gate_exps.weight", "mlp.experts.%u.gate_proj.weight", TAKE},
    {"ffn_up_exps.weight", "mlp.experts.%u.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "mlp.experts.%u.down_proj.weight", TAKE},
    {"ffn_gate_exps.weight", "mlp.switch_mlp.gate_proj.weight", TAKE},
    {"ffn_up_exps.weight", "mlp.switch_mlp.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "mlp.switch_mlp.down_proj.weight", TAKE},
    {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj", TAKE_FIRST}, /* Qwen3.5's */
    {"ffn_up_exps.weight", "mlp.experts.gate_up_proj", TAKE_SECOND},
    {"ffn_down_exps.weight", "mlp.experts.down_proj", TAKE},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight", TAKE},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight", TAKE},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight", TAKE},
    NAMES_END};

static const struct hf_name qwen2moe_names[] = {
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", TAKE},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight", TAKE},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight", TAKE},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight", TAKE},
    NAMES_END};

const struct hf_name hf_block_sparse_names[] = {
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight", TAKE},
    {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias", TAKE},
    {"ffn_gate_exps.weight", "block_sparse_moe.experts.%u.w1.weight", TAKE},
    {"ffn_up_exps.weight", "block_sparse_moe.experts.%u.w3.weight", TAKE},
    {"ffn_down_exps.weight", "block_sparse_moe.experts.%u.w2.weight", TAKE},
    {"ffn_gate_exps.weight", "block_sparse_moe.switch_mlp.gate_proj.weight", TAKE},
    {"ffn_up_exps.weight", "block_sparse_moe.switch_mlp.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "block_sparse_moe.switch_mlp.down_proj.weight", TAKE},
    NAMES_END};

/* gate over up in one matrix, all experts in one tensor; MLX's are hf_block_sparse_names. */
static const struct hf_name granite_moe_names[] = {
    {"ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight", TAKE},
    {"ffn_gate_exps.weight", "block_sparse_moe.input_linear.weight", TAKE_FIRST},
    {"ffn_up_exps.weight", "block_sparse_moe.input_linear.weight", TAKE_SECOND},
    {"ffn_down_exps.weight", "block_sparse_moe.output_linear.weight", TAKE},
    {"ffn_gate_shexp.weight", "shared_mlp.input_linear.weight", TAKE_FIRST},
    {"ffn_up_shexp.weight", "shared_mlp.input_linear.weight", TAKE_SECOND},
    {"ffn_down_shexp.weight", "shared_mlp.output_linear.weight", TAKE},
    NAMES_END};

const struct hf_name hf_mla_names[] = {
    {"attn_norm.weight", "input_layernorm.weight", TAKE},
    {"attn_q.weight", "self_attn.q_proj.weight", TAKE},
    {"attn_q_a.weight", "self_attn.q_a_proj.weight", TAKE},
    {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight", TAKE},
    {"attn_q_b.weight", "self_attn.q_b_proj.weight", TAKE},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight", TAKE},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", TAKE},
    {"attn_kv_b.weight", "self_attn.kv_b_proj.weight", TAKE},
    {"attn_k_b.weight", "self_attn.embed_q.weight", TAKE}, /* MLX's */
    {"attn_v_b.weight", "self_attn.unembed_out.weight", TAKE},
    {"attn_output.weight", "self_attn.o_proj.weight", TAKE},
    NAMES_END};

static const struct hf_name glm_names[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight", TAKE_NORM},
    {"ffn_gate.weight", "mlp.gate_proj.weight", TAKE},
    {"ffn_up.weight", "mlp.up_proj.weight", TAKE},
    {"ffn_down.weight", "mlp.down_proj.weight", TAKE},
    NAMES_END};

/* Qwen3-Next keeps q, k, v and z of a key head together, Qwen3.5 each by itself. */
static const struct hf_name delta_names[] = {
    {"ssm_in.weight", "linear_attn.in_proj_qkvz.weight", TAKE},
    {"ssm_ba.weight", "linear_attn.in_proj_ba.weight", TAKE},
    {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight", TAKE_QKV},
    {"attn_gate.weight", "linear_attn.in_proj_z.weight", TAKE_V_ROWS},
    {"ssm_beta.weight", "linear_attn.in_proj_b.weight", TAKE_V_EACH},
    {"ssm_alpha.weight", "linear_attn.in_proj_a.weight", TAKE_V_EACH},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", TAKE_CONV},
    {"ssm_dt.bias", "linear_attn.dt_bias", TAKE_V_EACH},
    {"ssm_a", "linear_attn.A_log", TAKE_V_LOG},
    {"ssm_norm.weight", "linear_attn.norm.weight", TAKE},
    {"ssm_out.weight", "linear_attn.out_proj.weight", TAKE_V_COLS},
    NAMES_END};

static const struct hf_name lfm2_names[] = {
    {"attn_norm.weight", "operator_norm.weight", TAKE},
    {"attn_q_norm.weight", "self_attn.q_layernorm.weight", TAKE},
    {"attn_k_norm.weight", "self_attn.k_layernorm.weight", TAKE},
    {"attn_output.weight", "self_attn.out_proj.weight", TAKE},
    {"shortconv.in_proj.weight", "conv.in_proj.weight", TAKE},
    {"shortconv.conv.weight", "conv.conv.weight", TAKE_CONV},
    {"shortconv.out_proj.weight", "conv.out_proj.weight", TAKE},
    {"ffn_norm.weight", "ffn_norm.weight", TAKE},
    {"ffn_gate.weight", "feed_forward.w1.weight", TAKE},
    {"ffn_down.weight", "feed_forward.w2.weight", TAKE},
    {"ffn_up.weight", "feed_forward.w3.weight", TAKE},
    NAMES_END};

static const struct hf_name lfm2moe_names[] = {
    {"ffn_gate_inp.weight", "feed_forward.gate.weight", TAKE},
    {"exp_probs_b.bias", "feed_forward.expert_bias", TAKE},
    {"ffn_gate_exps.weight", "feed_forward.experts.%u.w1.weight", TAKE},
    {"ffn_down_exps.weight", "feed_forward.experts.%u.w2.weight", TAKE},
    {"ffn_up_exps.weight", "feed_forward.experts.%u.w3.weight", TAKE},
    {"ffn_gate_exps.weight", "feed_forward.switch_mlp.gate_proj.weight", TAKE}, /* MLX's */
    {"ffn_down_exps.weight", "feed_forward.switch_mlp.down_proj.weight", TAKE},
    {"ffn_up_exps.weight", "feed_forward.switch_mlp.up_proj.weight", TAKE},
    NAMES_END};

static const struct hf_name granite_hybrid_names[] = {
    {"ssm_in.weight", "mamba.in_proj.weight", TAKE},
    {"ssm_conv1d.weight", "mamba.conv1d.weight", TAKE_CONV},
    {"ssm_conv1d.bias", "mamba.conv1d.bias", TAKE},
    {"ssm_dt.bias", "mamba.dt_bias", TAKE},
    {"ssm_a", "mamba.A_log", TAKE_COLUMN_LOG},
    {"ssm_d", "mamba.D", TAKE_COLUMN},
    {"ssm_norm.weight", "mamba.norm.weight", TAKE_GROUPS},
    {"ssm_out.weight", "mamba.out_proj.weight", TAKE},
    NAMES_END};

static const struct hf_name granite_dense_names[] = {
    {"ffn_gate.weight", "shared_mlp.input_linear.weight", TAKE_FIRST},
    {"ffn_up.weight", "shared_mlp.input_linear.weight", TAKE_SECOND},
    {"ffn_down.weight", "shared_mlp.output_linear.weight", TAKE},
    NAMES_END};

/* Every layer is one block, called mixer. */
static const struct hf_name nemotron_names[] = {
    {"attn_norm.weight", "norm.weight", TAKE},
    {"attn_q.weight", "mixer.q_proj.weight", TAKE},
    {"attn_k.weight", "mixer.k_proj.weight", TAKE},
    {"attn_v.weight", "mixer.v_proj.weight", TAKE},
    {"attn_output.weight", "mixer.o_proj.weight", TAKE},
    {"ffn_up.weight", "mixer.up_proj.weight", TAKE},
    {"ffn_down.weight", "mixer.down_proj.weight", TAKE},
    {"ssm_in.weight", "mixer.in_proj.weight", TAKE},
    {"ssm_conv1d.weight", "mixer.conv1d.weight", TAKE_CONV},
    {"ssm_conv1d.bias", "mixer.conv1d.bias", TAKE},
    {"ssm_dt.bias", "mixer.dt_bias", TAKE},
    {"ssm_a", "mixer.A_log", TAKE_COLUMN_LOG},
    {"ssm_d", "mixer.D", TAKE_COLUMN},
    {"ssm_norm.weight", "mixer.norm.weight", TAKE_GROUPS},
    {"ssm_out.weight", "mixer.out_proj.weight", TAKE},
    NAMES_END};

static const struct hf_name nemotron_moe_names[] = {
    {"ffn_gate_inp.weight", "mixer.gate.weight", TAKE},
    {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias", TAKE},
    {"ffn_up_exps.weight", "mixer.experts.%u.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "mixer.experts.%u.down_proj.weight", TAKE},
    {"ffn_up_exps.weight", "mixer.switch_mlp.fc1.weight", TAKE}, /* MLX's */
    {"ffn_down_exps.weight", "mixer.switch_mlp.fc2.weight", TAKE},
    {"ffn_latent_down.weight", "mixer.fc1_latent_proj.weight", TAKE},
    {"ffn_latent_up.weight", "mixer.fc2_latent_proj.weight", TAKE},
    {"ffn_up_shexp.weight", "mixer.shared_experts.up_proj.weight", TAKE},
    {"ffn_down_shexp.weight", "mixer.shared_experts.down_proj.weight", TAKE},
    NAMES_END};

static const struct hf_name gpt_oss_names[] = {
    {"attn_output.bias", "self_attn.o_proj.bias", TAKE},
    {"attn_sinks.weight", "self_attn.sinks", TAKE},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", TAKE},
    {"ffn_gate_inp.weight", "mlp.router.weight", TAKE},
    {"ffn_gate_inp.bias", "mlp.router.bias", TAKE},
    {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj_blocks", TAKE_EVEN},
    {"ffn_up_exps.weight", "mlp.experts.gate_up_proj_blocks", TAKE_ODD},
    {"ffn_down_exps.weight", "mlp.experts.down_proj_blocks", TAKE},
    {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj", TRANSPOSE_EVEN},
    {"ffn_up_exps.weight", "mlp.experts.gate_up_proj", TRANSPOSE_ODD},
    {"ffn_down_exps.weight", "mlp.experts.down_proj", TURN},
    {"ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias", VALUES_EVEN},
    {"ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias", VALUES_ODD},
    {"ffn_down_exps.bias", "mlp.experts.down_proj_bias", TAKE},
    {"ffn_gate_exps.weight", "mlp.experts.gate_proj.weight", TAKE}, /* MLX's */
    {"ffn_up_exps.weight", "mlp.experts.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "mlp.experts.down_proj.weight", TAKE},
    {"ffn_gate_exps.bias", "mlp.experts.gate_proj.bias", TAKE},
    {"ffn_up_exps.bias", "mlp.experts.up_proj.bias", TAKE},
    {"ffn_down_exps.bias", "mlp.experts.down_proj.bias", TAKE},
    NAMES_END};

const struct hf_name hf_gemma3_names[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight", TAKE_NORM},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight", TAKE_NORM},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", TAKE_NORM},
    {"ffn_gate.weight", "mlp.gate_proj.weight", TAKE},
    {"ffn_up.weight", "mlp.up_proj.weight", TAKE},
    {"ffn_down.weight", "mlp.down_proj.weight", TAKE},
    NAMES_END};

static const struct hf_name phi3_names[] = {
    {"attn_qkv.weight", "self_attn.qkv_proj.weight", TAKE},
    {"ffn_up.weight", "mlp.gate_up_proj.weight", TAKE},
    NAMES_END};

/* Norms behind the blocks only: OLMo 2 and 3, EXAONE 4. */
static const struct hf_name post_norm_names[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight", TAKE},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", TAKE},
    {"ffn_gate.weight", "mlp.gate_proj.weight", TAKE},
    {"ffn_up.weight", "mlp.up_proj.weight", TAKE},
    {"ffn_down.weight", "mlp.down_proj.weight", TAKE},
    NAMES_END};

static const struct hf_name glm4_names[] = {
    {"post_attention_norm.weight", "post_self_attn_layernorm.weight", TAKE},
    {"post_ffw_norm.weight", "post_mlp_layernorm.weight", TAKE},
    {"ffn_up.weight", "mlp.gate_up_proj.weight", TAKE},
    NAMES_END};

static const struct hf_name ernie_names[] = {
    {"exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias", TAKE}, NAMES_END};

/* DeepSeek's names; its queries and keys have the order of dimensions that GGUF has. */
static const struct hf_name indexer_names[] = {
    {"indexer.attn_q_b.weight", "self_attn.indexer.wq_b.weight", TAKE},
    {"indexer.attn_k.weight", "self_attn.indexer.wk.weight", TAKE},
    {"indexer.proj.weight", "self_attn.indexer.weights_proj.weight", TAKE},
    {"indexer.k_norm.weight", "self_attn.indexer.k_norm.weight", TAKE},
    {"indexer.k_norm.bias", "self_attn.indexer.k_norm.bias", TAKE},
    NAMES_END};

#define DEEPSEEK                                                                             \
    .arch = "deepseek2", .mla = true, .keys = {hf_common_keys, hf_mla_keys, hf_routed_keys}, \
    .names = {hf_mla_names, hf_ffn_names, hf_expert_names}
#define INDEXED                                                            \
    .mla = true, .sigmoid = true,                                          \
    .keys = {hf_common_keys, hf_mla_keys, hf_routed_keys, indexer_keys},   \
    .names = {hf_mla_names, hf_ffn_names, hf_expert_names, indexer_names}, \
    .musts = {hf_silu, hf_routed_musts}
#define GRANITE_MOE                                                     \
    .arch = "granitemoe", .interleave_heads = true, .musts = {hf_silu}, \
    .names = {hf_attention_names, hf_ffn_names, granite_moe_names, hf_block_sparse_names}
#define MISTRAL3                                                               \
    .arch = "mistral3", .interleave_heads = true,                              \
    .keys = {hf_common_keys, hf_head_keys, mistral3_keys}, .musts = {hf_silu}, \
    .names = {hf_attention_names, hf_ffn_names, hf_bias_names}
#define QWEN3                                                                                \
    .arch = "qwen3", .keys = {hf_common_keys, hf_head_keys}, .musts = {hf_silu, qwen_musts}, \
    .names = {hf_attention_names, hf_ffn_names}
#define QWEN3_MOE                                                              \
    .arch = "qwen3moe", .keys = {hf_common_keys, hf_head_keys, qwen3moe_keys}, \
    .musts = {hf_silu, qwen_musts},                                            \
    .names = {hf_attention_names, hf_ffn_names, hf_expert_names}
#define QWEN2                                                                                \
    .arch = "qwen2", .keys = {hf_common_keys, hf_head_keys}, .musts = {hf_silu, qwen_musts}, \
    .names = {hf_attention_names, hf_ffn_names}
#define GEMMA3                                                                        \
    .arch = "gemma3", .keys = {hf_common_keys, gemma3_keys}, .musts = {gemma3_musts}, \
    .names = {hf_attention_names, hf_gemma3_names}, .norms_plus_one = true,           \
    .window_period = 6, .default_heads = 8, .default_kv_heads = 4

#define DELTA                                                                         \
    .layers = HF_DELTA, .norms_plus_one = true, .musts = {delta_musts, qwen_musts},   \
    .keys = {hf_common_keys, hf_head_keys, qwen3moe_keys, qwen2moe_keys, delta_keys}, \
    .names = {hf_attention_names, glm_names, hf_expert_names, qwen2moe_names, delta_names}

const struct hf_arch hf_archs[] = {
    {.model_type = "llama",
     .arch = "llama",
     .interleave_heads = true,
     .keys = {hf_common_keys, hf_head_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, hf_ffn_names, hf_bias_names}},
    {.model_type = "mistral",
     .arch = "llama",
     .interleave_heads = true,
     .keys = {hf_common_keys, hf_head_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, hf_ffn_names, hf_bias_names}},
    {.model_type = "granite",
     .arch = "granite",
     .interleave_heads = true,
     .keys = {hf_common_keys, hf_head_keys, granite_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, hf_ffn_names, hf_bias_names}},
    {GRANITE_MOE, .model_type = "granitemoe",
     .keys = {hf_common_keys, hf_head_keys, granite_keys, hf_mixtral_keys}},
    {GRANITE_MOE, .model_type = "granitemoeshared",
     .keys = {hf_common_keys, hf_head_keys, granite_keys, hf_mixtral_keys,
              granite_shared_keys}},
    {.model_type = "granitemoehybrid",
     .arch = "granitehybrid",
     .interleave_heads = true,
     .layers = HF_MAMBA,
     .keys = {hf_common_keys, hf_head_keys, granite_keys, granite_hybrid_keys,
              granite_moe_keys},
     .musts = {hf_silu, granite_hybrid_musts},
     .names = {hf_attention_names, hf_ffn_names, granite_moe_names, granite_hybrid_names}},
    {.model_type = "granitemoehybrid",
     .arch = "granitehybrid",
     .no_experts = true,
     .interleave_heads = true,
     .layers = HF_MAMBA,
     .keys = {hf_common_keys, hf_head_keys, granite_keys, granite_hybrid_keys,
              granite_dense_keys},
     .musts = {hf_silu, granite_hybrid_musts},
     .names = {hf_attention_names, hf_ffn_names, granite_dense_names, granite_hybrid_names}},
    {.model_type = "lfm2",
     .arch = "lfm2",
     .layers = HF_CONV,
     .keys = {hf_common_keys, hf_head_keys, lfm2_keys},
     .musts = {lfm2_musts},
     .names = {hf_attention_names, lfm2_names}},
    {.model_type = "lfm2_moe",
     .arch = "lfm2moe",
     .layers = HF_CONV,
     .keys = {hf_common_keys, hf_head_keys, qwen3moe_keys, lfm2_keys},
     .musts = {lfm2_musts, lfm2moe_musts},
     .names = {hf_attention_names, lfm2_names, lfm2moe_names}},
    {.model_type = "nemotron_h",
     .arch = "nemotron_h_moe",
     .layers = HF_BLOCKS,
     .keys = {hf_common_keys, nemotron_keys, hf_routed_keys},
     .musts = {nemotron_musts},
     .names = {nemotron_names, nemotron_moe_names}},
    {.model_type = "nemotron_h",
     .arch = "nemotron_h",
     .no_experts = true,
     .layers = HF_BLOCKS,
     .keys = {hf_common_keys, nemotron_keys},
     .musts = {nemotron_musts},
     .names = {nemotron_names}},
    {.model_type = "mixtral",
     .arch = "llama",
     .interleave_heads = true,
     .keys = {hf_common_keys, hf_head_keys, hf_mixtral_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, hf_ffn_names, hf_block_sparse_names}},
    {.model_type = "qwen2", QWEN2},
    {.model_type = "qwen2_vl", QWEN2},
    {.model_type = "qwen2_5_vl", QWEN2},
    {.model_type = "qwen2_moe",
     .arch = "qwen2moe",
     .keys = {hf_common_keys, hf_head_keys, qwen3moe_keys, qwen2moe_keys},
     .musts = {hf_silu, qwen_musts},
     .names = {hf_attention_names, hf_ffn_names, hf_expert_names, qwen2moe_names}},
    {.model_type = "qwen3", QWEN3},
    {.model_type = "qwen3_vl_text", QWEN3},
    {.model_type = "qwen3_moe", QWEN3_MOE},
    {.model_type = "qwen3_vl_moe_text", QWEN3_MOE},
    {DELTA, .model_type = "qwen3_next", .arch = "qwen3next"},
    {DELTA, .model_type = "qwen3_5", .arch = "qwen35", .tiled_heads = true},
    {DELTA, .model_type = "qwen3_5_text", .arch = "qwen35", .tiled_heads = true},
    {DELTA, .model_type = "qwen3_5_moe", .arch = "qwen35moe", .tiled_heads = true},
    {DELTA, .model_type = "qwen3_5_moe_text", .arch = "qwen35moe", .tiled_heads = true},
    {DEEPSEEK, .model_type = "deepseek_v2", .musts = {hf_silu, hf_routed_musts, v2_musts}},
    {DEEPSEEK, .model_type = "deepseek_v3", .sigmoid = true,
     .musts = {hf_silu, hf_routed_musts}},
    {DEEPSEEK, .model_type = "kimi_k2", .sigmoid = true, .musts = {hf_silu, hf_routed_musts}},
    {DEEPSEEK, .model_type = "glm4_moe_lite", .sigmoid = true,
     .musts = {hf_silu, hf_routed_musts, glm_lite_musts}},
    {INDEXED, .model_type = "deepseek_v32", .arch = "deepseek32"},
    {INDEXED, .model_type = "glm_moe_dsa", .arch = "glm-dsa"},
    {.model_type = "gpt_oss",
     .arch = "gpt-oss",
     .keys = {hf_common_keys, hf_head_keys, gpt_oss_keys},
     .musts = {hf_silu, gpt_oss_musts},
     .names = {hf_attention_names, gpt_oss_names},
     .window_period = 2},
    {.model_type = "glm4_moe",
     .sigmoid = true,
     .arch = "glm4moe",
     .keys = {hf_common_keys, hf_head_keys, hf_routed_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, glm_names, hf_expert_names}},
    {.model_type = "gemma3_text", GEMMA3},
    {.model_type = "gemma3", GEMMA3},
    {.model_type = "phi3",
     .arch = "phi3",
     .keys = {hf_common_keys, hf_head_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, hf_ffn_names, phi3_names}},
    {MISTRAL3, .model_type = "mistral3"},
    {MISTRAL3, .model_type = "ministral3"},
    {.model_type = "smollm3",
     .arch = "smollm3",
     .interleave_heads = true,
     .keys = {hf_common_keys, hf_head_keys},
     .musts = {hf_silu, smollm3_musts},
     .names = {hf_attention_names, hf_ffn_names, hf_bias_names}},
    {.model_type = "seed_oss",
     .arch = "seed_oss",
     .keys = {hf_common_keys, hf_head_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, glm_names}},
    {.model_type = "olmo2",
     .arch = "olmo2",
     .keys = {hf_common_keys, hf_head_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, post_norm_names}},
    {.model_type = "olmo3",
     .arch = "olmo2",
     .keys = {hf_common_keys, hf_head_keys, window_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, post_norm_names},
     .window_period = 4},
    {.model_type = "exaone4",
     .arch = "exaone4",
     .keys = {hf_common_keys, hf_head_keys, window_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, post_norm_names},
     .window_period = 4},
    {.model_type = "ernie4_5",
     .arch = "ernie4_5",
     .keys = {hf_common_keys, hf_head_keys, ernie_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, hf_ffn_names, hf_bias_names}},
    {.model_type = "ernie4_5_moe",
     .arch = "ernie4_5-moe",
     .keys = {hf_common_keys, hf_head_keys, ernie_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, hf_ffn_names, hf_expert_names, ernie_names}},
    {.model_type = "dots1",
     .arch = "dots1",
     .keys = {hf_common_keys, hf_head_keys, hf_routed_keys},
     .musts = {hf_silu, dots1_musts},
     .names = {hf_attention_names, hf_ffn_names, hf_expert_names}},
    {.model_type = "gemma",
     .arch = "gemma",
     .keys = {hf_common_keys, hf_head_keys},
     .musts = {gemma_musts},
     .names = {hf_attention_names, hf_ffn_names},
     .norms_plus_one = true},
    {.model_type = "gemma2",
     .arch = "gemma2",
     .keys = {hf_common_keys, hf_head_keys, gemma2_keys},
     .musts = {gemma_musts},
     .names = {hf_attention_names, hf_gemma3_names},
     .norms_plus_one = true,
     .window_period = 2},
    {.model_type = "cohere2",
     .arch = "cohere2",
     .keys = {hf_common_keys, hf_head_keys, cohere2_keys},
     .musts = {hf_silu, cohere2_musts},
     .names = {hf_attention_names, hf_ffn_names},
     .window_period = 4},
    {.model_type = "glm4",
     .arch = "glm4",
     .keys = {hf_common_keys, hf_head_keys},
     .musts = {hf_silu},
     .names = {hf_attention_names, hf_ffn_names, glm4_names}},
    {.model_type = "minimax_m2",
     .sigmoid = true,
     .arch = "minimax-m2",
     .keys = {hf_common_keys, hf_head_keys, minimax_keys},
     .musts = {hf_silu, minimax_musts},
     .names = {hf_attention_names, hf_ffn_names, hf_block_sparse_names}},
};
const size_t n_folder_archs = ARRAY_LEN(hf_archs);
