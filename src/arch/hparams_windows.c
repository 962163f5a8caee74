/* hparams_windows.c: Which layers have a window, and what their attention is like. */
#include "arch/hparams.h"
#include "base/util.h"

#define WINDOW_MAX (1u << 30)
#define BASE_WINDOWED 10000.0f /* of RoPE, where the key is missing */

static const char pattern[] = "attention.sliding_window_pattern";

enum status hparams_read_windows(struct hparams *hp, const struct gguf *g, struct err *err) {
    bool has[HPARAMS_LAYERS_MAX];
    TRY(hparam_need_u32(hp, g, "attention.sliding_window", 1, WINDOW_MAX, &hp->window, err));
    enum status st = hparam_bool_of_layers(hp, g, pattern, has, err);
    if (st == ST_NOT_FOUND)
        return err_set(err, ST_BAD_INPUT, "%s: the key %s.%s is missing", gguf_path(g),
                       hp->arch->name, pattern);
    TRY(st);
    for (uint32_t l = 0; l < hp->n_layers; l++)
        if (has[l])
            hp->layer_flags[l] |= LAYER_WINDOW;
    return ST_OK;
}

enum status hparams_read_window_period(struct hparams *hp, const struct gguf *g, uint32_t usual,
                                       struct err *err) {
    struct err other = {0}; /* an array says it of each layer: the usual period */
    hp->window_period = usual;
    if (hparam_u32(hp, g, pattern, usual, &hp->window_period, &other) != ST_OK ||
        hp->window_period == 0)
        hp->window_period = usual;
    return hparam_u32(hp, g, "attention.sliding_window", 0, &hp->window, err);
}

enum status hparams_read_windowed(const struct hparams *hp, const struct gguf *g,
                                  struct attn_kind *kind, struct err *err) {
    struct rope_params rope = {.mode = hp->rope.mode, .factor = 1.0f, .attn_factor = 1.0f};
    TRY(hparam_u32(hp, g, "attention.key_length_swa", hp->head_dim, &kind->head_dim, err));
    TRY(hparam_u32(hp, g, "attention.value_length_swa", hp->v_dim, &kind->v_dim, err));
    TRY(hparam_u32(hp, g, "rope.dimension_count_swa", MIN(hp->rope.n_rot, kind->head_dim),
                   &rope.n_rot, err));
    TRY(hparam_f32(hp, g, "rope.freq_base_swa", BASE_WINDOWED, &rope.base, err));
    kind->window = hp->window;
    kind->rope = rope;
    kind->rope_factors = false;
    return ST_OK;
}

enum status hparams_read_layer_heads(const struct hparams *hp, const struct gguf *g,
                                     struct layer_heads *out, struct err *err) {
    TRY(hparam_u32_of_layers(hp, g, "attention.head_count", out->n, err));
    return hparam_u32_of_layers(hp, g, "attention.head_count_kv", out->n_kv, err);
}

enum status hparams_layer_kind(const struct hparams *hp, const struct gguf *g,
                               const struct layer_heads *heads, uint32_t layer,
                               struct attn_kind *kind, struct err *err) {
    *kind = hparams_common_attn(hp, false);
    if (hparams_layer_is(hp, layer, LAYER_WINDOW))
        TRY(hparams_read_windowed(hp, g, kind, err));
    kind->n_heads = heads->n[layer];
    kind->n_kv_heads = heads->n_kv[layer];
    return ST_OK;
}
