/* safetensors.c: the header's parser. jansson reads the JSON (it limits depth and refuses
 * duplicate keys). Every number in it is checked here before it is used. */
#include "hf/safetensors.h"

#include "base/mem.h"
#include "base/util.h"
#include "format/gguf.h"

#include <jansson.h>
#include <stdlib.h>

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[N_SAFE_DTYPES] = {
    [SAFE_F64] = {"F64", 8},         [SAFE_F32] = {"F32", 4},
    [SAFE_F16] = {"F16", 2},         [SAFE_BF16] = {"BF16", 2},
    [SAFE_F8_E4M3] = {"F8_E4M3", 1}, [SAFE_F8_E5M2] = {"F8_E5M2", 1},
    [SAFE_F8_E8M0] = {"F8_E8M0", 1}, [SAFE_I64] = {"I64", 8},
    [SAFE_I32] = {"I32", 4},         [SAFE_I16] = {"I16", 2},
    [SAFE_I8] = {"I8", 1},           [SAFE_U64] = {"U64", 8},
    [SAFE_U32] = {"U32", 4},         [SAFE_U16] = {"U16", 2},
    [SAFE_U8] = {"U8", 1},           [SAFE_BOOL] = {"BOOL", 1},
};

const char *safe_dtype_name(enum safe_dtype t) {
    return dtypes[t].name;
}

uint32_t safe_dtype_bytes(enum safe_dtype t) {
    return dtypes[t].bytes;
}

struct shown {
    char text[100];
};

static struct shown show(const char *s) {
    struct shown q;
    gguf_escape((struct gguf_str){s, strlen(s)}, q.text, sizeof q.text);
    return q;
}

static enum status read_dtype(const json_t *entry, const char *name, enum safe_dtype *out,
                              struct err *err) {
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    if (!text)
        return err_set(err, ST_BAD_INPUT, "tensor %s has no dtype", show(name).text);
    for (int t = 0; t < N_SAFE_DTYPES; t++) {
        if (str_eq(dtypes[t].name, text)) {
            *out = (enum safe_dtype)t;
            return ST_OK;
        }
    }
    return err_set(err, ST_UNSUPPORTED, "tensor %s has the unknown dtype %s", show(name).text,
                   show(text).text);
}

/* Fills dims and size_bytes. */
static enum status read_shape(const json_t *entry, struct safe_tensor *t, struct err *err) {
    const json_t *shape = json_object_get(entry, "shape"), *dim;
    size_t i;
    if (!json_is_array(shape) || json_array_size(shape) > SAFE_MAX_DIMS)
        return err_set(err, ST_BAD_INPUT,
                       "tensor %s: its shape is not a list of at most %d numbers",
                       show(t->name).text, SAFE_MAX_DIMS);
    t->n_dims = (uint32_t)json_array_size(shape);
    t->size_bytes = dtypes[t->dtype].bytes;
    for (i = 0; i < SAFE_MAX_DIMS; i++)
        t->dims[i] = 1;
    json_array_foreach(shape, i, dim) {
        json_int_t n = json_integer_value(dim);
        if (!json_is_integer(dim) || n < 0)
            return err_set(err, ST_BAD_INPUT, "tensor %s: dimension %zu is not a count",
                           show(t->name).text, i);
        t->dims[i] = (uint64_t)n;
        if (__builtin_mul_overflow(t->size_bytes, t->dims[i], &t->size_bytes) ||
            t->size_bytes > INT64_MAX)
            return err_set(err, ST_BAD_INPUT, "tensor %s: its size overflows",
                           show(t->name).text);
    }
    return ST_OK;
}

static enum status read_place(const json_t *entry, const uint8_t *data, size_t data_len,
                              struct safe_tensor *t, struct err *err) {
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *b = json_array_get(offsets, 0), *e = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(b) || !json_is_integer(e) ||
        json_integer_value(b) < 0 || json_integer_value(e) < json_integer_value(b))
        return err_set(err, ST_BAD_INPUT,
                       "tensor %s: its data_offsets are not a beginning and an end",
                       show(t->name).text);
    uint64_t begin = (uint64_t)json_integer_value(b), end = (uint64_t)json_integer_value(e);
    if (end > data_len)
        return err_set(
            err, ST_BAD_INPUT,
            "tensor %s: bytes %llu to %llu of the data, but the file holds %zu: it is "
            "truncated or damaged",
            show(t->name).text, (unsigned long long)begin, (unsigned long long)end, data_len);
    if (end - begin != t->size_bytes)
        return err_set(
            err, ST_BAD_INPUT,
            "tensor %s: its shape takes %llu bytes of %s, its data_offsets hold %llu",
            show(t->name).text, (unsigned long long)t->size_bytes, dtypes[t->dtype].name,
            (unsigned long long)(end - begin));
    t->data = data + begin;
    return ST_OK;
}

