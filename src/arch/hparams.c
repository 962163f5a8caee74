/* hparams.c: Reads a model's sizes and options from its keys, through the table of
 * architectures, and checks them. */
#include "arch/hparams.h"

#include "base/util.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const struct arch *const archs[] = {
    &arch_llama,         &arch_qwen2,       &arch_qwen2moe,    &arch_qwen3,
    &arch_qwen3moe,      &arch_deepseek2,   &arch_gpt_oss,     &arch_glm4moe,
    &arch_gemma3,        &arch_phi3,        &arch_minimax_m2,  &arch_granite,
    &arch_granitemoe,    &arch_qwen3next,   &arch_qwen35,      &arch_qwen35moe,
    &arch_lfm2,          &arch_lfm2moe,     &arch_nemotron_h,  &arch_nemotron_h_moe,
    &arch_granitehybrid, &arch_mistral3,    &arch_smollm3,     &arch_seed_oss,
    &arch_olmo2,         &arch_exaone4,     &arch_ernie4_5,    &arch_ernie4_5_moe,
    &arch_hunyuan_dense, &arch_hunyuan_moe, &arch_bailingmoe2, &arch_dots1,
    &arch_llama4,        &arch_gemma,       &arch_glm4,        &arch_deepseek32,
    &arch_glm_dsa,       &arch_kimi_linear, &arch_minimax_m3,  &arch_gemma4,
    &arch_step35,        &arch_gemma3n,     &arch_kimi_k3,     &arch_deepseek4,
    &arch_gemma2,        &arch_mimo2,       &arch_cohere2,     &arch_qwen2vl,
    &arch_qwen3vl,       &arch_qwen3vlmoe,
};

/* Far larger than any existing model, and so small that no product of two of them with a type
 * size overflows 64 bits. */
#define MAX_LAYERS HPARAMS_LAYERS_MAX
#define MAX_EMBD (1u << 20)
#define MAX_HEADS 65536
#define MAX_HEAD_DIM 8192
#define MAX_FF (1u << 24)
#define MAX_VOCAB (1u << 26)
#define MAX_CTX (1u << 30)
#define MAX_EXPERTS 65536
#define MAX_USED 256

static void key_name(const struct hparams *hp, const char *name, char *buf, size_t size) {
    snprintf(buf, size, "%s.%s", hp->arch->name, name);
}

static bool is_number_of_layers(const struct gguf *g, const char *key, struct gguf_array *a) {
    return gguf_array(g, key, a, NULL) == ST_OK && (a->type == GGUF_I32 || a->type == GGUF_U32);
}

static enum status check_n_layers(const struct hparams *hp, const struct gguf *g,
                                  const char *key, const struct gguf_array *a,
                                  struct err *err) {
    if (hp->n_layers != 0 && a->n >= hp->n_layers)
        return ST_OK;
    return err_set(err, ST_BAD_INPUT, "%s: %s has %zu numbers for %u layers", gguf_path(g), key,
                   a->n, hp->n_layers);
}

static enum status check_of_layer(const struct gguf *g, const char *key, uint32_t layer,
                                  int64_t v, struct err *err) {
    if (v >= 0 && v <= UINT32_MAX)
        return ST_OK;
    return err_set(err, ST_BAD_INPUT, "%s: %s is %lld for layer %u", gguf_path(g), key,
                   (long long)v, layer);
}

/* A number, or an array with one number for each layer, which must all be the same. Hybrid
 * families (Granite 4) have an array even if no layer differs. */
static enum status read_u32(const struct hparams *hp, const struct gguf *g, const char *key,
                            uint32_t *out, struct err *err) {
    struct gguf_array a;
    if (!is_number_of_layers(g, key, &a))
        return gguf_u32(g, key, out, err);
    TRY(check_n_layers(hp, g, key, &a, err));
    int64_t first = gguf_array_int(&a, 0);
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        int64_t v = gguf_array_int(&a, l);
        if (v != first)
            return err_set(err, ST_UNSUPPORTED,
                           "%s: %s is %lld for layer 0 and %lld for layer %u; layers that "
                           "differ are not supported",
                           gguf_path(g), key, (long long)first, (long long)v, l);
        TRY(check_of_layer(g, key, l, v, err));
    }
    *out = (uint32_t)first;
    return ST_OK;
}

enum status hparam_u32(const struct hparams *hp, const struct gguf *g, const char *name,
                       uint32_t fallback, uint32_t *out, struct err *err) {
    char key[128];
    key_name(hp, name, key, sizeof key);
    enum status st = read_u32(hp, g, key, out, err);
    if (st == ST_NOT_FOUND) {
        *out = fallback;
        return ST_OK;
    }
    return st;
}

enum status hparam_need_u32(const struct hparams *hp, const struct gguf *g, const char *name,
                            uint32_t min, uint32_t max, uint32_t *out, struct err *err) {
    char key[128];
    key_name(hp, name, key, sizeof key);
    uint32_t v;
    enum status st = read_u32(hp, g, key, &v, err);
    if (st == ST_NOT_FOUND)
        return err_set(err, ST_BAD_INPUT, "%s: the key %s is missing", gguf_path(g), key);
    if (st != ST_OK)
        return st;
    if (v < min || v > max)
        return err_set(err, ST_BAD_INPUT, "%s: %s is %u, expected %u to %u", gguf_path(g), key,
                       v, min, max);
    *out = v;
    return ST_OK;
}

