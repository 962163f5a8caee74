/* hf_config.c: config.json to GGUF keys, by the tables of hf_archs.c. A setting that lockstep
 * cannot compute is refused by name, never ignored. hf_rope.c handles RoPE. */
#include "base/util.h"
#include "hf/hf_impl.h"

#include <stdio.h>

/* ---- values -------------------------------------------------------------------------- */

const json_t *hf_value(const json_t *o, const char *path) {
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

const json_t *hf_quantization(const struct hf_folder *f) {
    const json_t *q = hf_value(f->config, "quantization_config");
    return q ? q : hf_value(f->text, "quantization_config");
}

enum status hf_wrong(const struct hf_folder *f, const char *path, const char *expected,
                     struct err *err) {
    char *text = json_dumps(hf_value(f->text, path), JSON_ENCODE_ANY | JSON_COMPACT);
    char shown[64] = "?";
    if (text)
        gguf_escape((struct gguf_str){text, strlen(text)}, shown, sizeof shown);
    free(text);
    return err_set(err, ST_BAD_INPUT, "%s/config.json: %s is %s, expected %s", f->path, path,
                   shown, expected);
}

enum status hf_u32_at(const struct hf_folder *f, const char *path, uint32_t fallback,
                      uint32_t *out, struct err *err) {
    const json_t *v = hf_value(f->text, path);
    *out = fallback;
    if (!v)
        return ST_OK;
    double n = json_number_value(v);
    if (!json_is_number(v) || !(n >= 0) || n > UINT32_MAX || n != floor(n))
        return hf_wrong(f, path, "an integer from 0 to 2^32-1", err);
    *out = (uint32_t)n;
    return ST_OK;
}

enum status hf_f64_at(const struct hf_folder *f, const char *path, double fallback, double *out,
                      struct err *err) {
    const json_t *v = hf_value(f->text, path);
    *out = fallback;
    if (!v)
        return ST_OK;
    if (!json_is_number(v) || !isfinite((float)json_number_value(v)))
        return hf_wrong(f, path, "a number", err);
    *out = json_number_value(v);
    return ST_OK;
}

void hf_put_u32(struct hf_folder *f, const char *name, uint32_t v) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", f->arch->arch, name);
    gguf_write_u32(f->w, key, v);
}

void hf_put_f32(struct hf_folder *f, const char *name, double v) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", f->arch->arch, name);
    gguf_write_f32(f->w, key, (float)v);
}

void hf_put_i32_array(struct hf_folder *f, const char *name, const int32_t *v, size_t n) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", f->arch->arch, name);
    gguf_write_i32_array(f->w, key, v, n);
}

void hf_put_f32_array(struct hf_folder *f, const char *name, const float *v, size_t n) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", f->arch->arch, name);
    gguf_write_f32_array(f->w, key, v, n);
}

void hf_put_bool(struct hf_folder *f, const char *name, bool v) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", f->arch->arch, name);
    gguf_write_bool(f->w, key, v);
}

void hf_put_str(struct hf_folder *f, const char *name, const char *v) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", f->arch->arch, name);
    gguf_write_str(f->w, key, v);
}

/* ---- reading ------------------------------------------------------------------------- */

static const struct hf_arch *arch_at(size_t i) {
    return i < n_folder_archs ? &hf_archs[i] : &hf_layered_archs[i - n_folder_archs];
}

static const struct hf_arch *arch_named(const struct hf_folder *f, const char *type) {
    bool no_experts =
        json_integer_value(json_object_get(f->config, "num_local_experts")) == 0 &&
        json_integer_value(json_object_get(f->config, "n_routed_experts")) == 0;
    const struct hf_arch *found = NULL;
    for (size_t i = 0; type && i < n_folder_archs + n_layered_archs; i++)
        if (str_eq(type, arch_at(i)->model_type) && (!arch_at(i)->no_experts || no_experts))
            found = arch_at(i);
    return found;
}

static enum status unknown_type(const struct hf_folder *f, const char *type, struct err *err) {
    char known[2048] = "", shown[64];
    for (size_t i = 0; i < n_folder_archs + n_layered_archs; i++) {
        size_t n = strlen(known);
        if (!arch_at(i)->no_experts)
            snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "",
                     arch_at(i)->model_type);
    }
    return err_set(err, ST_UNSUPPORTED,
                   "%s/config.json: the model_type %s is unknown; known are %s", f->path,
                   gguf_escape((struct gguf_str){type, strlen(type)}, shown, sizeof shown),
                   known);
}

