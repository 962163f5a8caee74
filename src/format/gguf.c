/* gguf.c: opens one model from its files. It maps each part, has gguf_parse.c check it, joins
 * the tensors of a split model, and looks up keys and tensors.
 * Immutable once opened. */
#include "format/gguf.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/util.h"
#include "format/gguf_parse.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PARTS 10000 /* five digits of a part's name are more than anybody needs */

struct gguf {
    char *folder;           /* NULL: a file */
    struct file_map *parts; /* [n_parts] */
    uint32_t n_parts;
    struct gguf_header head;     /* of the first part; its tensors moved to the list below */
    struct gguf_tensor *tensors; /* [n_tensors] of all parts, in order */
    size_t n_tensors;
    const struct gguf_tensor **by_name; /* [n_tensors] sorted */
    void **owned;                       /* [n_owned] of a folder: what the above point into */
    size_t n_owned;
};

void gguf_close(struct gguf *g) {
    if (!g)
        return;
    for (uint32_t i = 0; i < g->n_parts; i++)
        file_map_close(&g->parts[i]);
    for (size_t i = 0; i < g->n_owned; i++)
        mem_free(g->owned[i]);
    mem_free(g->owned);
    mem_free(g->folder);
    mem_free(g->parts);
    gguf_header_deinit(&g->head);
    mem_free(g->tensors);
    mem_free(g->by_name);
    mem_free(g);
}

/* ---- joining parts ----------------------------------------------------------------- */

static const struct gguf_kv *find(const struct gguf *g, const char *key) {
    return gguf_header_find(&g->head, (struct gguf_str){key, strlen(key)});
}

static bool scalar_int(const struct gguf_kv *kv, int64_t *out);

/* split.no or split.count of a part; fallback if the key is absent. */
static enum status split_number(const struct gguf_header *h, const char *key, int64_t fallback,
                                int64_t *out, struct err *err) {
    const struct gguf_kv *kv = gguf_header_find(h, (struct gguf_str){key, strlen(key)});
    *out = fallback;
    if (kv && (!scalar_int(kv, out) || *out < 0))
        return err_set(err, ST_BAD_INPUT, "%s is not a count", key);
    return ST_OK;
}

bool gguf_part_of(const char *path, struct gguf_part *out) {
    static const char form[] = "-00000-of-00000.gguf";
    size_t len = strlen(path), n_form = sizeof form - 1;
    struct gguf_part part = {.n_stem = len - n_form};
    if (len <= n_form)
        return false;
    for (size_t i = 0; i < n_form; i++) {
        char c = path[part.n_stem + i];
        if (form[i] == '0' ? c < '0' || c > '9' : c != form[i])
            return false;
    }
    if (sscanf(path + part.n_stem, "-%5u-of-%5u", &part.no, &part.count) != 2 || part.no == 0 ||
        part.no > part.count)
        return false;
    *out = part;
    return true;
}

bool gguf_part_name(const char *path, const struct gguf_part *part, unsigned no, char *out,
                    size_t size) {
    return snprintf(out, size, "%.*s-%05u-of-%05u.gguf", (int)part->n_stem, path, no,
                    part->count) < (int)size;
}

/* The path of part no (from 0) of the model that begins at `path`. False: the name does not
 * have that many parts. */
static bool part_name(const char *path, uint32_t no, uint32_t n_parts, char *out, size_t size) {
    struct gguf_part part;
    return gguf_part_of(path, &part) && part.no == 1 && part.count == n_parts &&
           gguf_part_name(path, &part, no + 1, out, size);
}