enum status hparam_f32(const struct hparams *hp, const struct gguf *g, const char *name,
                       float fallback, float *out, struct err *err) {
    char key[128];
    key_name(hp, name, key, sizeof key);
    float v;
    enum status st = gguf_f32(g, key, &v, err);
    if (st == ST_NOT_FOUND) {
        *out = fallback;
        return ST_OK;
    }
    if (st != ST_OK)
        return st;
    if (!isfinite(v))
        return err_set(err, ST_BAD_INPUT, "%s: %s is not a finite number", gguf_path(g), key);
    *out = v;
    return ST_OK;
}

enum status hparam_tensor(const struct gguf *g, int layer, const char *name, uint64_t cols,
                          uint64_t rows, uint64_t n, const struct gguf_tensor **out,
                          struct err *err) {
    char full[96];
    if (layer >= 0)
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    else
        snprintf(full, sizeof full, "%s", name);
    const struct gguf_tensor *t = gguf_tensor(g, full);
    if (t == NULL)
        return err_set(err, ST_BAD_INPUT, "%s: the tensor %s is missing", gguf_path(g), full);
    if (t->dims[0] != cols || t->dims[1] != rows || t->dims[2] != n || t->dims[3] != 1)
        return err_set(err, ST_BAD_INPUT,
                       "%s: %s: expected %" PRIu64 " x %" PRIu64 " x %" PRIu64
                       ", the file has %" PRIu64 " x %" PRIu64 " x %" PRIu64,
                       gguf_path(g), full, cols, rows, n, t->dims[0], t->dims[1],
                       t->dims[2] * t->dims[3]);
    *out = t;
    return ST_OK;
}

static enum status read_arch(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct gguf_str s;
    enum status st = gguf_str(g, "general.architecture", &s, err);
    if (st == ST_NOT_FOUND)
        return err_set(err, ST_BAD_INPUT, "%s: the key general.architecture is missing",
                       gguf_path(g));
    if (st != ST_OK)
        return st;
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        if (s.len == strlen(archs[i]->name) && memcmp(s.ptr, archs[i]->name, s.len) == 0) {
            hp->arch = archs[i];
            return ST_OK;
        }
    }
    char text[64];
    gguf_value_text(g, "general.architecture", text, sizeof text);
    return err_set(err, ST_UNSUPPORTED,
                   "%s: the architecture %s is unknown (docs/models/README.md has those that "
                   "lockstep knows)",
                   gguf_path(g), text);
}

static enum status read_n_vocab(struct hparams *hp, const struct gguf *g, struct err *err) {
    const struct gguf_tensor *embd = gguf_tensor(g, "token_embd.weight");
    if (embd == NULL)
        return err_set(err, ST_BAD_INPUT, "%s: the tensor token_embd.weight is missing",
                       gguf_path(g));
    if (embd->dims[1] > MAX_VOCAB)
        return err_set(err, ST_BAD_INPUT, "%s: a vocabulary of %" PRIu64 " tokens is too large",
                       gguf_path(g), embd->dims[1]);
    hp->n_vocab = (uint32_t)embd->dims[1];
    struct gguf_array tokens;
    if (gguf_array(g, "tokenizer.ggml.tokens", &tokens, NULL) == ST_OK &&
        tokens.n > hp->n_vocab) /* rows beyond the tokens are padding */
        return err_set(err, ST_BAD_INPUT,
                       "%s: token_embd.weight has %u rows, but the tokenizer has %zu tokens",
                       gguf_path(g), hp->n_vocab, tokens.n);
    return ST_OK;
}

/* GGUF has no key for config.json's truncate; this is hf_config.c's. */
static enum status read_truncate(struct hparams *hp, const struct gguf *g, struct err *err) {
    char key[128];
    bool truncate = true;
    key_name(hp, "rope.scaling.lockstep.truncate", key, sizeof key);
    enum status st = gguf_bool(g, key, &truncate, err);
    hp->rope.yarn_between = !truncate;
    return st == ST_NOT_FOUND ? ST_OK : st;
}

