/* arch_qwen3next.c: Qwen3-Next, Qwen3.5 and Qwen3.6. Of four layers three are gated delta nets.
 * The fourth is attention with gated results, head norms and RoPE on the first part of a head.
 * The norm before the FFN is called post_attention_norm. Routing is a softmax; the weights of
 * the selected experts are normalized. A shared expert has a sigmoid of its own.
 *
 * The two families order heads differently: a value head h of Qwen3-Next reads key head h /
 * (n_v / n_k), one of Qwen3.5 h % n_k. Trailing layers for multi-token prediction are not
 * loaded and do not count in the period. */
#include "arch/hparams.h"

static enum status read_layers(struct hparams *hp, const struct gguf *g, struct err *err) {
    uint32_t interval;
    TRY(hparams_drop_nextn(hp, g, err));
    TRY(hparam_u32(hp, g, "full_attention_interval", 4, &interval, err));
    if (interval == 0)
        return err_set(err, ST_BAD_INPUT, "%s: %s.full_attention_interval is 0", gguf_path(g),
                       hp->arch->name);
    bool recurrent[HPARAMS_LAYERS_MAX];
    enum status st = hparam_bool_of_layers(hp, g, "attention.recurrent_layers", recurrent, err);
    if (st != ST_OK && st != ST_NOT_FOUND)
        return st;
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        if (st == ST_NOT_FOUND)
            recurrent[l] = (l + 1) % interval != 0;
        hp->layer_flags[l] = recurrent[l] ? LAYER_RECURRENT : 0;
    }
    return hparams_read_ssm(hp, g, RECURRENT_DELTA, err);
}

static enum status read_qwen35(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->qk_norm = QK_NORM_HEAD;
    hp->norm_after_attn = true;
    hp->attn_gate = ATTN_GATE_IN_Q;
    hp->recurrent.tiled = true;
    TRY(read_layers(hp, g, err));
    hp->moe.normalize = true;
    TRY(hparams_read_moe(hp, g, err));
    hp->moe.shared_router = hp->moe.n_experts != 0 && hp->moe.n_ff_shared != 0;
    return ST_OK;
}

static enum status read_qwen3next(struct hparams *hp, const struct gguf *g, struct err *err) {
    TRY(read_qwen35(hp, g, err));
    hp->recurrent.tiled = false;
    hp->recurrent.joint_gates = true;
    hp->recurrent.joint_in = gguf_tensor(g, "blk.0.ssm_in.weight") != NULL;
    return ST_OK;
}

const struct arch arch_qwen3next = {.name = "qwen3next", .read = read_qwen3next};
const struct arch arch_qwen35 = {.name = "qwen35", .read = read_qwen35};
const struct arch arch_qwen35moe = {.name = "qwen35moe", .read = read_qwen35};
