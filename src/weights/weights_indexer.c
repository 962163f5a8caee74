/* weights_indexer.c: lists the weights of an indexer. */
#include "base/util.h"
#include "weights/weights_loader.h"

/* Each key-value head chooses blocks with a query of its own. */
static enum status collect_of_blocks(struct weights_loader *ld, const struct layer_weights *lw,
                                     int l, struct err *err) {
    const struct hparams *hp = ld->hp;
    struct index_weights *w = lw->index;
    const struct head_share *sh = &ld->share->heads[lw->attn];
    uint32_t e = hp->n_embd, dim = hp->indexer.k_dim;
    TRY(weights_want_whole_rows(ld, &w->q, l, "indexer.q_proj.weight", e, hp->n_kv_heads * dim,
                                sh->kv_begin * dim, sh->kv_end * dim, err));
    TRY(weights_want_whole_rows(ld, &w->k, l, "indexer.k_proj.weight", e, dim, 0, dim, err));
    TRY(weights_want_vector(ld, &w->q_norm, l, "indexer.q_norm.weight", dim, 0, dim, err));
    return weights_want_vector(ld, &w->k_norm, l, "indexer.k_norm.weight", dim, 0, dim, err);
}

enum status weights_collect_indexer(struct weights_loader *ld, struct layer_weights *lw, int l,
                                    struct err *err) {
    const struct hparams *hp = ld->hp;
    uint32_t e = hp->n_embd, dim = hp->indexer.k_dim, n = hp->indexer.n_heads;
    lw->chooses = hparams_layer_chooses(hp, (uint32_t)l);
    if (!lw->chooses || !hparams_layer_is(hp, (uint32_t)l, LAYER_INDEXED))
        return ST_OK;
    struct index_weights *w = lw->index = weights_own(ld->w, 1, sizeof *w);
    if (w == NULL)
        return weights_no_memory(ld, err);
    if (hp->indexer.block != 0)
        return collect_of_blocks(ld, lw, l, err);
    TRY(weights_want_whole_rows(ld, &w->q, l, "indexer.attn_q_b.weight", hp->mla.q_rank,
                                n * dim, 0, n * dim, err));
    TRY(weights_want_whole_rows(ld, &w->k, l, "indexer.attn_k.weight", e, dim, 0, dim, err));
    TRY(weights_want_whole_rows(ld, &w->weights, l, "indexer.proj.weight", e, n, 0, n, err));
    TRY(weights_want_vector(ld, &w->k_norm, l, "indexer.k_norm.weight", dim, 0, dim, err));
    return weights_want_vector(ld, &w->k_norm_bias, l, "indexer.k_norm.bias", dim, 0, dim, err);
}
