/* weights_streams.c: lists the weights of several residual streams (streams.c). */
#include "base/util.h"
#include "weights/weights_loader.h"

/* n matrices [n_embd, n_embd]; none of them held: their names and shapes only. */
static enum status want_square(struct weights_loader *ld, struct wmat **dst, const char *name,
                               bool held, struct err *err) {
    const uint32_t e = ld->hp->n_embd, n = ld->hp->n_streams - 1;
    *dst = weights_own(ld->w, n, sizeof **dst);
    if (*dst == NULL)
        return weights_no_memory(ld, err);
    for (uint32_t i = 0; i < n; i++)
        TRY(weights_want_matrix(ld, &(*dst)[i],
                                (struct weight_part){.layer = -1,
                                                     .name = name,
                                                     .cols = e,
                                                     .rows = e,
                                                     .n = n,
                                                     .nth = i,
                                                     .row_end = held ? e : 0,
                                                     .col_end = e},
                                err));
    return ST_OK;
}

enum status weights_collect_streams(struct weights_loader *ld, struct err *err) {
    TRY(want_square(ld, &ld->w->stream_in, "altup_proj.weight", ld->share->stage == 0, err));
    return want_square(ld, &ld->w->stream_out, "altup_unembd_proj.weight",
                       ld->share->last_stage, err);
}

enum status weights_collect_layer_streams(struct weights_loader *ld, struct layer_weights *lw,
                                          int l, struct err *err) {
    struct stream_weights *w = &lw->streams;
    const uint32_t e = ld->hp->n_embd, n = ld->hp->n_streams, rank = ld->hp->n_laurel;
    struct weight_part down = {.layer = l,
                               .name = "laurel_l.weight",
                               .cols = e,
                               .rows = rank,
                               .row_end = rank,
                               .col_end = e};
    struct weight_part up = {.layer = l,
                             .name = "laurel_r.weight",
                             .cols = rank,
                             .rows = e,
                             .row_end = e,
                             .col_end = rank};
    w->router_stride = round_up(e, TILE_ROWS);
    TRY(weights_want_matrix(ld, &w->laurel_l, down, err));
    TRY(weights_want_matrix(ld, &w->laurel_r, up, err));
    TRY(weights_want_vector(ld, &w->laurel_norm, l, "laurel_post_norm.weight", e, 0, e, err));
    TRY(weights_want_vector(ld, &w->router_norm, l, "altup_router_norm.weight", e, 0, e, err));
    TRY(weights_want_vector(ld, &w->correct_scale, l, "altup_correct_scale.weight", e, 0, e,
                            err));
    TRY(weights_want_rows(ld, &w->router, l, "altup_router.weight", e, n, 0, e,
                          w->router_stride, err));
    TRY(weights_want_rows(ld, &w->predict, l, "altup_predict_coef.weight", n, n * n, 0, n, n,
                          err));
    return weights_want_rows(ld, &w->correct, l, "altup_correct_coef.weight", n, n, 0, n, n,
                             err);
}
