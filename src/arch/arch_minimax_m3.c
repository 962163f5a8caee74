/* arch_minimax_m3.c: MiniMax M3: grouped queries with head norms and RoPE on part of a head,
 * gpt-oss's activation. Routing is a sigmoid plus a bias that counts for the selection only.
 * The first layers are dense and see everything. In the others each key-value head selects
 * blocks of positions for its query heads, with a query of its own and one key for all. A
 * block's score is that of its best position. The last blocks are always selected. */
#include "arch/hparams.h"

#include "base/util.h"

static enum status read_blocks(struct hparams *hp, const struct gguf *g, struct err *err) {
    struct indexer_params *p = &hp->indexer;
    TRY(hparams_read_indexer(hp, g, err));
    TRY(hparam_need_u32(hp, g, "attention.indexer.block_size", 1, 1u << 16, &p->block, err));
    TRY(hparam_u32(hp, g, "attention.indexer.local_blocks", 1, &p->n_local, err));
    if (p->n_heads != hp->n_kv_heads || p->n_local > p->top_k ||
        (uint64_t)p->top_k * p->block > HPARAMS_CHOSEN_MAX)
        return err_set(
            err, ST_UNSUPPORTED,
            "%s: an indexer of %u heads that chooses %u blocks of %u, %u of them the "
            "last, is not supported for %u key-value heads",
            gguf_path(g), p->n_heads, p->top_k, p->block, p->n_local, hp->n_kv_heads);
    p->rope = hp->rope.mode;
    for (uint32_t l = hp->moe.n_dense; l < hp->n_layers; l++)
        hp->layer_flags[l] |= LAYER_INDEXED;
    return ST_OK;
}

static enum status read(struct hparams *hp, const struct gguf *g, struct err *err) {
    hp->rope.mode = ROPE_NEOX;
    hp->qk_norm = QK_NORM_HEAD;
    hp->ffn_act = FFN_SWIGLU_OAI;
    hp->moe.gating = GATING_SIGMOID;
    TRY(hparams_drop_nextn(hp, g, err));
    TRY(hparams_read_moe(hp, g, err));
    TRY(hparam_u32(hp, g, "leading_dense_block_count", 0, &hp->moe.n_dense, err));
    return read_blocks(hp, g, err);
}

const struct arch arch_minimax_m3 = {.name = "minimax-m3", .read = read};
