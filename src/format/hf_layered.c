/* hf_layered.c: what the tables of hf_layered_archs.c cannot say of their families: keys that
 * are lists, settings that must agree with each other, and tensors that must be there. */
#include "base/mem.h"
#include "base/util.h"
#include "format/hf_impl.h"

#include <stdio.h>

/* A number for each layer; the folder owns it. */
static int32_t *of_layers(struct hf_folder *f) {
    return hf_own(f, mem_calloc(f->n_layers, sizeof(int32_t)));
}

static enum status need_u32(const struct hf_folder *f, const char *name, uint32_t *out,
                            struct err *err) {
    if (!hf_value(f->text, name))
        return err_set(err, ST_BAD_INPUT, "%s/config.json: %s is missing", f->path, name);
    return hf_u32_at(f, name, 0, out, err);
}

/* The key from a number that config.json must have. */
static enum status put_needed(struct hf_folder *f, const char *key, const char *name,
                              struct err *err) {
    uint32_t n;
    TRY(need_u32(f, name, &n, err));
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
    TRY(need_u32(f, "intermediate_size", &n_ff, err));
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
    int32_t *window = of_layers(f), *n_kv_heads = of_layers(f), *width = of_layers(f);
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
    int32_t *width = of_layers(f);
    uint32_t n_ff;
    if (!width)
        return hf_no_memory(f, err);
    if (!json_is_array(list)) {
        TRY(need_u32(f, "intermediate_size", &n_ff, err));
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
