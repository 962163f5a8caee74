/* arch_olmo2.c: OLMo 2 and OLMo 3: norms after the blocks only, and over whole rows of queries
 * and keys. OLMo 3 has three layers with a window, then one without; those with a window have
 * no YaRN. EXAONE 4 has the same norms, but one for each head. If it has windows, the layers
 * without one have no RoPE. */
#include "arch/hparams.h"

#define WINDOW_PERIOD 4

static enum status read_common(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->no_pre_norms = hp->post_norms = true;
    return hparams_read_window_period(hp, g, WINDOW_PERIOD, err);
}

static enum status read_olmo2(struct hparams *hp, const struct gguf *g, struct err *err) {
    TRY(read_common(hp, g, err));
    hp->qk_norm = QK_NORM_ROW;
    hparams_set_common(hp, hp->rope.base);
    return ST_OK;
}

static enum status read_exaone4(struct hparams *hp, const struct gguf *g, struct err *err) {
    TRY(read_common(hp, g, err));
    hp->qk_norm = QK_NORM_HEAD;
    if (hp->window != 0)
        hparams_no_rope(hp, hp->window_period);
    return ST_OK;
}

const struct arch arch_olmo2 = {.name = "olmo2", .read = read_olmo2};
const struct arch arch_exaone4 = {.name = "exaone4", .read = read_exaone4};
