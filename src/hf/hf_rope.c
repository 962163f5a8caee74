/* hf_rope.c: RoPE in config.json: which part of a head is rotated, and how frequencies are
 * scaled beyond the context that the model was trained on. */
#include "base/exact.h"
#include "base/mem.h"
#include "base/util.h"
#include "hf/hf_impl.h"

#include <stdio.h>

/* rope_scaling, or what later versions call it; NULL: none. */
static const char *scaling_object(const struct hf_folder *f) {
    static const char *const names[] = {"rope_scaling", "rope_parameters.full_attention",
                                        "rope_parameters.compress", "rope_parameters"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (json_is_object(hf_value(f->text, names[i])))
            return names[i];
    return NULL;
}

static const char *scaling_type(const struct hf_folder *f, const char *object) {
    const json_t *o = object ? hf_value(f->text, object) : NULL;
    const char *type = json_string_value(json_object_get(o, "rope_type"));
    if (!type)
        type = json_string_value(json_object_get(o, "type"));
    return type ? type : json_object_get(o, "factor") ? "(none)" : "default";
}

static enum status scaling_number(const struct hf_folder *f, const char *name, double fallback,
                                  double *out, struct err *err) {
    char path[96];
    const char *object = scaling_object(f);
    snprintf(path, sizeof path, "%s.%s", object ? object : "rope_scaling", name);
    return hf_f64_at(f, path, fallback, out, err);
}

static enum status original_context(const struct hf_folder *f, double *out, struct err *err) {
    double ctx;
    TRY(hf_f64_at(f, "max_position_embeddings", 0, &ctx, err));
    TRY(hf_f64_at(f, "original_max_position_embeddings", ctx, &ctx, err));
    TRY(scaling_number(f, "original_max_position_embeddings", ctx, out, err));
    if (!(*out >= 1 && *out <= UINT32_MAX))
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: original_max_position_embeddings makes no sense",
                       f->path);
    return ST_OK;
}

/* Whether the bounds of YaRN's ramp are rounded to whole pairs. OpenAI did not, and its folders
 * say so. */
static enum status put_truncate(struct hf_folder *f, struct err *err) {
    char path[96];
    snprintf(path, sizeof path, "%s.truncate", scaling_object(f));
    const json_t *v = hf_value(f->text, path);
    if (v && !json_is_boolean(v))
        return hf_wrong(f, path, "true or false", err);
    if (json_is_false(v))
        hf_put_bool(f, "rope.scaling.lockstep.truncate", false);
    return ST_OK;
}

static enum status put_yarn(struct hf_folder *f, struct err *err) {
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
    hf_put_str(f, "rope.scaling.type", "yarn");
    hf_put_f32(f, "rope.scaling.factor", factor);
    hf_put_u32(f, "rope.scaling.original_context_length", (uint32_t)original);
    hf_put_f32(f, "rope.scaling.yarn_beta_fast", fast);
    hf_put_f32(f, "rope.scaling.yarn_beta_slow", slow);
    if (f->arch->mla && all != 0) {
        /* cos and sin get the quotient of the two, the logits the second one squared. */
        hf_put_f32(f, "rope.scaling.yarn_log_multiplier", 0.1 * all);
        hf_put_f32(
            f, "rope.scaling.attn_factor",
            mscale == all ? 1 : (0.1 * mscale * log_factor + 1) / (0.1 * all * log_factor + 1));
    } else if (str_eq(f->arch->arch, "mistral3") && all != 0) {
        /* The two cancel: the magnitude stays 1. */
        hf_put_f32(f, "rope.scaling.yarn_log_multiplier", all);
    } else if (str_eq(f->arch->arch, "deepseek4")) {
        return ST_OK; /* cos and sin stay as they are */
    } else if (attention != 0) {
        hf_put_f32(f, "rope.scaling.attn_factor", attention / (0.1 * log_factor + 1));
    } else if (part != 1) {
        /* vLLM's, times what the factor gives: DeepSeek-R1-0528-Qwen3-8B's makes it 1. */
        hf_put_f32(f, "rope.scaling.attn_factor", part);
    }
    return ST_OK;
}

static enum status put_longrope(struct hf_folder *f, struct err *err) {
    double original, ctx, attention;
    TRY(original_context(f, &original, err));
    TRY(hf_f64_at(f, "max_position_embeddings", original, &ctx, err));
    double stretch = ctx / original;
    TRY(scaling_number(f, "attention_factor",
                       stretch > 1 ? sqrt(1 + exact_log64(stretch) / exact_log64(original)) : 1,
                       &attention, err));
    hf_put_str(f, "rope.scaling.type", "longrope");
    hf_put_u32(f, "rope.scaling.original_context_length", (uint32_t)original);
    hf_put_f32(f, "rope.scaling.attn_factor", attention);
    return ST_OK;
}

enum status hf_rope_base(const struct hf_folder *f, double fallback, double *out,
                         struct err *err) {
    const json_t *list = hf_value(f->text, "rope_theta");
    if (json_is_array(list)) { /* Step 3.5 has one for each layer; the first has no window */
        *out = json_number_value(json_array_get(list, 0));
        return ST_OK;
    }
    TRY(hf_f64_at(f, "rope_parameters.rope_theta", fallback, out, err));
    return hf_f64_at(f, "rope_theta", *out, out, err);
}

