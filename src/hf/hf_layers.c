/* hf_layers.c: what each layer of a folder's model is: windows, delta nets, convolutions, state
 * spaces. config.json lists the layers, and GGUF has keys of its own for each kind. */
#include "base/mem.h"
#include "base/util.h"
#include "hf/hf_impl.h"

#include <stdio.h>

/* An architecture may have windows in its layers. A model of it without windows says null. */
static bool has_windows(const struct hf_folder *f) {
    return !json_is_null(json_object_get(f->text, "sliding_window"));
}

/* layer_types must be what the architecture's pattern of windows, or of delta nets, says. */
static enum status check_layer_types(const struct hf_folder *f, struct err *err) {
    const json_t *types = hf_value(f->text, "layer_types"), *v;
    const char *other = f->arch->layers == HF_DELTA ? "linear_attention" : "sliding_attention";
    size_t i;
    uint32_t period = has_windows(f) ? f->arch->window_period : 0;
    if (f->arch->layers == HF_DELTA)
        TRY(hf_u32_at(f, "full_attention_interval", 4, &period, err));
    json_array_foreach(types, i, v) {
        const char *expected =
            period != 0 && i % period != period - 1 ? other : "full_attention";
        if (!json_is_string(v) || !str_eq(json_string_value(v), expected))
            return err_set(err, ST_UNSUPPORTED,
                           "%s/config.json: layer_types: layer %zu must be %s for lockstep",
                           f->path, i, expected);
    }
    return ST_OK;
}

/* Delta nets: the width of all value heads, and what tiles them. */
static enum status put_delta(struct hf_folder *f, struct err *err) {
    uint32_t n_keys, n_values, k_dim, v_dim;
    TRY(hf_u32_at(f, "linear_num_key_heads", 0, &n_keys, err));
    TRY(hf_u32_at(f, "linear_num_value_heads", 0, &n_values, err));
    TRY(hf_u32_at(f, "linear_key_head_dim", 0, &k_dim, err));
    TRY(hf_u32_at(f, "linear_value_head_dim", 0, &v_dim, err));
    if (n_keys == 0 || n_values == 0 || n_values % n_keys != 0 || k_dim == 0 || v_dim == 0 ||
        n_values > 65536 || k_dim > 65536 || v_dim > 65536 / n_values * 64)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: linear attention of %u key heads of %u and %u value "
                       "heads of %u makes no sense",
                       f->path, n_keys, k_dim, n_values, v_dim);
    hf_put_u32(f, "ssm.inner_size", n_values * v_dim);
    f->v_heads = (struct row_tiling){.first = 2 * (uint64_t)n_keys * k_dim,
                                     .block = v_dim,
                                     .n_groups = n_keys,
                                     .n_per_group = n_values / n_keys};
    return ST_OK;
}

/* ---- layers that have attention or something else ---------------------------------------- */

/* One number for each layer. */
struct layer_numbers {
    int32_t *kv_heads, *n_ff; /* [n_layers]; 0: no attention, no FFN */
};

static enum status layer_of_list(const struct hf_folder *f, const json_t *types, uint32_t l,
                                 const char *other, bool *attention, struct err *err) {
    const char *type = json_string_value(json_array_get(types, l));
    *attention = type && (str_eq(type, "full_attention") || str_eq(type, "attention"));
    if (!type || (!*attention && !str_eq(type, other)))
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: layer_types: layer %u is not attention or %s", f->path,
                       l, other);
    return ST_OK;
}

/* LFM2's older files name the layers with attention by their numbers. */
static bool is_in(const json_t *numbers, uint32_t l) {
    const json_t *v;
    size_t i;
    json_array_foreach(numbers, i, v) if (json_integer_value(v) == (json_int_t)l) return true;
    return false;
}

static enum status read_types(const struct hf_folder *f, struct layer_numbers *out,
                              struct err *err) {
    const char *other = f->arch->layers == HF_CONV ? "conv" : "mamba";
    const json_t *types = hf_value(f->text, "layer_types"),
                 *numbers = hf_value(f->text, "full_attn_idxs");
    if (!types && f->arch->layers != HF_CONV)
        return err_set(err, ST_BAD_INPUT, "%s/config.json: layer_types is missing", f->path);
    for (uint32_t l = 0; l < f->n_layers; l++) {
        bool attention = is_in(numbers, l);
        if (types)
            TRY(layer_of_list(f, types, l, other, &attention, err));
        out->kv_heads[l] = attention ? (int32_t)f->n_kv_heads : 0;
    }
    return ST_OK;
}

