/* hf_layered.c: what the tables of hf_layered_archs.c cannot say of their families: keys that
 * are lists, settings that must agree with each other, and tensors that must be there. */
#include "base/exact.h"
#include "base/mem.h"
#include "base/util.h"
#include "hf/hf_impl.h"

#include <stdio.h>

int32_t *hf_of_layers(struct hf_folder *f) {
    return hf_own(f, mem_calloc(f->n_layers, sizeof(int32_t)));
}

enum status hf_need_u32(const struct hf_folder *f, const char *name, uint32_t *out,
                        struct err *err) {
    if (!hf_value(f->text, name))
        return err_set(err, ST_BAD_INPUT, "%s/config.json: %s is missing", f->path, name);
    return hf_u32_at(f, name, 0, out, err);
}

/* The key from a number that config.json must have. */
static enum status put_needed(struct hf_folder *f, const char *key, const char *name,
                              struct err *err) {
    uint32_t n;
    TRY(hf_need_u32(f, name, &n, err));
    hf_put_u32(f, key, n);
    return ST_OK;
}

static enum status need_tensor(const struct hf_folder *f, const char *prefix, uint32_t layer,
                               const char *name, struct err *err) {
    char full[SAFE_NAME_MAX + 1];
    int n = snprintf(full, sizeof full, "%slayers.%u.%s", prefix, layer, name);
    if (hf_find(f, full))
        return ST_OK;
    snprintf(full + n, sizeof full - (size_t)n, "_packed");
    if (hf_find(f, full))
        return ST_OK;
    return err_set(err, ST_BAD_INPUT, "%s: the tensor %.*s is missing", f->path, n, full);
}

/* ---- Gemma 4 ------------------------------------------------------------------------- */

/* GGUF says by a missing tensor that keys are values. */
static bool has_values(const struct hf_folder *f, bool window) {
    return window || !json_is_true(hf_value(f->text, "attention_k_eq_v"));
}

static enum status put_gemma4_windows(struct hf_folder *f, int32_t *window, struct err *err) {
    uint32_t dim;
    double part;
    TRY(hf_read_words(f, "layer_types", "sliding_attention", "full_attention", window, err));
    if (window[f->n_layers - 1])
        return err_set(err, ST_UNSUPPORTED,
                       "%s/config.json: layer_types: the last layer must be full_attention",
                       f->path);
    TRY(hf_u32_at(f, "head_dim", 256, &dim, err));
    TRY(hf_f64_at(f, "rope_parameters.sliding_attention.partial_rotary_factor", 1, &part, err));
    if (!(part > 0 && part <= 1) || dim > 65536)
        return hf_wrong(f, "rope_parameters.sliding_attention.partial_rotary_factor",
                        "a part of 1", err);
    hf_put_u32(f, "rope.dimension_count_swa", (uint32_t)(dim * part));
    hf_put_i32_array(f, "attention.sliding_window_pattern", window, f->n_layers);
    return ST_OK;
}

/* Layers that use the keys and values of others may have FFNs of twice the width. */
static enum status put_gemma4_widths(struct hf_folder *f, int32_t *width, struct err *err) {
    uint32_t n_ff, n_shared;
    bool twice = json_is_true(hf_value(f->text, "use_double_wide_mlp"));
    TRY(hf_need_u32(f, "intermediate_size", &n_ff, err));
    TRY(hf_u32_at(f, "num_kv_shared_layers", 0, &n_shared, err));
    if (n_ff == 0 || n_ff > 1u << 24 || n_shared >= f->n_layers)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: FFNs of %u columns in %u layers, %u of which use the "
                       "keys and values of others, make no sense",
                       f->path, n_ff, f->n_layers, n_shared);
    for (uint32_t l = 0; l < f->n_layers; l++)
        width[l] = (int32_t)(twice && l >= f->n_layers - n_shared ? 2 * n_ff : n_ff);
    hf_put_i32_array(f, "feed_forward_length", width, f->n_layers);
    return ST_OK;
}

static enum status put_gemma4_experts(struct hf_folder *f, struct err *err) {
    if (!json_is_true(hf_value(f->text, "enable_moe_block")))
        return ST_OK;
    TRY(put_needed(f, "expert_count", "num_experts", err));
    TRY(put_needed(f, "expert_used_count", "top_k_experts", err));
    return put_needed(f, "expert_feed_forward_length", "moe_intermediate_size", err);
}

