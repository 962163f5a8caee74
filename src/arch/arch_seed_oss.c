/* arch_seed_oss.c: Seed-OSS: biases on Q, K and V. The FFN's norm is called
 * post_attention_norm. */
#include "arch/hparams.h"

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    (void)err;
    hp->rope.mode = ROPE_NEOX;
    hparams_find_qkv_bias(hp, g);
    hp->o_bias = gguf_tensor(g, "blk.0.attn_output.bias") != NULL;
    hp->norm_after_attn = true;
    return ST_OK;
}

const struct arch arch_seed_oss = {.name = "seed_oss", .read = read};
