/* weights_fill.c: reads and packs the listed slices: from the file's map, or piece by piece
 * from another machine. */
#include "base/clock.h"
#include "base/exact.h"
#include "base/mem.h"
#include "base/util.h"
#include "format/rows.h"
#include "weights/weights_loader.h"

/* Rows of a slice as wmat_pack() asks for them: 16 at a time, so that as many buffers do. */
struct rows {
    const struct weight_slice *s;
    uint8_t *bufs; /* [16][row_bytes]: of rows that must be made */
    size_t row_bytes;
};

static const uint8_t *source_row(const void *ctx, uint32_t r) {
    const struct rows *rows = ctx;
    const struct weight_slice *s = rows->s;
    return tensor_row(s->t, s->row_begin + r, s->col_begin, s->dst->n_cols,
                      rows->bufs + r % TILE_ROWS * rows->row_bytes);
}

struct turned {
    const float *values;
    uint32_t n_cols;
};

static const uint8_t *turned_row(const void *ctx, uint32_t r) {
    const struct turned *turned = ctx;
    return (const uint8_t *)(turned->values + (size_t)r * turned->n_cols);
}

/* The file's columns as rows of f32: of attn_kv_b only, which is small. */
static void pack_transposed(struct weights_loader *ld, struct weight_slice *s,
                            const struct gguf_tensor *t, uint32_t row_begin) {
    uint32_t cols = s->dst->n_rows, n = s->dst->n_cols; /* of the file's part */
    float *row = mem_alloc(cols * sizeof(float)),
          *all = mem_alloc((size_t)cols * n * sizeof(float));
    BUG_ON(row == NULL || all == NULL);
    for (uint32_t r = 0; r < n; r++) {
        tensor_row_f32(t, row_begin + r, 0, cols, row);
        for (uint32_t c = 0; c < cols; c++)
            all[(size_t)c * n + r] = row[c];
    }
    const struct turned turned = {all, n};
    wmat_pack(s->dst, ld->block + s->offset, 0, wmat_n_tiles(s->dst), turned_row, &turned, 0);
    mem_free(row);
    mem_free(all);
}

/* ---- data from elsewhere ----------------------------------------------------------------- */

/* About how much is requested at once: so the round trip is a small part of it, and buffers
 * stay in the caches. */
#define FETCH_BYTES ((size_t)1 << 20)

/* Of several errors the first is told. */
static void note_failure(struct weights_loader *ld, enum status st, const struct err *why) {
    pthread_mutex_lock(&ld->failing);
    if (atomic_load_explicit(&ld->failed, memory_order_relaxed) == ST_OK) {
        ld->why = *why;
        atomic_store_explicit(&ld->failed, (int)st, memory_order_release);
    }
    pthread_mutex_unlock(&ld->failing);
}

/* Rows [begin, begin + n) whole; *here is the tensor of these alone, with its data in *bytes,
 * which the caller frees. */
static enum status fetch_whole_rows(const struct weights_loader *ld,
                                    const struct gguf_tensor *t, uint64_t begin, uint64_t n,
                                    struct gguf_tensor *here, uint8_t **bytes,
                                    struct err *err) {
    size_t row_bytes, all;
    bool fits = qtype_row_bytes(t->type, t->dims[0], &row_bytes) &&
                mul_size(row_bytes, (size_t)n, &all);
    uint8_t *buf = fits ? mem_alloc(all) : NULL;
    if (buf == NULL)
        return err_set(err, ST_NO_MEMORY, "%s: no memory for %s", gguf_path(ld->g), t->name);
    enum status st = tensor_fetch_rows(t, ld->from, begin, n, 0, t->dims[0], buf, err);
    if (st != ST_OK) {
        mem_free(buf);
        return st;
    }
    *here = *t;
    here->n_dims = 2;
    here->dims[1] = n;
    here->dims[2] = here->dims[3] = 1;
    here->data = *bytes = buf;
    return ST_OK;
}

struct fetched {
    const uint8_t *bytes;
    size_t row_bytes;
    uint32_t first; /* the row there, of the slice */
};

static const uint8_t *fetched_row(const void *ctx, uint32_t r) {
    const struct fetched *f = ctx;
    return f->bytes + (r - f->first) * f->row_bytes;
}

