/* gguf_write.c: the inverse of gguf_parse.c. Keys and tensor descriptions are collected in
 * memory. gguf_writer_begin_data() writes the header. Data streams through after it, padded to
 * the alignment between tensors. */
#include "format/gguf_write.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/util.h"
#include "format/gguf_parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define FILE_BUFFER_BYTES (1u << 20)
#define ALIGNMENT GGUF_DEFAULT_ALIGNMENT

struct key {
    char *name;
    size_t name_len;
    struct buf value; /* the value's type id and what follows */
};

struct info {
    char name[GGUF_NAME_MAX + 1];
    enum qtype type;
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS];
    uint64_t size_bytes;
};

struct gguf_writer {
    char *path;          /* as the caller named it, for sentences */
    struct file_new out; /* all zero: no file, only the header is made */
    struct key *keys;
    size_t n_keys, keys_capacity;
    struct info *infos;
    size_t n_infos, infos_capacity;
    enum status failure; /* the first one before begin_data, ST_OK if none */
    struct err failure_err;
    size_t current;    /* the tensor that data goes to; n_infos: all have come */
    uint64_t to_come;  /* bytes of it */
    bool data_allowed; /* begin_data() was called, and not header-only */
};

/* ---- bytes ------------------------------------------------------------------------- */

static void append_u32(struct buf *b, uint32_t v) {
    buf_add(b, &v, sizeof v);
}

static void append_u64(struct buf *b, uint64_t v) {
    buf_add(b, &v, sizeof v);
}

static void append_str(struct buf *b, struct gguf_str s) {
    append_u64(b, s.len);
    buf_add(b, s.ptr, s.len);
}

/* ---- open, close ------------------------------------------------------------------- */

enum status gguf_writer_open(struct gguf_writer **out, const char *path, struct err *err) {
    struct gguf_writer *w = mem_calloc(1, sizeof *w);
    if (!w)
        return err_set(err, ST_NO_MEMORY, "%s: no memory", path);
    w->path = mem_strdup(path);
    enum status st = w->path ? file_new_open(&w->out, path, err)
                             : err_set(err, ST_NO_MEMORY, "%s: no memory", path);
    if (st != ST_OK) {
        gguf_writer_close(w);
        return st;
    }
    setvbuf(w->out.f, NULL, _IOFBF, FILE_BUFFER_BYTES);
    *out = w;
    return ST_OK;
}

enum status gguf_writer_open_header(struct gguf_writer **out, const char *name,
                                    struct err *err) {
    struct gguf_writer *w = mem_calloc(1, sizeof *w);
    if (!w || !(w->path = mem_strdup(name))) {
        mem_free(w);
        return err_set(err, ST_NO_MEMORY, "%s: no memory", name);
    }
    *out = w;
    return ST_OK;
}

void gguf_writer_close(struct gguf_writer *w) {
    if (!w)
        return;
    file_new_drop(&w->out);
    for (size_t i = 0; i < w->n_keys; i++) {
        mem_free(w->keys[i].name);
        buf_free(&w->keys[i].value);
    }
    mem_free(w->keys);
    mem_free(w->infos);
    mem_free(w->path);
    mem_free(w);
}

/* ---- metadata ---------------------------------------------------------------------- */

static void fail_no_memory(struct gguf_writer *w) {
    if (w->failure == ST_OK)
        w->failure =
            err_set(&w->failure_err, ST_NO_MEMORY, "%s: no memory for the header", w->path);
}

static struct key *find_key(struct gguf_writer *w, struct gguf_str name) {
    for (size_t i = 0; i < w->n_keys; i++)
        if (w->keys[i].name_len == name.len && memcmp(w->keys[i].name, name.ptr, name.len) == 0)
            return &w->keys[i];
    return NULL;
}

/* Takes over value. */
static void put_key(struct gguf_writer *w, struct gguf_str name, struct buf value) {
    BUG_ON(w->data_allowed || w->n_infos > 0);
    bool ok = !value.failed;
    struct key *old = find_key(w, name);
    if (ok && old) {
        buf_free(&old->value);
        old->value = value;
        return;
    }
    char *copy = ok ? mem_strndup(name.ptr, name.len) : NULL;
    if (!copy || !mem_reserve(&w->keys, &w->keys_capacity, w->n_keys + 1, sizeof *w->keys)) {
        mem_free(copy);
        buf_free(&value);
        fail_no_memory(w);
        return;
    }
    w->keys[w->n_keys++] = (struct key){copy, name.len, value};
}

static struct gguf_str str_of(const char *s) {
    return (struct gguf_str){s, strlen(s)};
}

static void put_scalar(struct gguf_writer *w, struct gguf_str key, enum gguf_value_type type,
                       const void *v) {
    struct buf b = {0};
    append_u32(&b, type);
    buf_add(&b, v, gguf_scalar_bytes(type));
    put_key(w, key, b);
}