enum status hf_put_gemma4(struct hf_folder *f, struct err *err) {
    int32_t *window = hf_of_layers(f), *n_kv_heads = hf_of_layers(f), *width = hf_of_layers(f);
    uint32_t n_full = f->n_kv_heads, n_input;
    if (!window || !n_kv_heads || !width)
        return hf_no_memory(f, err);
    TRY(put_gemma4_windows(f, window, err));
    if (!has_values(f, false))
        TRY(hf_u32_at(f, "num_global_key_value_heads", n_full, &n_full, err));
    for (uint32_t l = 0; l < f->n_layers; l++)
        n_kv_heads[l] = (int32_t)(window[l] ? f->n_kv_heads : n_full);
    hf_put_i32_array(f, "attention.head_count_kv", n_kv_heads, f->n_layers);
    TRY(put_gemma4_widths(f, width, err));
    bool none = json_is_null(json_object_get(f->text, "hidden_size_per_layer_input")) ||
                str_starts(f->arch->model_type, "gemma4_unified");
    TRY(hf_u32_at(f, "hidden_size_per_layer_input", none ? 0 : 256, &n_input, err));
    hf_put_u32(f, "embedding_length_per_layer_input", n_input);
    return put_gemma4_experts(f, err);
}

/* Where values are missing and config.json does not say that keys stand for them, the folder is
 * not whole. */
enum status hf_check_gemma4(struct hf_folder *f, const char *prefix, struct err *err) {
    const json_t *types = hf_value(f->text, "layer_types");
    uint32_t n_shared;
    TRY(hf_u32_at(f, "num_kv_shared_layers", 0, &n_shared, err));
    for (uint32_t l = 0; l < f->n_layers - n_shared; l++) {
        bool window = str_eq(json_string_value(json_array_get(types, l)), "sliding_attention");
        if (has_values(f, window))
            TRY(need_tensor(f, prefix, l, "self_attn.v_proj.weight", err));
    }
    return ST_OK;
}

/* ---- Gemma 3n ------------------------------------------------------------------------ */

#define GEMMA3N_OWN_KV 20
#define GEMMA3N_SPARSE 10

/* One number, or one for each layer. */
static enum status put_gemma3n_widths(struct hf_folder *f, struct err *err) {
    const json_t *list = hf_value(f->text, "intermediate_size");
    int32_t *width = hf_of_layers(f);
    uint32_t n_ff;
    if (!width)
        return hf_no_memory(f, err);
    if (!json_is_array(list)) {
        TRY(hf_need_u32(f, "intermediate_size", &n_ff, err));
        hf_put_u32(f, "feed_forward_length", n_ff);
        return ST_OK;
    }
    for (uint32_t l = 0; l < f->n_layers; l++) {
        json_int_t n = json_integer_value(json_array_get(list, l));
        if (n < 1 || n > 1 << 24)
            return hf_wrong(f, "intermediate_size", "a width for each layer", err);
        width[l] = (int32_t)n;
    }
    hf_put_i32_array(f, "feed_forward_length", width, f->n_layers);
    return ST_OK;
}

/* GGUF has no key for it that lockstep reads: all published models are the same. */
static enum status check_sparsity(const struct hf_folder *f, struct err *err) {
    static const char name[] = "activation_sparsity_pattern";
    const json_t *list = hf_value(f->text, name);
    for (uint32_t l = 0; list && l < f->n_layers; l++) {
        double x = json_number_value(json_array_get(list, l));
        if (!json_is_array(list) || x != (l < GEMMA3N_SPARSE ? 0.95 : 0))
            return hf_wrong(f, name, "0.95 for the first 10 layers and 0 for the others", err);
    }
    return ST_OK;
}

enum status hf_put_gemma3n(struct hf_folder *f, struct err *err) {
    uint32_t n_shared;
    TRY(put_gemma3n_widths(f, err));
    TRY(check_sparsity(f, err));
    TRY(hf_u32_at(f, "num_kv_shared_layers", 15, &n_shared, err));
    if (n_shared == 0 && f->n_layers > GEMMA3N_OWN_KV) /* GGUF's 0 means the usual number */
        return hf_wrong(f, "num_kv_shared_layers", "more than 0 for this number of layers",
                        err);
    return ST_OK;
}

enum status hf_add_gemma3n(struct hf_folder *f, const char *prefix, struct err *err) {
    static const struct hf_name in = {"", "altup_projections.%u.weight", TAKE},
                                out = {"", "altup_unembed_projections.%u.weight", TAKE};
    uint32_t n;
    TRY(hf_u32_at(f, "altup_num_inputs", 4, &n, err));
    if (n < 2 || n > 64)
        return hf_wrong(f, "altup_num_inputs", "2 to 64", err);
    TRY(hf_add_stack(f, "altup_proj.weight", &in, prefix, n - 1, err));
    return hf_add_stack(f, "altup_unembd_proj.weight", &out, prefix, n - 1, err);
}

