/* arch_llama4.c: Llama 4 (Scout, Maverick): three layers with RoPE, which see only their chunk
 * of 8,192 positions, then one layer without RoPE, which sees all. Layers with RoPE norm
 * queries and keys without weights after it (not in Maverick). Layers without it scale queries
 * by their position. There is a shared expert. The input of the other experts is multiplied by
 * the sigmoid of the router's logit. */
#include "arch/hparams.h"

#define NOPE_PERIOD 4
#define CHUNK 8192
#define GROWTH 0.1f
#define MAVERICK_EXPERTS 128

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NORM;
    hp->moe.gating = GATING_SIGMOID;
    hp->moe.weighs_input = true;
    TRY(hparams_read_moe(hp, g, err));
    if (hp->moe.n_experts == 0) /* MobileLLM: RoPE everywhere, no norms */
        return ST_OK;
    hparams_no_rope(hp, NOPE_PERIOD);
    hp->chunk = CHUNK;
    hp->query_growth =
        (struct query_growth){.scale = GROWTH, .step = CHUNK, .first = 1, .nope_only = true};
    if (hp->moe.n_ff_shared == 0)
        hp->moe.n_ff_shared = hp->moe.n_ff;
    if (hp->moe.n_experts != MAVERICK_EXPERTS)
        hp->qk_norm = QK_NORM_PLAIN;
    return ST_OK;
}

const struct arch arch_llama4 = {.name = "llama4", .read = read};
