/* gguf_parse.c: hostile bytes -> struct gguf_header. Every length is compared with the
 * remaining bytes before it is used. Every product is checked, and nothing recurses. Memory
 * grows with the bytes that the file really has, not with the counts that it claims. */
#include "format/gguf_parse.h"

#include "base/mem.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>

struct reader {
    const uint8_t *begin, *p, *end;
};

static size_t left(const struct reader *r) {
    return (size_t)(r->end - r->p);
}

static bool take(struct reader *r, size_t n, const uint8_t **out) {
    if (n > left(r))
        return false;
    *out = r->p;
    r->p += n;
    return true;
}

static bool take_u32(struct reader *r, uint32_t *out) {
    const uint8_t *p;
    if (!take(r, sizeof *out, &p))
        return false;
    memcpy(out, p, sizeof *out);
    return true;
}

static bool take_u64(struct reader *r, uint64_t *out) {
    const uint8_t *p;
    if (!take(r, sizeof *out, &p))
        return false;
    memcpy(out, p, sizeof *out);
    return true;
}

static bool take_str(struct reader *r, struct gguf_str *out) {
    uint64_t len;
    const uint8_t *p;
    if (!take_u64(r, &len) || len > left(r) || !take(r, (size_t)len, &p))
        return false;
    *out = (struct gguf_str){(const char *)p, (size_t)len};
    return true;
}

static const struct {
    const char *name;
    size_t bytes;
} value_types[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_U64] = {"u64", 8},
    [GGUF_I64] = {"i64", 8},     [GGUF_F64] = {"f64", 8},   [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0},
};

size_t gguf_scalar_bytes(enum gguf_value_type type) {
    return value_types[type].bytes;
}

const char *gguf_value_type_name(enum gguf_value_type type) {
    return value_types[type].name;
}

static size_t escaped_len(unsigned char c) {
    return c >= ' ' && c < 0x7f ? 1 : 4;
}

const char *gguf_escape(struct gguf_str s, char *buf, size_t size) {
    size_t whole = 0, n = 0;
    for (size_t i = 0; i < s.len && whole < size; i++)
        whole += escaped_len((unsigned char)s.ptr[i]);
    const char *tail = whole < size ? "" : "...";
    BUG_ON(size == 0);
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (n + escaped_len(c) + strlen(tail) >= size)
            break;
        n += (size_t)snprintf(buf + n, size - n, escaped_len(c) == 1 ? "%c" : "\\x%02x", c);
    }
    snprintf(buf + n, size - n, "%s", tail);
    return buf;
}

struct quoted {
    char text[100];
};

static struct quoted quote(struct gguf_str s) {
    struct quoted q;
    gguf_escape(s, q.text, sizeof q.text);
    return q;
}

