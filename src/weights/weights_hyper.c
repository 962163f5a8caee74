/* weights_hyper.c: lists the weights of hyper-connections, which are whole on every rank. */
#include "base/util.h"
#include "weights/weights_loader.h"

#include <stdio.h>

/* n coefficients of n_scales kinds. */
static enum status want(struct weights_loader *ld, struct hyper_weights *w, int l,
                        const char *prefix, uint32_t n, uint32_t n_scales, struct err *err) {
    const uint32_t cols = ld->hp->n_streams * ld->hp->n_embd;
    char fn[48], scale[48], base[48];
    snprintf(fn, sizeof fn, "%s_fn.weight", prefix);
    snprintf(scale, sizeof scale, "%s_scale.weight", prefix);
    snprintf(base, sizeof base, "%s_base.weight", prefix);
    TRY(weights_want_vector(ld, &w->scale, l, scale, n_scales, 0, n_scales, err));
    TRY(weights_want_vector(ld, &w->base, l, base, n, 0, n, err));
    w->n_fn = hyper_n_pieces(ld->hp);
    w->fn = weights_own(ld->w, w->n_fn, sizeof *w->fn);
    if (w->fn == NULL)
        return weights_no_memory(ld, err);
    for (uint32_t i = 0; i < w->n_fn; i++) {
        uint32_t n_cols, begin = hyper_piece(ld->hp, i, &n_cols);
        struct weight_part part = {.layer = l,
                                   .name = fn,
                                   .cols = cols,
                                   .rows = n,
                                   .row_end = n,
                                   .col_begin = begin,
                                   .col_end = begin + n_cols};
        TRY(weights_want_matrix(ld, &w->fn[i], part, err));
        if (qtype_info(w->fn[i].type)->block_values != 1) /* a piece may begin within a block */
            return err_set(err, ST_UNSUPPORTED, "%s: %s has type %s: expected f32, f16 or bf16",
                           gguf_path(ld->g), fn, qtype_info(w->fn[i].type)->name);
    }
    return ST_OK;
}

enum status weights_collect_layer_hyper(struct weights_loader *ld, struct layer_weights *lw,
                                        int l, struct err *err) {
    const uint32_t n = ld->hp->n_streams, n_coefficients = n * (n + 2);
    TRY(want(ld, &lw->attn_hyper, l, "hc_attn", n_coefficients, 3, err));
    return want(ld, &lw->ffn_hyper, l, "hc_ffn", n_coefficients, 3, err);
}

enum status weights_collect_hyper_end(struct weights_loader *ld, struct err *err) {
    return want(ld, &ld->w->hyper_end, -1, "output_hc", ld->hp->n_streams, 1, err);
}