/* ---- Llama 4 ------------------------------------------------------------------------- */

#define LLAMA4_NOPE_PERIOD 4
#define LLAMA4_CHUNK 8192
#define LLAMA4_MAVERICK_EXPERTS 128

/* Which layers turn queries and keys, and see only their chunk. MobileLLM's are all full, and all
 * turn. */
static enum status check_llama4_layers(const struct hf_folder *f, struct err *err) {
    const json_t *turn = hf_value(f->text, "no_rope_layers");
    const json_t *types = hf_value(f->text, "layer_types");
    bool mobile = f->n_experts == 0;
    for (uint32_t l = 0; l < f->n_layers; l++) {
        bool turns = mobile || (l + 1) % LLAMA4_NOPE_PERIOD != 0;
        const char *type = turns && !mobile ? "chunked_attention" : "full_attention";
        const json_t *named = json_array_get(types, l);
        if (json_array_size(turn) != 0 &&
            json_integer_value(json_array_get(turn, l)) != (turns ? 1 : 0))
            return hf_wrong(f, "no_rope_layers",
                            mobile ? "1 for each layer"
                                   : "0 for every fourth layer and 1 for the others",
                            err);
        if (types && (!json_is_string(named) || !str_eq(json_string_value(named), type)))
            return err_set(err, ST_UNSUPPORTED,
                           "%s/config.json: layer_types: layer %u must be %s for lockstep",
                           f->path, l, type);
    }
    return ST_OK;
}

static enum status check_llama4_moe(const struct hf_folder *f, struct err *err) {
    const json_t *list = hf_value(f->text, "moe_layers"), *v;
    uint32_t step;
    size_t i;
    TRY(hf_u32_at(f, "interleave_moe_layer_step", 1, &step, err));
    if (step == 0 || step > f->n_layers)
        return hf_wrong(f, "interleave_moe_layer_step", "1 to the number of layers", err);
    if (json_is_array(list) && json_array_size(list) != f->n_layers / step)
        return hf_wrong(f, "moe_layers", "as interleave_moe_layer_step says", err);
    json_array_foreach(list, i, v) {
        if (json_integer_value(v) != (json_int_t)((i + 1) * step - 1))
            return hf_wrong(f, "moe_layers", "as interleave_moe_layer_step says", err);
    }
    return ST_OK;
}

enum status hf_put_llama4(struct hf_folder *f, struct err *err) {
    const json_t *norm = hf_value(f->text, "use_qk_norm");
    const json_t *tuning = hf_value(f->text, "attn_temperature_tuning");
    const json_t *chunk = json_object_get(f->text, "attention_chunk_size");
    bool norms = f->n_experts != 0 && f->n_experts != LLAMA4_MAVERICK_EXPERTS;
    TRY(check_llama4_layers(f, err));
    if (norm ? json_is_true(norm) != norms : !norms)
        return err_set(err, ST_UNSUPPORTED,
                       "%s/config.json: use_qk_norm must be %s for %u experts", f->path,
                       norms ? "true" : "false", f->n_experts);
    if (f->n_experts == 0)
        return ST_OK;
    if (chunk && json_integer_value(chunk) != LLAMA4_CHUNK)
        return hf_wrong(f, "attention_chunk_size", "8192: lockstep computes nothing else", err);
    if (tuning && !json_is_true(tuning) && json_number_value(tuning) == 0)
        return hf_wrong(f, "attn_temperature_tuning", "true", err);
    return check_llama4_moe(f, err);
}

/* ---- Kimi Linear --------------------------------------------------------------------- */

static bool holds(const json_t *numbers, uint32_t n) {
    const json_t *v;
    size_t i;
    json_array_foreach(numbers, i, v) {
        if (json_integer_value(v) == (json_int_t)n)
            return true;
    }
    return false;
}