static enum status read_rope(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct rope_params *r = &hp->rope;
    TRY(hparam_u32(hp, g, "rope.dimension_count", hp->head_dim, &r->n_rot, err));
    if (r->n_rot == 0 || r->n_rot % 2 != 0 || r->n_rot > hp->head_dim)
        return err_set(err, ST_BAD_INPUT,
                       "%s: %s.rope.dimension_count is %u, expected an even number up to the "
                       "head's %u",
                       gguf_path(g), hp->arch->name, r->n_rot, hp->head_dim);
    TRY(hparam_f32(hp, g, "rope.freq_base", 10000.0f, &r->base, err));
    if (!(r->base > 1.0f))
        return err_set(err, ST_BAD_INPUT, "%s: %s.rope.freq_base is %g, expected more than 1",
                       gguf_path(g), hp->arch->name, (double)r->base);

    char key[128];
    key_name(hp, "rope.scaling.type", key, sizeof key);
    struct gguf_str type = {"none", 4};
    enum status st = gguf_str(g, key, &type, err);
    if (st != ST_OK && st != ST_NOT_FOUND)
        return st;
    /* Files of 2023 have scale_linear and no type. */
    TRY(hparam_f32(hp, g, "rope.scale_linear", 1.0f, &r->factor, err));
    TRY(hparam_f32(hp, g, "rope.scaling.factor", r->factor, &r->factor, err));
    if (st == ST_NOT_FOUND && r->factor != 1.0f)
        type = (struct gguf_str){"linear", 6};
    if (type.len == 4 && memcmp(type.ptr, "none", 4) == 0) {
        r->scaling = ROPE_SCALING_NONE;
        r->factor = 1.0f;
    } else if (type.len == 6 && memcmp(type.ptr, "linear", 6) == 0) {
        r->scaling = ROPE_SCALING_LINEAR;
    } else if (type.len == 4 && memcmp(type.ptr, "yarn", 4) == 0) {
        r->scaling = ROPE_SCALING_YARN;
        r->yarn_scales = true;
    } else if (type.len == 8 && memcmp(type.ptr, "longrope", 8) == 0) {
        r->scaling =
            ROPE_SCALING_NONE; /* its factors are a tensor: the architecture's business */
        r->factor = 1.0f;
    } else {
        char text[64];
        gguf_value_text(g, key, text, sizeof text);
        return err_set(err, ST_UNSUPPORTED, "%s: RoPE scaling of type %s is not supported",
                       gguf_path(g), text);
    }
    if (!(r->factor > 0.0f))
        return err_set(err, ST_BAD_INPUT,
                       "%s: %s.rope.scaling.factor is %g, expected more than 0", gguf_path(g),
                       hp->arch->name, (double)r->factor);
    TRY(hparam_u32(hp, g, "rope.scaling.original_context_length", hp->n_ctx_train,
                   &r->n_ctx_orig, err));
    TRY(read_truncate(hp, g, err));
    TRY(hparam_f32(hp, g, "rope.scaling.attn_factor", 1.0f, &r->attn_factor, err));
    TRY(hparam_f32(hp, g, "rope.scaling.yarn_beta_fast", 32.0f, &r->beta_fast, err));
    TRY(hparam_f32(hp, g, "rope.scaling.yarn_beta_slow", 1.0f, &r->beta_slow, err));
    if (r->scaling == ROPE_SCALING_YARN &&
        (r->n_ctx_orig == 0 || !(r->beta_fast > 0.0f) || !(r->beta_slow > 0.0f)))
        return err_set(
            err, ST_BAD_INPUT,
            "%s: YaRN from a context of %u with %g to %g turns: expected more than 0",
            gguf_path(g), r->n_ctx_orig, (double)r->beta_slow, (double)r->beta_fast);
    return ST_OK;
}

enum status hparam_u32_of_layers(const struct hparams *hp, const struct gguf *g,
                                 const char *name, uint32_t *out, struct err *err) {
    struct gguf_array a;
    char key[128];
    uint32_t same;
    key_name(hp, name, key, sizeof key);
    if (!is_number_of_layers(g, key, &a)) {
        TRY(hparam_need_u32(hp, g, name, 0, UINT32_MAX, &same, err));
        for (uint32_t l = 0; l < hp->n_layers; l++)
            out[l] = same;
        return ST_OK;
    }
    TRY(check_n_layers(hp, g, key, &a, err));
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        int64_t v = gguf_array_int(&a, l);
        TRY(check_of_layer(g, key, l, v, err));
        out[l] = (uint32_t)v;
    }
    return ST_OK;
}

enum status hparam_bool_of_layers(const struct hparams *hp, const struct gguf *g,
                                  const char *name, bool *out, struct err *err) {
    struct gguf_array a;
    char key[128];
    key_name(hp, name, key, sizeof key);
    if (!gguf_has(g, key))
        return ST_NOT_FOUND;
    TRY(gguf_array(g, key, &a, err));
    if (a.type != GGUF_BOOL && a.type != GGUF_I32 && a.type != GGUF_U32)
        return err_set(err, ST_BAD_INPUT, "%s: %s has no truths", gguf_path(g), key);
    TRY(check_n_layers(hp, g, key, &a, err));
    for (uint32_t l = 0; l < hp->n_layers; l++)
        out[l] = gguf_array_int(&a, l) != 0;
    return ST_OK;
}

/* The number that all layers have which do not have 0. */
static enum status same_or_none(const struct hparams *hp, const struct gguf *g,
                                const char *name, const uint32_t *of_layers, uint32_t *out,
                                struct err *err) {
    *out = 0;
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        if (of_layers[l] == 0)
            continue;
        if (*out != 0 && of_layers[l] != *out)
            return err_set(
                err, ST_UNSUPPORTED,
                "%s: %s.%s is %u for layer %u and %u before: expected the same, or 0",
                gguf_path(g), hp->arch->name, name, of_layers[l], l, *out);
        *out = of_layers[l];
    }
    return ST_OK;
}