/* A model that sees or hears has its language model in text_config. Its own type comes first:
 * some say more than that of the language model (kimi_k3), others are one of many names around
 * the same one (kimi_k25). */
static enum status find_arch(struct hf_folder *f, struct err *err) {
    const char *type = json_string_value(json_object_get(f->config, "model_type"));
    json_t *text = json_object_get(f->config, "text_config");
    if (!type)
        return err_set(err, ST_BAD_INPUT, "%s/config.json: model_type is missing", f->path);
    f->text = json_is_object(text) ? text : f->config;
    f->arch = arch_named(f, type);
    if (!f->arch)
        f->arch = arch_named(f, json_string_value(json_object_get(text, "model_type")));
    return f->arch ? ST_OK : unknown_type(f, type, err);
}

static enum status put_key(struct hf_folder *f, const struct hf_key *k, struct err *err) {
    const char *name = k->name;
    if (!hf_value(f->text, name) && k->other)
        name = k->other;
    const json_t *v = hf_value(f->text, name);
    uint32_t n;
    double x;
    if (!v && isnan(k->fallback))
        return ST_OK;
    if (k->type == GGUF_BOOL) {
        if (!json_is_boolean(v))
            return hf_wrong(f, name, "true or false", err);
        hf_put_bool(f, k->key, json_is_true(v));
    } else if (k->type == GGUF_U32) {
        TRY(hf_u32_at(f, name, v ? 0 : (uint32_t)k->fallback, &n, err));
        hf_put_u32(f, k->key, n);
    } else {
        TRY(hf_f64_at(f, name, k->fallback, &x, err));
        hf_put_f32(f, k->key, x);
    }
    return ST_OK;
}

static enum status check_must(const struct hf_folder *f, const struct hf_must *m,
                              struct err *err) {
    const json_t *v = hf_value(f->text, m->name);
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
    return hf_wrong(f, m->name, expected, err);
}

/* A window that the architecture does not compute is true as far as it reaches. */
static enum status limit_context(struct hf_folder *f, struct err *err) {
    uint32_t window, ctx;
    if (f->arch->window_period != 0 || f->arch->layers == HF_OWN ||
        str_eq(f->arch->arch, "phi3") || str_starts(f->arch->arch, "qwen"))
        return ST_OK; /* use_sliding_window is false there; phi3: docs/models/phi3.md */
    TRY(hf_u32_at(f, "sliding_window", 0, &window, err));
    TRY(hf_u32_at(f, "max_position_embeddings", 0, &ctx, err));
    if (window != 0 && window < ctx)
        hf_put_u32(f, "context_length", window);
    return ST_OK;
}

/* ---- what the tables cannot say ------------------------------------------------------ */

static enum status put_mla(struct hf_folder *f, struct err *err) {
    uint32_t nope, rope;
    TRY(hf_u32_at(f, "qk_nope_head_dim", 0, &nope, err));
    TRY(hf_u32_at(f, "qk_rope_head_dim", 0, &rope, err));
    if (nope == 0 || rope == 0 || nope > 65536 || rope > 65536)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: qk_nope_head_dim and qk_rope_head_dim are %u and %u",
                       f->path, nope, rope);
    hf_put_u32(f, "attention.key_length", nope + rope);
    return ST_OK;
}

/* DeepSeek's ways to choose among groups. GGUF has no key for them: V2's goes with softmax, V3's
 * with sigmoid. */
static enum status put_groups(struct hf_folder *f, bool sigmoid, struct err *err) {
    const json_t *v = hf_value(f->text, "topk_method");
    const char *method = json_string_value(v);
    if (!v)
        method = str_eq(f->arch->model_type, "deepseek_v2") ? "greedy" : "noaux_tc";
    if (method && str_eq(method, "greedy")) {
        hf_put_u32(f, "expert_group_count", 1);
        hf_put_u32(f, "expert_group_used_count", 1);
        return ST_OK;
    }
    if (method && str_eq(method, sigmoid ? "noaux_tc" : "group_limited_greedy"))
        return ST_OK;
    return hf_wrong(f, "topk_method",
                    sigmoid ? "noaux_tc or greedy, since scoring_func is sigmoid"
                            : "group_limited_greedy or greedy, since scoring_func is softmax",
                    err);
}

