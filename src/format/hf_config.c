/* hf_config.c: config.json to GGUF's keys, by tables. What a table's architecture cannot
 * compute is refused by name, rather than computed otherwise. */
#include "base/exact.h"
#include "base/mem.h"
#include "base/util.h"
#include "format/hf_impl.h"

#include <stdio.h>

/* ---- values -------------------------------------------------------------------------- */

const json_t *folder_value(const json_t *o, const char *path) {
    const char *dot;
    char name[64];
    while ((dot = strchr(path, '.')) != NULL) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        o = json_object_get(o, name);
        path = dot + 1;
    }
    o = json_object_get(o, path);
    return json_is_null(o) ? NULL : o;
}

static enum status wrong(const struct folder *f, const char *path, const char *expected,
                         struct err *err) {
    char *text = json_dumps(folder_value(f->text, path), JSON_ENCODE_ANY | JSON_COMPACT);
    char shown[64] = "?";
    if (text)
        gguf_escape((struct gguf_str){text, strlen(text)}, shown, sizeof shown);
    free(text);
    return err_set(err, ST_BAD_INPUT, "%s/config.json: %s is %s, expected %s", f->path, path,
                   shown, expected);
}

static enum status u32_at(const struct folder *f, const char *path, uint32_t fallback,
                          uint32_t *out, struct err *err) {
    const json_t *v = folder_value(f->text, path);
    *out = fallback;
    if (!v)
        return ST_OK;
    double n = json_number_value(v);
    if (!json_is_number(v) || !(n >= 0) || n > UINT32_MAX || n != floor(n))
        return wrong(f, path, "an integer from 0 to 2^32-1", err);
    *out = (uint32_t)n;
    return ST_OK;
}

static enum status f64_at(const struct folder *f, const char *path, double fallback,
                          double *out, struct err *err) {
    const json_t *v = folder_value(f->text, path);
    *out = fallback;
    if (!v)
        return ST_OK;
    if (!json_is_number(v) || !isfinite((float)json_number_value(v)))
        return wrong(f, path, "a number", err);
    *out = json_number_value(v);
    return ST_OK;
}

static void put_u32(struct folder *f, const char *name, uint32_t v) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", f->arch->arch, name);
    gguf_write_u32(f->w, key, v);
}

static void put_f32(struct folder *f, const char *name, double v) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", f->arch->arch, name);
    gguf_write_f32(f->w, key, (float)v);
}

static void put_bool(struct folder *f, const char *name, bool v) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", f->arch->arch, name);
    gguf_write_bool(f->w, key, v);
}

static void put_str(struct folder *f, const char *name, const char *v) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", f->arch->arch, name);
    gguf_write_str(f->w, key, v);
}

/* ---- the tables ---------------------------------------------------------------------- */

#define U32(key, name) \
    { key, GGUF_U32, name, NULL, NAN }
#define F32(key, name) \
    { key, GGUF_F32, name, NULL, NAN }
#define BOOL(key, name) \
    { key, GGUF_BOOL, name, NULL, NAN }
#define END_OF_KEYS \
    { 0 }
#define END_OF_MUSTS \
    { 0 }

static const struct folder_key common_keys[] = {
    U32("context_length", "max_position_embeddings"),
    U32("embedding_length", "hidden_size"),
    U32("block_count", "num_hidden_layers"),
    U32("feed_forward_length", "intermediate_size"),
    U32("attention.head_count", "num_attention_heads"),
    U32("attention.head_count_kv", "num_key_value_heads"),
    {"attention.layer_norm_rms_epsilon", GGUF_F32, "rms_norm_eps", NULL, 1e-6},
    {"rope.freq_base", GGUF_F32, "rope_theta", "rope_parameters.rope_theta", 10000},
    END_OF_KEYS};

static const struct folder_key head_keys[] = {U32("attention.key_length", "head_dim"),
                                              U32("attention.value_length", "head_dim"),
                                              END_OF_KEYS};

static const struct folder_key mixtral_keys[] = {
    U32("expert_count", "num_local_experts"), U32("expert_used_count", "num_experts_per_tok"),
    END_OF_KEYS};

static const struct folder_key qwen3moe_keys[] = {
    U32("expert_count", "num_experts"), U32("expert_used_count", "num_experts_per_tok"),
    U32("expert_feed_forward_length", "moe_intermediate_size"),
    BOOL("expert_weights_norm", "norm_topk_prob"), END_OF_KEYS};

static const struct folder_key qwen2moe_keys[] = {
    U32("expert_shared_feed_forward_length", "shared_expert_intermediate_size"), END_OF_KEYS};