/* head_count_kv of an architecture with recurrent layers: those have none. */
static enum status read_hybrid_kv_heads(struct hparams *hp, const struct gguf *g,
                                        struct err *err) {
    static const char name[] = "attention.head_count_kv";
    uint32_t of_layers[HPARAMS_LAYERS_MAX];
    TRY(hparam_u32_of_layers(hp, g, name, of_layers, err));
    TRY(same_or_none(hp, g, name, of_layers, &hp->n_kv_heads, err));
    for (uint32_t l = 0; l < hp->n_layers; l++)
        hp->layer_flags[l] = of_layers[l] == 0 ? LAYER_RECURRENT : 0;
    if (hp->n_kv_heads == 0) /* nothing has attention; the numbers must make sense */
        hp->n_kv_heads = hp->n_heads;
    return ST_OK;
}

static enum status check_heads(const struct gguf *g, uint32_t n_heads, uint32_t n_kv_heads,
                               struct err *err) {
    if (n_heads != 0 && n_heads <= MAX_HEADS && n_kv_heads != 0 && n_heads % n_kv_heads == 0)
        return ST_OK;
    return err_set(err, ST_BAD_INPUT,
                   "%s: %u query heads cannot share %u key-value heads equally", gguf_path(g),
                   n_heads, n_kv_heads);
}

/* The first layer's value, for an architecture whose layers may differ. */
static enum status read_layered_heads(struct hparams *hp, const struct gguf *g,
                                      struct err *err) {
    uint32_t of_layers[HPARAMS_LAYERS_MAX];
    TRY(hparam_u32_of_layers(hp, g, "attention.head_count", of_layers, err));
    hp->n_heads = of_layers[0];
    TRY(hparam_u32_of_layers(hp, g, "attention.head_count_kv", of_layers, err));
    hp->n_kv_heads = of_layers[0];
    return ST_OK;
}

static enum status read_heads(struct hparams *hp, const struct gguf *g, struct err *err) {
    if (hp->arch->layered)
        return read_layered_heads(hp, g, err);
    TRY(hparam_need_u32(hp, g, "attention.head_count", 1, MAX_HEADS, &hp->n_heads, err));
    if (hp->arch->hybrid)
        return read_hybrid_kv_heads(hp, g, err);
    return hparam_u32(hp, g, "attention.head_count_kv", hp->n_heads, &hp->n_kv_heads, err);
}

static enum status read_attention(struct hparams *hp, const struct gguf *g, struct err *err) {
    TRY(read_heads(hp, g, err));
    TRY(check_heads(g, hp->n_heads, hp->n_kv_heads, err));
    TRY(hparam_u32(hp, g, "attention.key_length", hp->n_embd / hp->n_heads, &hp->head_dim,
                   err));
    TRY(hparam_u32(hp, g, "attention.value_length", hp->head_dim, &hp->v_dim, err));
    if (hp->head_dim == 0 || hp->head_dim > MAX_HEAD_DIM || hp->v_dim == 0 ||
        hp->v_dim > MAX_HEAD_DIM)
        return err_set(err, ST_BAD_INPUT, "%s: heads of %u and %u dimensions: expected 1 to %d",
                       gguf_path(g), hp->head_dim, hp->v_dim, MAX_HEAD_DIM);
    return hparam_f32(hp, g, "attention.scale", 1.0f / sqrtf((float)hp->head_dim),
                      &hp->attn_scale, err);
}

static bool same_attn(const struct attn_kind *a, const struct attn_kind *b) {
    return a->n_heads == b->n_heads && a->n_kv_heads == b->n_kv_heads &&
           a->head_dim == b->head_dim && a->v_dim == b->v_dim && a->window == b->window &&
           a->rope.n_rot == b->rope.n_rot && a->rope.base == b->rope.base &&
           a->rope.scaling == b->rope.scaling && a->rope_factors == b->rope_factors &&
           a->v_is_k == b->v_is_k;
}

enum status hparams_set_attn(struct hparams *hp, const struct gguf *g, uint32_t layer,
                             const struct attn_kind *kind, struct err *err) {
    TRY(check_heads(g, kind->n_heads, kind->n_kv_heads, err));
    if (kind->head_dim == 0 || kind->head_dim > MAX_HEAD_DIM || kind->v_dim == 0 ||
        kind->v_dim > MAX_HEAD_DIM || kind->rope.n_rot == 0 || kind->rope.n_rot % 2 != 0 ||
        kind->rope.n_rot > kind->head_dim || !(kind->rope.base > 1.0f))
        return err_set(err, ST_BAD_INPUT,
                       "%s: layer %u has heads of %u and %u dimensions, of which %u turn with "
                       "base %g, which makes no sense",
                       gguf_path(g), layer, kind->head_dim, kind->v_dim, kind->rope.n_rot,
                       (double)kind->rope.base);
    uint32_t i = 0;
    while (i < hp->n_attn && !same_attn(&hp->attn[i], kind))
        i++;
    if (i == ATTN_KINDS_MAX)
        return err_set(err, ST_UNSUPPORTED,
                       "%s: the attention of its layers is of more than %d kinds", gguf_path(g),
                       ATTN_KINDS_MAX);
    hp->attn[i] = *kind;
    hp->n_attn = MAX(hp->n_attn, i + 1);
    hp->layer_attn[layer] = (uint8_t)i;
    return ST_OK;
}