/* Nemotron H's pattern: a letter for each layer, M Mamba-2, * attention, - an FFN, E experts. */
static enum status read_pattern(const struct hf_folder *f, struct layer_numbers *out,
                                struct err *err) {
    const char *pattern = json_string_value(hf_value(f->text, "hybrid_override_pattern"));
    uint32_t n_ff, n_ff_expert;
    TRY(hf_u32_at(f, "intermediate_size", 0, &n_ff, err));
    TRY(hf_u32_at(f, "moe_intermediate_size", 0, &n_ff_expert, err));
    if (!pattern || strlen(pattern) != f->n_layers || strspn(pattern, "M*-E") != f->n_layers)
        return hf_wrong(f, "hybrid_override_pattern",
                        "a letter for each layer, of M, *, - and E", err);
    for (uint32_t l = 0; l < f->n_layers; l++) {
        out->kv_heads[l] = pattern[l] == '*' ? (int32_t)f->n_kv_heads : 0;
        out->n_ff[l] = (int32_t)(pattern[l] == '-'   ? n_ff
                                 : pattern[l] == 'E' ? n_ff_expert
                                                     : 0);
    }
    return ST_OK;
}

static enum status put_numbers(struct hf_folder *f, struct err *err) {
    struct layer_numbers n = {mem_calloc(f->n_layers, sizeof *n.kv_heads),
                              mem_calloc(f->n_layers, sizeof *n.n_ff)};
    enum status st = n.kv_heads && n.n_ff ? ST_OK : hf_no_memory(f, err);
    if (st == ST_OK)
        st = f->arch->layers == HF_BLOCKS ? read_pattern(f, &n, err) : read_types(f, &n, err);
    if (st == ST_OK) {
        hf_put_i32_array(f, "attention.head_count_kv", n.kv_heads, f->n_layers);
        if (f->arch->layers == HF_BLOCKS)
            hf_put_i32_array(f, "feed_forward_length", n.n_ff, f->n_layers);
    }
    mem_free(n.kv_heads);
    mem_free(n.n_ff);
    return st;
}

/* Mamba-2: the width of all heads. */
static enum status put_mamba(struct hf_folder *f, const char *heads, const char *dim,
                             const char *groups, struct err *err) {
    uint32_t n_heads, head_dim;
    TRY(hf_u32_at(f, heads, 0, &n_heads, err));
    TRY(hf_u32_at(f, dim, 0, &head_dim, err));
    TRY(hf_u32_at(f, groups, 1, &f->n_groups, err));
    if (n_heads == 0 || n_heads > 65536 || head_dim == 0 || head_dim > 65536 ||
        f->n_groups == 0)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: Mamba-2 of %u heads of %u in %u groups makes no sense",
                       f->path, n_heads, head_dim, f->n_groups);
    hf_put_u32(f, "ssm.inner_size", n_heads * head_dim);
    return ST_OK;
}

/* The width of LFM2's FFN (transformers: Lfm2MLP): two thirds of the number given, times a
 * factor, rounded up. */
static enum status put_lfm2_ff(struct hf_folder *f, struct err *err) {
    uint32_t n_ff, multiple;
    double factor;
    TRY(hf_u32_at(f, "intermediate_size", 0, &n_ff, err));
    TRY(hf_u32_at(f, "block_ff_dim", n_ff, &n_ff, err));
    TRY(hf_u32_at(f, "block_multiple_of", 256, &multiple, err));
    TRY(hf_f64_at(f, "block_ffn_dim_multiplier", 1, &factor, err));
    if (json_is_true(hf_value(f->text, "block_auto_adjust_ff_dim"))) {
        double width = floor(floor(2.0 * n_ff / 3) * factor);
        if (!(width >= 1) || width > 1 << 24 || multiple == 0 || multiple > 1 << 16)
            return err_set(err, ST_BAD_INPUT,
                           "%s/config.json: an FFN of two thirds of %u, times %g, in "
                           "multiples of %u makes no sense",
                           f->path, n_ff, factor, multiple);
        n_ff = (uint32_t)(div_up((uint64_t)width, multiple) * multiple);
    }
    hf_put_u32(f, "feed_forward_length", n_ff);
    return ST_OK;
}

/* Granite 4 has positions, or none. */
static enum status put_granite_positions(struct hf_folder *f, struct err *err) {
    const json_t *v = hf_value(f->text, "position_embedding_type");
    const char *type = json_string_value(v);
    if (v && (!type || (!str_eq(type, "nope") && !str_eq(type, "rope"))))
        return hf_wrong(f, "position_embedding_type", "rope or nope", err);
    hf_put_bool(f, "rope.scaling.finetuned", type && str_eq(type, "rope"));
    return ST_OK;
}

enum status hf_put_layers(struct hf_folder *f, struct err *err) {
    switch (f->arch->layers) {
    case HF_WINDOWS:
        return check_layer_types(f, err);
    case HF_DELTA:
        TRY(check_layer_types(f, err));
        return put_delta(f, err);
    case HF_CONV:
        TRY(put_lfm2_ff(f, err));
        return put_numbers(f, err);
    case HF_MAMBA:
        TRY(put_granite_positions(f, err));
        TRY(put_mamba(f, "mamba_n_heads", "mamba_d_head", "mamba_n_groups", err));
        return put_numbers(f, err);
    case HF_BLOCKS:
        TRY(put_mamba(f, "mamba_num_heads", "mamba_head_dim", "n_groups", err));
        return put_numbers(f, err);
    case HF_OWN:
        return ST_OK;
    }
    return ST_OK;
}