static const struct folder_key routed_keys[] = {
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

static const struct folder_key mla_keys[] = {
    U32("attention.kv_lora_rank", "kv_lora_rank"),
    {"attention.q_lora_rank", GGUF_U32, "q_lora_rank", NULL, 0},
    U32("attention.value_length", "v_head_dim"),
    U32("rope.dimension_count", "qk_rope_head_dim"),
    END_OF_KEYS};

static const struct folder_key granite_keys[] = {F32("embedding_scale", "embedding_multiplier"),
                                                 F32("residual_scale", "residual_multiplier"),
                                                 F32("attention.scale", "attention_multiplier"),
                                                 F32("logit_scale", "logits_scaling"),
                                                 END_OF_KEYS};

static const struct folder_key granite_shared_keys[] = {
    U32("expert_shared_feed_forward_length", "shared_intermediate_size"), END_OF_KEYS};

static const struct folder_key gpt_oss_keys[] = {
    U32("expert_count", "num_local_experts"),
    {"expert_used_count", GGUF_U32, "num_experts_per_tok", "experts_per_token", NAN},
    U32("expert_feed_forward_length", "intermediate_size"),
    U32("attention.sliding_window", "sliding_window"),
    END_OF_KEYS};

/* The defaults that published files leave out (transformers: Gemma3TextConfig). */
static const struct folder_key gemma3_keys[] = {
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

static const struct folder_key minimax_keys[] = {
    U32("expert_count", "num_local_experts"), U32("expert_used_count", "num_experts_per_tok"),
    U32("expert_feed_forward_length", "intermediate_size"),
    U32("rope.dimension_count", "rotary_dim"), END_OF_KEYS};

static const struct folder_must silu[] = {{"hidden_act", "silu", 0}, END_OF_MUSTS};
static const struct folder_must qwen_musts[] = {{"use_sliding_window", NULL, 0},
                                                {"decoder_sparse_step", NULL, 1},
                                                {"mlp_only_layers", NULL, 0},
                                                END_OF_MUSTS};
static const struct folder_must routed_musts[] = {{"moe_layer_freq", NULL, 1}, END_OF_MUSTS};
static const struct folder_must v2_musts[] = {{"norm_topk_prob", NULL, 0}, END_OF_MUSTS};
static const struct folder_must gpt_oss_musts[] = {{"swiglu_limit", NULL, 7}, END_OF_MUSTS};
static const struct folder_must gemma3_musts[] = {{"hidden_activation", "gelu_pytorch_tanh", 0},
                                                  {"attn_logit_softcapping", NULL, 0},
                                                  {"sliding_window_pattern", NULL, 6},
                                                  END_OF_MUSTS};
static const struct folder_must minimax_musts[] = {
    {"scoring_func", "sigmoid", 0}, {"qk_norm_type", "per_layer", 0}, END_OF_MUSTS};

#define NAMES_END \
    { 0 }

static const struct folder_name attention_names[] = {
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

static const struct folder_name ffn_names[] = {
    {"ffn_norm.weight", "post_attention_layernorm.weight", TAKE},
    {"ffn_gate.weight", "mlp.gate_proj.weight", TAKE},
    {"ffn_up.weight", "mlp.up_proj.weight", TAKE},
    {"ffn_down.weight", "mlp.down_proj.weight", TAKE},
    NAMES_END};

/* Granite Code's: a llama with biases on all its matrices. */
static const struct folder_name bias_names[] = {
    {"attn_output.bias", "self_attn.o_proj.bias", TAKE},
    {"ffn_gate.bias", "mlp.gate_proj.bias", TAKE},
    {"ffn_up.bias", "mlp.up_proj.bias", TAKE},
    {"ffn_down.bias", "mlp.down_proj.bias", TAKE},
    NAMES_END};

/* Experts one by one, or together as MLX keeps them. */
static const struct folder_name expert_names[] = {
    {"ffn_gate_inp.weight", "mlp.gate.weight", TAKE},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", TAKE},
    {"ffn_gate_exps.weight", "mlp.experts.%u.gate_proj.weight", TAKE},
    {"ffn_up_exps.weight", "mlp.experts.%u.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "mlp.experts.%u.down_proj.weight", TAKE},
    {"ffn_gate_exps.weight", "mlp.switch_mlp.gate_proj.weight", TAKE},
    {"ffn_up_exps.weight", "mlp.switch_mlp.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "mlp.switch_mlp.down_proj.weight", TAKE},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight", TAKE},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight", TAKE},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight", TAKE},
    NAMES_END};

static const struct folder_name qwen2moe_names[] = {
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", TAKE},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight", TAKE},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight", TAKE},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight", TAKE},
    NAMES_END};

static const struct folder_name block_sparse_names[] = {
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight", TAKE},
    {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias", TAKE},
    {"ffn_gate_exps.weight", "block_sparse_moe.experts.%u.w1.weight", TAKE},
    {"ffn_up_exps.weight", "block_sparse_moe.experts.%u.w3.weight", TAKE},
    {"ffn_down_exps.weight", "block_sparse_moe.experts.%u.w2.weight", TAKE},
    {"ffn_gate_exps.weight", "block_sparse_moe.switch_mlp.gate_proj.weight", TAKE},
    {"ffn_up_exps.weight", "block_sparse_moe.switch_mlp.up_proj.weight", TAKE},
    {"ffn_down_exps.weight", "block_sparse_moe.switch_mlp.down_proj.weight", TAKE},
    NAMES_END};

/* gate over up in one matrix, all experts in one tensor; MLX's are block_sparse_names. */
static const struct folder_name granite_moe_names[] = {
    {"ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight", TAKE},
    {"ffn_gate_exps.weight", "block_sparse_moe.input_linear.weight", TAKE_FIRST},
    {"ffn_up_exps.weight", "block_sparse_moe.input_linear.weight", TAKE_SECOND},
    {"ffn_down_exps.weight", "block_sparse_moe.output_linear.weight", TAKE},
    {"ffn_gate_shexp.weight", "shared_mlp.input_linear.weight", TAKE_FIRST},
    {"ffn_up_shexp.weight", "shared_mlp.input_linear.weight", TAKE_SECOND},
    {"ffn_down_shexp.weight", "shared_mlp.output_linear.weight", TAKE},
    NAMES_END};

static const struct folder_name mla_names[] = {
    {"attn_norm.weight", "input_layernorm.weight", TAKE},
    {"attn_q.weight", "self_attn.q_proj.weight", TAKE},
    {"attn_q_a.weight", "self_attn.q_a_proj.weight", TAKE},
    {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight", TAKE},
    {"attn_q_b.weight", "self_attn.q_b_proj.weight", TAKE},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight", TAKE},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", TAKE},
    {"attn_kv_b.weight", "self_attn.kv_b_proj.weight", TAKE},
    {"attn_output.weight", "self_attn.o_proj.weight", TAKE},
    NAMES_END};

static const struct folder_name glm_names[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight", TAKE},
    {"ffn_gate.weight", "mlp.gate_proj.weight", TAKE},
    {"ffn_up.weight", "mlp.up_proj.weight", TAKE},
    {"ffn_down.weight", "mlp.down_proj.weight", TAKE},
    NAMES_END};

static const struct folder_name gpt_oss_names[] = {
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

static const struct folder_name gemma3_names[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight", TAKE_NORM},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight", TAKE_NORM},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", TAKE_NORM},
    {"ffn_gate.weight", "mlp.gate_proj.weight", TAKE},
    {"ffn_up.weight", "mlp.up_proj.weight", TAKE},
    {"ffn_down.weight", "mlp.down_proj.weight", TAKE},
    NAMES_END};

static const struct folder_name phi3_names[] = {
    {"attn_qkv.weight", "self_attn.qkv_proj.weight", TAKE},
    {"ffn_up.weight", "mlp.gate_up_proj.weight", TAKE},
    NAMES_END};

#define DEEPSEEK                                                                    \
    .arch = "deepseek2", .mla = true, .keys = {common_keys, mla_keys, routed_keys}, \
    .names = {mla_names, ffn_names, expert_names}
#define GRANITE_MOE                                                  \
    .arch = "granitemoe", .interleave_heads = true, .musts = {silu}, \
    .names = {attention_names, ffn_names, granite_moe_names, block_sparse_names}
#define GEMMA3                                                                     \
    .arch = "gemma3", .keys = {common_keys, gemma3_keys}, .musts = {gemma3_musts}, \
    .names = {attention_names, gemma3_names}, .norms_plus_one = true, .window_period = 6

const struct folder_arch folder_archs[] = {
    {.model_type = "llama",
     .arch = "llama",
     .interleave_heads = true,
     .keys = {common_keys, head_keys},
     .musts = {silu},
     .names = {attention_names, ffn_names, bias_names}},
    {.model_type = "mistral",
     .arch = "llama",
     .interleave_heads = true,
     .keys = {common_keys, head_keys},
     .musts = {silu},
     .names = {attention_names, ffn_names, bias_names}},
    {.model_type = "granite",
     .arch = "granite",
     .interleave_heads = true,
     .keys = {common_keys, head_keys, granite_keys},
     .musts = {silu},
     .names = {attention_names, ffn_names, bias_names}},
    {GRANITE_MOE, .model_type = "granitemoe",
     .keys = {common_keys, head_keys, granite_keys, mixtral_keys}},
    {GRANITE_MOE, .model_type = "granitemoeshared",
     .keys = {common_keys, head_keys, granite_keys, mixtral_keys, granite_shared_keys}},
    {.model_type = "mixtral",
     .arch = "llama",
     .interleave_heads = true,
     .keys = {common_keys, head_keys, mixtral_keys},
     .musts = {silu},
     .names = {attention_names, ffn_names, block_sparse_names}},
    {.model_type = "qwen2",
     .arch = "qwen2",
     .keys = {common_keys, head_keys},
     .musts = {silu, qwen_musts},
     .names = {attention_names, ffn_names}},
    {.model_type = "qwen2_moe",
     .arch = "qwen2moe",
     .keys = {common_keys, head_keys, qwen3moe_keys, qwen2moe_keys},
     .musts = {silu, qwen_musts},
     .names = {attention_names, ffn_names, expert_names, qwen2moe_names}},
    {.model_type = "qwen3",
     .arch = "qwen3",
     .keys = {common_keys, head_keys},
     .musts = {silu, qwen_musts},
     .names = {attention_names, ffn_names}},
    {.model_type = "qwen3_moe",
     .arch = "qwen3moe",
     .keys = {common_keys, head_keys, qwen3moe_keys},
     .musts = {silu, qwen_musts},
     .names = {attention_names, ffn_names, expert_names}},
    {DEEPSEEK, .model_type = "deepseek_v2", .musts = {silu, routed_musts, v2_musts}},
    {DEEPSEEK, .model_type = "deepseek_v3", .musts = {silu, routed_musts}},
    {DEEPSEEK, .model_type = "kimi_k2", .musts = {silu, routed_musts}},
    {.model_type = "gpt_oss",
     .arch = "gpt-oss",
     .keys = {common_keys, head_keys, gpt_oss_keys},
     .musts = {silu, gpt_oss_musts},
     .names = {attention_names, gpt_oss_names},
     .window_period = 2},
    {.model_type = "glm4_moe",
     .arch = "glm4moe",
     .keys = {common_keys, head_keys, routed_keys},
     .musts = {silu},
     .names = {attention_names, glm_names, expert_names}},
    {.model_type = "gemma3_text", GEMMA3},
    {.model_type = "gemma3", GEMMA3},
    {.model_type = "phi3",
     .arch = "phi3",
     .keys = {common_keys, head_keys},
     .musts = {silu},
     .names = {attention_names, ffn_names, phi3_names}},
    {.model_type = "minimax_m2",
     .arch = "minimax-m2",
     .keys = {common_keys, head_keys, minimax_keys},
     .musts = {silu, minimax_musts},
     .names = {attention_names, ffn_names, block_sparse_names}},
};
const size_t n_folder_archs = ARRAY_LEN(folder_archs);

/* ---- reading ------------------------------------------------------------------------- */

static enum status find_arch(struct folder *f, struct err *err) {
    const char *type = json_string_value(json_object_get(f->config, "model_type"));
    char known[400] = "";
    if (!type)
        return err_set(err, ST_BAD_INPUT, "%s/config.json: model_type is missing", f->path);
    for (size_t i = 0; i < n_folder_archs; i++) {
        if (str_eq(type, folder_archs[i].model_type))
            f->arch = &folder_archs[i];
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "",
                 folder_archs[i].model_type);
    }
    if (!f->arch) {
        char shown[64];
        return err_set(err, ST_UNSUPPORTED,
                       "%s/config.json: the model_type %s is unknown; known are %s", f->path,
                       gguf_escape((struct gguf_str){type, strlen(type)}, shown, sizeof shown),
                       known);
    }
    json_t *text = json_object_get(f->config, "text_config");
    f->text = json_is_object(text) ? text : f->config;
    return ST_OK;
}

static enum status put_key(struct folder *f, const struct folder_key *k, struct err *err) {
    const char *name = k->name;
    if (!folder_value(f->text, name) && k->other)
        name = k->other;
    const json_t *v = folder_value(f->text, name);
    uint32_t n;
    double x;
    if (!v && isnan(k->fallback))
        return ST_OK;
    if (k->type == GGUF_BOOL) {
        if (!json_is_boolean(v))
            return wrong(f, name, "true or false", err);
        put_bool(f, k->key, json_is_true(v));
    } else if (k->type == GGUF_U32) {
        TRY(u32_at(f, name, v ? 0 : (uint32_t)k->fallback, &n, err));
        put_u32(f, k->key, n);
    } else {
        TRY(f64_at(f, name, k->fallback, &x, err));
        put_f32(f, k->key, x);
    }
    return ST_OK;
}

static enum status check_must(const struct folder *f, const struct folder_must *m,
                              struct err *err) {
    const json_t *v = folder_value(f->text, m->name);
    char expected[64];
    if (!v)
        return ST_OK;
    if (m->text) {
        if (json_is_string(v) && str_eq(json_string_value(v), m->text))
            return ST_OK;
        snprintf(expected, sizeof expected, "%s: lockstep computes nothing else", m->text);
    } else {
        double n = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
        if ((json_is_array(v) && json_array_size(v) == 0) ||
            ((json_is_number(v) || json_is_boolean(v)) && n == m->number))
            return ST_OK;
        snprintf(expected, sizeof expected, "%g: lockstep computes nothing else", m->number);
    }
    return wrong(f, m->name, expected, err);
}

/* layer_types must be what the architecture's pattern of windows says. */
static enum status check_layer_types(const struct folder *f, struct err *err) {
    const json_t *types = folder_value(f->text, "layer_types"), *v;
    size_t i;
    uint32_t period = f->arch->window_period;
    json_array_foreach(types, i, v) {
        bool window = period != 0 && i % period != period - 1;
        const char *expected = window ? "sliding_attention" : "full_attention";
        if (!json_is_string(v) || !str_eq(json_string_value(v), expected))
            return err_set(err, ST_UNSUPPORTED,
                           "%s/config.json: layer_types: layer %zu must be %s for lockstep",
                           f->path, i, expected);
    }
    return ST_OK;
}

/* A window that the architecture does not compute is true as far as it reaches. */
static enum status limit_context(struct folder *f, struct err *err) {
    uint32_t window, ctx;
    if (f->arch->window_period != 0 || str_eq(f->arch->arch, "phi3") ||
        str_starts(f->arch->arch, "qwen"))
        return ST_OK; /* use_sliding_window is false there; phi3: docs/models/phi3.md */
    TRY(u32_at(f, "sliding_window", 0, &window, err));
    TRY(u32_at(f, "max_position_embeddings", 0, &ctx, err));
    if (window != 0 && window < ctx)
        put_u32(f, "context_length", window);
    return ST_OK;
}

/* ---- RoPE ---------------------------------------------------------------------------- */

/* rope_scaling, or what later versions call it; NULL: none. */
static const char *scaling_object(const struct folder *f) {
    static const char *const names[] = {"rope_scaling", "rope_parameters.full_attention",
                                        "rope_parameters"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (json_is_object(folder_value(f->text, names[i])))
            return names[i];
    return NULL;
}

static const char *scaling_type(const struct folder *f, const char *object) {
    const json_t *o = object ? folder_value(f->text, object) : NULL;
    const char *type = json_string_value(json_object_get(o, "rope_type"));
    if (!type)
        type = json_string_value(json_object_get(o, "type"));
    return type ? type : json_object_get(o, "factor") ? "(none)" : "default";
}

static enum status scaling_number(const struct folder *f, const char *name, double fallback,
                                  double *out, struct err *err) {
    char path[96];
    const char *object = scaling_object(f);
    snprintf(path, sizeof path, "%s.%s", object ? object : "rope_scaling", name);
    return f64_at(f, path, fallback, out, err);
}

static enum status original_context(const struct folder *f, double *out, struct err *err) {
    double ctx;
    TRY(f64_at(f, "max_position_embeddings", 0, &ctx, err));
    TRY(f64_at(f, "original_max_position_embeddings", ctx, &ctx, err));
    TRY(scaling_number(f, "original_max_position_embeddings", ctx, out, err));
    if (!(*out >= 1 && *out <= UINT32_MAX))
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: original_max_position_embeddings makes no sense",
                       f->path);
    return ST_OK;
}

/* Whether the bounds of YaRN's ramp are rounded to whole pairs. OpenAI did not, and its folders
 * say so. */
static enum status put_truncate(struct folder *f, struct err *err) {
    char path[96];
    snprintf(path, sizeof path, "%s.truncate", scaling_object(f));
    const json_t *v = folder_value(f->text, path);
    if (v && !json_is_boolean(v))
        return wrong(f, path, "true or false", err);
    if (json_is_false(v))
        put_bool(f, "rope.scaling.lockstep.truncate", false);
    return ST_OK;
}

static enum status put_yarn(struct folder *f, struct err *err) {
    double factor, original, attention, part, fast, slow, mscale, all;
    TRY(scaling_number(f, "factor", 1, &factor, err));
    TRY(original_context(f, &original, err));
    TRY(scaling_number(f, "attention_factor", 0, &attention, err));
    TRY(scaling_number(f, "attn_factor", 1, &part, err));
    TRY(scaling_number(f, "beta_fast", 32, &fast, err));
    TRY(scaling_number(f, "beta_slow", 1, &slow, err));
    TRY(scaling_number(f, "mscale", 1, &mscale, err));
    TRY(scaling_number(f, "mscale_all_dim", 0, &all, err));
    if (!(factor > 0))
        return err_set(err, ST_BAD_INPUT, "%s/config.json: RoPE's factor is %g", f->path,
                       factor);
    TRY(put_truncate(f, err));
    double log_factor = exact_log64(factor);
    put_str(f, "rope.scaling.type", "yarn");
    put_f32(f, "rope.scaling.factor", factor);
    put_u32(f, "rope.scaling.original_context_length", (uint32_t)original);
    put_f32(f, "rope.scaling.yarn_beta_fast", fast);
    put_f32(f, "rope.scaling.yarn_beta_slow", slow);
    if (f->arch->mla && all != 0) {
        /* cos and sin get the quotient of the two, the logits the second one squared. */
        put_f32(f, "rope.scaling.yarn_log_multiplier", 0.1 * all);
        put_f32(f, "rope.scaling.attn_factor",
                mscale == all ? 1
                              : (0.1 * mscale * log_factor + 1) / (0.1 * all * log_factor + 1));
    } else if (attention != 0) {
        put_f32(f, "rope.scaling.attn_factor", attention / (0.1 * log_factor + 1));
    } else if (part != 1) {
        /* vLLM's, times what the factor gives: DeepSeek-R1-0528-Qwen3-8B's makes it 1. */
        put_f32(f, "rope.scaling.attn_factor", part);
    }
    return ST_OK;
}

static enum status put_longrope(struct folder *f, struct err *err) {
    double original, ctx, attention;
    TRY(original_context(f, &original, err));
    TRY(f64_at(f, "max_position_embeddings", original, &ctx, err));
    double stretch = ctx / original;
    TRY(scaling_number(f, "attention_factor",
                       stretch > 1 ? sqrt(1 + exact_log64(stretch) / exact_log64(original)) : 1,
                       &attention, err));
    put_str(f, "rope.scaling.type", "longrope");
    put_u32(f, "rope.scaling.original_context_length", (uint32_t)original);
    put_f32(f, "rope.scaling.attn_factor", attention);
    return ST_OK;
}

static enum status put_rope(struct folder *f, struct err *err) {
    const char *type = scaling_type(f, scaling_object(f));
    double part, factor;
    uint32_t dim;
    TRY(f64_at(f, "partial_rotary_factor", 1, &part, err));
    TRY(f64_at(f, "rope_parameters.partial_rotary_factor", part, &part, err));
    TRY(u32_at(f, "head_dim", 0, &dim, err));
    if (dim == 0 && f->n_heads != 0) {
        TRY(u32_at(f, "hidden_size", 0, &dim, err));
        dim /= f->n_heads;
    }
    if (part != 1 && !f->arch->mla) {
        if (!(part > 0 && part < 1))
            return wrong(f, "partial_rotary_factor", "a part of 1", err);
        put_u32(f, "rope.dimension_count", (uint32_t)(dim * part));
    }
    if (str_eq(type, "default") || str_eq(type, "llama3") || str_eq(type, "dynamic"))
        /* llama3: folder_add_rope_factors(); dynamic: the same up to the model's own context */
        return ST_OK;
    if (str_eq(type, "linear")) {
        TRY(scaling_number(f, "factor", 1, &factor, err));
        put_str(f, "rope.scaling.type", "linear");
        put_f32(f, "rope.scaling.factor", factor);
        return ST_OK;
    }
    if (str_eq(type, "yarn"))
        return put_yarn(f, err);
    if (str_eq(type, "longrope") || str_eq(type, "su"))
        return put_longrope(f, err);
    char shown[64];
    return err_set(err, ST_UNSUPPORTED,
                   "%s/config.json: RoPE scaling of type %s is not supported", f->path,
                   gguf_escape((struct gguf_str){type, strlen(type)}, shown, sizeof shown));
}

/* Llama 3.1's frequency scaling (its model card's reference code): long waves are stretched by the
 * factor, short ones stay, those between are mixed. */
static enum status add_llama3_factors(struct folder *f, uint32_t n_rot, struct err *err) {
    double base, factor, low, high, original;
    TRY(f64_at(f, "rope_parameters.rope_theta", 10000, &base, err));
    TRY(f64_at(f, "rope_theta", base, &base, err));
    TRY(scaling_number(f, "factor", 8, &factor, err));
    TRY(scaling_number(f, "low_freq_factor", 1, &low, err));
    TRY(scaling_number(f, "high_freq_factor", 4, &high, err));
    TRY(original_context(f, &original, err));
    if (!(factor > 0 && low > 0 && high > low && base > 1))
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: the numbers of llama3's RoPE scaling make no sense",
                       f->path);
    uint32_t n = n_rot / 2;
    float *factors = mem_alloc(n * sizeof *factors);
    if (!factors)
        return folder_no_memory(f, err);
    double log_base = exact_log64(base);
    for (uint32_t i = 0; i < n; i++) {
        double wave = 2 * 3.14159265358979323846 * exact_exp64(log_base * 2.0 * i / n_rot);
        double smooth = (original / wave - low) / (high - low);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        factors[i] = (float)(1 / ((1 - smooth) / factor + smooth));
    }
    enum status st = folder_add_vector(f, "rope_freqs.weight", factors, n, err);
    mem_free(factors);
    return st;
}