/* GGUF has no key-value heads where a layer is a delta net. config.json counts layers from 1. */
static enum status put_kimi_layers(struct hf_folder *f, struct err *err) {
    const json_t *full = hf_value(f->text, "linear_attn_config.full_attn_layers");
    const json_t *delta = hf_value(f->text, "linear_attn_config.kda_layers");
    int32_t *n_kv_heads = hf_of_layers(f);
    if (!n_kv_heads)
        return hf_no_memory(f, err);
    for (uint32_t l = 0; l < f->n_layers; l++) {
        n_kv_heads[l] = holds(full, l + 1);
        if (!full || (delta && holds(delta, l + 1) == n_kv_heads[l]))
            return err_set(err, ST_BAD_INPUT,
                           "%s/config.json: linear_attn_config: layer %u must be one of "
                           "full_attn_layers or of kda_layers",
                           f->path, l + 1);
    }
    hf_put_i32_array(f, "attention.head_count_kv", n_kv_heads, f->n_layers);
    return ST_OK;
}

enum status hf_put_kimi(struct hf_folder *f, struct err *err) {
    uint32_t n;
    TRY(put_kimi_layers(f, err));
    TRY(hf_u32_at(f, "linear_attn_config.num_heads", f->n_heads, &n, err));
    if (n != f->n_heads)
        return hf_wrong(f, "linear_attn_config.num_heads", "num_attention_heads", err);
    if (!json_is_true(hf_value(f->text, "mla_use_nope")))
        return err_set(err, ST_UNSUPPORTED,
                       "%s/config.json: mla_use_nope must be true: lockstep computes nothing "
                       "else",
                       f->path);
    return ST_OK;
}

/* Plain numbers as f32. */
static enum status read_vector(const struct hf_folder *f, const char *name, float **out,
                               size_t *n, struct err *err) {
    struct hf_tensor *t = hf_find(f, name);
    struct hf_source s;
    if (!t)
        return err_set(err, ST_BAD_INPUT, "%s: the tensor %s is missing", f->path, name);
    t->used = true;
    TRY(hf_find_source(f, t->t, &s, err));
    *n = (size_t)(s.n_rows * s.n_cols);
    if (s.refused_form || s.n != 1 || (s.n_rows != 1 && s.n_cols != 1) || *n > 1u << 24)
        return hf_bad_shape(f, name, "expected a vector", err);
    *out = mem_alloc(*n * sizeof **out);
    if (!*out)
        return hf_no_memory(f, err);
    qtype_info(s.rows.from)->dequantize(s.first.values, *out, *n);
    return ST_OK;
}

/* What a mixture of streams is scored with: a norm's weights times a projection to one number. */
static enum status add_product(struct hf_folder *f, const char *to, const char *from,
                               struct err *err) {
    char name[SAFE_NAME_MAX + 1];
    float *a = NULL, *b = NULL;
    size_t n, n_too = 0;
    snprintf(name, sizeof name, "%s_norm.weight", from);
    enum status st = read_vector(f, name, &a, &n, err);
    snprintf(name, sizeof name, "%s_proj.weight", from);
    if (st == ST_OK)
        st = read_vector(f, name, &b, &n_too, err);
    if (st == ST_OK && n != n_too)
        st = hf_bad_shape(f, name, "its length is not that of the norm", err);
    for (size_t i = 0; st == ST_OK && i < n; i++)
        a[i] *= b[i];
    if (st == ST_OK)
        st = hf_add_vector(f, to, a, n, err);
    mem_free(a);
    mem_free(b);
    return st;
}

enum status hf_add_kimi_k3(struct hf_folder *f, const char *prefix, struct err *err) {
    static const struct hf_name gate = {"", "self_attn.g_proj.weight", TAKE};
    const json_t *full = hf_value(f->text, "linear_attn_config.full_attn_layers");
    char from[SAFE_NAME_MAX], to[64], layer[96];
    for (uint32_t l = 0; l < f->n_layers; l++) {
        snprintf(layer, sizeof layer, "%slayers.%u.", prefix, l);
        snprintf(to, sizeof to, "blk.%u.%s.weight", l,
                 holds(full, l + 1) ? "attn_gate" : "ssm_g");
        TRY(hf_add_named(f, to, &gate, layer, err));
        snprintf(to, sizeof to, "blk.%u.attn_res_score.weight", l);
        snprintf(from, sizeof from, "%sself_attention_res", layer);
        TRY(add_product(f, to, from, err));
        snprintf(to, sizeof to, "blk.%u.ffn_res_score.weight", l);
        snprintf(from, sizeof from, "%smlp_res", layer);
        TRY(add_product(f, to, from, err));
    }
    snprintf(from, sizeof from, "%soutput_attn_res", prefix);
    return add_product(f, "output_res_score.weight", from, err);
}

/* ---- MiniMax M3 ---------------------------------------------------------------------- */

static bool is_one(const json_t *list, uint32_t l) {
    const json_t *v = json_array_get(list, l);
    return json_is_true(v) || json_integer_value(v) == 1;
}