/* Numbers as in GGUF: 1 softmax, 2 sigmoid. */
static enum status put_gating(struct hf_folder *f, struct err *err) {
    static const char *const names[] = {"scoring_func", "moe_router_activation_func",
                                        "moe_router_activation", "score_function"};
    size_t i = 0;
    while (i < ARRAY_LEN(names) - 1 && !hf_value(f->text, names[i]))
        i++;
    const char *func = json_string_value(hf_value(f->text, names[i]));
    uint32_t sigmoid = f->arch->sigmoid;
    if (hf_value(f->text, names[i]) &&
        (!func || (!str_eq(func, "softmax") && !str_eq(func, "sigmoid"))))
        return hf_wrong(f, names[i], "softmax or sigmoid", err);
    if (func)
        sigmoid = str_eq(func, "sigmoid");
    if (f->arch->mla || sigmoid)
        hf_put_u32(f, "expert_gating_func", 1 + sigmoid);
    return f->arch->mla ? put_groups(f, sigmoid, err) : ST_OK;
}

enum status hf_read_words(const struct hf_folder *f, const char *name, const char *yes,
                          const char *no, int32_t *out, struct err *err) {
    const json_t *list = hf_value(f->text, name);
    char expected[128];
    if (!list)
        return err_set(err, ST_BAD_INPUT, "%s/config.json: %s is missing", f->path, name);
    if (!json_is_array(list) || json_array_size(list) < f->n_layers)
        return hf_wrong(f, name, "one word for each layer", err);
    for (uint32_t l = 0; l < f->n_layers; l++) {
        const char *word = json_string_value(json_array_get(list, l));
        snprintf(expected, sizeof expected, "%s or %s for each layer", yes, no);
        if (!word || (!str_eq(word, yes) && !str_eq(word, no)))
            return hf_wrong(f, name, expected, err);
        out[l] = str_eq(word, yes);
    }
    return ST_OK;
}

/* GLM-5.2 lists which layers have an indexer, and where its configuration has no number for it,
 * which are dense: the first ones. */
static enum status put_layer_lists(struct hf_folder *f, struct err *err) {
    const json_t *types = hf_value(f->text, "indexer_types");
    const json_t *ffns = hf_value(f->text, "mlp_layer_types");
    enum status st = ST_OK;
    uint32_t n_dense = 0;
    bool known =
        str_eq(f->arch->arch, "glm-dsa") || str_eq(f->arch->model_type, "glm4_moe_lite");
    if (!known || (!types && !ffns))
        return ST_OK;
    int32_t *of_layers = malloc(f->n_layers * sizeof *of_layers);
    if (of_layers == NULL)
        return hf_no_memory(f, err);
    if (types)
        st = hf_read_words(f, "indexer_types", "full", "shared", of_layers, err);
    if (types && st == ST_OK)
        gguf_write_i32_array(f->w, "glm-dsa.attention.indexer.types", of_layers, f->n_layers);
    if (ffns && st == ST_OK)
        st = hf_read_words(f, "mlp_layer_types", "dense", "sparse", of_layers, err);
    while (ffns && st == ST_OK && n_dense < f->n_layers && of_layers[n_dense])
        n_dense++;
    for (uint32_t l = n_dense; ffns && st == ST_OK && l < f->n_layers; l++)
        if (of_layers[l])
            st = hf_wrong(f, "mlp_layer_types", "the dense layers first", err);
    if (ffns && st == ST_OK && !hf_value(f->text, "first_k_dense_replace"))
        hf_put_u32(f, "leading_dense_block_count", n_dense);
    free(of_layers);
    return st;
}

/* Logits of gemma2 and gemma3 are divided by the root of a number of their own. */
static enum status put_attention_scale(struct hf_folder *f, struct err *err) {
    double scalar;
    TRY(hf_f64_at(f, "query_pre_attn_scalar", 0, &scalar, err));
    if ((!str_eq(f->arch->arch, "gemma3") && !str_eq(f->arch->arch, "gemma2")) || scalar == 0)
        return ST_OK;
    if (!(scalar > 0))
        return hf_wrong(f, "query_pre_attn_scalar", "more than 0", err);
    hf_put_f32(f, "attention.scale", (double)(1.0f / sqrtf((float)scalar)));
    return ST_OK;
}

/* compressed-tensors has many forms; known are FP8 and MXFP8 (activations, which others round too,
 * are not), MXFP4, NVFP4, and signed codes of 4 bits in groups, without zero points and
 * permutations. */
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
    if (str_eq(format, "mxfp8-quantized"))
        return bits == 8 && str_eq(type, "float");
    if (str_eq(format, "mxfp4-pack-quantized") || str_eq(format, "nvfp4-pack-quantized"))
        return bits == 4 && str_eq(type, "float");
    return str_eq(format, "pack-quantized") && bits == 4 && str_eq(type, "int") &&
           !hf_value(group, "input_activations");
}

