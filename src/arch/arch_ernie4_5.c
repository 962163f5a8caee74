/* ERNIE 4.5: a llama; with experts: shared ones beside them, softmax gating with a bias that only
 * chooses, weights divided by their sum, and a few dense layers first. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NORM;
    hparams_find_biases(hp, g);
    hp->moe.normalize = true;
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_ernie4_5 = {.name = "ernie4_5", .read = read};
const struct arch arch_ernie4_5_moe = {.name = "ernie4_5-moe", .read = read};