static enum status add_long_factors(struct folder *f, const char *name, const char *to,
                                    struct err *err) {
    char path[96];
    snprintf(path, sizeof path, "%s.%s", scaling_object(f), name);
    const json_t *list = folder_value(f->text, path), *v;
    size_t n = json_array_size(list), i;
    if (n == 0 || n > 65536)
        return err_set(err, ST_BAD_INPUT, "%s/config.json: %s is not a list of factors",
                       f->path, path);
    float *factors = mem_alloc(n * sizeof *factors);
    if (!factors)
        return folder_no_memory(f, err);
    enum status st = ST_OK;
    json_array_foreach(list, i, v) {
        factors[i] = (float)json_number_value(v);
        if (!json_is_number(v) || !(factors[i] > 0) || !isfinite(factors[i]))
            st = err_set(err, ST_BAD_INPUT, "%s/config.json: %s: number %zu is no factor",
                         f->path, path, i);
    }
    if (st == ST_OK)
        st = folder_add_vector(f, to, factors, n, err);
    mem_free(factors);
    return st;
}

enum status folder_add_rope_factors(struct folder *f, struct err *err) {
    const char *object = scaling_object(f), *type = scaling_type(f, object);
    if (str_eq(type, "llama3")) {
        uint32_t dim, hidden;
        TRY(u32_at(f, "hidden_size", 0, &hidden, err));
        TRY(u32_at(f, "head_dim", f->n_heads ? hidden / f->n_heads : 0, &dim, err));
        if (dim == 0 || dim > 65536 || dim % 2 != 0)
            return err_set(err, ST_BAD_INPUT, "%s/config.json: heads of %u dimensions", f->path,
                           dim);
        return add_llama3_factors(f, dim, err);
    }
    if (!str_eq(type, "longrope") && !str_eq(type, "su"))
        return ST_OK;
    TRY(add_long_factors(f, "long_factor", "rope_factors_long.weight", err));
    return add_long_factors(f, "short_factor", "rope_factors_short.weight", err);
}