/* moe_layer_freq, or the words of later versions: the dense layers come first. */
static enum status put_dense_layers(struct hf_folder *f, uint32_t *n_dense, struct err *err) {
    static const char freq[] = "moe_layer_freq", words[] = "mlp_layer_types";
    const json_t *list = hf_value(f->text, freq);
    const char *name = list || !hf_value(f->text, words) ? freq : words;
    int32_t *moe = hf_of_layers(f);
    if (!moe)
        return hf_no_memory(f, err);
    if (name == words)
        TRY(hf_read_words(f, words, "sparse", "dense", moe, err));
    else if (json_array_size(list) < f->n_layers)
        return hf_wrong(f, freq, "0 or 1 for each layer", err);
    *n_dense = 0;
    for (uint32_t l = 0; l < f->n_layers; l++) {
        bool has = name == words ? moe[l] : is_one(list, l);
        if (!has && *n_dense != l)
            return hf_wrong(f, name, "the dense layers first", err);
        *n_dense += !has;
    }
    hf_put_u32(f, "leading_dense_block_count", *n_dense);
    return ST_OK;
}

/* Only dense layers see everything. */
static enum status put_minimax_m3_layers(struct hf_folder *f, struct err *err) {
    const json_t *sparse = hf_value(f->text, "sparse_attention_config.sparse_attention_freq");
    uint32_t n_dense;
    TRY(put_dense_layers(f, &n_dense, err));
    for (uint32_t l = 0; l < f->n_layers; l++) {
        if (!json_is_array(sparse) || is_one(sparse, l) != (l >= n_dense))
            return hf_wrong(f, "sparse_attention_config.sparse_attention_freq",
                            "1 for the layers with experts, and 0 for the others", err);
    }
    return ST_OK;
}

enum status hf_put_minimax_m3(struct hf_folder *f, struct err *err) {
    const json_t *act = hf_value(f->text, "hidden_act");
    const char *name = json_string_value(act);
    uint32_t width, n_shared;
    if (act && (!name || (!str_eq(name, "silu") && !str_eq(name, "swigluoai"))))
        return hf_wrong(f, "hidden_act", "swigluoai", err);
    TRY(put_minimax_m3_layers(f, err));
    TRY(hf_u32_at(f, "n_shared_experts", 1, &n_shared, err));
    TRY(hf_need_u32(f, "intermediate_size", &width, err));
    TRY(hf_u32_at(f, "shared_intermediate_size", width, &width, err));
    if (n_shared > 1024 || width > 1u << 20)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: %u shared experts of %u columns make no sense", f->path,
                       n_shared, width);
    hf_put_u32(f, "expert_shared_count", n_shared);
    hf_put_u32(f, "expert_shared_feed_forward_length", n_shared * width);
    hf_put_bool(f, "expert_weights_norm", true);
    return ST_OK;
}

/* ---- Step 3.5 ------------------------------------------------------------------------ */

/* A number of the layers with a window, and of the others. */
struct step35_heads {
    uint32_t heads, kv_heads;
};

static enum status put_step35_heads(struct hf_folder *f, const int32_t *window,
                                    struct err *err) {
    struct step35_heads of[2];
    int32_t *n_heads = hf_of_layers(f), *n_kv_heads = hf_of_layers(f);
    if (!n_heads || !n_kv_heads)
        return hf_no_memory(f, err);
    TRY(hf_need_u32(f, "num_attention_heads", &of[0].heads, err));
    TRY(hf_need_u32(f, "num_attention_groups", &of[0].kv_heads, err));
    TRY(hf_u32_at(f, "attention_other_setting.num_attention_heads", of[0].heads, &of[1].heads,
                  err));
    TRY(hf_u32_at(f, "attention_other_setting.num_attention_groups", of[0].kv_heads,
                  &of[1].kv_heads, err));
    for (uint32_t l = 0; l < f->n_layers; l++) {
        n_heads[l] = (int32_t)of[window[l]].heads;
        n_kv_heads[l] = (int32_t)of[window[l]].kv_heads;
    }
    hf_put_i32_array(f, "attention.head_count", n_heads, f->n_layers);
    hf_put_i32_array(f, "attention.head_count_kv", n_kv_heads, f->n_layers);
    return ST_OK;
}

/* One base for the layers with a window and one for the others, which rotate half of a head and
 * alone have factors. */
