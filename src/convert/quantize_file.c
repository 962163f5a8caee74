/* quantize_file.c: chooses each tensor's new type, and converts in chunks of rows on a pool of
 * threads. Each row is converted by itself, so the result does not depend on the number of
 * threads. */
#include "convert/quantize_file.h"

#include "base/mem.h"
#include "base/pool.h"
#include "base/util.h"
#include "format/gguf_write.h"
#include "format/rows.h"

#include <fnmatch.h>
#include <stdio.h>
#include <sys/stat.h>

#define CHUNK_BYTES ((size_t)8 << 20) /* of output, at least a row */

/* Rounding a router moves tokens to other experts, so it is kept. A bias is cheap, and so is what
 * Gemma 3n and DeepSeek V4 do with their streams, and the latter's places in a block. */
static bool is_kept(const struct gguf_tensor *t) {
    static const char *const parts[] = {"ffn_gate_inp", "_norm",      ".altup_",
                                        ".hc_",         "output_hc_", "_compressor_ape"};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (strstr(t->name, parts[i]) != NULL)
            return true;
    return str_starts(t->name, "altup_") || t->type == QT_I32;
}

static bool is_matrix(const struct gguf_tensor *t) {
    return t->n_dims >= 2 && t->dims[1] > 1 && str_ends(t->name, ".weight") && !is_kept(t);
}

static bool fits(const char *name, const char *pattern) {
    char any[GGUF_NAME_MAX + 8];
    snprintf(any, sizeof any, "*%.*s*", GGUF_NAME_MAX, pattern);
    return fnmatch(any, name, FNM_NOESCAPE) == 0;
}

/* A pattern that fits nothing is a slip of the pen. */
static enum status check_choices(const struct gguf *in, const struct quantize_options *opts,
                                 struct err *err) {
    for (size_t i = 0; i < opts->n_choices; i++) {
        bool any = false;
        for (size_t k = 0; k < gguf_n_tensors(in) && !any; k++)
            any = is_matrix(gguf_tensor_at(in, k)) &&
                  fits(gguf_tensor_at(in, k)->name, opts->choices[i].pattern);
        if (!any)
            return err_set(err, ST_BAD_INPUT, "%s: no matrix has '%s' in its name",
                           gguf_path(in), opts->choices[i].pattern);
    }
    return ST_OK;
}

/* The type that a matrix should have. */
static enum qtype wanted_type(const struct gguf *in, const struct quantize_options *opts,
                              const struct gguf_tensor *t) {
    bool weighted = opts->imatrix != NULL;
    enum qtype type =
        opts->mix != NULL ? quantize_mix_type(opts->mix, in, t, weighted) : opts->type;
    for (size_t i = 0; i < opts->n_choices; i++)
        if (fits(t->name, opts->choices[i].pattern))
            type = opts->choices[i].type;
    return type;
}

/* The type that a tensor gets. */
static enum qtype type_of(const struct gguf *in, const struct quantize_options *opts,
                          const struct gguf_tensor *t) {
    if (!is_matrix(t) || !qtype_info(t->type)->dequantize)
        return t->type < QT_GGUF_END ? t->type : QT_F32; /* a folder's types are in no file */
    return qtype_for_row(wanted_type(in, opts, t), t->dims[0]);
}

/* Other types have no scale of a whole matrix: it goes into the values that are converted. */
static bool has_own_scale(const struct gguf *in, const struct quantize_options *opts,
                          const struct gguf_tensor *t) {
    return t->type == QT_NVFP4 && type_of(in, opts, t) != QT_NVFP4;
}

/* Whether t is such a scale, which has no tensor in the new file. */
static bool goes_into_values(const struct gguf *in, const struct quantize_options *opts,
                             const struct gguf_tensor *t) {
    static const char tail[] = ".scale";
    char name[GGUF_NAME_MAX + 8];
    if (!str_ends(t->name, tail))
        return false;
    int stem = (int)(strlen(t->name) - (sizeof tail - 1));
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%.*s%s", stem, t->name, i == 0 ? ".weight" : "");
        const struct gguf_tensor *weights = gguf_tensor(in, name);
        if (weights && has_own_scale(in, opts, weights) && gguf_scale_of(in, weights) == t)
            return true;
    }
    return false;
}

/* ---- one tensor -------------------------------------------------------------------- */

struct chunk {
    const struct qtype_info *to;
    const struct gguf_tensor *src;
    const float *importance; /* [matrices of src][n_cols], or NULL */
    const uint8_t *scales;   /* [matrices of src] f32, or NULL */
    uint64_t first_row;
    uint8_t *dst;
    float **scratch; /* [n_threads][n_cols] */
    size_t n_rows, n_cols, dst_row_bytes;
};