/* ---- what the tables cannot say ------------------------------------------------------ */

static enum status put_mla(struct folder *f, struct err *err) {
    uint32_t nope, rope;
    TRY(u32_at(f, "qk_nope_head_dim", 0, &nope, err));
    TRY(u32_at(f, "qk_rope_head_dim", 0, &rope, err));
    if (nope == 0 || rope == 0 || nope > 65536 || rope > 65536)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: qk_nope_head_dim and qk_rope_head_dim are %u and %u",
                       f->path, nope, rope);
    put_u32(f, "attention.key_length", nope + rope);
    return ST_OK;
}

/* DeepSeek's ways to choose among groups. GGUF has no key for them: V2's goes with softmax, V3's
 * with sigmoid. */
static enum status put_groups(struct folder *f, bool sigmoid, struct err *err) {
    const json_t *v = folder_value(f->text, "topk_method");
    const char *method = json_string_value(v);
    if (!v)
        method = str_eq(f->arch->model_type, "deepseek_v2") ? "greedy" : "noaux_tc";
    if (method && str_eq(method, "greedy")) {
        put_u32(f, "expert_group_count", 1);
        put_u32(f, "expert_group_used_count", 1);
        return ST_OK;
    }
    if (method && str_eq(method, sigmoid ? "noaux_tc" : "group_limited_greedy"))
        return ST_OK;
    return wrong(f, "topk_method",
                 sigmoid ? "noaux_tc or greedy, since scoring_func is sigmoid"
                         : "group_limited_greedy or greedy, since scoring_func is softmax",
                 err);
}