static enum status fetch_tiles(struct weights_loader *ld, struct weight_slice *s,
                               uint32_t begin, uint32_t end, struct err *err) {
    struct fetched f = {.bytes = NULL};
    bool whole = qtype_row_bytes(s->t->type, s->t->dims[0], &f.row_bytes);
    BUG_ON(!whole);
    uint32_t n_tiles = (uint32_t)MAX(FETCH_BYTES / (f.row_bytes * TILE_ROWS), (size_t)1);
    n_tiles = MIN(n_tiles, end - begin);
    uint8_t *buf = mem_alloc((size_t)n_tiles * TILE_ROWS * f.row_bytes);
    if (buf == NULL)
        return err_set(err, ST_NO_MEMORY, "%s: no memory for rows of %s", gguf_path(ld->g),
                       s->t->name);
    f.bytes = buf;
    enum status st = ST_OK;
    for (uint32_t at = begin; at < end && st == ST_OK; at += n_tiles) {
        uint32_t stop = MIN(at + n_tiles, end);
        f.first = at * TILE_ROWS;
        st = tensor_fetch_rows(s->t, ld->from, s->row_begin + f.first,
                               MIN(stop * TILE_ROWS, s->dst->n_rows) - f.first, s->col_begin,
                               s->dst->n_cols, buf, err);
        if (st == ST_OK)
            wmat_pack(s->dst, ld->block + s->offset, at, stop, fetched_row, &f, s->col_begin);
    }
    mem_free(buf);
    return st;
}

static enum status fetch_transposed(struct weights_loader *ld, struct weight_slice *s,
                                    struct err *err) {
    struct gguf_tensor here;
    uint8_t *bytes;
    TRY(fetch_whole_rows(ld, s->t, s->row_begin, s->dst->n_cols, &here, &bytes, err));
    pack_transposed(ld, s, &here, 0);
    mem_free(bytes);
    return ST_OK;
}

/* As pack_tiles(). */
static void fetch_and_pack(struct weights_loader *ld, struct weight_slice *s, uint32_t begin,
                           uint32_t end) {
    struct err err;
    enum status st = ST_OK;
    if (atomic_load_explicit(&ld->failed, memory_order_relaxed) != ST_OK)
        return;
    if (!s->transposed)
        st = fetch_tiles(ld, s, begin, end, &err);
    else if (begin == 0)
        st = fetch_transposed(ld, s, &err);
    if (st != ST_OK)
        note_failure(ld, st, &err);
}

/* Ranks that embed tokens read rows of it as tokens come. */
static enum status fetch_rows(struct weights_loader *ld, const struct gguf_tensor *t,
                              struct rows_here *here, struct err *err) {
    struct weights *w = ld->w;
    size_t row_bytes, done = 0, n_rows = (size_t)t->dims[1];
    bool whole = qtype_row_bytes(t->type, t->dims[0], &row_bytes);
    BUG_ON(!whole);
    here->bytes = mem_huge_alloc((size_t)t->size_bytes);
    if (here->bytes == NULL)
        return err_set(err, ST_NO_MEMORY, "%s: no memory for the embedding", gguf_path(ld->g));
    here->t = *t;
    here->t.data = here->bytes;
    w->replicated_bytes += (size_t)t->size_bytes;
    while (done < n_rows) {
        size_t n = MIN(MAX(FETCH_BYTES / row_bytes, (size_t)1), n_rows - done);
        TRY(tensor_fetch_rows(t, ld->from, done, n, 0, t->dims[0],
                              here->bytes + done * row_bytes, err));
        done += n;
        if (ld->progress != NULL)
            ld->progress(ld->user, 0);
    }
    return ST_OK;
}

/* The inputs of every stage's layers begin with the token's embedding. */
static enum status fetch_embeddings(struct weights_loader *ld, struct err *err) {
    struct weights *w = ld->w;
    if (ld->share->stage == 0 || w->input_embd != NULL)
        TRY(fetch_rows(ld, w->embd, &w->embd_here, err));
    return w->input_embd != NULL ? fetch_rows(ld, w->input_embd, &w->input_here, err) : ST_OK;
}

/* ---- all of it --------------------------------------------------------------------------- */

static void pack_tiles(struct weights_loader *ld, struct weight_slice *s, uint32_t begin,
                       uint32_t end, uint8_t *bufs) {
    if (ld->from != NULL) {
        fetch_and_pack(ld, s, begin, end);
        return;
    }
    struct rows rows = {.s = s, .bufs = bufs};
    bool whole = qtype_row_bytes(s->t->type, s->t->dims[0], &rows.row_bytes);
    BUG_ON(!whole);
    if (!s->transposed)
        wmat_pack(s->dst, ld->block + s->offset, begin, end, source_row, &rows, s->col_begin);
    else if (begin == 0)
        pack_transposed(ld, s, s->t, s->row_begin);
    if (atomic_fetch_sub_explicit(&s->tiles_left, end - begin, memory_order_acq_rel) ==
        end - begin)
        tensor_forget_rows(ld->g, s->t, s->row_begin,
                           s->transposed ? s->dst->n_cols : s->dst->n_rows);
}