static const float *importance_of_row(const struct chunk *c, uint64_t row) {
    return c->importance ? c->importance + row / c->src->dims[1] * c->n_cols : NULL;
}

static void scale_row(const struct chunk *c, uint64_t row, float *values) {
    float scale;
    if (c->scales == NULL)
        return;
    memcpy(&scale, c->scales + row / c->src->dims[1] * sizeof scale, sizeof scale);
    for (size_t i = 0; i < c->n_cols; i++)
        values[i] *= scale;
}

static void convert_rows(void *arg, struct pool *pool, int thread) {
    const struct chunk *c = arg;
    float *row = c->scratch[thread];
    size_t begin, end;
    while (pool_claim(pool, c->n_rows, 1, &begin, &end)) {
        for (size_t r = begin; r < end; r++) {
            tensor_row_f32(c->src, c->first_row + r, 0, c->n_cols, row);
            scale_row(c, c->first_row + r, row);
            c->to->quantize(row, importance_of_row(c, c->first_row + r),
                            c->dst + r * c->dst_row_bytes, c->n_cols / c->to->block_values);
        }
    }
}

struct job {
    const struct gguf *in;
    struct gguf_writer *w;
    struct pool *pool;
    const struct quantize_options *opts;
    struct quantize_report *report;
    uint64_t bytes_done;
};

static enum status put(struct job *job, const void *data, size_t len, struct err *err) {
    TRY(gguf_write_data(job->w, data, len, err));
    job->bytes_done += len;
    if (!progress_report(job->opts->progress, job->bytes_done, job->report->bytes_out))
        return err_set(err, ST_CANCELLED, "cancelled");
    return ST_OK;
}

static enum status copy_rows(struct job *job, const struct gguf_tensor *t, struct err *err) {
    size_t row_bytes;
    BUG_ON(!qtype_row_bytes(t->type, t->dims[0], &row_bytes));
    uint8_t *buf = mem_alloc(row_bytes);
    if (!buf)
        return err_set(err, ST_NO_MEMORY, "no memory for a row of %zu bytes", row_bytes);
    enum status st = ST_OK;
    for (uint64_t r = 0; r < t->dims[1] * t->dims[2] * t->dims[3] && st == ST_OK; r++)
        st = put(job, tensor_row(t, r, 0, t->dims[0], buf), row_bytes, err);
    mem_free(buf);
    return st;
}

static enum status copy_tensor(struct job *job, const struct gguf_tensor *t, struct err *err) {
    if (t->rows)
        return copy_rows(job, t, err);
    for (uint64_t done = 0; done < t->size_bytes; done += CHUNK_BYTES)
        TRY(put(job, t->data + done, (size_t)MIN(t->size_bytes - done, (uint64_t)CHUNK_BYTES),
                err));
    return ST_OK;
}

static enum status convert_chunks(struct job *job, struct chunk *c, size_t n_rows,
                                  struct err *err) {
    size_t at_once = MAX(CHUNK_BYTES / c->dst_row_bytes, 1);
    c->dst = mem_alloc(MIN(at_once, n_rows) * c->dst_row_bytes);
    if (!c->dst)
        return err_set(err, ST_NO_MEMORY, "no memory for a row of %zu values", c->n_cols);
    enum status st = ST_OK;
    for (size_t done = 0; done < n_rows && st == ST_OK; done += c->n_rows) {
        c->n_rows = MIN(at_once, n_rows - done);
        pool_run(job->pool, convert_rows, c);
        tensor_forget_rows(job->in, c->src, c->first_row, c->n_rows);
        c->first_row += c->n_rows;
        st = put(job, c->dst, c->n_rows * c->dst_row_bytes, err);
    }
    mem_free(c->dst);
    return st;
}

static enum status find_scales(const struct job *job, const struct gguf_tensor *t,
                               const uint8_t **out, struct err *err) {
    const struct gguf_tensor *s =
        has_own_scale(job->in, job->opts, t) ? gguf_scale_of(job->in, t) : NULL;
    if (s == NULL)
        return ST_OK;
    if (s->type != QT_F32 || gguf_n_values(s) != t->dims[2] * t->dims[3])
        return err_set(err, ST_BAD_INPUT, "expected one f32 for each matrix in %s", s->name);
    *out = tensor_row(s, 0, 0, gguf_n_values(s), NULL); /* plain numbers lie as they are */
    return ST_OK;
}