static void put_str(struct gguf_writer *w, struct gguf_str key, struct gguf_str v) {
    struct buf b = {0};
    append_u32(&b, GGUF_STRING);
    append_str(&b, v);
    put_key(w, key, b);
}

static void put_array(struct gguf_writer *w, struct gguf_str key, const struct gguf_array *a) {
    struct buf b = {0};
    append_u32(&b, GGUF_ARRAY);
    append_u32(&b, a->type);
    append_u64(&b, a->n);
    if (a->type == GGUF_STRING)
        for (size_t i = 0; i < a->n; i++)
            append_str(&b, a->strs[i]);
    else
        buf_add(&b, a->data, a->n * gguf_scalar_bytes(a->type));
    put_key(w, key, b);
}

void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t v) {
    put_scalar(w, str_of(key), GGUF_U32, &v);
}

void gguf_write_u64(struct gguf_writer *w, const char *key, uint64_t v) {
    put_scalar(w, str_of(key), GGUF_U64, &v);
}

void gguf_write_f32(struct gguf_writer *w, const char *key, float v) {
    put_scalar(w, str_of(key), GGUF_F32, &v);
}

void gguf_write_bool(struct gguf_writer *w, const char *key, bool v) {
    put_scalar(w, str_of(key), GGUF_BOOL, &(uint8_t){v});
}

void gguf_write_str(struct gguf_writer *w, const char *key, const char *v) {
    put_str(w, str_of(key), str_of(v));
}

void gguf_write_text(struct gguf_writer *w, const char *key, struct gguf_str v) {
    put_str(w, str_of(key), v);
}

void gguf_write_str_array(struct gguf_writer *w, const char *key, const struct gguf_str *v,
                          size_t n) {
    put_array(w, str_of(key), &(struct gguf_array){.type = GGUF_STRING, .n = n, .strs = v});
}

void gguf_write_f32_array(struct gguf_writer *w, const char *key, const float *v, size_t n) {
    put_array(w, str_of(key),
              &(struct gguf_array){.type = GGUF_F32, .n = n, .data = (const uint8_t *)v});
}

void gguf_write_i32_array(struct gguf_writer *w, const char *key, const int32_t *v, size_t n) {
    put_array(w, str_of(key),
              &(struct gguf_array){.type = GGUF_I32, .n = n, .data = (const uint8_t *)v});
}

static bool is_layout_key(struct gguf_str key) {
    static const char split[] = "split.", alignment[] = "general.alignment";
    return (key.len >= sizeof split - 1 && memcmp(key.ptr, split, sizeof split - 1) == 0) ||
           (key.len == sizeof alignment - 1 && memcmp(key.ptr, alignment, key.len) == 0);
}

