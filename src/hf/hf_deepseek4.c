/* hf_deepseek4.c: what the tables of hf_layered_archs.c cannot say of DeepSeek V4: which layers
 * have compressed keys, and which take their experts from a table. */
#include "base/mem.h"
#include "base/util.h"
#include "hf/hf_impl.h"

/* compress_ratios, or transformers' words. */
static enum status put_ratios(struct hf_folder *f, struct err *err) {
    const json_t *list = hf_value(f->text, "compress_ratios");
    const char *name = list ? "compress_ratios" : "layer_types";
    const json_t *given = list ? list : hf_value(f->text, name);
    int32_t *ratios = hf_of_layers(f);
    if (!ratios)
        return hf_no_memory(f, err);
    if (!given)
        return err_set(err, ST_BAD_INPUT, "%s/config.json: compress_ratios is missing",
                       f->path);
    for (uint32_t l = 0; l < f->n_layers; l++) {
        const json_t *v = json_array_get(given, l);
        const char *word = json_string_value(v);
        json_int_t n = list                                           ? json_integer_value(v)
                       : !word                                        ? -1
                       : str_eq(word, "sliding_attention")            ? 0
                       : str_eq(word, "compressed_sparse_attention")  ? 4
                       : str_eq(word, "heavily_compressed_attention") ? 128
                                                                      : -1;
        if ((list && !json_is_integer(v)) || (n != 0 && n != 4 && n != 128))
            return hf_wrong(f, name,
                            list ? "0, 4 or 128 for each layer"
                                 : "sliding_attention, compressed_sparse_attention or "
                                   "heavily_compressed_attention for each layer",
                            err);
        ratios[l] = (int32_t)n;
    }
    hf_put_i32_array(f, "attention.compress_ratios", ratios, f->n_layers);
    return ST_OK;
}

/* The first layers take their experts from a table. */
static enum status put_hash_layers(struct hf_folder *f, struct err *err) {
    uint32_t n = 0;
    int32_t *hash = hf_of_layers(f);
    if (!hash)
        return hf_no_memory(f, err);
    if (hf_value(f->text, "num_hash_layers") || !hf_value(f->text, "mlp_layer_types")) {
        TRY(hf_need_u32(f, "num_hash_layers", &n, err));
        hf_put_u32(f, "hash_layer_count", MIN(n, f->n_layers));
        return ST_OK;
    }
    TRY(hf_read_words(f, "mlp_layer_types", "hash_moe", "moe", hash, err));
    for (uint32_t l = 0; l < f->n_layers; l++) {
        if (hash[l] && n != l)
            return hf_wrong(f, "mlp_layer_types", "the layers with hash_moe first", err);
        n += (uint32_t)hash[l];
    }
    hf_put_u32(f, "hash_layer_count", n);
    return ST_OK;
}

enum status hf_put_deepseek4(struct hf_folder *f, struct err *err) {
    float *limits = hf_own(f, mem_calloc(f->n_layers, sizeof *limits));
    double limit;
    if (!limits)
        return hf_no_memory(f, err);
    if (!hf_value(f->text, "qk_rope_head_dim") && !hf_value(f->text, "partial_rotary_factor"))
        return err_set(err, ST_BAD_INPUT, "%s/config.json: qk_rope_head_dim is missing",
                       f->path);
    TRY(put_ratios(f, err));
    TRY(put_hash_layers(f, err));
    TRY(hf_f64_at(f, "swiglu_limit", 0, &limit, err));
    if (!(limit >= 0))
        return hf_wrong(f, "swiglu_limit", "0 or more", err);
    for (uint32_t l = 0; l < f->n_layers; l++)
        limits[l] = (float)limit;
    if (limit != 0)
        hf_put_f32_array(f, "swiglu_clamp_exp", limits, f->n_layers);
    hf_put_u32(f, "expert_gating_func", 4);
    hf_put_bool(f, "expert_weights_norm", true);
    return ST_OK;
}

enum status hf_add_deepseek4(struct hf_folder *f, const char *prefix, struct err *err) {
    static const struct hf_name ends[] = {
        {"output.weight", "head.weight", TAKE},
        {"output_hc_fn.weight", "hc_head_fn", TAKE},
        {"output_hc_base.weight", "hc_head_base", TAKE},
        {"output_hc_scale.weight", "hc_head_scale", TAKE},
        {"output_hc_fn.weight", "hc_head.fn", TAKE}, /* MLX's */
        {"output_hc_base.weight", "hc_head.base", TAKE},
        {"output_hc_scale.weight", "hc_head.scale", TAKE}};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        TRY(hf_add_named(f, ends[i].to, &ends[i], prefix, err));
    return ST_OK;
}
