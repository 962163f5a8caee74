/* hf_layered_archs.c: the tables of architectures whose config.json says what GGUF has in other
 * words: other numbers for other layers, or lists. hf_layered.c has the rest of each. */
#include "base/util.h"
#include "hf/hf_tables.h"

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

/* ---- Kimi Linear --------------------------------------------------------------------- */

static const struct hf_key kimi_keys[] = {
    {"context_length", GGUF_U32, "model_max_length", "max_position_embeddings", NAN},
    U32("ssm.conv_kernel", "linear_attn_config.short_conv_kernel_size"),
    U32("kda.head_dim", "linear_attn_config.head_dim"),
    U32("expert_count", "num_experts"),
    {"expert_used_count", GGUF_U32, "num_experts_per_token", "num_experts_per_tok", NAN},
    U32("expert_feed_forward_length", "moe_intermediate_size"),
    U32("expert_shared_count", "num_shared_experts"),
    U32("leading_dense_block_count", "first_k_dense_replace"),
    BOOL("expert_weights_norm", "moe_renormalize"),
    F32("expert_weights_scale", "routed_scaling_factor"),
    END_OF_KEYS};

static const struct hf_key kimi_k3_keys[] = {
    F32("kda.gate_lower_bound", "linear_attn_config.gate_lower_bound"),
    U32("expert_latent_length", "routed_expert_hidden_size"),
    F32("activation.situ_beta", "activation_situ_beta"),
    F32("activation.situ_linear_beta", "activation_situ_linear_beta"),
    U32("attn_res.block_size", "attn_res_block_size"),
    END_OF_KEYS};

static const struct hf_must kimi_k3_musts[] = {
    {"hidden_act", "situ", 0},
    {"moe_layer_freq", NULL, 1},
    {"num_expert_group", NULL, 1},
    {"topk_group", NULL, 1},
    {"rope_scaling", NULL, 0},
    {"attention_bias", NULL, 0},
    {"mla_use_output_gate", NULL, 1},
    {"latent_moe_use_norm", NULL, 1},
    {"linear_attn_config.use_full_rank_gate", NULL, 1},
    END_OF_MUSTS};

static const struct hf_must kimi_musts[] = {{"moe_layer_freq", NULL, 1},
                                            {"num_expert_group", NULL, 1},
                                            {"topk_group", NULL, 1},
                                            {"rope_scaling", NULL, 0},
                                            {"attention_bias", NULL, 0},
                                            {"attn_res_block_size", NULL, 0},
                                            {"mla_use_nope", NULL, 1},
                                            {"mla_use_output_gate", NULL, 0},
                                            {"routed_expert_hidden_size", NULL, 0},
                                            {"linear_attn_config.use_full_rank_gate", NULL, 0},
                                            {"linear_attn_config.gate_lower_bound", NULL, 0},
                                            END_OF_MUSTS};

/* A delta net has its own q, k and v, and is called self_attn like the others. */
static const struct hf_name kimi_names[] = {
    {"attn_k.weight", "self_attn.k_proj.weight", TAKE},
    {"attn_v.weight", "self_attn.v_proj.weight", TAKE},
    {"ssm_conv1d_q.weight", "self_attn.q_conv1d.weight", TAKE_CONV},
    {"ssm_conv1d_k.weight", "self_attn.k_conv1d.weight", TAKE_CONV},
    {"ssm_conv1d_v.weight", "self_attn.v_conv1d.weight", TAKE_CONV},
    {"ssm_conv1d_q.weight", "self_attn.q_conv.conv.weight", TAKE_CONV}, /* MLX's */
    {"ssm_conv1d_k.weight", "self_attn.k_conv.conv.weight", TAKE_CONV},
    {"ssm_conv1d_v.weight", "self_attn.v_conv.conv.weight", TAKE_CONV},
    {"ssm_dt.bias", "self_attn.dt_bias", TAKE_FLAT},
    {"ssm_f_a.weight", "self_attn.f_a_proj.weight", TAKE},
    {"ssm_f_b.weight", "self_attn.f_b_proj.weight", TAKE},
    {"ssm_beta.weight", "self_attn.b_proj.weight", TAKE},
    {"ssm_norm.weight", "self_attn.o_norm.weight", TAKE},
    {"exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias", TAKE},
    {"ffn_gate_shexp.weight", "block_sparse_moe.shared_experts.gate_proj.weight", TAKE},
    {"ffn_up_shexp.weight", "block_sparse_moe.shared_experts.up_proj.weight", TAKE},
    {"ffn_down_shexp.weight", "block_sparse_moe.shared_experts.down_proj.weight", TAKE},
    NAMES_END};