static enum status put_step35_rope(struct hf_folder *f, const int32_t *window,
                                   struct err *err) {
    const json_t *bases = hf_value(f->text, "rope_theta");
    const json_t *parts = hf_value(f->text, "partial_rotary_factors");
    const json_t *only = hf_value(f->text, "yarn_only_types");
    const char *with = json_string_value(json_array_get(only, 0));
    double base[2] = {0, 0}, all;
    if (!json_is_array(bases))
        TRY(hf_f64_at(f, "rope_theta", 10000, &all, err));
    for (uint32_t l = 0; l < f->n_layers; l++) {
        double own = json_is_array(bases) ? json_number_value(json_array_get(bases, l)) : all;
        if (json_number_value(json_array_get(parts, l)) != (window[l] ? 1 : 0.5))
            return hf_wrong(f, "partial_rotary_factors",
                            "1 for layers with a window and 0.5 for the others", err);
        if (!(own > 1) || !isfinite(own) || (base[window[l]] != 0 && base[window[l]] != own))
            return hf_wrong(f, "rope_theta", "the same number for all layers of a kind", err);
        base[window[l]] = own;
    }
    if (window[0])
        return hf_wrong(f, "layer_types", "full_attention first", err);
    hf_put_f32(f, "rope.freq_base", base[0]);
    if (base[1] != 0)
        hf_put_f32(f, "rope.freq_base_swa", base[1]);
    if (hf_value(f->text, "rope_scaling") &&
        (json_array_size(only) != 1 || !with || !str_eq(with, "full_attention")))
        return hf_wrong(f, "yarn_only_types", "[full_attention], since RoPE is scaled", err);
    return ST_OK;
}

/* moe_layers_enum: "3,4,5": all from the first one on. */
static enum status put_step35_experts(struct hf_folder *f, struct err *err) {
    static const char name[] = "moe_layers_enum";
    const json_t *norm = hf_value(f->text, "norm_expert_weight"), *v = hf_value(f->text, name);
    const char *text = json_string_value(v);
    uint32_t n_dense = 1, next = 0;
    if (v && !text)
        return hf_wrong(f, name, "a text of numbers", err);
    for (const char *s = text; s && *s; next++) {
        char *end;
        unsigned long layer = strtoul(s, &end, 10);
        if (next == 0)
            next = n_dense = (uint32_t)layer;
        if (end == s || layer != next || (*end != ',' && *end != '\0'))
            return hf_wrong(f, name, "the numbers of all layers after the dense ones", err);
        s = *end ? end + 1 : end;
    }
    if (text && next != f->n_layers)
        return hf_wrong(f, name, "the numbers of all layers after the dense ones", err);
    hf_put_u32(f, "leading_dense_block_count", n_dense);
    hf_put_bool(f, "expert_weights_norm", !json_is_false(norm));
    return ST_OK;
}

/* 0, null or no number at all: the layer has none. */
static enum status put_limits(struct hf_folder *f, const char *key, const char *name,
                              struct err *err) {
    const json_t *list = hf_value(f->text, name);
    if (!list)
        return ST_OK;
    float *limits = hf_own(f, mem_calloc(f->n_layers, sizeof *limits));
    if (!limits)
        return hf_no_memory(f, err);
    for (uint32_t l = 0; l < f->n_layers; l++) {
        limits[l] = (float)json_number_value(json_array_get(list, l));
        if (!json_is_array(list) || !(limits[l] >= 0) || isinf(limits[l]))
            return hf_wrong(f, name, "a limit for each layer", err);
    }
    hf_put_f32_array(f, key, limits, f->n_layers);
    return ST_OK;
}

enum status hf_put_step35(struct hf_folder *f, struct err *err) {
    int32_t *window = hf_of_layers(f);
    if (!window)
        return hf_no_memory(f, err);
    TRY(hf_read_words(f, "layer_types", "sliding_attention", "full_attention", window, err));
    hf_put_i32_array(f, "attention.sliding_window_pattern", window, f->n_layers);
    TRY(put_step35_heads(f, window, err));
    TRY(put_step35_rope(f, window, err));
    TRY(put_step35_experts(f, err));
    TRY(put_limits(f, "swiglu_clamp_exp", "swiglu_limits", err));
    return put_limits(f, "swiglu_clamp_shexp", "swiglu_limits_shared", err);
}

/* ---- Hunyuan ------------------------------------------------------------------------- */

#define HUNYUAN_CONTEXT (256u * 1024)