/* Moves h's tensors to the end of g's. */
static enum status adopt_tensors(struct gguf *g, struct gguf_header *h, uint32_t part,
                                 struct err *err) {
    for (size_t i = 0; i < h->n_tensors; i++)
        h->tensors[i].part = part;
    if (g->n_tensors == 0) {
        mem_free(g->tensors);
        g->tensors = h->tensors;
        g->n_tensors = h->n_tensors;
        h->tensors = NULL;
    } else if (h->n_tensors > 0) {
        size_t n = g->n_tensors + h->n_tensors;
        struct gguf_tensor *all = mem_realloc(g->tensors, n * sizeof *all);
        if (!all)
            return err_set(err, ST_NO_MEMORY, "no memory for %zu tensors", n);
        memcpy(all + g->n_tensors, h->tensors, h->n_tensors * sizeof *all);
        g->tensors = all;
        g->n_tensors = n;
    }
    h->n_tensors = 0;
    return ST_OK;
}

static enum status open_later_part(struct gguf *g, uint32_t no, const char *path,
                                   const struct gguf_options *opts, struct err *err) {
    TRY(file_map_open(&g->parts[no], path, err));
    g->n_parts = no + 1;
    struct gguf_header h;
    enum status st = gguf_parse(&h, g->parts[no].bytes, g->parts[no].size, opts, err);
    if (st != ST_OK)
        return err_prefix(err, st, "%s: ", path);
    int64_t own_no = -1, own_count = -1;
    st = split_number(&h, "split.no", -1, &own_no, err);
    if (st == ST_OK)
        st = split_number(&h, "split.count", -1, &own_count, err);
    int64_t count;
    if (st == ST_OK)
        st = split_number(&g->head, "split.count", -1, &count, err);
    if (st == ST_OK && (own_no != no || own_count != count))
        st = err_set(err, ST_BAD_INPUT,
                     "expected part %u of %lld, but it says part %lld of %lld", no + 1,
                     (long long)count, (long long)own_no + 1, (long long)own_count);
    if (st == ST_OK)
        st = adopt_tensors(g, &h, no, err);
    gguf_header_deinit(&h);
    return st == ST_OK ? ST_OK : err_prefix(err, st, "%s: ", path);
}

static enum status check_split_total(const struct gguf *g, struct err *err) {
    int64_t total;
    TRY(split_number(&g->head, "split.tensors.count", (int64_t)g->n_tensors, &total, err));
    if (total != (int64_t)g->n_tensors)
        return err_set(err, ST_BAD_INPUT,
                       "%s: the parts hold %zu tensors, split.tensors.count says %lld",
                       g->parts[0].path, g->n_tensors, (long long)total);
    return ST_OK;
}

static enum status open_other_parts(struct gguf *g, const struct gguf_options *opts,
                                    struct err *err) {
    const char *first = g->parts[0].path;
    int64_t no, count;
    enum status st = split_number(&g->head, "split.no", 0, &no, err);
    if (st == ST_OK)
        st = split_number(&g->head, "split.count", 0, &count, err);
    if (st != ST_OK)
        return err_prefix(err, st, "%s: ", first);
    if (count <= 1 && no == 0)
        return ST_OK;
    if (count > MAX_PARTS || no >= count)
        return err_set(err, ST_BAD_INPUT, "%s: says it is part %lld of %lld", first,
                       (long long)no + 1, (long long)count);
    if (no != 0)
        return err_set(
            err, ST_BAD_INPUT,
            "%s: is part %lld of %lld; open the first one (...-00001-of-%05lld.gguf)", first,
            (long long)no + 1, (long long)count, (long long)count);
    struct file_map *parts = mem_realloc(g->parts, (size_t)count * sizeof *parts);
    if (!parts)
        return err_set(err, ST_NO_MEMORY, "%s: no memory", first);
    g->parts = parts;
    for (uint32_t i = 1; i < count; i++) {
        char path[PATH_MAX];
        if (!part_name(first, i, (uint32_t)count, path, sizeof path))
            return err_set(
                err, ST_BAD_INPUT,
                "%s: is part 1 of %lld, but its name does not end in -00001-of-%05lld.gguf, so "
                "the others cannot be found",
                first, (long long)count, (long long)count);
        TRY(open_later_part(g, i, path, opts, err));
    }
    return check_split_total(g, err);
}