static int compare_str(struct gguf_str a, struct gguf_str b) {
    int c = memcmp(a.ptr, b.ptr, MIN(a.len, b.len));
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

static enum status out_of_memory(struct err *err) {
    return err_set(err, ST_NO_MEMORY, "no memory for the header");
}

/* ---- metadata ---------------------------------------------------------------------- */

static enum status parse_string_array(struct reader *r, struct gguf_kv *kv, size_t n,
                                      struct err *err) {
    struct gguf_str *strs = mem_calloc(MAX(n, 1), sizeof *strs);
    if (!strs)
        return out_of_memory(err);
    for (size_t i = 0; i < n; i++) {
        if (!take_str(r, &strs[i])) {
            mem_free(strs);
            return err_set(err, ST_BAD_INPUT, "key %s: the file ends in string %zu of %zu",
                           quote(kv->key).text, i, n);
        }
    }
    kv->array.strs = strs;
    return ST_OK;
}

static enum status parse_array(struct reader *r, struct gguf_kv *kv, struct err *err) {
    uint32_t type;
    uint64_t n;
    if (!take_u32(r, &type) || !take_u64(r, &n))
        return err_set(err, ST_BAD_INPUT, "the file ends in the array of key %s",
                       quote(kv->key).text);
    if (type == GGUF_ARRAY)
        return err_set(err, ST_UNSUPPORTED, "key %s: arrays of arrays are not supported",
                       quote(kv->key).text);
    if (type >= ARRAY_LEN(value_types))
        return err_set(err, ST_BAD_INPUT, "key %s: unknown array element type %u",
                       quote(kv->key).text, type);
    /* A string takes its length's 8 bytes at least. */
    size_t elem_bytes = type == GGUF_STRING ? 8 : value_types[type].bytes;
    if (n > left(r) / elem_bytes)
        return err_set(err, ST_BAD_INPUT,
                       "key %s: an array of %llu elements of type %s does not "
                       "fit in the %zu bytes left",
                       quote(kv->key).text, (unsigned long long)n, value_types[type].name,
                       left(r));
    kv->array = (struct gguf_array){.type = (enum gguf_value_type)type, .n = (size_t)n};
    if (type == GGUF_STRING)
        return parse_string_array(r, kv, (size_t)n, err);
    BUG_ON(!take(r, (size_t)n * elem_bytes, &kv->array.data));
    return ST_OK;
}

static enum status parse_kv(struct reader *r, size_t index, struct gguf_kv *kv,
                            struct err *err) {
    *kv = (struct gguf_kv){0};
    uint32_t type;
    if (!take_str(r, &kv->key))
        return err_set(err, ST_BAD_INPUT, "the name of key %zu runs past the end of the file",
                       index);
    if (kv->key.len == 0)
        return err_set(err, ST_BAD_INPUT, "key %zu has an empty name", index);
    if (kv->key.len > GGUF_MAX_KEY_BYTES)
        return err_set(err, ST_BAD_INPUT, "key %zu has a name of %zu bytes; %d are allowed",
                       index, kv->key.len, GGUF_MAX_KEY_BYTES);
    if (!take_u32(r, &type))
        return err_set(err, ST_BAD_INPUT, "the file ends after key %s", quote(kv->key).text);
    if (type >= ARRAY_LEN(value_types))
        return err_set(err, ST_BAD_INPUT, "key %s: unknown value type %u", quote(kv->key).text,
                       type);
    kv->type = (enum gguf_value_type)type;
    if (type == GGUF_ARRAY)
        return parse_array(r, kv, err);
    bool ok = type == GGUF_STRING ? take_str(r, &kv->str)
                                  : take(r, value_types[type].bytes, &kv->scalar);
    if (!ok)
        return err_set(err, ST_BAD_INPUT, "the value of key %s runs past the end of the file",
                       quote(kv->key).text);
    return ST_OK;
}

static enum status parse_kvs(struct reader *r, struct gguf_header *h, uint64_t n,
                             struct err *err) {
    if (n > GGUF_MAX_KEYS)
        return err_set(err, ST_BAD_INPUT, "the file claims %llu metadata keys; %u are allowed",
                       (unsigned long long)n, GGUF_MAX_KEYS);
    size_t capacity = 0;
    for (size_t i = 0; i < n; i++) {
        if (!mem_reserve(&h->kvs, &capacity, i + 1, sizeof *h->kvs))
            return out_of_memory(err);
        TRY(parse_kv(r, i, &h->kvs[i], err));
        h->n_kvs++;
    }
    return ST_OK;
}

static int compare_kv(const void *a, const void *b) {
    const struct gguf_kv *const *x = a, *const *y = b;
    return compare_str((*x)->key, (*y)->key);
}

static enum status sort_kvs(struct gguf_header *h, struct err *err) {
    h->kvs_by_key = mem_calloc(MAX(h->n_kvs, 1), sizeof *h->kvs_by_key);
    if (!h->kvs_by_key)
        return out_of_memory(err);
    for (size_t i = 0; i < h->n_kvs; i++)
        h->kvs_by_key[i] = &h->kvs[i];
    qsort(h->kvs_by_key, h->n_kvs, sizeof *h->kvs_by_key, compare_kv);
    for (size_t i = 1; i < h->n_kvs; i++)
        if (compare_kv(&h->kvs_by_key[i - 1], &h->kvs_by_key[i]) == 0)
            return err_set(err, ST_BAD_INPUT, "key %s occurs twice",
                           quote(h->kvs_by_key[i]->key).text);
    return ST_OK;
}

const struct gguf_kv *gguf_header_find(const struct gguf_header *h, struct gguf_str key) {
    size_t begin = 0, end = h->n_kvs;
    while (begin < end) {
        size_t mid = begin + (end - begin) / 2;
        int c = compare_str(key, h->kvs_by_key[mid]->key);
        if (c == 0)
            return h->kvs_by_key[mid];
        if (c < 0)
            end = mid;
        else
            begin = mid + 1;
    }
    return NULL;
}

static enum status read_alignment(const struct gguf_header *h, uint32_t *out, struct err *err) {
    static const char key[] = "general.alignment";
    const struct gguf_kv *kv = gguf_header_find(h, (struct gguf_str){key, sizeof key - 1});
    *out = GGUF_DEFAULT_ALIGNMENT;
    if (!kv)
        return ST_OK;
    if (kv->type != GGUF_U32)
        return err_set(err, ST_BAD_INPUT, "%s has type %s, expected u32", key,
                       value_types[kv->type].name);
    uint32_t alignment;
    memcpy(&alignment, kv->scalar, sizeof alignment);
    if (!is_pow2(alignment) || alignment < 8 || alignment > GGUF_MAX_ALIGNMENT)
        return err_set(err, ST_BAD_INPUT, "%s is %u: not a power of two from 8 to %u", key,
                       alignment, GGUF_MAX_ALIGNMENT);
    *out = alignment;
    return ST_OK;
}

/* ---- tensors ----------------------------------------------------------------------- */

static enum status check_tensor_name(struct gguf_str name, size_t index, struct err *err) {
    if (name.len == 0)
        return err_set(err, ST_BAD_INPUT, "tensor %zu has an empty name", index);
    if (name.len > GGUF_NAME_MAX)
        return err_set(err, ST_BAD_INPUT, "tensor %zu has a name of %zu bytes; %d are allowed",
                       index, name.len, GGUF_NAME_MAX);
    if (memchr(name.ptr, '\0', name.len))
        return err_set(err, ST_BAD_INPUT, "tensor %zu has a NUL byte in its name (%s)", index,
                       quote(name).text);
    return ST_OK;
}

/* Fills size_bytes from type and dims. */
static enum status size_tensor(struct gguf_tensor *t, const char *name, struct err *err) {
    uint64_t n_values = 1;
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        if (t->dims[i] == 0)
            return err_set(err, ST_BAD_INPUT, "tensor %s: dimension %u is 0", name, i);
        if (__builtin_mul_overflow(n_values, t->dims[i], &n_values) || n_values > INT64_MAX)
            return err_set(err, ST_BAD_INPUT,
                           "tensor %s: %llu x %llu x %llu x %llu values overflow", name,
                           (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                           (unsigned long long)t->dims[2], (unsigned long long)t->dims[3]);
    }
    const struct qtype_info *type = qtype_info(t->type);
    if (t->dims[0] % type->block_values != 0)
        return err_set(err, ST_BAD_INPUT,
                       "tensor %s: rows of %llu values are not whole %s blocks of %u", name,
                       (unsigned long long)t->dims[0], type->name, type->block_values);
    if (__builtin_mul_overflow(n_values / type->block_values, (uint64_t)type->block_bytes,
                               &t->size_bytes))
        return err_set(err, ST_BAD_INPUT, "tensor %s: its size in bytes overflows", name);
    return ST_OK;
}

/* t->offset is left relative to the start of the data. */
static enum status parse_tensor(struct reader *r, size_t index, bool folder,
                                struct gguf_tensor *t, struct err *err) {
    *t = (struct gguf_tensor){.dims = {1, 1, 1, 1}};
    struct gguf_str name;
    uint32_t type;
    if (!take_str(r, &name))
        return err_set(err, ST_BAD_INPUT,
                       "the name of tensor %zu runs past the end of the file", index);
    TRY(check_tensor_name(name, index, err));
    memcpy(t->name, name.ptr, name.len);
    struct quoted shown = quote(name);
    if (!take_u32(r, &t->n_dims))
        return err_set(err, ST_BAD_INPUT, "the file ends in the description of tensor %s",
                       shown.text);
    if (t->n_dims == 0 || t->n_dims > GGUF_MAX_DIMS)
        return err_set(err, ST_BAD_INPUT, "tensor %s has %u dimensions; 1 to %d are allowed",
                       shown.text, t->n_dims, GGUF_MAX_DIMS);
    bool ok = true;
    for (uint32_t i = 0; i < t->n_dims; i++)
        ok = ok && take_u64(r, &t->dims[i]);
    if (!ok || !take_u32(r, &type) || !take_u64(r, &t->offset))
        return err_set(err, ST_BAD_INPUT, "the file ends in the description of tensor %s",
                       shown.text);
    if (!qtype_info(type) || (type >= QT_GGUF_END && !folder))
        return err_set(err, ST_UNSUPPORTED, "tensor %s has unknown or removed type %u",
                       shown.text, type);
    t->type = (enum qtype)type;
    return size_tensor(t, shown.text, err);
}

static enum status parse_tensors(struct reader *r, struct gguf_header *h, uint64_t n,
                                 bool folder, struct err *err) {
    if (n > GGUF_MAX_TENSORS)
        return err_set(err, ST_BAD_INPUT, "the file claims %llu tensors; %u are allowed",
                       (unsigned long long)n, GGUF_MAX_TENSORS);
    size_t capacity = 0;
    for (size_t i = 0; i < n; i++) {
        if (!mem_reserve(&h->tensors, &capacity, i + 1, sizeof *h->tensors))
            return out_of_memory(err);
        TRY(parse_tensor(r, i, folder, &h->tensors[i], err));
        h->n_tensors++;
    }
    return ST_OK;
}

static int compare_name(const void *a, const void *b) {
    const struct gguf_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int compare_offset(const void *a, const void *b) {
    const struct gguf_tensor *const *x = a, *const *y = b;
    return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

/* No two tensors of the same name, no two that share a byte, each aligned and below 2^64. */
static enum status check_tensors(const struct gguf_header *h, uint32_t alignment,
                                 struct err *err) {
    enum status st = ST_OK;
    const struct gguf_tensor **sorted = mem_calloc(MAX(h->n_tensors, 1), sizeof *sorted);
    if (!sorted)
        return out_of_memory(err);
    for (size_t i = 0; i < h->n_tensors; i++)
        sorted[i] = &h->tensors[i];
    qsort(sorted, h->n_tensors, sizeof *sorted, compare_name);
    for (size_t i = 1; i < h->n_tensors && st == ST_OK; i++)
        if (str_eq(sorted[i - 1]->name, sorted[i]->name))
            st = err_set(err, ST_BAD_INPUT, "two tensors are called %s", sorted[i]->name);
    qsort(sorted, h->n_tensors, sizeof *sorted, compare_offset);
    for (size_t i = 0; i < h->n_tensors && st == ST_OK; i++) {
        const struct gguf_tensor *t = sorted[i];
        if (t->offset % alignment != 0)
            st = err_set(err, ST_BAD_INPUT, "tensor %s: offset %llu is not a multiple of %u",
                         t->name, (unsigned long long)t->offset, alignment);
        else if (t->offset > UINT64_MAX - t->size_bytes)
            st = err_set(err, ST_BAD_INPUT, "tensor %s: offset %llu is beyond any possible end",
                         t->name, (unsigned long long)t->offset);
        else if (i > 0 && sorted[i - 1]->offset + sorted[i - 1]->size_bytes > t->offset)
            st = err_set(err, ST_BAD_INPUT, "tensors %s and %s overlap", sorted[i - 1]->name,
                         t->name);
    }
    mem_free(sorted);
    return st;
}

/* From offsets in the data to offsets in the file and pointers. */
static enum status place_tensors(const struct reader *r, struct gguf_header *h,
                                 uint32_t alignment, const struct gguf_options *opts,
                                 struct err *err) {
    size_t len = (size_t)(r->end - r->begin);
    size_t data_begin = round_up((size_t)(r->p - r->begin), alignment);
    bool no_data = opts && opts->header_only && len <= data_begin;
    size_t data_len = len > data_begin ? len - data_begin : 0;
    for (size_t i = 0; i < h->n_tensors; i++) {
        struct gguf_tensor *t = &h->tensors[i];
        if (no_data) {
            if (__builtin_add_overflow(t->offset, data_begin, &t->offset))
                return err_set(err, ST_BAD_INPUT,
                               "tensor %s: its offset is beyond any possible end", t->name);
            continue;
        }
        if (data_len == 0 && t->size_bytes > 0)
            return err_set(err, ST_BAD_INPUT,
                           "the file holds no weights: it is a header alone, or truncated");
        if (t->offset > data_len || t->size_bytes > data_len - t->offset)
            return err_set(
                err, ST_BAD_INPUT,
                "tensor %s: bytes %llu to %llu of the data, but the file holds %zu: it is "
                "truncated or damaged",
                t->name, (unsigned long long)t->offset,
                (unsigned long long)(t->offset + t->size_bytes), data_len);
        t->offset += data_begin;
        t->data = r->begin + t->offset;
    }
    return ST_OK;
}

/* ---- the file ---------------------------------------------------------------------- */

static enum status parse_preamble(struct reader *r, uint32_t *version, uint64_t *n_tensors,
                                  uint64_t *n_kvs, struct err *err) {
    const uint8_t *magic;
    if (!take(r, 4, &magic))
        return err_set(err, ST_BAD_INPUT, "not a GGUF file: it has only %zu bytes", left(r));
    if (memcmp(magic, GGUF_MAGIC, 4) != 0) {
        struct gguf_str found = {(const char *)magic, 4};
        return err_set(err, ST_BAD_INPUT, "not a GGUF file: it begins with '%s'",
                       quote(found).text);
    }
    if (!take_u32(r, version))
        return err_set(err, ST_BAD_INPUT, "the file ends before the GGUF version");
    if (*version != 0 && (*version & 0xffff) == 0)
        return err_set(err, ST_UNSUPPORTED,
                       "a big-endian GGUF file; only little-endian is supported");
    if (*version != 2 && *version != 3)
        return err_set(err, ST_UNSUPPORTED, "GGUF version %u is not supported; 2 and 3 are",
                       *version);
    if (!take_u64(r, n_tensors) || !take_u64(r, n_kvs))
        return err_set(err, ST_BAD_INPUT,
                       "the file ends before the counts of tensors and keys");
    return ST_OK;
}

static enum status parse_all(struct reader *r, struct gguf_header *h,
                             const struct gguf_options *opts, struct err *err) {
    uint64_t n_tensors = 0, n_kvs = 0;
    uint32_t alignment;
    TRY(parse_preamble(r, &h->version, &n_tensors, &n_kvs, err));
    TRY(parse_kvs(r, h, n_kvs, err));
    TRY(sort_kvs(h, err));
    TRY(read_alignment(h, &alignment, err));
    TRY(parse_tensors(r, h, n_tensors, opts && opts->folder, err));
    TRY(check_tensors(h, alignment, err));
    return place_tensors(r, h, alignment, opts, err);
}

enum status gguf_parse(struct gguf_header *out, const uint8_t *bytes, size_t len,
                       const struct gguf_options *opts, struct err *err) {
    struct reader r = {bytes, bytes, bytes + len};
    struct gguf_header h = {0};
    enum status st = parse_all(&r, &h, opts, err);
    if (st != ST_OK) {
        gguf_header_deinit(&h);
        return st;
    }
    *out = h;
    return ST_OK;
}

void gguf_header_deinit(struct gguf_header *h) {
    for (size_t i = 0; i < h->n_kvs; i++)
        mem_free((void *)h->kvs[i].array.strs);
    mem_free(h->kvs);
    mem_free(h->kvs_by_key);
    mem_free(h->tensors);
    *h = (struct gguf_header){0};
}