static const struct hf_name kimi_linear_names[] = {
    {"ssm_a", "self_attn.A_log", TAKE_COLUMN_LOG},
    {"ssm_g_a.weight", "self_attn.g_a_proj.weight", TAKE},
    {"ssm_g_b.weight", "self_attn.g_b_proj.weight", TAKE},
    {"exp_probs_b.bias", "mlp.e_score_correction_bias", TAKE}, /* MLX's */
    NAMES_END};

/* Its gates have one name and two meanings, and some vectors are products: hf_add_kimi_k3(). */
static const struct hf_name kimi_k3_names[] = {
    {"ssm_a", "self_attn.A_log", TAKE_V_LOG},
    {"ffn_routed_down.weight", "block_sparse_moe.routed_expert_down_proj.weight", TAKE},
    {"ffn_routed_norm.weight", "block_sparse_moe.routed_expert_norm.weight", TAKE},
    {"ffn_routed_up.weight", "block_sparse_moe.routed_expert_up_proj.weight", TAKE},
    NAMES_END};

/* ---- MiniMax M3 ---------------------------------------------------------------------- */

#define SPARSE "sparse_attention_config."
static const struct hf_key minimax_m3_keys[] = {
    {"feed_forward_length", GGUF_U32, "dense_intermediate_size", NULL, 12288},
    {"rope.freq_base", GGUF_F32, "rope_theta", "rope_parameters.rope_theta", 5e6},
    {"rope.dimension_count", GGUF_U32, "rotary_dim", NULL, 64},
    U32("expert_count", "num_local_experts"),
    U32("expert_used_count", "num_experts_per_tok"),
    U32("expert_feed_forward_length", "intermediate_size"),
    {"expert_weights_scale", GGUF_F32, "routed_scaling_factor", NULL, 2},
    U32("attention.indexer.head_count", SPARSE "sparse_num_index_heads"),
    U32("attention.indexer.key_length", SPARSE "sparse_index_dim"),
    U32("attention.indexer.top_k", SPARSE "sparse_topk_blocks"),
    U32("attention.indexer.block_size", SPARSE "sparse_block_size"),
    {"attention.indexer.local_blocks", GGUF_U32, SPARSE "sparse_local_block", NULL, 1},
    END_OF_KEYS};

static const struct hf_must minimax_m3_musts[] = {{"use_gemma_norm", NULL, 1},
                                                  {"use_qk_norm", NULL, 1},
                                                  {"qk_norm_type", "per_head", 0},
                                                  {"scoring_func", "sigmoid", 0},
                                                  {"use_routing_bias", NULL, 1},
                                                  {"swiglu_alpha", NULL, 1.702},
                                                  {"swiglu_limit", NULL, 7},
                                                  {SPARSE "sparse_init_block", NULL, 0},
                                                  {SPARSE "sparse_score_type", "max", 0},
                                                  END_OF_MUSTS};

static const struct hf_name minimax_m3_names[] = {
    {"indexer.q_proj.weight", "self_attn.index_q_proj.weight", TAKE},
    {"indexer.k_proj.weight", "self_attn.index_k_proj.weight", TAKE},
    {"indexer.q_norm.weight", "self_attn.index_q_norm.weight", TAKE_NORM},
    {"indexer.k_norm.weight", "self_attn.index_k_norm.weight", TAKE_NORM},
    {"ffn_gate_shexp.weight", "block_sparse_moe.shared_experts.gate_proj.weight", TAKE},
    {"ffn_up_shexp.weight", "block_sparse_moe.shared_experts.up_proj.weight", TAKE},
    {"ffn_down_shexp.weight", "block_sparse_moe.shared_experts.down_proj.weight", TAKE},
    NAMES_END};

