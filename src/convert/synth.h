/* synth.h: models of random weights with the true shapes and a filler vocabulary of the true
 * size, for benchmarks and plans without a download. The weights are a function of (shape,
 * type, seed), whatever the number of threads. */
#ifndef LOCKSTEP_CONVERT_SYNTH_H
#define LOCKSTEP_CONVERT_SYNTH_H

#include "format/progress.h"
#include "quant/quant.h"

struct synth_options {
    const char *shape; /* "llama-3.2-1b"; synth_shape_name() lists them */
    enum qtype type;   /* of the matrices; norms, biases and routers are F32 */
    uint64_t seed;
    uint32_t n_layers;               /* 0: as many as the model has */
    bool header_only;                /* keys and tensor descriptions, no data */
    int n_threads;                   /* >= 1 */
    const struct progress *progress; /* may be NULL */
};

/* Writes the file (gguf_write.h: atomically). ST_NOT_FOUND for an unknown shape, ST_UNSUPPORTED
 * for a type that cannot be written. */
enum status synth_write(const char *path, const struct synth_options *opts, struct err *err);

/* NULL beyond the last. */
const char *synth_shape_name(size_t i);
/* Parameters of the whole model. */
uint64_t synth_shape_params(size_t i);

#endif
