/* weights_layer_input.c: The weights of the layers' inputs (layer_input.c). */
#include "base/util.h"
#include "weights/weights_loader.h"

enum status weights_collect_inputs(struct weights_loader *ld, struct err *err) {
    const struct share *sh = ld->share;
    struct weights *w = ld->w;
    uint32_t e = ld->hp->n_embd, n = ld->hp->n_layer_input, rows = ld->hp->n_layers * n;
    TRY(weights_want_embedding(ld, &w->input_embd, "per_layer_token_embd.weight", rows, err));
    TRY(weights_want_vector(ld, &w->input_norm, -1, "per_layer_proj_norm.weight", n, 0, n,
                            err));
    return weights_want_matrix(ld, &w->input_proj,
                               (struct weight_part){.layer = -1,
                                                    .name = "per_layer_model_proj.weight",
                                                    .cols = e,
                                                    .rows = rows,
                                                    .row_begin = sh->layer_begin * n,
                                                    .row_end = sh->layer_end * n,
                                                    .col_end = e},
                               err);
}

enum status weights_collect_layer_input(struct weights_loader *ld, struct layer_weights *lw,
                                        int l, struct err *err) {
    uint32_t e = ld->hp->n_embd, n = ld->hp->n_layer_input;
    struct weight_part gate = {.layer = l,
                               .name = "inp_gate.weight",
                               .cols = e,
                               .rows = n,
                               .row_end = n,
                               .col_end = e};
    struct weight_part proj = {
        .layer = l, .name = "proj.weight", .cols = n, .rows = e, .row_end = e, .col_end = n};
    TRY(weights_want_matrix(ld, &lw->input.gate, gate, err));
    TRY(weights_want_matrix(ld, &lw->input.proj, proj, err));
    return weights_want_vector(ld, &lw->input.post_norm, l, "post_norm.weight", e, 0, e, err);
}
