/* weights_loader.h: loads a share of the weights, for weights*.c, in two passes over one list.
 * weights_collect() lists every slice of the share with its place in the model, which gives the
 * size of the block. Then weights_fill() packs the tiles with all threads. They claim tiles
 * from the whole list at once, so that small matrices do not serialize. */
#ifndef LOCKSTEP_WEIGHTS_WEIGHTS_LOADER_H
#define LOCKSTEP_WEIGHTS_WEIGHTS_LOADER_H

#include "weights/weights.h"

#include <pthread.h>
#include <stdatomic.h>

struct weight_slice {
    struct wmat *dst;
    const struct gguf_tensor *t;
    uint32_t row_begin, col_begin; /* rows count through all matrices of a 3-D tensor */
    bool transposed;               /* dst's rows are the file's columns, as f32 */
    size_t offset;                 /* in the block */
    size_t first_tile;             /* in the numbering over all slices */
    _Atomic uint32_t
        tiles_left; /* acq_rel: the thread that packs the last one drops the file's pages */
};

struct weight_vec {
    const float **dst;
    const struct gguf_tensor *t;
    uint64_t begin;     /* of a row's values */
    uint32_t n, n_rows; /* n values from each of n_rows rows, */
    size_t dst_stride;  /* which lie this far apart in the block */
    size_t offset;
};

/* A table of numbers below `limit`, whole on every rank. */
struct weight_table {
    const int32_t **dst;
    const struct gguf_tensor *t;
    uint32_t limit;
};

struct weights_loader {
    const struct gguf *g;
    const struct hparams *hp;
    const struct share *share;
    struct weights *w;
    struct weight_slice *slices;
    size_t n_slices, cap_slices;
    struct weight_vec *vecs;
    size_t n_vecs, cap_vecs;
    struct weight_table *tables;
    size_t n_tables, cap_tables;
    /* The block: matrices, then vectors, each part of whole pages. */
    size_t block_bytes, n_tiles;
    uint8_t *block;
    size_t row_buf_bytes;           /* of the longest row that must be made (rows.h) */
    uint8_t *row_bufs;              /* [n_threads][16][row_buf_bytes] */
    const struct file_source *from; /* NULL: the data are in the file */
    bool *wanted;                   /* [tensors of g] by weights_check(); else NULL */
    atomic_int failed;              /* a status; release: why is written */
    struct err why;
    pthread_mutex_t failing;
    _Atomic size_t tiles_done; /* relaxed: for progress only */
    void (*progress)(void *, double);
    void *user;
};

/* A part of a tensor [cols, rows] or [cols, rows, n]. */
struct weight_part {
    int layer; /* -1: not a layer's */
    const char *name;
    uint32_t cols, rows, n; /* as in the file; n = 0 counts as 1 */
    uint32_t row_begin, row_end, col_begin, col_end;
    uint32_t nth; /* which matrix of n */
    bool transposed;
    double used;         /* share of steps that read it; 0 counts as 1 */
    bool expert, shared; /* one of the experts'; a shared one's, read beside them */
    bool no_scale;       /* a tensor that is named like its scale is something else */
};

/* ---- weights_collect.c: naming slices ---------------------------------------------------- */

/* A zeroed array that lives as long as the weights; NULL: no memory. */
void *weights_own(struct weights *w, size_t n, size_t size);
/* That part of a matrix becomes *dst, in the file's own type or, transposed, as f32. */
enum status weights_want_matrix(struct weights_loader *ld, struct wmat *dst,
                                struct weight_part p, struct err *err);
/* The same of rows [begin, end) of a layer's matrix [cols, rows]. */
enum status weights_want_whole_rows(struct weights_loader *ld, struct wmat *dst, int layer,
                                    const char *name, uint32_t cols, uint32_t rows,
                                    uint32_t begin, uint32_t end, struct err *err);
/* Values [begin, end) of each of n rows of a tensor [width, n], dst_stride values apart. */
enum status weights_want_rows(struct weights_loader *ld, const float **dst, int layer,
                              const char *name, uint32_t width, uint32_t n, uint32_t begin,
                              uint32_t end, size_t dst_stride, struct err *err);
/* Values [begin, end) of a vector of n. Rows of a tile beyond the share's are computed too:
 * there is space for them. */
enum status weights_want_vector(struct weights_loader *ld, const float **dst, int layer,
                                const char *name, uint32_t n, uint32_t begin, uint32_t end,
                                struct err *err);
/* ST_NO_MEMORY with a sentence. */
enum status weights_no_memory(const struct weights_loader *ld, struct err *err);
/* Lists the slices and vectors of ld->share and says where in ld->w and in the block each goes;
 * reads nothing but scales. ST_UNSUPPORTED, ST_BAD_INPUT, ST_NOT_FOUND: of a tensor;
 * ST_NO_MEMORY. */
enum status weights_collect(struct weights_loader *ld, struct err *err);
/* weights_layer_input.c: of the layers' inputs, what is common, and a layer's part. */
enum status weights_collect_inputs(struct weights_loader *ld, struct err *err);
enum status weights_collect_layer_input(struct weights_loader *ld, struct layer_weights *lw,
                                        int l, struct err *err);
/* weights_streams.c: the same of streams. */
enum status weights_collect_streams(struct weights_loader *ld, struct err *err);
enum status weights_collect_layer_streams(struct weights_loader *ld, struct layer_weights *lw,
                                          int l, struct err *err);
/* A tensor of rows that are read as tokens come. */
enum status weights_want_embedding(struct weights_loader *ld, const struct gguf_tensor **out,
                                   const char *name, uint64_t width, struct err *err);
/* weights_compressed.c: of attention to compressed keys. */
enum status weights_collect_compressed(struct weights_loader *ld, struct layer_weights *lw,
                                       int l, struct err *err);
/* weights_hyper.c: of a layer's hyper-connections, and of the last ones. */
enum status weights_collect_layer_hyper(struct weights_loader *ld, struct layer_weights *lw,
                                        int l, struct err *err);
enum status weights_collect_hyper_end(struct weights_loader *ld, struct err *err);
/* weights_tables.c: a tensor [cols, rows] of i32, and the reading of those that were listed.
 * ST_BAD_INPUT: a number is not below `limit`. */
enum status weights_want_table(struct weights_loader *ld, const int32_t **dst, int layer,
                               const char *name, uint32_t cols, uint32_t rows, uint32_t limit,
                               struct err *err);
enum status weights_fill_tables(struct weights_loader *ld, struct err *err);
/* The tensor of this shape, which is noted as one that the model has. */
enum status weights_want_tensor(struct weights_loader *ld, int layer, const char *name,
                                uint64_t cols, uint64_t rows, uint64_t n,
                                const struct gguf_tensor **out, struct err *err);
/* weights_recurrent.c: the same of a recurrent layer's own part. */
enum status weights_collect_recurrent(struct weights_loader *ld, struct layer_weights *lw,
                                      int l, struct err *err);

/* weights_indexer.c: and of an indexer. */
enum status weights_collect_indexer(struct weights_loader *ld, struct layer_weights *lw, int l,
                                    struct err *err);

/* ---- weights_fill.c ---------------------------------------------------------------------- */

/* Makes the block and packs what was listed, with all threads of the pool. What it has allocated
 * is in ld, also after an error. ST_NO_MEMORY; errors of ld->from. */
enum status weights_fill(struct weights_loader *ld, struct pool *pool, struct err *err);

#endif