static size_t slice_of_tile(const struct weights_loader *ld, size_t tile) {
    size_t lo = 0, hi = ld->n_slices;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (ld->slices[mid].first_tile <= tile)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Pieces small enough that the progress moves and the threads end together. */
#define PACK_CLAIM 16

static void pack_thread(void *arg, struct pool *pool, int thread) {
    struct weights_loader *ld = arg;
    uint8_t *bufs = ld->row_bufs + (size_t)thread * TILE_ROWS * ld->row_buf_bytes;
    uint64_t told = clock_ns();
    size_t n_claims = div_up(ld->n_tiles, PACK_CLAIM), begin, end;
    while (pool_claim(pool, n_claims, 1, &begin, &end)) {
        for (size_t c = begin; c < end; c++) {
            size_t at = c * PACK_CLAIM, stop = MIN(at + PACK_CLAIM, ld->n_tiles);
            while (at < stop) {
                struct weight_slice *s = &ld->slices[slice_of_tile(ld, at)];
                size_t in = at - s->first_tile, n = MIN(wmat_n_tiles(s->dst) - in, stop - at);
                pack_tiles(ld, s, (uint32_t)in, (uint32_t)(in + n), bufs);
                at += n;
            }
            size_t done =
                atomic_fetch_add_explicit(&ld->tiles_done, PACK_CLAIM, memory_order_relaxed);
            if (thread == 0 && ld->progress != NULL && clock_ns() - told > 50000000) {
                told = clock_ns();
                ld->progress(ld->user, (double)done / (double)ld->n_tiles);
            }
        }
    }
}

/* Tidied (kernels.h). */
static void copy_row(const struct gguf_tensor *t, uint64_t row, uint64_t begin, uint64_t n,
                     float *out) {
    tensor_row_f32(t, row, begin, n, out);
    exact_tidy_all(out, n);
}

static enum status copy_vectors(struct weights_loader *ld, struct err *err) {
    for (size_t i = 0; i < ld->n_vecs; i++) {
        struct weight_vec *v = &ld->vecs[i];
        const struct gguf_tensor *t = v->t;
        struct gguf_tensor here;
        uint8_t *bytes = NULL;
        if (ld->from != NULL) {
            TRY(fetch_whole_rows(ld, v->t, 0, v->n_rows, &here, &bytes, err));
            t = &here;
        }
        float *dst = (float *)(void *)(ld->block + ld->w->matrix_bytes + v->offset);
        for (uint32_t r = 0; r < v->n_rows; r++)
            copy_row(t, r, v->begin, v->n, dst + r * v->dst_stride);
        mem_free(bytes);
        *v->dst = dst;
    }
    return ST_OK;
}

enum status weights_fill(struct weights_loader *ld, struct pool *pool, struct err *err) {
    struct weights *w = ld->w;
    w->matrix_bytes = round_up(w->matrices.total, PIECES_PAGE);
    ld->block_bytes = w->matrix_bytes + round_up(w->others.total, PIECES_PAGE);
    ld->block = mem_huge_alloc(ld->block_bytes);
    if (ld->block == NULL)
        return err_set(err, ST_NO_MEMORY, "%s: no memory for this rank's %.1f GB of weights",
                       gguf_path(ld->g), (double)ld->block_bytes * 1e-9);
    for (size_t i = 0; i < ld->n_slices; i++)
        ld->slices[i].dst->tiles = ld->block + ld->slices[i].offset;
    ld->row_bufs = mem_alloc((size_t)pool_n_threads(pool) * TILE_ROWS * ld->row_buf_bytes);
    if (ld->row_bufs == NULL)
        return err_set(err, ST_NO_MEMORY, "%s: no memory to make rows in", gguf_path(ld->g));
    TRY(copy_vectors(ld, err));
    TRY(weights_fill_tables(ld, err));
    if (ld->from != NULL)
        TRY(fetch_embeddings(ld, err));
    pool_run(pool, pack_thread, ld);
    enum status st = (enum status)atomic_load_explicit(&ld->failed, memory_order_acquire);
    if (st != ST_OK) {
        *err = ld->why;
        return st;
    }
    if (ld->progress != NULL)
        ld->progress(ld->user, 1.0);
    return ST_OK;
}
