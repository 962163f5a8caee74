/* safetensors.h: the header of one safetensors file, from bytes to checked views.
 *
 * A file is a u64 (little-endian) length, that many bytes of JSON, and the data. After ST_OK
 * every tensor has a type of known size and a shape whose product matches its number of bytes,
 * and lies inside the data. No two overlap, and no two have the same name. Pure: reads only the
 * bytes. */
#ifndef LOCKSTEP_HF_SAFETENSORS_H
#define LOCKSTEP_HF_SAFETENSORS_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define SAFE_MAX_DIMS 8
#define SAFE_MAX_HEADER_BYTES 100000000u /* the reference implementation's limit */
#define SAFE_MAX_TENSORS (1u << 20)
#define SAFE_NAME_MAX 255

enum safe_dtype {
    SAFE_F64,
    SAFE_F32,
    SAFE_F16,
    SAFE_BF16,
    SAFE_F8_E4M3,
    SAFE_F8_E5M2,
    SAFE_F8_E8M0,
    SAFE_I64,
    SAFE_I32,
    SAFE_I16,
    SAFE_I8,
    SAFE_U64,
    SAFE_U32,
    SAFE_U16,
    SAFE_U8,
    SAFE_BOOL,
    N_SAFE_DTYPES
};

struct safe_tensor {
    char *name; /* owned */
    enum safe_dtype dtype;
    uint32_t n_dims;              /* 0: a scalar */
    uint64_t dims[SAFE_MAX_DIMS]; /* outermost (rows) first; 1 beyond n_dims */
    const uint8_t *data;          /* no alignment is promised */
    uint64_t size_bytes;
};

struct safe_file {
    struct safe_tensor *tensors; /* [n], sorted by name */
    size_t n;
};

/* "BF16" */
const char *safe_dtype_name(enum safe_dtype t);
uint32_t safe_dtype_bytes(enum safe_dtype t);

/* bytes are borrowed for the life of the views. The sentence does not name the file. */
enum status safetensors_parse(struct safe_file *out, const uint8_t *bytes, size_t len,
                              struct err *err);
void safetensors_deinit(struct safe_file *f);

#endif