void gguf_write_keys_of(struct gguf_writer *w, const struct gguf *g) {
    for (size_t i = 0; i < gguf_n_keys(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (is_layout_key(kv->key))
            continue;
        if (kv->type == GGUF_ARRAY)
            put_array(w, kv->key, &kv->array);
        else if (kv->type == GGUF_STRING)
            put_str(w, kv->key, kv->str);
        else
            put_scalar(w, kv->key, kv->type, kv->scalar);
    }
}

/* ---- tensors ----------------------------------------------------------------------- */

static enum status check_info(const char *name, enum qtype type, uint32_t n_dims,
                              const uint64_t *dims, uint64_t *size_bytes, struct err *err) {
    const struct qtype_info *info = qtype_info(type);
    BUG_ON(!info || n_dims == 0 || n_dims > GGUF_MAX_DIMS);
    if (name[0] == '\0' || strlen(name) > GGUF_NAME_MAX)
        return err_set(err, ST_BAD_INPUT, "tensor name '%s': 1 to %d bytes are allowed", name,
                       GGUF_NAME_MAX);
    if (dims[0] % info->block_values != 0)
        return err_set(err, ST_BAD_INPUT,
                       "tensor %s: rows of %llu values are not whole %s blocks", name,
                       (unsigned long long)dims[0], info->name);
    uint64_t bytes = dims[0] / info->block_values;
    bool fits = !__builtin_mul_overflow(bytes, (uint64_t)info->block_bytes, &bytes);
    for (uint32_t i = 1; i < n_dims; i++)
        fits = fits && !__builtin_mul_overflow(bytes, dims[i], &bytes);
    if (!fits || bytes == 0 || bytes > INT64_MAX)
        return err_set(err, ST_BAD_INPUT, "tensor %s: a size that no file can have", name);
    *size_bytes = bytes;
    return ST_OK;
}

void gguf_write_tensor_info(struct gguf_writer *w, const char *name, enum qtype type,
                            uint32_t n_dims, const uint64_t *dims) {
    BUG_ON(w->data_allowed);
    if (w->failure != ST_OK)
        return;
    struct info t = {.type = type, .n_dims = n_dims};
    w->failure = check_info(name, type, n_dims, dims, &t.size_bytes, &w->failure_err);
    if (w->failure != ST_OK)
        return;
    if (!mem_reserve(&w->infos, &w->infos_capacity, w->n_infos + 1, sizeof *w->infos)) {
        fail_no_memory(w);
        return;
    }
    memcpy(t.name, name, strlen(name));
    memcpy(t.dims, dims, n_dims * sizeof *dims);
    w->infos[w->n_infos++] = t;
}

static struct buf build_header(const struct gguf_writer *w) {
    static const uint8_t zeros[ALIGNMENT];
    struct buf b = {0};
    uint64_t offset = 0;
    buf_add(&b, GGUF_MAGIC, 4);
    append_u32(&b, 3);
    append_u64(&b, w->n_infos);
    append_u64(&b, w->n_keys);
    for (size_t i = 0; i < w->n_keys; i++) {
        const struct key *k = &w->keys[i];
        append_str(&b, (struct gguf_str){k->name, k->name_len});
        buf_add(&b, k->value.bytes, k->value.len);
    }
    for (size_t i = 0; i < w->n_infos; i++) {
        const struct info *t = &w->infos[i];
        append_str(&b, str_of(t->name));
        append_u32(&b, t->n_dims);
        buf_add(&b, t->dims, t->n_dims * sizeof *t->dims);
        append_u32(&b, t->type);
        append_u64(&b, offset);
        offset += round_up(t->size_bytes, ALIGNMENT);
    }
    buf_add(&b, zeros, round_up(b.len, ALIGNMENT) - b.len);
    return b;
}

/* ---- data -------------------------------------------------------------------------- */

static enum status write_all(struct gguf_writer *w, const void *data, size_t len,
                             struct err *err) {
    return fwrite(data, 1, len, w->out.f) == len ? ST_OK : file_new_failed(&w->out, errno, err);
}

enum status gguf_writer_header(struct gguf_writer *w, uint8_t **bytes, size_t *len,
                               struct err *err) {
    if (w->failure != ST_OK) {
        if (err)
            *err = w->failure_err;
        return w->failure;
    }
    struct buf header = build_header(w);
    if (header.failed) {
        buf_free(&header);
        return err_set(err, ST_NO_MEMORY, "%s: no memory for the header", w->path);
    }
    *bytes = (uint8_t *)header.bytes;
    *len = header.len;
    return ST_OK;
}

enum status gguf_writer_begin_data(struct gguf_writer *w, bool header_only, struct err *err) {
    uint8_t *header;
    size_t len;
    TRY(gguf_writer_header(w, &header, &len, err));
    enum status st = write_all(w, header, len, err);
    mem_free(header);
    if (st != ST_OK)
        return st;
    w->data_allowed = !header_only;
    w->current = header_only ? w->n_infos : 0;
    w->to_come = w->current < w->n_infos ? w->infos[0].size_bytes : 0;
    return ST_OK;
}

static enum status next_tensor(struct gguf_writer *w, struct err *err) {
    static const uint8_t zeros[ALIGNMENT];
    uint64_t size = w->infos[w->current].size_bytes;
    w->current++;
    w->to_come = w->current < w->n_infos ? w->infos[w->current].size_bytes : 0;
    return write_all(w, zeros, (size_t)(round_up(size, ALIGNMENT) - size), err);
}

enum status gguf_write_data(struct gguf_writer *w, const void *data, size_t len,
                            struct err *err) {
    const uint8_t *p = data;
    BUG_ON(!w->data_allowed);
    while (len > 0) {
        BUG_ON(w->current == w->n_infos); /* more than the infos describe */
        size_t n = (size_t)MIN((uint64_t)len, w->to_come);
        TRY(write_all(w, p, n, err));
        p += n;
        len -= n;
        w->to_come -= n;
        if (w->to_come == 0)
            TRY(next_tensor(w, err));
    }
    return ST_OK;
}

enum status gguf_writer_finish(struct gguf_writer *w, struct err *err) {
    BUG_ON(w->out.f == NULL); /* finished before, or the header alone */
    if (w->current != w->n_infos)
        return err_set(err, ST_BAD_INPUT, "%s: the data of tensor %s is not complete", w->path,
                       w->infos[w->current].name);
    return file_new_finish(&w->out, true, err);
}

uint32_t gguf_file_type(enum qtype type) {
    switch ((int)type) {
    case QT_F16:
        return 1;
    case QT_Q4_0:
        return 2;
    case QT_Q4_1:
        return 3;
    case QT_Q8_0:
        return 7;
    case QT_Q5_0:
        return 8;
    case QT_Q5_1:
        return 9;
    case QT_Q2_K:
        return 10;
    case QT_Q3_K:
        return 11;
    case QT_Q4_K:
        return 14;
    case QT_Q5_K:
        return 16;
    case QT_Q6_K:
        return 18;
    case QT_IQ4_NL:
        return 25;
    case QT_BF16:
        return 32;
    case QT_MXFP4:
        return 38;
    default:
        return 0; /* all F32 */
    }
}
