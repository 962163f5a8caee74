/* gguf_parse.h: the header of one GGUF file, from bytes to checked views. Pure: it reads only
 * the bytes that it is given, so tests and the fuzzer can place them anywhere. For src/format
 * and its tests only; all other code uses gguf.h. */
#ifndef LOCKSTEP_FORMAT_GGUF_PARSE_H
#define LOCKSTEP_FORMAT_GGUF_PARSE_H

#include "base/file_map.h"
#include "format/gguf.h"
#include "format/rows.h"

#define GGUF_MAGIC "GGUF"
#define GGUF_DEFAULT_ALIGNMENT 32
/* Limits of ours, far above any real file, so that a hostile one costs little. */
#define GGUF_MAX_ALIGNMENT (1u << 20)
#define GGUF_MAX_KEYS (1u << 16)
#define GGUF_MAX_KEY_BYTES 65535 /* the format's own */
#define GGUF_MAX_TENSORS (1u << 20)

struct gguf_kv {
    struct gguf_str key;
    enum gguf_value_type type;
    const uint8_t *scalar;   /* numbers and bool: little-endian, unaligned */
    struct gguf_str str;     /* GGUF_STRING */
    struct gguf_array array; /* GGUF_ARRAY; array.strs is owned */
};

struct gguf_header {
    uint32_t version;
    struct gguf_kv *kvs; /* [n_kvs] in the order of the file */
    size_t n_kvs;
    const struct gguf_kv **kvs_by_key; /* [n_kvs] sorted; no two are equal */
    struct gguf_tensor *tensors;       /* [n_tensors] in the order of the file; part is 0 */
    size_t n_tensors;
};

/* bytes are borrowed for the life of the header. The sentence does not name the file. */
enum status gguf_parse(struct gguf_header *out, const uint8_t *bytes, size_t len,
                       const struct gguf_options *opts, struct err *err);
void gguf_header_deinit(struct gguf_header *h);

/* NULL if it is absent. */
const struct gguf_kv *gguf_header_find(const struct gguf_header *h, struct gguf_str key);

/* Bytes of a scalar of this type; 0 for strings and arrays. */
size_t gguf_scalar_bytes(enum gguf_value_type type);
/* "u32", "string"... */
const char *gguf_value_type_name(enum gguf_value_type type);

/* The key-value pair behind gguf_key_at(). */
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);

/* What hf_folder.c makes of a folder. All of it is owned. */
struct gguf_made {
    char *folder;           /* its path */
    struct file_map *parts; /* [n_parts] */
    uint32_t n_parts;
    uint8_t *header; /* a GGUF without data; in owned as well */
    size_t header_len;
    struct tensor_rows *rows; /* of the header's tensors, in order; in owned as well */
    void **owned;             /* [n_owned] */
    size_t n_owned;
};
/* Takes everything over, and zeroes *made, on success only. */
enum status gguf_open_made(struct gguf **out, struct gguf_made *made, struct err *err);

/* As gguf_open(), of a single file that lies in memory; the bytes are borrowed. */
enum status gguf_open_bytes(struct gguf **out, const char *name, const uint8_t *bytes,
                            size_t len, const struct gguf_options *opts, struct err *err);

#endif