/* Numbers as in GGUF: 1 softmax, 2 sigmoid. */
static enum status put_gating(struct folder *f, struct err *err) {
    const char *func = json_string_value(folder_value(f->text, "scoring_func"));
    const char *type = f->arch->model_type;
    uint32_t sigmoid = str_eq(type, "glm4_moe") || str_eq(type, "minimax_m2") ||
                       str_eq(type, "deepseek_v3") || str_eq(type, "kimi_k2");
    if (func && !str_eq(func, "softmax") && !str_eq(func, "sigmoid"))
        return wrong(f, "scoring_func", "softmax or sigmoid", err);
    if (func)
        sigmoid = str_eq(func, "sigmoid");
    if (f->arch->mla || sigmoid)
        put_u32(f, "expert_gating_func", 1 + sigmoid);
    return f->arch->mla ? put_groups(f, sigmoid, err) : ST_OK;
}

/* gemma3's logits are divided by the root of a number of their own. */
static enum status put_attention_scale(struct folder *f, struct err *err) {
    double scalar;
    TRY(f64_at(f, "query_pre_attn_scalar", 0, &scalar, err));
    if (!str_eq(f->arch->arch, "gemma3") || scalar == 0)
        return ST_OK;
    if (!(scalar > 0))
        return wrong(f, "query_pre_attn_scalar", "more than 0", err);
    put_f32(f, "attention.scale", (double)(1.0f / sqrtf((float)scalar)));
    return ST_OK;
}

