/* arch_qwen.c: Qwen2, Qwen2.5 and Qwen3, and their forms with experts. Qwen2 has biases on Q, K
 * and V. Qwen3 has none, but an RMSNorm of each query and key head before RoPE, and heads whose
 * size is not n_embd / n_heads. RoPE pairs are (i, i + n/2). Routing is a softmax over all
 * experts. Qwen3 normalizes the weights of the selected experts. Qwen1.5 and Qwen2 do not, and
 * have a shared expert for each token, times the sigmoid of a product of its own. */
#include "arch/hparams.h"
#include "base/util.h"

static enum status read_qwen2(struct hparams *hp, const struct gguf *g, struct err *err) {
    (void)g;
    (void)err;
    hp->rope.mode = ROPE_NEOX;
    hp->qkv_bias = true;
    return ST_OK;
}

static enum status read_qwen2moe(struct hparams *hp, const struct gguf *g, struct err *err) {
    TRY(read_qwen2(hp, g, err));
    TRY(hparams_read_moe(hp, g, err));
    if (hp->moe.n_experts == 0)
        return err_set(err, ST_BAD_INPUT, "%s: the key qwen2moe.expert_count is missing",
                       gguf_path(g));
    /* The first files have neither key: the experts that a token uses have the FFN's width
     * together. */
    if (!gguf_has(g, "qwen2moe.expert_feed_forward_length"))
        hp->moe.n_ff = MAX(hp->n_ff / hp->moe.n_used, 1u);
    if (hp->moe.n_ff_shared == 0)
        hp->moe.n_ff_shared = hp->n_ff;
    hp->moe.shared_router = true;
    return ST_OK;
}

static enum status read_qwen3(struct hparams *hp, const struct gguf *g, struct err *err) {
    (void)g;
    (void)err;
    hp->rope.mode = ROPE_NEOX;
    hp->qk_norm = QK_NORM_HEAD;
    return ST_OK;
}

static enum status read_qwen3moe(struct hparams *hp, const struct gguf *g, struct err *err) {
    TRY(read_qwen3(hp, g, err));
    hp->moe.normalize = true;
    return hparams_read_moe(hp, g, err);
}

const struct arch arch_qwen2 = {.name = "qwen2", .read = read_qwen2};
const struct arch arch_qwen2moe = {.name = "qwen2moe", .read = read_qwen2moe};
const struct arch arch_qwen3 = {.name = "qwen3", .read = read_qwen3};
const struct arch arch_qwen3moe = {.name = "qwen3moe", .read = read_qwen3moe};
/* The language models of those that see: of a text all positions of multimodal RoPE are one. */
const struct arch arch_qwen2vl = {.name = "qwen2vl", .read = read_qwen2};
const struct arch arch_qwen3vl = {.name = "qwen3vl", .read = read_qwen3};
const struct arch arch_qwen3vlmoe = {.name = "qwen3vlmoe", .read = read_qwen3moe};