static enum status convert_tensor(struct job *job, const struct gguf_tensor *t, enum qtype type,
                                  struct err *err) {
    struct chunk c = {.to = qtype_info(type), .src = t, .n_cols = (size_t)t->dims[0]};
    if (job->opts->imatrix)
        TRY(imatrix_find(job->opts->imatrix, t, &c.importance, err));
    job->report->n_weighted += c.importance != NULL;
    TRY(find_scales(job, t, &c.scales, err));
    BUG_ON(!qtype_row_bytes(type, t->dims[0], &c.dst_row_bytes));
    int n_threads = pool_n_threads(job->pool);
    float *all = mem_calloc((size_t)n_threads * c.n_cols, sizeof *all);
    c.scratch = mem_calloc((size_t)n_threads, sizeof *c.scratch);
    enum status st;
    if (all && c.scratch) {
        for (int i = 0; i < n_threads; i++)
            c.scratch[i] = all + (size_t)i * c.n_cols;
        st = convert_chunks(job, &c, (size_t)(t->dims[1] * t->dims[2] * t->dims[3]), err);
    } else {
        st = err_set(err, ST_NO_MEMORY, "no memory for rows of %zu values", c.n_cols);
    }
    mem_free(c.scratch);
    mem_free(all);
    return st;
}

/* ---- the file ---------------------------------------------------------------------- */

static void describe(struct job *job, const struct gguf_tensor *t) {
    struct quantize_report *report = job->report;
    enum qtype type = type_of(job->in, job->opts, t);
    uint64_t n_values = gguf_n_values(t);
    gguf_write_tensor_info(job->w, t->name, type, t->n_dims, t->dims);
    report->n_tensors++;
    report->n_values += n_values;
    report->bytes_in += t->size_bytes;
    report->bytes_out +=
        n_values / qtype_info(type)->block_values * qtype_info(type)->block_bytes;
    if (type == t->type)
        report->n_kept++;
    else
        report->n_converted++;
    if (type != t->type && type != wanted_type(job->in, job->opts, t))
        report->n_fallback++;
}

static enum status write_all(struct job *job, struct err *err) {
    gguf_write_keys_of(job->w, job->in);
    if (job->opts->pre)
        gguf_write_str(job->w, "tokenizer.ggml.pre", job->opts->pre);
    gguf_write_u32(job->w, "general.file_type",
                   job->opts->mix != NULL ? job->opts->mix->file_type
                                          : gguf_file_type(job->opts->type));
    gguf_write_u32(job->w, "general.quantization_version", 2);
    for (size_t i = 0; i < gguf_n_tensors(job->in); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(job->in, i);
        if (!goes_into_values(job->in, job->opts, t))
            describe(job, t);
    }
    TRY(gguf_writer_begin_data(job->w, false, err));
    for (size_t i = 0; i < gguf_n_tensors(job->in); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(job->in, i);
        enum qtype type = type_of(job->in, job->opts, t);
        if (goes_into_values(job->in, job->opts, t))
            continue;
        enum status st =
            type == t->type ? copy_tensor(job, t, err) : convert_tensor(job, t, type, err);
        if (st != ST_OK)
            return st == ST_CANCELLED ? st : err_prefix(err, st, "%s: ", t->name);
    }
    TRY(gguf_check_intact(job->in, err));
    return gguf_writer_finish(job->w, err);
}

static enum status check_input(const struct gguf *in, const char *out_path,
                               const struct quantize_options *opts, struct err *err) {
    TRY(gguf_check_output(in, out_path, err));
    if (!qtype_info(opts->type)->quantize)
        return err_set(err, ST_UNSUPPORTED, "type %s cannot be written",
                       qtype_info(opts->type)->name);
    if (gguf_n_tensors(in) == 0 || !tensor_has_data(gguf_tensor_at(in, 0)))
        return err_set(err, ST_BAD_INPUT, "%s holds no weights", gguf_path(in));
    return ST_OK;
}

enum status quantize_file(const struct gguf *in, const char *out_path,
                          const struct quantize_options *opts, struct quantize_report *report,
                          struct err *err) {
    struct quantize_report sums = {0};
    struct job job = {.in = in, .opts = opts, .report = &sums};
    TRY(check_input(in, out_path, opts, err));
    TRY(check_choices(in, opts, err));
    TRY(pool_open(&job.pool, opts->n_threads, err));
    enum status st = gguf_writer_open(&job.w, out_path, err);
    if (st == ST_OK)
        st = write_all(&job, err);
    gguf_writer_close(job.w);
    pool_close(job.pool);
    if (st == ST_OK)
        *report = sums;
    return st;
}