void hparams_set_context(struct hparams *hp, uint32_t n_ctx) {
    if (hp->rope_factors_long != NULL && n_ctx > hp->rope.n_ctx_orig)
        hp->rope_factors = hp->rope_factors_long;
}

struct attn_kind hparams_common_attn(const struct hparams *hp, bool windowed) {
    return (struct attn_kind){.n_heads = hp->n_heads,
                              .n_kv_heads = hp->n_kv_heads,
                              .head_dim = hp->head_dim,
                              .v_dim = hp->v_dim,
                              .window = windowed ? hp->window : 0,
                              .rope = hp->rope,
                              .rope_factors = hp->rope_factors != NULL};
}

void hparams_set_common(struct hparams *hp, float base) {
    hp->n_attn = hp->window != 0 ? 2 : 1;
    for (uint32_t i = 0; i < hp->n_attn; i++)
        hp->attn[i] = hparams_common_attn(hp, i == 1);
    if (hp->window != 0 && base != 0) {
        hp->attn[1].rope = (struct rope_params){.mode = hp->rope.mode,
                                                .n_rot = hp->rope.n_rot,
                                                .base = base,
                                                .factor = 1.0f,
                                                .attn_factor = 1.0f};
        hp->attn[1].rope_factors = false;
    }
    for (uint32_t l = 0; l < hp->n_layers && hp->window != 0; l++)
        hp->layer_attn[l] = l % hp->window_period != hp->window_period - 1;
    hp->n_ff_widths = 1;
    hp->ff_widths[0] = hp->n_ff;
}

enum status hparam_limits(const struct hparams *hp, const struct gguf *g, const char *name,
                          float *out, struct err *err) {
    struct gguf_array a;
    char key[128];
    float same = 0;
    key_name(hp, name, key, sizeof key);
    const bool array = gguf_array(g, key, &a, NULL) == ST_OK && a.type == GGUF_F32;
    if (array)
        TRY(check_n_layers(hp, g, key, &a, err));
    else
        TRY(hparam_f32(hp, g, name, 0, &same, err));
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        out[l] = array ? (float)gguf_array_float(&a, l) : same;
        if (!(out[l] >= 0.0f) || isinf(out[l]))
            return err_set(err, ST_BAD_INPUT, "%s: %s is %g for layer %u, expected 0 or more",
                           gguf_path(g), key, (double)out[l], l);
    }
    return ST_OK;
}

uint32_t hparams_kv_layer(const struct hparams *hp, uint32_t layer) {
    const uint32_t n_own = hp->n_layers - hp->n_shared_kv;
    if (layer < n_own)
        return layer;
    for (uint32_t l = n_own; l-- > 0;)
        if (hparams_layer_is(hp, l, LAYER_WINDOW) == hparams_layer_is(hp, layer, LAYER_WINDOW))
            return l;
    return layer;
}

enum status hparams_read_shared_kv(struct hparams *hp, const struct gguf *g, uint32_t fallback,
                                   struct err *err) {
    TRY(hparam_u32(hp, g, "attention.shared_kv_layers", fallback, &hp->n_shared_kv, err));
    if (hp->n_shared_kv >= hp->n_layers)
        return err_set(err, ST_BAD_INPUT,
                       "%s: %u of %u layers use the keys and values of others", gguf_path(g),
                       hp->n_shared_kv, hp->n_layers);
    for (uint32_t l = hp->n_layers - hp->n_shared_kv; l < hp->n_layers; l++)
        if (hparams_kv_layer(hp, l) == l)
            return err_set(err, ST_BAD_INPUT,
                           "%s: layer %u has no keys and values, and no earlier layer of its "
                           "kind has them",
                           gguf_path(g), l);
    return ST_OK;
}

enum status hparams_check_shared_kv(const struct hparams *hp, const struct gguf *g,
                                    struct err *err) {
    for (uint32_t l = hp->n_layers - hp->n_shared_kv; l < hp->n_layers; l++)
        if (hp->layer_attn[l] != hp->layer_attn[hparams_kv_layer(hp, l)])
            return err_set(err, ST_UNSUPPORTED,
                           "%s: layer %u uses the keys and values of layer %u, whose heads are "
                           "others",
                           gguf_path(g), l, hparams_kv_layer(hp, l));
    return ST_OK;
}

enum status hparams_read_softcap(struct hparams *hp, const struct gguf *g, float fallback,
                                 struct err *err) {
    TRY(hparam_f32(hp, g, "final_logit_softcapping", fallback, &hp->logit_softcap, err));
    if (hp->logit_softcap >= 0.0f)
        return ST_OK;
    return err_set(err, ST_BAD_INPUT, "%s: %s.final_logit_softcapping is negative",
                   gguf_path(g), hp->arch->name);
}

#define MAX_LAYER_INPUT 65536

