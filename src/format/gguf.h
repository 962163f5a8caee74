/* gguf.h: a model's metadata and tensors, read from memory maps, checked once, then trusted.
 *
 * gguf_open() reads one GGUF v2 or v3 file, or all parts of a split model
 * (NAME-00001-of-0000N.gguf: any part may be given). A Hugging Face folder looks like a GGUF whose
 * tensors' rows are made on demand (rows.h): hf_folder.h opens both.
 *
 * It refuses hostile files with one sentence. After ST_OK, every string is in bounds, every
 * array has the length that it claims, every tensor's data lies inside its part, and nothing
 * overlaps. It does not know the meaning of the metadata: model/ and tokenizer/ check their own
 * keys.
 *
 * Everything returned is borrowed and lives until gguf_close(). Strings are not NUL-terminated.
 * Any number of threads may use a const struct gguf. */
#ifndef LOCKSTEP_FORMAT_GGUF_H
#define LOCKSTEP_FORMAT_GGUF_H

#include "base/file_id.h"
#include "base/status.h"
#include "quant/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;
struct tensor_rows;

#define GGUF_MAX_DIMS 4
#define GGUF_NAME_MAX 64 /* bytes of a tensor name, as the reference implementation */

struct gguf_str {
    const char *ptr; /* not NUL-terminated; NULL only for "absent" */
    size_t len;
};

enum gguf_value_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

struct gguf_array {
    enum gguf_value_type type; /* of the elements; never GGUF_ARRAY */
    size_t n;
    const uint8_t *data;         /* scalars: packed little-endian, unaligned; bool: one byte */
    const struct gguf_str *strs; /* GGUF_STRING: [n]; otherwise NULL */
};

struct gguf_tensor {
    char name[GGUF_NAME_MAX + 1]; /* NUL-terminated, no NUL inside */
    enum qtype type;
    uint32_t n_dims;              /* 1 to 4 */
    uint64_t dims[GGUF_MAX_DIMS]; /* innermost (columns) first, 1 beyond n_dims; all > 0 */
    uint64_t size_bytes;
    /* in the map, aligned to 8 bytes at least; NULL in a file that has only a header (options),
     * and where there are rows */
    const uint8_t *data;
    const struct tensor_rows *rows; /* of a folder: rows.h reads either kind */
    uint32_t part;                  /* which file of a split model */
    uint64_t offset;                /* of data in that file: for pread() */
};

struct gguf_options {
    /* accept a file that ends after the header (`synth --header-only`, a vocabulary-only file
     * needs no flag) */
    bool header_only;
    bool folder; /* the header that hf_folder.c makes: types of its own */
};

/* path: a file, or a part of a split model. opts may be NULL. */
enum status gguf_open(struct gguf **out, const char *path, const struct gguf_options *opts,
                      struct err *err);
void gguf_close(struct gguf *g); /* NULL is fine */

/* "DIR/NAME-00002-of-00003.gguf": a part of a split model. */
struct gguf_part {
    size_t n_stem; /* letters before "-00002" */
    unsigned no, count;
};
/* False: the path has no such form. */
bool gguf_part_of(const char *path, struct gguf_part *out);
/* The path of part `no` of the same model. False: too long. */
bool gguf_part_name(const char *path, const struct gguf_part *part, unsigned no, char *out,
                    size_t size);

const char *gguf_path(const struct gguf *g); /* of the first part */
const char *gguf_part_path(const struct gguf *g, uint32_t part);
struct file_id gguf_part_id(const struct gguf *g, uint32_t part); /* when it was opened */
/* ST_BAD_INPUT: one of its files was written to or truncated since it was opened, so data read
 * from it is unusable. Allocates nothing; takes a system call per file. */
enum status gguf_check_intact(const struct gguf *g, struct err *err);
/* ST_BAD_INPUT: a new file at this path (base/file.h) would replace one of the model's files,
 * under any name, when it is complete or while it is being written. Writing it would lose the
 * model. */
enum status gguf_check_output(const struct gguf *g, const char *path, struct err *err);
uint32_t gguf_n_parts(const struct gguf *g);
uint32_t gguf_version(const struct gguf *g);    /* 0: a folder */
uint64_t gguf_file_bytes(const struct gguf *g); /* all parts together */

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
/* NULL if it is absent. A binary search. */
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);
/* The tensor with the scales of whole matrices that NVFP4 files keep beside weights t, an f32
 * for each matrix: x.scale or x.weight.scale. NULL if it is absent. Its type and shape are as
 * the file has them. */
const struct gguf_tensor *gguf_scale_of(const struct gguf *g, const struct gguf_tensor *t);

/* Numbers that a tensor holds. */
static inline uint64_t gguf_n_values(const struct gguf_tensor *t) {
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}
/* All tensors together, and those of each type. */
struct gguf_totals {
    uint64_t n_values, n_bytes;
    struct gguf_type_totals {
        uint64_t n_tensors, n_values, n_bytes;
    } types[QT_N];
};
void gguf_totals(const struct gguf *g, struct gguf_totals *out);

/* Drops the pages of [data, data+len) from this process's map: after packing, so that
 * a slice is not resident twice. */
void gguf_forget(const struct gguf *g, const void *data, size_t len);

/* --- metadata ----------------------------------------------------------------------- */

size_t gguf_n_keys(const struct gguf *g);
struct gguf_str gguf_key_at(const struct gguf *g, size_t i);
bool gguf_has(const struct gguf *g, const char *key);
/* false if the key is absent. */
bool gguf_value_type(const struct gguf *g, const char *key, enum gguf_value_type *out);
/* A short text of the value for people ("[128256 strings]", "llama", "0.5"); always
 * NUL-terminated, control characters escaped. */
void gguf_value_text(const struct gguf *g, const char *key, char *buf, size_t size);

/* s for people: control and non-ASCII bytes as \xNN, cut with "..." where it does not
 * fit (size > 0). Returns buf. */
const char *gguf_escape(struct gguf_str s, char *buf, size_t size);

/* Each returns ST_OK and the value, ST_NOT_FOUND if the key is absent, or ST_BAD_INPUT if the
 * value has another type or does not fit. u32/u64 accept any integer type if the value fits;
 * f32 accepts any integer or float type. The sentence names the file and the key. */
enum status gguf_u32(const struct gguf *g, const char *key, uint32_t *out, struct err *err);
enum status gguf_u64(const struct gguf *g, const char *key, uint64_t *out, struct err *err);
enum status gguf_f32(const struct gguf *g, const char *key, float *out, struct err *err);
enum status gguf_bool(const struct gguf *g, const char *key, bool *out, struct err *err);
enum status gguf_str(const struct gguf *g, const char *key, struct gguf_str *out,
                     struct err *err);
enum status gguf_array(const struct gguf *g, const char *key, struct gguf_array *out,
                       struct err *err);

/* Element i of a scalar array; the caller has checked the type. */
int64_t gguf_array_int(const struct gguf_array *a, size_t i);
double gguf_array_float(const struct gguf_array *a, size_t i);

#endif