/* ---- Step 3.5 ------------------------------------------------------------------------ */

static const struct hf_key step35_keys[] = {
    U32("context_length", "max_position_embeddings"),
    U32("embedding_length", "hidden_size"),
    U32("block_count", "num_hidden_layers"),
    U32("feed_forward_length", "intermediate_size"),
    {"attention.layer_norm_rms_epsilon", GGUF_F32, "rms_norm_eps", NULL, 1e-5},
    U32("attention.key_length", "head_dim"),
    U32("attention.value_length", "head_dim"),
    U32("attention.sliding_window", "sliding_window"),
    U32("rope.dimension_count", "head_dim"),
    U32("expert_count", "moe_num_experts"),
    U32("expert_used_count", "moe_top_k"),
    U32("expert_feed_forward_length", "moe_intermediate_size"),
    U32("expert_shared_feed_forward_length", "share_expert_dim"),
    {"expert_weights_scale", GGUF_F32, "moe_router_scaling_factor", NULL, 3},
    END_OF_KEYS};

static const struct hf_must step35_musts[] = {
    {"moe_router_activation", "sigmoid", 0},
    {"zero_centered", NULL, 1},
    {"use_moe_router_bias", NULL, 1},
    {"moe_every_n_layer", NULL, 1},
    {"use_rope_layers", NULL, 0},
    {"sink", NULL, 0},
    {"use_qk_norm", NULL, 1},
    {"use_head_wise_attn_gate", NULL, 1},
    {"att_impl_type", "GQA", 0},
    {"attention_bias", NULL, 0},
    {"attention_other_setting.attention_type", "sliding_attention", 0},
    END_OF_MUSTS};