enum status hparams_read_layer_input(struct hparams *hp, const struct gguf *g,
                                     struct err *err) {
    TRY(hparam_u32(hp, g, "embedding_length_per_layer_input", 0, &hp->n_layer_input, err));
    if (hp->n_layer_input <= MAX_LAYER_INPUT)
        return ST_OK;
    return err_set(err, ST_BAD_INPUT,
                   "%s: %s.embedding_length_per_layer_input is %u, expected at most %d",
                   gguf_path(g), hp->arch->name, hp->n_layer_input, MAX_LAYER_INPUT);
}

uint32_t hparams_first_joined(const struct hparams *hp) {
    uint32_t first = hp->n_layers;
    for (uint32_t l = hp->n_layers - hp->n_shared_kv; l < hp->n_layers; l++)
        first = MIN(first, hparams_kv_layer(hp, l));
    return first;
}

/* Not every layer has attention, or a dense FFN. */
const struct gguf_tensor *hparams_layer_tensor(const struct gguf *g, uint32_t layer,
                                               const char *name) {
    char full[96];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    return gguf_tensor(g, full);
}

static bool a_layer_has(const struct hparams *hp, const struct gguf *g, const char *name) {
    for (uint32_t l = 0; l < hp->n_layers; l++)
        if (hparams_layer_tensor(g, l, name) != NULL)
            return true;
    return false;
}

void hparams_find_qkv_bias(struct hparams *hp, const struct gguf *g) {
    hp->qkv_bias = a_layer_has(hp, g, "attn_q.bias") || a_layer_has(hp, g, "attn_qkv.bias");
}

void hparams_find_biases(struct hparams *hp, const struct gguf *g) {
    hparams_find_qkv_bias(hp, g);
    hp->o_bias = a_layer_has(hp, g, "attn_output.bias");
    hp->ffn_bias = a_layer_has(hp, g, "ffn_gate.bias") || a_layer_has(hp, g, "ffn_up.bias") ||
                   a_layer_has(hp, g, "ffn_down.bias");
}

static enum status read_gating(struct hparams *hp, const struct gguf *g, struct err *err) {
    uint32_t func;
    TRY(hparam_u32(hp, g, "expert_gating_func", 0, &func, err));
    if (func > 4)
        return err_set(err, ST_UNSUPPORTED, "%s: %s.expert_gating_func %u is unknown",
                       gguf_path(g), hp->arch->name, func);
    static const enum gating by_number[] = {GATING_SOFTMAX, GATING_SOFTMAX, GATING_SIGMOID,
                                            GATING_SOFTMAX_CHOSEN, GATING_SQRT_SOFTPLUS};
    if (func != 0)
        hp->moe.gating = by_number[func];
    return ST_OK;
}

void hparams_no_rope(struct hparams *hp, uint32_t period) {
    for (uint32_t l = period - 1; l < hp->n_layers; l += period)
        hp->layer_flags[l] |= LAYER_NO_ROPE;
}

enum status hparams_drop_nextn(struct hparams *hp, const struct gguf *g, struct err *err) {
    uint32_t n_next;
    TRY(hparam_u32(hp, g, "nextn_predict_layers", 0, &n_next, err));
    if (n_next >= hp->n_layers)
        return err_set(err, ST_BAD_INPUT, "%s: %u of %u layers predict further tokens",
                       gguf_path(g), n_next, hp->n_layers);
    hp->n_layers -= n_next;
    return ST_OK;
}

static const struct gguf_tensor *first_moe_tensor(const struct hparams *hp,
                                                  const struct gguf *g, const char *name) {
    return hparams_layer_tensor(g, hparams_first_moe_layer(hp), name);
}

enum status hparams_read_moe(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct moe_params *m = &hp->moe;
    uint32_t n_shared;
    TRY(hparam_u32(hp, g, "expert_count", 0, &m->n_experts, err));
    if (m->n_experts == 0)
        return ST_OK;
    if (m->n_experts > MAX_EXPERTS)
        return err_set(err, ST_BAD_INPUT, "%s: %s.expert_count is %u, expected at most %d",
                       gguf_path(g), hp->arch->name, m->n_experts, MAX_EXPERTS);
    TRY(hparam_need_u32(hp, g, "expert_used_count", 1, MIN(m->n_experts, (uint32_t)MAX_USED),
                        &m->n_used, err));
    TRY(hparam_u32(hp, g, "expert_feed_forward_length", hp->n_ff, &m->n_ff, err));
    TRY(hparam_u32(hp, g, "leading_dense_block_count", 0, &m->n_dense, err));
    TRY(hparam_u32(hp, g, "interleave_moe_layer_step", 0, &m->period, err));
    TRY(hparam_u32(hp, g, "expert_shared_count", 0, &n_shared, err));
    TRY(hparam_u32(hp, g, "expert_shared_feed_forward_length", 0, &m->n_ff_shared, err));
    if (m->n_ff == 0 || m->n_ff > MAX_FF || n_shared > 1024 || m->n_ff_shared > MAX_FF)
        return err_set(err, ST_BAD_INPUT,
                       "%s: the experts' widths (%u, %u shared) make no sense", gguf_path(g),
                       m->n_ff, n_shared);
    if (m->n_ff_shared == 0)
        m->n_ff_shared = n_shared * m->n_ff;
    const struct gguf_tensor *shared = first_moe_tensor(hp, g, "ffn_up_shexp.weight");
    if (m->n_ff_shared == 0 && shared != NULL && shared->dims[1] <= MAX_FF)
        m->n_ff_shared = (uint32_t)shared->dims[1]; /* no key says it */
    TRY(hparam_u32(hp, g, "expert_group_count", 1, &m->n_groups, err));
    TRY(hparam_u32(hp, g, "expert_group_used_count", 1, &m->n_groups_used, err));
    if (m->n_groups == 0)
        m->n_groups = m->n_groups_used = 1;
    if (m->n_experts % m->n_groups != 0 || m->n_groups_used == 0 ||
        m->n_groups_used > m->n_groups ||
        m->n_used > m->n_groups_used * (m->n_experts / m->n_groups))
        return err_set(err, ST_BAD_INPUT,
                       "%s: %u experts in %u groups of which %u are used cannot give %u",
                       gguf_path(g), m->n_experts, m->n_groups, m->n_groups_used, m->n_used);
    TRY(hparam_f32(hp, g, "expert_weights_scale", 1.0f, &m->scale, err));
    if (m->scale == 0.0f)
        m->scale = 1.0f;
    char key[128];
    key_name(hp, "expert_weights_norm", key, sizeof key);
    enum status st = gguf_bool(g, key, &m->normalize, err);
    if (st != ST_OK && st != ST_NOT_FOUND)
        return st;
    m->bias = first_moe_tensor(hp, g, "exp_probs_b.bias") != NULL;
    return read_gating(hp, g, err);
}