static int compare_name(const void *a, const void *b) {
    const struct gguf_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static enum status sort_tensors(struct gguf *g, struct err *err) {
    g->by_name = mem_calloc(MAX(g->n_tensors, 1), sizeof *g->by_name);
    if (!g->by_name)
        return err_set(err, ST_NO_MEMORY, "%s: no memory", gguf_path(g));
    for (size_t i = 0; i < g->n_tensors; i++)
        g->by_name[i] = &g->tensors[i];
    qsort(g->by_name, g->n_tensors, sizeof *g->by_name, compare_name);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (str_eq(g->by_name[i - 1]->name, g->by_name[i]->name))
            return err_set(err, ST_BAD_INPUT, "%s: tensor %s is in two parts", gguf_path(g),
                           g->by_name[i]->name);
    return ST_OK;
}

/* Takes over first. */
static enum status open_parts(struct gguf **out, struct file_map first,
                              const struct gguf_options *opts, struct err *err) {
    struct gguf *g = mem_calloc(1, sizeof *g);
    struct file_map *parts = mem_calloc(1, sizeof *parts);
    if (!g || !parts) {
        file_map_close(&first);
        mem_free(parts);
        mem_free(g);
        return err_set(err, ST_NO_MEMORY, "no memory");
    }
    parts[0] = first;
    g->parts = parts;
    g->n_parts = 1;
    enum status st = gguf_parse(&g->head, first.bytes, first.size, opts, err);
    if (st != ST_OK)
        err_prefix(err, st, "%s: ", first.path);
    if (st == ST_OK)
        st = adopt_tensors(g, &g->head, 0, err);
    if (st == ST_OK)
        st = open_other_parts(g, opts, err);
    if (st == ST_OK)
        st = sort_tensors(g, err);
    if (st != ST_OK) {
        gguf_close(g);
        return st;
    }
    *out = g;
    return ST_OK;
}

static void guard_parts(struct gguf *g) {
    for (uint32_t i = 0; i < g->n_parts; i++)
        file_map_guard(&g->parts[i]);
}

enum status gguf_open(struct gguf **out, const char *path, const struct gguf_options *opts,
                      struct err *err) {
    struct file_map first;
    TRY(file_map_open(&first, path, err));
    TRY(open_parts(out, first, opts, err));
    guard_parts(*out);
    return ST_OK;
}

enum status gguf_open_bytes(struct gguf **out, const char *name, const uint8_t *bytes,
                            size_t len, const struct gguf_options *opts, struct err *err) {
    struct file_map first = {.path = mem_strdup(name), .bytes = bytes, .size = len};
    if (!first.path)
        return err_set(err, ST_NO_MEMORY, "%s: no memory", name);
    return open_parts(out, first, opts, err);
}

enum status gguf_open_made(struct gguf **out, struct gguf_made *made, struct err *err) {
    static const struct gguf_options opts = {.header_only = true, .folder = true};
    struct gguf *g = mem_calloc(1, sizeof *g);
    if (!g)
        return err_set(err, ST_NO_MEMORY, "%s: no memory", made->folder);
    enum status st = gguf_parse(&g->head, made->header, made->header_len, &opts, err);
    if (st == ST_OK)
        st = adopt_tensors(g, &g->head, 0, err);
    g->folder = made->folder;
    if (st == ST_OK)
        st = sort_tensors(g, err);
    if (st != ST_OK) {
        g->folder = NULL;
        gguf_close(g);
        return st;
    }
    for (size_t i = 0; i < g->n_tensors; i++)
        g->tensors[i].rows = &made->rows[i];
    g->parts = made->parts;
    g->n_parts = made->n_parts;
    g->owned = made->owned;
    g->n_owned = made->n_owned;
    guard_parts(g);
    *made = (struct gguf_made){0};
    *out = g;
    return ST_OK;
}

const char *gguf_path(const struct gguf *g) {
    return g->folder != NULL ? g->folder : g->parts[0].path;
}

const char *gguf_part_path(const struct gguf *g, uint32_t part) {
    BUG_ON(part >= g->n_parts);
    return g->parts[part].path;
}

struct file_id gguf_part_id(const struct gguf *g, uint32_t part) {
    BUG_ON(part >= g->n_parts);
    return g->parts[part].id;
}

enum status gguf_check_intact(const struct gguf *g, struct err *err) {
    for (uint32_t i = 0; i < g->n_parts; i++)
        if (!file_map_is_intact(&g->parts[i]))
            return err_set(err, ST_BAD_INPUT,
                           "%s was changed while it was open: the model that was opened is "
                           "there no more",
                           g->parts[i].path);
    return ST_OK;
}

static bool is_part_at(const struct gguf *g, const char *path) {
    struct stat at, part;
    if (stat(path, &at) != 0)
        return false;
    for (uint32_t i = 0; i < g->n_parts; i++)
        if (stat(g->parts[i].path, &part) == 0 && part.st_dev == at.st_dev &&
            part.st_ino == at.st_ino)
            return true;
    return false;
}

enum status gguf_check_output(const struct gguf *g, const char *path, struct err *err) {
    char under_way[PATH_MAX];
    int n = snprintf(under_way, sizeof under_way, "%s" FILE_NEW_TAIL, path);
    if (is_part_at(g, path))
        return err_set(err, ST_BAD_INPUT,
                       "%s is the model that is read; name another file to write", path);
    if (n > 0 && (size_t)n < sizeof under_way && is_part_at(g, under_way))
        return err_set(err, ST_BAD_INPUT,
                       "%s is written as %s first, which is the model that is read; name "
                       "another file to write",
                       path, under_way);
    return ST_OK;
}

uint32_t gguf_n_parts(const struct gguf *g) {
    return g->n_parts;
}

uint32_t gguf_version(const struct gguf *g) {
    return g->folder != NULL ? 0 : g->head.version;
}

uint64_t gguf_file_bytes(const struct gguf *g) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->n_parts; i++)
        bytes += g->parts[i].size;
    return bytes;
}

