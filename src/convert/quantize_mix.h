/* quantize_mix.h: mixes of weight types by their usual names, such as Q4_K_M. Most matrices
 * have one type, and those that lose most by it get more bits. */
#ifndef LOCKSTEP_CONVERT_QUANTIZE_MIX_H
#define LOCKSTEP_CONVERT_QUANTIZE_MIX_H

#include "format/gguf.h"

struct quantize_mix {
    const char *name;
    enum qtype type;    /* of most matrices */
    uint32_t file_type; /* general.file_type */
};

/* NULL: there is none. Q2_K, Q4_0 and others are mixes in capital letters only, for q2_k and q4_0
 * are types. */
const struct quantize_mix *quantize_mix_find(const char *name);
/* One after the other; NULL: no more. */
const struct quantize_mix *quantize_mix_at(size_t i);

/* The type of a matrix of the model. weighted: an importance matrix weighs the errors. */
enum qtype quantize_mix_type(const struct quantize_mix *mix, const struct gguf *in,
                             const struct gguf_tensor *t, bool weighted);

#endif
