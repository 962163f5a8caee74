/* arch_kimi_linear.c: Kimi Linear (arXiv 2510.26692): most layers are delta nets with a decay
 * for each key channel; the others have latent attention. There is no RoPE: positions come from
 * the recurrence alone. Experts are those of DeepSeek V3. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->moe.gating = GATING_SIGMOID;
    hp->moe.normalize = true;
    TRY(hparams_drop_nextn(hp, g, err));
    TRY(hparams_read_mla(hp, g, err));
    hparams_no_rope(hp, 1);
    TRY(hparams_read_kda(hp, g, err));
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_kimi_linear = {.name = "kimi-linear", .read = read, .hybrid = true};