enum status hparams_read_latent_experts(struct hparams *hp, const struct gguf *g,
                                        const char *key, const char *tensors, struct err *err) {
    hp->moe.latent_name = tensors;
    TRY(hparam_u32(hp, g, key, 0, &hp->moe.n_latent, err));
    if (hp->moe.n_latent <= MAX_EMBD && (hp->moe.n_latent == 0 || hp->moe.n_experts != 0))
        return ST_OK;
    return err_set(err, ST_BAD_INPUT, "%s: %s.%s is %u for %u experts, expected at most %u",
                   gguf_path(g), hp->arch->name, key, hp->moe.n_latent, hp->moe.n_experts,
                   MAX_EMBD);
}

#define MAX_INDEX_HEADS 1024
#define MAX_INDEX_DIM 1024

enum status hparams_read_indexer(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct indexer_params *p = &hp->indexer;
    TRY(hparam_need_u32(hp, g, "attention.indexer.head_count", 1, MAX_INDEX_HEADS, &p->n_heads,
                        err));
    TRY(hparam_need_u32(hp, g, "attention.indexer.key_length", 2, MAX_INDEX_DIM, &p->k_dim,
                        err));
    TRY(hparam_need_u32(hp, g, "attention.indexer.top_k", 1, HPARAMS_CHOSEN_MAX, &p->top_k,
                        err));
    if (p->k_dim >= hp->rope.n_rot)
        return ST_OK;
    return err_set(err, ST_BAD_INPUT,
                   "%s: an indexer's keys have %u dimensions, of which %u cannot turn",
                   gguf_path(g), p->k_dim, hp->rope.n_rot);
}

#define MAX_STATE 4096

enum status hparams_read_ssm(struct hparams *hp, const struct gguf *g, enum recurrent_kind kind,
                             struct err *err) {
    struct recurrent_params *r = &hp->recurrent;
    uint32_t inner;
    r->kind = kind;
    TRY(hparam_need_u32(hp, g, "ssm.conv_kernel", 2, CONV_TAPS_MAX, &r->n_taps, err));
    TRY(hparam_need_u32(hp, g, "ssm.state_size", 1, MAX_STATE, &r->k_dim, err));
    TRY(hparam_need_u32(hp, g, "ssm.group_count", 1, MAX_HEADS, &r->n_groups, err));
    TRY(hparam_need_u32(hp, g, "ssm.time_step_rank", 1, MAX_HEADS, &r->n_heads, err));
    TRY(hparam_need_u32(hp, g, "ssm.inner_size", 1, MAX_FF, &inner, err));
    r->v_dim = inner / r->n_heads;
    if (inner % r->n_heads != 0 || r->n_heads % r->n_groups != 0 || r->v_dim > MAX_STATE ||
        (uint64_t)r->n_groups * r->k_dim > MAX_FF || r->n_groups > hp->n_embd)
        return err_set(
            err, ST_BAD_INPUT,
            "%s: a recurrent layer of %u dimensions, %u heads and %u groups makes no "
            "sense",
            gguf_path(g), inner, r->n_heads, r->n_groups);
    if (r->tiled && r->n_groups > 1 && r->n_heads / r->n_groups > RECURRENT_PIECES_MAX)
        return err_set(err, ST_UNSUPPORTED,
                       "%s: %u value heads for each of %u key heads: expected at most %d",
                       gguf_path(g), r->n_heads / r->n_groups, r->n_groups,
                       RECURRENT_PIECES_MAX);
    return ST_OK;
}

