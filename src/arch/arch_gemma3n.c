/* arch_gemma3n.c: Gemma 3n: four residual streams, of which the layers compute one, and a
 * low-rank part beside attention. Each layer has an input of its own, and the first layers have
 * sparse gates. Four layers with a window are followed by one without. The last layers use the
 * keys and values of earlier ones. */
#include "arch/hparams.h"

#include <math.h>

#define WINDOW_PERIOD 5 /* as the reference has it, whatever sliding_window_pattern says */
#define N_OWN_KV 20     /* where shared_kv_layers is missing or 0 */
#define N_SPARSE 10
#define SOFTCAP 30.0f /* where the key is missing */
#define N_STREAMS 4   /* where the key is missing */
#define STREAMS_MAX 16
#define LAUREL_MAX 65536

static enum status read_kinds(struct hparams *hp, const struct gguf *g, struct err *err) {
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        struct attn_kind kind = hparams_common_attn(hp, false);
        if (hparams_layer_is(hp, l, LAYER_WINDOW))
            TRY(hparams_read_windowed(hp, g, &kind, err));
        TRY(hparams_set_attn(hp, g, l, &kind, err));
    }
    return hparams_check_shared_kv(hp, g, err);
}

static enum status read_shared(struct hparams *hp, const struct gguf *g, struct err *err) {
    const uint32_t usual = hp->n_layers > N_OWN_KV ? hp->n_layers - N_OWN_KV : 0;
    TRY(hparams_read_shared_kv(hp, g, usual, err));
    if (hp->n_shared_kv != 0)
        return ST_OK;
    hp->n_shared_kv = usual;
    return ST_OK;
}

static enum status read_streams(struct hparams *hp, const struct gguf *g, struct err *err) {
    uint32_t active;
    const struct gguf_tensor *laurel = gguf_tensor(g, "blk.0.laurel_l.weight");
    TRY(hparam_u32(hp, g, "altup.num_inputs", N_STREAMS, &hp->n_streams, err));
    TRY(hparam_u32(hp, g, "altup.active_idx", 0, &active, err));
    if (active != 0)
        return err_set(err, ST_UNSUPPORTED, "%s: gemma3n.altup.active_idx is %u, expected 0",
                       gguf_path(g), active);
    if (hp->n_streams < 2 || hp->n_streams > STREAMS_MAX)
        return err_set(err, ST_BAD_INPUT,
                       "%s: gemma3n.altup.num_inputs is %u, expected 2 to %d", gguf_path(g),
                       hp->n_streams, STREAMS_MAX);
    if (laurel == NULL || laurel->dims[1] > LAUREL_MAX)
        return err_set(err, ST_BAD_INPUT, "%s: blk.0.laurel_l.weight is missing or too large",
                       gguf_path(g));
    hp->n_laurel = (uint32_t)laurel->dims[1];
    return ST_OK;
}

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->qk_norm = QK_NORM_HEAD;
    hp->v_norm = true;
    hp->post_norms = true;
    hp->ffn_act = FFN_GEGLU;
    hp->embed_scale = sqrtf((float)hp->n_embd);
    hp->n_sparse = N_SPARSE;
    hp->sparse_deviations =
        1.6448533535003662f; /* beyond which 0.05 of a normal distribution lie */
    TRY(hparam_f32(hp, g, "attention.scale", 1.0f, &hp->attn_scale, err));
    TRY(hparams_read_softcap(hp, g, SOFTCAP, err));
    TRY(hparams_read_layer_input(hp, g, err));
    if (hp->n_layer_input == 0)
        return err_set(err, ST_BAD_INPUT,
                       "%s: the key gemma3n.embedding_length_per_layer_input is missing or 0",
                       gguf_path(g));
    TRY(hparam_need_u32(hp, g, "attention.sliding_window", 1, UINT32_MAX / 2, &hp->window,
                        err));
    for (uint32_t l = 0; l < hp->n_layers; l++)
        hp->layer_flags[l] |= l % WINDOW_PERIOD != WINDOW_PERIOD - 1 ? LAYER_WINDOW : 0;
    TRY(read_shared(hp, g, err));
    TRY(read_streams(hp, g, err));
    return read_kinds(hp, g, err);
}

const struct arch arch_gemma3n = {.name = "gemma3n", .read = read, .layered = true};
