/* imatrix.c: Reads importance matrices that llama.cpp made. */
#include "convert/imatrix.h"

#include "base/file_map.h"
#include "base/mem.h"
#include "base/util.h"
#include "format/rows.h"

#include <math.h>
#include <stdio.h>

#define MAX_ENTRIES (1u << 20)

struct entry {
    char name[GGUF_NAME_MAX + 1];
    float *values; /* [n], owned */
    size_t n;
};

struct imatrix {
    char *path;
    struct entry *entries;
    size_t n, capacity;
};

static enum status no_memory(const char *path, struct err *err) {
    return err_set(err, ST_NO_MEMORY, "%s: no memory for it", path);
}

/* A column that the calibration text never activated still counts a little: a block of such
 * columns would otherwise have no scale at all. */
#define FLOOR 1e-4

static void raise_zeros(float *values, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)values[i];
    float least = sum > 0 ? (float)(FLOOR * sum / (double)n) : 1;
    for (size_t i = 0; i < n; i++)
        values[i] = MAX(values[i], least);
}

/* Takes over values; n_cols of them, which n is a multiple of, are compared with each other. */
static enum status add(struct imatrix *m, struct gguf_str name, float *values, size_t n,
                       size_t n_cols, struct err *err) {
    char shown[80];
    for (size_t i = 0; i < n; i++) {
        if (isfinite(values[i]) && values[i] >= 0)
            continue;
        mem_free(values);
        return err_set(err, ST_BAD_INPUT,
                       "%s: the importances of %s are not all numbers from 0 on", m->path,
                       gguf_escape(name, shown, sizeof shown));
    }
    for (size_t i = 0; i < n; i += n_cols)
        raise_zeros(values + i, n_cols);
    if (!mem_reserve(&m->entries, &m->capacity, m->n + 1, sizeof *m->entries)) {
        mem_free(values);
        return no_memory(m->path, err);
    }
    struct entry *e = &m->entries[m->n++];
    *e = (struct entry){.values = values, .n = n};
    memcpy(e->name, name.ptr, name.len);
    return ST_OK;
}

/* ---- GGUF ---------------------------------------------------------------------------- */

/* Matrices that no token of the calibration text came to have a count of 0: all columns alike. */
static enum status add_sums(struct imatrix *m, const struct gguf *g,
                            const struct gguf_tensor *sums, size_t name_len, struct err *err) {
    char name[GGUF_NAME_MAX + 16];
    snprintf(name, sizeof name, "%.*s.counts", (int)name_len, sums->name);
    const struct gguf_tensor *counts = gguf_tensor(g, name);
    uint64_t n_cols = sums->dims[0], n_rows = sums->dims[1] * sums->dims[2];
    if (!counts || sums->type != QT_F32 || counts->type != QT_F32 || sums->dims[3] != 1 ||
        counts->size_bytes != n_rows * sizeof(float) || !tensor_has_data(sums))
        return err_set(err, ST_BAD_INPUT, "%s: %s has no F32 counts that fit it", m->path,
                       sums->name);
    float *values = mem_alloc((size_t)sums->size_bytes);
    if (!values)
        return no_memory(m->path, err);
    memcpy(values, sums->data, (size_t)sums->size_bytes);
    for (uint64_t r = 0; r < n_rows; r++) {
        float count;
        memcpy(&count, counts->data + r * sizeof count, sizeof count);
        for (uint64_t c = 0; c < n_cols; c++)
            values[r * n_cols + c] = count > 0 ? values[r * n_cols + c] / count : 1;
    }
    return add(m, (struct gguf_str){sums->name, name_len}, values, n_rows * n_cols, n_cols,
               err);
}

static enum status read_gguf(struct imatrix *m, struct err *err) {
    static const char tail[] = ".in_sum2";
    struct gguf *g;
    TRY(gguf_open(&g, m->path, NULL, err));
    enum status st = ST_OK;
    for (size_t i = 0; i < gguf_n_tensors(g) && st == ST_OK; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        size_t len = strlen(t->name);
        if (len > sizeof tail && str_eq(t->name + len - (sizeof tail - 1), tail))
            st = add_sums(m, g, t, len - (sizeof tail - 1), err);
    }
    gguf_close(g);
    return st;
}