enum status hparams_read_kda(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct recurrent_params *r = &hp->recurrent;
    r->kind = RECURRENT_DELTA;
    r->by_channel = true;
    r->n_heads = r->n_groups = hp->n_heads;
    TRY(hparam_need_u32(hp, g, "ssm.conv_kernel", 2, CONV_TAPS_MAX, &r->n_taps, err));
    TRY(hparam_need_u32(hp, g, "kda.head_dim", 1, MAX_STATE, &r->k_dim, err));
    r->v_dim = r->k_dim;
    if ((uint64_t)r->n_heads * r->k_dim <= MAX_FF)
        return ST_OK;
    return err_set(err, ST_BAD_INPUT, "%s: %u recurrent heads of %u dimensions make no sense",
                   gguf_path(g), r->n_heads, r->k_dim);
}

/* Where layers may differ. */
static enum status read_ff_widths(struct hparams *hp, const struct gguf *g, const char *name,
                                  struct err *err) {
    uint32_t of_layers[HPARAMS_LAYERS_MAX];
    TRY(hparam_u32_of_layers(hp, g, name, of_layers, err));
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        uint32_t i = 0;
        if (of_layers[l] == 0 || of_layers[l] > MAX_FF)
            return err_set(err, ST_BAD_INPUT, "%s: %s.%s is %u for layer %u, expected 1 to %d",
                           gguf_path(g), hp->arch->name, name, of_layers[l], l, MAX_FF);
        while (i < hp->n_ff_widths && hp->ff_widths[i] != of_layers[l])
            i++;
        if (i == FF_WIDTHS_MAX)
            return err_set(err, ST_UNSUPPORTED, "%s: %s.%s has more than %d different numbers",
                           gguf_path(g), hp->arch->name, name, FF_WIDTHS_MAX);
        hp->ff_widths[i] = of_layers[l];
        hp->n_ff_widths = MAX(hp->n_ff_widths, i + 1);
        hp->layer_ff[l] = (uint8_t)i;
        hp->n_ff = MAX(hp->n_ff, of_layers[l]);
    }
    return ST_OK;
}

/* Where all layers have experts there may be no feed_forward_length; layers that have 0 of it have
 * no FFN. */
static enum status read_n_ff(struct hparams *hp, const struct gguf *g, struct err *err) {
    static const char name[] = "feed_forward_length";
    uint32_t of_experts, of_layers[HPARAMS_LAYERS_MAX];
    char key[128];
    key_name(hp, name, key, sizeof key);
    TRY(hparam_u32(hp, g, "expert_feed_forward_length", 0, &of_experts, err));
    if (!gguf_has(g, key) && of_experts != 0 && of_experts <= MAX_FF) {
        hp->n_ff = of_experts;
        return ST_OK;
    }
    if (hp->arch->layered)
        return read_ff_widths(hp, g, name, err);
    if (!hp->arch->hybrid)
        return hparam_need_u32(hp, g, name, 1, MAX_FF, &hp->n_ff, err);
    TRY(hparam_u32_of_layers(hp, g, name, of_layers, err));
    TRY(same_or_none(hp, g, name, of_layers, &hp->n_ff, err));
    if (hp->n_ff == 0 || hp->n_ff > MAX_FF)
        return err_set(err, ST_BAD_INPUT, "%s: %s is %u, expected 1 to %d", gguf_path(g), key,
                       hp->n_ff, MAX_FF);
    return ST_OK;
}

enum status hparams_read(struct hparams *out, const struct gguf *g, struct err *err) {
    struct hparams hp = {0};
    TRY(read_arch(&hp, g, err));
    TRY(hparam_need_u32(&hp, g, "block_count", 1, MAX_LAYERS, &hp.n_layers, err));
    TRY(hparam_need_u32(&hp, g, "embedding_length", 1, MAX_EMBD, &hp.n_embd, err));
    TRY(read_n_ff(&hp, g, err));
    TRY(hparam_need_u32(&hp, g, "context_length", 1, MAX_CTX, &hp.n_ctx_train, err));
    const char *eps = hp.arch->layer_norm ? "attention.layer_norm_epsilon"
                                          : "attention.layer_norm_rms_epsilon";
    TRY(hparam_f32(&hp, g, eps, NAN, &hp.rms_eps, err));
    if (hp.rms_eps < 0x1p-100f && hp.rms_eps > 0.0f)
        hp.rms_eps = 0.0f; /* as kernels.h wants it */
    if (!(hp.rms_eps >= 0.0f) || hp.rms_eps > 1.0f)
        return err_set(err, ST_BAD_INPUT, "%s: %s.%s is missing or not in 0 to 1", gguf_path(g),
                       hp.arch->name, eps);
    TRY(read_n_vocab(&hp, g, err));
    TRY(read_attention(&hp, g, err));
    TRY(read_rope(&hp, g, err));
    hp.tied = gguf_tensor(g, "output.weight") == NULL;
    hp.embed_scale = hp.residual_scale = hp.logit_scale = hp.value_scale = 1.0f;
    hp.rope_factors = gguf_tensor(g, "rope_freqs.weight") != NULL ? "rope_freqs.weight" : NULL;
    TRY(hp.arch->read(&hp, g, err));
    if (hp.n_attn == 0)
        hparams_set_common(&hp, 0);
    *out = hp;
    return ST_OK;
}
