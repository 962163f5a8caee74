/* quantize_file.h: converts a model file to another weight type. */
#ifndef LOCKSTEP_CONVERT_QUANTIZE_FILE_H
#define LOCKSTEP_CONVERT_QUANTIZE_FILE_H

#include "convert/imatrix.h"
#include "convert/quantize_mix.h"
#include "format/gguf.h"
#include "format/progress.h"

/* The type of the matrices whose names have this in them; "*" in it stands for anything. */
struct quantize_choice {
    const char *pattern;
    enum qtype type;
};

struct quantize_options {
    enum qtype type;                       /* one that has a quantizer */
    const struct quantize_mix *mix;        /* instead; NULL: one type for all */
    const struct quantize_choice *choices; /* before these; the last that fits counts */
    size_t n_choices;
    int n_threads;                   /* >= 1 */
    const struct imatrix *imatrix;   /* weighs the error of each column; may be NULL */
    const struct progress *progress; /* in bytes of the output; may be NULL */
    const char *pre;                 /* its tokenizer.ggml.pre; NULL: as the input has it */
};

struct quantize_report {
    uint64_t bytes_in, bytes_out; /* of the tensors */
    uint64_t n_values;
    size_t n_tensors, n_converted, n_kept;
    size_t n_weighted; /* converted with importances */
    /* converted to another type, since rows are not whole blocks (qtype_for_row) */
    size_t n_fallback;
};

/* Converts matrices (two dimensions or more). Norms, biases, routers and other small tensors
 * keep their type. The input may have any type that can be dequantized. NVFP4's scales of whole
 * matrices become part of the values. A split model becomes one file. An imatrix that was made
 * for another model is ST_BAD_INPUT. Memory: a few megabytes per thread, and the page cache.
 * Writes atomically. */
enum status quantize_file(const struct gguf *in, const char *out_path,
                          const struct quantize_options *opts, struct quantize_report *report,
                          struct err *err);

#endif