/* ---- tensors ----------------------------------------------------------------------- */

size_t gguf_n_tensors(const struct gguf *g) {
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i) {
    BUG_ON(i >= g->n_tensors);
    return &g->tensors[i];
}

void gguf_totals(const struct gguf *g, struct gguf_totals *out) {
    *out = (struct gguf_totals){.n_values = 0};
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct gguf_type_totals *type = &out->types[t->type];
        type->n_tensors++;
        type->n_values += gguf_n_values(t);
        type->n_bytes += t->size_bytes;
        out->n_values += gguf_n_values(t);
        out->n_bytes += t->size_bytes;
    }
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name) {
    size_t begin = 0, end = g->n_tensors;
    while (begin < end) {
        size_t mid = begin + (end - begin) / 2;
        int c = strcmp(name, g->by_name[mid]->name);
        if (c == 0)
            return g->by_name[mid];
        if (c < 0)
            end = mid;
        else
            begin = mid + 1;
    }
    return NULL;
}

const struct gguf_tensor *gguf_scale_of(const struct gguf *g, const struct gguf_tensor *t) {
    char name[GGUF_NAME_MAX + 8];
    int stem = (int)(strlen(t->name) - strlen("weight"));
    snprintf(name, sizeof name, "%.*sscale", MAX(stem, 0), t->name);
    const struct gguf_tensor *s = gguf_tensor(g, name);
    if (s != NULL)
        return s;
    snprintf(name, sizeof name, "%s.scale", t->name);
    return gguf_tensor(g, name);
}

