/* arch_lfm2.c: LFM2 (Liquid AI): gated short convolutions, and attention with head norms if a
 * layer's head_count_kv is not 0. The output norm is called token_embd_norm. lfm2moe: the first
 * layers are dense. The others route by sigmoids plus a bias that counts for the selection
 * only; the weights of the selected experts are normalized. */
#include "arch/hparams.h"

static enum status read_common(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->qk_norm = QK_NORM_HEAD;
    hp->output_norm = "token_embd_norm.weight";
    hp->recurrent.kind = RECURRENT_SHORT_CONV;
    return hparam_need_u32(hp, g, "shortconv.l_cache", 2, CONV_TAPS_MAX, &hp->recurrent.n_taps,
                           err);
}

static enum status read_lfm2(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->window_period = UINT32_MAX; /* every layer with attention has the window */
    TRY(hparam_u32(hp, g, "attention.sliding_window", 0, &hp->window, err));
    return read_common(hp, g, err);
}

static enum status read_lfm2moe(struct hparams *hp, const struct gguf *g, struct err *err) {
    TRY(read_common(hp, g, err));
    hp->moe.gating = GATING_SIGMOID;
    hp->moe.normalize = true;
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_lfm2 = {.name = "lfm2", .read = read_lfm2, .hybrid = true};
const struct arch arch_lfm2moe = {.name = "lfm2moe", .read = read_lfm2moe, .hybrid = true};