/* compressed-tensors has many forms; two are known: FP8 (activations, which others round too,
 * are not), and signed codes of 4 bits in groups, without zero points and permutations. */
static bool is_known_group(const json_t *q, const json_t *group) {
    const json_t *w = json_object_get(group, "weights");
    const char *type = json_string_value(json_object_get(w, "type"));
    const char *format = json_string_value(json_object_get(group, "format"));
    json_int_t bits = json_integer_value(json_object_get(w, "num_bits"));
    if (!format)
        format = json_string_value(json_object_get(q, "format"));
    if (!format || !type || !json_is_true(json_object_get(w, "symmetric")))
        return false;
    if (str_eq(format, "float-quantized"))
        return bits == 8 && str_eq(type, "float");
    return str_eq(format, "pack-quantized") && bits == 4 && str_eq(type, "int") &&
           !folder_value(group, "input_activations");
}

static bool is_known_compressed(const json_t *q) {
    const json_t *groups = json_object_get(q, "config_groups");
    const char *name;
    json_t *group;
    json_object_foreach((json_t *)groups, name,
                        group) if (!is_known_group(q, group)) return false;
    return json_object_size(groups) != 0;
}

static enum status check_quantization(const struct folder *f, struct err *err) {
    const json_t *q = json_object_get(f->config, "quantization_config");
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    if (!method || str_eq(method, "fp8") || str_eq(method, "mxfp4"))
        return ST_OK;
    bool packed = str_eq(method, "compressed-tensors");
    if (packed && is_known_compressed(q))
        return ST_OK;
    if (packed)
        return err_set(
            err, ST_UNSUPPORTED,
            "%s/config.json: weights quantized by compressed-tensors are supported only as "
            "float-quantized (FP8), or pack-quantized with symmetric integers of 4 bits",
            f->path);
    char shown[64];
    return err_set(
        err, ST_UNSUPPORTED,
        "%s/config.json: weights quantized by %s are not supported; take the original "
        "folder, or one in fp8, mxfp4 or MLX's groups",
        f->path, gguf_escape((struct gguf_str){method, strlen(method)}, shown, sizeof shown));
}