void gguf_forget(const struct gguf *g, const void *data, size_t len) {
    (void)g;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = round_up((uintptr_t)data, page);
    uintptr_t end = ((uintptr_t)data + len) / page * page;
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* ---- metadata ---------------------------------------------------------------------- */

size_t gguf_n_keys(const struct gguf *g) {
    return g->head.n_kvs;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i) {
    BUG_ON(i >= g->head.n_kvs);
    return &g->head.kvs[i];
}

struct gguf_str gguf_key_at(const struct gguf *g, size_t i) {
    return gguf_kv_at(g, i)->key;
}

bool gguf_has(const struct gguf *g, const char *key) {
    return find(g, key) != NULL;
}

bool gguf_value_type(const struct gguf *g, const char *key, enum gguf_value_type *out) {
    const struct gguf_kv *kv = find(g, key);
    if (kv)
        *out = kv->type;
    return kv != NULL;
}

#define READ(type, p)                        \
    __extension__({                          \
        type value_;                         \
        memcpy(&value_, (p), sizeof value_); \
        value_;                              \
    })

/* u64 above the range of int64_t wraps: scalar_int() and gguf_u64() look again. */
static int64_t read_int(enum gguf_value_type type, const uint8_t *p) {
    switch (type) {
    case GGUF_U8:
    case GGUF_BOOL:
        return READ(uint8_t, p);
    case GGUF_I8:
        return READ(int8_t, p);
    case GGUF_U16:
        return READ(uint16_t, p);
    case GGUF_I16:
        return READ(int16_t, p);
    case GGUF_U32:
        return READ(uint32_t, p);
    case GGUF_I32:
        return READ(int32_t, p);
    case GGUF_U64:
    case GGUF_I64:
        return READ(int64_t, p);
    case GGUF_F32:
    case GGUF_F64:
    case GGUF_STRING:
    case GGUF_ARRAY:
        break;
    }
    return 0;
}

static bool is_int(enum gguf_value_type type) {
    return gguf_scalar_bytes(type) > 0 && type != GGUF_BOOL && type != GGUF_F32 &&
           type != GGUF_F64;
}

static double read_float(enum gguf_value_type type, const uint8_t *p) {
    if (type == GGUF_F32)
        return (double)READ(float, p);
    if (type == GGUF_F64)
        return READ(double, p);
    if (type == GGUF_U64)
        return (double)READ(uint64_t, p);
    return (double)read_int(type, p);
}

/* False if kv is not an integer or exceeds the range of int64_t. */
static bool scalar_int(const struct gguf_kv *kv, int64_t *out) {
    if (!is_int(kv->type))
        return false;
    int64_t v = read_int(kv->type, kv->scalar);
    if (kv->type == GGUF_U64 && v < 0)
        return false;
    *out = v;
    return true;
}

static enum status wrong_type(const struct gguf *g, const struct gguf_kv *kv,
                              const char *expected, struct err *err) {
    char key[100], value[64];
    gguf_escape(kv->key, key, sizeof key);
    gguf_value_text(g, key, value, sizeof value);
    return err_set(err, ST_BAD_INPUT, "%s: key %s is %s (%s), expected %s", gguf_path(g), key,
                   value, gguf_value_type_name(kv->type), expected);
}

static enum status find_or_error(const struct gguf *g, const char *key,
                                 const struct gguf_kv **out, struct err *err) {
    *out = find(g, key);
    if (!*out)
        return err_set(err, ST_NOT_FOUND, "%s: has no key %s", gguf_path(g), key);
    return ST_OK;
}

enum status gguf_u32(const struct gguf *g, const char *key, uint32_t *out, struct err *err) {
    const struct gguf_kv *kv;
    int64_t v;
    TRY(find_or_error(g, key, &kv, err));
    if (!scalar_int(kv, &v) || v < 0 || v > UINT32_MAX)
        return wrong_type(g, kv, "an integer from 0 to 2^32-1", err);
    *out = (uint32_t)v;
    return ST_OK;
}

enum status gguf_u64(const struct gguf *g, const char *key, uint64_t *out, struct err *err) {
    const struct gguf_kv *kv;
    TRY(find_or_error(g, key, &kv, err));
    if (!is_int(kv->type) || (kv->type != GGUF_U64 && read_int(kv->type, kv->scalar) < 0))
        return wrong_type(g, kv, "an integer, not negative", err);
    *out = (uint64_t)read_int(kv->type, kv->scalar);
    return ST_OK;
}

enum status gguf_f32(const struct gguf *g, const char *key, float *out, struct err *err) {
    const struct gguf_kv *kv;
    TRY(find_or_error(g, key, &kv, err));
    if (!is_int(kv->type) && kv->type != GGUF_F32 && kv->type != GGUF_F64)
        return wrong_type(g, kv, "a number", err);
    *out = (float)read_float(kv->type, kv->scalar);
    return ST_OK;
}

enum status gguf_bool(const struct gguf *g, const char *key, bool *out, struct err *err) {
    const struct gguf_kv *kv;
    TRY(find_or_error(g, key, &kv, err));
    if (kv->type != GGUF_BOOL)
        return wrong_type(g, kv, "true or false", err);
    *out = *kv->scalar != 0;
    return ST_OK;
}

enum status gguf_str(const struct gguf *g, const char *key, struct gguf_str *out,
                     struct err *err) {
    const struct gguf_kv *kv;
    TRY(find_or_error(g, key, &kv, err));
    if (kv->type != GGUF_STRING)
        return wrong_type(g, kv, "a string", err);
    *out = kv->str;
    return ST_OK;
}

enum status gguf_array(const struct gguf *g, const char *key, struct gguf_array *out,
                       struct err *err) {
    const struct gguf_kv *kv;
    TRY(find_or_error(g, key, &kv, err));
    if (kv->type != GGUF_ARRAY)
        return wrong_type(g, kv, "an array", err);
    *out = kv->array;
    return ST_OK;
}

int64_t gguf_array_int(const struct gguf_array *a, size_t i) {
    BUG_ON(i >= a->n || (!is_int(a->type) && a->type != GGUF_BOOL));
    return read_int(a->type, a->data + i * gguf_scalar_bytes(a->type));
}

double gguf_array_float(const struct gguf_array *a, size_t i) {
    BUG_ON(i >= a->n || gguf_scalar_bytes(a->type) == 0);
    return read_float(a->type, a->data + i * gguf_scalar_bytes(a->type));
}

/* With the fewest digits, but six, that no other number of the type has. */
static void float_text(enum gguf_value_type type, double v, char *buf, size_t size) {
    const bool single = type == GGUF_F32;
    char text[32];
    for (int digits = 6; digits <= (single ? 9 : 17); digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if ((single ? (double)strtof(text, NULL) : strtod(text, NULL)) == v)
            break;
    }
    snprintf(buf, size, "%s", text);
}

void gguf_value_text(const struct gguf *g, const char *key, char *buf, size_t size) {
    const struct gguf_kv *kv = find(g, key);
    if (size == 0)
        return;
    if (!kv)
        snprintf(buf, size, "(absent)");
    else if (kv->type == GGUF_STRING)
        gguf_escape(kv->str, buf, size);
    else if (kv->type == GGUF_ARRAY)
        snprintf(buf, size, "[%zu %s%s]", kv->array.n, gguf_value_type_name(kv->array.type),
                 kv->array.type == GGUF_STRING && kv->array.n != 1 ? "s" : "");
    else if (kv->type == GGUF_BOOL)
        snprintf(buf, size, "%s", *kv->scalar ? "true" : "false");
    else if (kv->type == GGUF_F32 || kv->type == GGUF_F64)
        float_text(kv->type, read_float(kv->type, kv->scalar), buf, size);
    else if (kv->type == GGUF_U64)
        snprintf(buf, size, "%llu", READ(unsigned long long, kv->scalar));
    else
        snprintf(buf, size, "%lld", (long long)read_int(kv->type, kv->scalar));
}