/* A number, or a list that has it once for each layer. */
static enum status same_of_layers(const struct hf_folder *f, const char *name, uint32_t *out,
                                  struct err *err) {
    const json_t *list = hf_value(f->text, name), *v;
    size_t i;
    if (!json_is_array(list))
        return hf_need_u32(f, name, out, err);
    *out = 0;
    json_array_foreach(list, i, v) {
        json_int_t n = json_integer_value(v);
        if (n < 1 || n > 1 << 24 || (i > 0 && (uint32_t)n != *out))
            return hf_wrong(f, name, "the same number for each layer", err);
        *out = (uint32_t)n;
    }
    return *out != 0 ? ST_OK : hf_wrong(f, name, "a number for each layer", err);
}

static enum status put_hunyuan_experts(struct hf_folder *f, struct err *err) {
    uint32_t n_used, width, n_shared, shared_width;
    TRY(same_of_layers(f, "moe_topk", &n_used, err));
    TRY(same_of_layers(f, "moe_intermediate_size", &width, err));
    TRY(same_of_layers(f, "num_shared_expert", &n_shared, err));
    TRY(hf_need_u32(f, "intermediate_size", &shared_width, err));
    if (n_shared > 1024 || shared_width > 1u << 20)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: %u shared experts of %u columns make no sense", f->path,
                       n_shared, shared_width);
    hf_put_u32(f, "expert_count", f->n_experts);
    hf_put_u32(f, "expert_used_count", n_used);
    hf_put_u32(f, "expert_feed_forward_length", width);
    hf_put_u32(f, "expert_shared_feed_forward_length", n_shared * shared_width);
    return ST_OK;
}

/* The scaling that Hunyuan calls dynamic multiplies the base once for all lengths; contexts are
 * then longer than config.json says. */
static enum status put_hunyuan_base(struct hf_folder *f, struct err *err) {
    const char *object = json_is_object(hf_value(f->text, "rope_scaling"))
                             ? "rope_scaling.alpha"
                             : "rope_parameters.alpha";
    double alpha, base;
    uint32_t dim, ctx;
    TRY(hf_f64_at(f, object, 0, &alpha, err));
    if (alpha == 0)
        return ST_OK;
    TRY(hf_rope_base(f, 10000, &base, err));
    TRY(hf_u32_at(f, "hidden_size", 0, &dim, err));
    TRY(hf_u32_at(f, "head_dim", dim / f->n_heads, &dim, err));
    TRY(hf_u32_at(f, "attention_head_dim", dim, &dim, err));
    TRY(hf_u32_at(f, "max_position_embeddings", 0, &ctx, err));
    if (!(alpha >= 1 && alpha < 1e9) || !(base > 1) || dim < 4 || dim > 65536)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: RoPE's alpha of %g for heads of %u dimensions and a "
                       "base of %g makes no sense",
                       f->path, alpha, dim, base);
    hf_put_f32(f, "rope.freq_base", base * exact_exp64(exact_log64(alpha) * dim / (dim - 2)));
    hf_put_u32(f, "context_length", MAX(ctx, HUNYUAN_CONTEXT));
    return ST_OK;
}

enum status hf_put_hunyuan(struct hf_folder *f, struct err *err) {
    TRY(put_hunyuan_base(f, err));
    return str_eq(f->arch->arch, "hunyuan-moe") ? put_hunyuan_experts(f, err) : ST_OK;
}

/* ---- Ling 2 -------------------------------------------------------------------------- */

/* Ling 1 has the same model_type, and neither of the two. */
enum status hf_put_bailing(struct hf_folder *f, struct err *err) {
    uint32_t width, n_shared;
    if (!json_is_true(hf_value(f->text, "use_qk_norm")) || !hf_value(f->text, "score_function"))
        return err_set(err, ST_UNSUPPORTED,
                       "%s/config.json: use_qk_norm must be true and score_function sigmoid: "
                       "lockstep computes nothing else",
                       f->path);
    if (!hf_value(f->text, "rotary_dim") && !hf_value(f->text, "partial_rotary_factor") &&
        !hf_value(f->text, "rope_parameters.partial_rotary_factor"))
        return err_set(err, ST_BAD_INPUT, "%s/config.json: partial_rotary_factor is missing",
                       f->path);
    TRY(hf_need_u32(f, "moe_intermediate_size", &width, err));
    TRY(hf_u32_at(f, "moe_shared_expert_intermediate_size", width, &width, err));
    TRY(hf_need_u32(f, "num_shared_experts", &n_shared, err));
    if (n_shared > 1024 || width > 1u << 20)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: %u shared experts of %u columns make no sense", f->path,
                       n_shared, width);
    hf_put_u32(f, "expert_shared_feed_forward_length", n_shared * width);
    return ST_OK;
}