static enum status read_tensor(const char *name, const json_t *entry, const uint8_t *data,
                               size_t data_len, struct safe_tensor *t, struct err *err) {
    if (name[0] == '\0' || strlen(name) > SAFE_NAME_MAX)
        return err_set(err, ST_BAD_INPUT,
                       "a tensor has a name of %zu bytes; 1 to %d are allowed", strlen(name),
                       SAFE_NAME_MAX);
    if (!json_is_object(entry))
        return err_set(err, ST_BAD_INPUT, "tensor %s is not described by an object",
                       show(name).text);
    t->name = mem_strdup(name);
    if (!t->name)
        return err_set(err, ST_NO_MEMORY, "no memory for the header");
    TRY(read_dtype(entry, name, &t->dtype, err));
    TRY(read_shape(entry, t, err));
    return read_place(entry, data, data_len, t, err);
}

static int compare_place(const void *a, const void *b) {
    const struct safe_tensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->size_bytes > y->size_bytes) - (x->size_bytes < y->size_bytes);
}

static int compare_name(const void *a, const void *b) {
    const struct safe_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static enum status check_overlap(struct safe_file *f, struct err *err) {
    qsort(f->tensors, f->n, sizeof *f->tensors, compare_place);
    const struct safe_tensor *last = NULL; /* of those with data */
    for (size_t i = 0; i < f->n; i++) {
        const struct safe_tensor *t = &f->tensors[i];
        if (t->size_bytes == 0)
            continue;
        if (last != NULL && last->data + last->size_bytes > t->data)
            return err_set(err, ST_BAD_INPUT, "tensors %s and %s overlap",
                           show(last->name).text, show(t->name).text);
        last = t;
    }
    return ST_OK;
}

static enum status read_tensors(struct safe_file *f, json_t *header, const uint8_t *data,
                                size_t data_len, struct err *err) {
    const char *name;
    json_t *entry;
    size_t n = json_object_size(header);
    if (n > SAFE_MAX_TENSORS)
        return err_set(err, ST_BAD_INPUT, "the file claims %zu tensors; %u are allowed", n,
                       SAFE_MAX_TENSORS);
    f->tensors = mem_calloc(MAX(n, 1), sizeof *f->tensors);
    if (!f->tensors)
        return err_set(err, ST_NO_MEMORY, "no memory for the header");
    json_object_foreach(header, name, entry) {
        if (str_eq(name, "__metadata__"))
            continue;
        TRY(read_tensor(name, entry, data, data_len, &f->tensors[f->n++], err));
    }
    TRY(check_overlap(f, err));
    qsort(f->tensors, f->n, sizeof *f->tensors, compare_name);
    return ST_OK;
}

enum status safetensors_parse(struct safe_file *out, const uint8_t *bytes, size_t len,
                              struct err *err) {
    uint64_t header_len;
    if (len < sizeof header_len)
        return err_set(err, ST_BAD_INPUT, "not a safetensors file: it has only %zu bytes", len);
    memcpy(&header_len, bytes, sizeof header_len);
    if (header_len > len - sizeof header_len || header_len > SAFE_MAX_HEADER_BYTES)
        return err_set(err, ST_BAD_INPUT,
                       "not a safetensors file, or truncated: a header of %llu bytes in a file "
                       "of %zu",
                       (unsigned long long)header_len, len);
    const uint8_t *data = bytes + sizeof header_len + header_len;
    json_error_t why;
    json_t *header = json_loadb((const char *)bytes + sizeof header_len, (size_t)header_len,
                                JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(header)) {
        json_decref(header);
        return err_set(err, ST_BAD_INPUT, "the header is not a JSON object: %s",
                       header ? "it is something else" : show(why.text).text);
    }
    struct safe_file f = {0};
    enum status st = read_tensors(&f, header, data, (size_t)(bytes + len - data), err);
    json_decref(header);
    if (st != ST_OK) {
        safetensors_deinit(&f);
        return st;
    }
    *out = f;
    return ST_OK;
}

void safetensors_deinit(struct safe_file *f) {
    for (size_t i = 0; i < f->n; i++)
        mem_free(f->tensors[i].name);
    mem_free(f->tensors);
    *f = (struct safe_file){0};
}