static bool is_known_compressed(const json_t *q) {
    const json_t *groups = json_object_get(q, "config_groups");
    const char *name;
    json_t *group;
    json_object_foreach((json_t *)groups, name,
                        group) if (!is_known_group(q, group)) return false;
    return json_object_size(groups) != 0;
}

/* NVIDIA's. In a mixture, each tensor's form says what it is. */
static bool is_known_modelopt(const json_t *q, const char *method) {
    static const char *const algos[] = {"NVFP4", "W4A16_NVFP4", "MXFP8", "MIXED_PRECISION"};
    const char *algo = json_string_value(json_object_get(q, "quant_algo"));
    for (size_t i = 0; algo && str_starts(method, "modelopt") && i < ARRAY_LEN(algos); i++)
        if (str_eq(algo, algos[i]))
            return true;
    return false;
}

static enum status check_quantization(const struct hf_folder *f, struct err *err) {
    const json_t *q = hf_quantization(f);
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    if (!method || str_eq(method, "fp8") || str_eq(method, "mxfp4"))
        return ST_OK;
    bool packed = str_eq(method, "compressed-tensors");
    if (is_known_modelopt(q, method))
        return ST_OK;
    if (packed && is_known_compressed(q))
        return ST_OK;
    if (packed)
        return err_set(
            err, ST_UNSUPPORTED,
            "%s/config.json: weights quantized by compressed-tensors are supported only as "
            "float-quantized (FP8), mxfp8-quantized, mxfp4- or nvfp4-pack-quantized, or "
            "pack-quantized with symmetric integers of 4 bits",
            f->path);
    char shown[64];
    return err_set(
        err, ST_UNSUPPORTED,
        "%s/config.json: weights quantized by %s are not supported; take the original "
        "folder, or one in fp8, mxfp4 or MLX's groups",
        f->path, gguf_escape((struct gguf_str){method, strlen(method)}, shown, sizeof shown));
}

static void put_names(struct hf_folder *f) {
    const char *base = strrchr(f->path, '/');
    base = base && base[1] ? base + 1 : f->path;
    gguf_write_str(f->w, "general.architecture", f->arch->arch);
    gguf_write_str(f->w, "general.name", base);
}

enum status hf_read_config(struct hf_folder *f, struct err *err) {
    TRY(find_arch(f, err));
    TRY(check_quantization(f, err));
    put_names(f);
    TRY(hf_u32_at(f, "num_hidden_layers", 0, &f->n_layers, err));
    for (size_t i = 0; i < FOLDER_MAX_LISTS; i++) {
        for (const struct hf_key *k = f->arch->keys[i]; k && k->key; k++)
            TRY(put_key(f, k, err));
        for (const struct hf_must *m = f->arch->musts[i]; m && m->name; m++)
            TRY(check_must(f, m, err));
    }
    TRY(hf_u32_at(f, "num_attention_heads", f->arch->default_heads, &f->n_heads, err));
    TRY(hf_u32_at(f, "num_key_value_heads",
                  f->arch->default_kv_heads ? f->arch->default_kv_heads : f->n_heads,
                  &f->n_kv_heads, err));
    TRY(hf_u32_at(f, "num_local_experts", 0, &f->n_experts, err));
    TRY(hf_u32_at(f, "num_experts", f->n_experts, &f->n_experts, err));
    TRY(hf_u32_at(f, "n_routed_experts", f->n_experts, &f->n_experts, err));
    TRY(hf_u32_at(f, "moe_num_experts", f->n_experts, &f->n_experts, err));
    if (f->n_layers == 0 || f->n_layers > 4096 || f->n_experts > 65536 || f->n_heads == 0 ||
        f->n_kv_heads == 0)
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: %u layers, %u experts, %u and %u heads make no sense",
                       f->path, f->n_layers, f->n_experts, f->n_heads, f->n_kv_heads);
    if (hf_embeds(
            f)) /* 1_Pooling is not copied between machines; decoders pool the last state */
        hf_put_u32(f, "pooling_type", HF_POOLING_LAST);
    TRY(hf_put_layers(f, err));
    if (f->arch->put)
        TRY(f->arch->put(f, err));
    TRY(limit_context(f, err));
    if (f->arch->mla)
        TRY(put_mla(f, err));
    if (!f->arch->own_gating)
        TRY(put_gating(f, err));
    TRY(put_layer_lists(f, err));
    TRY(put_attention_scale(f, err));
    return hf_put_rope(f, err);
}