enum status hf_put_rope(struct hf_folder *f, struct err *err) {
    const char *type = scaling_type(f, scaling_object(f));
    double part, factor;
    uint32_t dim;
    TRY(hf_f64_at(f, "partial_rotary_factor", 1, &part, err));
    TRY(hf_f64_at(f, "rope_parameters.partial_rotary_factor", part, &part, err));
    TRY(hf_u32_at(f, "head_dim", 0, &dim, err));
    if (dim == 0 && f->n_heads != 0) {
        TRY(hf_u32_at(f, "hidden_size", 0, &dim, err));
        dim /= f->n_heads;
    }
    if (part != 1 && !f->arch->mla) {
        if (!(part > 0 && part < 1))
            return hf_wrong(f, "partial_rotary_factor", "a part of 1", err);
        hf_put_u32(f, "rope.dimension_count", (uint32_t)(dim * part));
    }
    if (str_eq(type, "default") || str_eq(type, "llama3") || str_eq(type, "dynamic"))
        /* llama3: hf_add_rope_factors(); dynamic: the same up to the model's own context */
        return ST_OK;
    if (str_eq(type, "mrope")) /* of a text all its positions are one */
        return ST_OK;
    if (str_eq(type, "proportional") && str_eq(f->arch->arch, "gemma4"))
        return ST_OK; /* hf_add_rope_factors() */
    if (str_eq(type, "linear")) {
        TRY(scaling_number(f, "factor", 1, &factor, err));
        hf_put_str(f, "rope.scaling.type", "linear");
        hf_put_f32(f, "rope.scaling.factor", factor);
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
static enum status add_llama3_factors(struct hf_folder *f, uint32_t n_rot, struct err *err) {
    double base, factor, low, high, original;
    TRY(hf_rope_base(f, 10000, &base, err));
    TRY(scaling_number(f, "factor", 8, &factor, err));
    TRY(scaling_number(f, "low_freq_factor", 1, &low, err));
    TRY(scaling_number(f, "high_freq_factor", 4, &high, err));
    TRY(original_context(f, &original, err));
    if (!(factor > 0 && low > 0 && high >= low && base > 1))
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: the numbers of llama3's RoPE scaling make no sense",
                       f->path);
    uint32_t n = n_rot / 2, n_turn = n;
    float *factors = mem_alloc(n * sizeof *factors);
    if (!factors)
        return hf_no_memory(f, err);
    if (str_eq(f->arch->arch, "step35")) /* of a head, half turns where factors count */
        n_turn = n / 2;
    double log_base = exact_log64(base);
    for (uint32_t i = 0; i < n; i++) {
        double wave = 2 * 3.14159265358979323846 * exact_exp64(log_base * i / n_turn);
        double turns = original / wave; /* Llama 4's low and high are the same */
        double smooth = turns < low ? 0 : turns >= high ? 1 : (turns - low) / (high - low);
        factors[i] = i < n_turn ? (float)(1 / ((1 - smooth) / factor + smooth)) : 1.0f;
    }
    enum status st = hf_add_vector(f, "rope_freqs.weight", factors, n, err);
    mem_free(factors);
    return st;
}

static enum status add_long_factors(struct hf_folder *f, const char *name, const char *to,
                                    struct err *err) {
    char path[96];
    snprintf(path, sizeof path, "%s.%s", scaling_object(f), name);
    const json_t *list = hf_value(f->text, path), *v;
    size_t n = json_array_size(list), i;
    if (n == 0 || n > 65536)
        return err_set(err, ST_BAD_INPUT, "%s/config.json: %s is not a list of factors",
                       f->path, path);
    float *factors = mem_alloc(n * sizeof *factors);
    if (!factors)
        return hf_no_memory(f, err);
    enum status st = ST_OK;
    json_array_foreach(list, i, v) {
        factors[i] = (float)json_number_value(v);
        if (!json_is_number(v) || !(factors[i] > 0) || !isfinite(factors[i]))
            st = err_set(err, ST_BAD_INPUT,
                         "%s/config.json: %s: number %zu is not a valid factor", f->path, path,
                         i);
    }
    if (st == ST_OK)
        st = hf_add_vector(f, to, factors, n, err);
    mem_free(factors);
    return st;
}

/* Gemma 4's layers without a window turn the first pairs of a head and leave the others. GGUF
 * says so by a factor that makes the others' waves endless. */
static enum status add_proportional_factors(struct hf_folder *f, struct err *err) {
    double part, factor;
    uint32_t dim;
    TRY(hf_u32_at(f, "global_head_dim", 512, &dim, err));
    TRY(scaling_number(f, "partial_rotary_factor", 1, &part, err));
    TRY(scaling_number(f, "factor", 1, &factor, err));
    if (dim == 0 || dim > 65536 || dim % 2 != 0 || !(part >= 0 && part <= 1) || !(factor > 0))
        return err_set(err, ST_BAD_INPUT,
                       "%s/config.json: RoPE of %g of heads of %u dimensions, with a factor of "
                       "%g, makes no sense",
                       f->path, part, dim, factor);
    uint32_t n = dim / 2, n_turn = (uint32_t)(part * dim / 2);
    float *factors = mem_alloc(n * sizeof *factors);
    if (!factors)
        return hf_no_memory(f, err);
    for (uint32_t i = 0; i < n; i++)
        factors[i] = i < n_turn ? (float)factor : 1e30f;
    enum status st = hf_add_vector(f, "rope_freqs.weight", factors, n, err);
    mem_free(factors);
    return st;
}

enum status hf_add_rope_factors(struct hf_folder *f, struct err *err) {
    const char *object = scaling_object(f), *type = scaling_type(f, object);
    if (str_eq(f->arch->arch, "gemma4") &&
        (!object || str_eq(type, "proportional"))) /* transformers' default is the same */
        return add_proportional_factors(f, err);
    if (str_eq(type, "llama3")) {
        uint32_t dim, hidden;
        TRY(hf_u32_at(f, "hidden_size", 0, &hidden, err));
        TRY(hf_u32_at(f, "head_dim", f->n_heads ? hidden / f->n_heads : 0, &dim, err));
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