/* ---- MiMo-V2-Flash ------------------------------------------------------------------- */

/* hybrid_layer_pattern, or transformers' words. */
static enum status read_mimo2_windows(struct hf_folder *f, int32_t *window, struct err *err) {
    static const char name[] = "hybrid_layer_pattern";
    const json_t *list = hf_value(f->text, name);
    if (!list && hf_value(f->text, "layer_types"))
        return hf_read_words(f, "layer_types", "sliding_attention", "full_attention", window,
                             err);
    if (!list)
        return err_set(err, ST_BAD_INPUT, "%s/config.json: %s is missing", f->path, name);
    for (uint32_t l = 0; l < f->n_layers; l++) {
        const json_t *v = json_array_get(list, l);
        if (!json_is_integer(v) || (json_integer_value(v) & ~(json_int_t)1) != 0)
            return hf_wrong(f, name, "0 or 1 for each layer", err);
        window[l] = (int32_t)json_integer_value(v);
    }
    return ST_OK;
}

/* transformers knows no number of key-value heads for layers with a window: twice the others'. */
static enum status put_mimo2_heads(struct hf_folder *f, const int32_t *window,
                                   struct err *err) {
    int32_t *n_heads = hf_of_layers(f), *n_kv_heads = hf_of_layers(f);
    uint32_t heads, kv_heads;
    if (!n_heads || !n_kv_heads)
        return hf_no_memory(f, err);
    if (f->n_heads > 65536 || f->n_kv_heads > 65536)
        return hf_wrong(f, "num_attention_heads", "at most 65536, of keys too", err);
    TRY(hf_u32_at(f, "swa_num_attention_heads", f->n_heads, &heads, err));
    TRY(hf_u32_at(f, "swa_num_key_value_heads", 2 * f->n_kv_heads, &kv_heads, err));
    if (heads == 0 || heads > 65536 || kv_heads == 0 || kv_heads > 65536)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: %u heads and %u of keys in layers with a window make "
                       "no sense",
                       f->path, heads, kv_heads);
    for (uint32_t l = 0; l < f->n_layers; l++) {
        n_heads[l] = (int32_t)(window[l] ? heads : f->n_heads);
        n_kv_heads[l] = (int32_t)(window[l] ? kv_heads : f->n_kv_heads);
    }
    hf_put_i32_array(f, "attention.head_count", n_heads, f->n_layers);
    hf_put_i32_array(f, "attention.head_count_kv", n_kv_heads, f->n_layers);
    return ST_OK;
}

enum status hf_put_mimo2(struct hf_folder *f, struct err *err) {
    static const char nested[] = "rope_parameters.full_attention.partial_rotary_factor";
    int32_t *window = hf_of_layers(f);
    uint32_t n_dense, dim;
    double part;
    if (!window)
        return hf_no_memory(f, err);
    TRY(read_mimo2_windows(f, window, err));
    hf_put_i32_array(f, "attention.sliding_window_pattern", window, f->n_layers);
    TRY(put_mimo2_heads(f, window, err));
    TRY(put_dense_layers(f, &n_dense, err));
    TRY(hf_need_u32(f, "head_dim", &dim, err));
    TRY(hf_f64_at(f, nested, 0, &part, err));
    TRY(hf_f64_at(f, "partial_rotary_factor", part, &part, err));
    if (!(part > 0 && part <= 1) || dim > 65536)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: a partial_rotary_factor of %g for heads of %u makes no "
                       "sense",
                       f->path, part, dim);
    hf_put_u32(f, "rope.dimension_count", (uint32_t)(dim * part));
    return ST_OK;
}

/* GGUF says by a missing tensor that a layer has no sinks. */
enum status hf_check_mimo2(struct hf_folder *f, const char *prefix, struct err *err) {
    const json_t *windowed = hf_value(f->text, "add_swa_attention_sink_bias");
    const json_t *full = hf_value(f->text, "add_full_attention_sink_bias");
    int32_t *window = hf_of_layers(f);
    struct err other;
    if (!window)
        return hf_no_memory(f, err);
    TRY(read_mimo2_windows(f, window, err));
    for (uint32_t l = 0; l < f->n_layers; l++) {
        if ((window[l] ? !json_is_false(windowed) : json_is_true(full)) &&
            need_tensor(f, prefix, l, "self_attn.sinks", &other) != ST_OK)
            TRY(need_tensor(f, prefix, l, "self_attn.attention_sink_bias", err));
    }
    return ST_OK;
}
