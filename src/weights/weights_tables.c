/* weights_tables.c: tables of whole numbers, such as the experts of each token. */
#include "base/mem.h"
#include "base/util.h"
#include "format/rows.h"
#include "weights/weights_loader.h"

enum status weights_want_table(struct weights_loader *ld, const int32_t **dst, int layer,
                               const char *name, uint32_t cols, uint32_t rows, uint32_t limit,
                               struct err *err) {
    const struct gguf_tensor *t;
    TRY(weights_want_tensor(ld, layer, name, cols, rows, 1, &t, err));
    if (t->type != QT_I32)
        return err_set(err, ST_BAD_INPUT, "%s: %s has type %s: expected i32", gguf_path(ld->g),
                       t->name, qtype_info(t->type)->name);
    *dst = NULL;
    ld->w->replicated_bytes += (size_t)t->size_bytes;
    if (!mem_reserve(&ld->tables, &ld->cap_tables, ld->n_tables + 1, sizeof *ld->tables))
        return weights_no_memory(ld, err);
    ld->tables[ld->n_tables++] = (struct weight_table){.dst = dst, .t = t, .limit = limit};
    return ST_OK;
}

static enum status read_table(const struct weights_loader *ld, const struct weight_table *w,
                              int32_t *values, struct err *err) {
    const size_t cols = (size_t)w->t->dims[0], row_bytes = cols * sizeof *values;
    if (ld->from != NULL)
        return tensor_fetch_rows(w->t, ld->from, 0, w->t->dims[1], 0, cols, (uint8_t *)values,
                                 err);
    for (uint64_t r = 0; r < w->t->dims[1]; r++) {
        int32_t *row = values + r * cols;
        const uint8_t *at = tensor_row(w->t, r, 0, cols, (uint8_t *)row);
        if (at != (uint8_t *)row)
            memcpy(row, at, row_bytes);
    }
    return ST_OK;
}

static enum status check_table(const struct weights_loader *ld, const struct weight_table *w,
                               const int32_t *values, struct err *err) {
    const uint64_t cols = w->t->dims[0];
    for (uint64_t i = 0; i < cols * w->t->dims[1]; i++)
        if (values[i] < 0 || (uint32_t)values[i] >= w->limit)
            return err_set(err, ST_BAD_INPUT, "%s: %s has %d in row %llu, expected 0 to %u",
                           gguf_path(ld->g), w->t->name, values[i],
                           (unsigned long long)(i / cols), w->limit - 1);
    return ST_OK;
}

enum status weights_fill_tables(struct weights_loader *ld, struct err *err) {
    for (size_t i = 0; i < ld->n_tables; i++) {
        const struct weight_table *w = &ld->tables[i];
        int32_t *values = weights_own(ld->w, 1, (size_t)w->t->size_bytes);
        if (values == NULL)
            return weights_no_memory(ld, err);
        TRY(read_table(ld, w, values, err));
        TRY(check_table(ld, w, values, err));
        *w->dst = values;
    }
    return ST_OK;
}