static const struct hf_name step35_names[] = {
    {"attn_gate.weight", "self_attn.g_proj.weight", TAKE},
    {"ffn_gate_inp.weight", "moe.gate.weight", TAKE},
    {"exp_probs_b.bias", "moe.router_bias", TAKE},
    {"ffn_gate_exps.weight", "moe.gate_proj.weight", TAKE},
    {"ffn_up_exps.weight", "moe.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "moe.down_proj.weight", TAKE},
    {"ffn_gate_shexp.weight", "share_expert.gate_proj.weight", TAKE},
    {"ffn_up_shexp.weight", "share_expert.up_proj.weight", TAKE},
    {"ffn_down_shexp.weight", "share_expert.down_proj.weight", TAKE},
    {"ffn_gate_inp.weight", "mlp.gate.gate.weight", TAKE}, /* MLX's */
    {"exp_probs_b.bias", "mlp.gate.router_bias", TAKE},
    {"ffn_gate_exps.weight", "mlp.switch_mlp.gate_proj.weight", TAKE},
    {"ffn_up_exps.weight", "mlp.switch_mlp.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "mlp.switch_mlp.down_proj.weight", TAKE},
    {"ffn_gate_shexp.weight", "mlp.share_expert.gate_proj.weight", TAKE},
    {"ffn_up_shexp.weight", "mlp.share_expert.up_proj.weight", TAKE},
    {"ffn_down_shexp.weight", "mlp.share_expert.down_proj.weight", TAKE},
    NAMES_END};

/* ---- Hunyuan ------------------------------------------------------------------------- */

static const struct hf_key hunyuan_keys[] = {
    {"attention.layer_norm_rms_epsilon", GGUF_F32, "rms_norm_eps", NULL, 1e-5},
    {"attention.key_length", GGUF_U32, "attention_head_dim", "head_dim", NAN},
    {"attention.value_length", GGUF_U32, "attention_head_dim", "head_dim", NAN},
    END_OF_KEYS};

static const struct hf_must hunyuan_musts[] = {{"use_cla", NULL, 0},
                                               {"use_mla", NULL, 0},
                                               {"use_qk_norm", NULL, 1},
                                               {"norm_topk_prob", NULL, 1},
                                               {"routed_scaling_factor", NULL, 1},
                                               {"group_limited_greedy", NULL, 0},
                                               {"moe_layer_num_skipped", NULL, 0},
                                               {"use_mixed_mlp_moe", NULL, 1},
                                               END_OF_MUSTS};
static const struct hf_must hunyuan_dense_musts[] = {
    {"use_cla", NULL, 0}, {"use_qk_norm", NULL, 1}, {"num_experts", NULL, 1}, END_OF_MUSTS};

static const struct hf_name hunyuan_names[] = {
    {"attn_q_norm.weight", "self_attn.query_layernorm.weight", TAKE},
    {"attn_k_norm.weight", "self_attn.key_layernorm.weight", TAKE},
    {"ffn_gate_inp.weight", "mlp.gate.wg.weight", TAKE},
    {"ffn_gate_shexp.weight", "mlp.shared_mlp.gate_proj.weight", TAKE},
    {"ffn_up_shexp.weight", "mlp.shared_mlp.up_proj.weight", TAKE},
    {"ffn_down_shexp.weight", "mlp.shared_mlp.down_proj.weight", TAKE},
    NAMES_END};

/* ---- Ling 2 -------------------------------------------------------------------------- */

static const struct hf_key bailing_keys[] = {
    {"rope.freq_base", GGUF_F32, "rope_theta", "rope_parameters.rope_theta", 600000},
    U32("rope.dimension_count", "rotary_dim"),
    U32("expert_count", "num_experts"),
    U32("expert_used_count", "num_experts_per_tok"),
    U32("expert_feed_forward_length", "moe_intermediate_size"),
    U32("expert_shared_count", "num_shared_experts"),
    U32("leading_dense_block_count", "first_k_dense_replace"),
    BOOL("expert_weights_norm", "norm_topk_prob"),
    {"expert_weights_scale", GGUF_F32, "routed_scaling_factor", NULL, 1},
    {"expert_group_count", GGUF_U32, "n_group", NULL, 1},
    {"expert_group_used_count", GGUF_U32, "topk_group", NULL, 1},
    END_OF_KEYS};

static const struct hf_must bailing_musts[] = {{"score_function", "sigmoid", 0},
                                               {"use_bias", NULL, 0},
                                               {"use_qkv_bias", NULL, 0},
                                               {"norm_head", NULL, 0},
                                               {"norm_softmax", NULL, 0},
                                               {"use_qk_norm", NULL, 1},
                                               {"use_rmsnorm", NULL, 1},
                                               {"moe_router_enable_expert_bias", NULL, 1},
                                               {"moe_router_enable_routed_scaling", NULL, 1},
                                               {"moe_router_enable_shared_expert", NULL, 1},
                                               END_OF_MUSTS};

static const struct hf_name bailing_names[] = {
    {"attn_norm.weight", "input_layernorm.weight", TAKE},
    {"attn_qkv.weight", "attention.query_key_value.weight", TAKE},
    {"attn_output.weight", "attention.dense.weight", TAKE},
    {"attn_q_norm.weight", "attention.query_layernorm.weight", TAKE},
    {"attn_k_norm.weight", "attention.key_layernorm.weight", TAKE},
    {"exp_probs_b.bias", "mlp.gate.expert_bias", TAKE},
    {"ffn_gate_inp.weight", "mlp.gate.gate_proj.weight", TAKE}, /* MLX's */
    NAMES_END};

/* ---- DeepSeek V4 --------------------------------------------------------------------- */

/* With the defaults that transformers has (DeepseekV4Config), which nests RoPE's numbers. */
static const struct hf_key deepseek4_keys[] = {
    {"attention.head_count_kv", GGUF_U32, "num_key_value_heads", NULL, 1},
    {"rope.freq_base", GGUF_F32, "rope_theta", "rope_parameters.main.rope_theta", 10000},
    U32("rope.dimension_count", "qk_rope_head_dim"),
    U32("attention.q_lora_rank", "q_lora_rank"),
    U32("attention.output_lora_rank", "o_lora_rank"),
    U32("attention.output_group_count", "o_groups"),
    U32("attention.sliding_window", "sliding_window"),
    {"attention.compress_rope_freq_base", GGUF_F32, "compress_rope_theta",
     "rope_parameters.compress.rope_theta", 160000},
    U32("attention.indexer.head_count", "index_n_heads"),
    U32("attention.indexer.key_length", "index_head_dim"),
    U32("attention.indexer.top_k", "index_topk"),
    U32("hyper_connection.count", "hc_mult"),
    U32("hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters"),
    {"hyper_connection.epsilon", GGUF_F32, "hc_eps", NULL, 1e-6},
    {"expert_weights_scale", GGUF_F32, "routed_scaling_factor", NULL, 1.5},
    END_OF_KEYS};

static const struct hf_must deepseek4_musts[] = {
    {"scoring_func", "sqrtsoftplus", 0},
    {"topk_method", "noaux_tc", 0},
    {"attention_bias", NULL, 0},
    {"mlp_bias", NULL, 0},
    {"rope_parameters.compress.attention_factor", NULL, 1},
    {"compress_rates.compressed_sparse_attention", NULL, 4},
    {"compress_rates.heavily_compressed_attention", NULL, 128},
    END_OF_MUSTS};

static const struct hf_name deepseek4_names[] = {
    {"attn_norm.weight", "attn_norm.weight", TAKE},
    {"ffn_norm.weight", "ffn_norm.weight", TAKE},
    {"hc_attn_fn.weight", "hc_attn_fn", TAKE},
    {"hc_attn_base.weight", "hc_attn_base", TAKE},
    {"hc_attn_scale.weight", "hc_attn_scale", TAKE},
    {"hc_ffn_fn.weight", "hc_ffn_fn", TAKE},
    {"hc_ffn_base.weight", "hc_ffn_base", TAKE},
    {"hc_ffn_scale.weight", "hc_ffn_scale", TAKE},
    {"attn_sinks.weight", "attn.attn_sink", TAKE},
    {"attn_q_a.weight", "attn.wq_a.weight", TAKE},
    {"attn_q_a_norm.weight", "attn.q_norm.weight", TAKE},
    {"attn_q_b.weight", "attn.wq_b.weight", TAKE},
    {"attn_kv.weight", "attn.wkv.weight", TAKE},
    {"attn_kv_a_norm.weight", "attn.kv_norm.weight", TAKE},
    {"attn_output_a.weight", "attn.wo_a.weight", TAKE},
    {"attn_output_b.weight", "attn.wo_b.weight", TAKE},
    {"attn_compressor_kv.weight", "attn.compressor.wkv.weight", TAKE},
    {"attn_compressor_gate.weight", "attn.compressor.wgate.weight", TAKE},
    {"attn_compressor_ape.weight", "attn.compressor.ape", TAKE},
    {"attn_compressor_norm.weight", "attn.compressor.norm.weight", TAKE},
    {"indexer.attn_q_b.weight", "attn.indexer.wq_b.weight", TAKE},
    {"indexer.proj.weight", "attn.indexer.weights_proj.weight", TAKE},
    {"indexer_compressor_kv.weight", "attn.indexer.compressor.wkv.weight", TAKE},
    {"indexer_compressor_gate.weight", "attn.indexer.compressor.wgate.weight", TAKE},
    {"indexer_compressor_ape.weight", "attn.indexer.compressor.ape", TAKE},
    {"indexer_compressor_norm.weight", "attn.indexer.compressor.norm.weight", TAKE},
    {"ffn_gate_inp.weight", "ffn.gate.weight", TAKE},
    {"exp_probs_b.bias", "ffn.gate.bias", TAKE},
    {"ffn_gate_tid2eid.weight", "ffn.gate.tid2eid", TAKE},
    {"ffn_gate_exps.weight", "ffn.experts.%u.w1.weight", TAKE},
    {"ffn_down_exps.weight", "ffn.experts.%u.w2.weight", TAKE},
    {"ffn_up_exps.weight", "ffn.experts.%u.w3.weight", TAKE},
    {"ffn_gate_shexp.weight", "ffn.shared_experts.w1.weight", TAKE},
    {"ffn_down_shexp.weight", "ffn.shared_experts.w2.weight", TAKE},
    {"ffn_up_shexp.weight", "ffn.shared_experts.w3.weight", TAKE},
    NAMES_END};

/* What mlx-lm calls otherwise. */
static const struct hf_name deepseek4_mlx_names[] = {
    {"hc_attn_fn.weight", "attn_hc.fn", TAKE},
    {"hc_attn_base.weight", "attn_hc.base", TAKE},
    {"hc_attn_scale.weight", "attn_hc.scale", TAKE},
    {"hc_ffn_fn.weight", "ffn_hc.fn", TAKE},
    {"hc_ffn_base.weight", "ffn_hc.base", TAKE},
    {"hc_ffn_scale.weight", "ffn_hc.scale", TAKE},
    {"exp_probs_b.bias", "ffn.gate.e_score_correction_bias", TAKE},
    {"ffn_gate_exps.weight", "ffn.switch_mlp.gate_proj.weight", TAKE},
    {"ffn_down_exps.weight", "ffn.switch_mlp.down_proj.weight", TAKE},
    {"ffn_up_exps.weight", "ffn.switch_mlp.up_proj.weight", TAKE},
    {"ffn_gate_shexp.weight", "ffn.shared_experts.gate_proj.weight", TAKE},
    {"ffn_down_shexp.weight", "ffn.shared_experts.down_proj.weight", TAKE},
    {"ffn_up_shexp.weight", "ffn.shared_experts.up_proj.weight", TAKE},
    NAMES_END};

/* ---- MiMo-V2-Flash ------------------------------------------------------------------- */

static const struct hf_key mimo2_keys[] = {
    {"attention.layer_norm_rms_epsilon", GGUF_F32, "layernorm_epsilon", "rms_norm_eps", 1e-5},
    {"rope.freq_base", GGUF_F32, "rope_theta", "rope_parameters.full_attention.rope_theta",
     5e6},
    {"rope.freq_base_swa", GGUF_F32, "swa_rope_theta",
     "rope_parameters.sliding_attention.rope_theta", 10000},
    U32("attention.key_length", "head_dim"),
    U32("attention.value_length", "v_head_dim"),
    {"attention.key_length_swa", GGUF_U32, "swa_head_dim", "head_dim", NAN},
    {"attention.value_length_swa", GGUF_U32, "swa_v_head_dim", "v_head_dim", NAN},
    {"attention.sliding_window", GGUF_U32, "sliding_window", "sliding_window_size", NAN},
    F32("attention.value_scale", "attention_value_scale"),
    END_OF_KEYS};

static const struct hf_must mimo2_musts[] = {{"scoring_func", "sigmoid", 0},
                                             {"topk_method", "noaux_tc", 0},
                                             {"norm_topk_prob", NULL, 1},
                                             {"n_group", NULL, 1},
                                             {"n_shared_experts", NULL, 0},
                                             {"attention_bias", NULL, 0},
                                             END_OF_MUSTS};

static const struct hf_name mimo2_names[] = {
    {"attn_sinks.weight", "self_attn.attention_sink_bias", TAKE},
    {"attn_sinks.weight", "self_attn.sinks", TAKE}, /* transformers' */
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

#define MINIMAX_M3                                                                        \
    .arch = "minimax-m3", .keys = {hf_common_keys, hf_head_keys, minimax_m3_keys},        \
    .musts = {minimax_m3_musts}, .sigmoid = true, .norms_plus_one = true,                 \
    .names = {hf_attention_names, hf_ffn_names, hf_block_sparse_names, minimax_m3_names}, \
    .layers = HF_OWN, .put = hf_put_minimax_m3
#define HUNYUAN_MOE                                                             \
    .arch = "hunyuan-moe", .keys = {hf_common_keys, hunyuan_keys},              \
    .musts = {hf_silu, hunyuan_musts}, .layers = HF_OWN, .put = hf_put_hunyuan, \
    .names = {hf_attention_names, hf_ffn_names, hf_bias_names, hf_expert_names, hunyuan_names}
#define BAILING                                                                  \
    .arch = "bailingmoe2", .keys = {hf_common_keys, hf_head_keys, bailing_keys}, \
    .musts = {hf_silu, bailing_musts}, .sigmoid = true, .layers = HF_OWN,        \
    .names = {bailing_names, hf_ffn_names, hf_expert_names}, .put = hf_put_bailing

const struct hf_arch hf_layered_archs[] = {
    {GEMMA4, .model_type = "gemma4"},
    {GEMMA4, .model_type = "gemma4_text"},
    {GEMMA4, .model_type = "gemma4_unified"},
    {GEMMA4, .model_type = "gemma4_unified_text"},
    {GEMMA3N, .model_type = "gemma3n"},
    {GEMMA3N, .model_type = "gemma3n_text"},
    {LLAMA4, .model_type = "llama4"},
    {LLAMA4, .model_type = "llama4_text"},
    {.model_type = "kimi_linear",
     .arch = "kimi-linear",
     .keys = {hf_common_keys, hf_mla_keys, kimi_keys},
     .musts = {hf_silu, kimi_musts},
     .names = {hf_mla_names, kimi_names, kimi_linear_names, hf_ffn_names, hf_expert_names,
               hf_block_sparse_names},
     .mla = true,
     .sigmoid = true,
     .layers = HF_OWN,
     .put = hf_put_kimi},
    {.model_type = "kimi_k3",
     .arch = "kimi-k3",
     .keys = {hf_common_keys, hf_mla_keys, kimi_keys, kimi_k3_keys},
     .musts = {kimi_k3_musts},
     .names = {hf_mla_names, kimi_names, kimi_k3_names, hf_ffn_names, hf_block_sparse_names},
     .mla = true,
     .sigmoid = true,
     .layers = HF_OWN,
     .put = hf_put_kimi,
     .add = hf_add_kimi_k3},
    {MINIMAX_M3, .model_type = "minimax_m3_vl"},
    {MINIMAX_M3, .model_type = "minimax_m3_vl_text"},
    {MINIMAX_M3, .model_type = "minimax_m3"},
    {.model_type = "step3p5",
     .arch = "step35",
     .keys = {step35_keys},
     .musts = {step35_musts},
     .names = {hf_attention_names, hf_ffn_names, step35_names},
     .sigmoid = true,
     .norms_plus_one = true,
     .layers = HF_OWN,
     .put = hf_put_step35},
    {HUNYUAN_MOE, .model_type = "hunyuan_v1_moe"},
    {HUNYUAN_MOE, .model_type = "hunyuan"},
    {.model_type = "hunyuan_v1_dense",
     .arch = "hunyuan-dense",
     .keys = {hf_common_keys, hunyuan_keys},
     .musts = {hf_silu, hunyuan_dense_musts},
     .names = {hf_attention_names, hf_ffn_names, hf_bias_names, hunyuan_names},
     .layers = HF_OWN,
     .put = hf_put_hunyuan},
    {.model_type = "deepseek_v4",
     .arch = "deepseek4",
     .keys = {hf_common_keys, hf_head_keys, hf_routed_keys, deepseek4_keys},
     .musts = {hf_silu, deepseek4_musts},
     .names = {deepseek4_names, deepseek4_mlx_names},
     .own_gating = true,
     .layers = HF_OWN,
     .put = hf_put_deepseek4,
     .add = hf_add_deepseek4},
    {.model_type = "mimo_v2_flash",
     .arch = "mimo2",
     .keys = {hf_common_keys, hf_routed_keys, mimo2_keys},
     .musts = {hf_silu, mimo2_musts},
     .names = {hf_attention_names, hf_ffn_names, hf_expert_names, mimo2_names},
     .sigmoid = true,
     .layers = HF_OWN,
     .put = hf_put_mimo2,
     .add = hf_check_mimo2},
    {BAILING, .model_type = "bailing_moe"},
    {BAILING, .model_type = "bailing_moe_v2"},
};
const size_t n_layered_archs = ARRAY_LEN(hf_layered_archs);
