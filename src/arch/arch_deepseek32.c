/* arch_deepseek32.c: DeepSeek V3.2 and GLM-5: DeepSeek V3's layers; queries attend to the keys
 * that an indexer selects (arXiv 2512.02556). The indexer's queries come from the low-rank
 * query. Its one key is a LayerNorm of a product of x. RoPE rotates the first dimensions of
 * both: in halves (DeepSeek) or in neighbours (GLM). In GLM-5.2 only some layers have an
 * indexer; the others use the last one's selection. Trailing layers for multi-token prediction
 * are not loaded. */
#include "arch/hparams.h"

#include "base/util.h"

static enum status read_sparse(struct hparams *hp, const struct gguf *g, enum rope_mode rope,
                               struct err *err) {
    TRY(hparams_drop_nextn(hp, g, err));
    hp->moe.gating = GATING_SIGMOID;
    TRY(hparams_read_deepseek(hp, g, err));
    hp->moe.groups_by_best = false;
    TRY(hparams_read_indexer(hp, g, err));
    if (hp->mla.q_rank == 0)
        return err_set(err, ST_UNSUPPORTED,
                       "%s: an indexer without low-rank queries (%s.attention.q_lora_rank) is "
                       "not supported",
                       gguf_path(g), hp->arch->name);
    hp->indexer.rope = rope;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        hp->layer_flags[l] |= LAYER_INDEXED;
    return ST_OK;
}

static enum status read_deepseek32(struct hparams *hp, const struct gguf *g, struct err *err) {
    return read_sparse(hp, g, ROPE_NEOX, err);
}

/* GLM-5.2's files without indexer.types are known by their context. */
#define LONG_CONTEXT (1u << 20)

static enum status read_types(struct hparams *hp, const struct gguf *g, struct err *err) {
    bool has[HPARAMS_LAYERS_MAX];
    enum status st = hparam_bool_of_layers(hp, g, "attention.indexer.types", has, err);
    if (st != ST_OK && st != ST_NOT_FOUND)
        return st;
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        if (st == ST_NOT_FOUND)
            has[l] = hp->n_ctx_train < LONG_CONTEXT || l < 2 || (l - 2) % 4 == 0;
        if (!has[l])
            hp->layer_flags[l] &= (uint8_t)~LAYER_INDEXED;
    }
    hp->indexer.shared = true;
    if (has[0])
        return ST_OK;
    return err_set(err, ST_BAD_INPUT,
                   "%s: the first layer has no indexer, and there is none before it",
                   gguf_path(g));
}

static enum status read_glm_dsa(struct hparams *hp, const struct gguf *g, struct err *err) {
    TRY(read_sparse(hp, g, ROPE_NORM, err));
    return read_types(hp, g, err);
}

const struct arch arch_deepseek32 = {.name = "deepseek32", .read = read_deepseek32};
const struct arch arch_glm_dsa = {.name = "glm-dsa", .read = read_glm_dsa};
