/* arch_ernie4_5.c: ERNIE 4.5: a llama. The form with experts has a few dense layers first, and
 * shared experts. Routing is a softmax plus a bias that counts for the selection only; weights
 * are divided by their sum. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NORM;
    hparams_find_biases(hp, g);
    hp->moe.normalize = true;
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_ernie4_5 = {.name = "ernie4_5", .read = read};
const struct arch arch_ernie4_5_moe = {.name = "ernie4_5-moe", .read = read};