static void put_names(struct folder *f) {
    const char *base = strrchr(f->path, '/');
    base = base && base[1] ? base + 1 : f->path;
    gguf_write_str(f->w, "general.architecture", f->arch->arch);
    gguf_write_str(f->w, "general.name", base);
}

enum status folder_read_config(struct folder *f, struct err *err) {
    TRY(find_arch(f, err));
    TRY(check_quantization(f, err));
    put_names(f);
    TRY(u32_at(f, "num_hidden_layers", 0, &f->n_layers, err));
    for (size_t i = 0; i < FOLDER_MAX_LISTS; i++) {
        for (const struct folder_key *k = f->arch->keys[i]; k && k->key; k++)
            TRY(put_key(f, k, err));
        for (const struct folder_must *m = f->arch->musts[i]; m && m->name; m++)
            TRY(check_must(f, m, err));
    }
    bool gemma = str_eq(f->arch->arch, "gemma3");
    TRY(u32_at(f, "num_attention_heads", gemma ? 8 : 0, &f->n_heads, err));
    TRY(u32_at(f, "num_key_value_heads", gemma ? 4 : f->n_heads, &f->n_kv_heads, err));
    TRY(u32_at(f, "num_local_experts", 0, &f->n_experts, err));
    TRY(u32_at(f, "num_experts", f->n_experts, &f->n_experts, err));
    TRY(u32_at(f, "n_routed_experts", f->n_experts, &f->n_experts, err));
    if (f->n_layers == 0 || f->n_layers > 4096 || f->n_experts > 65536 || f->n_heads == 0 ||
        f->n_kv_heads == 0)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: %u layers, %u experts, %u and %u heads make no sense",
                       f->path, f->n_layers, f->n_experts, f->n_heads, f->n_kv_heads);
    TRY(check_layer_types(f, err));
    TRY(limit_context(f, err));
    if (f->arch->mla)
        TRY(put_mla(f, err));
    TRY(put_gating(f, err));
    TRY(put_attention_scale(f, err));
    return put_rope(f, err);
}