/* ---- .dat ---------------------------------------------------------------------------- */

struct reader {
    const uint8_t *p, *end;
};

static bool take(struct reader *r, void *out, size_t n) {
    if (n > (size_t)(r->end - r->p))
        return false;
    memcpy(out, r->p, n);
    r->p += n;
    return true;
}

/* A name's length, the name, the number of calls, of values, and these: their sums over the
 * calls. */
static enum status read_entry(struct imatrix *m, struct reader *r, struct err *err) {
    int32_t len, n_calls, n;
    char name[GGUF_NAME_MAX];
    if (!take(r, &len, sizeof len) || len < 1 || len > GGUF_NAME_MAX ||
        !take(r, name, (size_t)len) || !take(r, &n_calls, sizeof n_calls) ||
        !take(r, &n, sizeof n) || n < 1 || n_calls < 0 ||
        (size_t)n > (size_t)(r->end - r->p) / sizeof(float))
        return err_set(err, ST_BAD_INPUT,
                       "%s: entry %zu is damaged, or this is not an importance matrix", m->path,
                       m->n);
    float *values = mem_alloc((size_t)n * sizeof *values);
    if (!values)
        return no_memory(m->path, err);
    take(r, values, (size_t)n * sizeof *values);
    for (int32_t i = 0; n_calls > 0 && i < n; i++)
        values[i] /= (float)n_calls;
    /* Of how many matrices is not said. */
    return add(m, (struct gguf_str){name, (size_t)len}, values, (size_t)n, (size_t)n, err);
}

static enum status read_dat(struct imatrix *m, const struct file_map *file, struct err *err) {
    struct reader r = {file->bytes, file->bytes + file->size};
    int32_t n;
    if (!take(&r, &n, sizeof n) || n < 1 || n > (int32_t)MAX_ENTRIES)
        return err_set(err, ST_BAD_INPUT, "%s: no importance matrix of llama.cpp's", m->path);
    for (int32_t i = 0; i < n; i++)
        TRY(read_entry(m, &r, err));
    return ST_OK; /* what follows says which text it was */
}

/* -------------------------------------------------------------------------------------- */

static enum status read_file(struct imatrix *m, struct err *err) {
    struct file_map file;
    TRY(file_map_open(&file, m->path, err));
    bool is_gguf = file.size >= 4 && memcmp(file.bytes, "GGUF", 4) == 0;
    enum status st = is_gguf ? read_gguf(m, err) : read_dat(m, &file, err);
    file_map_close(&file);
    if (st == ST_OK && m->n == 0)
        st = err_set(err, ST_BAD_INPUT, "%s: holds no importances", m->path);
    return st;
}

enum status imatrix_open(struct imatrix **out, const char *path, struct err *err) {
    struct imatrix *m = mem_calloc(1, sizeof *m);
    if (!m || !(m->path = mem_strdup(path))) {
        mem_free(m);
        return no_memory(path, err);
    }
    enum status st = read_file(m, err);
    if (st != ST_OK) {
        imatrix_close(m);
        return st;
    }
    *out = m;
    return ST_OK;
}

void imatrix_close(struct imatrix *m) {
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++)
        mem_free(m->entries[i].values);
    mem_free(m->entries);
    mem_free(m->path);
    mem_free(m);
}

size_t imatrix_n(const struct imatrix *m) {
    return m->n;
}

enum status imatrix_find(const struct imatrix *m, const struct gguf_tensor *t,
                         const float **out, struct err *err) {
    *out = NULL;
    for (size_t i = 0; i < m->n; i++) {
        const struct entry *e = &m->entries[i];
        if (!str_eq(e->name, t->name))
            continue;
        if (e->n != t->dims[0] * t->dims[2] * t->dims[3])
            return err_set(
                err, ST_BAD_INPUT,
                "%s: %s has %zu importances, but the model's has %llu columns in %llu "
                "matrices: it was made for another model",
                m->path, t->name, e->n, (unsigned long long)t->dims[0],
                (unsigned long long)(t->dims[2] * t->dims[3]));
        *out = e->values;
        return ST_OK;
    }
    return ST_OK;
}
